// ipc_test.c: memory and events of other processes, on one device and on two.
#include "rig.h"

struct offer {
  CUipcMemHandle memory;
  CUipcEventHandle event;
  _Atomic int fd;
  _Atomic int pid;
};

static struct offer *offer_of(int number)
{
  return (struct offer *)rig_shared() + number;
}

// Rank 0 fills memory, records an event; rank 1 waits for the event in its stream, adds to the memory.
static void memory_and_event(void)
{
  uint32_t out;
  CUevent event;
  rig_context(0);
  CUstream stream = rig_stream();
  CUfunction add = rig_kernel("add");
  struct offer *offer = offer_of(0);
  CUdeviceptr ptr = 0;
  if (rank == 0) {
    ptr = rig_memory(100000);
    OK(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    OK(cu.IpcGetMemHandle(&offer->memory, ptr + 5000)); // of the whole allocation
    OK(cu.IpcGetEventHandle(&offer->event, event));
    OK(cu.MemsetD32Async(ptr, 1000, 4, stream));
    OK(cu.EventRecord(event, stream));
  }
  rig_barrier(2);
  if (rank == 1) {
    CUdeviceptr again;
    OK(cu.IpcOpenMemHandle(&ptr, offer->memory, 1));
    OK(cu.IpcOpenMemHandle(&again, offer->memory, 1));
    CHECK(again == ptr);
    OK(cu.IpcCloseMemHandle(again));
    OK(cu.IpcOpenEventHandle(&event, offer->event));
    OK(cu.StreamWaitEvent(stream, event, 0));
    OK(rig_launch(add, 1, 32, ptr, 1, stream));
    OK(cu.StreamSynchronize(stream));
  }
  rig_barrier(2);
  OK(cu.MemcpyDtoH(&out, ptr, 4));
  CHECK(out == 1032);
  rig_barrier(2);
  if (rank == 1) {
    OK(cu.IpcCloseMemHandle(ptr));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu.IpcCloseMemHandle(ptr));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemsetD8(ptr, 0, 1));
  }
  rig_barrier(2);
  if (rank == 0) {
    OK(cu.MemFree(ptr));
  }
}

static void test_memory_and_event(void **state)
{
  (void)state;
  rig_says("", 2, memory_and_event, "is not open (closed before?)");
  rig_says("slices=1,order=random,stores,stale", 2, memory_and_event, "is not open (closed before?)");
}

// An event recorded by the other process, awaited by the host of this one.
static void event_to_host(void)
{
  CUevent event;
  rig_context(0);
  CUstream stream = rig_stream();
  _Atomic uint32_t *word = rig_words(1);
  if (rank == 0) {
    OK(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    OK(cu.IpcGetEventHandle(&offer_of(0)->event, event));
    OK(cu.StreamWaitValue32(stream, at(word), 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cu.EventRecord(event, stream));
  }
  rig_barrier(2);
  if (rank == 1) {
    OK(cu.IpcOpenEventHandle(&event, offer_of(0)->event));
    GIVES(CUDA_ERROR_NOT_READY, cu.EventQuery(event));
  }
  rig_barrier(2);
  if (rank == 0) {
    rig_sleep_ms(20);
    atomic_store(word, 1);
  }
  OK(cu.EventSynchronize(event));
}

static void test_event_to_host(void **state)
{
  (void)state;
  rig_quiet("", 2, event_to_host);
}

// A handle outlives its event, whose place in the process another one takes.
static void ended_event(void)
{
  CUevent event;
  rig_context(0);
  if (rank == 0) {
    OK(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    OK(cu.IpcGetEventHandle(&offer_of(0)->event, event));
    OK(cu.EventDestroy(event));
    OK(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
  }
  rig_barrier(2);
  if (rank == 1) {
    GIVES(CUDA_ERROR_INVALID_HANDLE, cu.IpcOpenEventHandle(&event, offer_of(0)->event));
  }
  rig_barrier(2);
}

static void test_ended_event(void **state)
{
  (void)state;
  rig_says("", 2, ended_event, "or the event, has ended");
}

// A handle outlives its memory, whose address is used again.
static void freed_and_reused(void)
{
  CUdeviceptr ptr = 0, other;
  CUipcMemHandle first;
  rig_context(0);
  if (rank == 0) {
    ptr = rig_memory(64);
    OK(cu.IpcGetMemHandle(&offer_of(0)->memory, ptr));
  }
  rig_barrier(2);
  if (rank == 1) {
    OK(cu.IpcOpenMemHandle(&other, offer_of(0)->memory, 1));
  }
  rig_barrier(2);
  first = offer_of(0)->memory;
  rig_barrier(2);
  if (rank == 0) {
    OK(cu.MemFree(ptr)); // while it is open
  }
  rig_barrier(2);
  if (rank == 1) {
    GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemsetD8(other, 1, 1));
  }
  rig_barrier(2);
  if (rank == 0) {
    CHECK(rig_memory(64) == ptr);
    OK(cu.IpcGetMemHandle(&offer_of(0)->memory, ptr));
    CHECK(memcmp(&first, &offer_of(0)->memory, sizeof first) != 0);
  }
  rig_barrier(2);
  if (rank == 1) {
    CUdeviceptr again;
    GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemsetD8(other, 1, 1));
    OK(cu.IpcOpenMemHandle(&again, offer_of(0)->memory, 1));
    CHECK(again != other);
    OK(cu.MemsetD8(again, 1, 1));
    OK(cu.IpcCloseMemHandle(other));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu.IpcOpenMemHandle(&other, first, 1));
  }
  rig_barrier(2);
}

static void test_freed_and_reused(void **state)
{
  (void)state;
  rig_says("", 2, freed_and_reused, "is another process's memory, which that process has freed");
  assert_non_null(strstr(rig_err, "is open in other processes (1 times)"));
  assert_non_null(strstr(rig_err, "has freed the memory of this handle"));
}

static void wrong(void)
{
  CUipcMemHandle handle;
  CUipcEventHandle event_handle;
  CUevent event;
  CUdeviceptr ptr;
  rig_context(0);
  OK(cu.IpcGetMemHandle(&handle, rig_memory(64)));
  GIVES(CUDA_ERROR_INVALID_CONTEXT, cu.IpcOpenMemHandle(&ptr, handle, 1)); // by its own process
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.IpcGetMemHandle(&handle, at(rig_words(1))));
  memset(&handle, 1, sizeof handle);
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.IpcOpenMemHandle(&ptr, handle, 1));
  OK(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
  GIVES(CUDA_ERROR_INVALID_HANDLE, cu.IpcGetEventHandle(&event_handle, event));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.EventCreate(&event, CU_EVENT_INTERPROCESS));
}

