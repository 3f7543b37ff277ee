// Few rows of activations (m <= tile m): a weight stream at memory speed.
//
// Persistent CTAs. A tile is 16 * kRows channels over the whole share of k; consumer warp w owns chunk w (128 k) of
// every stage, keeps fp32 sums over all of k and meets the others once a tile. One producer warp fills the ring with
// bulk copies, before the previous kernel has ended: only the consumers wait for it. They copy their activations to
// shared memory once, where these stay. (Bulk copies of activation rows were 1.5 us slower at m = 1.)
//
//   dynamic shared memory: ring [stages][weights kRows x kTileK/64 tiles | scales | zero points]
//                          partial sums [kWarps][tile m][tile n + 4] fp32, activations [m][k share + 8]
//                          with split k: sums of all tiles of this CTA [tiles][tile m][tile n] fp32
//
// split_k CTAs of a cluster share k; their sums are added in rank order through distributed shared memory, so the
// result does not depend on timing. No workspace, no atomics.
#pragma once

#include "../ptx/cluster.cuh"
#include "../ptx/grid_dependency.cuh"
#include "../ptx/matrix_load.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/mma.cuh"
#include "../ptx/warp_roles.cuh"
#include "decode_ring.cuh"
#include "output.cuh"

namespace humming {

template <class Traits>
struct HopperDecode : DecodeRing<Traits> {
  using T = typename Traits::Activation;
  using Scales = typename Traits::Scales;
  using Unpack = Dequantize<T, typename Traits::Weight, Scales::kZero>;
  using Ring = DecodeRing<Traits>;
  using typename Ring::Barriers;
  using typename Ring::Codes;
  using typename Ring::Share;
  using typename Ring::Shared;
  using Ring::kActivationChunks, Ring::kConsumers, Ring::kPartialPitch, Ring::kRows, Ring::kScaleBytes;
  using Ring::kStageBytes, Ring::kTileK, Ring::kTileN, Ring::kWarps, Ring::kWeightBytes, Ring::kZeroBytes;
  static constexpr int kTokenTiles = Traits::kTileM / 8;
  static constexpr int kConsumerBarrier = 1;

  // Adds 128 elements of k to `sum`. q: codes of both k64 halves of each row tile.
  // rows: shared address of this lane's row of activations in each token tile, at the warp's chunk of the stage.
  __device__ static __forceinline__ void multiply(const unsigned char* stage, const uint32_t (&rows)[kTokenTiles],
                                                  int k_bytes, int warp, int lane,
                                                  const Zeros (&channel_zero)[kRows],
                                                  float (&sum)[kRows][kTokenTiles][4]) {
    const int g = lane >> 2;
    Codes q[kRows][2];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const unsigned char* tile = stage + r * kWeightBytes + warp * 2 * Codes::kTileBytes;
      q[r][0].load(tile, lane);
      q[r][1].load(tile + Codes::kTileBytes, lane);
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
      Zeros zero[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        zero[r] = channel_zero[r];
        if constexpr (Scales::kGroupedZeros) {
          zero[r] = Unpack::read_zeros(zeros + r * kZeroBytes + segment * Scales::kZeroRow, g);
        }
      }
#pragma unroll
      for (int inside = 0; inside < kStepsOfSegment; ++inside) {
        const int step = segment * kStepsOfSegment + inside;  // k16 step
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          uint32_t a[4];
          Unpack::unpack(q[r][step / 4], step % 4, zero[r], a);
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
          const float2 scale = Scales::read(scales + r * kScaleBytes + segment * Scales::kScaleRow, g);
#pragma unroll
          for (int i = 0; i < kTokenTiles; ++i) {
            sum[r][i][0] += part[r][i][0] * scale.x;
            sum[r][i][1] += part[r][i][1] * scale.x;
            sum[r][i][2] += part[r][i][2] * scale.y;
            sum[r][i][3] += part[r][i][3] * scale.y;
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
    Ring::request_activations(args, share, shared, barriers);
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
      Zeros channel_zero[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        channel_zero[r] = Unpack::no_zeros();
        if constexpr (Scales::kChannelZeros) {
          const int tile16 = min(tile * kRows + r, (args.n + 15) / 16 - 1);
          const auto* places = static_cast<const unsigned char*>(args.weight_zero) + tile16 * Scales::kZeroRow;
          channel_zero[r] = Unpack::read_zeros(places, lane >> 2);
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
    Ring::clear_padding(args, share, shared);
    __syncthreads();
    if (warp == kWarps) {
      if (lane == 0) Ring::produce(args, share, shared, barriers);
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
