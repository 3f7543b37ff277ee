"""One file per cubin, one pack per wheel, or compressed fatbins: sizes and times of each.

    python -m tests.bench.cubin_containers WHEEL -o FILE.json
        [--fatbinary PROGRAM] [--cuobjdump PROGRAM] [--kernels 5000]

Wheels of every form are made of WHEEL, and of one with --kernels copies of its cubins under other
names. No GPU: what the driver's own load costs is not in these figures. Cold: the page cache, the
dentries and the inodes of this machine are dropped (as root; else only the files' pages); a cache
of the disk below it is not. Times of installations and of all kernels are the least of the rounds.
"""

from __future__ import annotations

import argparse
import datetime as dt
import gzip
import io
import json
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from build_tools.folders import WorkFolder, license_file
from build_tools.release.wheel_archive import archive_bytes, read_archive
from build_tools.wheel import build_wheel
from humming_runtime.contract.manifest import from_json
from tests.bench.container_forms import (
    READERS,
    Files,
    Form,
    Reader,
    Source,
    Stored,
    fatbin_of,
    fatbins,
    one_file_each,
    packed,
    packed_zlib,
    source_of,
    with_copies,
    with_recompiled,
)

_REPOSITORY = Path(__file__).resolve().parents[2]
_DROP = Path("/proc/sys/vm/drop_caches")
ROUNDS, COLD_KERNELS, WARM_KERNELS, DECOMPRESSIONS = 4, 11, 50, 31
RECOMPILED = 10
_SECTOR, _REST_SECONDS = 512, 0.1
_MEMORY_FOLDER = Path("/dev/shm")


class Cold:
    """Makes the next read a cold one."""

    def __init__(self) -> None:
        self.way = "drop_caches" if os.access(_DROP, os.W_OK) else "posix_fadvise"

    def __call__(self, root: Path) -> None:
        os.sync()
        if self.way == "drop_caches":
            _DROP.write_text("3\n", encoding="ascii")
            time.sleep(_REST_SECONDS)  # what else runs here reads its own files again
            return
        for path in root.rglob("*"):
            if path.is_file():
                handle = os.open(path, os.O_RDONLY)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(handle)


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def median(values: Iterable[float], digits: int = 3) -> float:
    return round(statistics.median(values), digits)


def least(values: Iterable[float], digits: int = 3) -> float:
    """What else runs here only adds."""
    return round(min(values), digits)


def disk_use(*roots: Path) -> dict[str, int]:
    """Of some folders together; what is linked twice counts once, as `du` counts."""
    found = {}
    for root in roots:
        for path in (root, *root.rglob("*")):
            status = path.lstat()
            found[status.st_ino] = (status, path.is_dir())
    files = [status for status, is_folder in found.values() if not is_folder]
    return {
        "inodes": len(found),
        "file_bytes": sum(status.st_size for status in files),
        "disk_bytes": sum(status.st_blocks * _SECTOR for status, _ in found.values()),
    }


def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True, **options)


def pip_command(wheel: Path, target: Path) -> list[str]:
    options = ["--no-deps", "--no-index", "--no-cache-dir", "--disable-pip-version-check"]
    return [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(wheel)]


def uv_command(wheel: Path, target: Path, cache: Path) -> list[str]:
    options = ["--no-deps", "--no-index", "--offline", "--python", sys.executable]
    where = ["--cache-dir", str(cache), "--target", str(target)]
    return [uv_program(), "pip", "install", *options, *where, str(wheel)]


def uv_program() -> str:
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else "uv"


def installed(forms: list[Form], wheels: dict[str, Path], room: Path) -> dict[str, dict]:
    """Install times in rounds over the forms, so that a busy minute meets all of them."""
    times: dict[str, dict[str, list[float]]] = {form.name: {} for form in forms}
    found: dict[str, dict] = {}
    for round_number in range(ROUNDS):
        for form in forms:
            wheel, folder = wheels[form.name], room / f"{form.name}-{round_number}"
            cache = folder / "cache"
            targets = {way: folder / way for way in ("pip", "uv_new", "uv_cached")}
            commands = {
                "pip": pip_command(wheel, targets["pip"]),
                "uv_new": uv_command(wheel, targets["uv_new"], cache),
                "uv_cached": uv_command(wheel, targets["uv_cached"], cache),
            }
            folder.mkdir()
            for way, command in commands.items():
                os.sync()
                times[form.name].setdefault(way, []).append(seconds(partial(run, command)))
            if round_number == 0:
                found[form.name] = _uses(targets, cache)
                shutil.move(targets["pip"], room / form.name)
            shutil.rmtree(folder)
    for name, ways in times.items():
        found[name] |= {f"{way}_s": least(values) for way, values in ways.items()}
    return found


