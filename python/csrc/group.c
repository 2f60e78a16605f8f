// group.c: the calling thread's group. Its calls become requests, which are marked when the group ends and its
// operations have been queued.
#include "fast.h"

static _Thread_local PyObject *group_requests; // NULL: no group is open
static _Thread_local int group_depth;

PyObject *fast_group(void)
{
  return group_requests;
}

PyObject *fast_group_start(PyObject *module, PyObject *none)
{
  (void)module;
  (void)none;
  if (group_depth == 0 && (group_requests = PyList_New(0)) == NULL) {
    return NULL;
  }
  ncclResult_t res = lib.ncclGroupStart();
  if (res != ncclSuccess) {
    if (group_depth == 0) {
      Py_CLEAR(group_requests);
    }
    return fast_fail(res, NULL, "group");
  }
  group_depth++;
  Py_RETURN_NONE;
}

// Marks all requests, also after an error: what has been queued all the same is complete then. Returns the list of
// those that are waited for.
static PyObject *mark_requests(PyObject *requests)
{
  PyObject *awaited = PyList_New(0);
  for (Py_ssize_t i = 0; awaited != NULL && i < PyList_Size(requests); i++) {
    PyObject *r = PyList_GetItem(requests, i);
    if (fast_request_mark(r) != 0 || (fast_request_is_awaited(r) && PyList_Append(awaited, r) != 0)) {
      Py_CLEAR(awaited);
    }
  }
  return awaited;
}

PyObject *fast_group_end(PyObject *module, PyObject *none)
{
  ncclResult_t res;
  (void)module;
  (void)none;
  if (group_depth == 0) {
    PyErr_SetString(PyExc_RuntimeError, "no group is open in this thread");
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS res = lib.ncclGroupEnd();
  Py_END_ALLOW_THREADS if (--group_depth > 0)
  {
    return res == ncclSuccess ? PyList_New(0) : fast_fail(res, NULL, "group");
  }
  PyObject *requests = group_requests;
  group_requests = NULL;
  PyObject *awaited = mark_requests(requests);
  Py_DECREF(requests);
  if (awaited != NULL && res != ncclSuccess) {
    Py_CLEAR(awaited);
    fast_fail(res, NULL, "group");
  }
  return awaited;
}
