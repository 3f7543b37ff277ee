"""Nibbles inside 32-bit words of checkpoints, as row sources for packing.

Words are read as four little-endian bytes, so that nothing wider than a byte a code is ever made.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from humming_runtime.torch_layer.packing import RowSource

CODES_PER_WORD = 8
IN_ORDER = (0, 1, 2, 3, 4, 5, 6, 7)
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Column inside the word that nibble 0, 1, ... holds."""


@dataclass(frozen=True)
class WordsAlongColumns:
    """Words (n, columns / 8): 8 neighbours of one row in a word."""

    words: torch.Tensor

    def rows(self, start: int, stop: int, device: torch.device) -> torch.Tensor:
        packed = _bytes(self.words[start:stop].to(device))
        out = torch.empty((*packed.shape[:2], CODES_PER_WORD), dtype=torch.uint8, device=device)
        for place in range(CODES_PER_WORD):
            out[..., place] = _nibble(packed, place)
        return out.view(stop - start, -1)


@dataclass(frozen=True)
class WordsDownColumns:
    """Words (columns / 8, n): 8 neighbours of one row in a word, rows side by side."""

    words: torch.Tensor

    def rows(self, start: int, stop: int, device: torch.device) -> torch.Tensor:
        packed = _bytes(self.words[:, start:stop].to(device))
        steps, rows = packed.shape[:2]
        out = torch.empty((rows, steps, CODES_PER_WORD), dtype=torch.uint8, device=device)
        for place in range(CODES_PER_WORD):
            out[..., place] = _nibble(packed, place).t()
        return out.view(rows, -1)


@dataclass(frozen=True)
class WordsAlongRows:
    """8 rows in a word: words (columns, n / 8), or (n / 8, columns) where `leading`."""

    words: torch.Tensor
    order: tuple[int, ...] = IN_ORDER
    leading: bool = False

    def rows(self, start: int, stop: int, device: torch.device) -> torch.Tensor:
        first, last = start // CODES_PER_WORD, stop // CODES_PER_WORD
        part = self.words[first:last] if self.leading else self.words[:, first:last]
        packed = _bytes(part.to(device))
        if not self.leading:
            packed = packed.transpose(0, 1)
        octets, columns = packed.shape[:2]
        out = torch.empty((octets, CODES_PER_WORD, columns), dtype=torch.uint8, device=device)
        for place, row in enumerate(self.order):
            out[:, row] = _nibble(packed, place)
        return out.view(-1, columns)


@dataclass(frozen=True)
class Raised:
    """Values of `source` plus a constant."""

    source: RowSource
    by: int

    def rows(self, start: int, stop: int, device: torch.device) -> torch.Tensor:
        return self.source.rows(start, stop, device) + self.by


def _bytes(words: torch.Tensor) -> torch.Tensor:
    """(a, b) words -> (a, b, 4) bytes, low byte first."""
    whole = words.contiguous()
    if whole.stride(-1) != 1:  # one column of a slice counts as contiguous whatever its stride
        whole = whole.clone(memory_format=torch.contiguous_format)
    return whole.view(torch.uint8).view(*words.shape, 4)


def _nibble(packed: torch.Tensor, place: int) -> torch.Tensor:
    byte = packed[..., place // 2]
    return byte >> 4 if place % 2 else byte & 15
