// register.c: see register.h.
#include "comm/register.h"

#include <pthread.h>

#include "base/param.h"
#include "base/result.h"
#include "comm/comm.h"
#include "comm/one_sided.h"
#include "os/proc.h"

// One buffer the user has registered. Its handle is its address.
typedef struct registration {
  tt_span buffer, handle; // in the communicator's sets
  tt_span in_process;     // a window's: the handle, in the process's set
  tt_span as_window;      // a window's: the buffer, in the communicator's set
  bool is_window;         // by ncclCommWindowRegister
  tt_moved *moved;        // what of it has moved to where peers can map it; NULL: nothing
  size_t moved_bytes;
  tt_window window;
} registration;

// Windows of all communicators by handle, under the lock: the device API's functions get a window and no communicator.
static pthread_mutex_t windows_lock = PTHREAD_MUTEX_INITIALIZER;
static tt_span *windows;

__attribute__((constructor)) static void windows_at_start(void)
{
  tt_proc_hold_at_fork(&windows_lock);
}

static void window_add(registration *r)
{
  pthread_mutex_lock(&windows_lock);
  tt_spans_add(&windows, &r->in_process);
  pthread_mutex_unlock(&windows_lock);
}

static void window_drop(registration *r)
{
  pthread_mutex_lock(&windows_lock);
  tt_spans_remove(&windows, &r->in_process);
  pthread_mutex_unlock(&windows_lock);
}

bool tt_window_find(const void *handle, tt_window *out)
{
  pthread_mutex_lock(&windows_lock);
  tt_span *s = tt_spans_same(windows, (uintptr_t)handle, 1);
  if (s != NULL) {
    *out = TT_SPAN_OWNER(s, registration, in_process)->window;
  }
  pthread_mutex_unlock(&windows_lock);
  return s != NULL;
}

// The registration with this handle, or NULL.
static registration *find_registration(const struct ncclComm *comm, const void *handle)
{
  tt_span *s = tt_spans_same(comm->registered.handles, (uintptr_t)handle, 1);
  return s == NULL ? NULL : TT_SPAN_OWNER(s, registration, handle);
}

// What the network reads and writes of GPUs' memory goes through slots.
static bool is_for_network(const struct ncclComm *comm)
{
  return comm->network.proxy != NULL && !comm->port.row->pins;
}

static void leave_network(struct ncclComm *comm, const registration *r)
{
  if (is_for_network(comm)) {
    tt_proxy_deregister(comm->network.proxy, (void *)r->buffer.start, r->buffer.size);
  }
}

// Has peers in other processes map the buffer: of windows what the device has allocated, and where the user wants it
// all.
static void map_for_peers(const struct ncclComm *comm, registration *r)
{
  const tt_comm_machine *m = &comm->machine;
  bool ordinary = tt_params_get()->host_register_map, maps = r->is_window ? comm->wiring.can_copy : m->can_read;
  if (m->shares && !m->all_local && maps && (r->is_window || ordinary)) {
    r->moved = comm->port.row->map((void *)r->buffer.start, r->buffer.size, ordinary, &r->moved_bytes);
  }
}

static void registration_free(const struct ncclComm *comm, registration *r)
{
  comm->port.row->unmap(r->moved);
  tt_free(r);
}

