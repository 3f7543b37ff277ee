"""Named layouts of packed tensors: bijections from (k, n) to a place in memory, in plain Python.

`frag16` (version 1), 4-bit weights with 16-bit activations, n padded to 16 and k to 64:

    [n/16][k/64][lane 32][16 bytes]           a tile of 16 n x 64 k is 512 contiguous bytes

Lane l = 4 g + t holds one 16-byte vector of four 32-bit words; word j is k16 step j. Nibble i + 4 e of the
word is element e of register a_i of mma.m16n8k16 (and of RS wgmma.m64nNk16) with weights as the A operand:

    n = 16 tile_n + g + 8 (i & 1)        k = 64 tile_k + 16 j + 2 t + e + 8 (i >> 1)

Group scales and zero points, layout `rows16` (version 1): [n/16][groups][16]. Inside the 16, rows g and g + 8
are neighbours (place 2 g and 2 g + 1), so that one lane reads both with one load:

    place(n) = 2 (n % 8) + (n % 16) // 8

Scales have the dtype named in the variant, zero points are one byte each. `groups` is padded so that
groups * group_size is a multiple of 128 (the k step of every kernel). Padding holds code 8, scale 0, zero point 0.
"""

from __future__ import annotations

FRAG16 = "frag16"
LAYOUT_VERSIONS: dict[str, int] = {"frag16": 1, "rows16": 1}

TILE_N = 16
TILE_K = 64
SCALE_STEP_K = 128


def pad(value: int, multiple: int) -> int:
    """`value` rounded up to `multiple`."""
    return -(-value // multiple) * multiple


def packed_weight_bytes(n: int, k: int) -> int:
    """Size of 4-bit weights of shape (k, n) in `frag16`."""
    return pad(n, TILE_N) * pad(k, TILE_K) // 2


def stored_groups(k: int, group_size: int | None) -> int:
    """Groups along k as stored: 1 for channel granularity (group_size None)."""
    if group_size is None:
        return 1
    return pad(pad(k, group_size), SCALE_STEP_K) // group_size


def frag16_nibble(n: int, k: int, padded_k: int) -> tuple[int, int]:
    """Place of weight (n, k): (index of the 32-bit word, nibble inside the word)."""
    row, col = n % TILE_N, k % TILE_K
    tile = (n // TILE_N) * (padded_k // TILE_K) + k // TILE_K
    g, high_row = row % 8, row // 8
    j, inside = divmod(col, 16)
    high_k, rest = divmod(inside, 8)
    t, e = divmod(rest, 2)
    lane = 4 * g + t
    word = (tile * 32 + lane) * 4 + j
    return word, (high_row + 2 * high_k) + 4 * e


def rows16_place(n: int, group: int, groups: int) -> int:
    """Element index of the scale or zero point of row n and group `group`."""
    return ((n // TILE_N) * groups + group) * TILE_N + 2 * (n % 8) + (n % TILE_N) // 8
