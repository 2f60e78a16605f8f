// growth.c: many objects of a kind, n and 4n of them, whose instructions bench/counts.sh --growth counts: what a call
// costs must not grow with their number. As in counts.c: one thread issues for all ranks, the library's worker is held,
// and all that is counted happens inside counted(). Prints a line per part, in the order of callgrind's dumps: the
// case's name and the number of objects.
#define _GNU_SOURCE
#include "nccl/profiler_v5.h"
#include "worker.h"

enum { RANKS = 2, MOST = 8000 };

typedef struct world {
  ncclComm_t comm[RANKS];
  cudaStream_t stream[RANKS];
  int in[RANKS][MOST], out[RANKS][MOST];
} world;

static void wait_all(const world *w)
{
  for (int r = 0; r < RANKS; r++) {
    must(tuttiStreamSynchronize(w->stream[r]), "tuttiStreamSynchronize");
  }
}

// A group in which the ranks' all-reduces alternate.
static void group_of_all_reduces(world *w, int n)
{
  must(ncclGroupStart(), "ncclGroupStart");
  for (int i = 0; i < n; i++) {
    for (int r = 0; r < RANKS; r++) {
      must(ncclAllReduce(&w->in[r][i], &w->out[r][i], 1, ncclInt32, ncclSum, w->comm[r], w->stream[r]),
           "ncclAllReduce");
    }
  }
  must(ncclGroupEnd(), "ncclGroupEnd");
  wait_all(w);
}

// The same of messages to and from the other rank.
static void group_of_messages(world *w, int n)
{
  must(ncclGroupStart(), "ncclGroupStart");
  for (int i = 0; i < n; i++) {
    for (int r = 0; r < RANKS; r++) {
      must(ncclSend(&w->in[r][i], 1, ncclInt32, 1 - r, w->comm[r], w->stream[r]), "ncclSend");
      must(ncclRecv(&w->out[r][i], 1, ncclInt32, 1 - r, w->comm[r], w->stream[r]), "ncclRecv");
    }
  }
  must(ncclGroupEnd(), "ncclGroupEnd");
  wait_all(w);
}

// All of a rank's calls are queued before the other rank begins.
static void calls_queued(world *w, int n)
{
  for (int r = 0; r < RANKS; r++) {
    for (int i = 0; i < n; i++) {
      must(ncclAllReduce(&w->in[r][i], &w->out[r][i], 1, ncclInt32, ncclSum, w->comm[r], w->stream[r]),
           "ncclAllReduce");
    }
  }
  wait_all(w);
}

// What was registered first is deregistered first.
static void registrations(world *w, int n)
{
  static void *handles[MOST];
  for (int i = 0; i < n; i++) {
    must(ncclCommRegister(w->comm[0], &w->in[0][i], sizeof(int), &handles[i]), "ncclCommRegister");
  }
  for (int i = 0; i < n; i++) {
    must(ncclCommDeregister(w->comm[0], handles[i]), "ncclCommDeregister");
  }
}

static void windows(world *w, int n)
{
  static ncclWindow_t handles[MOST];
  for (int i = 0; i < n; i++) {
    void *p;
    must(ncclCommWindowRegister(w->comm[0], &w->in[0][i], sizeof(int), &handles[i], 0), "ncclCommWindowRegister");
    must(ncclWinGetUserPtr(w->comm[0], handles[i], &p), "ncclWinGetUserPtr");
  }
  for (int i = 0; i < n; i++) {
    must(ncclCommWindowDeregister(w->comm[0], handles[i]), "ncclCommWindowDeregister");
  }
}

// Made one after the other, dropped and made anew.
static void operators(world *w, int n)
{
  static ncclRedOp_t ops[MOST];
  float two = 2;
  for (int i = 0; i < n; i++) {
    must(ncclRedOpCreatePreMulSum(&ops[i], &two, ncclFloat32, ncclScalarHostImmediate, w->comm[0]),
         "ncclRedOpCreatePreMulSum");
  }
  for (int i = 0; i < n; i++) {
    must(ncclRedOpDestroy(ops[i], w->comm[0]), "ncclRedOpDestroy");
    must(ncclRedOpCreatePreMulSum(&ops[i], &two, ncclFloat32, ncclScalarHostImmediate, w->comm[0]),
         "ncclRedOpCreatePreMulSum");
  }
  for (int i = 0; i < n; i++) {
    must(ncclRedOpDestroy(ops[i], w->comm[0]), "ncclRedOpDestroy");
  }
}

