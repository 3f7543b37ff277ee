// TensorCall: from tensors to a launch in well under a microsecond, for the calls that have nothing unusual about them.
//
// run() answers True where it has launched, False where the call needs the long way (which checks everything, says
// what is wrong, resolves kernels, and keeps the rule of overlap), and (call, code) where the driver refused.
// Tensors are read through DLPack's exchange functions; nothing of torch is linked.
#include "launch.h"

#include <stdatomic.h>
#include <string.h>

#include "native.h"
#include "size_table.h"
#include "tensor_reading.h"

enum { kMostWeights = 4, kMostStreams = 32 };

static atomic_llong generation;  // moves where every cached choice of kernels is void

typedef struct {
  PyObject_HEAD
  TensorReader reader;
  PyObject* dispatch_depth;  // callable: modes that want to see every operator
  PyObject* weights[kMostWeights];  // NULL: absent; the first is only compared, the others are kept
  void* addresses[kMostWeights];
  long long versions[kMostWeights];
  int weight_count;
  int tracked;        // weights have version counters
  int versions_known;
  int64_t n, k;
  long long generation;
  int stream_count;
  int64_t streams[kMostStreams];  // launched these weights since they were last written
  SizeTable sizes;
} TensorCall;

static PyObject *name_requires_grad, *name_version;

// 1 = no gradient, 0 = one may be needed, -1 = error.
static int needs_no_gradient(PyObject* tensor) {
  PyObject* flag = PyObject_GetAttr(tensor, name_requires_grad);
  if (!flag) return -1;
  Py_DecRef(flag);  // True and False live for ever
  return flag == Py_False;
}

// Are these the weights, where and what they were when the streams were noted? -1 = error.
static int weights_unchanged(TensorCall* self, PyObject* parts) {
  if (!PyTuple_Check(parts) || PyTuple_Size(parts) != kMostWeights) return 0;
  for (int i = 0; i < kMostWeights; ++i) {
    PyObject* const part = PyTuple_GetItem(parts, i);
    if (part != (self->weights[i] ? self->weights[i] : Py_None)) return 0;
    if (part == Py_None) continue;
    DlTensor t;
    if (self->reader.api->tensor_from_object(part, &t)) {
      PyErr_Clear();  // the long way knows what to say
      return 0;
    }
    if ((char*)t.data + t.byte_offset != (char*)self->addresses[i]) return 0;
    if (!self->tracked) continue;
    PyObject* version = PyObject_GetAttr(part, name_version);
    if (!version) return -1;
    const long long value = PyLong_AsLongLong(version);
    Py_DecRef(version);
    if (value != self->versions[i]) return 0;
  }
  return self->versions_known || !self->tracked;
}

static int stream_is_known(const TensorCall* self, int64_t stream) {
  for (int i = 0; i < self->stream_count; ++i) {
    if (self->streams[i] == stream) return 1;
  }
  return 0;
}

static int no_mode_is_active(const TensorCall* self) {
  PyObject* depth = PyObject_CallNoArgs(self->dispatch_depth);
  if (!depth) return -1;
  const long value = PyLong_AsLong(depth);
  Py_DecRef(depth);
  return value == 0;
}

static const char kRunDoc[] =
    "run(x, out, bias, parts)\n\nTrue: launched. False: take the long way. (call, code): refused.";

