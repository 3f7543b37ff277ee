// Many rows of activations: weights dequantised in registers are the A operand of wgmma, activations the B operand.
//
// A CTA makes one tile of tile n channels x tile m tokens. Consumer warpgroups own 64 channels each; where there are
// more warps than channels need, groups of them take turns at the stages (kGroupsK) and are added up in the end. One
// producer thread fills a ring of k128 stages by TMA, weights of the first stages before the previous kernel has
// ended. The second k64 half is dequantised while the first half's wgmma runs.
//
//   stage (1,024-byte aligned): activations [2 k64 halves][tile m][128 B], swizzled | weights [tile n / 16][2 tiles]
//                               | scales [tile n / 16][kPer128][16] | zero points [tile n / 16][kPer128][16]
//
// The first whole_tiles tiles are made by one CTA each. The others are made by the split_k CTAs of a cluster, which share
// k: fp32 sums meet in distributed shared memory and are added in rank order. So a last wave that would leave most SMs
// idle is spread over them.
// Group scales of the activation dtype multiply the dequantised 16-bit pair: one rounding a weight. Others multiply fp32
// sums of each group (`multiply_groups`), which need a second set of accumulators.
#pragma once

#include "../ptx/cluster.cuh"
#include "../ptx/matrix_load.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/warp_roles.cuh"
#include "../ptx/wgmma.cuh"
#include "output.cuh"
#include "prefill_ring.cuh"

namespace humming {

template <class Traits>
struct HopperPrefill : PrefillRing<Traits> {
  using T = typename Traits::Activation;
  using Scales = typename Traits::Scales;
  using Math = ptx::PairMath<T>;
  using Unpack = Dequantize<T, typename Traits::Weight, Scales::kZero>;
  using Ring = PrefillRing<Traits>;
  using typename Ring::Barriers;
  using typename Ring::Codes;
  using typename Ring::Tile;
  using Ring::kActivationBytes, Ring::kConsumers, Ring::kGroupsK, Ring::kScaleBytes, Ring::kStageBytes, Ring::kStages;
  using Ring::kTileM, Ring::kTileN, Ring::kTiles16, Ring::kWarps, Ring::kWeightBytes;
  static constexpr int kFinishers = kTiles16 * 32;  // consumers that hold the sums in the end
  static constexpr int kSums = kTileM / 2;  // fp32 accumulators of a thread
  // A whole producer warpgroup gives its registers away where accumulators need more than an even share.
  static constexpr bool kScaleSums = Scales::kGrouped && !Scales::template kOnPair<T>;
  static_assert(!kScaleSums || kTileM <= 128, "two sets of accumulators do not fit into the registers");
  static constexpr bool kMoveRegisters = Traits::kThreads == kConsumers + 128;

  static constexpr int kConsumerBarrier = 1;
  static constexpr int kFinisherBarrier = 2;
  static constexpr int kWarpgroupBarrier = 3;  // and the following ids

  static constexpr int kHalfPitch = kTileN * 2 + 16;   // bytes of a token in the 16-bit output tile
  static constexpr int kFloatPitch = kTileN + 4;       // floats of a token in the fp32 tile of a split
  static_assert(kStages * kStageBytes >= kTileM * kHalfPitch, "output tile does not fit into the ring");
  static constexpr bool kCanSplit = kStages * kStageBytes >= kTileM * kFloatPitch * 4;
  static_assert(kGroupsK == 1 || kStages * kStageBytes >= (kGroupsK - 1) * kFinishers * kSums * 4,
                "sums of the other groups do not fit into the ring");