// Communicators of one rank, made, asked, and destroyed in the same order.
static void communicators(world *w, int n)
{
  static ncclComm_t comms[MOST];
  (void)w;
  for (int i = 0; i < n; i++) {
    must(ncclCommInitAll(&comms[i], 1, NULL), "ncclCommInitAll");
  }
  for (int i = 0; i < n; i++) {
    ncclResult_t state = ncclInternalError;
    must(ncclCommGetAsyncError(comms[i], &state), "ncclCommGetAsyncError");
    must(state, "the communicator");
  }
  for (int i = 0; i < n; i++) {
    must(ncclCommDestroy(comms[i]), "ncclCommDestroy");
  }
}

// ---- the host device

static cudaStream_t streams[MOST];

// Streams that have each done something and are idle.
static void make_streams(int n, unsigned flags)
{
  for (int i = 0; i < n; i++) {
    must(tuttiStreamCreate(&streams[i], flags), "tuttiStreamCreate");
    must(tuttiMemsetAsync(&streams[i], 0, 0, streams[i]), "tuttiMemsetAsync");
  }
}

static void drop_streams(int n)
{
  for (int i = 0; i < n; i++) {
    must(tuttiStreamDestroy(streams[i]), "tuttiStreamDestroy");
  }
}

// What was made first is destroyed first, and made anew.
static void many_streams(world *w, int n)
{
  (void)w;
  make_streams(n, TUTTI_STREAM_NON_BLOCKING);
  for (int i = 0; i < n; i++) {
    must(tuttiStreamSynchronize(streams[i]), "tuttiStreamSynchronize");
    must(tuttiStreamDestroy(streams[i]), "tuttiStreamDestroy");
    must(tuttiStreamCreate(&streams[i], TUTTI_STREAM_NON_BLOCKING), "tuttiStreamCreate");
  }
  drop_streams(n);
}

// Rank 0 asks in vain for its all-reduce, and helps others each time, until rank 1 has come.
static void queries_beside_idle(world *w, int n)
{
  make_streams(n, TUTTI_STREAM_NON_BLOCKING);
  must(ncclAllReduce(&w->in[0][0], &w->out[0][0], 1, ncclInt32, ncclSum, w->comm[0], w->stream[0]), "ncclAllReduce");
  for (int i = 0; i < n; i++) {
    if (tuttiStreamQuery(w->stream[0]) != ncclInProgress) {
      fprintf(stderr, "growth: an all-reduce of one rank was over before the other rank began\n");
      exit(1);
    }
  }
  must(ncclAllReduce(&w->in[1][0], &w->out[1][0], 1, ncclInt32, ncclSum, w->comm[1], w->stream[1]), "ncclAllReduce");
  wait_all(w);
  drop_streams(n);
}

static void device_beside_idle(world *w, int n)
{
  (void)w;
  make_streams(n, TUTTI_STREAM_NON_BLOCKING);
  for (int i = 0; i < n; i++) {
    must(tuttiDeviceSynchronize(), "tuttiDeviceSynchronize");
  }
  drop_streams(n);
}

// What the legacy default stream does is ordered with all blocking streams.
static void legacy_beside_idle(world *w, int n)
{
  make_streams(n, TUTTI_STREAM_DEFAULT);
  for (int i = 0; i < n; i++) {
    must(tuttiMemsetAsync(&w->out[0][i], 0, sizeof(int), NULL), "tuttiMemsetAsync");
  }
  drop_streams(n);
}

static void events_of(world *w, int n, unsigned flags)
{
  static tuttiEvent_t events[MOST];
  for (int i = 0; i < n; i++) {
    must(tuttiEventCreateWithFlags(&events[i], flags), "tuttiEventCreateWithFlags");
    must(tuttiEventRecord(events[i], w->stream[0]), "tuttiEventRecord");
  }
  for (int i = 0; i < n; i++) {
    must(tuttiStreamWaitEvent(w->stream[1], events[i]), "tuttiStreamWaitEvent");
    must(tuttiEventSynchronize(events[i]), "tuttiEventSynchronize");
    must(tuttiEventDestroy(events[i]), "tuttiEventDestroy");
  }
}

static void events(world *w, int n)
{
  events_of(w, n, TUTTI_EVENT_DISABLE_TIMING);
}

