// cuda_processes.h: for tests of ranks on GPUs in several processes, on the driver for tests: memory, calls and what
// comes out of them, communicators.
#pragma once
#include <dirent.h>

#include "cuda_modes.h"
#include "cuda_results.h"
#include "harness.h"

#include "base/util.h"
#include "comm/comm.h"
#include "device/cuda/gpu.h"

static const tt_cuda *cu;
static ncclComm_t comms[MAX_RANKS];
static CUstream streams[MAX_RANKS];
static int first, last; // of the nranks this process has those from `first` on, before `last`
static bool peers_none;
static int per_machine; // so many processes seem to be on a machine of their own; 0: all are on one

HARNESS int device_of(int rank)
{
  return rank % tt_gpu_count();
}

// One call of the driver in the context of a rank's device.
#define ON(rank, call)                                                   \
  do {                                                                   \
    OK(tt_gpu_enter(device_of(rank)));                                   \
    CUresult on_ = (call);                                               \
    CHECK(on_ == CUDA_SUCCESS, "%s: the driver's error %d", #call, on_); \
    tt_gpu_leave();                                                      \
  } while (0)

enum { IMAGE = 600000 }; // elements of a buffer, at most

// ---- Memory ----

// CREATED: of cuMemCreate, in one allocation. BEHIND: in two or three behind each other. CLOSED: in one without
// handles.
typedef enum { DEVICE, PINNED, CREATED, BEHIND, CLOSED } memory_kind;

// Addresses with allocations of cuMemCreate.
enum { MAPPED = 64 };
static struct {
  CUdeviceptr base, at; // reserved; what `take` has returned
  size_t reserved, bytes;
} mapped[MAPPED];

// One allocation.
HARNESS void map_at(int rank, CUdeviceptr at, size_t bytes, bool handles)
{
  const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .requestedHandleTypes =
                                        handles ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE,
                                    .location = {CU_MEM_LOCATION_TYPE_DEVICE, device_of(rank)}};
  CUmemGenericAllocationHandle memory = 0;
  ON(rank, cu->MemCreate(&memory, bytes, &prop, 0));
  ON(rank, cu->MemMap(at, bytes, 0, memory, 0));
  ON(rank, cu->MemRelease(memory));
}

// In BEHIND the bytes begin a little before the end of the first allocation.
HARNESS char *take_mapped(int rank, memory_kind kind, size_t bytes)
{
  const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_of(rank)},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const size_t granule = 2 << 20, before = kind == BEHIND ? granule - 256 : 0,
               size = (before + bytes + granule - 1) / granule * granule;
  CUdeviceptr base = 0;
  int i = 0;
  while (i < MAPPED && mapped[i].at != 0) {
    i++;
  }
  CHECK(i < MAPPED, "%d mappings", MAPPED);
  ON(rank, cu->MemAddressReserve(&base, size + granule, 0, 0, 0));
  for (size_t at = 0; at < size; at += kind == BEHIND ? granule : size) {
    map_at(rank, base + at, kind == BEHIND ? granule : size, kind != CLOSED);
  }
  ON(rank, cu->MemSetAccess(base, size, &access, 1));
  mapped[i].base = base;
  mapped[i].at = base + before;
  mapped[i].reserved = size + granule;
  mapped[i].bytes = size;
  return (char *)(uintptr_t)mapped[i].at;
}

HARNESS void give_mapped(int rank, const char *memory)
{
  int i = 0;
  while (mapped[i].at != (CUdeviceptr)(uintptr_t)memory) {
    i++;
  }
  ON(rank, cu->MemUnmap(mapped[i].base, mapped[i].bytes));
  ON(rank, cu->MemAddressFree(mapped[i].base, mapped[i].reserved));
  mapped[i].at = 0;
}

HARNESS char *take(int rank, memory_kind kind, size_t bytes)
{
  CUdeviceptr at = 0;
  void *host = NULL;
  if (kind > PINNED) {
    return take_mapped(rank, kind, bytes);
  }
  if (kind == PINNED) {
    ON(rank, cu->MemHostAlloc(&host, bytes, CU_MEMHOSTALLOC_PORTABLE));
    return host;
  }
  ON(rank, cu->MemAlloc(&at, bytes));
  return (char *)(uintptr_t)at;
}