  // A registers of the four k16 steps of one k64 half.
  __device__ static __forceinline__ void dequantize_half(const Codes& codes, int half, const unsigned char* scales,
                                                         const unsigned char* zeros, Zeros channel_zero, int g,
                                                         uint32_t (&a)[4][4]) {
    Zeros zero = channel_zero;
    uint32_t low = 0, high = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int step = half * 4 + j;
      const int group = Scales::group_of(step);
      if (Scales::kGrouped && (j == 0 || group != Scales::group_of(step - 1))) {
        if constexpr (Scales::template kOnPair<T>) {
          const uint32_t pair = reinterpret_cast<const uint32_t*>(scales + group * Scales::kScaleRow)[g];
          low = ptx::duplicate_low(pair);
          high = ptx::duplicate_high(pair);
        }
        if constexpr (Scales::kGroupedZeros) zero = Unpack::read_zeros(zeros + group * Scales::kZeroRow, g);
      }
      Unpack::unpack(codes, j, zero, a[j]);
      if constexpr (Scales::template kOnPair<T>) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[j][i] = Math::multiply(a[j][i], i % 2 == 0 ? low : high);
      }
    }
  }

  __device__ static __forceinline__ void multiply_half(const uint32_t (&a)[4][4], uint64_t descriptor,
                                                       float (&sum)[kSums]) {
    ptx::wgmma_fence();
#pragma unroll
    for (int j = 0; j < 4; ++j) ptx::WgmmaRegisterA<T, kTileM>::run(sum, a[j], descriptor + j * 2);
    ptx::wgmma_commit();
  }

  // One half, group by group: fp32 sums of a group are scaled and added once its last step is done.
  __device__ static __forceinline__ void multiply_groups(const uint32_t (&a)[4][4], int half, uint64_t descriptor,
                                                         const unsigned char* scales, int g, float (&part)[kSums],
                                                         float (&sum)[kSums]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int step = half * 4 + j, group = Scales::group_of(step);
      const bool first = j == 0 || Scales::group_of(step - 1) != group;
      const bool last = step == 7 || Scales::group_of(step + 1) != group;
      if (first) ptx::wgmma_fence();
      ptx::WgmmaRegisterA<T, kTileM>::run(part, a[j], descriptor + j * 2);
      if (!last && j < 3) continue;
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      if (!last) continue;
      const float2 scale = Scales::read(scales + group * Scales::kScaleRow, g);
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        sum[i] += part[i] * (i % 4 < 2 ? scale.x : scale.y);
        part[i] = 0.0f;
      }
    }
  }

  __device__ static void consume(const GemmArguments& args, const Tile& tile, unsigned char* ring_base,
                                 Barriers& barriers, float (&sum)[kSums]) {
    const int warp = (threadIdx.x >> 5) % kTiles16, group = (threadIdx.x >> 5) / kTiles16;
    const int lane = threadIdx.x & 31, g = lane >> 2;
    Zeros channel_zero = Unpack::no_zeros();
    if constexpr (Scales::kChannelZeros) {
      const int tile16 = min(tile.tile_n * kTiles16 + warp, (args.n + 15) / 16 - 1);
      const auto* places = static_cast<const unsigned char*>(args.weight_zero) + tile16 * Scales::kZeroRow;
      channel_zero = Unpack::read_zeros(places, g);
    }
    RingCursor ring{group, 0};
    for (int step = group; step < tile.steps; step += kGroupsK) {
      ptx::barrier_wait(&barriers.full[ring.stage], ring.parity);
      const unsigned char* stage = ring_base + ring.stage * kStageBytes;
      const unsigned char* tile16 = stage + kActivationBytes + warp * 2 * Codes::kTileBytes;
      const unsigned char* scales = stage + kActivationBytes + kWeightBytes + warp * Scales::kScaleBytes;
      const unsigned char* zeros =
          stage + kActivationBytes + kWeightBytes + kScaleBytes + warp * Scales::kZeroBytes;
      const uint64_t descriptor = ptx::wgmma_descriptor_swizzle_128(ptx::shared_address(stage));
      constexpr uint64_t kNextHalf = kActivationBytes / 2 / 16;
      if constexpr (kScaleSums) {
        float part[kSums] = {};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          Codes codes;
          codes.load(tile16 + half * Codes::kTileBytes, lane);
          uint32_t a[4][4];
          dequantize_half(codes, half, scales, zeros, channel_zero, g, a);
          multiply_groups(a, half, descriptor + half * kNextHalf, scales, g, part, sum);
        }
      } else {
        Codes first, second;
        first.load(tile16, lane);
        second.load(tile16 + Codes::kTileBytes, lane);
        uint32_t a0[4][4], a1[4][4];
        dequantize_half(first, 0, scales, zeros, channel_zero, g, a0);
        multiply_half(a0, descriptor, sum);
        dequantize_half(second, 1, scales, zeros, channel_zero, g, a1);
        multiply_half(a1, descriptor + kNextHalf, sum);
        ptx::wgmma_wait<0>();
      }
      if (lane == 0) ptx::barrier_arrive(&barriers.empty[ring.stage]);
#pragma unroll
      for (int i = 0; i < kGroupsK; ++i) ring.advance(kStages);
    }
  }

  // Adds the sums of the groups along k, in group order, into those of group 0.
  __device__ static void add_groups(unsigned char* shared, float (&sum)[kSums]) {
    const int group = threadIdx.x / kFinishers;
    float* place = reinterpret_cast<float*>(shared) + threadIdx.x % kFinishers;
    ptx::named_barrier<kConsumers>(kConsumerBarrier);  // the ring is no longer read
    if (group > 0) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) place[((group - 1) * kSums + i) * kFinishers] = sum[i];
    }
    ptx::named_barrier<kConsumers>(kConsumerBarrier);
    if (group == 0) {
#pragma unroll
      for (int other = 0; other < kGroupsK - 1; ++other)
#pragma unroll
        for (int i = 0; i < kSums; ++i) sum[i] += place[(other * kSums + i) * kFinishers];
    }
  }

  // Whole k in this CTA: scale and round in registers, transpose through shared memory, 16-byte stores.
  __device__ static void store_tile(const GemmArguments& args, const Tile& tile, unsigned char* shared,
                                    const float (&sum)[kSums]) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int n0 = tile.tile_n * kTileN;
    const float tensor_scale = tensor_scale_or_one(args);
    float scale[2], bias[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int n = min(n0 + warp * 16 + (lane >> 2) + 8 * i, args.n - 1);
      scale[i] = channel_scale_or_one(args, n, tensor_scale);
      bias[i] = bias_or_zero<T>(args, n);
    }
    ptx::named_barrier<kFinishers>(kFinisherBarrier);  // shared memory is no longer read
    // Matrices of one stmatrix: (channels 0-7, 8-15) x (tokens 8 i .. 8 i + 15).
    const uint32_t place = ptx::shared_address(shared) + ((lane & 7) + (lane >> 4) * 8) * kHalfPitch + warp * 32 +
                           (lane >> 3 & 1) * 16;