static void shared_events(world *w, int n)
{
  events_of(w, n, TUTTI_EVENT_DISABLE_TIMING | TUTTI_EVENT_INTERPROCESS);
}

static void *blocks[MOST];

static void look_up(int n)
{
  for (int i = 0; i < n; i++) {
    tuttiPointerAttributes_t a;
    must(tuttiPointerGetAttributes(&a, blocks[i]), "tuttiPointerGetAttributes");
    if (a.base != blocks[i]) {
      fprintf(stderr, "growth: memory at %p is said to begin at %p\n", blocks[i], a.base);
      exit(1);
    }
  }
}

static void allocations(world *w, int n)
{
  (void)w;
  for (int i = 0; i < n; i++) {
    must(tuttiMalloc(&blocks[i], 1), "tuttiMalloc");
  }
  look_up(n);
  for (int i = 0; i < n; i++) {
    must(tuttiFree(blocks[i]), "tuttiFree");
  }
}

static void host_registrations(world *w, int n)
{
  for (int i = 0; i < n; i++) {
    blocks[i] = &w->in[0][i];
    must(tuttiHostRegister(blocks[i], sizeof(int), 0), "tuttiHostRegister");
  }
  look_up(n);
  for (int i = 0; i < n; i++) {
    must(tuttiHostUnregister(blocks[i]), "tuttiHostUnregister");
  }
}

// Each has a descriptor.
static void shareable_allocations(world *w, int n)
{
  (void)w;
  for (int i = 0; i < n; i++) {
    must(ncclMemAlloc(&blocks[i], 1), "ncclMemAlloc");
  }
  look_up(n);
  for (int i = 0; i < n; i++) {
    must(ncclMemFree(blocks[i]), "ncclMemFree");
  }
}

// Made by this process and, as far as the library can see, by another one: the end of a handle is the number of the
// process that made it.
static tuttiIpcMemHandle_t strange_handle(const void *p)
{
  tuttiIpcMemHandle_t h;
  must(tuttiIpcGetMemHandle(&h, p), "tuttiIpcGetMemHandle");
  ((unsigned char *)&h)[sizeof h - 1] ^= 1;
  return h;
}

// Opened many times each, and closed in the same order.
static void opened_handles(world *w, int n)
{
  enum { TIMES = 20 };
  static tuttiIpcMemHandle_t handles[MOST];
  static void *opened[MOST], *again;
  (void)w;
  for (int i = 0; i < n; i++) {
    must(tuttiMalloc(&blocks[i], 1), "tuttiMalloc");
    handles[i] = strange_handle(blocks[i]);
    must(tuttiIpcOpenMemHandle(&opened[i], &handles[i]), "tuttiIpcOpenMemHandle");
  }
  for (int i = 0; i < n * TIMES; i++) {
    must(tuttiIpcOpenMemHandle(&again, &handles[i % n]), "tuttiIpcOpenMemHandle");
    if (again != opened[i % n]) {
      fprintf(stderr, "growth: memory that was opened at %p is at %p, too\n", opened[i % n], again);
      exit(1);
    }
  }
  for (int i = 0; i < n * (TIMES + 1); i++) {
    must(tuttiIpcCloseMemHandle(opened[i % n]), "tuttiIpcCloseMemHandle");
  }
  for (int i = 0; i < n; i++) {
    must(tuttiFree(blocks[i]), "tuttiFree");
  }
}

// As many captures at a time, each with an event that its stream waits for, beside calls that captures could forbid.
static void captures(world *w, int n)
{
  static tuttiEvent_t seen[MOST];
  tuttiGraph_t graph;
  make_streams(n, TUTTI_STREAM_NON_BLOCKING);
  for (int i = 0; i < n; i++) {
    must(tuttiStreamBeginCapture(streams[i], tuttiCaptureRelaxed), "tuttiStreamBeginCapture");
    must(tuttiEventCreateWithFlags(&seen[i], TUTTI_EVENT_DISABLE_TIMING), "tuttiEventCreateWithFlags");
    must(tuttiMemsetAsync(&w->out[0][i], 0, sizeof(int), streams[i]), "tuttiMemsetAsync");
    must(tuttiEventRecord(seen[i], streams[i]), "tuttiEventRecord");
  }
  for (int i = 0; i < n; i++) {
    must(tuttiStreamWaitEvent(streams[i], seen[i]), "tuttiStreamWaitEvent");
    must(tuttiMemsetAsync(&w->out[1][i], 0, sizeof(int), NULL), "tuttiMemsetAsync");
    must(tuttiCaptureAllows("growth"), "tuttiCaptureAllows");
  }
  for (int i = 0; i < n; i++) {
    must(tuttiStreamEndCapture(streams[i], &graph), "tuttiStreamEndCapture");
    must(tuttiGraphDestroy(graph), "tuttiGraphDestroy");
    must(tuttiEventDestroy(seen[i]), "tuttiEventDestroy");
  }
  drop_streams(n);
}

