// comm.c: the type Comm: an operation of arrays becomes a call of the library, and is waited for.
#include "fast.h"

#include <string.h>
#include <structmember.h>

#define ALL_SEND .sends = true
#define ALL_RECEIVE .receives = true
#define ROOT_SENDS .sends = true, .root_sends = true
#define ROOT_RECEIVES .receives = true, .root_receives = true

const fast_shape fast_shapes[FAST_FUNCTIONS] = {
    [FAST_ALL_REDUCE] = {"all_reduce", NULL, .reduces = true, ALL_SEND, ALL_RECEIVE},
    [FAST_REDUCE] = {"reduce", NULL, .reduces = true, ALL_SEND, ROOT_RECEIVES},
    [FAST_BROADCAST] = {"broadcast", NULL, ALL_SEND, ALL_RECEIVE},
    [FAST_ALL_GATHER] = {"all_gather", "all_gather_v", ALL_SEND, ALL_RECEIVE, .blocks_of_recv = true},
    [FAST_REDUCE_SCATTER] = {"reduce_scatter", "reduce_scatter_v", .reduces = true, ALL_SEND, ALL_RECEIVE,
                             .blocks_of_send = true},
    [FAST_GATHER] = {"gather", "gather_v", ALL_SEND, ROOT_RECEIVES, .blocks_of_recv = true},
    [FAST_SCATTER] = {"scatter", "scatter_v", ROOT_SENDS, ALL_RECEIVE, .blocks_of_send = true},
    [FAST_ALL_TO_ALL] = {"all_to_all", "all_to_all_v", ALL_SEND, ALL_RECEIVE, .blocks_of_send = true,
                         .blocks_of_recv = true},
    [FAST_SEND] = {"send", NULL, ALL_SEND},
    [FAST_RECV] = {"recv", NULL, ALL_RECEIVE},
};

static const char *const type_names[ncclNumTypes] = {"int8",    "uint8",    "int32",         "uint32",
                                                     "int64",   "uint64",   "float16",       "float32",
                                                     "float64", "bfloat16", "float8_e4m3fn", "float8_e5m2"};

static const char *type_name(const fast_array *a)
{
  switch (a->kind) {
  case FAST_NUMBER: return type_names[a->type];
  case FAST_COMPLEX: return "complex";
  case FAST_BOOL: return "bool";
  default: return "no number";
  }
}

int fast_comm_check_open(const fast_comm *c, const char *what)
{
  if (c->comm == NULL) {
    PyErr_Format(PyExc_RuntimeError, "%s: the communicator is closed", what);
    return -1;
  }
  return 0;
}

// Truth values are bytes of 0 and 1: these operations keep them so.
static bool keeps_truth(ncclRedOp_t op)
{
  return op == ncclMax || op == ncclMin || op == tuttiLogicalAnd || op == tuttiLogicalOr || op == tuttiLogicalXor;
}

static int check_reducible(const fast_shape *shape, const fast_call *call, const fast_array *a)
{
  bool sums = call->op == ncclSum || call->op == ncclAvg;
  if (!shape->reduces || a->kind == FAST_NUMBER || (a->kind == FAST_COMPLEX && sums) ||
      (a->kind == FAST_BOOL && keeps_truth(call->op))) {
    return 0;
  }
  const char *which = a->kind == FAST_COMPLEX ? "complex numbers can be summed and averaged only"
                      : a->kind == FAST_BOOL
                          ? "truth values take LOGICAL_AND, LOGICAL_OR, LOGICAL_XOR, MAX and MIN only"
                          : "elements of this type are moved, but not reduced: use a number type";
  PyErr_Format(PyExc_TypeError, "%s: %s", shape->name, which);
  return -1;
}

int fast_comm_check_types(const fast_shape *shape, const fast_call *call, const fast_under_way *w)
{
  const fast_array *s = &w->send, *r = &w->recv;
  if (s->item != 0 && r->item != 0 && (s->type != r->type || s->item != r->item || s->kind != r->kind)) {
    PyErr_Format(PyExc_TypeError, "%s: send has elements of %zd bytes (%s), recv of %zd bytes (%s): both need one type",
                 shape->name, (Py_ssize_t)s->item, type_name(s), (Py_ssize_t)r->item, type_name(r));
    return -1;
  }
  return check_reducible(shape, call, s->item != 0 ? s : r);
}

// Values of a block. -1: an exception is set.
static int block_of(const fast_array *a, bool blocks, const fast_comm *c, const char *name, const char *role,
                    size_t *count)
{
  size_t n = blocks ? (size_t)c->nranks : 1;
  if (a->bytes % (n * a->item) != 0) {
    PyErr_Format(PyExc_ValueError, "%s: %s has %zd elements, which are not divisible by the number of ranks, %d", name,
                 role, (Py_ssize_t)(a->bytes / a->item), c->nranks);
    return -1;
  }
  *count = a->bytes / n / a->unit;
  return 0;
}

