// coll_bench.c: the measuring core, the same for every library: buffers, checking, and the loop that takes the time.
#define _GNU_SOURCE
#include "coll_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../pin.h"

#define LINE 64
#define PATIENCE_S 60 // an order that takes longer ends the process, should the driver be gone

typedef struct runner {
  const coll_library *lib;
  int rank, nranks;
  float *in, *out;
  size_t buffer; // bytes of each
  size_t walked; // bytes of the walk through them so far: goes on from point to point
} runner;

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int has_parts(coll_kind kind)
{
  return kind == COLL_REDUCE_SCATTER || kind == COLL_ALL_GATHER || kind == COLL_ALL_TO_ALL;
}

static coll_call call_at(const runner *r, const coll_order *o, size_t offset)
{
  size_t floats = (size_t)o->bytes / sizeof(float);
  coll_call c = {
      .kind = (coll_kind)o->kind, .in = r->in + offset / sizeof(float), .out = r->out + offset / sizeof(float)};
  c.count = has_parts(c.kind) ? floats / (size_t)r->nranks : floats;
  if (c.kind == COLL_BROADCAST && r->lib->same_buffer) {
    c.in = c.out;
  }
  return c;
}

// Where the next call's buffers begin.
static size_t next_place(runner *r, const coll_order *o)
{
  if (!o->cold) {
    return 0;
  }
  size_t step = ((size_t)o->bytes + LINE - 1) / LINE * LINE;
  if (r->walked + step > r->buffer) {
    r->walked = 0;
  }
  size_t at = r->walked;
  r->walked += step;
  return at;
}

// Small integers: every sum is exact.
static float pattern(int rank, size_t i)
{
  return (float)(((uint32_t)i * 7 + (uint32_t)rank * 13) % 61);
}

static float expected(const runner *r, const coll_call *c, size_t i)
{
  int before = (r->rank + r->nranks - 1) % r->nranks;
  size_t mine = (size_t)r->rank * c->count;
  float sum = 0;
  switch (c->kind) {
  case COLL_ALL_GATHER: return pattern((int)(i / c->count), i % c->count);
  case COLL_ALL_TO_ALL: return pattern((int)(i / c->count), i % c->count + mine);
  case COLL_BROADCAST: return pattern(COLL_ROOT, i);
  case COLL_SEND_RECV: return pattern(before, i);
  default: break;
  }
  for (int k = 0; k < r->nranks; k++) {
    sum += pattern(k, i + (c->kind == COLL_REDUCE_SCATTER ? mine : 0));
  }
  return sum;
}

static size_t result_count(const runner *r, const coll_call *c)
{
  if (c->kind == COLL_REDUCE && r->rank != COLL_ROOT) {
    return 0;
  }
  return c->kind == COLL_ALL_GATHER || c->kind == COLL_ALL_TO_ALL ? c->count * (size_t)r->nranks : c->count;
}

// One call with known contents. Afterwards both buffers are small numbers again, whatever is summed up in them later.
static int check(runner *r, const coll_order *o, coll_answer *a)
{
  coll_call c = call_at(r, o, 0);
  size_t floats = (size_t)o->bytes / sizeof(float);
  memset(r->out, 0xff, (size_t)o->bytes);
  for (size_t i = 0; i < floats; i++) {
    r->in[i] = pattern(r->rank, i);
  }
  if (c.in == c.out && r->rank == COLL_ROOT) {
    memcpy(r->out, r->in, (size_t)o->bytes);
  }
  int res = r->lib->barrier();
  res = res ? res : r->lib->call(&c);
  res = res ? res : r->lib->settle();
  for (size_t i = 0; i < result_count(r, &c) && a->wrong < 1000; i++) {
    a->wrong += c.out[i] != expected(r, &c, i);
  }
  memset(r->out, 0, (size_t)o->bytes);
  return res ? res : r->lib->barrier();
}

// `calls` calls back to back, settled at the end (and after every batch).
static int run_block(runner *r, const coll_order *o, double *seconds)
{
  int res = r->lib->barrier();
  int64_t batch = r->lib->batch > 0 ? r->lib->batch : o->calls;
  double start = now();
  for (int64_t i = 0; i < o->calls && res == 0; i++) {
    coll_call c = call_at(r, o, next_place(r, o));
    res = r->lib->call(&c);
    if (res == 0 && (i + 1) % batch == 0) {
      res = r->lib->settle();
    }
  }
  res = res ? res : r->lib->settle();
  *seconds = (now() - start) / (double)o->calls;
  return res ? res : r->lib->barrier();
}

static int measure(runner *r, const coll_order *o, coll_answer *a)
{
  int res = 0;
  for (int i = 0; i < o->blocks && i < COLL_BLOCKS_MAX && res == 0; i++) {
    res = run_block(r, o, &a->seconds[i]);
  }
  return res;
}

static int connect_driver(void)
{
  const char *name = getenv(COLL_SOCKET_ENV);
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  if (name == NULL || strlen(name) > sizeof a.sun_path - 2) {
    fprintf(stderr, "coll_bench: %s is not set: this program is started by coll_drive\n", COLL_SOCKET_ENV);
    return -1;
  }
  memcpy(a.sun_path + 1, name, strlen(name));
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 ||
      connect(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))) != 0) {
    perror("coll_bench: cannot reach the driver");
    return -1;
  }
  return fd;
}

// Every page is written to, or reads would find the kernel's one page of zeros.
static int prepare(runner *r)
{
  const char *size = getenv(COLL_BUFFER_ENV);
  r->buffer = size == NULL ? 0 : strtoull(size, NULL, 0);
  r->in = r->buffer == 0 ? NULL : r->lib->buffer(r->buffer);
  r->out = r->in == NULL ? NULL : r->lib->buffer(r->buffer);
  if (r->out == NULL) {
    fprintf(stderr, "coll_bench: rank %d: no memory for two buffers of %zu bytes\n", r->rank, r->buffer);
    return 1;
  }
  memset(r->out, 0, r->buffer);
  for (size_t i = 0; i < r->buffer / sizeof(float); i++) {
    r->in[i] = pattern(r->rank, i);
  }
  return 0;
}

int coll_obey(const coll_library *lib, int rank, int nranks)
{
  runner r = {.lib = lib, .rank = rank, .nranks = nranks};
  int fd = connect_driver();
  if (fd < 0 || prepare(&r) != 0) {
    return 1;
  }
  bench_pin(rank);
  coll_answer a = {.rank = rank, .wrong = nranks};
  coll_order o;
  int res = 0;
  do {
    if (send(fd, &a, sizeof a, MSG_NOSIGNAL) != sizeof a) {
      return 1;
    }
    alarm(0);
    if (recv(fd, &o, sizeof o, MSG_WAITALL) != sizeof o || o.what == COLL_ORDER_END) {
      break;
    }
    alarm(PATIENCE_S);
    a = (coll_answer){.rank = rank};
    if (lib->lacks & 1u << o.kind) {
      a.wrong = COLL_LACKS;
      continue;
    }
    res = o.what == COLL_ORDER_CHECK ? check(&r, &o, &a) : measure(&r, &o, &a);
  } while (res == 0);
  alarm(PATIENCE_S); // for the end of the library
  close(fd);
  return res;
}
