// Barriers among some warps of a CTA, and moving registers between producer and consumer warpgroups.
#pragma once

namespace humming::ptx {

// `threads` threads of the CTA meet at named barrier `id` (1..15).
template <int kThreads>
__device__ __forceinline__ void named_barrier(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

// A whole warpgroup gives up, or takes, registers. The sum must fit what the CTA was launched with.
template <int kRegisters>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace humming::ptx
