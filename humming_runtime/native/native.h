// What the parts of the extension need of each other.
#pragma once

#include "launch.h"

extern PyType_Spec tensor_call_spec;

int tensor_call_ready(void);  // 0, or -1 with an exception
PyObject* native_generation(PyObject* module, PyObject* unused);  // int
PyObject* native_invalidate(PyObject* module, PyObject* unused);
