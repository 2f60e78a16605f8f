// cuda_profiler_test.c: what profilers are told of ranks on GPUs: each operation's channels, below their operation,
// when they have run by the GPU's clock (the driver for tests has one that is far ahead of the host's); nothing where
// nobody asks; each start with its stop, whatever becomes of the operation.
#include "cuda_windows.h"
#include "profiler_rig.h"

#include "cudasim/ptx/ptx.h"

enum { MOST_EVENTS = 512, MOST_OPS = 32, BURST = 3, SMALL = 48, LARGE = HALF / 4, NO_KERNELS = 0xf3f };

// The time of the driver's GPUs.
static uint64_t gpu_now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return PTX_TIME_AHEAD + (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// ---- What the recorder has written ----

// A channel, or a phase of one.
typedef struct told_channel {
  int number, parent, rank, channel;
  char below[8]; // kind of the parent
  uint64_t start, stop;
  int stops;
} told_channel;

typedef struct told_op {
  int number, rank, channels;
  bool message;
} told_op;

typedef struct told {
  told_channel of[MOST_EVENTS];
  told_op ops[MOST_EVENTS];
  int n, nops;
} told;

static char *read_record(int rank, int version)
{
  char *text = record(rank, version);
  CHECK(strstr(text, "ERROR") == NULL, "%s", text);
  CHECK(count_lines(text, "start ") > 0, "version %d is told nothing", version);
  CHECK(count_lines(text, "start ") == count_lines(text, "stop "), "%s", text);
  CHECK(count_lines(text, "init") == count_lines(text, "finalize"), "%s", text);
  return text;
}

static void note_op(told *t, const char *line)
{
  told_op *o = &t->ops[t->nops];
  const char *channels = strstr(line, " channels="), *end = line_end(line);
  const bool coll = sscanf(line, "start Coll#%d parent=%*s rank=%d", &o->number, &o->rank) == 2;
  if ((coll || sscanf(line, "start P2p#%d parent=%*s rank=%d", &o->number, &o->rank) == 2) && channels != NULL &&
      channels < end) {
    o->channels = atoi(channels + strlen(" channels="));
    o->message = !coll;
    t->nops++;
    CHECK(t->nops < MOST_EVENTS, "too many operations");
  }
}

// Notes all events of one kind, "KernelCh" or "KernelPhase", and all operations.
static void read_told(const char *text, const char *kind, told *t)
{
  char start[96], state[64], stop[64];
  snprintf(start, sizeof start, "start %s#%%d parent=%%7[A-Za-z0-9]#%%d rank=%%d channel=%%d", kind);
  snprintf(state, sizeof state, "state %s#%%d %sStop timer=%%llu", kind, kind);
  snprintf(stop, sizeof stop, "stop %s#%%d", kind);
  memset(t, 0, sizeof *t);
  for (const char *line = text; *line != '\0'; line = line_end(line) + 1) {
    told_channel c = {.stops = 0};
    unsigned long long ns = 0;
    const char *timer = strstr(line, " timer=");
    note_op(t, line);
    if (sscanf(line, start, &c.number, c.below, &c.parent, &c.rank, &c.channel) == 5) {
      CHECK(timer != NULL && c.number == t->n + 1 && t->n < MOST_EVENTS, "%.100s", line);
      c.start = strtoull(timer + strlen(" timer="), NULL, 10);
      t->of[t->n++] = c;
    } else if (sscanf(line, state, &c.number, &ns) == 2) {
      t->of[c.number - 1].stop = ns;
    } else if (sscanf(line, stop, &c.number) == 1) {
      t->of[c.number - 1].stops++;
    }
  }
}

// When the program has had operations under way.
typedef struct span {
  uint64_t from, to;
} span;

static span spans[MOST_OPS];
static int nspans;

// An operation has its channels, each once, stopped once, and within the time. *ran: from the first one's start to the
// last one's stop.
static void check_channels(const told *t, const told_op *o, const span *s, span *ran)
{
  uint64_t seen = 0;
  int n = 0;
  *ran = (span){UINT64_MAX, 0};
  for (int i = 0; i < t->n; i++) {
    const told_channel *c = &t->of[i];
    if (c->parent != o->number || strcmp(c->below, o->message ? "P2p" : "Coll") != 0) {
      continue;
    }
    CHECK(c->rank == o->rank && (seen >> c->channel & 1) == 0 && c->stops == 1, "KernelCh#%d", c->number);
    CHECK(c->start >= s->from && c->start <= c->stop && c->stop <= s->to,
          "KernelCh#%d of rank %d: %lld to %lld ns after the call, which took %lld ns", c->number, c->rank,
          (long long)(c->start - s->from), (long long)(c->stop - s->from), (long long)(s->to - s->from));
    seen |= UINT64_C(1) << c->channel;
    ran->from = TT_MIN(ran->from, c->start);
    ran->to = TT_MAX(ran->to, c->stop);
    n++;
  }
  CHECK(n == o->channels, "%s#%d of rank %d has %d channels, and %d were told", o->message ? "P2p" : "Coll", o->number,
        o->rank, o->channels, n);
}

// Of each rank the i-th operation ran in spans[i], and not before the one before had ended. Messages of one group may
// run side by side.
static void check_told(const told *t, int nops)
{
  for (int r = first; r < last; r++) {
    uint64_t ended = 0;
    span ran;
    int n = 0;
    for (int i = 0; i < t->nops; i++) {
      const told_op *o = &t->ops[i];
      if (o->rank == r) {
        CHECK(n < nops, "rank %d: an operation too much", r);
        check_channels(t, o, &spans[n++], &ran);
        CHECK(o->message || ran.from >= ended, "%d of rank %d begins before the last one has ended", o->number, r);
        ended = TT_MAX(ended, ran.to);
      }
    }
    CHECK(n == nops, "rank %d: %d operations of %d", r, n, nops);
  }
}

// ---- Operations ----

typedef enum { ALLREDUCE, BROADCAST, ALLGATHER, REDUCESCATTER, ALLTOALL, GATHER, REDUCE, KINDS_OF_CALLS } call_kind;

static void call(call_kind kind, int r, size_t bytes)
{
  const side *s = &sides[r];
  const cudaStream_t stream = stream_of(r);
  const size_t part = bytes / (size_t)nranks;
  unsigned char *in = s->memory, *out = s->memory + HALF;
  switch (kind) {
  case ALLREDUCE: OK(ncclAllReduce(in, out, bytes, ncclUint8, ncclSum, s->comm, stream)); break;
  case BROADCAST: OK(ncclBroadcast(in, out, bytes, ncclUint8, nranks - 1, s->comm, stream)); break;
  case ALLGATHER: OK(ncclAllGather(in, out, part, ncclUint8, s->comm, stream)); break;
  case REDUCESCATTER: OK(ncclReduceScatter(in, out, part, ncclUint8, ncclMax, s->comm, stream)); break;
  case ALLTOALL: OK(ncclAlltoAll(in, out, part, ncclUint8, s->comm, stream)); break;
  case GATHER: OK(ncclGather(in, out, part, ncclUint8, 0, s->comm, stream)); break;
  default: OK(ncclReduce(in, out, bytes, ncclUint8, ncclSum, 0, s->comm, stream)); break;
  }
}

static void all_call(call_kind kind, size_t bytes)
{
  OK(ncclGroupStart());
  for (int r = first; r < last; r++) {
    call(kind, r, bytes);
  }
  OK(ncclGroupEnd());
}

static void end_spans(uint64_t from, int n)
{
  const uint64_t to = gpu_now();
  for (int i = 0; i < n; i++) {
    spans[nspans++] = (span){from, to};
  }
}

static void operations(void)
{
  static const size_t sizes[] = {SMALL, LARGE};
  nspans = 0;
  for (int kind = 0; kind < KINDS_OF_CALLS; kind++) {
    for (size_t i = 0; i < TT_COUNT(sizes); i++) {
      const uint64_t from = gpu_now();
      all_call((call_kind)kind, sizes[i]);
      wait_all();
      end_spans(from, 1);
    }
  }
  uint64_t from = gpu_now();
  for (int i = 0; i < BURST; i++) {
    all_call(ALLREDUCE, LARGE);
  }
  wait_all();
  end_spans(from, BURST);
  from = gpu_now();
  OK(ncclGroupStart());
  for (int r = first; r < last; r++) {
    OK(ncclSend(sides[r].memory, 1000, ncclUint8, after(r), sides[r].comm, stream_of(r)));
    OK(ncclRecv(sides[r].memory + HALF, 1000, ncclUint8, before(r), sides[r].comm, stream_of(r)));
  }
  OK(ncclGroupEnd());
  wait_all();
  end_spans(from, 2);
}

static void use_recorders(int rank, const char *versions)
{
  setenv("TUTTI_RECORD", record_name(rank), 1);
  setenv("NCCL_PROFILER_PLUGIN", plugin_list(versions), 1);
  setenv("TUTTI_RECORD_TIMERS", "1", 1);
}

static told seen;

static void thread_body(int rank, void *arg)
{
  use_recorders(rank, "6");
  open_comms(*(const int *)arg);
  operations();
  close_comms();
  read_told(read_record(rank, 6), "KernelCh", &seen);
  check_told(&seen, nspans);
}

static void process_body(int rank, void *arg)
{
  use_recorders(rank, "6");
  open_process(rank, *(const int *)arg);
  meet(nranks);
  operations();
  close_comms();
  read_told(read_record(rank, 6), "KernelCh", &seen);
  check_told(&seen, nspans);
}

static void run_bodies(int processes, int ranks, void (*body)(int rank, void *arg), const char *const *env)
{
  const run r = {.n = processes, .seconds = 60, .fn = body, .arg = &ranks, .env = env};
  assert_int_equal(run_processes(&r), 0);
}

static void test_one_thread(void **state)
{
  (void)state;
  run_bodies(1, 1, thread_body, NULL);
  run_bodies(1, 2, thread_body, NULL);
  run_bodies(1, 3, thread_body, ENV("NCCL_ALGO=Ring,Tree,Pairwise,Linear"));
}

static void test_processes(void **state)
{
  (void)state;
  run_bodies(2, 2, process_body, NULL);
}

static void test_walks(void **state)
{
  (void)state;
  if (strstr(getenv("CUDASIM"), "devices=3") == NULL || apart) {
    skip();
  }
  run_bodies(1, 3, thread_body, ENV("NCCL_CUDA_RESIDENT=1"));
  run_bodies(1, 2, thread_body, ENV("NCCL_CUDA_RESIDENT=1", "NCCL_ALGO=Ring,Pairwise,Linear"));
}

// ---- Versions ----

static void versions_body(int rank, void *arg)
{
  const char *versions = arg;
  use_recorders(rank, versions);
  open_comms(2);
  for (int i = 0; i < BURST; i++) {
    all_call(ALLREDUCE, LARGE);
    wait_all();
  }
  close_comms();
  for (const char *v = versions; *v != '\0'; v++) {
    const char *text = read_record(rank, *v - '0');
    const int n = *v <= '2' ? 0 : 2 * BURST;
    CHECK(count_lines(text, "start KernelCh#") == n && count_lines(text, "stop KernelCh#") == n, "%s", text);
    CHECK(count_lines(text, "state KernelCh#") == (*v <= '3' ? 0 : n), "%s", text);
    CHECK(*v > '3' || strstr(text, "timer=") == NULL, "%s", text);
  }
}

static void test_versions(void **state)
{
  (void)state;
  PROCESSES(1, 60, versions_body, "123");
  PROCESSES(1, 60, versions_body, "4567");
}

// The phases of a channel: their times are its own.
static void phases_body(int rank, void *arg)
{
  static told channels;
  (void)arg;
  use_recorders(rank, "7");
  open_comms(2);
  all_call(ALLREDUCE, LARGE);
  wait_all();
  close_comms();
  const char *text = read_record(rank, 7);
  read_told(text, "KernelCh", &channels);
  CHECK(channels.n == 2, "%d channels", channels.n);
  for (int i = 0; i < channels.n; i++) {
    char line[128], times[128];
    const told_channel *c = &channels.of[i];
    snprintf(line, sizeof line, "parent=KernelCh#%d rank=%d channel=%d phase=1:compute timer=%llu\n", c->number,
             c->rank, c->channel, (unsigned long long)c->start);
    snprintf(times, sizeof times, "KernelPhaseStop timer=%llu\n", (unsigned long long)c->stop);
    CHECK(strstr(text, line) != NULL && strstr(text, times) != NULL, "%s", text);
  }
}

static void test_phases(void **state)
{
  (void)state;
  PROCESSES(1, 60, phases_body, NULL);
}

// ---- Who does not ask ----

// Calls of the driver in some operations, of two runs.
static uint64_t *counted;

static void count_body(int rank, void *arg)
{
  const int mask = *(const int *)arg;
  uint64_t (*calls)(const char *name);
  char text[16];
  if (mask != 0) {
    use_recorders(rank, "6");
    snprintf(text, sizeof text, "%d", mask);
    setenv("TUTTI_RECORD_MASK", text, 1);
  }
  open_comms(2);
  *(void **)&calls = driver_hook("cudasim_calls");
  operations();
  static const char *const names[] = {"cuLaunchKernel", "cuStreamBatchMemOp", "cuStreamWriteValue32",
                                      "cuMemHostRegister"};
  for (size_t i = 0; i < TT_COUNT(names); i++) {
    counted[i] = calls(names[i]);
  }
  operations();
  for (size_t i = 0; i < TT_COUNT(names); i++) {
    counted[i] = calls(names[i]) - counted[i];
  }
  close_comms();
  if (mask != 0) {
    const char *seen_text = read_record(rank, 6);
    CHECK(strstr(seen_text, "KernelCh") == NULL && strstr(seen_text, "start Coll#") != NULL, "%s", seen_text);
  }
}

static void test_not_asked(void **state)
{
  uint64_t without[4];
  int mask = 0;
  (void)state;
  counted = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(counted != MAP_FAILED);
  PROCESSES(1, 60, count_body, &mask);
  memcpy(without, counted, sizeof without);
  assert_true(without[0] > 0);
  mask = NO_KERNELS;
  PROCESSES(1, 60, count_body, &mask);
  assert_memory_equal(without, counted, sizeof without);
  munmap(counted, 4096);
}

// ---- When it is told, and what becomes of operations that fail ----

// What the recorder has written so far.
static bool record_has(int rank, const char *text)
{
  static char all[TEXT];
  char name[256];
  FILE *f = find_record(rank, 6, name, sizeof name) ? fopen(name, "r") : NULL;
  if (f == NULL) {
    return false;
  }
  all[fread(all, 1, sizeof all - 1, f)] = '\0';
  fclose(f);
  return strstr(all, text) != NULL;
}

static void await_record(int rank, const char *text)
{
  const double end = seconds_now() + GENEROUS(4);
  while (!record_has(rank, text) && seconds_now() < end) {
    sleep_ms(1);
  }
  CHECK(record_has(rank, text), "\"%s\" has not been told", text);
}

// A rank whose peer has not called has begun, and has not ended.
static void begin_body(int rank, void *arg)
{
  const bool aborts = arg != NULL;
  use_recorders(rank, "6");
  open_comms(2);
  const uint64_t from = gpu_now();
  call(ALLREDUCE, 0, LARGE);
  await_record(rank, "start KernelCh#1 parent=Coll#1 rank=0 channel=0");
  CHECK(!record_has(rank, "KernelChStop"), "it has ended");
  if (aborts) {
    call(ALLREDUCE, 0, LARGE); // does not begin
    OK(ncclCommAbort(sides[0].comm));
    OK(ncclCommAbort(sides[1].comm));
    sides[0].comm = sides[1].comm = NULL;
  } else {
    call(ALLREDUCE, 1, LARGE);
    wait_all();
  }
  nspans = 0;
  end_spans(from, 2);
  close_comms();
  const char *text = read_record(rank, 6);
  read_told(text, "KernelCh", &seen);
  CHECK(seen.n == (aborts ? 1 : 2), "%s", text);
  for (int i = 0; i < seen.n; i++) {
    CHECK(seen.of[i].stops == 1 && seen.of[i].start >= from && seen.of[i].stop >= seen.of[i].start &&
              seen.of[i].stop <= spans[0].to,
          "%s", text);
  }
}

static void test_begin(void **state)
{
  (void)state;
  if (blocking || strstr(getenv("CUDASIM"), "launches=") != NULL || strstr(getenv("CUDASIM"), "queues=1") != NULL) {
    skip(); // the call does not return, or the second rank stands behind the first
  }
  PROCESSES(1, 60, begin_body, NULL);
}

static void test_abort(void **state)
{
  (void)state;
  if (blocking || strstr(getenv("CUDASIM"), "launches=") != NULL) {
    skip();
  }
  PROCESSES(1, 60, begin_body, "aborts");
}

// A peer dies: an operation under way ends, and the next one, with a buffer that the peer does not know, is refused.
static void death_body(int rank, void *arg)
{
  void *fresh = NULL;
  (void)arg;
  use_recorders(rank, "6");
  open_process(rank, 2);
  call(ALLREDUCE, rank, SMALL);
  wait_all();
  meet(2);
  if (rank == 1) {
    await_record(0, "start KernelCh#2");
    _exit(0);
  }
  OK(tt_gpu_enter(0));
  OK(ncclMemAlloc(&fresh, LARGE));
  tt_gpu_leave();
  call(ALLREDUCE, 0, SMALL);
  await_error(0, ncclRemoteError, ENV("rank 1"));
  CHECK(ncclAllReduce(fresh, fresh, LARGE, ncclUint8, ncclSum, sides[0].comm, stream_of(0)) != ncclSuccess, "refused");
  OK(ncclCommAbort(sides[0].comm));
  sides[0].comm = NULL;
  close_comms();
  OK(ncclMemFree(fresh));
  read_told(read_record(rank, 6), "KernelCh", &seen);
  CHECK(seen.n == 2 && seen.of[1].stops == 1 && seen.of[1].stop >= seen.of[1].start, "%d channels", seen.n);
}

static void test_death(void **state)
{
  char name[256];
  (void)state;
  if (blocking || strstr(getenv("CUDASIM"), "launches=") != NULL) {
    skip();
  }
  PROCESSES(2, 60, death_body, NULL);
  while (find_record(1, 6, name, sizeof name)) {
    remove(name);
  }
}

static CUresult (*launch_kernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 CUstream, void **, void **);
static int launches_left;

static CUresult launch_or_refuse(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                 unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)
{
  return launches_left-- == 0 ? CUDA_ERROR_OUT_OF_MEMORY
                              : launch_kernel(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}

// The driver refuses the k-th launch of an operation.
static void refused_body(int rank, void *arg)
{
  use_recorders(rank, "6");
  open_comms(2);
  all_call(ALLREDUCE, LARGE);
  wait_all();
  launch_kernel = cu->LaunchKernel;
  launches_left = *(const int *)arg;
  ((tt_cuda *)(uintptr_t)cu)->LaunchKernel = launch_or_refuse;
  OK(ncclGroupStart());
  for (int r = 0; r < 2; r++) {
    call(ALLREDUCE, r, LARGE);
  }
  const bool failed = ncclGroupEnd() != ncclSuccess;
  ((tt_cuda *)(uintptr_t)cu)->LaunchKernel = launch_kernel;
  CHECK(failed == (launches_left < 0), "launch %d", *(const int *)arg);
  for (int r = 0; r < 2; r++) {
    OK(ncclCommAbort(sides[r].comm));
    sides[r].comm = NULL;
  }
  close_comms();
  read_told(read_record(rank, 6), "KernelCh", &seen);
  CHECK(seen.n >= 2 && seen.n <= 4, "%d channels", seen.n);
  for (int i = 0; i < seen.n; i++) {
    CHECK(seen.of[i].stops == 1 && seen.of[i].stop >= seen.of[i].start, "KernelCh#%d", i + 1);
  }
}

static void test_refused(void **state)
{
  (void)state;
  for (int k = 0; k<8; k += SLOWER> 1 ? 3 : 1) {
    PROCESSES(1, 60, refused_body, &k);
  }
}

static CUresult no_memory(CUdeviceptr *at, size_t bytes)
{
  (void)at;
  (void)bytes;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// Buffers that peers cannot open need memory in their place, which is not there: the operation is refused before it is
// submitted.
static void unstaged_body(int rank, void *arg)
{
  void *pinned = NULL;
  (void)arg;
  use_recorders(rank, "6");
  open_process(rank, 2);
  call(ALLREDUCE, rank, SMALL);
  wait_all();
  ON(rank, cu->MemHostAlloc(&pinned, HALF * 4, CU_MEMHOSTALLOC_PORTABLE));
  meet(2);
  CUresult (*const alloc)(CUdeviceptr *, size_t) = cu->MemAlloc;
  ((tt_cuda *)(uintptr_t)cu)->MemAlloc = no_memory;
  const ncclResult_t res =
      ncclAllReduce(pinned, pinned, HALF * 4, ncclUint8, ncclSum, sides[rank].comm, stream_of(rank));
  ((tt_cuda *)(uintptr_t)cu)->MemAlloc = alloc;
  CHECK(res == ncclUnhandledCudaError, "%d", (int)res);
  OK(ncclCommAbort(sides[rank].comm));
  sides[rank].comm = NULL;
  close_comms();
  ON(rank, cu->MemFreeHost(pinned));
  read_told(read_record(rank, 6), "KernelCh", &seen); // also finalize has come
  CHECK(seen.n == 1 && seen.nops == 2, "%d channels, %d operations", seen.n, seen.nops);
}

static void test_unstaged(void **state)
{
  (void)state;
  PROCESSES(2, 60, unstaged_body, NULL);
}

// ---- Captures, and one-sided operations ----

// A captured call is told of when it is captured, without channels; replays are not told of.
static void capture_body(int rank, void *arg)
{
  CUgraph graph;
  CUgraphExec exec;
  (void)arg;
  use_recorders(rank, "6");
  open_comms(1);
  ON(0, cu->StreamBeginCapture(sides[0].stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  call(ALLREDUCE, 0, LARGE);
  ON(0, cu->StreamEndCapture(sides[0].stream, &graph));
  ON(0, cu->GraphInstantiateWithFlags(&exec, graph, 0));
  for (int i = 0; i < BURST; i++) {
    ON(0, cu->GraphLaunch(exec, sides[0].stream));
  }
  wait_all();
  const uint64_t from = gpu_now();
  call(ALLREDUCE, 0, LARGE);
  wait_all();
  nspans = 0;
  end_spans(from, 1);
  ON(0, cu->GraphExecDestroy(exec));
  ON(0, cu->GraphDestroy(graph));
  close_comms();
  const char *text = read_record(rank, 6);
  CHECK(count_lines(text, "start Coll#") == 2, "%s", text);
  read_told(text, "KernelCh", &seen);
  CHECK(seen.n == 1 && seen.of[0].parent == 2 && seen.of[0].start >= from && seen.of[0].stop <= spans[0].to, "%s",
        text);
}

static void test_capture(void **state)
{
  (void)state;
  PROCESSES(1, 60, capture_body, NULL);
}

static void one_sided_body(int rank, void *arg)
{
  (void)arg;
  use_recorders(rank, "6");
  open_comms(2);
  open_windows();
  uint64_t from = gpu_now();
  span ran;
  barrier();
  nspans = 0;
  end_spans(from, 4); // of each rank: two signals and two lines of a wait
  from = gpu_now();
  OK(ncclGroupStart());
  for (int r = 0; r < 2; r++) {
    put(r, 0, LARGE, after(r), 0, 0, 0);
    wait_for(r, 1, before(r), 0, 0);
  }
  OK(ncclGroupEnd());
  wait_all();
  end_spans(from, 2);
  close_windows();
  close_comms();
  const char *text = read_record(rank, 6);
  read_told(text, "KernelCh", &seen);
  int n[2] = {0, 0};
  for (int i = 0; i < seen.nops; i++) {
    const int r = seen.ops[i].rank;
    CHECK(seen.ops[i].message && n[r] < nspans, "%s", text);
    check_channels(&seen, &seen.ops[i], &spans[n[r]++], &ran);
  }
  CHECK(n[0] == nspans && n[1] == nspans, "%s", text);
}

static void test_one_sided(void **state)
{
  (void)state;
  if (apart) {
    skip();
  }
  PROCESSES(1, 60, one_sided_body, NULL);
}

// What does not depend on the order of things is told in the first mode alone.
static int in_mode(const char *modes, unsigned number)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_thread), cmocka_unit_test(test_processes), cmocka_unit_test(test_walks),
      cmocka_unit_test(test_begin),      cmocka_unit_test(test_abort),     cmocka_unit_test(test_death),
      cmocka_unit_test(test_one_sided),  cmocka_unit_test(test_refused),   cmocka_unit_test(test_versions),
      cmocka_unit_test(test_unstaged),   cmocka_unit_test(test_phases),    cmocka_unit_test(test_capture),
      cmocka_unit_test(test_not_asked)};
  return run_mode(modes, "profiler-test", tests, number == 0 ? TT_COUNT(tests) : 7);
}

// An argument chooses tests by name; CUDA_WINDOW_MODE one mode.
int main(int argc, char **argv)
{
  static const char *const modes[] = {"", "devices=3,order=random,stores,stale,step=500,seed=5", "queues=1,blocking"};
  use_driver();
  if (argc > 1) {
    cmocka_set_test_filter(argv[1]);
  }
  return for_each_mode(modes, TT_COUNT(modes), 1, getenv("CUDA_WINDOW_MODE"), in_mode) != 0;
}