def _uses(targets: dict[str, Path], cache: Path) -> dict:
    once, twice = disk_use(cache, targets["uv_new"]), disk_use(cache, *list(targets.values())[1:])
    use = disk_use(targets["pip"])
    added = {f"uv_second_{key}": twice[key] - once[key] for key in ("inodes", "disk_bytes")}
    return use | added | {"layer_gz_bytes": layer_bytes(targets["pip"])}


def layer_bytes(root: Path) -> int:
    """A container layer of an installation: a tar file with gzip."""
    stream = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=6, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        archive.add(root, "site-packages")
    return len(stream.getvalue())


def read_times(forms: list[Form], room: Path, cold: Cold) -> dict[str, dict[str, dict]]:
    """File to checked image, by form and reader, of one kernel in microseconds and of all in
    milliseconds; in rounds over the readers. One: a median over kernels, all: the least.
    """
    readers = [(form, name, make) for form in forms for name, make in READERS[form.name].items()]
    cold_one, cold_all, warm_all, warm_one = (
        {name: [] for _, name, _ in readers} for _ in range(4)
    )
    for position in _spread(len(forms[0].kernels), COLD_KERNELS):
        for form, name, make in readers:
            call = partial(_read, make, room / form.name, [form.kernels[position]])
            cold(room / form.name)
            cold_one[name].append(1e6 * seconds(call))
    for _ in range(ROUNDS):
        for form, name, make in readers:
            call = partial(_read, make, room / form.name, form.kernels)
            cold(room / form.name)
            cold_all[name].append(1e3 * seconds(call))
            warm_all[name].append(1e3 * seconds(call))
    for position in _spread(len(forms[0].kernels), WARM_KERNELS):
        for form, name, make in readers:
            call = partial(_read, make, room / form.name, [form.kernels[position]])
            warm_one[name].append(least(1e6 * seconds(call) for _ in range(ROUNDS)))
    found: dict[str, dict[str, dict]] = {form.name: {} for form in forms}
    for form, name, _ in readers:
        found[form.name][name] = {
            "one_cold_us": median(cold_one[name], 1),
            "one_warm_us": median(warm_one[name], 1),
            "all_cold_ms": least(cold_all[name], 1),
            "all_warm_ms": least(warm_all[name], 1),
        }
    return found


