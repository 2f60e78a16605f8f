// array.c: the memory behind Python objects, with its type. Nothing is copied: what is not contiguous, or read-only
// where it is written, is an error.
#include <string.h>

#include "fast.h"

static PyObject *describe_function; // describe(object) -> (object with a buffer, data type) or None

PyObject *fast_set_describe(PyObject *module, PyObject *describe)
{
  (void)module;
  Py_XDECREF(describe_function);
  Py_INCREF(describe);
  describe_function = describe;
  Py_RETURN_NONE;
}

bool fast_is_contiguous(int ndim, const int64_t *shape, const int64_t *strides, int64_t item)
{
  if (strides == NULL) {
    return true;
  }
  for (int i = 0; i < ndim; i++) {
    if (shape[i] == 0) {
      return true;
    }
  }
  for (int i = ndim - 1; i >= 0; i--) {
    if (shape[i] != 1 && strides[i] != item) {
      return false;
    }
    item *= shape[i];
  }
  return true;
}

// Integers of `size` bytes. False: none of that size.
static bool integer_type(size_t size, bool is_signed, ncclDataType_t *type)
{
  switch (size) {
  case 1: *type = is_signed ? ncclInt8 : ncclUint8; return true;
  case 4: *type = is_signed ? ncclInt32 : ncclUint32; return true;
  case 8: *type = is_signed ? ncclInt64 : ncclUint64; return true;
  default: return false;
  }
}

// Type of a format of the module struct, without its mark of byte order. False: only moved.
static bool format_type(const char *format, size_t size, ncclDataType_t *type)
{
  if (format[0] == '\0' || format[1] != '\0') {
    return false;
  }
  switch (format[0]) {
  case 'e': *type = ncclFloat16; return true;
  case 'f': *type = ncclFloat32; return true;
  case 'd': *type = ncclFloat64; return true;
  case 'b':
  case 'h':
  case 'i':
  case 'l':
  case 'q': return integer_type(size, true, type);
  case 'B':
  case 'c':
  case 'H':
  case 'I':
  case 'L':
  case 'Q': return integer_type(size, false, type);
  default: return false;
  }
}

// Fills type, unit and kind for a format: NULL means bytes. In other byte order numbers only move.
static void array_type(fast_array *a, const char *format)
{
  format = format == NULL ? "B" : format;
  format += strchr("@=<", format[0]) != NULL && format[0] != '\0' ? 1 : 0;
  a->kind = format[0] == 'Z' ? FAST_COMPLEX : FAST_NUMBER;
  a->unit = a->kind == FAST_COMPLEX ? a->item / 2 : a->item;
  if (!format_type(format + (a->kind == FAST_COMPLEX), a->unit, &a->type)) {
    a->kind = format[0] == '?' && format[1] == '\0' ? FAST_BOOL : FAST_OPAQUE;
    a->unit = 1;
    a->type = ncclUint8;
  }
}

// Has the format Python objects, which mean nothing to other processes? Names of members stand between colons.
static bool holds_objects(const char *format)
{
  bool name = false;
  for (; format != NULL && *format != '\0'; format++) {
    if (*format == ':') {
      name = !name;
    } else if (*format == 'O' && !name) {
      return true;
    }
  }
  return false;
}

static int refuse_layout(PyObject *object, const char *role)
{
  PyErr_Format(PyExc_BufferError,
               "%s: %R is not contiguous in C order: pass a contiguous copy (numpy.ascontiguousarray(x), "
               "x.contiguous()), and copy the result back where it is written",
               role, Py_TYPE(object));
  return -1;
}

// Takes a->view as the array's memory.
static int take_view(fast_array *a, PyObject *object, const char *role, bool writes)
{
  const Py_buffer *v = &a->view;
  if (v->suboffsets != NULL || !fast_is_contiguous(v->ndim, v->shape, v->strides, v->itemsize)) {
    return refuse_layout(object, role);
  }
  if (writes && v->readonly) {
    PyErr_Format(PyExc_BufferError, "%s: %R is read-only, and the operation writes to it", role, Py_TYPE(object));
    return -1;
  }
  if (holds_objects(v->format)) {
    PyErr_Format(PyExc_TypeError, "%s: %R holds Python objects, which cannot be sent: send bytes (pickle.dumps)", role,
                 Py_TYPE(object));
    return -1;
  }
  a->data = v->buf;
  a->bytes = (size_t)v->len;
  a->item = v->itemsize > 0 ? (size_t)v->itemsize : 1;
  array_type(a, v->format);
  return 0;
}

