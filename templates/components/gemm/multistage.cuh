// mma.sync kernel for every tier: weights from shared memory, dequantised in registers, are the A operand.
//
// A CTA makes one tile of tile n channels x tile m tokens over all of k. Warps are kWarpsN x kWarpsK: warps along n own
// 16 * kRows channels each; warps along k own every kWarpsK-th k64 tile of a stage and are added up in the end, in warp
// order. Group scales of the activation dtype multiply the dequantised 16-bit pair: one rounding a weight. Others multiply
// fp32 sums of at most 32 k.
#pragma once

#include "../ptx/address.cuh"
#include "../ptx/matrix_load.cuh"
#include "multistage_sources.cuh"
#include "output.cuh"
#include "scale_groups.cuh"
#include "stage_copy.cuh"
#include "tier.cuh"

namespace humming {

template <class Traits>
struct Multistage {
  using T = typename Traits::Activation;
  using Scales = typename Traits::Scales;
  using Tier = typename Traits::Tier;
  using Codes = LaneCodes<Traits::Weight::kBits>;
  using Unpack = Dequantize<T, typename Traits::Weight, Scales::kZero>;
  static constexpr bool kScaleSums = Scales::kGrouped && !Scales::template kOnPair<T>;
  using Math = ptx::PairMath<T>;
  static constexpr int kTileM = Traits::kTileM, kTileN = Traits::kTileN, kTileK = Traits::kTileK;
  static constexpr int kRows = Traits::kRows;
  static constexpr int kWarpsN = kTileN / (16 * kRows);
  static constexpr int kWarpsK = Traits::kWarps / kWarpsN;
  static constexpr int kThreads = Traits::kWarps * 32;
  static constexpr int kStages = Traits::kStages;
  static constexpr int kTilesK = kTileK / 64;  // k64 tiles of a stage
  static constexpr int kTokenTiles = kTileM / 8;
  static_assert(kWarpsN * kWarpsK == Traits::kWarps, "warps are a whole grid of n x k");
  static_assert(kTilesK % kWarpsK == 0, "every warp along k owns the same number of k64 tiles");
  static_assert(kTileM % 16 == 0, "the epilogue works on slabs of 16 tokens");

  // Groups of a stage; a group larger than the stage is one group.
  static constexpr int kGroups = !Scales::kGrouped ? 0 : (kTileK + Scales::kSize - 1) / Scales::kSize;
  static constexpr int kActivationBytes = kTileM * kTileK * 2;
  static constexpr int kWeightBytes = kTileN / 16 * kTilesK * Codes::kTileBytes;
  static constexpr int kScaleBytes = kTileN / 16 * kGroups * Scales::kScaleRow;
  static constexpr int kZeroBytes = Scales::kGroupedZeros ? kTileN / 16 * kGroups * Scales::kZeroRow : 0;
  static constexpr int kStageBytes = kActivationBytes + kWeightBytes + kScaleBytes + kZeroBytes;

  static constexpr int kSlab = 16;  // tokens added up at a time in the epilogue
  static constexpr int kPartialPitch = kTileN + 4;
  static_assert(kStages * kStageBytes >= kWarpsK * kSlab * kPartialPitch * 4, "partial sums do not fit into the ring");

  using Activations = ActivationSource<kTileM, kTileK>;
  using Weights = WeightSource<kTileN, kTileK, Codes::kTileBytes>;
  using ScaleSource = GroupSource<kTileN, kGroups, Scales::kScaleElement>;
  using ZeroSource = GroupSource<kTileN, kGroups, Scales::kZeroElement>;

  // One stage in flight from global memory.
  struct Loader {
    StageCopy<Tier::kAsyncCopies, Activations::kVectors, kThreads> activations;
    StageCopy<Tier::kAsyncCopies, Weights::kVectors, kThreads> weights;
    StageCopy<Tier::kAsyncCopies, Scales::kGrouped ? ScaleSource::kVectors : 1, kThreads> scales;
    StageCopy<Tier::kAsyncCopies, Scales::kGroupedZeros ? ZeroSource::kVectors : 1, kThreads> zeros;

    template <class Action>
    __device__ __forceinline__ void visit(const GemmArguments& args, int64_t m0, int tile16, int k0, Action action) {
      action(activations, Activations{args, m0, k0});
      action(weights, Weights{args, tile16, k0, kActivationBytes});
      if constexpr (Scales::kGrouped) {
        const int group = k0 / Scales::kSize;
        action(scales, ScaleSource{args, args.weight_scale, tile16, group, kActivationBytes + kWeightBytes});
        if constexpr (Scales::kGroupedZeros) {
          action(zeros,
                 ZeroSource{args, args.weight_zero, tile16, group, kActivationBytes + kWeightBytes + kScaleBytes});
        }
      }
    }
  };

