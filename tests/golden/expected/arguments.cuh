// The kernel argument, generated from the field table that also drives the runtime's packer.
#pragma once

#include <cstdint>

namespace humming {

// Opaque to device code: 128 bytes that the driver encoded (CUtensorMap).
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};
struct alignas(64) GemmArguments {
  void* activation;  // activations (m, k), row stride activation_stride
  void* activation_scale;  // fp32 per token (m) or per token and group; null for 16-bit
  void* activation_permutation;  // int32 (k): act-order gather of k; null = identity
  void* weight;  // packed weights in the variant's layout
  void* weight_scale;  // group scales [n/16][groups][16]; null for channel granularity
  void* weight_zero;  // zero points [n/16][groups][16], uint8; null = midpoint
  void* channel_scale;  // fp32 (n): channel scale or second scale, epilogue; null = 1
  void* tensor_scale;  // fp32 scalar, epilogue; null = 1
  void* bias;  // (n) in the output dtype; null = absent
  void* output;  // (m, n), row stride output_stride
  void* routing_weight;  // moe: fp32 per routed row; null = 1
  void* sorted_rows;  // moe: int32 row ids sorted by expert
  void* tile_experts;  // moe: int32 expert id of each m tile, -1 = skip
  void* valid_rows;  // moe: int32 scalar, number of padded rows in use
  int64_t activation_stride;  // elements between rows of activations
  int64_t output_stride;  // elements between rows of output
  int64_t weight_expert_stride;  // bytes between experts of packed weights
  int64_t scale_expert_stride;  // bytes between experts of group scales
  int64_t zero_expert_stride;  // bytes between experts of zero points
  int32_t m;  // rows of activations and output
  int32_t n;  // columns of output
  int32_t k;  // columns of activations
  int32_t groups;  // scale groups along k as stored
  int32_t group_size;  // elements of k that share a scale; 0 for channel granularity
  int32_t experts;  // moe: number of experts; 0 for dense
  int32_t top_k;  // moe: routed rows per token; 0 for dense
  int32_t split_k;  // CTAs of one cluster that share k (1 = none)
  int32_t whole_tiles;  // prefill: tiles that one CTA makes alone, a multiple of split_k; the others are shared
  int32_t early_successor;  // decode: 1 = the next kernel may start at once, 0 = after the last request of weights
  int32_t stages;  // depth of the shared-memory ring where it is chosen at launch
};
static_assert(sizeof(GemmArguments) == 256, "argument struct differs from the field table");

// Of kernels that copy by tensor maps.
struct MappedGemmArguments : GemmArguments {
  TensorMap activation_map;  // activations (m, k), 128-byte swizzle; used by TMA schedules
  TensorMap weight_map;  // packed weights as (n/16, bytes of a row of tiles)
  TensorMap scale_map;  // group scales as (n/16, groups * 16)
  TensorMap zero_map;  // zero points as (n/16, groups * 16)
};
static_assert(sizeof(MappedGemmArguments) == 768, "argument struct differs from the field table");

}  // namespace humming