// An array whose type has no format: Python names the type, and gives its bytes. 1: Python does not know it either.
static int describe_array(fast_array *a, PyObject *object, const char *role, bool writes)
{
  int type, size, res = -1;
  PyObject *told = PyObject_CallFunctionObjArgs(describe_function, object, NULL);
  if (told == NULL || told == Py_None) {
    Py_XDECREF(told);
    return told == NULL ? -1 : 1;
  }
  if (PyArg_ParseTuple(told, "Oii", &a->keep, &type, &size)) {
    Py_INCREF(a->keep);
    res = PyObject_GetBuffer(a->keep, &a->view, PyBUF_FULL_RO) == 0 ? take_view(a, object, role, writes) : -1;
  }
  Py_DECREF(told);
  if (res == 0 && type >= 0) {
    a->type = (ncclDataType_t)type;
    a->kind = FAST_NUMBER;
    a->item = a->unit = (size_t)size;
  }
  return res;
}

// An object whose buffer was not to be had, for the reason that is set as an exception.
static int other_array(fast_array *a, PyObject *object, const char *role, bool writes)
{
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  int res = describe_array(a, object, role, writes);
  bool exports = res == 1 && PyObject_HasAttrString(object, "__dlpack__");
  if (res == 1 && !exports && !PyErr_GivenExceptionMatches(type, PyExc_TypeError)) {
    PyErr_Restore(type, value, trace); // it has buffers, and gives none now: released, closed
    return -1;
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  if (res != 1) {
    return res;
  }
  if (exports) {
    return fast_dlpack_get(a, object, role, writes);
  }
  PyErr_Format(PyExc_TypeError,
               "%s: %R is no array: pass an object with the buffer protocol (numpy.ndarray, bytearray, array.array, "
               "memoryview) or with __dlpack__",
               role, Py_TYPE(object));
  return -1;
}

int fast_array_get(fast_array *a, PyObject *object, const char *role, bool writes)
{
  memset(a, 0, sizeof *a);
  int res;
  if (PyObject_GetBuffer(object, &a->view, PyBUF_FULL_RO) == 0) {
    res = take_view(a, object, role, writes);
  } else {
    a->view.obj = NULL;
    res = other_array(a, object, role, writes);
  }
  if (res != 0) {
    fast_array_release(a);
  }
  return res;
}

void fast_array_release(fast_array *a)
{
  if (a->view.obj != NULL) {
    PyBuffer_Release(&a->view);
  }
  Py_XDECREF(a->keep);
  Py_XDECREF(a->capsule);
  a->view.obj = NULL;
  a->keep = a->capsule = NULL;
}

#define MEMORY_NAME "tutti.memory"

static void free_memory(PyObject *capsule)
{
  fast_array *a = PyCapsule_GetPointer(capsule, MEMORY_NAME);
  fast_array_release(a);
  PyMem_Free(a);
}

PyObject *fast_memory(PyObject *module, PyObject *args)
{
  (void)module;
  PyObject *object;
  const char *role;
  int writes;
  if (!PyArg_ParseTuple(args, "Osp", &object, &role, &writes)) {
    return NULL;
  }
  fast_array *a = PyMem_Malloc(sizeof *a);
  if (a == NULL) {
    return PyErr_NoMemory();
  }
  PyObject *keeper = NULL;
  if (fast_array_get(a, object, role, writes != 0) == 0) {
    keeper = PyCapsule_New(a, MEMORY_NAME, free_memory);
    if (keeper == NULL) {
      fast_array_release(a);
    }
  }
  if (keeper == NULL) {
    PyMem_Free(a);
    return NULL;
  }
  return Py_BuildValue("NnN", PyLong_FromVoidPtr(a->data), (Py_ssize_t)a->bytes, keeper);
}
