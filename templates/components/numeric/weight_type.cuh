// Tags of weight formats. Codes are as in humming_runtime/contract/number_formats.py.
#pragma once

#include <cstdint>

namespace humming::weight {

// Codes 0 .. 2^bits - 1; zero is the midpoint where no zero point is stored.
template <int kBitsValue>
struct Integer {
  static constexpr int kBits = kBitsValue;
  static constexpr bool kFloat = false;
  static constexpr uint32_t kMidpoint = 1u << (kBits - 1);
};

// Sign, exponent, mantissa; no infinities and no NaN reach a kernel.
template <int kExponentValue, int kMantissaValue>
struct Float {
  static constexpr int kExponent = kExponentValue;
  static constexpr int kMantissa = kMantissaValue;
  static constexpr int kBits = 1 + kExponent + kMantissa;
  static constexpr bool kFloat = true;
  static constexpr int kBias = kExponent > 0 ? (1 << (kExponent > 0 ? kExponent - 1 : 0)) - 1 : 0;
};

}  // namespace humming::weight
