// module.c: the module tutti._fast.
#include "fast.h"

// setup(describe, request): Python's function for types that buffers cannot name, and its class of requests.
static PyObject *module_configure(PyObject *module, PyObject *args)
{
  PyObject *describe, *request;
  if (!PyArg_ParseTuple(args, "OO", &describe, &request)) {
    return NULL;
  }
  fast_request_use(request);
  return fast_set_describe(module, describe);
}

static PyMethodDef module_methods[] = {
    {"load", fast_load, METH_VARARGS, "load(path, fail): opens the library."},
    {"setup", module_configure, METH_VARARGS, "setup(describe, request)"},
    {"memory", fast_memory, METH_VARARGS, "memory(array, role, writes): address, bytes, and what keeps the memory."},
    {"group_start", fast_group_start, METH_NOARGS, "Begins a group of the calling thread."},
    {"group_end", fast_group_end, METH_NOARGS, "Ends it: the requests that its end waits for."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "tutti._fast", "The data path of tutti.", -1, module_methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__fast(void); // for -Wmissing-prototypes

PyMODINIT_FUNC PyInit__fast(void)
{
  PyObject *module = PyModule_Create(&module_definition);
  if (module != NULL && (fast_request_setup(module) != 0 || fast_comm_setup(module) != 0)) {
    Py_CLEAR(module);
  }
  return module;
}
