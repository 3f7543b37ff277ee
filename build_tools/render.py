"""variant -> `.cu` text. The only user of Jinja2."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2

from build_tools.errors import Fault, SpecError
from build_tools.file_writes import write_current
from build_tools.folders import SOURCE, WorkFolder, kernel_path
from build_tools.plan import Planned
from humming_runtime.contract import launch_shape
from humming_runtime.contract.arguments import GEMM_FIELDS, FieldKind, struct_size_bytes
from humming_runtime.contract.number_formats import weight_format
from humming_runtime.contract.variant_name import Variant

_HEADERS = (".cuh", ".cuh.j2")


def make_environment(templates: Path) -> jinja2.Environment:
    """Undefined names are errors; a line with a tag alone leaves no blank line."""
    return jinja2.Environment(  # noqa: S701  CUDA text, nothing to escape
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def template_of(variant: Variant) -> str:
    """The kernel template, relative to templates/."""
    return f"kernels/{variant.op}_{variant.schedule}.cu.j2"


def render_sources(templates: Path, planned: Sequence[Planned]) -> dict[str, str]:
    """Every file of `src/` by its path in the work folder. Raises: SpecError with all faults."""
    environment = make_environment(templates)
    faults: dict[str, Fault] = {}
    out: dict[str, str] = {}
    for path in component_files(templates):
        target = f"{SOURCE}/{path.removesuffix('.j2')}"
        if path.endswith(".j2"):
            fields = {
                "fields": [f for f in GEMM_FIELDS if f.kind is not FieldKind.TENSOR_MAP],
                "maps": [f for f in GEMM_FIELDS if f.kind is FieldKind.TENSOR_MAP],
                "struct_bytes": struct_size_bytes(maps=False),
                "mapped_bytes": struct_size_bytes(maps=True),
            }
            out[target] = _render(environment, path, fields, faults)
        else:
            out[target] = (templates / path).read_text(encoding="utf-8")
    for item in planned:
        variant = item.variant
        context = {
            "variant": variant,
            "symbol": variant.symbol,
            "threads": launch_shape.threads(variant),
            "weight": weight_format(variant.weight),
            "groups_per_128": launch_shape.groups_per_128(variant),
        }
        name = template_of(variant)
        out[kernel_path(item.name)] = _render(environment, name, context, faults)
    if faults:
        raise SpecError([faults[key] for key in sorted(faults)])
    return out


def component_files(templates: Path) -> list[str]:
    """Headers under components/, relative to templates/, sorted."""
    return sorted(
        path.relative_to(templates).as_posix()
        for path in (templates / "components").rglob("*")
        if path.name.endswith(_HEADERS)
    )


def write_sources(work: WorkFolder, sources: dict[str, str]) -> int:
    """Write what changed; remove headers that no template makes. Returns the files written."""
    written = sum(write_current(work.root / path, text) for path, text in sources.items())
    for path in (work.source / "components").rglob("*.cuh"):
        if path.relative_to(work.root).as_posix() not in sources:
            path.unlink()
    return written


def _render(
    environment: jinja2.Environment, name: str, context: dict[str, object], faults: dict[str, Fault]
) -> str:
    """One file; a template's fault is kept once, however many variants meet it."""
    place = f"templates/{name}"
    try:
        return environment.get_template(name).render(context)
    except jinja2.TemplateNotFound as error:
        faults[place] = Fault(f"templates/{error.name}", "no such template")
    except jinja2.TemplateSyntaxError as error:
        faults[place] = Fault(f"templates/{error.name}:{error.lineno}", error.message or "syntax")
    except jinja2.UndefinedError as error:
        faults[place] = Fault(f"{place}:{_template_line(error, name)}", str(error.message))
    return ""


def _template_line(error: BaseException, name: str) -> int:
    """Line of the template that raised: Jinja2 rewrites tracebacks to template lines."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith(name):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