static void test_wrong(void **state)
{
  (void)state;
  rig_says("", 1, wrong, "the handle is of memory of this very process");
}

// Ranks on two devices that reach each other: each adds to the memory of the next.
static void ring(void)
{
  enum { N = 4 };
  uint32_t out;
  CUdeviceptr next;
  rig_context(rank % 2);
  CUdeviceptr mine = rig_memory(4);
  CUstream stream = rig_stream();
  OK(cu.MemsetD32(mine, (unsigned)rank, 1));
  OK(cu.CtxSynchronize());
  OK(cu.IpcGetMemHandle(&offer_of(rank)->memory, mine));
  rig_barrier(N);
  OK(cu.IpcOpenMemHandle(&next, offer_of((rank + 1) % N)->memory, 1));
  OK(rig_launch(rig_kernel("add"), 1, 1, next, 100, stream));
  OK(cu.StreamSynchronize(stream));
  rig_barrier(N);
  OK(cu.MemcpyDtoH(&out, mine, 4));
  CHECK(out == 100 + (uint32_t)rank);
  OK(cu.IpcCloseMemHandle(next));
  rig_barrier(N);
}

static void test_ring(void **state)
{
  (void)state;
  rig_quiet("devices=2", 4, ring);
  rig_quiet("devices=2,slices=1,order=random", 4, ring);
}

// The same device has other numbers in other processes.
static void see_other_order(void)
{
  setenv("CUDA_VISIBLE_DEVICES", rank == 0 ? "1,0" : "0,1", 1);
}

static void other_order(void)
{
  int device = -1;
  CUdeviceptr ptr;
  CUmemorytype type = CU_MEMORYTYPE_HOST;
  rig_context(rank); // the second of the machine, in both
  if (rank == 0) {
    OK(cu.IpcGetMemHandle(&offer_of(0)->memory, rig_memory(4)));
  }
  rig_barrier(2);
  if (rank == 1) {
    OK(cu.IpcOpenMemHandle(&ptr, offer_of(0)->memory, 0)); // without access of peers
    OK(cu.PointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr));
    OK(cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr));
    CHECK(device == 1 && type == CU_MEMORYTYPE_DEVICE);
    OK(rig_launch(rig_kernel("put"), 1, 1, ptr, 1, NULL));
    OK(cu.CtxSynchronize());
  }
  rig_barrier(2);
}

