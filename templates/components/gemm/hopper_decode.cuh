// Few rows of activations (m <= tile m): a weight stream at memory speed.
//
// Persistent CTAs. A tile is 16 * kRows channels over the whole share of k; consumer warp w owns chunk w (128 k) of
// every stage, keeps fp32 sums over all of k and meets the others once a tile. One producer warp fills the ring with
// bulk copies, before the previous kernel has ended: only the consumers wait for it. They copy their activations to
// shared memory once, where these stay. (Bulk copies of activation rows were 1.5 us slower at m = 1.)
//
//   dynamic shared memory: ring [stages][weights kRows x kTileK/64 x 512 B | scales | zero points]
//                          partial sums [kWarps][tile m][tile n + 4] fp32, activations [m][k share + 8]
//                          with split k: sums of all tiles of this CTA [tiles][tile m][tile n] fp32
//
// split_k CTAs of a cluster share k; their sums are added in rank order through distributed shared memory, so the
// result does not depend on timing. No workspace, no atomics.
#pragma once

#include "../ptx/async_copy.cuh"
#include "../ptx/bulk_copy.cuh"
#include "../ptx/cluster.cuh"
#include "../ptx/grid_dependency.cuh"
#include "../ptx/matrix_load.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/mma.cuh"
#include "../ptx/warp_roles.cuh"
#include "output.cuh"
#include "ring.cuh"
#include "scale_groups.cuh"

namespace humming {

template <class Traits>
struct HopperDecode {
  using T = typename Traits::Activation;
  using Scales = typename Traits::Scales;
  using Math = ptx::PairMath<T>;
  static constexpr int kRows = Traits::kRows;        // 16-channel tiles of a CTA tile
  static constexpr int kWarps = Traits::kWarps;      // consumer warps = chunks of 128 k in a stage
  static constexpr int kTokenTiles = Traits::kTileM / 8;
  static constexpr int kMaxStages = Traits::kStages;
  static constexpr int kTileN = 16 * kRows;
  static constexpr int kTileK = 128 * kWarps;
  static constexpr int kConsumers = kWarps * 32;
  static_assert(kTileN == Traits::kTileN && kTileK == Traits::kTileK, "tile does not follow from warps and rows");

  static constexpr int kWeightBytes = kTileK * 8;  // of 16 channels in one stage
  static constexpr int kScaleBytes = kWarps * Scales::kScaleBytes;
  static constexpr int kZeroBytes = kWarps * Scales::kZeroBytes;
  static constexpr int kStageBytes = kRows * (kWeightBytes + kScaleBytes + kZeroBytes);
  static constexpr int kPartialPitch = kTileN + 4;  // 2 * pitch = 8 mod 32: no bank conflict among tokens
  static constexpr int kConsumerBarrier = 1;

  static constexpr int kRowVectorsLog2 = kWarps == 4 ? 6 : kWarps == 8 ? 7 : 8;  // of a row of one step, 16 bytes each
  static_assert(8 << kRowVectorsLog2 == kTileK, "4, 8 or 16 consumer warps");
  static constexpr int kActivationChunks = 8;  // math on a chunk starts when it is there

  struct Barriers {
    uint64_t full[kMaxStages];
    uint64_t empty[kMaxStages];
    uint64_t activations[kActivationChunks];
  };

  // What a CTA works on; k counts inside the CTA's share.
  struct Share {
    int rank, split, first_tile, tile_step, tiles;
    int k_begin, k_size;  // k_size: multiple of 64, may be 0 in the last rank
    int steps;
    int chunk_shift;      // a chunk of activations is 2^chunk_shift steps
    int row_bytes;        // of activations in shared memory

    __device__ explicit Share(const GemmArguments& args) {
      split = args.split_k;
      rank = blockIdx.x % split;
      first_tile = blockIdx.x / split;
      tile_step = gridDim.x / split;
      tiles = (args.n + kTileN - 1) / kTileN;
      const int all_steps = (args.k + 127) / 128;
      const int share = (all_steps + split - 1) / split * 128;
      const int padded_k = (args.k + 63) / 64 * 64;
      k_begin = rank * share;
      k_size = max(0, min(share, padded_k - k_begin));
      steps = (k_size + kTileK - 1) / kTileK;
      // One or two rows are there at once; more rows take longer than the first stage of weights.
      const int chunks = args.m <= 2 ? 1 : kActivationChunks;
      chunk_shift = 0;
      while (chunks << chunk_shift < steps) ++chunk_shift;
      row_bytes = share * 2 + 16;
    }
  };

  struct Shared {
    unsigned char* ring;
    float* partial;
    unsigned char* activations;
    float* results;

