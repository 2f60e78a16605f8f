// fast.h: what the files of the Python extension share. The extension is the part of the package that every call goes
// through: arrays become pointers and counts, operations are queued and waited for without the GIL. All else (creation,
// windows, errors' texts) is Python with ctypes. Only the limited API of Python 3.10 is used.
#pragma once
#define Py_LIMITED_API 0x030a0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stddef.h>

#include "tutti.h"

// The limited API has the buffer protocol from 3.11 on. Its functions and its struct are the same since 3.0.
#ifndef PyBUF_FULL_RO
#define PyBUF_FORMAT 0x0004
#define PyBUF_ND 0x0008
#define PyBUF_STRIDES (0x0010 | PyBUF_ND)
#define PyBUF_INDIRECT (0x0100 | PyBUF_STRIDES)
#define PyBUF_FULL_RO (PyBUF_INDIRECT | PyBUF_FORMAT)
typedef struct {
  void *buf;
  PyObject *obj;
  Py_ssize_t len;
  Py_ssize_t itemsize;
  int readonly;
  int ndim;
  char *format;
  Py_ssize_t *shape;
  Py_ssize_t *strides;
  Py_ssize_t *suboffsets;
  void *internal;
} Py_buffer;
// Python's own: fills `view`, which PyBuffer_Release ends. Hold the GIL.
PyAPI_FUNC(int) PyObject_GetBuffer(PyObject *obj, Py_buffer *view, int flags);
PyAPI_FUNC(void) PyBuffer_Release(Py_buffer *view);
#endif

// --- library.c

