"""Named layouts of packed tensors: bijections from (k, n) to a place in memory, in plain Python.

`frag16` (version 1), weights of b bits with 16-bit activations, n padded to 16 and k to 64. A tile of 16 n x 64 k is
128 b contiguous bytes, made of planes: 8, 4, 2 and 1 bits of each code are a plane as they are, 3 = 2 + 1, 5 = 4 + 1,
6 = 4 + 2, 7 = 4 + 2 + 1; the first plane holds the lowest bits.

    [n/16][k/64]( plane 0 [vectors][lane 32][bytes] | plane 1 ... )        a plane of p bits is 128 p bytes:
                                                                           8: 2 vectors of 16, else 1 of 4 p bytes

Lane l = 4 g + t holds 32 codes of p bits in p 32-bit words (word w of an 8-bit plane is word w % 4 of vector w // 4).
They are 16 pairs, pair 4 j + i for register a_i of k16 step j; 16 / p pairs share a word, and pair s of them lies in bits
s p .. s p + p - 1 of the word's low half for element e = 0, of its high half for e = 1. Register a_i of mma.m16n8k16 (and of
RS wgmma.m64nNk16) with weights as the A operand:

    n = 16 tile_n + g + 8 (i & 1)        k = 64 tile_k + 16 j + 2 t + e + 8 (i >> 1)

Group scales and zero points, layout `rows16` (version 1): [n/16][groups][16]. Inside the 16, rows g and g + 8
are neighbours (place 2 g and 2 g + 1), so that one lane reads both with one load:

    place(n) = 2 (n % 8) + (n % 16) // 8

Scales have the dtype named in the variant; integer zero points are one byte each, float ones have the activation's dtype.
`groups` is padded so that groups * group_size is a multiple of 128 (the k step of every kernel); groups of a multiple of
128 are stored as groups of 128. Padding holds the code of zero (the midpoint of integers), scale 0, zero point 0.
"""

from __future__ import annotations

from dataclasses import dataclass

FRAG16 = "frag16"
LAYOUT_VERSIONS: dict[str, int] = {"frag16": 1, "rows16": 1}

TILE_N = 16
TILE_K = 64
SCALE_STEP_K = 128


def pad(value: int, multiple: int) -> int:
    """`value` rounded up to `multiple`."""
    return -(-value // multiple) * multiple


def planes(bits: int) -> tuple[int, ...]:
    """Widths of the planes that a code of `bits` bits is split into, lowest bits first."""
    return tuple(width for width in (8, 4, 2, 1) if bits & width)


def tile_bytes(bits: int) -> int:
    """Size of one packed tile of 16 n x 64 k."""
    return TILE_N * TILE_K * bits // 8


def packed_weight_bytes(n: int, k: int, bits: int = 4) -> int:
    """Size of weights of shape (k, n) in `frag16`."""
    return pad(n, TILE_N) * pad(k, TILE_K) * bits // 8


def stored_group_size(group_size: int) -> int:
    """Elements of k that share a scale as stored: multiples of 128 repeat their scales."""
    return min(group_size, SCALE_STEP_K)


def stored_groups(k: int, group_size: int | None) -> int:
    """Groups along k as stored: 1 for channel granularity (group_size None)."""
    if group_size is None:
        return 1
    return pad(pad(k, group_size), SCALE_STEP_K) // group_size


@dataclass(frozen=True)
class PlanePlace:
    """Where one plane of a code lies: bits `bit` .. `bit + width - 1` of 32-bit word `word`."""

    word: int
    bit: int
    width: int


def frag16_places(n: int, k: int, padded_k: int, bits: int = 4) -> tuple[PlanePlace, ...]:
    """Places of weight (n, k), one for each plane, lowest bits first."""
    row, col = n % TILE_N, k % TILE_K
    tile = (n // TILE_N) * (padded_k // TILE_K) + k // TILE_K
    g, high_row = row % 8, row // 8
    j, inside = divmod(col, 16)
    high_k, rest = divmod(inside, 8)
    t, e = divmod(rest, 2)
    lane, pair = 4 * g + t, 4 * j + high_row + 2 * high_k
    found = []
    base = tile * tile_bytes(bits) // 4
    for width in planes(bits):
        word, slot = divmod(pair, 16 // width)
        vector, inside = divmod(word, 4)
        words_of_lane = min(width, 4)
        place = base + (vector * 32 + lane) * words_of_lane + inside
        found.append(PlanePlace(place, slot * width + 16 * e, width))
        base += TILE_N * TILE_K * width // 32
    return tuple(found)


def rows16_place(n: int, group: int, groups: int) -> int:
    """Element index of the scale or zero point of row n and group `group`."""
    return ((n // TILE_N) * groups + group) * TILE_N + 2 * (n % 8) + (n % TILE_N) // 8
