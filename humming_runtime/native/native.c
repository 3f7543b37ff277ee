// The module humming_runtime._native: limited API of CPython 3.10, so that one binary serves every later version.
#include "native.h"

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
  PyObject* const launch = launch_type();
  PyObject* const call = launch ? PyType_FromSpec(&tensor_call_spec) : NULL;
  if (!call) {
    Py_DecRef(module);
    return NULL;
  }
  Py_IncRef(launch);  // the module's reference, besides the one of launch_type()
  if (PyModule_AddObject(module, "Launch", launch) || PyModule_AddObject(module, "TensorCall", call)) {
    Py_DecRef(module);
    return NULL;
  }
  return module;
}