static PyObject* tensor_call_run(PyObject* object, PyObject* const* args, Py_ssize_t count) {
  TensorCall* self = (TensorCall*)object;
  if (count != 4) {
    PyErr_SetString(PyExc_TypeError, "run() takes x, out, bias and parts");
    return NULL;
  }
  PyObject *const x = args[0], *const out = args[1], *const bias = args[2];
  DlTensor a, c, b;
  int64_t m = 0, rows = 0;
  LaunchCall call = {0};
  const TensorReader* const reader = &self->reader;
  if (!read_tensor(reader, x, &a) || !read_tensor(reader, out, &c)) Py_RETURN_FALSE;
  if (!same_leading_shape(&a, &c)) Py_RETURN_FALSE;
  if (!(call.activation_stride = row_stride(&a, self->k, &m))) Py_RETURN_FALSE;
  if (!(call.output_stride = row_stride(&c, self->n, &rows)) || m < 1) Py_RETURN_FALSE;
  if (bias != Py_None) {
    if (!read_tensor(reader, bias, &b) || b.ndim != 1 || b.shape[0] != self->n) Py_RETURN_FALSE;
    if (b.strides[0] != 1 && self->n != 1) Py_RETURN_FALSE;
    call.has_bias = 1;
    call.bias = (int64_t)((char*)b.data + b.byte_offset);
  }
  int fine = no_mode_is_active(self);
  if (fine == 1) fine = needs_no_gradient(x);
  if (fine == 1) fine = needs_no_gradient(out);
  if (fine == 1 && call.has_bias) fine = needs_no_gradient(bias);
  if (fine == 1) fine = weights_unchanged(self, args[3]);
  if (fine < 0) return NULL;
  if (!fine || self->generation != atomic_load(&generation)) Py_RETURN_FALSE;

  void* stream = NULL;
  const DlDevice device = reader->device;
  if (device.type == kDlCuda && reader->api->current_stream(kDlCuda, device.id, &stream)) return NULL;
  call.stream = (int64_t)stream;
  if (self->tracked && !stream_is_known(self, call.stream)) Py_RETURN_FALSE;
  Launch* const launch = size_table_find(&self->sizes, m);
  if (!launch) Py_RETURN_FALSE;
  call.overlap = self->tracked;
  call.activation = (int64_t)((char*)a.data + a.byte_offset);
  call.output = (int64_t)((char*)c.data + c.byte_offset);
  Py_IncRef((PyObject*)launch);  // another thread may change the table while the launch waits
  const LaunchFailure failed = launch_run(launch, &call);
  Py_DecRef((PyObject*)launch);
  if (failed.call) return failure_as_object(failed);
  Py_RETURN_TRUE;
}

static const char kAddDoc[] = "add(m, launch, generation)\n\nCalls with m rows take this launch from now on.";

static PyObject* tensor_call_add(PyObject* object, PyObject* args) {
  TensorCall* self = (TensorCall*)object;
  long long m, made_in;
  PyObject* launch;
  if (!PyArg_ParseTuple(args, "LO!L:add", &m, launch_type(), &launch, &made_in)) return NULL;
  if (m < 1) {
    PyErr_SetString(PyExc_ValueError, "m: must be positive");
    return NULL;
  }
  const long long now = atomic_load(&generation);
  if (made_in != now) Py_RETURN_NONE;  // chosen before the choice became void
  if (self->generation != now) size_table_clear(&self->sizes);
  self->generation = now;
  size_table_put(&self->sizes, m, (Launch*)launch);
  Py_RETURN_NONE;
}

static const char kNoteDoc[] =
    "note(versions, stream)\n\nWeights of these versions were launched on the stream, and nothing wrote them since.";

static PyObject* tensor_call_note(PyObject* object, PyObject* args) {
  TensorCall* self = (TensorCall*)object;
  PyObject* versions;
  long long stream;
  if (!PyArg_ParseTuple(args, "O!L:note", &PyTuple_Type, &versions, &stream)) return NULL;
  if (PyTuple_Size(versions) != self->weight_count) {
    PyErr_SetString(PyExc_ValueError, "versions: one for each weight tensor");
    return NULL;
  }
  int at = 0;
  for (int i = 0; i < kMostWeights; ++i) {
    if (!self->weights[i]) continue;
    const long long value = PyLong_AsLongLong(PyTuple_GetItem(versions, at++));
    if (value == -1 && PyErr_Occurred()) return NULL;
    if (!self->versions_known || value != self->versions[i]) self->stream_count = 0;
    self->versions[i] = value;
  }
  self->versions_known = 1;
  if (!stream_is_known(self, stream)) {
    if (self->stream_count == kMostStreams) self->stream_count = 0;
    self->streams[self->stream_count++] = stream;
  }
  Py_RETURN_NONE;
}

static PyObject* tensor_call_forget(PyObject* object, PyObject* unused) {
  (void)unused;
  ((TensorCall*)object)->stream_count = 0;
  Py_RETURN_NONE;
}

