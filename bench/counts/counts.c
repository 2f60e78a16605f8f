// counts.c: small calls whose instructions bench/counts.sh counts. All of a case's measured calls are made inside
// counted(), so that callgrind is told what to count by a function's name (--toggle-collect, --dump-after) and no
// header of its own is needed.
//
//   counts SET    one: one rank; two: two ranks of this process; shm: the same over the memory that ranks of several
//                 processes share; four: four ranks; queue4, queue8: four and eight that share two cores and call one
//                 by one, so that their calls go through queues, as plans
//
// One thread issues for all ranks, so nobody waits and the same instructions run every time. The library's worker would
// look after a stream now and then, as the clock has it: it is held until all is counted. Each case is counted in
// several parts, which are alike (as many calls as a FIFO has slots). Prints a line per part, in the order of
// callgrind's dumps: the case's name, and how many calls of one rank were counted.
#define _GNU_SOURCE
#include <sched.h>

#include "worker.h"

enum { WARM = 100, PARTS = 4, CALLS = 32, BURST = 8, RANKS = 8, CORES = 2, LENGTHS = 1024, MOST = LENGTHS + 2 };

typedef struct world {
  int n;
  bool queued; // calls go through queues
  ncclComm_t comm[RANKS];
  cudaStream_t stream[RANKS];
  float in[RANKS][MOST], out[RANKS][MOST];
  unsigned turn[RANKS];
  float *memory[RANKS]; // of the windows
  ncclWindow_t window[RANKS];
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

// The root of a reduce: where calls are queued, the rank that calls first.
static int root_of_reduce(const world *w)
{
  return w->queued ? w->n - 1 : 0;
}

static ncclResult_t reduce(world *w, int r)
{
  return ncclReduce(w->in[r], w->out[r], 2, ncclFloat32, ncclSum, root_of_reduce(w), w->comm[r], w->stream[r]);
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

static void open_windows(world *w)
{
  for (int r = 0; r < w->n; r++) {
    must(ncclMemAlloc((void **)&w->memory[r], 4096), "ncclMemAlloc");
    w->memory[r][0] = w->in[r][0];
    must(ncclCommWindowRegister(w->comm[r], w->memory[r], 4096, &w->window[r], NCCL_WIN_DEFAULT),
         "ncclCommWindowRegister");
  }
}

// To the other rank; when all have put, each waits for its own.
static ncclResult_t put_wait(world *w, int r)
{
  if (w->window[r] == NULL) {
    open_windows(w);
  }
  must(ncclPutSignal(w->memory[r], 2, ncclFloat32, 1 - r, w->window[r], 2048, 0, 0, 0, w->comm[r], w->stream[r]),
       "ncclPutSignal");
  for (int i = 0; i < w->n && r == w->n - 1; i++) {
    ncclWaitSignalDesc_t d = {.opCnt = 1, .peer = 1 - i, .sigIdx = 0, .ctx = 0};
    must(ncclWaitSignal(1, &d, w->comm[i], w->stream[i]), "ncclWaitSignal");
    w->out[i][0] = w->memory[i][512];
  }
  return ncclSuccess;
}

static const call_case cases[] = {
    {"all_reduce", all_reduce, 1, "one two shm"},
    {"all_reduce_burst", all_reduce, BURST, "one two shm"},
    {"all_reduce_varied", all_reduce_varied, 1, "one two shm"},
    {"all_reduce_new", all_reduce_new, 1, "one two shm"},
    {"broadcast", broadcast, 1, "one two shm queue4 queue8"},
    {"reduce", reduce, 1, "two shm queue4 queue8"},
    {"reduce_scatter", reduce_scatter, 1, "two shm queue4 queue8"},
    {"all_gather", all_gather, 1, "two shm queue4 queue8"},
    {"all_to_all", all_to_all, 1, "two shm queue4 queue8"},
    {"send_recv", send_recv, 1, "one two shm queue4 queue8"},
    {"all_reduce_two", all_reduce_two, 1, "one two shm"},
    {"all_reduce_kinds", all_reduce_kinds, 1, "one two shm"},
    {"send_one", send_one, 1, "four"},
    {"send_three", send_three, 1, "four"},
    {"put_wait", put_wait, 1, "two shm"}, // the last: the others have no windows
};

// Moves what is queued, the ranks' streams in turn, until nothing is. A thread that waited instead would make the next
// call wait inside.
static void poll_all(const world *w)
{
  int idle = 0;
  for (int r = 0; idle < w->n; r = (r + 1) % w->n) {
    ncclResult_t res = tuttiStreamQuery(w->stream[r]);
    idle = res == ncclSuccess ? idle + 1 : 0;
    must(res == ncclInProgress ? ncclSuccess : res, "tuttiStreamQuery");
  }
}

// Each rank's call, and what it takes until they are over, one after the other: those that others must answer go first.
static void call_apart(const call_case *c, world *w, int calls)
{
  for (int i = 0; i < calls; i++) {
    for (int r = w->n; r-- > 0;) {
      must(c->issue(w, r), c->name);
    }
    poll_all(w);
  }
}

// Each rank's call, in a group where there are several and one waits for others; after `burst` of them all wait.
static void call_together(const call_case *c, world *w, int calls)
{
  bool group = w->n > 1 && c->issue != put_wait;
  for (int i = 1; i <= calls; i++) {
    if (group) {
      must(ncclGroupStart(), "ncclGroupStart");
    }
    for (int r = 0; r < w->n; r++) {
      must(c->issue(w, r), c->name);
    }
    if (group) {
      must(ncclGroupEnd(), c->name);
    }
    for (int r = 0; r < w->n && i % c->burst == 0; r++) {
      must(tuttiStreamSynchronize(w->stream[r]), c->name);
    }
  }
}

static void call_all(const call_case *c, world *w, int calls)
{
  (w->queued ? call_apart : call_together)(c, w, calls);
}

// Never inlined nor copied: its name is what callgrind looks for.
void counted(const call_case *c, world *w, int calls);
__attribute__((noinline)) void counted(const call_case *c, world *w, int calls)
{
  call_all(c, w, calls);
  __asm__ volatile("" ::: "memory"); // not a tail call: the function ends after its calls
}

static float sum_of_inputs(const world *w, int element)
{
  float sum = 0;
  for (int r = 0; r < w->n; r++) {
    sum += w->in[r][element];
  }
  return sum;
}

// Every rank has what the case gives it: what was counted is the real thing.
static void check(const call_case *c, const world *w)
{
  for (int r = 0; r < w->n; r++) {
    float want = w->in[r][0];
    if (strncmp(c->name, "all_reduce", 10) == 0 || (c->issue == reduce && r == root_of_reduce(w))) {
      want = sum_of_inputs(w, 0);
    } else if (c->issue == reduce) {
      continue; // only the root has a result
    } else if (c->issue == reduce_scatter) {
      want = sum_of_inputs(w, 2 * r);
    } else if (c->issue == send_one || c->issue == send_three) {
      want = r == 0 || (c->issue == send_one && r > 1) ? 0 : w->in[0][0];
    } else if (c->issue == broadcast || c->issue == all_gather) {
      want = w->in[0][0];
    } else if (c->issue == all_to_all) {
      want = w->in[0][2 * r];
    } else if (c->issue == send_recv || c->issue == put_wait) {
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
static void call_behind(world *w)
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

// The process and its threads run on so many cores from now on, of those that it may use.
static void keep_cores(int n)
{
  cpu_set_t all, few;
  CPU_ZERO(&few);
  if (sched_getaffinity(0, sizeof all, &all) == 0) {
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&few) < n; i++) {
      if (CPU_ISSET(i, &all)) {
        CPU_SET(i, &few);
      }
    }
    must(sched_setaffinity(0, sizeof few, &few) == 0 ? ncclSuccess : ncclSystemError, "sched_setaffinity");
  }
}

int main(int argc, char **argv)
{
  static const char *const sets[] = {"one", "two", "shm", "four", "queue4", "queue8"};
  static const int ranks[] = {1, 2, 2, 4, 4, RANKS};
  const char *set = argc == 2 ? argv[1] : "";
  int k = 0;
  while (k < 6 && strcmp(set, sets[k]) != 0) {
    k++;
  }
  if (k == 6) {
    fprintf(stderr, "usage: counts one|two|shm|four|queue4|queue8\n");
    return 2;
  }
  if (strcmp(set, "shm") == 0) {
    setenv("NCCL_P2P_DISABLE", "1", 1);
  }
  static world w;
  w.queued = strncmp(set, "queue", 5) == 0;
  if (w.queued) {
    keep_cores(CORES);
  }
  open_world(&w, ranks[k]);
  call_behind(&w);
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