    __device__ Shared(unsigned char* base, const GemmArguments& args, const Share& share) {
      ring = base;
      partial = reinterpret_cast<float*>(ring + args.stages * kStageBytes);
      activations = reinterpret_cast<unsigned char*>(partial + kWarps * Traits::kTileM * kPartialPitch);
      results = reinterpret_cast<float*>(activations + args.m * share.row_bytes);
    }
  };

  // Requests one stage: runs of packed weights, scales and zero points of each 16-channel tile that exists.
  __device__ static void request_stage(const GemmArguments& args, const Share& share, unsigned char* stage,
                                       uint64_t* full, int tile, int step) {
    const int k = step * kTileK;
    const int weight_bytes = min(kTileK, share.k_size - k) * 8;
    const int groups = Scales::kGrouped
                           ? min(kTileK, (share.k_size - k + 127) / 128 * 128) / (Scales::kGrouped ? Scales::kSize : 1)
                           : 0;
    const int tiles16 = (args.n + 15) / 16;
    const int rows = min(kRows, tiles16 - tile * kRows);
    const int64_t tiles_k = (args.k + 63) / 64;
    const int zero_bytes = Scales::kGroupedZeros ? groups * 16 : 0;
    ptx::barrier_expect(full, rows * (weight_bytes + groups * 32 + zero_bytes));
    for (int r = 0; r < rows; ++r) {
      const int64_t tile16 = static_cast<int64_t>(tile) * kRows + r;
      const auto* weight = static_cast<const unsigned char*>(args.weight);
      ptx::bulk_copy(stage + r * kWeightBytes, weight + (tile16 * tiles_k + (share.k_begin + k) / 64) * 512,
                     weight_bytes, full, ptx::kEvictFirst);
      if constexpr (Scales::kGrouped) {
        const int64_t group = tile16 * args.groups + (share.k_begin + k) / Scales::kSize;
        ptx::bulk_copy(stage + kRows * kWeightBytes + r * kScaleBytes,
                       static_cast<const unsigned char*>(args.weight_scale) + group * 32, groups * 32, full,
                       ptx::kEvictFirst);
        if constexpr (Scales::kGroupedZeros) {
          ptx::bulk_copy(stage + kRows * (kWeightBytes + kScaleBytes) + r * kZeroBytes,
                         static_cast<const unsigned char*>(args.weight_zero) + group * 16, groups * 16, full,
                         ptx::kEvictFirst);
        }
      }
    }
  }

  // Requests all rows of this CTA's share of k, chunk by chunk in the order of use; each chunk arrives at its barrier.
  // What lies beyond k was zeroed by `clear_padding`.
  __device__ static void request_activations(const GemmArguments& args, const Share& share, const Shared& shared,
                                             Barriers& barriers) {
    const int valid_k = min(args.k - share.k_begin, share.k_size);
    const auto* source = static_cast<const uint16_t*>(args.activation) + share.k_begin;
    const uint32_t target = ptx::shared_address(shared.activations);
    const int row_shift = kRowVectorsLog2 + share.chunk_shift;
    for (int chunk = 0; chunk << share.chunk_shift < share.steps; ++chunk) {
      const int k0 = (chunk << share.chunk_shift) * kTileK;
#pragma unroll 4
      for (int i = threadIdx.x; i < args.m << row_shift; i += kConsumers) {
        const int row = i >> row_shift, k = k0 + (i & ((1 << row_shift) - 1)) * 8;
        if (k < valid_k) {
          ptx::copy_async_16(target + row * share.row_bytes + k * 2, source + row * args.activation_stride + k, true);
        }
      }
      ptx::arrive_after_async_copies(&barriers.activations[chunk]);
    }
  }

  __device__ static void produce(const GemmArguments& args, const Share& share, const Shared& shared,
                                 Barriers& barriers) {
    RingCursor ring{0, 1};
    for (int tile = share.first_tile; tile < share.tiles; tile += share.tile_step) {
      for (int step = 0; step < share.steps; ++step) {
        ptx::barrier_wait(&barriers.empty[ring.stage], ring.parity);
        request_stage(args, share, shared.ring + ring.stage * kStageBytes, &barriers.full[ring.stage], tile, step);
        ring.advance(args.stages);
      }
    }
    ptx::allow_successor();
  }