static const char kTensorCallDoc[] =
    "TensorCall(exchange, tensor_type, dispatch_depth, weights, tracked, device, dtype, size)\n\n"
    "exchange: torch.Tensor.__dlpack_c_exchange_api__. weights: 4 tensors or None; the first is not kept alive,\n"
    "whoever calls has it. tracked: they have version counters. device: (DLPack type, index). dtype: (DLPack code,\n"
    "bits). size: (n, k).";

static PyObject* tensor_call_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  (void)kwargs;
  PyObject *capsule, *tensor_type, *depth, *weights;
  int tracked, device_type, device_id, code, bits;
  long long n, k;
  if (!PyArg_ParseTuple(args, "OOOO!p(ii)(ii)(LL):TensorCall", &capsule, &tensor_type, &depth, &PyTuple_Type, &weights,
                        &tracked, &device_type, &device_id, &code, &bits, &n, &k)) {
    return NULL;
  }
  const DlExchangeApi* api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  while (api && api->version.major > kDlpackMajor) api = api->previous;
  if (!api || !api->tensor_from_object || !api->current_stream) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "exchange: no DLPack 1.x functions");
    return NULL;
  }
  if (PyTuple_Size(weights) != kMostWeights || PyTuple_GetItem(weights, 0) == Py_None) {
    PyErr_Format(PyExc_ValueError, "weights: %d tensors or None, the first is a tensor", (int)kMostWeights);
    return NULL;
  }
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  TensorCall* self = (TensorCall*)allocate(type, 0);
  if (!self) return NULL;
  Py_IncRef(tensor_type);
  Py_IncRef(depth);
  self->reader = (TensorReader){api, tensor_type, {device_type, device_id}, {(uint8_t)code, (uint8_t)bits, 1}};
  self->dispatch_depth = depth;
  self->tracked = tracked;
  self->n = n, self->k = k;
  self->generation = -1;
  for (int i = 0; i < kMostWeights; ++i) {
    DlTensor t;
    PyObject* tensor = PyTuple_GetItem(weights, i);
    if (tensor == Py_None) continue;
    if (api->tensor_from_object(tensor, &t)) {
      Py_DecRef((PyObject*)self);
      return NULL;
    }
    if (i > 0) Py_IncRef(tensor);
    self->weights[i] = tensor;
    self->addresses[i] = (char*)t.data + t.byte_offset;
    ++self->weight_count;
  }
  return (PyObject*)self;
}

static void tensor_call_dealloc(PyObject* object) {
  TensorCall* self = (TensorCall*)object;
  size_table_clear(&self->sizes);
  for (int i = 1; i < kMostWeights; ++i) Py_DecRef(self->weights[i]);  // takes NULL
  Py_DecRef(self->reader.tensor_type);
  Py_DecRef(self->dispatch_depth);
  PyTypeObject* type = Py_TYPE(object);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DecRef((PyObject*)type);
}

PyObject* native_generation(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  return PyLong_FromLongLong(atomic_load(&generation));
}

PyObject* native_invalidate(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  atomic_fetch_add(&generation, 1);
  Py_RETURN_NONE;
}

int tensor_call_ready(void) {
  name_requires_grad = PyUnicode_InternFromString("requires_grad");
  name_version = PyUnicode_InternFromString("_version");
  return name_requires_grad && name_version ? 0 : -1;
}

static PyMethodDef tensor_call_methods[] = {
    {"run", (PyCFunction)(void (*)(void))tensor_call_run, METH_FASTCALL, kRunDoc},
    {"add", tensor_call_add, METH_VARARGS, kAddDoc},
    {"note", tensor_call_note, METH_VARARGS, kNoteDoc},
    {"forget", tensor_call_forget, METH_NOARGS, "forget()\n\nThe next call of every stream takes the long way."},
    {NULL, NULL, 0, NULL}};
static PyType_Slot tensor_call_slots[] = {{Py_tp_doc, (void*)kTensorCallDoc},
                                          {Py_tp_new, tensor_call_new},
                                          {Py_tp_dealloc, tensor_call_dealloc},
                                          {Py_tp_methods, tensor_call_methods},
                                          {0, NULL}};
PyType_Spec tensor_call_spec = {"humming_runtime._native.TensorCall", sizeof(TensorCall), 0, Py_TPFLAGS_DEFAULT,
                                tensor_call_slots};
