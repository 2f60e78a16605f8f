// request.c: operations under way. A request keeps the memory that its operation uses until the operation is complete,
// also where the program lets go of the request before: then it goes to a list that every new request looks through.
#include <time.h>

#include "fast.h"

struct fast_request {
  PyObject_HEAD fast_life *life;
  cudaStream_t stream;
  tuttiEvent_t event; // NULL: not marked yet
  const char *what;
  PyObject *result; // what wait returns
  bool over;        // reached: nothing is kept any more
  bool good;        // its success is known
  bool awaited;     // by the end of its group
  struct kept *kept;
};

// What an operation needs until it is complete.
typedef struct kept {
  struct kept *next;
  tuttiEvent_t event;
  PyObject *result, *op;
  fast_array send, recv;
} kept;

static kept *left_behind; // those of dropped requests. The GIL protects it

void fast_life_release(fast_life *life)
{
  if (life != NULL && --life->users == 0) {
    PyMem_Free(life);
  }
}

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void free_kept(kept *k)
{
  fast_array_release(&k->send);
  fast_array_release(&k->recv);
  Py_XDECREF(k->result);
  Py_XDECREF(k->op);
  if (k->event != NULL) {
    lib.tuttiEventDestroy(k->event);
  }
  PyMem_Free(k);
}

// Frees what dropped requests have kept and is complete.
static void sweep(void)
{
  kept *k = left_behind;
  left_behind = NULL; // what runs below may drop requests
  while (k != NULL) {
    kept *next = k->next;
    if (lib.tuttiEventQuery(k->event) == ncclInProgress) {
      k->next = left_behind;
      left_behind = k;
    } else {
      free_kept(k);
    }
    k = next;
  }
}

// One slice of a wait, without the GIL: of a stream, or of an event.
static ncclResult_t wait_slice(cudaStream_t stream, tuttiEvent_t event, unsigned ms)
{
  ncclResult_t res;
  Py_BEGIN_ALLOW_THREADS res =
      event != NULL ? lib.tuttiEventSynchronizeFor(event, ms) : lib.tuttiStreamSynchronizeFor(stream, ms);
  Py_END_ALLOW_THREADS return res;
}

static ncclResult_t wait_slices(cudaStream_t stream, tuttiEvent_t event, double seconds, bool *raised)
{
  double end = seconds < 0 ? 0 : now() + seconds;
  *raised = false;
  for (;;) {
    double left = seconds < 0 ? FAST_SLICE_MS * 1e-3 : end - now();
    unsigned ms = left >= FAST_SLICE_MS * 1e-3 ? FAST_SLICE_MS : left > 0 ? (unsigned)(left * 1e3) + 1 : 0;
    ncclResult_t res = wait_slice(stream, event, ms);
    if (res != ncclInProgress) {
      return res;
    }
    *raised = PyErr_CheckSignals() != 0;
    if (*raised || (seconds >= 0 && now() >= end)) {
      return ncclInProgress;
    }
  }
}

ncclResult_t fast_wait_stream(cudaStream_t stream, double seconds, bool *raised)
{
  return wait_slices(stream, NULL, seconds, raised);
}

static PyTypeObject *request_type; // Request, or Python's class derived from it

void fast_request_use(PyObject *type)
{
  Py_INCREF(type);
  Py_XDECREF((PyObject *)request_type);
  request_type = (PyTypeObject *)type;
}

PyObject *fast_request_new(fast_under_way *w)
{
  sweep();
  kept *k = PyMem_Calloc(1, sizeof *k);
  allocfunc alloc = (allocfunc)PyType_GetSlot(request_type, Py_tp_alloc);
  fast_request *r = k == NULL ? NULL : (fast_request *)alloc(request_type, 0);
  if (r == NULL) {
    PyMem_Free(k);
    return PyErr_NoMemory();
  }
  k->send = w->send;
  k->recv = w->recv;
  Py_INCREF(w->result);
  k->result = w->result;
  Py_XINCREF(w->op);
  k->op = w->op;
  r->kept = k;
  r->life = w->life;
  r->life->users++;
  r->stream = w->stream;
  r->what = w->what;
  r->awaited = w->awaited;
  return (PyObject *)r;
}

bool fast_request_is_awaited(PyObject *request)
{
  return ((fast_request *)request)->awaited;
}