HARNESS void give(int rank, memory_kind kind, char *memory)
{
  if (kind > PINNED) {
    give_mapped(rank, memory);
  } else if (kind == PINNED) {
    ON(rank, cu->MemFreeHost(memory));
  } else {
    ON(rank, cu->MemFree((CUdeviceptr)(uintptr_t)memory));
  }
}

// ---- Calls ----

typedef enum { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, RING, FUNCTIONS } function;

HARNESS ncclResult_t call(function f, int r, const float *in, float *out, size_t n)
{
  const ncclComm_t c = comms[r];
  const cudaStream_t s = (cudaStream_t)streams[r];
  switch (f) {
  case ALL_REDUCE: return ncclAllReduce(in, out, n, ncclFloat, ncclSum, c, s);
  case BROADCAST: return ncclBroadcast(in, out, n, ncclFloat, 1 % nranks, c, s);
  case REDUCE: return ncclReduce(in, out, n, ncclFloat, ncclSum, 1 % nranks, c, s);
  case ALL_GATHER: return ncclAllGather(in, out, n, ncclFloat, c, s);
  case REDUCE_SCATTER: return ncclReduceScatter(in, out, n, ncclFloat, ncclSum, c, s);
  case ALL_TO_ALL: return ncclAlltoAll(in, out, n, ncclFloat, c, s);
  default: break;
  }
  OK(ncclSend(in, n, ncclFloat, (r + 1) % nranks, c, s)); // to the next rank, from the one before
  return ncclRecv(out, n, ncclFloat, (r + nranks - 1) % nranks, c, s);
}

HARNESS size_t blocks_in(function f)
{
  return f == REDUCE_SCATTER || f == ALL_TO_ALL ? (size_t)nranks : 1;
}

HARNESS size_t blocks_out(function f)
{
  return f == ALL_GATHER || f == ALL_TO_ALL ? (size_t)nranks : 1;
}

// What element i of a rank's output is to be, with blocks of n elements.
HARNESS float expected(function f, int rank, size_t i, size_t n)
{
  switch (f) {
  case ALL_REDUCE: return sum_at(i);
  case BROADCAST: return value_of(1 % nranks, i);
  case REDUCE: return rank == 1 % nranks ? sum_at(i) : -1;
  case ALL_GATHER: return value_of((int)(i / n), i % n);
  case REDUCE_SCATTER: return sum_at((size_t)rank * n + i);
  case ALL_TO_ALL: return value_of((int)(i / n), (size_t)rank * n + i % n);
  default: return value_of((rank + nranks - 1) % nranks, i);
  }
}

static float image[IMAGE]; // of a buffer, on the host

HARNESS CUdeviceptr address(const float *at)
{
  return (CUdeviceptr)(uintptr_t)at;
}

HARNESS void fill(float *at, int rank, size_t n)
{
  CHECK(n <= IMAGE, "%zu elements", n);
  for (size_t i = 0; i < n; i++) {
    image[i] = value_of(rank, i);
  }
  ON(rank, cu->MemcpyHtoD(address(at), image, n * sizeof *image));
}

// Elements of an output that is to be written.
HARNESS void spoil(float *at, int rank, size_t n)
{
  ON(rank, cu->MemsetD32(address(at), 0xbf800000, n)); // -1
}

HARNESS void compare(function f, int rank, const float *out, size_t n)
{
  CHECK(n * blocks_out(f) <= IMAGE, "%zu elements", n * blocks_out(f));
  ON(rank, cu->MemcpyDtoH(image, address(out), n * blocks_out(f) * sizeof *image));
  for (size_t i = 0; i < n * blocks_out(f); i++) {
    const float is = expected(f, rank, i, n);
    CHECK(image[i] == is, "function %d, rank %d of %d, element %zu of %zu: %g, not %g", (int)f, rank, nranks, i, n,
          (double)image[i], (double)is);
  }
}