  // Offset in a stage of the group of element k of a 16-channel tile.
  __device__ static __forceinline__ int group_place(int tile, int k) {
    return tile * kGroups + k / (Scales::kGrouped ? Scales::kSize : 1);
  }
  __device__ static __forceinline__ const unsigned char* scales_of(const unsigned char* stage, int tile, int k) {
    return stage + kActivationBytes + kWeightBytes + group_place(tile, k) * Scales::kScaleRow;
  }
  __device__ static __forceinline__ const unsigned char* zeros_of(const unsigned char* stage, int tile, int k) {
    return stage + kActivationBytes + kWeightBytes + kScaleBytes + group_place(tile, k) * Scales::kZeroRow;
  }

  // A registers of the k16 step `step` (0 .. 3) of a k64 tile that begins at element k of the stage.
  __device__ static __forceinline__ void dequantize(const Codes& codes, const unsigned char* stage, int tile, int k,
                                                    int step, Zeros channel_zero, int g, uint32_t (&a)[4]) {
    Zeros zero = channel_zero;
    if constexpr (Scales::kGroupedZeros) zero = Unpack::read_zeros(zeros_of(stage, tile, k + step * 16), g);
    Unpack::unpack(codes, step, zero, a);
    if constexpr (Scales::template kOnPair<T>) {
      const uint32_t pair = reinterpret_cast<const uint32_t*>(scales_of(stage, tile, k + step * 16))[g];
      const uint32_t low = ptx::duplicate_low(pair), high = ptx::duplicate_high(pair);
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = Math::multiply(a[i], i % 2 == 0 ? low : high);
    }
  }

  __device__ static __forceinline__ void add_scaled(float (&sum)[4], const float (&part)[4], float2 scale) {
    sum[0] += part[0] * scale.x;
    sum[1] += part[1] * scale.x;
    sum[2] += part[2] * scale.y;
    sum[3] += part[3] * scale.y;
  }

  // Adds two k16 steps. scales: of each step's group.
  __device__ static __forceinline__ void multiply_steps(float (&sum)[4], const uint32_t (&a)[2][4],
                                                        const uint32_t (&b)[4], const float2 (&scales)[2]) {
    using Mma = typename Tier::template Mma<T>;
    if constexpr (!kScaleSums) {
      Mma::run(sum, a[0], b[0], b[1]);
      Mma::run(sum, a[1], b[2], b[3]);
    } else {
      float part[4] = {};
      Mma::run(part, a[0], b[0], b[1]);
      if constexpr (Scales::kSize < 32) {
        add_scaled(sum, part, scales[0]);
        part[0] = part[1] = part[2] = part[3] = 0.0f;
      }
      Mma::run(part, a[1], b[2], b[3]);
      add_scaled(sum, part, scales[1]);
    }
  }

