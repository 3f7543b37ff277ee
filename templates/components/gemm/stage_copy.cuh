// Filling a shared-memory stage with 16-byte vectors, kCount a thread, from addresses that `Source` computes.
//
// Source: `const void* at(int index)` (null: the vector is zeros) and `uint32_t shared(int index)` (byte offset).
// Asynchronous tiers copy without registers; the others fetch into registers first and store after the math, so that
// the loads of the next stage overlap the current one.
#pragma once

#include <cstdint>

#include "../ptx/async_copy.cuh"

namespace humming {

template <bool kAsync, int kVectors, int kThreads>
struct StageCopy;

template <int kVectors, int kThreads>
struct StageCopy<true, kVectors, kThreads> {
  static constexpr int kCount = (kVectors + kThreads - 1) / kThreads;

  template <class Source>
  __device__ __forceinline__ void fetch(const Source& source, uint32_t stage) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int index = threadIdx.x + i * kThreads;
      if (kVectors % kThreads != 0 && index >= kVectors) break;
      const void* address = source.at(index);
      ptx::copy_async_16(stage + source.shared(index), address ? address : source.base(), address != nullptr);
    }
  }
  template <class Source>
  __device__ __forceinline__ void store(const Source&, unsigned char*) {}
};

template <int kVectors, int kThreads>
struct StageCopy<false, kVectors, kThreads> {
  static constexpr int kCount = (kVectors + kThreads - 1) / kThreads;
  uint4 held[kCount];

  template <class Source>
  __device__ __forceinline__ void fetch(const Source& source, uint32_t) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int index = threadIdx.x + i * kThreads;
      const void* address = index < kVectors ? source.at(index) : nullptr;
      held[i] = address ? *static_cast<const uint4*>(address) : make_uint4(0, 0, 0, 0);
    }
  }
  template <class Source>
  __device__ __forceinline__ void store(const Source& source, unsigned char* stage) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int index = threadIdx.x + i * kThreads;
      if (kVectors % kThreads != 0 && index >= kVectors) break;
      *reinterpret_cast<uint4*>(stage + source.shared(index)) = held[i];
    }
  }
};

}  // namespace humming