static int check_counts(const fast_comm *c, const fast_shape *shape, const fast_under_way *w, fast_call *call)
{
  const fast_array *s = &w->send, *r = &w->recv;
  size_t received = 0;
  if (s->item != 0 && block_of(s, shape->blocks_of_send, c, shape->name, "send", &call->count) != 0) {
    return -1;
  }
  if (r->item == 0) {
    return 0;
  }
  if (block_of(r, shape->blocks_of_recv, c, shape->name, "recv", &received) != 0) {
    return -1;
  }
  if (s->item != 0 && received != call->count) {
    size_t values = r->item / r->unit, factor = shape->blocks_of_recv ? (size_t)c->nranks : 1;
    PyErr_Format(PyExc_ValueError, "%s: send has %zd elements, so recv needs %zd, and has %zd (%d ranks)", shape->name,
                 (Py_ssize_t)(s->bytes / s->item), (Py_ssize_t)(call->count / values * factor),
                 (Py_ssize_t)(r->bytes / r->item), c->nranks);
    return -1;
  }
  call->count = received;
  return 0;
}

// Pointers of both sides. Where one array is left out, its part is in the other: the same place, or this rank's block.
static void point(const fast_comm *c, const fast_shape *shape, const fast_under_way *w, fast_call *call)
{
  const fast_array *s = &w->send, *r = &w->recv;
  size_t block = (size_t)c->rank * call->count * (s->item != 0 ? s->unit : r->unit);
  bool inside = shape->blocks_of_send != shape->blocks_of_recv;
  call->send = s->item != 0 ? s->data : r->item != 0 ? r->data + (inside ? block : 0) : NULL;
  call->recv = r->item != 0 ? r->data : s->item != 0 ? s->data + (inside ? block : 0) : NULL;
  call->type = s->item != 0 ? s->type : r->type;
}

// Which arrays this rank passes. Exactly those that it uses are looked at.
static int take_arrays(const fast_comm *c, const fast_shape *shape, const fast_call *call, PyObject *send,
                       PyObject *recv, fast_under_way *w)
{
  bool sends = shape->sends && (!shape->root_sends || c->rank == call->root);
  bool receives = shape->receives && (!shape->root_receives || c->rank == call->root);
  bool has_send = sends && send != Py_None, has_recv = receives && recv != Py_None;
  bool inside_send = receives && !has_recv; // the result goes into `send`
  if (call->function == FAST_BROADCAST) {
    inside_send = c->rank != call->root; // nobody writes to the root's
  }
  if (!has_send && !has_recv) {
    PyErr_Format(PyExc_TypeError, "%s: pass an array in place of None", shape->name);
    return -1;
  }
  w->result = has_recv ? recv : receives ? send : Py_None;
  if (has_send && fast_array_get(&w->send, send, "send", inside_send) != 0) {
    return -1;
  }
  return has_recv ? fast_array_get(&w->recv, recv, "recv", true) : 0;
}

static ncclResult_t launch(const fast_call *k, ncclComm_t comm, cudaStream_t stream)
{
  if (k->v) {
    return fast_launch_v(k, comm, stream);
  }
  switch (k->function) {
  case FAST_ALL_REDUCE: return lib.ncclAllReduce(k->send, k->recv, k->count, k->type, k->op, comm, stream);
  case FAST_REDUCE: return lib.ncclReduce(k->send, k->recv, k->count, k->type, k->op, k->root, comm, stream);
  case FAST_BROADCAST: return lib.ncclBroadcast(k->send, k->recv, k->count, k->type, k->root, comm, stream);
  case FAST_ALL_GATHER: return lib.ncclAllGather(k->send, k->recv, k->count, k->type, comm, stream);
  case FAST_REDUCE_SCATTER: return lib.ncclReduceScatter(k->send, k->recv, k->count, k->type, k->op, comm, stream);
  case FAST_GATHER: return lib.ncclGather(k->send, k->recv, k->count, k->type, k->root, comm, stream);
  case FAST_SCATTER: return lib.ncclScatter(k->send, k->recv, k->count, k->type, k->root, comm, stream);
  case FAST_ALL_TO_ALL: return lib.ncclAlltoAll(k->send, k->recv, k->count, k->type, comm, stream);
  case FAST_SEND: return lib.ncclSend(k->send, k->count, k->type, k->root, comm, stream);
  case FAST_RECV: return lib.ncclRecv(k->recv, k->count, k->type, k->root, comm, stream);
  default: return ncclInvalidArgument;
  }
}