// One capture into which as many streams go, of which the last one is joined first. Its graph is launched twice.
static void capture_of_streams(world *w, int n)
{
  static tuttiEvent_t begun, done[MOST];
  tuttiGraph_t graph;
  tuttiGraphExec_t exec;
  make_streams(n, TUTTI_STREAM_NON_BLOCKING);
  must(tuttiEventCreateWithFlags(&begun, TUTTI_EVENT_DISABLE_TIMING), "tuttiEventCreateWithFlags");
  must(tuttiStreamBeginCapture(w->stream[0], tuttiCaptureRelaxed), "tuttiStreamBeginCapture");
  must(tuttiEventRecord(begun, w->stream[0]), "tuttiEventRecord");
  for (int i = 0; i < n; i++) {
    must(tuttiEventCreateWithFlags(&done[i], TUTTI_EVENT_DISABLE_TIMING), "tuttiEventCreateWithFlags");
    must(tuttiStreamWaitEvent(streams[i], begun), "tuttiStreamWaitEvent");
    must(tuttiMemsetAsync(&w->out[0][i], 1, sizeof(int), streams[i]), "tuttiMemsetAsync");
    must(tuttiEventRecord(done[i], streams[i]), "tuttiEventRecord");
  }
  for (int i = n; i-- > 0;) {
    must(tuttiStreamWaitEvent(w->stream[0], done[i]), "tuttiStreamWaitEvent");
    must(tuttiEventDestroy(done[i]), "tuttiEventDestroy");
  }
  must(tuttiEventDestroy(begun), "tuttiEventDestroy");
  must(tuttiStreamEndCapture(w->stream[0], &graph), "tuttiStreamEndCapture");
  must(tuttiGraphInstantiate(&exec, graph), "tuttiGraphInstantiate");
  for (int i = 0; i < 2; i++) {
    must(tuttiGraphLaunch(exec, w->stream[0]), "tuttiGraphLaunch");
    must(tuttiStreamSynchronize(w->stream[0]), "tuttiStreamSynchronize");
  }
  must(tuttiGraphExecDestroy(exec), "tuttiGraphExecDestroy");
  must(tuttiGraphDestroy(graph), "tuttiGraphDestroy");
  drop_streams(n);
}

static bool is_set(const world *w, int i)
{
  return w->out[0][i] == 0x01010101;
}

static bool sums(const world *w, int i)
{
  return w->out[0][i] == w->in[0][i] + w->in[1][i] && w->out[1][i] == w->out[0][i];
}

static bool others(const world *w, int i)
{
  return w->out[0][i] == w->in[1][i] && w->out[1][i] == w->in[0][i];
}

typedef struct growth_case {
  const char *name;
  void (*run)(world *w, int n);
  bool (*good)(const world *w, int i); // the i-th result; NULL: there is none
  int n;
} growth_case;

static const growth_case cases[] = {
    {"group_of_all_reduces", group_of_all_reduces, sums, 1000},
    {"group_of_messages", group_of_messages, others, 1000},
    {"calls_queued", calls_queued, sums, 1000},
    {"registrations", registrations, NULL, 2000},
    {"windows", windows, NULL, 2000},
    {"operators", operators, NULL, 2000},
    {"communicators", communicators, NULL, 50},
    {"queries_beside_idle", queries_beside_idle, NULL,
     250}, // streams are used again: each of these cases wants more of them than those before
    {"device_beside_idle", device_beside_idle, NULL, 500},
    {"legacy_beside_idle", legacy_beside_idle, NULL, 1000},
    {"streams", many_streams, NULL, 2000},
    {"events", events, NULL, 2000},
    {"shared_events", shared_events, NULL, 2000},
    {"allocations", allocations, NULL, 2000},
    {"host_registrations", host_registrations, NULL, 2000},
    {"shareable_allocations", shareable_allocations, NULL, 300},
    {"opened_handles", opened_handles, NULL, 200},
    {"captures", captures, NULL, 1000},
    {"capture_of_streams", capture_of_streams, is_set, 1000},
};

