// The producer's side of the decode schedule (hopper_decode.cuh): what a CTA works on, how its shared memory is laid
// out, and what is requested into it.
#pragma once

#include "../arguments.cuh"
#include "../ptx/async_copy.cuh"
#include "../ptx/bulk_copy.cuh"
#include "../ptx/grid_dependency.cuh"
#include "../ptx/mbarrier.cuh"
#include "ring.cuh"
#include "scale_groups.cuh"

namespace humming {

template <class Traits>
struct DecodeRing {
  using Scales = typename Traits::Scales;
  using Codes = LaneCodes<Traits::Weight::kBits>;
  static constexpr int kRows = Traits::kRows;        // 16-channel tiles of a CTA tile
  static constexpr int kWarps = Traits::kWarps;      // consumer warps = chunks of 128 k in a stage
  static constexpr int kMaxStages = Traits::kStages;
  static constexpr int kTileN = 16 * kRows;
  static constexpr int kTileK = 128 * kWarps;
  static constexpr int kConsumers = kWarps * 32;
  static_assert(kTileN == Traits::kTileN && kTileK == Traits::kTileK, "tile does not follow from warps and rows");

  static constexpr int kWeightBytes = kTileK / 64 * Codes::kTileBytes;  // of 16 channels in one stage
  static constexpr int kScaleBytes = kWarps * Scales::kScaleBytes;
  static constexpr int kZeroBytes = kWarps * Scales::kZeroBytes;
  static constexpr int kStageBytes = kRows * (kWeightBytes + kScaleBytes + kZeroBytes);
  static constexpr int kPartialPitch = kTileN + 4;  // 2 * pitch = 8 mod 32: no bank conflict among tokens

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
    const int weight_bytes = min(kTileK, share.k_size - k) / 64 * Codes::kTileBytes;
    const int groups = Scales::kGrouped
                           ? min(kTileK, (share.k_size - k + 127) / 128 * 128) / (Scales::kGrouped ? Scales::kSize : 1)
                           : 0;
    const int tiles16 = (args.n + 15) / 16;
    const int rows = min(kRows, tiles16 - tile * kRows);
    const int64_t tiles_k = (args.k + 63) / 64;
    const int scale_bytes = groups * Scales::kScaleRow;
    const int zero_bytes = Scales::kGroupedZeros ? groups * Scales::kZeroRow : 0;
    ptx::barrier_expect(full, rows * (weight_bytes + scale_bytes + zero_bytes));
    for (int r = 0; r < rows; ++r) {
      const int64_t tile16 = static_cast<int64_t>(tile) * kRows + r;
      const auto* weight = static_cast<const unsigned char*>(args.weight);
      ptx::bulk_copy(stage + r * kWeightBytes, weight + (tile16 * tiles_k + (share.k_begin + k) / 64) * Codes::kTileBytes,
                     weight_bytes, full, ptx::kEvictFirst);
      if constexpr (Scales::kGrouped) {
        const int64_t group = tile16 * args.groups + (share.k_begin + k) / Scales::kSize;
        ptx::bulk_copy(stage + kRows * kWeightBytes + r * kScaleBytes,
                       static_cast<const unsigned char*>(args.weight_scale) + group * Scales::kScaleRow, scale_bytes, full,
                       ptx::kEvictFirst);
        if constexpr (Scales::kGroupedZeros) {
          ptx::bulk_copy(stage + kRows * (kWeightBytes + kScaleBytes) + r * kZeroBytes,
                         static_cast<const unsigned char*>(args.weight_zero) + group * Scales::kZeroRow, zero_bytes, full,
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
    // Where an SM has room for both, the next kernel's weights follow these at once.
    if (args.early_successor) ptx::allow_successor();
    RingCursor ring{0, 1};
    for (int tile = share.first_tile; tile < share.tiles; tile += share.tile_step) {
      for (int step = 0; step < share.steps; ++step) {
        ptx::barrier_wait(&barriers.empty[ring.stage], ring.parity);
        request_stage(args, share, shared.ring + ring.stage * kStageBytes, &barriers.full[ring.stage], tile, step);
        ring.advance(args.stages);
      }
    }
    if (!args.early_successor) ptx::allow_successor();
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
};

}  // namespace humming
