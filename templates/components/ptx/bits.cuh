// Bit instructions on 32-bit words: three-input logic and byte permutation.
#pragma once

#include <cstdint>

namespace humming::ptx {

// (value & mask) | bits in one LOP3.
__device__ __forceinline__ uint32_t and_or(uint32_t value, uint32_t mask, uint32_t bits) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(value), "r"(mask), "r"(bits));
  return result;
}

// Low (high) 16 bits of `pair` in both halves.
__device__ __forceinline__ uint32_t duplicate_low(uint32_t pair) {
  return __byte_perm(pair, 0, 0x1010);
}
__device__ __forceinline__ uint32_t duplicate_high(uint32_t pair) {
  return __byte_perm(pair, 0, 0x3232);
}

}  // namespace humming::ptx
