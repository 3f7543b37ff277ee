// Eight 4-bit codes of one 32-bit word -> the four A registers of an m16n8k16 step, minus the zero point.
//
// The word is in `frag16` order: nibble i + 4 e is element e of register a_i; a_0, a_2 belong to row g and
// a_1, a_3 to row g + 8. Exact: codes go into the mantissa of 1024 (f16) or 128 (bf16), then the offset and the
// zero point leave together. f16: even registers keep the code at bit 0; odd ones keep it at bit 4, where it
// counts 16-fold, so they are scaled by 1/16 in the same fused step.
// Source of the method: Kim et al., "Who says elephants can't run" (2022), section on fast int4 conversion.
#pragma once

#include <cstdint>

#include "../ptx/bits.cuh"
#include "../ptx/pair_math.cuh"

namespace humming {

// What is subtracted from the raw pairs of row g (`even`) and of row g + 8 (`odd`).
struct ZeroPair {
  uint32_t even;
  uint32_t odd;
};

template <class T>
struct DequantizeU4;

template <>
struct DequantizeU4<dtype::f16> {
  // zero_low, zero_high: zero points (0..255) of rows g and g + 8.
  __device__ static __forceinline__ ZeroPair zeros(uint32_t zero_low, uint32_t zero_high) {
    return {(0x6400u | zero_low) * 0x10001u,            // 1024 + z
            (0xd400u + (zero_high << 4)) * 0x10001u};   // -(64 + z): an ulp at 64 is 1/16
  }
  __device__ static __forceinline__ void unpack(uint32_t word, ZeroPair zero, uint32_t (&a)[4]) {
    using Math = ptx::PairMath<dtype::f16>;
    constexpr uint32_t kOneSixteenth = 0x2c002c00u;
    const uint32_t upper = word >> 8;
    a[0] = Math::subtract(ptx::and_or(word, 0x000f000fu, 0x64006400u), zero.even);
    a[1] = Math::multiply_add(ptx::and_or(word, 0x00f000f0u, 0x64006400u), kOneSixteenth, zero.odd);
    a[2] = Math::subtract(ptx::and_or(upper, 0x000f000fu, 0x64006400u), zero.even);
    a[3] = Math::multiply_add(ptx::and_or(upper, 0x00f000f0u, 0x64006400u), kOneSixteenth, zero.odd);
  }
};

template <>
struct DequantizeU4<dtype::bf16> {
  __device__ static __forceinline__ ZeroPair zeros(uint32_t zero_low, uint32_t zero_high) {
    return {(0xc300u | zero_low) * 0x10001u, (0xc300u | zero_high) * 0x10001u};  // -(128 + z)
  }
  __device__ static __forceinline__ void unpack(uint32_t word, ZeroPair zero, uint32_t (&a)[4]) {
    using Math = ptx::PairMath<dtype::bf16>;
    constexpr uint32_t kOne = 0x3f803f80u;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t raw = ptx::and_or(word >> (4 * i), 0x000f000fu, 0x43004300u);
      a[i] = Math::multiply_add(raw, kOne, i % 2 == 0 ? zero.even : zero.odd);
    }
  }
};

}  // namespace humming
