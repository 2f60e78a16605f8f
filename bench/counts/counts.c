// counts.c: small calls whose instructions bench/counts.sh counts. All of a case's measured calls are made inside
// counted(), so that callgrind is told what to count by a function's name (--toggle-collect, --dump-after) and no
// header of its own is needed.
//
//   counts one|two|shm|four    one rank; two ranks of this process; the same over the memory that ranks of several
//                              processes share; four ranks
//
// One thread issues for all ranks, so nobody waits and the same instructions run every time. The library's worker would
// look after a stream now and then, as the clock has it: it is held until all is counted. Each case is counted in
// several parts, which are alike (as many calls as a FIFO has slots). Prints a line per part, in the order of
// callgrind's dumps: the case's name, and how many calls of one rank were counted.
#define _GNU_SOURCE
#include "worker.h"

enum { WARM = 100, PARTS = 4, CALLS = 32, BURST = 8, RANKS = 4, LENGTHS = 1024, MOST = LENGTHS + 2 };

typedef struct world {
  int n;
  ncclComm_t comm[RANKS];
  cudaStream_t stream[RANKS];
  float in[RANKS][MOST], out[RANKS][MOST];
  unsigned turn[RANKS];
} world;

typedef ncclResult_t issue_fn(world *w, int rank);

typedef struct call_case {
  const char *name;
  issue_fn *issue;  // one rank's call
  int burst;        // calls of each rank before it waits
  const char *sets; // where the case is measured
} call_case;

// --- calls

static ncclResult_t all_reduce(world *w, int r)
{
  return ncclAllReduce(w->in[r], w->out[r], 2, ncclFloat32, ncclSum, w->comm[r], w->stream[r]);
}

// Of several lengths in turn, as programs have them.
static ncclResult_t all_reduce_varied(world *w, int r)
{
  size_t count = 2 + w->turn[r]++ % 4;
  return ncclAllReduce(w->in[r], w->out[r], count, ncclFloat32, ncclSum, w->comm[r], w->stream[r]);
}

// Of two lengths in turn, 8 and 64 bytes.
static ncclResult_t all_reduce_two(world *w, int r)
{
  size_t count = w->turn[r]++ % 2 == 0 ? 2 : 16;
  return ncclAllReduce(w->in[r], w->out[r], count, ncclFloat32, ncclSum, w->comm[r], w->stream[r]);
}

// Of two operations and two types in turn. The last of four is a sum of floats.
static ncclResult_t all_reduce_kinds(world *w, int r)
{
  unsigned turn = w->turn[r]++ % 4;
  return ncclAllReduce(w->in[r], w->out[r], 2, turn < 2 ? ncclInt32 : ncclFloat32, turn % 2 == 0 ? ncclMax : ncclSum,
                       w->comm[r], w->stream[r]);
}

// Of a length that was not seen lately: chosen anew, and by way of a plan.
static ncclResult_t all_reduce_new(world *w, int r)
{
  size_t count = 2 + w->turn[r]++ % LENGTHS;
  return ncclAllReduce(w->in[r], w->out[r], count, ncclFloat32, ncclSum, w->comm[r], w->stream[r]);
}

static ncclResult_t reduce_scatter(world *w, int r)
{
  return ncclReduceScatter(w->in[r], w->out[r], 2, ncclFloat32, ncclSum, w->comm[r], w->stream[r]);
}

static ncclResult_t all_gather(world *w, int r)
{
  return ncclAllGather(w->in[r], w->out[r], 2, ncclFloat32, w->comm[r], w->stream[r]);
}

static ncclResult_t broadcast(world *w, int r)
{
  return ncclBroadcast(w->in[r], w->out[r], 2, ncclFloat32, 0, w->comm[r], w->stream[r]);
}

static ncclResult_t reduce(world *w, int r)
{
  return ncclReduce(w->in[r], w->out[r], 2, ncclFloat32, ncclSum, 0, w->comm[r], w->stream[r]);
}

static ncclResult_t all_to_all(world *w, int r)
{
  return ncclAlltoAll(w->in[r], w->out[r], 2, ncclFloat32, w->comm[r], w->stream[r]);
}

// To the next rank, from the one before; with one rank to itself. Twice 8 bytes.
static ncclResult_t send_recv(world *w, int r)
{
  must(ncclGroupStart(), "ncclGroupStart");
  must(ncclSend(w->in[r], 2, ncclFloat32, (r + 1) % w->n, w->comm[r], w->stream[r]), "ncclSend");
  must(ncclRecv(w->out[r], 2, ncclFloat32, (r + w->n - 1) % w->n, w->comm[r], w->stream[r]), "ncclRecv");
  return ncclGroupEnd();
}

// From rank 0 to `peer`.
static ncclResult_t send_to(world *w, int r, int peer)
{
  if (r == 0) {
    return ncclSend(w->in[0], 2, ncclFloat32, peer, w->comm[0], w->stream[0]);
  }
  return r == peer ? ncclRecv(w->out[r], 2, ncclFloat32, 0, w->comm[r], w->stream[r]) : ncclSuccess;
}

static ncclResult_t send_one(world *w, int r)
{
  return send_to(w, r, 1);
}

// To the three others in turn.
static ncclResult_t send_three(world *w, int r)
{
  return send_to(w, r, 1 + (int)(w->turn[r]++ % 3));
}

