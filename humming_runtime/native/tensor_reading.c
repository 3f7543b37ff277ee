// Which tensors kernels can go through where they are; see tensor_reading.h.
#include "tensor_reading.h"

enum { kAlignment = 16, kElementBytes = 2 };

int read_tensor(const TensorReader* reader, PyObject* object, DlTensor* out) {
  if ((PyObject*)Py_TYPE(object) != reader->tensor_type) return 0;
  if (reader->api->tensor_from_object(object, out)) {
    PyErr_Clear();  // a tensor without memory of its own: the long way knows what to say
    return 0;
  }
  return out->strides && out->device.type == reader->device.type && out->device.id == reader->device.id &&
         out->dtype.code == reader->dtype.code && out->dtype.bits == reader->dtype.bits && out->dtype.lanes == 1;
}

int64_t row_stride(const DlTensor* t, int64_t width, int64_t* rows) {
  const int last = t->ndim - 1;
  if (last < 0 || t->shape[last] != width || (t->strides[last] != 1 && width != 1)) return 0;
  int64_t count = 1, stride = width;
  int seen = 0;
  for (int i = last - 1; i >= 0; --i) {
    if (t->shape[i] == 1) continue;
    if (!seen) {
      stride = t->strides[i];
      seen = 1;
    } else if (t->strides[i] != stride * count) {
      return 0;
    }
    count *= t->shape[i];
  }
  *rows = count;
  const uintptr_t address = (uintptr_t)t->data + t->byte_offset;
  return address % kAlignment || stride * kElementBytes % kAlignment || stride < width ? 0 : stride;
}

int same_leading_shape(const DlTensor* a, const DlTensor* b) {
  if (a->ndim != b->ndim) return 0;
  for (int i = 0; i < a->ndim - 1; ++i) {
    if (a->shape[i] != b->shape[i]) return 0;
  }
  return 1;
}
