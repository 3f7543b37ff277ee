// Arithmetic on two 16-bit floats in one register, and conversions to and from fp32.
#pragma once

#include <cstdint>

#include "../numeric/dtype.cuh"

namespace humming::ptx {

template <class T>
struct PairMath;

template <>
struct PairMath<dtype::f16> {
  __device__ static __forceinline__ uint32_t subtract(uint32_t a, uint32_t b) {
    uint32_t d;
    asm("sub.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  }
  __device__ static __forceinline__ uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t d;
    asm("mul.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  }
  __device__ static __forceinline__ uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
  }
  // Low element first. Rounds to nearest even; overflow gives infinity.
  __device__ static __forceinline__ uint32_t pack(float low, float high) {
    uint32_t d;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
#else
    asm("{ .reg .b16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h}; }"
        : "=r"(d)
        : "f"(low), "f"(high));
#endif
    return d;
  }
  __device__ static __forceinline__ float low(uint32_t pair) {
    float d;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l; }" : "=f"(d) : "r"(pair));
    return d;
  }
  __device__ static __forceinline__ float high(uint32_t pair) {
    float d;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h; }" : "=f"(d) : "r"(pair));
    return d;
  }
};

template <>
struct PairMath<dtype::bf16> {
  __device__ static __forceinline__ uint32_t subtract(uint32_t a, uint32_t b) {
    return multiply_add(b, 0xbf80bf80u, a);  // sm_80 has no bf16 subtraction; a product with -1 is exact
  }
  __device__ static __forceinline__ uint32_t multiply(uint32_t a, uint32_t b) {
    // sm_80 has no bf16 multiply; a fused multiply-add of -0 rounds the same.
    return multiply_add(a, b, 0x80008000u);
  }
  __device__ static __forceinline__ uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
  }
  __device__ static __forceinline__ uint32_t pack(float low, float high) {
    uint32_t d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
  }
  __device__ static __forceinline__ float low(uint32_t pair) { return __uint_as_float(pair << 16); }
  __device__ static __forceinline__ float high(uint32_t pair) {
    return __uint_as_float(pair & 0xffff0000u);
  }
};

}  // namespace humming::ptx
