"""Facts -> manifest: the contract with the runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from build_tools import __version__
from build_tools.facts import BuiltKernel
from build_tools.folders import cubin_path
from build_tools.plan import ArchPlan
from build_tools.source_hash import source_sha256
from build_tools.toolchain import Toolchain
from build_tools.tuning_tables import tables_of_build
from build_tools.validation import Validated, validated_as, validated_on
from humming_runtime.contract.fingerprint import contract_hash
from humming_runtime.contract.manifest import KernelEntry, Manifest
from humming_runtime.contract.tuning import TuningTable


def distribution_name(arch: str, toolchain: Toolchain) -> str:
    """`sm_90` -> `humming-cubins-sm90-cu13`."""
    return f"humming-cubins-{arch.replace('_', '')}-cu{toolchain.release[0]}"


def make_manifest(
    plan: ArchPlan,
    kernels: Sequence[BuiltKernel],
    sources: Mapping[str, str],
    toolchain: Toolchain,
    records: Sequence[Validated],
    tables: Sequence[TuningTable] = (),
) -> Manifest:
    """Kernels in the order of their names, and the measured choices among them."""
    own = [record for record in records if record.engine == toolchain.engine]
    entries = [_entry(kernel, sources, own) for kernel in kernels]
    builds = sorted({kernel.facts.toolchain or toolchain.version for kernel in kernels})
    return Manifest(
        contract=contract_hash(),
        package=distribution_name(plan.arch.name, toolchain),
        version=__version__,
        arch=plan.arch.name,
        cuda=toolchain.cuda,
        toolchain=", ".join(builds),
        engine=toolchain.engine,
        profile=plan.profile,
        kernels=tuple(sorted(entries, key=lambda entry: entry.name)),
        tuning=tables_of_build(tables, plan.arch, [k.planned.variant for k in kernels]),
    )


def _entry(
    kernel: BuiltKernel, sources: Mapping[str, str], records: Sequence[Validated]
) -> KernelEntry:
    planned, facts = kernel.planned, kernel.facts
    digest = source_sha256(planned, sources)
    target = planned.variant.target
    return KernelEntry(
        name=planned.name,
        file=cubin_path(planned.name),
        sha256=facts.sha256,
        size_bytes=facts.size_bytes,
        registers=facts.registers,
        static_shared_bytes=facts.static_shared_bytes,
        parameter_bytes=facts.parameter_bytes[0],
        spill_bytes=kernel.spill_bytes,
        source_sha256=digest,
        cost=planned.cost,
        validated_on=validated_on(records, digest, target),
        validated_as=validated_as(records, digest, target),
    )
