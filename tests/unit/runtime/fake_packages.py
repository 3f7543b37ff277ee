"""Kernel packages on disk with cubins that are an ELF header and nothing else."""

import hashlib
import struct
from pathlib import Path

from humming_runtime.contract.fingerprint import contract_hash
from humming_runtime.contract.launch_shape import argument_bytes
from humming_runtime.contract.manifest import Cost, KernelEntry, Manifest, to_json
from humming_runtime.contract.targets import target_capability
from humming_runtime.contract.variant_name import Variant

DECODE = "dense_f16_u4_f16_g128f16_frag16_hopper-decode_t8x32x1024_w8r2_s5_sm90a"
PREFILL = "dense_f16_u4_f16_g128f16_frag16_hopper-prefill_t128x128x128_w8_s4_sm90a"
PREFILL_ZERO = "dense_bf16_u4_bf16_g32zbf16_frag16_hopper-prefill_t64x128x128_w8_s4_sm90a"
MULTISTAGE = "dense_f16_u4_f16_g128f16_frag16_ampere-multistage_t64x128x64_w4r2_s4_sm80"
TEST_TARGET = "dense_f16_u4_f16_g128f16_frag16_ampere-multistage_t64x128x64_w4r2_s4_sm90a"
CHANNEL = "dense_f16_u4_f16_chz_frag16_hopper-prefill_t64x128x128_w8_s4_sm90a"


def elf(target, *, osabi=0x41, machine=0xBE):
    """A cubin's ELF header for a target, with a tail that makes it unique."""
    major, minor = target_capability(target)
    number = major * 10 + minor
    abi_version, flags = (8, number << 8) if osabi == 0x41 else (7, number)
    ident = struct.pack("<4sBBBBB7x", b"\x7fELF", 2, 1, 1, osabi, abi_version)
    return ident + struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 0, 0, flags, 64, 0, 0, 0, 0, 0)


def entry(name, image, cost=None):
    return KernelEntry(
        name=name,
        file=f"cubins/{name}.cubin",
        sha256=hashlib.sha256(image).hexdigest(),
        size_bytes=len(image),
        registers=168,
        static_shared_bytes=176,
        parameter_bytes=argument_bytes(Variant.parse(name)),
        spill_bytes=0,
        source_sha256="0" * 64,
        cost=cost,
        validated_on=("9.0",) if name.endswith("sm90a") else (),
    )


def cost(fixed_us):
    return Cost(
        fixed_us=fixed_us, tile_us=1.0, step_us=0.5, split_us=2.0, shared_step=0.8,
        activation_us_per_mb=5.0, memory_mb_per_us=3.0,
    )  # fmt: skip


def image_of(name):
    return elf(Variant.parse(name).target) + name.encode()


def manifest(names, package="humming-cubins-sm90-cu13", contract=None, costs=None, cuda="13.0"):
    costs = costs or {}
    return Manifest(
        contract=contract or contract_hash(),
        package=package,
        version="0.1.0",
        arch="sm_90",
        cuda=cuda,
        toolchain="stub",
        engine="nvcc",
        profile="quick",
        kernels=tuple(entry(name, image_of(name), costs.get(name)) for name in sorted(names)),
    )


def write_package(folder: Path, names, **facts) -> Path:
    """A folder with manifest.json and cubins."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cubins").mkdir(exist_ok=True)
    for name in names:
        (folder / "cubins" / f"{name}.cubin").write_bytes(image_of(name))
    (folder / "manifest.json").write_text(to_json(manifest(names, **facts)))
    return folder


def install(site: Path, names, package="humming-cubins-sm90-cu13", **facts) -> Path:
    """What pip would leave of a kernel wheel in a site folder. Returns the package's folder."""
    module = package.replace("-", "_")
    info = site / f"{module}-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {package}\nVersion: 0.1.0\n")
    arch = package.split("-")[2].replace("sm", "sm_")
    (info / "entry_points.txt").write_text(f"[humming.cubins]\n{arch} = {module}\n")
    folder = write_package(site / module, names, package=package, **facts)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    return folder