def _spread(count: int, chosen: int) -> list[int]:
    """So many positions, evenly over all."""
    return [(2 * index + 1) * count // (2 * chosen) for index in range(chosen)]


def _read(make: type[Reader], root: Path, kernels: Iterable[Stored]) -> None:
    reader = make(root)
    for kernel in kernels:
        reader.read(kernel)
    reader.close()


def first_kernel(root: Path, cold: Cold) -> dict[str, dict[str, float]]:
    """Import to first checked kernel, with the runtime as it is."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("HUMMING_")
    }
    environment["PYTHONPATH"] = os.pathsep.join((str(root), str(_REPOSITORY)))
    command = [sys.executable, "-m", "tests.bench.first_kernel"]

    def once(*, is_cold: bool) -> dict[str, float]:
        if is_cold:
            cold(root)
        return json.loads(run(command, env=environment, cwd=root).stdout)

    once(is_cold=False)
    found = {}
    for name in ("warm", "cold"):
        runs = [once(is_cold=name == "cold") for _ in range(2 * ROUNDS)]
        fastest = min(runs, key=lambda one: one["total_ms"])
        found[name] = {key: round(value, 2) for key, value in fastest.items()}
    return found


def verify_seconds(subject: str, root: Path) -> float:
    """`humming verify`, which must find nothing."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(root), str(_REPOSITORY)))}
    command = [sys.executable, "-m", "humming_runtime.cli", "verify", subject]
    return least(seconds(partial(run, command, env=environment, cwd=root)) for _ in range(ROUNDS))


def project_build_seconds(source: Source, room: Path) -> float:
    """The wheel as `humming-build` writes it, cubins ready."""
    work = WorkFolder(room / "work")
    for entry in source.entries:
        path = work.root / entry["file"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.cubin(entry))
    place = f"{source.package}/manifest.json"
    manifest = from_json(source.files[place].decode(), place)
    (work.root / "staging").mkdir()
    licence = license_file().read_text(encoding="utf-8")
    took = seconds(partial(build_wheel, work, manifest, room / "dist", licence))
    shutil.rmtree(work.root)
    shutil.rmtree(room / "dist")
    return round(took, 3)


def decompression(source: Source, fatbinary: Path, cuobjdump: Path) -> dict[str, object]:
    """CPU time of cuobjdump for all kernels in one fatbin, compressed less not compressed."""
    cubins = [(entry["name"], source.cubin(entry)) for entry in source.entries]
    used: dict[str, list[float]] = {"size": [], "none": []}
    size: dict[str, int] = {}
    in_memory = str(_MEMORY_FOLDER) if os.access(_MEMORY_FOLDER, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=in_memory) as folder:
        for mode in used:
            path = Path(folder, f"{mode}.fatbin")
            path.write_bytes(fatbin_of(fatbinary, mode, cubins, folder))
            size[mode] = path.stat().st_size
        for _ in range(DECOMPRESSIONS):
            for mode, times in used.items():
                path = Path(folder, f"{mode}.fatbin")
                times.append(_extraction_seconds(cuobjdump, path, cubins, in_memory))
    extra = [1e6 * (a - b) / len(cubins) for a, b in zip(used["size"], used["none"], strict=True)]
    low, _, high = statistics.quantiles(extra, n=4)
    return {
        "method": "cuobjdump --extract-elf all, CPU time, compressed less not compressed; median "
        f"and quartiles of {DECOMPRESSIONS} pairs; images equal the cubins",
        "kernels": len(cubins),
        "compressed_bytes": size["size"],
        "plain_bytes": size["none"],
        "compressed_ms": median(1e3 * value for value in used["size"]),
        "plain_ms": median(1e3 * value for value in used["none"]),
        "per_kernel_us": median(extra, 1),
        "per_kernel_us_quartiles": [round(low, 1), round(high, 1)],
    }


def _extraction_seconds(
    cuobjdump: Path, fatbin: Path, cubins: list[tuple[str, bytes]], room: str | None
) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory(dir=room) as folder:
        run([str(cuobjdump), "--extract-elf", "all", str(fatbin)], cwd=folder)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        images = {path.read_bytes() for path in Path(folder).iterdir()}
    if images != {image for _, image in cubins}:
        raise SystemExit(f"{fatbin.name}: what cuobjdump extracts is not what went in")
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def makers(fatbinary: Path | None) -> list[Callable[[Source], Form]]:
    last = [] if fatbinary is None else [partial(fatbins, fatbinary=fatbinary)]
    return [one_file_each, packed, packed_zlib, *last]


def changed_bytes(old: Files, new: Files) -> int:
    """Of files that are other ones: what a store of files by their sums fetches."""
    return sum(len(content) for name, content in new.items() if old.get(name) != content)


def next_release(source: Source, fatbinary: Path | None) -> dict[str, object]:
    """Bytes of the files that change where a few kernels do."""
    after = source_of(with_recompiled(source, RECOMPILED))
    found: dict[str, object] = {"changed_kernels": RECOMPILED}
    for make in makers(fatbinary):
        form = make(source)
        found[f"{form.name}_bytes"] = changed_bytes(form.files, make(after).files)
    return found


def measure(files: Files, wheel_name: str, fatbinary: Path | None, cold: Cold) -> dict:
    source = source_of(files)
    found: dict[str, dict] = {}
    forms, wheels = [], {}
    with tempfile.TemporaryDirectory() as name:
        room = Path(name)
        for make in makers(fatbinary):
            start = time.perf_counter()
            form = make(source)
            made = time.perf_counter()
            content = archive_bytes(form.files)
            zipped = time.perf_counter()
            path = room / "wheels" / form.name / wheel_name
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
            forms.append(form)
            wheels[form.name] = path
            found[form.name] = {
                "wheel_bytes": len(content),
                "make_s": round(made - start, 3),
                "zip_s": round(zipped - made, 3),
            }
            print(f"{form.name}: {len(content)} bytes", flush=True)
        for form_name, facts in installed(forms, wheels, room).items():
            found[form_name] |= facts
            print(form_name, json.dumps(facts), flush=True)
        for form_name, facts in read_times(forms, room, cold).items():
            found[form_name]["read"] = facts
            print(form_name, json.dumps(facts), flush=True)
        today = room / "files"
        result = {
            "kernels": len(source.entries),
            "cubin_bytes": sum(entry["size_bytes"] for entry in source.entries),
            "manifest_bytes": len(files[f"{source.package}/manifest.json"]),
            "forms": found,
            "today": {
                "build_wheel_s": project_build_seconds(source, room),
                "verify_wheel_s": verify_seconds(str(wheels["files"]), today),
                "verify_installed_s": verify_seconds("installed", today),
                "first_kernel": first_kernel(today, cold),
            },
        }
    print(json.dumps(result["today"], indent=1), flush=True)
    return result


def machine_facts(cold: Cold, programs: dict[str, Path | None]) -> dict[str, object]:
    """Without a GPU: what the figures depend on."""
    place = tempfile.gettempdir()
    facts: dict[str, object] = {
        "date": dt.datetime.now(tz=dt.timezone.utc).date().isoformat(),
        "cores": os.cpu_count(),
        "cpu": _cpu(),
        "kernel": platform.release(),
        "filesystem": f"{_filesystem(place)}, blocks of {os.statvfs(place).f_bsize}",
        "read_ahead_kb": _read_ahead_kb(place),
        "cold": cold.way,
        "python": platform.python_version(),
        "pip": run([sys.executable, "-m", "pip", "--version"]).stdout.split()[1],
        "uv": run([uv_program(), "--version"]).stdout.split()[1],
    }
    for name, program in programs.items():
        text = "" if program is None else run([str(program), "--version"]).stdout
        release = re.search(r"V(\d+(?:\.\d+)+)", text)
        facts[name] = release[1] if release else "not found: nothing of it is measured"
    return facts


def _cpu() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    found = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


def _filesystem(place: str) -> str:
    real = Path(place).resolve()
    mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    inside = [mount for mount in mounts if real.is_relative_to(mount[0])]
    return max(inside, key=lambda mount: len(mount[0]))[1]


def _read_ahead_kb(place: str) -> int | None:
    device = Path(place).stat().st_dev
    path = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/queue/read_ahead_kb")
    return int(path.read_text(encoding="ascii")) if path.exists() else None


def find_program(given: Path | None, name: str) -> Path | None:
    """--NAME, else this environment's package of CUDA 13, else PATH."""
    if given is not None:
        return given
    for folder in map(Path, sys.path):
        path = folder / "nvidia" / "cu13" / "bin" / name
        if path.is_file():
            return path
    on_path = shutil.which(name)
    return None if on_path is None else Path(on_path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--fatbinary", type=Path)
    parser.add_argument("--cuobjdump", type=Path)
    parser.add_argument("--kernels", type=int, default=5000)
    parser.add_argument("-o", type=Path, required=True)
    arguments = parser.parse_args()
    fatbinary = find_program(arguments.fatbinary, "fatbinary")
    cuobjdump = find_program(arguments.cuobjdump, "cuobjdump")
    cold = Cold()
    files = read_archive(arguments.wheel)
    source = source_of(files)
    record: dict[str, object] = machine_facts(
        cold, {"fatbinary": fatbinary, "cuobjdump": cuobjdump}
    )
    if fatbinary is not None and cuobjdump is not None:
        record["fatbin_decompression"] = decompression(source, fatbinary, cuobjdump)
        print(json.dumps(record["fatbin_decompression"]), flush=True)
    record["next_release"] = next_release(source, fatbinary)
    record["real"] = measure(files, arguments.wheel.name, fatbinary, cold)
    arguments.o.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if arguments.kernels:
        copies = with_copies(source, arguments.kernels)
        record["synthetic"] = measure(copies, arguments.wheel.name, fatbinary, cold)
        arguments.o.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
