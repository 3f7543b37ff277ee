// Scales of rows g and g + 8 as they lie in memory (order `rows16`: neighbours) -> fp32.
#pragma once

#include <cstdint>

#include "../ptx/pair_math.cuh"

namespace humming {

template <class S>
struct StoredScale;  // kBytes of one scale; read(places of 16 rows, g): {row g, row g + 8}

template <class S>
struct StoredScale16 {
  static constexpr int kBytes = 2;
  __device__ static __forceinline__ float2 read(const unsigned char* places, int g) {
    const uint32_t pair = reinterpret_cast<const uint32_t*>(places)[g];
    return make_float2(ptx::PairMath<S>::low(pair), ptx::PairMath<S>::high(pair));
  }
};
template <>
struct StoredScale<dtype::f16> : StoredScale16<dtype::f16> {};
template <>
struct StoredScale<dtype::bf16> : StoredScale16<dtype::bf16> {};

template <>
struct StoredScale<dtype::f32> {
  static constexpr int kBytes = 4;
  __device__ static __forceinline__ float2 read(const unsigned char* places, int g) {
    return reinterpret_cast<const float2*>(places)[g];
  }
};

// One byte each: low byte of the result is row g's, the next row g + 8's.
__device__ __forceinline__ uint32_t read_scale_bytes(const unsigned char* places, int g) {
  return reinterpret_cast<const uint16_t*>(places)[g];
}

// Bits of an fp16 that each byte's number is, times 2^kRaise.
template <int kRaise>
__device__ __forceinline__ float2 from_half_bits(uint32_t low, uint32_t high) {
  using Math = ptx::PairMath<dtype::f16>;
  constexpr float kFactor = 1 << kRaise;
  const uint32_t pair = low | high << 16;
  return make_float2(Math::low(pair) * kFactor, Math::high(pair) * kFactor);
}

template <>
struct StoredScale<dtype::e4m3> {
  static constexpr int kBytes = 1;
  __device__ static __forceinline__ float2 read(const unsigned char* places, int g) {
    const uint32_t bytes = read_scale_bytes(places, g);
    return from_half_bits<8>((bytes & 0x80u) << 8 | (bytes & 0x7fu) << 7, (bytes & 0x8000u) | (bytes & 0x7f00u) >> 1);
  }
};

template <>
struct StoredScale<dtype::e5m2> {
  static constexpr int kBytes = 1;
  __device__ static __forceinline__ float2 read(const unsigned char* places, int g) {
    const uint32_t bytes = read_scale_bytes(places, g);
    return from_half_bits<0>((bytes & 0xffu) << 8, bytes & 0xff00u);
  }
};

template <>
struct StoredScale<dtype::e5m3> {
  static constexpr int kBytes = 1;
  __device__ static __forceinline__ float2 read(const unsigned char* places, int g) {
    const uint32_t bytes = read_scale_bytes(places, g);
    return make_float2(one(bytes & 0xffu), one(bytes >> 8));
  }

 private:
  // In fp32, whose exponent has room for the codes that would be fp16's infinities and NaN; exact for subnormals too.
  __device__ static __forceinline__ float one(uint32_t code) {
    constexpr float kRaise = 5.192296858534828e33f;  // 2^(127 - 15)
    return __uint_as_float(code << 20) * kRaise;
  }
};

template <>
struct StoredScale<dtype::e8m0> {
  static constexpr int kBytes = 1;
  __device__ static __forceinline__ float2 read(const unsigned char* places, int g) {
    const uint32_t bytes = read_scale_bytes(places, g);
    return make_float2(one(bytes & 0xffu), one(bytes >> 8));
  }

 private:
  // 2^(code - 127): 0 is the subnormal 2^-127, 255 is NaN.
  __device__ static __forceinline__ float one(uint32_t code) {
    const uint32_t normal = code == 255u ? 0x7fc00000u : code << 23;
    return __uint_as_float(code == 0u ? 0x00400000u : normal);
  }
};

}  // namespace humming
