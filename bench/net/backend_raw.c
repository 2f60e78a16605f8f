// backend_raw.c: bare TCP sockets as one more library of the driver in bench/coll: what the libraries' columns are held
// against.
//
//   coll_raw [chunk KiB]     two ranks; all_reduce, all_gather, alltoall, broadcast, and sendrecv, which is the plain
//                            exchange: each sends and receives the size at once.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../coll/coll_bench.h"
#include "raw.h"

static raw_pair pair;

// The other end's block comes to its place, mine goes there. All-gather: the block is the input; all-to-all: it is the
// other end's part of it.
static int blocks(const coll_call *c, int all_to_all)
{
  size_t bytes = c->count * sizeof(float), mine = (size_t)pair.rank * c->count,
         theirs = (size_t)(1 - pair.rank) * c->count;
  memcpy(c->out + mine, c->in + (all_to_all ? mine : 0), bytes);
  return raw_exchange(&pair, c->in + (all_to_all ? theirs : 0), c->out + theirs, bytes);
}

static int broadcast(const coll_call *c)
{
  size_t bytes = c->count * sizeof(float);
  return raw_move(&pair, c->in, pair.rank == COLL_ROOT ? bytes : 0, c->out, pair.rank == COLL_ROOT ? 0 : bytes);
}

static int call(const coll_call *c)
{
  switch (c->kind) {
  case COLL_ALL_REDUCE: return raw_all_reduce(&pair, c->in, c->out, c->count);
  case COLL_ALL_GATHER: return blocks(c, 0);
  case COLL_ALL_TO_ALL: return blocks(c, 1);
  case COLL_BROADCAST: return broadcast(c);
  case COLL_SEND_RECV: return raw_exchange(&pair, c->in, c->out, c->count * sizeof(float));
  default: fprintf(stderr, "coll_raw: no such collective here\n"); return 1;
  }
}

static int settle(void)
{
  return 0;
}

static int barrier(void)
{
  return raw_ping_pong(&pair, 1, 1);
}

static void *buffer(size_t bytes)
{
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

int main(int argc, char **argv)
{
  const coll_library lib = {.lacks = 1u << COLL_REDUCE_SCATTER | 1u << COLL_REDUCE,
                            .same_buffer = 1,
                            .call = call,
                            .settle = settle,
                            .barrier = barrier,
                            .buffer = buffer};
  size_t chunk = argc > 1 ? strtoul(argv[1], NULL, 0) << 10 : (size_t)256 << 10;
  if (chunk == 0 || raw_fork(&pair, 1, chunk) != 0) {
    fprintf(stderr, "usage: coll_raw [chunk KiB]\n");
    return 1;
  }
  pair.wait = RAW_SPIN_THEN_POLL;
  int res = coll_obey(&lib, pair.rank, 2);
  return raw_end(&pair) || res;
}
