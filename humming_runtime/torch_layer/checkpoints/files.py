"""Safetensors files of a checkpoint: where tensors lie; only those that are asked for are read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from humming_runtime.torch_layer.checkpoints.faults import CheckpointError, Config, nearest

_INDEX = "model.safetensors.index.json"
_SUFFIX = ".safetensors"
# The first that exists; the last two are older files that hold nothing but quantization_config.
_CONFIG = "config.json"
_QUANTIZATION_FILES = ("quantize_config.json", "quant_config.json")
_CONFIG_KEYS = ("quantization_config", "compression_config")


@dataclass(frozen=True)
class Checkpoint:
    """File of every tensor by its full name; `config` is quantization_config."""

    path: Path
    files: dict[str, Path]
    config: Config

    def module(self, prefix: str) -> dict[str, torch.Tensor]:
        """Tensors of one module on the CPU, by names without its prefix.

        Raises: CheckpointError.
        """
        start = f"{prefix}." if prefix else ""
        names = [n for n in self.files if n.startswith(start) and "." not in n[len(start) :]]
        if not names:
            modules = {name.rpartition(".")[0] for name in self.files}
            hint = nearest(prefix, modules)
            raise CheckpointError(f"{self.path}: no tensors of module {prefix!r}{hint}")
        return {name[len(start) :]: tensor for name, tensor in self._read(sorted(names))}

    def _read(self, names: Iterable[str]) -> Iterable[tuple[str, torch.Tensor]]:
        for name in names:
            with _open(self.files[name]) as file:
                yield name, file.get_tensor(name)


def open_checkpoint(path: Path, config: Config | None = None) -> Checkpoint:
    """path: a folder, or one safetensors file. config: in place of the quantization_config.

    Raises: CheckpointError.
    """
    if not path.exists():
        raise CheckpointError(f"{path}: no such file or folder")
    folder = path if path.is_dir() else path.parent
    files = _by_index(folder) if path.is_dir() and (folder / _INDEX).exists() else _by_header(path)
    return Checkpoint(path, files, _quantization(folder) if config is None else config)


def _by_index(folder: Path) -> dict[str, Path]:
    index = _json(folder / _INDEX)
    files = {name: folder / file for name, file in index.get("weight_map", {}).items()}
    missing = sorted({file.name for file in files.values() if not file.exists()})
    if missing:
        raise CheckpointError(f"{folder / _INDEX}: files are missing ({', '.join(missing)})")
    return files


def _by_header(path: Path) -> dict[str, Path]:
    paths = sorted(path.glob(f"*{_SUFFIX}")) if path.is_dir() else [path]
    if not paths:
        raise CheckpointError(f"{path}: no {_SUFFIX} files")
    files: dict[str, Path] = {}
    for file in paths:
        with _open(file) as opened:
            for name in opened.keys():  # noqa: SIM118  not a mapping
                if name in files:
                    raise CheckpointError(f"{name}: in {files[name]} and in {file}")
                files[name] = file
    return files


def _quantization(folder: Path) -> Config:
    config = _json(folder / _CONFIG) if (folder / _CONFIG).exists() else {}
    for key in _CONFIG_KEYS:
        if config.get(key):
            found: Config = config[key]
            return found
    for name in _QUANTIZATION_FILES:
        if (folder / name).exists():
            return {"quant_method": _method_of(name), **_json(folder / name)}
    raise CheckpointError(f"{folder / _CONFIG}: no quantization_config, so nothing is quantized")


def _method_of(name: str) -> str:
    return "gptq" if name == _QUANTIZATION_FILES[0] else "awq"


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: not a JSON object")
    return value


def _open(path: Path) -> Any:
    try:
        from safetensors import SafetensorError, safe_open  # noqa: PLC0415  only files need it
    except ImportError as error:
        message = f"{path}: reading it needs the package safetensors"
        raise CheckpointError(message, "pip install safetensors") from error
    try:
        return safe_open(str(path), framework="pt", device="cpu")
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: {error}") from error
