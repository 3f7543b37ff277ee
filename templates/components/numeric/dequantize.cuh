// Codes of one k16 step -> the four A registers of an m16n8k16 step, exact: (code - zero point) or the float.
//
// Integers: codes go into the mantissa of a power of two (2^10 in f16, 2^7 in bf16), wherever they rest in their word;
// one fused multiply-add takes out that power, the resting place and the zero point. 8 bits do not fit into bf16's
// mantissa: there the sum is taken in fp32. Floats: sign and payload are moved to the sign and the lowest exponent bits
// of the 16-bit float; a multiplication by a power of two, exact for subnormals too, sets the exponent right.
// Source of the integer method: Kim et al., "Who says elephants can't run" (2022), section on fast int4 conversion.
#pragma once

#include <cstdint>

#include "../ptx/bits.cuh"
#include "../ptx/pair_math.cuh"
#include "lane_codes.cuh"
#include "weight_type.cuh"

namespace humming {

// kMidpoint: none stored (of floats: there is none). kInteger: one byte. kFloat: in the activation dtype.
enum class ZeroPoint { kMidpoint, kInteger, kFloat };

// Of rows g and g + 8 of a lane: integers, or pairs of equal 16-bit floats.
struct Zeros {
  uint32_t low;
  uint32_t high;
};

template <class T>
struct SixteenBit;
template <>
struct SixteenBit<dtype::f16> {
  static constexpr int kMantissa = 10, kExponent = 5, kBias = 15;
};
template <>
struct SixteenBit<dtype::bf16> {
  static constexpr int kMantissa = 7, kExponent = 8, kBias = 127;
};

// 2^exponent in both halves, for normal numbers.
template <class T>
__device__ __forceinline__ constexpr uint32_t power_pair(int exponent) {
  return static_cast<uint32_t>(SixteenBit<T>::kBias + exponent) << SixteenBit<T>::kMantissa << 16 |
         static_cast<uint32_t>(SixteenBit<T>::kBias + exponent) << SixteenBit<T>::kMantissa;
}

template <class T, class Weight, ZeroPoint kZero>
struct Dequantize {
  using Math = ptx::PairMath<T>;
  using Codes = LaneCodes<Weight::kBits>;
  static constexpr int kMantissa = SixteenBit<T>::kMantissa;
  static constexpr int kZeroBytes = kZero == ZeroPoint::kFloat ? 2 : kZero == ZeroPoint::kInteger ? 1 : 0;
  static_assert(!Weight::kFloat || kZero == ZeroPoint::kMidpoint, "floats have no zero point");

  __device__ static __forceinline__ Zeros no_zeros() {
    if constexpr (Weight::kFloat) {
      return {0, 0};
    } else {
      return {Weight::kMidpoint, Weight::kMidpoint};
    }
  }

  // places: zero points of 16 rows in the order `rows16`.
  __device__ static __forceinline__ Zeros read_zeros(const unsigned char* places, int g) {
    if constexpr (kZero == ZeroPoint::kFloat) {
      const uint32_t pair = reinterpret_cast<const uint32_t*>(places)[g];
      return {ptx::duplicate_low(pair), ptx::duplicate_high(pair)};
    } else {
      const uint32_t pair = reinterpret_cast<const uint16_t*>(places)[g];
      return {pair & 0xffu, pair >> 8};
    }
  }

  // step: 0 .. 3, known at compile time.
  __device__ static __forceinline__ void unpack(const Codes& codes, int step, Zeros zeros, uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t zero = i % 2 == 0 ? zeros.low : zeros.high;
      if constexpr (Weight::kFloat) {
        a[i] = to_float(codes, 4 * step + i);
      } else if constexpr (kZero == ZeroPoint::kFloat) {
        a[i] = Math::subtract(less(codes, 4 * step + i, 0), zero);
      } else {
        a[i] = less(codes, 4 * step + i, zero);
      }
    }
  }

 private:
  // Both codes of a pair minus the integer `zero` (at most 2^bits).
  __device__ static __forceinline__ uint32_t less(const Codes& codes, int pair, uint32_t zero) {
    if constexpr (Weight::kBits > kMantissa) {
      const uint32_t word = codes.words[pair / 2];
      const float offset = __uint_as_float(0x4b000000u + zero);  // 2^23 + zero
      return Math::pack(__uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440u + pair % 2)) - offset,
                        __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7442u + pair % 2)) - offset);
    } else {
      const int at = Codes::resting_bit(pair, kMantissa - Weight::kBits);
      const uint32_t raw = codes.place(pair, at, power_pair<T>(kMantissa));
      const uint32_t offset = (0x8000u | (power_pair<T>(kMantissa - at) & 0xffffu)) + (zero << at);
      return Math::multiply_add(raw, power_pair<T>(-at), offset * 0x10001u);
    }
  }

  __device__ static __forceinline__ uint32_t to_float(const Codes& codes, int pair) {
    constexpr uint32_t kSigns = 0x80008000u;
    constexpr int kPayload = Weight::kBits - 1;
    constexpr int kShift = SixteenBit<T>::kExponent - Weight::kExponent;
    constexpr uint32_t kMask = (((1u << kPayload) - 1) << (kMantissa - Weight::kMantissa)) * 0x10001u;
    // Exponent of what the raw bits have to be multiplied with; of sign and magnitude they are subnormal.
    constexpr int kRaise = Weight::kExponent > 0 ? SixteenBit<T>::kBias - Weight::kBias
                                                 : SixteenBit<T>::kBias - 1 + Weight::kMantissa;
    constexpr int kFirst = kRaise < SixteenBit<T>::kBias ? kRaise : SixteenBit<T>::kBias;
    const uint32_t code = codes.template place<false>(pair, 16 - Weight::kBits, 0);
    uint32_t value = ptx::and_or(code >> kShift, kMask, code & kSigns);
    if constexpr (kFirst > 0) value = Math::multiply(value, power_pair<T>(kFirst));
    if constexpr (kRaise > kFirst) value = Math::multiply(value, power_pair<T>(kRaise - kFirst));
    return value;
  }
};

}  // namespace humming
