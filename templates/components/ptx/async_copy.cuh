// cp.async (sm_80): 16 bytes global -> shared without registers; where `valid` is false the 16 bytes become zero.
#pragma once

#include <cstdint>

#include "address.cuh"

namespace humming::ptx {

__device__ __forceinline__ void copy_async_16(uint32_t shared, const void* global, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
}
__device__ __forceinline__ void commit_async_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int kPending>
__device__ __forceinline__ void wait_async_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// This thread's earlier copies arrive at `barrier` when they are complete (one of its expected arrivals).
__device__ __forceinline__ void arrive_after_async_copies(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

}  // namespace humming::ptx