#pragma unroll
    for (int i = 0; i < kTileM / 8; i += 2) {
      uint32_t r[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = (i + j / 2) * 4 + j % 2 * 2;
        r[j] = Math::pack(sum[at] * scale[j % 2] + bias[j % 2], sum[at + 1] * scale[j % 2] + bias[j % 2]);
      }
      ptx::store_matrix_x4_transposed(place + i * 8 * kHalfPitch, r);
    }
    const int warpgroup = warp / 4;
    ptx::named_barrier<128>(kWarpgroupBarrier + warpgroup);
    const int inside = threadIdx.x & 127;
    const int n = n0 + warpgroup * 64 + inside % 8 * 8;
    if (n >= args.n) return;
    const int64_t m0 = tile.first_row;
    const int rows = min(kTileM, args.m - tile.first_row);
    const unsigned char* source = shared + warpgroup * 128 + inside % 8 * 16;
#pragma unroll 4
    for (int row = tile.skip + inside / 8; row < rows; row += 16) {
      *reinterpret_cast<uint4*>(output_at(args, m0 + row, n)) =
          *reinterpret_cast<const uint4*>(source + row * kHalfPitch);
    }
  }

  // A share of k in this CTA: fp32 sums to shared memory, for all ranks to read.
  __device__ static void publish_sums(unsigned char* shared, const float (&sum)[kSums]) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    ptx::named_barrier<kFinishers>(kFinisherBarrier);
    float* place = reinterpret_cast<float*>(shared) + (lane & 3) * 2 * kFloatPitch + warp * 16 + (lane >> 2);
