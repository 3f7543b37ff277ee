// One kernel with its constant arguments; see launch.c.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "cuda_abi.h"

enum { kMostArgumentBytes = 4096 };  // of a kernel of any architecture

typedef struct {
  LaunchKernelEx launch;
  GetCurrent get_current;
  PushCurrent push;
  PopCurrent pop;
  EncodeTiled encode;
} LaunchDriver;

// Bytes from the start of the argument struct.
typedef struct {
  int activation, activation_stride, output, output_stride, bias, activation_map;
} LaunchOffsets;

typedef struct {
  int data_type;
  unsigned long long size_x, size_y;
  unsigned box_x, box_y;
  int interleave, swizzle, l2_promotion, fill;
} MapFacts;

typedef struct {
  PyObject_HEAD
  LaunchDriver driver;
  void* function;
  void* context;
  unsigned grid, threads, shared_bytes, cluster;
  int can_overlap;
  LaunchOffsets offsets;
  MapFacts map;
  PyObject* counter;  // owner of `launches`
  int64_t* launches;
  uint64_t encoded_address, encoded_stride;  // what the tensor map in the template is for
  Py_ssize_t template_size;
  unsigned char* template_bytes;
} Launch;

// What changes from call to call; strides in elements.
typedef struct {
  int64_t activation, activation_stride, output, output_stride, bias, stream;
  int has_bias, overlap;
} LaunchCall;

// call: index of the driver's call that failed, 0 = none.
typedef struct {
  int call;
  CudaResult code;
} LaunchFailure;

// The type of Launch, made by the first call; borrowed, NULL with an exception.
PyObject* launch_type(void);

LaunchFailure launch_run(Launch* self, const LaunchCall* call);
PyObject* failure_as_object(LaunchFailure failed);
