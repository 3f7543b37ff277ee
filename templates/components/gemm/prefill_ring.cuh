// The producer's side of the prefill schedule (hopper_prefill.cuh): which tile a CTA makes, the stages of its ring, and
// what is requested into them.
#pragma once

#include "../arguments.cuh"
#include "../ptx/bulk_copy.cuh"
#include "../ptx/grid_dependency.cuh"
#include "../ptx/mbarrier.cuh"
#include "ring.cuh"
#include "scale_groups.cuh"

namespace humming {

template <class Traits>
struct PrefillRing {
  using Scales = typename Traits::Scales;
  using Codes = LaneCodes<Traits::Weight::kBits>;
  static constexpr int kTileM = Traits::kTileM;
  static constexpr int kTileN = Traits::kTileN;
  static constexpr int kWarps = Traits::kWarps;  // consumers
  static constexpr int kStages = Traits::kStages;
  static constexpr int kTiles16 = kTileN / 16;
  static constexpr int kGroupsK = kWarps / kTiles16;
  static constexpr int kConsumers = kWarps * 32;
  static constexpr int kStepK = 128;
  static_assert(kTiles16 % 4 == 0 && kTiles16 * kGroupsK == kWarps, "a warp owns 16 channels, a warpgroup 64");
  static_assert(Traits::kTileK == kStepK, "a stage is 128 k");
  static_assert(kTileM % 8 == 0 && kTileM <= 256, "wgmma takes 8 to 256 columns");

  static constexpr int kActivationBytes = kTileM * kStepK * 2;
  static constexpr int kWeightBytes = kTiles16 * 2 * Codes::kTileBytes;
  static constexpr int kScaleBytes = (kTiles16 * Scales::kScaleBytes + 127) / 128 * 128;  // TMA's alignment
  static constexpr int kZeroBytes = kTiles16 * Scales::kZeroBytes;
  static constexpr int kWeightCopyBytes = kWeightBytes + kTiles16 * Scales::kScaleBytes + kZeroBytes;
  static constexpr int kStageBytes = (kActivationBytes + kWeightBytes + kScaleBytes + kZeroBytes + 1023) / 1024 * 1024;
  static_assert(kActivationBytes / 2 % 1024 == 0, "a k64 half of activations keeps the swizzle's alignment");

  // Elements of the weight map in 128 k: 32-bit words, of wide codes 64-bit ones (a box has at most 256).
  static constexpr int kWeightBox = 2 * Codes::kTileBytes / (Traits::Weight::kBits <= 4 ? 4 : 8);

  struct Barriers {
    uint64_t full[kStages];
    uint64_t empty[kStages];
  };

  static_assert(kStages % kGroupsK == 0, "a stage belongs to one group: parity cannot tell phases that it skipped");

  // Order of tiles: kSwathM tiles of tokens side by side while channels advance, so that CTAs that run together
  // share activations and weights in L2.
  static constexpr int kSwathM = 4;

  struct Tile {
    int rank, split, tile_n, first_step, steps;
    int first_row;  // of activations and output
    int skip;       // rows from there that another tile stores
    int box_rows;   // of activations in a TMA box

    __device__ explicit Tile(const GemmArguments& args) {
      const int cta = blockIdx.x;
      const bool whole = cta < args.whole_tiles;
      split = whole ? 1 : args.split_k;
      rank = whole ? 0 : cta % split;  // whole_tiles is a multiple of split_k
      const int index = whole ? cta : args.whole_tiles + (cta - args.whole_tiles) / split;
      const int tiles_n = (args.n + kTileN - 1) / kTileN;
      const int tiles_m = (args.m + kTileM - 1) / kTileM;
      const int first_m = index / (kSwathM * tiles_n) * kSwathM, inside = index % (kSwathM * tiles_n);
      const int swath = min(kSwathM, tiles_m - first_m);
      // TMA fills rows beyond m slowly: the last tile starts earlier and skips what is not its own, a lone tile asks
      // for fewer rows. What a stage held there before takes part in sums of rows that are never stored.
      const int own_row = (first_m + inside % swath) * kTileM;
      first_row = min(own_row, max(args.m - kTileM, 0));
      skip = own_row - first_row;
      box_rows = min(kTileM, (args.m + 7) / 8 * 8);
      tile_n = inside / swath;
      const int all_steps = (args.k + kStepK - 1) / kStepK;
      const int share = (all_steps + split - 1) / split;
      first_step = min(rank * share, all_steps);
      steps = min(share, all_steps - first_step);
    }
  };

  __device__ static void request_weights(const MappedGemmArguments& args, const Tile& tile, unsigned char* stage,
                                         uint64_t* full, int step) {
    const int k_step = tile.first_step + step;
    const int row = tile.tile_n * kTiles16;
    unsigned char* target = stage + kActivationBytes;
    ptx::barrier_expect(full, kWeightCopyBytes + tile.box_rows * kStepK * 2);
    ptx::tensor_copy(target, &args.weight_map, k_step * kWeightBox, row, full, ptx::kEvictNormal);
    if constexpr (Scales::kGrouped) {
      const int x = k_step * Scales::kPer128 * 16;
      ptx::tensor_copy(target + kWeightBytes, &args.scale_map, x, row, full, ptx::kEvictNormal);
      if constexpr (Scales::kGroupedZeros) {
        ptx::tensor_copy(target + kWeightBytes + kScaleBytes, &args.zero_map, x, row, full, ptx::kEvictNormal);
      }
    }
  }

  __device__ static void request_activations(const MappedGemmArguments& args, const Tile& tile, unsigned char* stage,
                                             uint64_t* full, int step) {
    const int k = (tile.first_step + step) * kStepK;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned char* place = stage + half * (kActivationBytes / 2);
      ptx::tensor_copy(place, &args.activation_map, k + half * 64, tile.first_row, full, ptx::kEvictLast);
    }
  }

  __device__ static void produce(const MappedGemmArguments& args, const Tile& tile, unsigned char* ring_base,
                                 Barriers& barriers) {
    const int ahead = min(kStages, tile.steps);
    for (int s = 0; s < ahead; ++s) request_weights(args, tile, ring_base + s * kStageBytes, &barriers.full[s], s);
    ptx::wait_for_predecessor();
    for (int s = 0; s < ahead; ++s) request_activations(args, tile, ring_base + s * kStageBytes, &barriers.full[s], s);
    RingCursor ring{0, 0};
    for (int step = ahead; step < tile.steps; ++step) {
      ptx::barrier_wait(&barriers.empty[ring.stage], ring.parity);
      unsigned char* stage = ring_base + ring.stage * kStageBytes;
      request_weights(args, tile, stage, &barriers.full[ring.stage], step);
      request_activations(args, tile, stage, &barriers.full[ring.stage], step);
      ring.advance(kStages);
    }
    ptx::allow_successor();
  }
};

}  // namespace humming
