// From fp32 sums to the output dtype: out = sum * channel_scale * tensor_scale + bias, absent inputs skipped.
#pragma once

#include <cstdint>

#include "../arguments.cuh"
#include "../ptx/pair_math.cuh"

namespace humming {

__device__ __forceinline__ float tensor_scale_or_one(const GemmArguments& args) {
  return args.tensor_scale ? *static_cast<const float*>(args.tensor_scale) : 1.0f;
}

// Scale of output channel n < args.n.
__device__ __forceinline__ float channel_scale_or_one(const GemmArguments& args, int n, float tensor_scale) {
  return args.channel_scale ? static_cast<const float*>(args.channel_scale)[n] * tensor_scale : tensor_scale;
}

template <class T>
__device__ __forceinline__ float bias_or_zero(const GemmArguments& args, int n) {
  if (!args.bias) return 0.0f;
  return ptx::PairMath<T>::low(static_cast<const uint16_t*>(args.bias)[n]);
}

// Address of output element (m, n); offsets may exceed 2^31.
__device__ __forceinline__ uint16_t* output_at(const GemmArguments& args, int64_t m, int n) {
  return static_cast<uint16_t*>(args.output) + m * args.output_stride + n;
}

// Scales, biases and stores kCount (2 or 8) neighbouring channels of one row; n + kCount <= args.n.
template <class T, int kCount>
__device__ __forceinline__ void store_channels(const GemmArguments& args, int64_t m, int n, const float (&sum)[kCount],
                                               float tensor_scale) {
  uint32_t packed[kCount / 2];
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    float value[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int channel = n + 2 * i + e;
      value[e] = sum[2 * i + e] * channel_scale_or_one(args, channel, tensor_scale) + bias_or_zero<T>(args, channel);
    }
    packed[i] = ptx::PairMath<T>::pack(value[0], value[1]);
  }
  uint16_t* target = output_at(args, m, n);
  if constexpr (kCount == 8) {
    *reinterpret_cast<uint4*>(target) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
  } else {
    *reinterpret_cast<uint32_t*>(target) = packed[0];
  }
}

}  // namespace humming