#pragma unroll
    for (int i = 0; i < kTileM / 8; ++i) {
      float* at = place + i * 8 * kFloatPitch;
      at[0] = sum[i * 4];
      at[kFloatPitch] = sum[i * 4 + 1];
      at[8] = sum[i * 4 + 2];
      at[kFloatPitch + 8] = sum[i * 4 + 3];
    }
  }

  __device__ static void reduce_cluster(const GemmArguments& args, const Tile& tile, const unsigned char* shared) {
    constexpr int kVectors = kTileN / 8;
    const float tensor_scale = tensor_scale_or_one(args);
    const int64_t m0 = tile.first_row;
    for (int i = tile.rank * kFinishers + threadIdx.x; i < kTileM * kVectors; i += tile.split * kFinishers) {
      const int row = i / kVectors, channel = i % kVectors * 8;
      const int64_t m = m0 + row;
      const int n = tile.tile_n * kTileN + channel;
      if (row < tile.skip || m >= args.m || n >= args.n) continue;
      const uint32_t place = ptx::shared_address(shared) + (row * kFloatPitch + channel) * 4;
      float total[8] = {};
      for (int rank = 0; rank < tile.split; ++rank) {
        const uint32_t remote = ptx::map_to_rank(place, rank);
        const float4 low = ptx::load_cluster_x4(remote), high = ptx::load_cluster_x4(remote + 16);
        total[0] += low.x, total[1] += low.y, total[2] += low.z, total[3] += low.w;
        total[4] += high.x, total[5] += high.y, total[6] += high.z, total[7] += high.w;
      }
      store_channels<T, 8>(args, m, n, total, tensor_scale);
    }
  }

  __device__ static void run(const MappedGemmArguments& args, unsigned char* dynamic_shared, Barriers& barriers) {
    const int warp = threadIdx.x >> 5;
    const uint32_t misaligned = ptx::shared_address(dynamic_shared) & 1023;
    unsigned char* ring_base = dynamic_shared + (misaligned ? 1024 - misaligned : 0);
    const Tile tile(args);
    if (threadIdx.x == 0) {
      for (int s = 0; s < kStages; ++s) {
        ptx::barrier_init(&barriers.full[s], 1);
        ptx::barrier_init(&barriers.empty[s], kTiles16);
      }
      ptx::fence_barrier_init();
    }
    __syncthreads();
    if (warp >= kWarps) {
      if constexpr (kMoveRegisters) ptx::shrink_registers<40>();
      if (threadIdx.x == kConsumers) Ring::produce(args, tile, ring_base, barriers);
      if (kCanSplit && tile.split > 1) {
        __syncwarp();
        ptx::cluster_barrier();
        ptx::cluster_barrier();
      }
    } else {
      if constexpr (kMoveRegisters) ptx::grow_registers<Traits::kConsumerRegisters>();
      float sum[kSums] = {};
      consume(args, tile, ring_base, barriers, sum);
      if constexpr (kGroupsK > 1) add_groups(ring_base, sum);
      const bool finisher = threadIdx.x < kFinishers;
      if (kCanSplit && tile.split > 1) {
        if (finisher) publish_sums(ring_base, sum);
        ptx::cluster_barrier();
        if (finisher) reduce_cluster(args, tile, ring_base);
        ptx::cluster_barrier();
      } else if (finisher) {
        store_tile(args, tile, ring_base, sum);
      }
    }
  }
};

}  // namespace humming