static const growth_case watched_cases[] = {
    {"watched_messages", group_of_messages, others, 2000},
};

// ---- a profiler in the program, which wants to know of operations and their channels

static ncclResult_t profiler_init(void **context, uint64_t comm, int *mask, const char *name, int nodes, int ranks,
                                  int rank, ncclDebugLogger_t log)
{
  (void)comm, (void)name, (void)nodes, (void)ranks, (void)rank, (void)log;
  *context = NULL;
  *mask = ncclProfileP2p | ncclProfileKernelCh;
  return ncclSuccess;
}

static ncclResult_t profiler_start(void *context, void **event, ncclProfilerEventDescr_v5_t *d)
{
  static char some;
  (void)context, (void)d;
  *event = &some;
  return ncclSuccess;
}

static ncclResult_t profiler_stop(void *event)
{
  (void)event;
  return ncclSuccess;
}

static ncclResult_t profiler_state(void *event, ncclProfilerEventState_v5_t state,
                                   ncclProfilerEventStateArgs_v5_t *args)
{
  (void)event, (void)state, (void)args;
  return ncclSuccess;
}

static ncclResult_t profiler_finalize(void *context)
{
  (void)context;
  return ncclSuccess;
}

extern const ncclProfiler_v5_t ncclProfiler_v5;
__attribute__((visibility("default"))) const ncclProfiler_v5_t ncclProfiler_v5 = {.name = "growth",
                                                                                  .init = profiler_init,
                                                                                  .startEvent = profiler_start,
                                                                                  .stopEvent = profiler_stop,
                                                                                  .recordEventState = profiler_state,
                                                                                  .finalize = profiler_finalize};

// Never inlined nor copied: its name is what callgrind looks for.
void counted(const growth_case *c, world *w, int n);
__attribute__((noinline)) void counted(const growth_case *c, world *w, int n)
{
  c->run(w, n);
  __asm__ volatile("" ::: "memory"); // not a tail call: the function ends after its calls
}

static void measure(const growth_case *c, world *w, int n)
{
  memset(w->out, 0, sizeof w->out);
  counted(c, w, n);
  printf("%s %d\n", c->name, n);
  for (int i = 0; i < n && c->good != NULL; i++) {
    if (!c->good(w, i)) {
      fprintf(stderr, "growth: %s of %d: the ranks have %d and %d as result %d\n", c->name, n, w->out[0][i],
              w->out[1][i], i);
      exit(1);
    }
  }
}

static void open_world(world *w)
{
  must(ncclCommInitAll(w->comm, RANKS, NULL), "ncclCommInitAll");
  for (int r = 0; r < RANKS; r++) {
    must(tuttiSetDevice(r), "tuttiSetDevice");
    must(tuttiStreamCreate(&w->stream[r], TUTTI_STREAM_NON_BLOCKING), "tuttiStreamCreate");
    for (int i = 0; i < MOST; i++) {
      w->in[r][i] = 10 * i + r + 1;
    }
  }
}

static void close_world(world *w)
{
  for (int r = 0; r < RANKS; r++) {
    must(ncclCommDestroy(w->comm[r]), "ncclCommDestroy");
    must(tuttiStreamDestroy(w->stream[r]), "tuttiStreamDestroy");
  }
}

// growth: all cases but the watched ones; growth watched: these, with a profiler.
int main(int argc, char **argv)
{
  static world w;
  bool watched = argc > 1 && strcmp(argv[1], "watched") == 0;
  const growth_case *from = watched ? watched_cases : cases;
  size_t count = watched ? sizeof watched_cases / sizeof *cases : sizeof cases / sizeof *cases;
  if (watched) {
    setenv("NCCL_PROFILER_PLUGIN", "STATIC_PLUGIN", 1);
  }
  open_world(&w);
  calls_queued(&w, 1); // the worker begins
  if (await_worker(1) < 1) {
    fprintf(stderr, "growth: the library's worker was not held (has its thread another name?): what is counted may "
                    "depend on the clock\n");
    return 1;
  }
  for (const growth_case *c = from; c < from + count; c++) {
    c->run(&w, c->n); // what is done once
    measure(c, &w, c->n);
    measure(c, &w, 4 * c->n);
  }
  release_worker();
  close_world(&w);
  return 0;
}
