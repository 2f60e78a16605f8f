// vforms.c: operations with a count of its own for each rank.
#include <string.h>

#include "fast.h"

// What the library is asked for, by function; NULL members of `lib` are not there.
static const char *missing_symbol(fast_function function)
{
  switch (function) {
  case FAST_ALL_GATHER: return lib.tuttiAllGatherV == NULL ? "tuttiAllGatherV" : NULL;
  case FAST_REDUCE_SCATTER: return lib.tuttiReduceScatterV == NULL ? "tuttiReduceScatterV" : NULL;
  case FAST_GATHER: return lib.tuttiGatherV == NULL ? "tuttiGatherV" : NULL;
  case FAST_SCATTER: return lib.tuttiScatterV == NULL ? "tuttiScatterV" : NULL;
  default: return lib.tuttiAlltoAllV == NULL ? "tuttiAlltoAllV" : NULL;
  }
}

ncclResult_t fast_launch_v(const fast_call *k, ncclComm_t comm, cudaStream_t stream)
{
  switch (k->function) {
  case FAST_ALL_GATHER:
    return lib.tuttiAllGatherV(k->send, k->count, k->recv, k->recvcounts, k->recvdispls, k->type, comm, stream);
  case FAST_REDUCE_SCATTER:
    return lib.tuttiReduceScatterV(k->send, k->recv, k->recvcounts, k->type, k->op, comm, stream);
  case FAST_GATHER:
    return lib.tuttiGatherV(k->send, k->count, k->recv, k->recvcounts, k->recvdispls, k->type, k->root, comm, stream);
  case FAST_SCATTER:
    return lib.tuttiScatterV(k->send, k->sendcounts, k->senddispls, k->recv, k->count, k->type, k->root, comm, stream);
  default:
    return lib.tuttiAlltoAllV(k->send, k->sendcounts, k->senddispls, k->recv, k->recvcounts, k->recvdispls, k->type,
                              comm, stream);
  }
}

// Copies a sequence of nranks numbers, in elements, as numbers of values. None gives NULL. -1: an exception is set.
static int read_counts(PyObject *sequence, const char *role, int nranks, size_t values, size_t **out)
{
  *out = NULL;
  if (sequence == Py_None) {
    return 0;
  }
  Py_ssize_t n = PySequence_Size(sequence);
  if (n != nranks) {
    if (n >= 0) {
      PyErr_Format(PyExc_ValueError, "%s: %zd numbers for %d ranks", role, n, nranks);
    }
    return -1;
  }
  size_t *counts = PyMem_Malloc((size_t)nranks * sizeof *counts);
  *out = counts;
  for (Py_ssize_t i = 0; counts != NULL && i < n; i++) {
    PyObject *item = PySequence_GetItem(sequence, i);
    PyObject *index = item == NULL ? NULL : PyNumber_Index(item);
    size_t number = index == NULL ? 0 : PyLong_AsSize_t(index);
    Py_XDECREF(index);
    Py_XDECREF(item);
    if (PyErr_Occurred()) {
      return -1;
    }
    if (number > (size_t)PY_SSIZE_T_MAX / values) { // no array has as many
      PyErr_Format(PyExc_OverflowError, "%s: %zu elements of rank %zd are too many", role, number, i);
      return -1;
    }
    counts[i] = number * values;
  }
  return counts != NULL ? 0 : (PyErr_NoMemory(), -1);
}

// Do the blocks lie inside of the array? One that this rank does not give has no element.
static int check_blocks(const fast_array *a, const char *role, const size_t *counts, const size_t *displs, int nranks)
{
  size_t values = a->item != 0 ? a->bytes / a->unit : 0, at = 0;
  for (int i = 0; a->item != 0 && counts != NULL && i < nranks; i++) {
    size_t begin = displs != NULL ? displs[i] : at;
    if (counts[i] > values || begin > values - counts[i]) {
      PyErr_Format(PyExc_ValueError, "%s: the block of rank %d ends at element %zd, and the array has %zd", role, i,
                   (Py_ssize_t)((begin + counts[i]) * a->unit / a->item), (Py_ssize_t)(a->bytes / a->item));
      return -1;
    }
    at = begin + counts[i];
  }
  return 0;
}

// Is an array without blocks as long as the counts say?
static int check_own(const fast_array *a, const char *role, const size_t *counts, int rank)
{
  if (a->item != 0 && counts != NULL && a->bytes / a->unit != counts[rank]) {
    size_t values = a->item / a->unit;
    PyErr_Format(PyExc_ValueError, "%s: has %zd elements, and the count of this rank, %d, is %zd", role,
                 (Py_ssize_t)(a->bytes / a->item), rank, (Py_ssize_t)(counts[rank] / values));
    return -1;
  }
  return 0;
}