static void drop_arrays(fast_under_way *w)
{
  fast_array_release(&w->send);
  fast_array_release(&w->recv);
}

// A wait has ended before the operation: its memory stays in use. The request goes to those left behind.
static void leave_behind(fast_under_way *w)
{
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject *r = fast_request_new(w);
  if (r == NULL || fast_request_mark(r) != 0) {
    PyErr_Clear();
  }
  Py_XDECREF(r);
  PyErr_Restore(type, value, trace);
}

// Waits on after the first slice.
static PyObject *wait_on(fast_comm *c, fast_under_way *w, ncclResult_t res)
{
  bool raised = false;
  if (res == ncclInProgress && PyErr_CheckSignals() != 0) {
    raised = true;
  } else if (res == ncclInProgress) {
    res = fast_wait_stream(w->stream, c->timeout, &raised);
  }
  if (res == ncclInProgress) {
    leave_behind(w);
    return raised ? NULL : fast_fail(ncclTimeout, w->comm, w->what);
  }
  drop_arrays(w);
  if (res != ncclSuccess) {
    return fast_fail(res, w->comm, w->what);
  }
  Py_INCREF(w->result);
  return w->result;
}

// A request for a call that has been queued, or will be by the group.
static PyObject *request_for(fast_under_way *w, bool wait)
{
  PyObject *group = fast_group();
  w->awaited = wait;
  PyObject *r = fast_request_new(w);
  if (r != NULL && (group != NULL ? PyList_Append(group, r) : fast_request_mark(r)) != 0) {
    Py_CLEAR(r);
  }
  if (r != NULL && wait) {
    Py_DECREF(r); // the group has it
    Py_INCREF(w->result);
    return w->result;
  }
  return r;
}

PyObject *fast_comm_run(fast_comm *c, const fast_call *call, fast_under_way *w, bool wait)
{
  bool waits = wait && fast_group() == NULL, queued;
  ncclResult_t res;
  unsigned slice = c->timeout < 0 || c->timeout > FAST_SLICE_MS * 1e-3 ? FAST_SLICE_MS : 0;
  Py_BEGIN_ALLOW_THREADS res = launch(call, w->comm, w->stream);
  queued = res == ncclSuccess;
  if (queued && waits) {
    res = lib.tuttiStreamSynchronizeFor(w->stream, slice);
  }
  Py_END_ALLOW_THREADS if (!queued)
  {
    drop_arrays(w);
    return fast_fail(res, w->comm, w->what);
  }
  return waits ? wait_on(c, w, res) : request_for(w, wait);
}

int fast_read_int(PyObject *number, const char *role, int *value)
{
  long read = PyLong_AsLong(number);
  if (read == -1 && PyErr_Occurred()) {
    return -1;
  }
  if (read < INT_MIN || read > INT_MAX) {
    PyErr_Format(PyExc_OverflowError, "%s %ld is no number of 32 bits", role, read);
    return -1;
  }
  *value = (int)read;
  return 0;
}

static int parse_call(PyObject *const *args, fast_call *call, bool *wait)
{
  int function, op;
  if (fast_read_int(args[0], "function", &function) != 0 || fast_read_int(args[3], "op", &op) != 0 ||
      fast_read_int(args[4], "root or peer", &call->root) != 0) {
    return -1;
  }
  call->function = (fast_function)function;
  call->op = (ncclRedOp_t)op;
  *wait = args[5] == Py_True;
  if ((unsigned)call->function >= FAST_FUNCTIONS) {
    PyErr_SetString(PyExc_ValueError, "no such operation");
    return -1;
  }
  return 0;
}

// _call(function, send, recv, op, root, wait)
static PyObject *comm_call(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
  fast_comm *c = (fast_comm *)self;
  fast_call call = {0};
  bool wait;
  if (n != 6) {
    PyErr_SetString(PyExc_TypeError, "_call takes six arguments");
    return NULL;
  }
  if (parse_call(args, &call, &wait) != 0) {
    return NULL;
  }
  const fast_shape *shape = &fast_shapes[call.function];
  fast_under_way w = {.life = c->life, .comm = c->comm, .stream = c->stream, .what = shape->name, .op = args[3]};
  if (fast_comm_check_open(c, shape->name) != 0 || take_arrays(c, shape, &call, args[1], args[2], &w) != 0 ||
      fast_comm_check_types(shape, &call, &w) != 0 || check_counts(c, shape, &w, &call) != 0) {
    drop_arrays(&w);
    return NULL;
  }
  point(c, shape, &w, &call);
  return fast_comm_run(c, &call, &w, wait);
}

