// backend_ucc.c: UCC over UCX, with what it chooses by itself. Distributions have no package of it: compiled when its
// headers are there (UCC_HOME says where it is installed).
//
//   coll_ucc [ranks]
//
// UCC has no send and receive between two ranks, so that one is left out.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucc/api/ucc.h>

#include "coll_bench.h"
#include "ranks.h"

static coll_library lib;
static int nranks = 2, rank;
static ucc_context_h context;
static ucc_team_h team;

static int failed(const char *what, ucc_status_t status)
{
  if (status == UCC_OK) {
    return 0;
  }
  fprintf(stderr, "coll_ucc: rank %d: %s: %s\n", rank, what, ucc_status_string(status));
  return 1;
}

// How UCC makes its ranks known to each other: through the ranks' common memory, piece by piece. Blocks; all ranks call
// in one order.
static ucc_status_t oob_gather(void *from, void *to, size_t size, void *info, void **request)
{
  char *area = ranks_area();
  size_t most = RANKS_AREA / (size_t)nranks;
  (void)info;
  for (size_t done = 0; done < size; done += most) {
    size_t n = size - done < most ? size - done : most;
    memcpy(area + (size_t)rank * most, (char *)from + done, n);
    ranks_barrier();
    for (int i = 0; i < nranks; i++) {
      memcpy((char *)to + (size_t)i * size + done, area + (size_t)i * most, n);
    }
    ranks_barrier();
  }
  *request = NULL;
  return UCC_OK;
}

static ucc_status_t oob_done(void *request)
{
  (void)request;
  return UCC_OK;
}

static ucc_oob_coll_t oob(void)
{
  return (ucc_oob_coll_t){.allgather = oob_gather,
                          .req_test = oob_done,
                          .req_free = oob_done,
                          .n_oob_eps = (uint32_t)nranks,
                          .oob_ep = (uint32_t)rank};
}

static int open_context(void)
{
  ucc_lib_h handle;
  ucc_lib_config_h config;
  ucc_context_config_h context_config;
  ucc_lib_params_t params = {.mask = UCC_LIB_PARAM_FIELD_THREAD_MODE, .thread_mode = UCC_THREAD_SINGLE};
  ucc_context_params_t context_params = {.mask = UCC_CONTEXT_PARAM_FIELD_OOB, .oob = oob()};
  if (failed("configuration", ucc_lib_config_read(NULL, NULL, &config)) ||
      failed("ucc_init", ucc_init(&params, config, &handle)) ||
      failed("configuration", ucc_context_config_read(handle, NULL, &context_config)) ||
      failed("ucc_context_create", ucc_context_create(handle, &context_params, context_config, &context))) {
    return 1;
  }
  ucc_context_config_release(context_config);
  ucc_lib_config_release(config);
  return 0;
}

static int make_team(void)
{
  ucc_team_params_t params = {.mask =
                                  UCC_TEAM_PARAM_FIELD_EP | UCC_TEAM_PARAM_FIELD_EP_RANGE | UCC_TEAM_PARAM_FIELD_OOB,
                              .ep = (uint64_t)rank,
                              .ep_range = UCC_COLLECTIVE_EP_RANGE_CONTIG,
                              .oob = oob()};
  ucc_status_t status = ucc_team_create_post(&context, 1, &params, &team);
  if (failed("ucc_team_create_post", status)) {
    return 1;
  }
  while ((status = ucc_team_create_test(team)) == UCC_INPROGRESS) {
    ucc_context_progress(context);
  }
  return failed("ucc_team_create_test", status);
}

static ucc_coll_buffer_info_t floats(const float *at, size_t count)
{
  return (ucc_coll_buffer_info_t){
      .buffer = (void *)(uintptr_t)at, .count = count, .datatype = UCC_DT_FLOAT32, .mem_type = UCC_MEMORY_TYPE_HOST};
}

static ucc_coll_args_t arguments(const coll_call *c)
{
  static const ucc_coll_type_t types[COLL_COUNT] = {
      [COLL_ALL_REDUCE] = UCC_COLL_TYPE_ALLREDUCE, [COLL_REDUCE_SCATTER] = UCC_COLL_TYPE_REDUCE_SCATTER,
      [COLL_ALL_GATHER] = UCC_COLL_TYPE_ALLGATHER, [COLL_BROADCAST] = UCC_COLL_TYPE_BCAST,
      [COLL_REDUCE] = UCC_COLL_TYPE_REDUCE,        [COLL_ALL_TO_ALL] = UCC_COLL_TYPE_ALLTOALL};
  size_t all = c->count * (size_t)nranks;
  ucc_coll_args_t a = {.coll_type = types[c->kind], .op = UCC_OP_SUM, .root = COLL_ROOT};
  int in_parts = c->kind == COLL_REDUCE_SCATTER || c->kind == COLL_ALL_TO_ALL;
  int out_parts = c->kind == COLL_ALL_GATHER || c->kind == COLL_ALL_TO_ALL;
  a.src.info = floats(c->kind == COLL_BROADCAST ? c->out : c->in, in_parts ? all : c->count);
  a.dst.info = floats(c->out, out_parts ? all : c->count);
  return a;
}

static int run(ucc_coll_args_t *a)
{
  ucc_coll_req_h request;
  if (failed("ucc_collective_init", ucc_collective_init(a, &request, team)) ||
      failed("ucc_collective_post", ucc_collective_post(request))) {
    return 1;
  }
  ucc_status_t status;
  while ((status = ucc_collective_test(request)) == UCC_INPROGRESS) {
    ucc_context_progress(context);
  }
  return failed("ucc_collective_test", status) || failed("ucc_collective_finalize", ucc_collective_finalize(request));
}

static int call(const coll_call *c)
{
  ucc_coll_args_t a = arguments(c);
  return run(&a);
}

// Calls have returned: complete on this rank. What others still need of it is done in the barrier.
static int settle(void)
{
  return 0;
}

// UCC has no thread of its own: a rank that is finished has to go on answering its peers, so it waits in UCC.
static int barrier(void)
{
  ucc_coll_args_t a = {.coll_type = UCC_COLL_TYPE_BARRIER};
  return run(&a) || ranks_barrier();
}

static void *buffer(size_t bytes)
{
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

static int run_rank(int number)
{
  rank = number;
  if (open_context() != 0 || make_team() != 0) {
    return 1;
  }
  return coll_obey(&lib, rank, nranks);
}

int main(int argc, char **argv)
{
  if (argc > 1) {
    nranks = atoi(argv[1]);
  }
  lib = (coll_library){.lacks = 1u << COLL_SEND_RECV,
                       .same_buffer = 1,
                       .call = call,
                       .settle = settle,
                       .barrier = barrier,
                       .buffer = buffer};
  return ranks_run(nranks, 0, run_rank);
}