HARNESS void wait_all(void)
{
  for (int r = first; r < last; r++) {
    ON(r, cu->StreamSynchronize(streams[r]));
  }
}

// Buffers of a rank, `offset` floats within their allocations; `in_place` as the function has it.
typedef struct buffers {
  memory_kind kind;
  bool in_place;
  size_t offset;
} buffers;

typedef struct rank_memory {
  char *in_base, *out_base;
  float *in, *out;
} rank_memory;

HARNESS void memory_open(function f, int r, size_t n, const buffers *b, rank_memory *m)
{
  const size_t in = n * blocks_in(f), out = n * blocks_out(f), more = b->offset + 3;
  m->out_base = take(r, b->kind, (TT_MAX(in, out) + more) * sizeof(float));
  m->out = (float *)(void *)m->out_base + b->offset;
  m->in_base = b->in_place ? NULL : take(r, b->kind, (in + more) * sizeof(float));
  m->in = b->in_place ? m->out : (float *)(void *)m->in_base + b->offset;
  if (b->in_place && f == ALL_GATHER) {
    m->in = m->out + (size_t)r * n;
  } else if (b->in_place && f == REDUCE_SCATTER) {
    m->out += (size_t)r * n;
  }
  if (!(b->in_place && f == REDUCE_SCATTER)) {
    spoil(m->out, r, out);
  }
  fill(m->in, r, in);
}

HARNESS void memory_close(int r, const buffers *b, const rank_memory *m)
{
  give(r, b->kind, m->out_base);
  if (m->in_base != NULL) {
    give(r, b->kind, m->in_base);
  }
}

// ---- Descriptors ----

// The descriptors of this process; with a word, those of files with that in their names.
HARNESS int open_descriptors(const char *word)
{
  char path[300], name[300];
  int n = 0;
  DIR *d = opendir("/proc/self/fd");
  CHECK(d != NULL, "no /proc/self/fd");
  for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
    snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
    const ssize_t length = readlink(path, name, sizeof name - 1);
    name[TT_MAX(length, 0)] = 0;
    n += word == NULL || strstr(name, word) != NULL;
  }
  closedir(d);
  return n;
}

// The driver for tests has one for each allocation of cuMemCreate that this process has made or mapped.
HARNESS int allocations(void)
{
  return open_descriptors("cudasim-block");
}

// ---- Processes ----

// Joins with `each` ranks of this process.
HARNESS void join(int process, int processes, int each)
{
  if (per_machine != 0) {
    char machine[32];
    snprintf(machine, sizeof machine, "machine-%d", process / per_machine);
    setenv("NCCL_HOSTID", machine, 1);
  }
  cu = tt_cuda_get(NULL);
  CHECK(cu != NULL, "no driver");
  nranks = processes * each;
  first = process * each;
  last = first + each;
  const ncclUniqueId id = shared_id(0, process);
  OK(ncclGroupStart());
  for (int r = first; r < last; r++) {
    OK(tt_gpu_enter(device_of(r)));
    OK(ncclCommInitRank(&comms[r], nranks, id, r));
    tt_gpu_leave();
  }
  OK(ncclGroupEnd());
  for (int r = first; r < last; r++) {
    ON(r, cu->StreamCreateWithPriority(&streams[r], CU_STREAM_NON_BLOCKING, 0));
    const bool reads = !peers_none && per_machine == 0;
    CHECK(comms[r]->machine.can_read == reads, "rank %d: direct access: %d", r, (int)comms[r]->machine.can_read);
    const int local = over_network() ? each : per_machine == 0 ? nranks : TT_MIN(per_machine * each, nranks);
    CHECK(comms[r]->machine.local_ranks == local, "rank %d: %d ranks on its machine", r, comms[r]->machine.local_ranks);
  }
}

HARNESS void leave(void)
{
  for (int r = first; r < last; r++) {
    OK(ncclCommDestroy(comms[r]));
    ON(r, cu->StreamDestroy(streams[r]));
  }
}
