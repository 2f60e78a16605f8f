// backend_tutti.c: this library, through nccl.h: one process per rank, forked here, or one thread per rank.
//
//   coll_tutti [ranks] [option…]    options: sync (wait after every call), registered (buffers of ncclMemAlloc, which
//                                   peers can map), mapped (plain ones, which registration lets them map), copy
//                                   (broadcast out of place; MPI_Bcast has no such thing), threads (all ranks in one
//                                   process), encrypted (ncclSetEncryption: of use over the network)
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "coll_bench.h"
#include "nccl.h"
#include "ranks.h"
#include "tutti.h"

#define QUEUE 100 // calls that may wait in the stream

// What rank 0 has for the others.
typedef struct invitation {
  _Atomic int known; // the id is there
  ncclUniqueId id;
} invitation;

static coll_library lib;
static int nranks = 2, encrypted;
static _Thread_local ncclComm_t comm;
static _Thread_local cudaStream_t stream;
static _Thread_local int rank;

static int failed(ncclResult_t res)
{
  if (res == ncclSuccess) {
    return 0;
  }
  fprintf(stderr, "coll_tutti: rank %d: %s (%s)\n", rank, ncclGetErrorString(res), ncclGetLastError(comm));
  return 1;
}

static ncclResult_t ring_shift(const coll_call *c)
{
  ncclGroupStart();
  ncclSend(c->in, c->count, ncclFloat32, (rank + 1) % nranks, comm, stream);
  ncclRecv(c->out, c->count, ncclFloat32, (rank + nranks - 1) % nranks, comm, stream);
  return ncclGroupEnd();
}

static int call(const coll_call *c)
{
  switch (c->kind) {
  case COLL_ALL_REDUCE: return failed(ncclAllReduce(c->in, c->out, c->count, ncclFloat32, ncclSum, comm, stream));
  case COLL_REDUCE_SCATTER:
    return failed(ncclReduceScatter(c->in, c->out, c->count, ncclFloat32, ncclSum, comm, stream));
  case COLL_ALL_GATHER: return failed(ncclAllGather(c->in, c->out, c->count, ncclFloat32, comm, stream));
  case COLL_BROADCAST: return failed(ncclBroadcast(c->in, c->out, c->count, ncclFloat32, COLL_ROOT, comm, stream));
  case COLL_REDUCE: return failed(ncclReduce(c->in, c->out, c->count, ncclFloat32, ncclSum, COLL_ROOT, comm, stream));
  case COLL_ALL_TO_ALL: return failed(ncclAlltoAll(c->in, c->out, c->count, ncclFloat32, comm, stream));
  default: return failed(ring_shift(c));
  }
}

static int settle(void)
{
  return failed(tuttiStreamSynchronize(stream));
}

static void *plain_buffer(size_t bytes)
{
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

static void *registered_buffer(size_t bytes)
{
  void *p = NULL;
  return failed(ncclMemAlloc(&p, bytes)) ? NULL : p;
}

static ncclResult_t encrypt(void)
{
  ncclEncryptionConfig_t f = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
  f.mode = NCCL_ENCRYPTION_MODE_PSK;
  f.psk = "this key protects a measurement alone";
  return ncclSetEncryption(&f);
}

// A plain one that peers can map once it is registered (main sets the variable).
static void *mapped_buffer(size_t bytes)
{
  void *p = plain_buffer(bytes), *handle;
  return p == NULL || failed(ncclCommRegister(comm, p, bytes, &handle)) ? NULL : p;
}

static int run_rank(int number)
{
  invitation *in = ranks_area();
  rank = number;
  if (encrypted && failed(encrypt())) {
    return 1;
  }
  if (rank == 0) {
    if (failed(ncclGetUniqueId(&in->id))) {
      return 1;
    }
    atomic_store(&in->known, 1);
  }
  while (!atomic_load(&in->known)) {
    usleep(1000);
  }
  if (failed(tuttiSetDevice(rank)) || failed(ncclCommInitRank(&comm, nranks, in->id, rank)) ||
      failed(tuttiStreamCreate(&stream, TUTTI_STREAM_NON_BLOCKING))) {
    return 1;
  }
  int res = coll_obey(&lib, rank, nranks);
  return res != 0 || failed(ncclCommDestroy(comm));
}

int main(int argc, char **argv)
{
  int threads = 0;
  lib = (coll_library){.batch = QUEUE,
                       .same_buffer = 1,
                       .call = call,
                       .settle = settle,
                       .barrier = ranks_barrier,
                       .buffer = plain_buffer};
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "sync") == 0) {
      lib.batch = 1;
    } else if (strcmp(argv[i], "registered") == 0) {
      lib.buffer = registered_buffer;
    } else if (strcmp(argv[i], "mapped") == 0) {
      setenv("NCCL_HOST_REGISTER_MAP", "1", 1);
      lib.buffer = mapped_buffer;
    } else if (strcmp(argv[i], "copy") == 0) {
      lib.same_buffer = 0;
    } else if (strcmp(argv[i], "threads") == 0) {
      threads = 1;
    } else if (strcmp(argv[i], "encrypted") == 0) {
      encrypted = 1;
    } else {
      nranks = atoi(argv[i]);
    }
  }
  return ranks_run(nranks, threads, run_rank);
}