typedef struct v_args {
  PyObject *send, *recv, *op, *root, *counts[4]; // sendcounts, senddispls, recvcounts, recvdispls
} v_args;

static int v_arrays(const fast_comm *c, const fast_shape *shape, const fast_call *call, const v_args *a,
                    fast_under_way *w)
{
  bool sends = !shape->root_sends || c->rank == call->root, receives = !shape->root_receives || c->rank == call->root;
  w->result = receives ? a->recv : Py_None;
  if (sends && fast_array_get(&w->send, a->send, "send", false) != 0) {
    return -1;
  }
  return receives ? fast_array_get(&w->recv, a->recv, "recv", true) : 0;
}

static int v_counts(const fast_comm *c, const v_args *a, const fast_under_way *w, fast_call *call)
{
  static const char *const roles[4] = {"send_counts", "send_displs", "recv_counts", "recv_displs"};
  size_t **out[4] = {&call->sendcounts, &call->senddispls, &call->recvcounts, &call->recvdispls};
  const fast_array *some = w->send.item != 0 ? &w->send : &w->recv;
  for (int i = 0; i < 4; i++) {
    if (read_counts(a->counts[i], roles[i], c->nranks, some->item / some->unit, out[i]) != 0) {
      return -1;
    }
  }
  return 0;
}

// Compares arrays and counts, and fills the rest of the call.
static int v_check(const fast_comm *c, const fast_shape *shape, const fast_under_way *w, fast_call *call)
{
  const fast_array *s = &w->send, *r = &w->recv;
  const size_t *of_send = shape->blocks_of_send && shape->reduces ? call->recvcounts : call->sendcounts;
  if ((shape->blocks_of_send ? check_blocks(s, "send", of_send, call->senddispls, c->nranks)
                             : check_own(s, "send", call->recvcounts, c->rank)) != 0 ||
      (shape->blocks_of_recv
           ? check_blocks(r, "recv", call->recvcounts, call->recvdispls, c->nranks)
           : check_own(r, "recv", shape->reduces ? call->recvcounts : call->sendcounts, c->rank)) != 0) {
    return -1;
  }
  call->send = s->data;
  call->recv = r->data;
  call->type = s->item != 0 ? s->type : r->type;
  call->count = shape->blocks_of_send ? r->item != 0 ? r->bytes / r->unit : 0 : s->bytes / s->unit;
  return 0;
}

static PyObject *v_run(fast_comm *c, const fast_shape *shape, const v_args *a, fast_call *call, bool wait)
{
  fast_under_way w = {.life = c->life, .comm = c->comm, .stream = c->stream, .what = shape->name_v, .op = a->op};
  if (fast_comm_check_open(c, shape->name_v) == 0 && v_arrays(c, shape, call, a, &w) == 0 &&
      fast_comm_check_types(shape, call, &w) == 0 && v_counts(c, a, &w, call) == 0 &&
      v_check(c, shape, &w, call) == 0) {
    return fast_comm_run(c, call, &w, wait);
  }
  fast_array_release(&w.send);
  fast_array_release(&w.recv);
  return NULL;
}

PyObject *fast_comm_call_v(PyObject *self, PyObject *args)
{
  fast_call call = {0};
  v_args a;
  int function, op, wait;
  if (!PyArg_ParseTuple(args, "iOOOOpOOOO", &function, &a.send, &a.recv, &a.op, &a.root, &wait, &a.counts[0],
                        &a.counts[1], &a.counts[2], &a.counts[3]) ||
      fast_read_int(a.op, "op", &op) != 0 || fast_read_int(a.root, "root", &call.root) != 0) {
    return NULL;
  }
  if ((unsigned)function >= FAST_FUNCTIONS || fast_shapes[function].name_v == NULL) {
    PyErr_SetString(PyExc_ValueError, "no such operation");
    return NULL;
  }
  call.function = (fast_function)function;
  call.v = true;
  call.op = (ncclRedOp_t)op;
  const fast_shape *shape = &fast_shapes[function];
  const char *missing = missing_symbol(call.function);
  if (missing != NULL) {
    return PyErr_Format(PyExc_NotImplementedError, "%s: the loaded library has no %s", shape->name_v, missing);
  }
  PyObject *res = v_run((fast_comm *)self, shape, &a, &call, wait != 0);
  PyMem_Free(call.sendcounts);
  PyMem_Free(call.senddispls);
  PyMem_Free(call.recvcounts);
  PyMem_Free(call.recvdispls);
  return res;
}