  __device__ static __forceinline__ void multiply(unsigned char* stage, const Zeros (&channel_zero)[kRows],
                                                  float (&sum)[kRows][kTokenTiles][4]) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2;
    const int warp_n = warp % kWarpsN, warp_k = warp / kWarpsN;
    const uint32_t activations = ptx::shared_address(stage);
#pragma unroll
    for (int round = 0; round < kTilesK / kWarpsK; ++round) {
      const int tile_k = round * kWarpsK + warp_k, k = tile_k * 64;
      Codes q[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        q[r].load(stage + kActivationBytes + ((warp_n * kRows + r) * kTilesK + tile_k) * Codes::kTileBytes, lane);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // 32 k: one ldmatrix a token tile
        uint32_t a[kRows][2][4];
        float2 scales[kRows][2] = {};
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int tile = warp_n * kRows + r, step = half * 2 + i;
            dequantize(q[r], stage, tile, k, step, channel_zero[r], g, a[r][i]);
            if constexpr (kScaleSums) scales[r][i] = Scales::read(scales_of(stage, tile, k + step * 16), g);
          }
#pragma unroll
        for (int i = 0; i < kTokenTiles; ++i) {
          const int row = i * 8 + (lane & 7), vector = k / 8 + half * 4 + (lane >> 3);
          uint32_t b[4];
          ptx::load_matrix_x4(b, activations + (row * (kTileK / 8) + (vector ^ (row & 7))) * 16);
#pragma unroll
          for (int r = 0; r < kRows; ++r) multiply_steps(sum[r][i], a[r], b, scales[r]);
        }
      }
    }
  }

  __device__ static void mainloop(const GemmArguments& args, unsigned char* ring, int64_t m0, int tile16,
                                  float (&sum)[kRows][kTokenTiles][4]) {
    const int lane = threadIdx.x & 31, warp_n = (threadIdx.x >> 5) % kWarpsN;
    Zeros channel_zero[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      channel_zero[r] = Unpack::no_zeros();
      if constexpr (Scales::kChannelZeros) {
        const int tile = min(tile16 + warp_n * kRows + r, (args.n + 15) / 16 - 1);
        const auto* places = static_cast<const unsigned char*>(args.weight_zero) + tile * Scales::kZeroRow;
        channel_zero[r] = Unpack::read_zeros(places, lane >> 2);
      }
    }
    const int steps = (args.k + kTileK - 1) / kTileK;
    Loader loader;
    const auto fetch = [&](int step) {
      const uint32_t stage = ptx::shared_address(ring + step % kStages * kStageBytes);
      if (step < steps) {
        loader.visit(args, m0, tile16, step * kTileK,
                     [&](auto& copy, const auto& source) { copy.fetch(source, stage); });
      }
      if constexpr (Tier::kAsyncCopies) ptx::commit_async_copies();
    };
    const auto store = [&](int step) {
      unsigned char* stage = ring + step % kStages * kStageBytes;
      if (step < steps) {
        loader.visit(args, m0, tile16, step * kTileK,
                     [&](auto& copy, const auto& source) { copy.store(source, stage); });
      }
    };
#pragma unroll
    for (int s = 0; s < kStages - 1; ++s) {
      fetch(s);
      store(s);
    }
    for (int step = 0; step < steps; ++step) {
      if constexpr (Tier::kAsyncCopies) ptx::wait_async_copies<kStages - 2>();
      __syncthreads();  // stage `step` is there, and the stage that is filled next has been read
      fetch(step + kStages - 1);
      multiply(ring + step % kStages * kStageBytes, channel_zero, sum);
      store(step + kStages - 1);
    }
    if constexpr (Tier::kAsyncCopies) ptx::wait_async_copies<0>();
    __syncthreads();
  }

  // Slabs of 16 tokens: fp32 sums to shared memory, added over the warps along k, stored in 16-byte vectors.
  __device__ static void epilogue(const GemmArguments& args, float* partial, int64_t m0, int n0,
                                  const float (&sum)[kRows][kTokenTiles][4]) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int warp_n = warp % kWarpsN, warp_k = warp / kWarpsN;
    const float tensor_scale = tensor_scale_or_one(args);
#pragma unroll
    for (int slab = 0; slab < kTileM / kSlab; ++slab) {
#pragma unroll
      for (int i = 0; i < kSlab / 8; ++i)
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const auto& s = sum[r][slab * (kSlab / 8) + i];
          float* at = partial + (warp_k * kSlab + i * 8 + (lane & 3) * 2) * kPartialPitch +
                      (warp_n * kRows + r) * 16 + (lane >> 2);
          at[0] = s[0];
          at[kPartialPitch] = s[1];
          at[8] = s[2];
          at[kPartialPitch + 8] = s[3];
        }
      __syncthreads();
      for (int i = threadIdx.x; i < kSlab * (kTileN / 8); i += kThreads) {
        const int row = i / (kTileN / 8), channel = i % (kTileN / 8) * 8;
        const int64_t m = m0 + slab * kSlab + row;
        if (m >= args.m || n0 + channel >= args.n) continue;
        float total[8] = {};
#pragma unroll
        for (int w = 0; w < kWarpsK; ++w) {
          const float* at = partial + (w * kSlab + row) * kPartialPitch + channel;
#pragma unroll
          for (int e = 0; e < 8; ++e) total[e] += at[e];
        }
        store_channels<T, 8>(args, m, n0 + channel, total, tensor_scale);
      }
      __syncthreads();
    }
  }

  __device__ static void run(const GemmArguments& args, unsigned char* dynamic_shared) {
    const int tiles_n = (args.n + kTileN - 1) / kTileN;
    const int tile_n = blockIdx.x % tiles_n;
    const int64_t m0 = static_cast<int64_t>(blockIdx.x / tiles_n) * kTileM;
    float sum[kRows][kTokenTiles][4] = {};
    mainloop(args, dynamic_shared, m0, tile_n * (kTileN / 16), sum);
    epilogue(args, reinterpret_cast<float*>(dynamic_shared), m0, tile_n * kTileN, sum);
  }
};

}  // namespace humming
