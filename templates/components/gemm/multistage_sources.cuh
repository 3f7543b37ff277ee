// Where each 16-byte vector of a multistage kernel's stage comes from, and where in the stage it goes.
//
//   stage: activations [tile m][tile k] 16-bit, vector c of row r at c ^ (r & 7) | weights [tile n/16][tile k/64] tiles
//          | scales [tile n/16][groups][16] | zero points [tile n/16][groups][16]
#pragma once

#include <cstdint>

#include "../arguments.cuh"

namespace humming {

template <int kTileM, int kTileK>
struct ActivationSource {
  static constexpr int kRowVectors = kTileK / 8;
  static constexpr int kVectors = kTileM * kRowVectors;
  const GemmArguments& args;
  int64_t m0;
  int k0;

  __device__ const void* base() const { return args.activation; }
  __device__ const void* at(int index) const {
    const int64_t m = m0 + index / kRowVectors;
    const int k = k0 + index % kRowVectors * 8;
    if (m >= args.m || k >= args.k) return nullptr;
    return static_cast<const uint16_t*>(args.activation) + m * args.activation_stride + k;
  }
  __device__ uint32_t shared(int index) const {
    const int row = index / kRowVectors, vector = index % kRowVectors;
    return (row * kRowVectors + (vector ^ (row & 7))) * 16;
  }
};

template <int kTileN, int kTileK, int kTileBytes>
struct WeightSource {
  static constexpr int kVectorsOfTile = kTileBytes / 16;             // of 64 k
  static constexpr int kTileVectors = kTileK / 64 * kVectorsOfTile;  // of 16 channels
  static constexpr int kVectors = kTileN / 16 * kTileVectors;
  const GemmArguments& args;
  int tile16, k0;
  uint32_t offset;

  __device__ const void* base() const { return args.weight; }
  __device__ const void* at(int index) const {
    const int row = tile16 + index / kTileVectors, inside = index % kTileVectors;
    const int tiles_k = (args.k + 63) / 64, tile_k = k0 / 64 + inside / kVectorsOfTile;
    if (row >= (args.n + 15) / 16 || tile_k >= tiles_k) return nullptr;
    return static_cast<const unsigned char*>(args.weight) +
           ((static_cast<int64_t>(row) * tiles_k + tile_k) * kVectorsOfTile + inside % kVectorsOfTile) * 16;
  }
  __device__ uint32_t shared(int index) const { return offset + index * 16; }
};

// Rows of [groups][16] elements of kElementBytes.
template <int kTileN, int kGroups, int kElementBytes>
struct GroupSource {
  static constexpr int kRowVectors = kGroups * kElementBytes;
  static constexpr int kVectors = kTileN / 16 * kRowVectors;
  const GemmArguments& args;
  const void* values;
  int tile16, group0;
  uint32_t offset;

  __device__ const void* base() const { return values; }
  __device__ const void* at(int index) const {
    const int row = tile16 + index / kRowVectors, vector = index % kRowVectors;
    const int group = group0 + vector / kElementBytes;
    if (row >= (args.n + 15) / 16 || group >= args.groups) return nullptr;
    return static_cast<const unsigned char*>(values) +
           (static_cast<int64_t>(row) * args.groups + group0) * 16 * kElementBytes + vector * 16;
  }
  __device__ uint32_t shared(int index) const { return offset + index * 16; }
};

}  // namespace humming
