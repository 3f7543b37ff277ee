// Programmatic dependent launch (sm_90). Without the launch attribute both are no-ops.
#pragma once

namespace humming::ptx {

// Blocks until the preceding kernels are complete and their writes are visible.
__device__ __forceinline__ void wait_for_predecessor() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Lets the next kernel start its prologue; it still waits for this one before it reads results.
__device__ __forceinline__ void allow_successor() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

}  // namespace humming::ptx