static const call_case cases[] = {
    {"all_reduce", all_reduce, 1, "one two shm"},
    {"all_reduce_burst", all_reduce, BURST, "one two shm"},
    {"all_reduce_varied", all_reduce_varied, 1, "one two shm"},
    {"all_reduce_new", all_reduce_new, 1, "one two shm"},
    {"broadcast", broadcast, 1, "one two shm"},
    {"reduce", reduce, 1, "two shm"},
    {"reduce_scatter", reduce_scatter, 1, "two shm"},
    {"all_gather", all_gather, 1, "two shm"},
    {"all_to_all", all_to_all, 1, "two shm"},
    {"send_recv", send_recv, 1, "one two shm"},
    {"all_reduce_two", all_reduce_two, 1, "one two shm"},
    {"all_reduce_kinds", all_reduce_kinds, 1, "one two shm"},
    {"send_one", send_one, 1, "four"},
    {"send_three", send_three, 1, "four"},
};

// Each rank's call, together where there are several; after `burst` of them all wait.
static void call_all(const call_case *c, world *w, int calls)
{
  for (int i = 1; i <= calls; i++) {
    if (w->n > 1) {
      must(ncclGroupStart(), "ncclGroupStart");
    }
    for (int r = 0; r < w->n; r++) {
      must(c->issue(w, r), c->name);
    }
    if (w->n > 1) {
      must(ncclGroupEnd(), c->name);
    }
    for (int r = 0; r < w->n && i % c->burst == 0; r++) {
      must(tuttiStreamSynchronize(w->stream[r]), c->name);
    }
  }
}

// Never inlined nor copied: its name is what callgrind looks for.
void counted(const call_case *c, world *w, int calls);
__attribute__((noinline)) void counted(const call_case *c, world *w, int calls)
{
  call_all(c, w, calls);
  __asm__ volatile("" ::: "memory"); // not a tail call: the function ends after its calls
}

// Every rank has what the case gives it: what was counted is the real thing.
static void check(const call_case *c, const world *w)
{
  for (int r = 0; r < w->n; r++) {
    float want = w->in[r][0];
    if (strncmp(c->name, "all_reduce", 10) == 0 || (c->issue == reduce && r == 0)) {
      want = w->n == 1 ? w->in[0][0] : w->in[0][0] + w->in[1][0];
    } else if (c->issue == reduce) {
      continue; // only the root has a result
    } else if (c->issue == reduce_scatter) {
      want = w->in[0][2 * r] + w->in[1][2 * r];
    } else if (c->issue == send_one || c->issue == send_three) {
      want = r == 0 || (c->issue == send_one && r > 1) ? 0 : w->in[0][0];
    } else if (c->issue == broadcast || c->issue == all_gather) {
      want = w->in[0][0];
    } else if (c->issue == all_to_all) {
      want = w->in[0][2 * r];
    } else if (c->issue == send_recv) {
      want = w->in[(r + w->n - 1) % w->n][0];
    }
    if (w->out[r][0] != want) {
      fprintf(stderr, "counts: %s: rank %d has %g, not %g\n", c->name, r, (double)w->out[r][0], (double)want);
      exit(1);
    }
  }
}

static void open_world(world *w, int n)
{
  w->n = n;
  must(ncclCommInitAll(w->comm, n, NULL), "ncclCommInitAll");
  for (int r = 0; r < n; r++) {
    must(tuttiSetDevice(r), "tuttiSetDevice");
    must(tuttiStreamCreate(&w->stream[r], TUTTI_STREAM_NON_BLOCKING), "tuttiStreamCreate");
    for (int i = 0; i < MOST; i++) {
      w->in[r][i] = (float)(100 * r + i + 1);
    }
  }
}

// A call that its rank leaves behind: the worker begins, or it would do so later.
static void call_apart(world *w)
{
  for (int r = 0; r < w->n; r++) {
    must(all_reduce(w, r), "ncclAllReduce");
  }
  for (int r = 0; r < w->n; r++) {
    must(tuttiStreamSynchronize(w->stream[r]), "tuttiStreamSynchronize");
  }
}

static void close_world(world *w)
{
  for (int r = 0; r < w->n; r++) {
    must(ncclCommDestroy(w->comm[r]), "ncclCommDestroy");
    must(tuttiStreamDestroy(w->stream[r]), "tuttiStreamDestroy");
  }
}

int main(int argc, char **argv)
{
  static const char *const sets[] = {"one", "two", "shm", "four"};
  static const int ranks[] = {1, 2, 2, RANKS};
  const char *set = argc == 2 ? argv[1] : "";
  int k = 0;
  while (k < 4 && strcmp(set, sets[k]) != 0) {
    k++;
  }
  if (k == 4) {
    fprintf(stderr, "usage: counts one|two|shm|four\n");
    return 2;
  }
  if (strcmp(set, "shm") == 0) {
    setenv("NCCL_P2P_DISABLE", "1", 1);
  }
  static world w;
  open_world(&w, ranks[k]);
  call_apart(&w);
  if (await_worker(w.n > 1) < (w.n > 1)) {
    fprintf(stderr, "counts: the library's worker was not held (has its thread another name?): what is counted may "
                    "depend on the clock\n");
    return 1;
  }
  for (const call_case *c = cases; c < cases + sizeof cases / sizeof *cases; c++) {
    if (strstr(c->sets, set) != NULL) {
      memset(w.out, 0, sizeof w.out);
      call_all(c, &w, WARM);
      for (int part = 0; part < PARTS; part++) {
        counted(c, &w, CALLS);
        printf("%s/%s %d\n", set, c->name, CALLS * w.n);
      }
      check(c, &w);
    }
  }
  release_worker();
  close_world(&w);
  return 0;
}
