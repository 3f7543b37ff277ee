// The codes that a lane holds of one 16 n x 64 k tile in `frag16` (humming_runtime/contract/layouts.py): 16 pairs, pair
// 4 j + i for register a_i of k16 step j, split into planes of 8, 4, 2 and 1 bits.
#pragma once

#include <cstdint>

#include "../ptx/bits.cuh"

namespace humming {

template <int kBits>
struct LaneCodes {
  static constexpr int kTileBytes = 128 * kBits;
  static constexpr int kFirstWidth = kBits & 8 ? 8 : kBits & 4 ? 4 : kBits & 2 ? 2 : 1;  // of the lowest bits
  uint32_t words[kBits];  // a plane of p bits has p words

  __device__ __forceinline__ void load(const unsigned char* tile, int lane) { load_planes<kBits, 0>(tile, lane); }

  // Both codes of `pair` at bit `to` of each half, or'ed into `bits`. With one plane and kExact false, bits beside the
  // codes are not cleared (and `bits` is not used).
  template <bool kExact = true>
  __device__ __forceinline__ uint32_t place(int pair, int to, uint32_t bits) const {
    if constexpr (!kExact && kFirstWidth == kBits) {
      return shifted<kFirstWidth>(0, pair, to);
    } else {
      return place_planes<kBits, 0, 0>(pair, to, bits);
    }
  }

  // Where the codes of `pair` may stay so that few words have to be shifted: at most bit `last`.
  __device__ static constexpr int resting_bit(int pair, int last) {
    const int from = pair % (16 / kFirstWidth) * kFirstWidth;
    return from % (last / kFirstWidth * kFirstWidth + kFirstWidth);
  }

 private:
  template <int kLeft>
  static constexpr int kWidth = kLeft & 8 ? 8 : kLeft & 4 ? 4 : kLeft & 2 ? 2 : 1;

  template <int kLeft, int kAt>
  __device__ __forceinline__ void load_planes(const unsigned char* tile, int lane) {
    constexpr int kW = kWidth<kLeft>;
    const unsigned char* plane = tile + kAt * 128;
    if constexpr (kW == 8) {
      const auto* vectors = reinterpret_cast<const uint4*>(plane);
      set4(kAt, vectors[lane]);
      set4(kAt + 4, vectors[32 + lane]);
    } else if constexpr (kW == 4) {
      set4(kAt, reinterpret_cast<const uint4*>(plane)[lane]);
    } else if constexpr (kW == 2) {
      const uint2 v = reinterpret_cast<const uint2*>(plane)[lane];
      words[kAt] = v.x, words[kAt + 1] = v.y;
    } else {
      words[kAt] = reinterpret_cast<const uint32_t*>(plane)[lane];
    }
    if constexpr (kLeft > kW) load_planes<kLeft - kW, kAt + kW>(tile, lane);
  }
  __device__ __forceinline__ void set4(int at, uint4 v) {
    words[at] = v.x, words[at + 1] = v.y, words[at + 2] = v.z, words[at + 3] = v.w;
  }

  // The word with the codes of `pair` in a plane of kW bits, its bits moved to begin at bit `to`.
  template <int kW>
  __device__ __forceinline__ uint32_t shifted(int at, int pair, int to) const {
    const uint32_t word = words[at + pair * kW / 16];
    const int from = pair % (16 / kW) * kW;
    return from >= to ? word >> (from - to) : word << (to - from);
  }

  template <int kLeft, int kAt, int kLowBits>
  __device__ __forceinline__ uint32_t place_planes(int pair, int to, uint32_t bits) const {
    constexpr int kW = kWidth<kLeft>;
    const uint32_t mask = (((1u << kW) - 1) << (to + kLowBits)) * 0x10001u;
    const uint32_t found = ptx::and_or(shifted<kW>(kAt, pair, to + kLowBits), mask, bits);
    if constexpr (kLeft > kW) {
      return place_planes<kLeft - kW, kAt + kW, kLowBits + kW>(pair, to, found);
    } else {
      return found;
    }
  }
};

}  // namespace humming
