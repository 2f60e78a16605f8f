// dlpack.c: arrays of other libraries, by the DLPack protocol (https://dmlc.github.io/dlpack). The structs are those of
// versions 0.x and 1.x.
#include <stdint.h>

#include "fast.h"

#define DEVICE_CPU 1
#define DEVICE_CUDA_HOST 3
#define FLAG_READ_ONLY 1
#define MAJOR 1

typedef struct dl_tensor {
  void *data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape;
  int64_t *strides; // in elements; NULL: C order
  uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
  dl_tensor tensor;
  void *context;
  void (*deleter)(struct dl_managed *self);
} dl_managed;

typedef struct dl_versioned {
  uint32_t major, minor;
  void *context;
  void (*deleter)(struct dl_versioned *self);
  uint64_t flags;
  dl_tensor tensor;
} dl_versioned;

// Types by DLPack's code and bits. Everything else is only moved.
static const struct {
  uint8_t code, bits;
  ncclDataType_t type;
  fast_kind kind;
} dl_types[] = {
    {0, 8, ncclInt8, FAST_NUMBER},      {0, 32, ncclInt32, FAST_NUMBER},      {0, 64, ncclInt64, FAST_NUMBER},
    {1, 8, ncclUint8, FAST_NUMBER},     {1, 32, ncclUint32, FAST_NUMBER},     {1, 64, ncclUint64, FAST_NUMBER},
    {2, 16, ncclFloat16, FAST_NUMBER},  {2, 32, ncclFloat32, FAST_NUMBER},    {2, 64, ncclFloat64, FAST_NUMBER},
    {4, 16, ncclBfloat16, FAST_NUMBER}, {10, 8, ncclFloat8e4m3, FAST_NUMBER}, {12, 8, ncclFloat8e5m2, FAST_NUMBER},
    {6, 8, ncclUint8, FAST_BOOL},       {5, 64, ncclFloat32, FAST_COMPLEX},   {5, 128, ncclFloat64, FAST_COMPLEX},
};

static void dl_type(fast_array *a, const dl_tensor *t)
{
  a->item = (size_t)t->bits * t->lanes / 8;
  a->unit = 1;
  a->type = ncclUint8;
  a->kind = FAST_OPAQUE;
  for (size_t i = 0; i < sizeof dl_types / sizeof dl_types[0]; i++) {
    if (dl_types[i].code == t->code && dl_types[i].bits == t->bits && t->lanes == 1) {
      a->type = dl_types[i].type;
      a->kind = dl_types[i].kind;
      a->unit = a->kind == FAST_COMPLEX ? a->item / 2 : a->item;
    }
  }
}

static int take_tensor(fast_array *a, const dl_tensor *t, PyObject *object, const char *role)
{
  if (t->device_type != DEVICE_CPU && t->device_type != DEVICE_CUDA_HOST) {
    PyErr_Format(PyExc_TypeError,
                 "%s: %R lies on a device (DLPack type %d): only host memory can be used; copy it there", role,
                 Py_TYPE(object), (int)t->device_type);
    return -1;
  }
  if (t->bits == 0 || t->bits % 8 != 0) {
    PyErr_Format(PyExc_TypeError, "%s: elements of %d bits cannot be used", role, (int)t->bits);
    return -1;
  }
  if (!fast_is_contiguous(t->ndim, t->shape, t->strides, 1)) {
    PyErr_Format(PyExc_BufferError, "%s: %R is not contiguous in C order: pass a contiguous copy (x.contiguous())",
                 role, Py_TYPE(object));
    return -1;
  }
  dl_type(a, t);
  a->data = (char *)t->data + t->byte_offset;
  a->bytes = a->item;
  for (int i = 0; i < t->ndim; i++) {
    a->bytes *= (size_t)t->shape[i];
  }
  return 0;
}

// Asks for version 1, and without a version where the producer knows none.
static PyObject *ask_capsule(PyObject *object)
{
  PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
  PyObject *none = PyTuple_New(0), *named = Py_BuildValue("{s(ii)}", "max_version", MAJOR, 0), *capsule = NULL;
  if (method != NULL && none != NULL && named != NULL) {
    capsule = PyObject_Call(method, none, named);
    if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Clear();
      capsule = PyObject_CallObject(method, NULL);
    }
  }
  Py_XDECREF(named);
  Py_XDECREF(none);
  Py_XDECREF(method);
  return capsule;
}

// The capsule is kept and not consumed: its own destructor frees the tensor.
int fast_dlpack_get(fast_array *a, PyObject *object, const char *role, bool writes)
{
  a->capsule = ask_capsule(object);
  if (a->capsule == NULL) {
    return -1;
  }
  if (PyCapsule_IsValid(a->capsule, "dltensor")) {
    dl_managed *m = PyCapsule_GetPointer(a->capsule, "dltensor");
    return take_tensor(a, &m->tensor, object, role);
  }
  dl_versioned *v = PyCapsule_GetPointer(a->capsule, "dltensor_versioned");
  if (v == NULL) {
    return -1;
  }
  if (v->major != MAJOR) {
    PyErr_Format(PyExc_BufferError, "%s: DLPack version %d is unknown", role, (int)v->major);
    return -1;
  }
  if (writes && (v->flags & FLAG_READ_ONLY) != 0) {
    PyErr_Format(PyExc_BufferError, "%s: %R is read-only, and the operation writes to it", role, Py_TYPE(object));
    return -1;
  }
  return take_tensor(a, &v->tensor, object, role);
}
