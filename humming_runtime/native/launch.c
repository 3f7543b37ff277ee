// Launch: one kernel with its constant arguments. A call patches what moves and goes to the driver: no heap, no locks.
//
// Everything that a call changes lies on the stack of the call, so threads share a Launch; the interpreter lock
// protects the cached tensor map. Functions of the driver come as addresses: nothing here links or opens a library.
#include "launch.h"

#include <string.h>

static const char* const kCallNames[] = {"", "cuLaunchKernelEx", "cuCtxGetCurrent", "cuCtxPushCurrent_v2",
                                         "cuCtxPopCurrent_v2", "cuTensorMapEncodeTiled"};

static CudaResult encode_map(Launch* self, uint64_t address, uint64_t stride_bytes) {
  const MapFacts* map = &self->map;
  if (self->encoded_address == address && self->encoded_stride == stride_bytes) return 0;
  const uint64_t sizes[2] = {map->size_x, map->size_y};
  const uint32_t box[2] = {map->box_x, map->box_y}, ones[2] = {1, 1};
  _Alignas(64) unsigned char fresh[kTensorMapBytes];
  CudaResult code = self->driver.encode(fresh, map->data_type, 2, (void*)address, sizes, &stride_bytes, box, ones,
                                        map->interleave, map->swizzle, map->l2_promotion, map->fill);
  if (code) return code;
  memcpy(self->template_bytes + self->offsets.activation_map, fresh, kTensorMapBytes);
  self->encoded_address = address;
  self->encoded_stride = stride_bytes;
  return 0;
}

static LaunchFailure failure(int call, CudaResult code) { return (LaunchFailure){call, code}; }

LaunchFailure launch_run(Launch* self, const LaunchCall* call) {
  const LaunchDriver* driver = &self->driver;
  void* current = NULL;
  CudaResult code = driver->get_current(&current);
  if (code) return failure(2, code);
  const int foreign = current != self->context;
  if (foreign && (code = driver->push(self->context))) return failure(3, code);

  LaunchFailure result = {0, 0};
  if (self->offsets.activation_map >= 0 &&
      (code = encode_map(self, (uint64_t)call->activation, (uint64_t)call->activation_stride * 2))) {
    result = failure(5, code);
  } else {
    _Alignas(64) unsigned char arguments[kMostArgumentBytes];
    memcpy(arguments, self->template_bytes, (size_t)self->template_size);
    memcpy(arguments + self->offsets.activation, &call->activation, 8);
    memcpy(arguments + self->offsets.activation_stride, &call->activation_stride, 8);
    memcpy(arguments + self->offsets.output, &call->output, 8);
    memcpy(arguments + self->offsets.output_stride, &call->output_stride, 8);
    if (call->has_bias) memcpy(arguments + self->offsets.bias, &call->bias, 8);
    LaunchAttribute attributes[2];
    unsigned count = 0;
    if (self->cluster > 1) {
      memset(&attributes[count], 0, sizeof attributes[count]);
      attributes[count].id = kClusterDimension;
      attributes[count].value[0] = self->cluster;
      attributes[count].value[1] = attributes[count].value[2] = 1;
      ++count;
    }
    if (call->overlap && self->can_overlap) {
      memset(&attributes[count], 0, sizeof attributes[count]);
      attributes[count].id = kProgrammaticSerialization;
      attributes[count].value[0] = 1;
      ++count;
    }
    LaunchConfig config = {{self->grid, 1, 1}, {self->threads, 1, 1}, self->shared_bytes,
                           (void*)call->stream, attributes, count};
    void* parameters[1] = {arguments};
    void* const function = self->function;
    const LaunchKernelEx launch = driver->launch;
    PyThreadState* state = PyEval_SaveThread();  // a full queue blocks, and host functions may need the lock
    code = launch(&config, function, parameters, NULL);
    PyEval_RestoreThread(state);
    if (code) {
      result = failure(1, code);
    } else {
      ++*self->launches;
    }
  }
  if (foreign) {
    void* popped = NULL;
    code = driver->pop(&popped);
    if (code && !result.call) result = failure(4, code);
  }
  return result;
}

PyObject* failure_as_object(LaunchFailure failed) {
  return Py_BuildValue("(si)", kCallNames[failed.call], (int)failed.code);
}

static const char kLaunchDoc[] =
    "Launch(driver, kernel, shape, template, offsets, map, counter, cell)\n\n"
    "driver: addresses of cuLaunchKernelEx, cuCtxGetCurrent, cuCtxPushCurrent_v2, cuCtxPopCurrent_v2 and\n"
    "cuTensorMapEncodeTiled. kernel: (function, context). shape: (grid, threads, shared bytes, cluster, can overlap).\n"
    "template: the argument struct. offsets: of activation, activation_stride, output, output_stride, bias and\n"
    "activation_map (-1: none). map: (data type, size x, size y, box x, box y, interleave, swizzle, L2 promotion,\n"
    "fill).\n"
    "counter: kept as long as the launch; cell: address of its 64-bit number, one more for each launch.";