// _queued(what, result, wait): something has been queued to the stream by another way: waits for it, or makes a request
// that keeps `result`.
static PyObject *comm_queued(PyObject *self, PyObject *args)
{
  fast_comm *c = (fast_comm *)self;
  PyObject *result;
  int wait;
  fast_under_way w = {.life = c->life, .comm = c->comm, .stream = c->stream};
  if (!PyArg_ParseTuple(args, "sOp", &w.what, &result, &wait)) {
    return NULL;
  }
  w.result = result;
  return wait && fast_group() == NULL ? wait_on(c, &w, ncclInProgress) : request_for(&w, wait);
}

// _bind(handle, stream, rank, nranks): handle 0 closes it.
static PyObject *comm_bind(PyObject *self, PyObject *args)
{
  fast_comm *c = (fast_comm *)self;
  unsigned long long handle, stream;
  int rank, nranks;
  if (!PyArg_ParseTuple(args, "KKii", &handle, &stream, &rank, &nranks)) {
    return NULL;
  }
  if (c->life == NULL && (c->life = PyMem_Calloc(1, sizeof *c->life)) == NULL) {
    return PyErr_NoMemory();
  }
  c->life->users += c->life->users == 0;
  c->life->comm = c->comm = (ncclComm_t)(uintptr_t)handle;
  c->stream = (cudaStream_t)(uintptr_t)stream;
  c->life->rank = c->rank = rank;
  c->nranks = nranks;
  Py_RETURN_NONE;
}

// _ends(code, text): the program is about to end what is under way. Requests fail with the communicator's error, or
// with this one if there is none. If nothing is under way, they keep their results. True: they will fail by this call.
// Code 0 takes that back.
static PyObject *comm_ends(PyObject *self, PyObject *args)
{
  fast_comm *c = (fast_comm *)self;
  int code;
  const char *text;
  ncclResult_t state = ncclSuccess;
  if (!PyArg_ParseTuple(args, "is", &code, &text)) {
    return NULL;
  }
  if (c->comm == NULL) { // another thread has been faster
    Py_RETURN_FALSE;
  }
  if (code == ncclSuccess) {
    c->life->ended = ncclSuccess;
    Py_RETURN_FALSE;
  }
  bool failed =
      lib.ncclCommGetAsyncError(c->comm, &state) == ncclSuccess && state != ncclSuccess && state != ncclInProgress;
  if (c->life->ended == ncclSuccess && (failed || lib.tuttiStreamQuery(c->stream) == ncclInProgress)) {
    const char *known = failed ? lib.ncclGetLastError(c->comm) : NULL;
    c->life->ended = failed ? state : (ncclResult_t)code;
    PyOS_snprintf(c->life->why, sizeof c->life->why, "%s", known != NULL && known[0] != 0 ? known : text);
    Py_RETURN_TRUE;
  }
  Py_RETURN_FALSE;
}

static void comm_dealloc(PyObject *self)
{
  PyTypeObject *type = Py_TYPE(self);
  fast_life_release(((fast_comm *)self)->life);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static PyMethodDef comm_methods[] = {
    {"_call", (PyCFunction)(void (*)(void))comm_call, METH_FASTCALL, "_call(function, send, recv, op, root, wait)"},
    {"_call_v", fast_comm_call_v, METH_VARARGS,
     "_call_v(function, send, recv, op, root, wait, sendcounts, senddispls, recvcounts, recvdispls)"},
    {"_queued", comm_queued, METH_VARARGS, "_queued(what, result, wait)"},
    {"_bind", comm_bind, METH_VARARGS, "_bind(handle, stream, rank, nranks)"},
    {"_ends", comm_ends, METH_VARARGS, "_ends(code, text): operations under way fail with this error."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef comm_members[] = {
    {"_handle", T_ULONGLONG, offsetof(fast_comm, comm), READONLY, NULL},
    {"_stream", T_ULONGLONG, offsetof(fast_comm, stream), READONLY, NULL},
    {"_rank", T_INT, offsetof(fast_comm, rank), READONLY, NULL},
    {"_size", T_INT, offsetof(fast_comm, nranks), READONLY, NULL},
    {"_timeout", T_DOUBLE, offsetof(fast_comm, timeout), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot comm_slots[] = {
    {Py_tp_dealloc, comm_dealloc},
    {Py_tp_methods, comm_methods},
    {Py_tp_members, comm_members},
    {0, NULL},
};

static PyType_Spec comm_spec = {"tutti._fast.Comm", sizeof(fast_comm), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                comm_slots};

int fast_comm_setup(PyObject *module)
{
  PyObject *type = PyType_FromSpec(&comm_spec);
  return type == NULL ? -1 : PyModule_AddObject(module, "Comm", type);
}
