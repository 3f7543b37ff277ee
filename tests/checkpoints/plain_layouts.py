"""GPTQ and AWQ words written from the facts of those formats, one nibble at a time, in numpy.

Shares nothing with the runtime's packer: what both agree on is right twice.
"""

from __future__ import annotations

import numpy as np

AWQ_COLUMNS = (0, 2, 4, 6, 1, 3, 5, 7)


def down_columns(values: np.ndarray) -> np.ndarray:
    """(K, N) codes -> (K / 8, N) words: nibble p of word i is row 8 i + p."""
    words = np.zeros((values.shape[0] // 8, values.shape[1]), dtype=np.uint32)
    for place in range(8):
        words |= values[place::8].astype(np.uint32) << np.uint32(4 * place)
    return words.view(np.int32)


def along_rows(values: np.ndarray, order: tuple[int, ...] = tuple(range(8))) -> np.ndarray:
    """(R, N) codes -> (R, N / 8) words: nibble p of word i is column 8 i + order[p]."""
    words = np.zeros((values.shape[0], values.shape[1] // 8), dtype=np.uint32)
    for place, column in enumerate(order):
        words |= values[:, column::8].astype(np.uint32) << np.uint32(4 * place)
    return words.view(np.int32)


def gptq(codes: np.ndarray, zeros: np.ndarray, *, version: int) -> dict[str, np.ndarray]:
    """codes (K, N) 0..15, zeros (G, N) true zero points; version 1 stores them minus one."""
    stored = zeros.astype(np.int64) - (1 if version == 1 else 0)
    assert stored.min() >= 0
    assert stored.max() <= 15
    return {"qweight": down_columns(codes), "qzeros": along_rows(stored)}


def awq(codes: np.ndarray, zeros: np.ndarray) -> dict[str, np.ndarray]:
    """codes (K, N) and zeros (G, N), all 0..15."""
    return {
        "qweight": along_rows(codes, AWQ_COLUMNS),
        "qzeros": along_rows(zeros, AWQ_COLUMNS),
    }