  // Adds 128 elements of k to `sum`. q: packed words of both k64 halves of each row tile.
  // rows: shared address of this lane's row of activations in each token tile, at the warp's chunk of the stage.
  __device__ static __forceinline__ void multiply(const unsigned char* stage, const uint32_t (&rows)[kTokenTiles],
                                                  int k_bytes, int warp, int lane,
                                                  const ZeroPair (&channel_zero)[kRows],
                                                  float (&sum)[kRows][kTokenTiles][4]) {
    const int g = lane >> 2;
    uint4 q[kRows][2];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const auto* words = reinterpret_cast<const uint4*>(stage + r * kWeightBytes) + warp * 64 + lane;
      q[r][0] = words[0];
      q[r][1] = words[32];
    }
    uint32_t b[kTokenTiles][4][4];
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) ptx::load_matrix_x4(b[i][j], rows[i] + k_bytes + j * 64);
    const unsigned char* scales = stage + kRows * kWeightBytes + warp * Scales::kScaleBytes;
    const unsigned char* zeros = stage + kRows * (kWeightBytes + kScaleBytes) + warp * Scales::kZeroBytes;
    constexpr int kSegments = Scales::kGrouped ? Scales::kPer128 : 1;
    constexpr int kStepsOfSegment = 8 / kSegments;
#pragma unroll
    for (int segment = 0; segment < kSegments; ++segment) {
      float part[kRows][kTokenTiles][4] = {};
      ZeroPair zero[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        zero[r] = channel_zero[r];
        if constexpr (Scales::kGroupedZeros) zero[r] = read_zeros<T>(zeros + r * kZeroBytes + segment * 16, g);
      }
#pragma unroll
      for (int inside = 0; inside < kStepsOfSegment; ++inside) {
        const int step = segment * kStepsOfSegment + inside;  // k16 step
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const uint4 v = q[r][step / 4];
          const uint32_t word = step % 4 == 0 ? v.x : step % 4 == 1 ? v.y : step % 4 == 2 ? v.z : v.w;
          uint32_t a[4];
          DequantizeU4<T>::unpack(word, zero[r], a);
#pragma unroll
          for (int i = 0; i < kTokenTiles; ++i) {
            const uint32_t b0 = b[i][step / 2][step % 2 * 2], b1 = b[i][step / 2][step % 2 * 2 + 1];
            if constexpr (Scales::kGrouped) {
              ptx::Mma16x8x16<T>::run(part[r][i], a, b0, b1);
            } else {
              ptx::Mma16x8x16<T>::run(sum[r][i], a, b0, b1);
            }
          }
        }
      }
      if constexpr (Scales::kGrouped) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const uint32_t pair = reinterpret_cast<const uint32_t*>(scales + r * kScaleBytes + segment * 32)[g];
          const float low = Math::low(pair), high = Math::high(pair);
#pragma unroll
          for (int i = 0; i < kTokenTiles; ++i) {
            sum[r][i][0] += part[r][i][0] * low;
            sum[r][i][1] += part[r][i][1] * low;
            sum[r][i][2] += part[r][i][2] * high;
            sum[r][i][3] += part[r][i][3] * high;
          }
        }
      }
    }
  }

  // Warp sums -> shared memory -> one sum a (token, channel), stored or kept for the cluster.
  __device__ static void finish_tile(const GemmArguments& args, const Share& share, const Shared& shared, int tile,
                                     int tile_index, int warp, int lane, const float (&sum)[kRows][kTokenTiles][4],
                                     float tensor_scale) {
    if (tile_index > 0) ptx::named_barrier<kConsumers>(kConsumerBarrier);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int i = 0; i < kTokenTiles; ++i) {
        const int m = i * 8 + (lane & 3) * 2;
        float* place = shared.partial + (warp * Traits::kTileM + m) * kPartialPitch + r * 16 + (lane >> 2);
        if (m < args.m) place[0] = sum[r][i][0], place[8] = sum[r][i][2];
        if (m + 1 < args.m) place[kPartialPitch] = sum[r][i][1], place[kPartialPitch + 8] = sum[r][i][3];
      }
    ptx::named_barrier<kConsumers>(kConsumerBarrier);
    for (int i = warp * 32 + lane; i < args.m * (kTileN / 2); i += kConsumers) {
      const int channel = i % (kTileN / 2) * 2, m = i / (kTileN / 2);
      float total[2] = {0.0f, 0.0f};
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const float2 v = *reinterpret_cast<const float2*>(shared.partial +
                                                          (w * Traits::kTileM + m) * kPartialPitch + channel);
        total[0] += v.x;
        total[1] += v.y;
      }
      if (share.split == 1) {
        const int n = tile * kTileN + channel;
        if (n < args.n) store_channels<T, 2>(args, m, n, total, tensor_scale);
      } else {
        *reinterpret_cast<float2*>(shared.results + (tile_index * args.m + m) * kTileN + channel) =
            make_float2(total[0], total[1]);
      }
    }
  }

  __device__ static void consume(const GemmArguments& args, const Share& share, const Shared& shared,
                                 Barriers& barriers, int warp, int lane) {
    ptx::wait_for_predecessor();
    request_activations(args, share, shared, barriers);
    uint32_t rows[kTokenTiles];
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) {
      const int row = min(i * 8 + (lane & 7), args.m - 1);  // sums of rows beyond m are not stored
      rows[i] = ptx::shared_address(shared.activations) + row * share.row_bytes + warp * 256 + (lane >> 3) * 16;
    }
    const float tensor_scale = tensor_scale_or_one(args);
    RingCursor ring{0, 0};
    int tile_index = 0;
    for (int tile = share.first_tile; tile < share.tiles; tile += share.tile_step, ++tile_index) {
      float sum[kRows][kTokenTiles][4] = {};
      ZeroPair channel_zero[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        channel_zero[r] = DequantizeU4<T>::zeros(kMidpointU4, kMidpointU4);
        if constexpr (Scales::kChannelZeros) {
          const int tile16 = min(tile * kRows + r, (args.n + 15) / 16 - 1);
          channel_zero[r] = read_zeros<T>(static_cast<const unsigned char*>(args.weight_zero) + tile16 * 16, lane >> 2);
        }
      }
      for (int step = 0; step < share.steps; ++step) {
        if (tile_index == 0 && (step & ((1 << share.chunk_shift) - 1)) == 0) {
          ptx::barrier_wait(&barriers.activations[step >> share.chunk_shift], 0);
        }
        ptx::barrier_wait(&barriers.full[ring.stage], ring.parity);
        if (step * kTileK + warp * 128 < share.k_size) {
          multiply(shared.ring + ring.stage * kStageBytes, rows, step * kTileK * 2, warp, lane, channel_zero, sum);
        }
        __syncwarp();
        if (lane == 0) ptx::barrier_arrive(&barriers.empty[ring.stage]);
        ring.advance(args.stages);
      }
      finish_tile(args, share, shared, tile, tile_index, warp, lane, sum, tensor_scale);
    }
  }

  // Adds the ranks' sums in rank order; each CTA of the cluster stores its part of them.
  __device__ static void reduce_cluster(const GemmArguments& args, const Share& share, const Shared& shared) {
    ptx::cluster_barrier();
    const float tensor_scale = tensor_scale_or_one(args);
    const int tiles = share.first_tile < share.tiles
                          ? (share.tiles - share.first_tile + share.tile_step - 1) / share.tile_step
                          : 0;
    const int pairs = tiles * args.m * (kTileN / 2);
    for (int i = share.rank * blockDim.x + threadIdx.x; i < pairs; i += share.split * blockDim.x) {
      const int channel = i % (kTileN / 2) * 2, row = i / (kTileN / 2);
      const int m = row % args.m;
      const int n = (share.first_tile + row / args.m * share.tile_step) * kTileN + channel;
      const uint32_t place = ptx::shared_address(shared.results + row * kTileN + channel);
      float total[2] = {0.0f, 0.0f};
      for (int rank = 0; rank < share.split; ++rank) {
        const uint32_t remote = ptx::map_to_rank(place, rank);
        total[0] += ptx::load_cluster(remote);
        total[1] += ptx::load_cluster(remote + 4);
      }
      if (n < args.n) store_channels<T, 2>(args, m, n, total, tensor_scale);
    }
    ptx::cluster_barrier();
  }

  // Zeroes what no copy fills: the columns between k and the end of the share.
  __device__ static void clear_padding(const GemmArguments& args, const Share& share, const Shared& shared) {
    const int valid = max(0, min(args.k - share.k_begin, share.k_size)) * 2;
    const int vectors = (share.row_bytes - valid) / 16;
    for (int i = threadIdx.x; i < args.m * vectors; i += blockDim.x) {
      *reinterpret_cast<uint4*>(shared.activations + i / vectors * share.row_bytes + valid + i % vectors * 16) =
          make_uint4(0, 0, 0, 0);
    }
  }

  __device__ static void run(const GemmArguments& args, unsigned char* dynamic_shared, Barriers& barriers) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const Share share(args);
    const Shared shared(dynamic_shared, args, share);
    if (threadIdx.x == 0) {
      for (int s = 0; s < args.stages; ++s) {
        ptx::barrier_init(&barriers.full[s], 1);
        ptx::barrier_init(&barriers.empty[s], kWarps);
      }
      for (int c = 0; c < kActivationChunks; ++c) ptx::barrier_init(&barriers.activations[c], kConsumers);
      ptx::fence_barrier_init();
    }
    clear_padding(args, share, shared);
    __syncthreads();
    if (warp == kWarps) {
      if (lane == 0) produce(args, share, shared, barriers);
    } else {
      consume(args, share, shared, barriers, warp, lane);
    }
    if (share.split > 1) {
      __syncwarp();
      reduce_cluster(args, share, shared);
    }
  }
};

}  // namespace humming
