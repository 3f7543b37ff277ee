// A ring of shared-memory stages between one producer and several consumers.
//
// `full[s]` completes when the bytes of stage s have arrived, `empty[s]` when every consumer has read them.
// A cursor walks the ring; the parity flips at each wrap. The producer starts at parity 1 (all stages free).
#pragma once

#include <cstdint>

namespace humming {

struct RingCursor {
  int stage;
  uint32_t parity;

  __device__ __forceinline__ void advance(int stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace humming