static void test_other_order(void **state)
{
  (void)state;
  rig_before = see_other_order;
  rig_quiet("devices=2,slices=1", 2, other_order);
  rig_before = NULL;
}

static void unreachable(void)
{
  CUdeviceptr ptr;
  rig_context(rank);
  if (rank == 0) {
    OK(cu.IpcGetMemHandle(&offer_of(0)->memory, rig_memory(4)));
  }
  rig_barrier(2);
  if (rank == 1) {
    GIVES(CUDA_ERROR_INVALID_VALUE, cu.IpcOpenMemHandle(&ptr, offer_of(0)->memory, 1));
  }
  rig_barrier(2);
}

static void test_unreachable(void **state)
{
  (void)state;
  rig_says("devices=2,peers=none", 2, unreachable, "memory of device 0 in a context of device 1");
}

// Words of a shared segment that each process has registered.
static void ping_pong(void)
{
  enum { ROUNDS = 50 };
  rig_context(0);
  CUstream stream = rig_stream();
  _Atomic uint32_t *words = (_Atomic uint32_t *)((char *)rig_shared() + 4096);
  OK(cu.MemHostRegister((void *)words, 4096, CU_MEMHOSTREGISTER_PORTABLE));
  for (uint32_t i = 1; i <= ROUNDS; i++) {
    if (rank == 0) {
      OK(cu.StreamWriteValue32(stream, at(words), i, 0));
      OK(cu.StreamWaitValue32(stream, at(words + 16), i, CU_STREAM_WAIT_VALUE_GEQ));
    } else {
      OK(cu.StreamWaitValue32(stream, at(words), i, CU_STREAM_WAIT_VALUE_GEQ));
      OK(cu.StreamWriteValue32(stream, at(words + 16), i, 0));
    }
  }
  OK(cu.StreamSynchronize(stream));
  CHECK(atomic_load(words + 16) == ROUNDS);
  rig_barrier(2);
  OK(cu.MemHostUnregister((void *)words));
}

static void test_ping_pong(void **state)
{
  (void)state;
  rig_quiet("", 2, ping_pong);
  rig_quiet("slices=1", 2, ping_pong);
  rig_quiet("queues=1,slices=1,order=random,launches=4", 2, ping_pong);
}

// An allocation without address, given by its descriptor.
static void descriptors(void)
{
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle;
  CUdeviceptr ptr;
  uint32_t out = 0;
  char path[64];
  size_t before, after, total;
  int fd = -1;
  rig_context(0);
  if (rank == 0) {
    OK(cu.MemCreate(&handle, 2 << 20, &prop, 0));
    OK(cu.MemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    atomic_store(&offer_of(0)->fd, fd);
    atomic_store(&offer_of(0)->pid, getpid());
  }
  rig_barrier(2);
  if (rank == 1) {
    GIVES(CUDA_ERROR_INVALID_VALUE,
          cu.MemImportFromShareableHandle(&handle, (void *)(intptr_t)0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    snprintf(path, sizeof path, "/proc/%d/fd/%d", atomic_load(&offer_of(0)->pid), atomic_load(&offer_of(0)->fd));
    FILE *file = fopen(path, "r+");
    CHECK(file != NULL);
    OK(cu.MemGetInfo(&before, &total));
    OK(cu.MemImportFromShareableHandle(&handle, (void *)(intptr_t)fileno(file),
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    fclose(file);
    OK(cu.MemGetInfo(&after, &total));
    CHECK(after == before); // it is the same memory
  }
  OK(cu.MemAddressReserve(&ptr, 2 << 20, 0, 0, 0));
  OK(cu.MemMap(ptr, 2 << 20, 0, handle, 0));
  OK(cu.MemSetAccess(ptr, 2 << 20, &access, 1));
  if (rank == 1) {
    OK(cu.MemsetD32(ptr + 4096, 4711, 1));
    OK(cu.CtxSynchronize());
  }
  rig_barrier(2);
  OK(cu.MemcpyDtoH(&out, ptr + 4096, 4));
  CHECK(out == 4711);
}

static void test_descriptors(void **state)
{
  (void)state;
  rig_says("", 2, descriptors, "descriptor 0 is not that of an allocation");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_memory_and_event), cmocka_unit_test(test_ended_event), cmocka_unit_test(test_event_to_host),
      cmocka_unit_test(test_freed_and_reused), cmocka_unit_test(test_wrong),       cmocka_unit_test(test_ring),
      cmocka_unit_test(test_other_order),      cmocka_unit_test(test_unreachable), cmocka_unit_test(test_ping_pong),
      cmocka_unit_test(test_descriptors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