int fast_request_mark(PyObject *request)
{
  fast_request *r = (fast_request *)request;
  ncclResult_t res = lib.tuttiEventCreateWithFlags(&r->event, TUTTI_EVENT_DISABLE_TIMING);
  if (res == ncclSuccess) {
    res = lib.tuttiEventRecord(r->event, r->stream);
  }
  if (res != ncclSuccess) {
    fast_fail(res, r->life->comm, r->what);
    return -1;
  }
  r->kept->event = r->event;
  return 0;
}

// Gives back what a complete request has kept, but for its result.
static void request_complete(fast_request *r)
{
  kept *k = r->kept;
  r->kept = NULL;
  r->event = NULL;
  r->over = true;
  Py_INCREF(k->result);
  r->result = k->result;
  free_kept(k);
}

static void request_dealloc(PyObject *self)
{
  fast_request *r = (fast_request *)self;
  PyTypeObject *type = Py_TYPE(self);
  if (r->kept != NULL && r->event != NULL) {
    r->kept->next = left_behind;
    left_behind = r->kept;
    sweep();
  } // without a mark nothing says when the memory is free: it stays
  Py_XDECREF(r->result);
  fast_life_release(r->life);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

// After the event: what the communicator says of its operations, or has said before it went.
static PyObject *request_outcome(fast_request *r)
{
  const fast_life *life = r->life;
  ncclResult_t state = life->ended;
  if (!r->over) {
    request_complete(r);
  }
  if (!r->good && state != ncclSuccess) {
    return fast_fail_text(state, life->rank, life->why, r->what);
  }
  if (!r->good && life->comm != NULL) {
    ncclResult_t res = lib.ncclCommGetAsyncError(life->comm, &state);
    res = res != ncclSuccess ? res : state;
    if (res != ncclSuccess && res != ncclInProgress) {
      return fast_fail(res, life->comm, r->what);
    }
  }
  r->good = true; // close() has waited for it
  Py_INCREF(r->result);
  return r->result;
}

static int needs_mark(const fast_request *r)
{
  if (r->over || r->event != NULL) {
    return 0;
  }
  if (r->what == NULL) {
    PyErr_SetString(PyExc_RuntimeError, "a Request is made by an operation of Communicator.start");
    return -1;
  }
  PyErr_Format(PyExc_RuntimeError, "%s: its group has not ended: wait after the `with` block", r->what);
  return -1;
}

// _wait(seconds): the result. Negative: without a limit.
static PyObject *request_wait(PyObject *self, PyObject *args)
{
  fast_request *r = (fast_request *)self;
  double seconds;
  bool raised = false;
  if (!PyArg_ParseTuple(args, "d", &seconds) || needs_mark(r) != 0) {
    return NULL;
  }
  ncclResult_t res = r->over ? ncclSuccess : wait_slices(NULL, r->event, seconds, &raised);
  if (raised) {
    return NULL;
  }
  return res == ncclSuccess ? request_outcome(r)
                            : fast_fail(res == ncclInProgress ? ncclTimeout : res, r->life->comm, r->what);
}

// test(): is it complete? Raises the operation's error.
static PyObject *request_test(PyObject *self, PyObject *none)
{
  fast_request *r = (fast_request *)self;
  (void)none;
  if (needs_mark(r) != 0) {
    return NULL;
  }
  ncclResult_t res = r->over ? ncclSuccess : lib.tuttiEventQuery(r->event);
  if (res == ncclInProgress) {
    Py_RETURN_FALSE;
  }
  PyObject *result = res == ncclSuccess ? request_outcome(r) : fast_fail(res, r->life->comm, r->what);
  if (result == NULL) {
    return NULL;
  }
  Py_DECREF(result);
  Py_RETURN_TRUE;
}

static PyMethodDef request_methods[] = {
    {"_wait", request_wait, METH_VARARGS, "_wait(seconds): the result, once it is complete; negative: no limit."},
    {"test", request_test, METH_NOARGS, "Is the operation complete? Never waits. Raises the operation's error."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot request_slots[] = {
    {Py_tp_dealloc, request_dealloc},
    {Py_tp_methods, request_methods},
    {0, NULL},
};

static PyType_Spec request_spec = {"tutti._fast.Request", sizeof(fast_request), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, request_slots};

int fast_request_setup(PyObject *module)
{
  PyObject *type = PyType_FromSpec(&request_spec);
  if (type == NULL) {
    return -1;
  }
  fast_request_use(type);
  return PyModule_AddObject(module, "Request", type);
}