ncclResult_t tt_comm_register(struct ncclComm *comm, void *buff, size_t size, bool window, void **handle)
{
  registration *r;
  if (size > UINTPTR_MAX - (uintptr_t)buff) {
    return tt_fail(ncclInvalidArgument, "registering %zu bytes at %p on rank %d: they do not fit into memory", size,
                   buff, comm->rank);
  }
  TT_TRY(TT_NEW(r, 1, "registering %zu bytes on rank %d: no memory", size, comm->rank));
  *r = (registration){.buffer = {.start = (uintptr_t)buff, .size = size},
                      .handle = {.start = (uintptr_t)r, .size = 1},
                      .in_process = {.start = (uintptr_t)r, .size = 1},
                      .as_window = {.start = (uintptr_t)buff, .size = size},
                      .is_window = window,
                      .window = {.comm = comm, .base = buff, .size = size, .rank = comm->rank, .nranks = comm->nranks}};
  map_for_peers(comm, r);
  ncclResult_t res = is_for_network(comm) ? tt_proxy_register(comm->network.proxy, buff, size) : ncclSuccess;
  if (res != ncclSuccess) {
    registration_free(comm, r);
    return res;
  }
  res = window ? tt_rma_open_window(comm, &r->window) : ncclSuccess;
  if (res != ncclSuccess) {
    leave_network(comm, r);
    registration_free(comm, r);
    return res;
  }
  tt_spans_add(&comm->registered.buffers, &r->buffer);
  tt_spans_add(&comm->registered.handles, &r->handle);
  if (window) {
    tt_spans_add(&comm->registered.windows, &r->as_window);
    window_add(r);
  }
  comm->registered.moved_bytes += r->moved_bytes;
  *handle = r;
  return ncclSuccess;
}

static void drop_registration(struct ncclComm *comm, registration *r)
{
  tt_spans_remove(&comm->registered.buffers, &r->buffer);
  tt_spans_remove(&comm->registered.handles, &r->handle);
  if (r->is_window) {
    tt_spans_remove(&comm->registered.windows, &r->as_window);
    window_drop(r);
  }
  comm->registered.moved_bytes -= r->moved_bytes;
  registration_free(comm, r);
}

// The registration with this handle, for a function of windows or of the others. The error names the function that
// takes the other kind.
static ncclResult_t take_handle(const struct ncclComm *comm, const char *what, const void *handle, bool window,
                                registration **out)
{
  registration *r = find_registration(comm, handle);
  if (r == NULL) {
    return tt_fail(ncclInvalidArgument,
                   "%s on rank %d: %p is not a handle of this communicator, or has been deregistered", what, comm->rank,
                   handle);
  }
  if (r->is_window != window) {
    return tt_fail(
        ncclInvalidArgument,
        r->is_window
            ? "%s on rank %d: %p is a window (ncclCommWindowRegister): deregister it with ncclCommWindowDeregister"
            : "%s on rank %d: %p is not a window but a handle of ncclCommRegister: deregister it with "
              "ncclCommDeregister",
        what, comm->rank, handle);
  }
  *out = r;
  return ncclSuccess;
}

ncclResult_t tt_comm_deregister(struct ncclComm *comm, void *handle, bool window)
{
  registration *r = NULL;
  TT_TRY(take_handle(comm, window ? "ncclCommWindowDeregister" : "ncclCommDeregister", handle, window, &r));
  leave_network(comm, r);
  if (window) {
    tt_rma_close_window(comm, &r->window);
  }
  drop_registration(comm, r);
  return ncclSuccess;
}

bool tt_comm_is_registered(const struct ncclComm *comm, const void *buff, size_t size)
{
  return tt_spans_holder(comm->registered.buffers, (uintptr_t)buff, size) != NULL;
}

ncclResult_t tt_comm_window(const struct ncclComm *comm, const void *handle, void **buff)
{
  registration *r = NULL;
  TT_TRY(take_handle(comm, "ncclWinGetUserPtr", handle, true, &r));
  *buff = (void *)r->buffer.start;
  return ncclSuccess;
}

bool tt_comm_in_window(const struct ncclComm *comm, const void *buff, size_t size)
{
  return tt_spans_holder(comm->registered.windows, (uintptr_t)buff, TT_MAX(size, 1)) != NULL;
}

ncclResult_t tt_comm_window_number(const struct ncclComm *comm, const char *what, const void *handle, uint64_t *number)
{
  registration *r = NULL;
  TT_TRY(take_handle(comm, what, handle, true, &r));
  *number = r->window.number;
  return ncclSuccess;
}

void tt_comm_free_registrations(struct ncclComm *comm)
{
  while (comm->registered.handles != NULL) {
    drop_registration(comm, TT_SPAN_OWNER(comm->registered.handles, registration, handle));
  }
}
