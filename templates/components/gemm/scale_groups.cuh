// Group scales and zero points of one 16-row tile for 128 elements of k, as they lie in shared memory.
//
//   scales [kPer128][16], zero points [kPer128][16] of their own dtypes, order `rows16`:
//   places 2 g and 2 g + 1 hold rows g and g + 8, so lane l = 4 g + t reads both with one load.
#pragma once

#include <cstdint>

#include "../numeric/dequantize.cuh"
#include "../numeric/stored_scale.cuh"

namespace humming {

// kPer128 = 0: one scale a channel, applied in the epilogue. Stored: the dtype of group scales.
template <int kPer128Value, class StoredValue, ZeroPoint kZeroValue>
struct ScaleGroups {
  using Stored = StoredValue;
  static constexpr int kPer128 = kPer128Value;
  static constexpr ZeroPoint kZero = kZeroValue;
  static constexpr bool kGrouped = kPer128 > 0;
  static constexpr bool kGroupedZeros = kGrouped && kZero != ZeroPoint::kMidpoint;
  static constexpr bool kChannelZeros = !kGrouped && kZero != ZeroPoint::kMidpoint;
  static constexpr int kScaleElement = StoredScale<Stored>::kBytes;
  static constexpr int kZeroElement = kZero == ZeroPoint::kFloat ? 2 : 1;
  static constexpr int kScaleRow = 16 * kScaleElement;  // bytes of 16 rows of one group
  static constexpr int kZeroRow = 16 * kZeroElement;
  static constexpr int kScaleBytes = kPer128 * kScaleRow;                    // of 16 rows x 128 k
  static constexpr int kZeroBytes = kGroupedZeros ? kPer128 * kZeroRow : 0;  // of 16 rows x 128 k
  static constexpr int kSize = kGrouped ? 128 / kPer128 : 0;                 // elements of k in a group

  // Group of the k16 step `step` (0..7) of 128 elements.
  __device__ static constexpr int group_of(int step) { return step * (kGrouped ? kPer128 : 1) / 8; }

  // Multiplied on the 16-bit pair of weights (one rounding a weight) where they are of the activation dtype; else, and
  // where a schedule prefers it, on fp32 sums of each group.
  template <class T>
  static constexpr bool kOnPair = kGrouped && dtype::kSame<T, Stored>;

  __device__ static __forceinline__ float2 read(const unsigned char* places, int g) {
    return StoredScale<Stored>::read(places, g);
  }
};

}  // namespace humming