static PyObject* launch_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  (void)kwargs;
  unsigned long long driver[5], function, context, cell;
  PyObject* counter;
  const char* template_bytes;
  Py_ssize_t template_size;
  LaunchOffsets at;
  MapFacts map;
  unsigned grid, threads, shared_bytes, cluster;
  int can_overlap;
  if (!PyArg_ParseTuple(args, "(KKKKK)(KK)(IIIIp)y#(iiiiii)(iKKIIiiii)OK:Launch", &driver[0], &driver[1], &driver[2],
                        &driver[3], &driver[4], &function, &context, &grid, &threads, &shared_bytes, &cluster,
                        &can_overlap, &template_bytes, &template_size, &at.activation, &at.activation_stride,
                        &at.output, &at.output_stride, &at.bias, &at.activation_map, &map.data_type, &map.size_x,
                        &map.size_y, &map.box_x, &map.box_y, &map.interleave, &map.swizzle, &map.l2_promotion,
                        &map.fill, &counter, &cell)) {
    return NULL;
  }
  const int fields[] = {at.activation, at.activation_stride, at.output, at.output_stride, at.bias};
  for (int i = 0; i < 5; ++i) {
    if (fields[i] < 0 || fields[i] + 8 > template_size) {
      PyErr_Format(PyExc_ValueError, "offset %d: outside of the arguments (%zd bytes)", fields[i], template_size);
      return NULL;
    }
  }
  if (template_size > kMostArgumentBytes || at.activation_map + kTensorMapBytes > template_size) {
    PyErr_Format(PyExc_ValueError, "arguments: %zd bytes, limit %d", template_size, (int)kMostArgumentBytes);
    return NULL;
  }
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  Launch* self = (Launch*)allocate(type, 0);
  if (!self) return NULL;
  self->driver = (LaunchDriver){(LaunchKernelEx)driver[0], (GetCurrent)driver[1], (PushCurrent)driver[2],
                                (PopCurrent)driver[3], (EncodeTiled)driver[4]};
  self->function = (void*)function;
  self->context = (void*)context;
  self->grid = grid, self->threads = threads, self->shared_bytes = shared_bytes, self->cluster = cluster;
  self->can_overlap = can_overlap;
  self->offsets = at;
  self->map = map;
  self->encoded_address = 0;
  Py_IncRef(counter);
  self->counter = counter;
  self->launches = (int64_t*)cell;
  self->template_size = template_size;
  self->template_bytes = PyMem_Malloc((size_t)template_size);
  if (!self->template_bytes) {
    Py_DecRef((PyObject*)self);
    return PyErr_NoMemory();
  }
  memcpy(self->template_bytes, template_bytes, (size_t)template_size);
  return (PyObject*)self;
}

static const char kRunDoc[] =
    "launch(activation, activation_stride, output, output_stride, bias, stream, overlap)\n\n"
    "Enqueue; None, or (name of the driver's call, its code). bias: an address, or None for the template's own.\n"
    "Units: addresses, strides in elements.";

static PyObject* launch_launch(PyObject* object, PyObject* args) {
  long long address[4], stream;
  PyObject* bias;
  LaunchCall call;
  if (!PyArg_ParseTuple(args, "LLLLOLp:launch", &address[0], &address[1], &address[2], &address[3], &bias, &stream,
                        &call.overlap)) {
    return NULL;
  }
  call.activation = address[0], call.activation_stride = address[1];
  call.output = address[2], call.output_stride = address[3];
  call.stream = stream;
  call.has_bias = bias != Py_None;
  call.bias = call.has_bias ? PyLong_AsLongLong(bias) : 0;
  if (call.bias == -1 && PyErr_Occurred()) return NULL;
  const LaunchFailure failed = launch_run((Launch*)object, &call);
  if (failed.call) return failure_as_object(failed);
  Py_RETURN_NONE;
}

static void launch_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyMem_Free(((Launch*)self)->template_bytes);
  Py_DecRef(((Launch*)self)->counter);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DecRef((PyObject*)type);
}

static PyMethodDef launch_methods[] = {{"launch", launch_launch, METH_VARARGS, kRunDoc}, {NULL, NULL, 0, NULL}};
static PyType_Slot launch_slots[] = {{Py_tp_doc, (void*)kLaunchDoc},
                                     {Py_tp_new, launch_new},
                                     {Py_tp_dealloc, launch_dealloc},
                                     {Py_tp_methods, launch_methods},
                                     {0, NULL}};
static PyType_Spec launch_spec = {"humming_runtime._native.Launch", sizeof(Launch), 0, Py_TPFLAGS_DEFAULT,
                                  launch_slots};

PyObject* launch_type(void) {
  static PyObject* type;
  if (!type) type = PyType_FromSpec(&launch_spec);
  return type;
}
