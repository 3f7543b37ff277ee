// ldmatrix and stmatrix: four 8 x 8 tiles of 16-bit elements; lane l gives the address of row l % 8 of tile l / 8.
#pragma once

#include <cstdint>

namespace humming::ptx {

__device__ __forceinline__ void load_matrix_x4(uint32_t (&r)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}

// Stores the transpose: register i of a lane holds row l / 4, columns 2 (l % 4) and the next of tile i. sm_90.
__device__ __forceinline__ void store_matrix_x4_transposed(uint32_t shared, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

}  // namespace humming::ptx
