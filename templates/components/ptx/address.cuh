// Shared-memory addresses as PTX wants them: 32-bit offsets in the shared window.
#pragma once

#include <cstdint>

namespace humming::ptx {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

}  // namespace humming::ptx
