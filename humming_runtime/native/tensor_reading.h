// Tensors of one device and dtype, read without making an object.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "dlpack_abi.h"

typedef struct {
  const DlExchangeApi* api;
  PyObject* tensor_type;  // owned by whoever has the reader
  DlDevice device;
  DlDtype dtype;
} TensorReader;

// 1 where `object` is a plain tensor of the reader's device and dtype, else 0 without an exception.
int read_tensor(const TensorReader* reader, PyObject* object, DlTensor* out);

// Rows of `width` elements with one stride and 16-byte aligned: the stride in elements, 0 where there is none.
int64_t row_stride(const DlTensor* tensor, int64_t width, int64_t* rows);

// All dimensions but the last.
int same_leading_shape(const DlTensor* a, const DlTensor* b);
