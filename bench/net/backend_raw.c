// backend_raw.c: bare TCP sockets as one more library of the driver in bench/coll: what the libraries' columns are held against.
//
//   coll_raw [chunk KiB]     two ranks; all_reduce, and sendrecv, which is the plain exchange: each sends and receives the size at once.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "../coll/coll_bench.h"
#include "raw.h"

static raw_pair pair;

static int call(const coll_call *c)
{
  switch (c->kind) {
  case COLL_ALL_REDUCE: return raw_all_reduce(&pair, c->in, c->out, c->count);
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
  const coll_library lib = {.same_buffer = 1, .call = call, .settle = settle, .barrier = barrier, .buffer = buffer};
  size_t chunk = argc > 1 ? strtoul(argv[1], NULL, 0) << 10 : (size_t)256 << 10;
  if (chunk == 0 || raw_fork(&pair, 1, chunk) != 0) {
    fprintf(stderr, "usage: coll_raw [chunk KiB]\n");
    return 1;
  }
  pair.wait = RAW_SPIN_THEN_POLL;
  int res = coll_obey(&lib, pair.rank, 2);
  return raw_end(&pair) || res;
}
