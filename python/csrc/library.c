// library.c: opens libnccl.so.2 and finds its functions. By its path, so that another library of the same name, which
// the process may have, is left alone.
#include <dlfcn.h>
#include <string.h>

#include "fast.h"

fast_library lib;

static PyObject *fail_function; // fail(code, handle, what): raises

static void *library_symbol(void *handle, const char *name)
{
  void *symbol = dlsym(handle, name);
  if (symbol == NULL && PyErr_Occurred() == NULL) {
    PyErr_Format(PyExc_ImportError,
                 "the library has no %s: it is another NCCL, or an older Tutti. Unset TUTTI_LIBRARY, or let it name a "
                 "libnccl.so.2 of this version of Tutti",
                 name);
  }
  return symbol;
}

// Object pointers become function pointers, as POSIX promises for dlsym.
static int find_required(void *handle)
{
#define F(name) *(void **)&lib.name = library_symbol(handle, #name);
#include "functions.def"
#undef F
  return PyErr_Occurred() == NULL ? 0 : -1;
}

static void find_optional(void *handle)
{
  *(void **)&lib.tuttiAllGatherV = dlsym(handle, "tuttiAllGatherV");
  *(void **)&lib.tuttiReduceScatterV = dlsym(handle, "tuttiReduceScatterV");
  *(void **)&lib.tuttiGatherV = dlsym(handle, "tuttiGatherV");
  *(void **)&lib.tuttiScatterV = dlsym(handle, "tuttiScatterV");
  *(void **)&lib.tuttiAlltoAllV = dlsym(handle, "tuttiAlltoAllV");
}

PyObject *fast_load(PyObject *module, PyObject *args)
{
  const char *path;
  PyObject *fail;
  (void)module;
  if (!PyArg_ParseTuple(args, "sO", &path, &fail)) {
    return NULL;
  }
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    return PyErr_Format(PyExc_ImportError, "%s cannot be loaded: %s", path, dlerror());
  }
  if (find_required(handle) != 0) {
    return NULL;
  }
  find_optional(handle);
  Py_XDECREF(fail_function);
  Py_INCREF(fail);
  fail_function = fail;
  Py_RETURN_NONE;
}

static PyObject *raised(PyObject *res, ncclResult_t code, const char *what)
{
  if (res != NULL) {
    Py_DECREF(res);
    PyErr_Format(PyExc_SystemError, "%s: error %d was not raised", what, (int)code);
  }
  return NULL;
}

PyObject *fast_fail(ncclResult_t code, ncclComm_t comm, const char *what)
{
  return raised(PyObject_CallFunction(fail_function, "iKs", (int)code, (unsigned long long)(uintptr_t)comm, what), code,
                what);
}

PyObject *fast_fail_text(ncclResult_t code, int rank, const char *text, const char *what)
{
  PyObject *read = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace"); // it may be cut within a character
  if (read == NULL) {
    return NULL;
  }
  PyObject *res = PyObject_CallFunction(fail_function, "iisiO", (int)code, 0, what, rank, read);
  Py_DECREF(read);
  return raised(res, code, what);
}
