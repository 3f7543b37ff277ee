// The module humming_runtime._native: limited API of CPython 3.10, so that one binary serves every later version.
#include "native.h"

static PyObject* launch_type;

PyObject* native_launch_type(void) { return launch_type; }

static PyMethodDef functions[] = {
    {"generation", native_generation, METH_NOARGS, "generation()\n\nMoves where every choice of kernels became void."},
    {"invalidate", native_invalidate, METH_NOARGS, "invalidate()\n\nEvery TensorCall chooses its kernels again."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "humming_runtime._native",
                                        "Launching without an interpreter in the way; see launch.c.", -1, functions,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
  if (tensor_call_ready()) return NULL;
  PyObject* module = PyModule_Create(&definition);
  if (!module) return NULL;
  launch_type = PyType_FromSpec(&launch_spec);
  PyObject* call_type = launch_type ? PyType_FromSpec(&tensor_call_spec) : NULL;
  if (!call_type) {
    Py_DecRef(module);
    return NULL;
  }
  Py_IncRef(launch_type);  // the module's reference; the other one is ours
  if (PyModule_AddObject(module, "Launch", launch_type) || PyModule_AddObject(module, "TensorCall", call_type)) {
    Py_DecRef(module);
    return NULL;
  }
  return module;
}
