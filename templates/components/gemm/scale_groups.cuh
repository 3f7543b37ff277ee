// Group scales and zero points of one 16-row tile for 128 elements of k, as they lie in shared memory.
//
//   scales  [kPer128][16] of the activation dtype, zero points [kPer128][16] uint8, order `rows16`:
//   places 2 g and 2 g + 1 hold rows g and g + 8, so lane l = 4 g + t reads both with one load.
#pragma once

#include <cstdint>

#include "../numeric/dequantize_u4.cuh"

namespace humming {

enum class ZeroPoint { kMidpoint, kInteger };

// kPer128 = 0: one scale a channel, applied in the epilogue.
template <int kPer128Value, ZeroPoint kZeroValue>
struct ScaleGroups {
  static constexpr int kPer128 = kPer128Value;
  static constexpr ZeroPoint kZero = kZeroValue;
  static constexpr bool kGrouped = kPer128 > 0;
  static constexpr bool kGroupedZeros = kGrouped && kZero == ZeroPoint::kInteger;
  static constexpr bool kChannelZeros = !kGrouped && kZero == ZeroPoint::kInteger;
  static constexpr int kScaleBytes = kPer128 * 32;                     // of 16 rows x 128 k
  static constexpr int kZeroBytes = kGroupedZeros ? kPer128 * 16 : 0;  // of 16 rows x 128 k
  static constexpr int kSize = kGrouped ? 128 / kPer128 : 0;           // elements of k in a group

  // Group of the k16 step `step` (0..7) of 128 elements.
  __device__ static constexpr int group_of(int step) { return step * (kGrouped ? kPer128 : 1) / 8; }
};

constexpr uint32_t kMidpointU4 = 8;

// Both rows' zero points of a lane: bytes 2 g and 2 g + 1 of `places`.
template <class T>
__device__ __forceinline__ ZeroPair read_zeros(const unsigned char* places, int g) {
  const uint32_t pair = reinterpret_cast<const uint16_t*>(places)[g];
  return DequantizeU4<T>::zeros(pair & 0xffu, pair >> 8);
}

}  // namespace humming
