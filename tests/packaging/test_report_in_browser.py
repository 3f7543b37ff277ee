"""The report of a build opens in a real browser, from a file, in light and dark."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from build_tools.cubin import CubinFacts
from build_tools.facts import BuiltKernel
from build_tools.html_report.page import page_text
from build_tools.ninja_run import Compiled
from build_tools.plan import Planned
from humming_runtime.contract.manifest import Manifest
from humming_runtime.contract.variant_name import ScaleScheme, Variant

BROWSER = shutil.which("chromium")
NAME = "dense_bf16_u4_bf16_ch_frag16_hopper-decode_t8x64x1024_w8r4_s4_sm90a"
MANIFEST = Manifest(
    "0" * 16, "humming-cubins-sm90-cu13", "0", "sm_90", "13.0", "t", "nvcc", "p", (), ()
)
SORTED = '<script>document.querySelectorAll("#kernels button")[1].click()</script></body>'
MEASURED = """<script>
const outside = [...document.querySelectorAll(".label")].filter(text => {
  const own = text.getBoundingClientRect();
  const room = text.parentNode.previousElementSibling.getBoundingClientRect();
  return own.right > room.right || own.bottom > room.bottom || own.left < room.left;
}).length;
const wide = document.documentElement.scrollWidth > innerWidth;
const count = document.querySelectorAll(".label").length;
document.title = `${count} labels, ${outside} outside, wide ${wide}`;
</script></body>"""
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium on PATH")


def kernels():
    """Each of another format."""
    first = Variant.parse(NAME)
    found = []
    for at, scale in enumerate(
        ScaleScheme("g", group_size=size, zero_point=zero, dtype="bf16")
        for size in (32, 64, 128, 256)
        for zero in ("", "z")
    ):
        facts = CubinFacts(("k",), (9, 0), None, None, 40 + at, 0, (64,), "0" * 64, 9000 + at)
        planned = Planned(replace(first, scale=scale), "f", None, None)
        found.append(BuiltKernel(planned, facts, 0, 800, 1e9 + at / 2))
    return found


def browse(tmp_path, path, *options):
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += ["--disable-quic", "--no-first-run", "--disable-background-networking"]
    command += ["--disable-component-update", "--disable-sync"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=2000"]
    done = subprocess.run(
        [*command, *options, path.as_uri()], capture_output=True, text=True, timeout=60, check=True
    )
    assert "Uncaught" not in done.stderr
    return done.stdout


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "report.html"
    path.write_text(page_text(MANIFEST, Compiled((), (), ()), kernels()), encoding="utf-8")
    return path


def test_the_browser_shows_every_kernel_and_a_click_sorts(page, tmp_path):
    text = page.read_text(encoding="utf-8").replace("</body>", SORTED)
    page.write_text(text, encoding="utf-8")
    shown = browse(tmp_path, page, "--enable-logging=stderr", "--dump-dom")
    table = shown[shown.index('id="kernels"') :]
    names = re.findall(r'<th scope="row">([^<]+)</th>', table)
    assert names == [k.planned.name for k in reversed(kernels())]
    assert 'aria-sort="descending"' in table
    assert shown.count('class="run"') == 8


@pytest.mark.parametrize("width", [500, 900, 1600])
def test_labels_stay_in_their_tiles_and_nothing_is_wider_than_the_window(page, tmp_path, width):
    text = page.read_text(encoding="utf-8").replace("</body>", MEASURED)
    page.write_text(text, encoding="utf-8")
    shown = browse(tmp_path, page, f"--window-size={width},900", "--dump-dom")
    assert re.search("<title>(.*?)</title>", shown)[1] == "16 labels, 0 outside, wide false"


@pytest.mark.parametrize("scheme", [0, 1])  # dark, light
def test_the_browser_draws_the_page(page, tmp_path, scheme):
    picture = tmp_path / "page.png"
    setting = f"--blink-settings=preferredColorScheme={scheme}"
    browse(tmp_path, page, setting, "--window-size=1200,1600", f"--screenshot={picture}")
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert picture.stat().st_size > 20_000
