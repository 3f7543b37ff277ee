// The few types of cuda.h that a launch needs, with the layouts that CUDA 12 and 13 share. No CUDA header is needed.
#pragma once

#include <stdint.h>

typedef int CudaResult;

typedef struct {
  int id;
  int padding;
  uint32_t value[16];
} LaunchAttribute;

typedef struct {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void* stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
} LaunchConfig;

enum { kClusterDimension = 4, kProgrammaticSerialization = 6 };  // CUlaunchAttributeID
enum { kInvalidContext = 201 };                                  // CUresult
enum { kTensorMapBytes = 128 };

typedef CudaResult (*LaunchKernelEx)(const LaunchConfig*, void* function, void** parameters, void** extra);
typedef CudaResult (*GetCurrent)(void** context);
typedef CudaResult (*PushCurrent)(void* context);
typedef CudaResult (*PopCurrent)(void** context);
typedef CudaResult (*EncodeTiled)(void* map, int data_type, uint32_t rank, void* address, const uint64_t* sizes,
                                  const uint64_t* strides, const uint32_t* box, const uint32_t* element_strides,
                                  int interleave, int swizzle, int l2_promotion, int fill);

_Static_assert(sizeof(LaunchAttribute) == 72, "CUlaunchAttribute");
_Static_assert(sizeof(LaunchConfig) == 56, "CUlaunchConfig");
