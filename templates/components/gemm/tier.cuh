// What a tier's mma.sync kernels are made of: the matrix instruction and the way to shared memory.
#pragma once

#include "../ptx/mma.cuh"

namespace humming::tier {

struct turing {
  static constexpr bool kAsyncCopies = false;
  template <class T>
  using Mma = ptx::TwoMma16x8x8F16;
};

struct ampere {
  static constexpr bool kAsyncCopies = true;
  template <class T>
  using Mma = ptx::Mma16x8x16<T>;
};

// For 16-bit activations these have nothing that ampere lacks.
struct ada : ampere {};
struct hopper : ampere {};
struct blackwell : ampere {};
struct blackwell_rtx : ampere {};

}  // namespace humming::tier
