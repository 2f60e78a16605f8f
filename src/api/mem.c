// mem.c: registered memory.
#include "api/api_priv.h"
#include "base/result.h"
#include "comm/comm.h"
#include "comm/register.h"

TT_TWIN(ncclMemAlloc);
TT_EXPORT ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
  if (ptr == NULL || size == 0) {
    return tt_fail(ncclInvalidArgument, "ncclMemAlloc: ptr is %p, size is %zu; both must be given", (void *)ptr, size);
  }
  return tt_device_row()->alloc(size, ptr);
}

TT_TWIN(ncclMemFree);
TT_EXPORT ncclResult_t ncclMemFree(void *ptr)
{
  return ptr == NULL ? ncclSuccess : tt_device_row()->free(ptr);
}

// In these functions the communicator has been entered (comm.h).

static ncclResult_t take_buffer(struct ncclComm *comm, void *buff, size_t size, void **handle)
{
  if (buff == NULL || size == 0 || handle == NULL) {
    return tt_fail(ncclInvalidArgument,
                   "ncclCommRegister on rank %d: buff is %p, size is %zu, handle is %p; all must be given", comm->rank,
                   buff, size, (void *)handle);
  }
  return tt_comm_register(comm, buff, size, false, handle);
}

// A window in memory of ncclMemAlloc, or in other device memory, begins a multiple of 4096 bytes behind the
// allocation's start, as NCCL demands, and ends in it. Of other memory the allocation is not known.
static ncclResult_t check_window_memory(const struct ncclComm *comm, const char *buff, size_t size)
{
  void *base;
  size_t bytes;
  if (!tt_device_row()->allocation(buff, &base, &bytes)) {
    return ncclSuccess;
  }
  size_t offset = (size_t)(buff - (char *)base);
  if (offset % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
    return tt_fail(
        ncclInvalidArgument,
        "ncclCommWindowRegister on rank %d: buff lies %zu bytes behind the start of its allocation; it must be "
        "a multiple of %d",
        comm->rank, offset, NCCL_WIN_REQUIRED_ALIGNMENT);
  }
  return size <= bytes - offset
             ? ncclSuccess
             : tt_fail(ncclInvalidArgument,
                       "ncclCommWindowRegister on rank %d: size is %zu, but behind buff its allocation has %zu bytes",
                       comm->rank, size, bytes - offset);
}

static ncclResult_t take_window(struct ncclComm *comm, void *buff, size_t size, ncclWindow_t *win, int winFlags)
{
  if (win != NULL) {
    *win = NULL; // also after an error, as NCCL has it
  }
  if (buff == NULL || size == 0 || win == NULL) {
    return tt_fail(ncclInvalidArgument,
                   "ncclCommWindowRegister on rank %d: buff is %p, size is %zu, win is %p; all must be given",
                   comm->rank, buff, size, (void *)win);
  }
  if ((winFlags & ~(NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING)) != 0) {
    return tt_fail(ncclInvalidArgument, "ncclCommWindowRegister on rank %d: winFlags are %#x; known are %#x",
                   comm->rank, (unsigned)winFlags, (unsigned)(NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING));
  }
  TT_TRY(check_window_memory(comm, buff, size));
  return tt_comm_register(comm, buff, size, true, (void **)win);
}

static ncclResult_t window_pointer(const struct ncclComm *comm, ncclWindow_t win, void **out)
{
  if (out == NULL) {
    return tt_fail(ncclInvalidArgument, "ncclWinGetUserPtr on rank %d: outUserPtr is NULL", comm->rank);
  }
  return tt_comm_window(comm, win, out);
}

TT_TWIN(ncclCommRegister);
TT_EXPORT ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
  INSIDE(comm, "ncclCommRegister", true, take_buffer(comm, buff, size, handle));
}

TT_TWIN(ncclCommDeregister);
TT_EXPORT ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
  INSIDE(comm, "ncclCommDeregister", false, tt_comm_deregister(comm, handle, false));
}

// A window is a registration that peers see (comm/one_sided.h).
TT_TWIN(ncclCommWindowRegister);
TT_EXPORT ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags)
{
  INSIDE(comm, "ncclCommWindowRegister", true, take_window(comm, buff, size, win, winFlags));
}

TT_TWIN(ncclCommWindowDeregister);
TT_EXPORT ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
  INSIDE(comm, "ncclCommWindowDeregister", false, win == NULL ? ncclSuccess : tt_comm_deregister(comm, win, true));
}

TT_TWIN(ncclWinGetUserPtr);
TT_EXPORT ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **outUserPtr)
{
  INSIDE(comm, "ncclWinGetUserPtr", false, window_pointer(comm, win, outUserPtr));
}