// The library. Members of functions.def are always there.
typedef struct fast_library {
#define F(name) __typeof__(name) *name;
#include "functions.def"
#undef F
  // Not in every library: NULL then.
  ncclResult_t (*tuttiAllGatherV)(const void *send, size_t count, void *recv, const size_t *counts,
                                  const size_t *displs, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream);
  ncclResult_t (*tuttiReduceScatterV)(const void *send, void *recv, const size_t *counts, ncclDataType_t type,
                                      ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
  ncclResult_t (*tuttiGatherV)(const void *send, size_t count, void *recv, const size_t *counts, const size_t *displs,
                               ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream);
  ncclResult_t (*tuttiScatterV)(const void *send, const size_t *counts, const size_t *displs, void *recv, size_t count,
                                ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream);
  ncclResult_t (*tuttiAlltoAllV)(const void *send, const size_t *sendcounts, const size_t *sdispls, void *recv,
                                 const size_t *recvcounts, const size_t *rdispls, ncclDataType_t type, ncclComm_t comm,
                                 cudaStream_t stream);
} fast_library;

extern fast_library lib;

// load(path, fail): opens the library once per process and keeps `fail`, which fast_fail calls. Python's function.
PyObject *fast_load(PyObject *module, PyObject *args);

// Raises the exception of a failed call: fail(code, handle of the communicator, what was called). Returns NULL.
PyObject *fast_fail(ncclResult_t code, ncclComm_t comm, const char *what);
// The same with a text that is known: the library is not asked. `rank`: the calling one.
PyObject *fast_fail_text(ncclResult_t code, int rank, const char *text, const char *what);

// --- array.c

typedef enum { FAST_NUMBER, FAST_COMPLEX, FAST_BOOL, FAST_OPAQUE } fast_kind;

// Memory of a Python object, which stays where it is until fast_array_release. Zeroed: none.
typedef struct fast_array {
  char *data;
  size_t bytes;        // of all elements
  size_t item;         // bytes of one element, as Python counts them
  size_t unit;         // bytes of one value of `type`; item is a multiple
  ncclDataType_t type; // ncclUint8 for elements that only move
  fast_kind kind;
  Py_buffer view;    // view.obj: NULL where there is none
  PyObject *keep;    // what else keeps the memory: a view of a type that buffers cannot name
  PyObject *capsule; // of DLPack, or NULL
} fast_array;

// Finds the memory of an object: by the buffer protocol, by `describe` (set_describe) or by DLPack. `role` names the
// argument in errors. -1: an exception is set. `writes`: the memory must not be read-only.
int fast_array_get(fast_array *a, PyObject *object, const char *role, bool writes);

// Gives the memory back. Accepts a zeroed array, and the same one twice.
void fast_array_release(fast_array *a);

// memory(object, role, writes) -> (address, bytes, what keeps the memory there): fast_array_get for calls of ctypes.
// Python's function.
PyObject *fast_memory(PyObject *module, PyObject *args);

// set_describe(function): function(object) gives (object with a buffer, data type) for arrays whose types the buffer
// protocol cannot name, and None for all else. Python's function.
PyObject *fast_set_describe(PyObject *module, PyObject *describe);

// --- dlpack.c

// Fills what `capsule` of __dlpack__ describes; keeps a reference to it. -1: an exception is set.
int fast_dlpack_get(fast_array *a, PyObject *object, const char *role, bool writes);

// Are `strides` (in units of `scale` bytes; NULL: yes) those of C order, for items of `item` such units?
bool fast_is_contiguous(int ndim, const int64_t *shape, const int64_t *strides, int64_t item);

// --- request.c

// What requests know of their communicator, also when it has gone. The GIL protects it.
typedef struct fast_life {
  size_t users;    // the communicator and its requests
  ncclComm_t comm; // NULL: closed or aborted
  int rank;
  ncclResult_t ended; // an error: operations that were under way then have failed
  char why[1024];     // the error's text; cut, it may end within a character
} fast_life;

// Gives back one use; the last one frees it. NULL: nothing happens.
void fast_life_release(fast_life *life);

// An operation under way, and what must stay until it is complete.
typedef struct fast_request fast_request;

// What an operation uses: moved into its request.
typedef struct fast_under_way {
  fast_life *life; // borrowed
  ncclComm_t comm;
  cudaStream_t stream;
  const char *what; // constant text: the operation's name
  fast_array send, recv;
  PyObject *result; // what a wait returns; borrowed
  PyObject *op;     // what keeps the operator's function; borrowed; NULL: nothing
  bool awaited;     // the end of its group waits for it
} fast_under_way;

// Makes the type and puts it into the module. -1: an exception is set.
int fast_request_setup(PyObject *module);

// From now on requests are of `type`, a class derived from Request.
void fast_request_use(PyObject *type);

// A request for what is queued to the stream, or will be by the group. Takes the arrays of `w` in any case. NULL: an
// exception is set; then the arrays are never given back, because the operation may use them.
PyObject *fast_request_new(fast_under_way *w);

// Marks the place in the stream where the request ends: after the operation has been queued. -1: an exception is set.
int fast_request_mark(PyObject *request);

// Does the end of its group wait for it?
bool fast_request_is_awaited(PyObject *request);

// Waits for the stream. Looks after signals at least every tenth of a second. seconds < 0: without a limit.
// ncclInProgress: time is over. *raised: a signal handler has raised an exception.
ncclResult_t fast_wait_stream(cudaStream_t stream, double seconds, bool *raised);

#define FAST_SLICE_MS 50 // between two looks for signals

// --- comm.c

// A communicator's data path: base of the Python class Communicator.
typedef struct fast_comm {
  PyObject_HEAD ncclComm_t comm; // NULL: closed
  cudaStream_t stream;
  int rank, nranks;
  double timeout; // seconds; negative: none
  fast_life *life;
} fast_comm;

typedef enum {
  FAST_ALL_REDUCE,
  FAST_REDUCE,
  FAST_BROADCAST,
  FAST_ALL_GATHER,
  FAST_REDUCE_SCATTER,
  FAST_GATHER,
  FAST_SCATTER,
  FAST_ALL_TO_ALL,
  FAST_SEND,
  FAST_RECV,
  FAST_FUNCTIONS
} fast_function;

// A call, as the library takes it.
typedef struct fast_call {
  fast_function function;
  const char *send;
  char *recv;
  size_t count; // values of a block
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;                        // or peer
  bool v;                          // with counts for each rank
  size_t *sendcounts, *recvcounts; // in values; NULL: not given
  size_t *senddispls, *recvdispls; // NULL: the blocks lie one behind the other
} fast_call;

// What differs between the functions.
typedef struct fast_shape {
  const char *name, *name_v; // name_v: NULL: has no v-form
  bool reduces;
  bool root_sends, root_receives;      // only the root does
  bool sends, receives;                // somebody does
  bool blocks_of_send, blocks_of_recv; // the array has a block for each rank
} fast_shape;
extern const fast_shape fast_shapes[FAST_FUNCTIONS];

// Makes the type Comm and puts it into the module. -1: an exception is set.
int fast_comm_setup(PyObject *module);

// Reads an int that the library is given; `role` names it. -1: an exception is set, also where the number is larger.
int fast_read_int(PyObject *number, const char *role, int *value);

// Queues the call and waits for it, or makes a request. Takes the arrays of `w`. NULL: an exception is set.
PyObject *fast_comm_run(fast_comm *c, const fast_call *call, fast_under_way *w, bool wait);

// Do both arrays have the same type, and can the function reduce it? -1: an exception is set.
int fast_comm_check_types(const fast_shape *shape, const fast_call *call, const fast_under_way *w);

// Is the communicator open? -1: an exception is set.
int fast_comm_check_open(const fast_comm *c, const char *what);

// _call_v(function, send, recv, op, root, wait, sendcounts, senddispls, recvcounts, recvdispls): method of Comm, in
// vforms.c.
PyObject *fast_comm_call_v(PyObject *self, PyObject *args);

// Queues a v-form. The library's code.
ncclResult_t fast_launch_v(const fast_call *call, ncclComm_t comm, cudaStream_t stream);

// --- group.c

// The calling thread's group: a list of its requests, borrowed. NULL: none is open.
PyObject *fast_group(void);

// group_start(), and group_end() -> list of the requests to wait for. Python's functions.
PyObject *fast_group_start(PyObject *module, PyObject *none);
PyObject *fast_group_end(PyObject *module, PyObject *none);
