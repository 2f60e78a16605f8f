// cuda_ipc_test.c: ranks of several processes that read and write each other's device memory, on the driver for tests.
// Every call's result is compared with what a program would reckon.

#include "cuda_processes.h"

#include "os/fdbox.h"

// Sanitizers make the driver's machine up to twenty times slower: the first mode alone.
#if defined TT_TSAN || defined TT_ASAN
enum { MODE_STEP = 5 };
#else
enum { MODE_STEP = 1 };
#endif

enum { SLOTS = 4, OFFSET = 12 };

// One call of all ranks, on buffers of their own, which are freed afterwards.
static void try_one(function f, size_t n, const buffers *of_rank)
{
  rank_memory m[MAX_RANKS];
  for (int r = first; r < last; r++) {
    memory_open(f, r, n, &of_rank[r], &m[r]);
  }
  OK(ncclGroupStart());
  for (int r = first; r < last; r++) {
    OK(call(f, r, m[r].in, m[r].out, n));
  }
  OK(ncclGroupEnd());
  wait_all();
  for (int r = first; r < last; r++) {
    if (!(f == REDUCE && of_rank[r].in_place && r != 1 % nranks)) { // the output is the input
      compare(f, r, m[r].out, n);
    }
    memory_close(r, &of_rank[r], &m[r]);
  }
}

// The same for all functions and some counts.
static void try_all(const buffers *of_rank)
{
  static const size_t counts[] = {1, 1000, 4099};
  for (size_t i = 0; i < TT_COUNT(counts); i++) {
    for (int f = 0; f < FUNCTIONS; f++) {
      if (!(of_rank[0].in_place && f == RING)) { // it would overwrite what it sends
        try_one((function)f, counts[i], of_rank);
      }
    }
  }
}

// ---- Processes ----

typedef struct shape {
  int processes, each;
} shape;

static void functions_body(int process, void *arg)
{
  const shape *s = arg;
  buffers same[MAX_RANKS];
  join(process, s->processes, s->each);
  for (int k = 0; k < 3; k++) {
    for (int r = 0; r < nranks; r++) {
      same[r] = (buffers){.offset = k == 1 ? OFFSET : 0, .in_place = k == 2};
    }
    try_all(same);
  }
  leave();
}

static void test_functions(void **state)
{
  static const shape shapes[] = {{2, 1}, {3, 1}, {2, 2}};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(shapes); i++) {
    PROCESSES(shapes[i].processes, 100, functions_body, (void *)(uintptr_t)&shapes[i]);
  }
}

// Memory that cannot be exported, of all ranks or some.
static void pinned_body(int process, void *arg)
{
  buffers some[MAX_RANKS];
  (void)arg;
  join(process, 3, 1);
  for (int k = 0; k < 3; k++) {
    for (int r = 0; r < nranks; r++) {
      some[r] = (buffers){.kind = k == 0 || r == 1 ? PINNED : DEVICE, .in_place = k == 2, .offset = OFFSET};
    }
    try_all(some);
  }
  leave();
}

static void test_pinned(void **state)
{
  (void)state;
  PROCESSES(3, 100, pinned_body, NULL);
}

// Memory of cuMemCreate: of all ranks, or each kind of memory beside the others.
static void created_body(int process, void *arg)
{
  static const memory_kind kinds[] = {CREATED, BEHIND, CLOSED, DEVICE, PINNED};
  buffers some[MAX_RANKS];
  (void)arg;
  join(process, 3, 1);
  for (size_t k = 0; k < TT_COUNT(kinds); k++) {
    for (int r = 0; r < nranks; r++) {
      some[r] = (buffers){.kind = k < 2 ? kinds[k] : kinds[(k + (size_t)r) % TT_COUNT(kinds)],
                          .in_place = k == 3,
                          .offset = k == 1 || k == 4 ? OFFSET : 0};
    }
    try_all(some);
  }
  leave();
}

static void test_created(void **state)
{
  (void)state;
  PROCESSES(3, 100, created_body, NULL);
}

static void log_to_file(char log[128])
{
  snprintf(log, 128, "/tmp/cuda_ipc_test-%d", (int)getpid());
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_SUBSYS", "P2P", 1);
  setenv("NCCL_DEBUG_FILE", log, 1);
}

// The lines of this process's log with that word.
static int logged(const char *path, const char *word)
{
  char line[1024];
  int n = 0;
  FILE *f = fopen(path, "r");
  CHECK(f != NULL, "%s: no log", path);
  while (fgets(line, sizeof line, f) != NULL) {
    n += strstr(line, word) != NULL;
  }
  fclose(f);
  return n;
}

// Allocations that come and go, at the same addresses and others, of several sizes; several calls under way at once.
static void again_body(int process, void *arg)
{
  buffers all[MAX_RANKS];
  char *before = NULL;
  char log[128];
  int same = 0;
  (void)arg;
  log_to_file(log);
  join(process, 3, 1);
  for (size_t i = 0; i < 30; i++) {
    for (int r = 0; r < nranks; r++) {
      all[r] = (buffers){.offset = i % 3};
    }
    char *hole = take(first, DEVICE, i % 4 == 0 ? 4 << 20 : 4096);
    same += hole == before;
    before = hole;
    try_one((function)(i % FUNCTIONS), 100 + 500 * (i % 5), all);
    give(first, DEVICE, hole);
  }
  leave();
  const int opened = logged(log, "has opened allocation"), freed = logged(log, "has freed its allocation"),
            closed = logged(log, "closes what a peer has freed");
  unlink(log);
  CHECK(same > 0, "no address came again");
  CHECK(peers_none ? opened == 0 : opened > 60 && freed > 40 && closed > 20, "%d were opened, %d freed, %d closed",
        opened, freed, closed);
}

// One call on buffers in the middle of the allocation.
static void middle_call(char *memory)
{
  float *in = (float *)(void *)(memory + 64), *out = in + 4096;
  spoil(out, first, 3000);
  fill(in, first, 3000); // waits for both
  OK(call(ALL_REDUCE, first, in, out, 3000));
  wait_all();
  compare(ALL_REDUCE, first, out, 3000);
}

// What is mapped at the addresses comes and goes, all of it or one allocation of two: peers use what is there now, and
// have it open, not a copy. No descriptor is left, here or there, nor anything mapped.
static void mapped_body(int process, void *arg)
{
  const memory_kind kind = *(const memory_kind *)arg;
  const size_t granule = 2 << 20;
  int before = 0;
  char log[128];
  log_to_file(log);
  join(process, 2, 1);
  const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_of(first)},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  char *memory = take(first, kind, 64 << 10);
  const CUdeviceptr base = mapped[0].base, last_piece = base + mapped[0].bytes - granule;
  for (int i = 0; i < 12; i++) {
    middle_call(memory);
    middle_call(memory);
    before = i == 2 ? open_descriptors(NULL) - allocations() : before; // connections have been made
    meet(2);
    ON(first, cu->MemUnmap(last_piece, granule));
    map_at(first, last_piece, granule, true);
    ON(first, cu->MemSetAccess(last_piece, granule, &access, 1));
  }
  // Other threads have one for a moment, now and then. Nine times something was opened and closed since.
  CHECK(open_descriptors(NULL) - allocations() < before + 5, "%d descriptors, and %d before",
        open_descriptors(NULL) - allocations(), before);
  give(first, kind, memory);
  leave();
  CHECK(allocations() == 0, "%d are mapped", allocations());
  const int opened = logged(log, "has opened allocation"), freed = logged(log, "has freed its allocation"),
            closed = logged(log, "closes what a peer has freed");
  unlink(log);
  CHECK(peers_none ? opened == 0 : opened == 13 && freed == 11 && closed >= 9,
        "kind %d: %d were opened, %d freed, %d closed", (int)kind, opened, freed, closed);
}

static void test_mapped(void **state)
{
  static const memory_kind kinds[] = {CREATED, BEHIND};
  (void)state;
  PROCESSES(2, 100, mapped_body, (void *)(uintptr_t)&kinds[0]);
  PROCESSES(2, 100, mapped_body, (void *)(uintptr_t)&kinds[1]);
}

// The driver of a process maps or exports some allocations, and then fails once: at the first piece of a buffer, or the
// second.
typedef struct refusal {
  bool exports; // of process 0; else process 1 maps
  int calls;
} refusal;

static int calls_left;
static CUresult (*export_memory)(void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long);
static CUresult (*map_memory)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);

static CUresult map_some(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle memory,
                         unsigned long long flags)
{
  return calls_left-- == 0 ? CUDA_ERROR_OUT_OF_MEMORY : map_memory(at, bytes, offset, memory, flags);
}

static CUresult export_some(void *out, CUmemGenericAllocationHandle memory, CUmemAllocationHandleType type,
                            unsigned long long flags)
{
  return calls_left-- == 0 ? CUDA_ERROR_OUT_OF_MEMORY : export_memory(out, memory, type, flags);
}

// What a peer cannot map, or its owner not export, is copied. The driver's next attempt succeeds.
static void refused_body(int process, void *arg)
{
  const refusal *of = arg;
  tt_cuda *driver;
  char log[128];
  log_to_file(log);
  join(process, 2, 1);
  char *memory = take(first, PINNED, 64 << 10);
  middle_call(memory); // so what copies need is open, and opening that does not end what was refused
  give(first, PINNED, memory);
  memory = take(first, BEHIND, 64 << 10);
  driver = (tt_cuda *)(uintptr_t)cu;
  map_memory = cu->MemMap;
  export_memory = cu->MemExportToShareableHandle;
  calls_left = of->calls;
  if (process == 1 && !of->exports) {
    driver->MemMap = map_some;
  } else if (process == 0 && of->exports) {
    driver->MemExportToShareableHandle = export_some;
  }
  meet(2);
  // What process 1 had mapped of it goes in one of the next calls, when the last one is over for the library, too.
  const int rest = process == 1 || peers_none ? 2 : 4;
  while (atomic_load(&the_board->word[0]) < 2) {
    middle_call(memory);
    meet(2);
    atomic_fetch_add(&the_board->word[0],
                     process == 1 && atomic_load(&the_board->word[0]) < 2 && allocations() == rest);
    meet(2);
  }
  CHECK(allocations() == rest, "%d are mapped", allocations());
  meet(2);
  driver->MemMap = map_memory;
  driver->MemExportToShareableHandle = export_memory;
  char *more = take(first, BEHIND, 64 << 10);
  middle_call(more);
  give(first, BEHIND, memory);
  give(first, BEHIND, more);
  leave();
  const int refused = logged(log, "does not reach"), opened = logged(log, "has opened allocation");
  unlink(log);
  CHECK(allocations() == 0, "%d are mapped", allocations());
  CHECK(refused == (process == 1 && !of->exports && !peers_none), "%d refused", refused);
  CHECK(peers_none || opened >= 3 - process, "%d opened", opened);
}

static void test_refused(void **state)
{
  static const refusal refusals[] = {{false, 0}, {false, 1}, {true, 0}, {true, 1}};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(refusals); i++) {
    PROCESSES(2, 100, refused_body, (void *)(uintptr_t)&refusals[i]);
  }
}

// What lies in this process's mailbox comes out of it, and stays.
static void empty_mailbox(void)
{
  static const tt_fdkey nobody;
  int fd;
  CHECK(tt_fdbox_take(&nobody, 0, NULL, &fd) != ncclSuccess, "a descriptor without a key");
}

// Process 1 aborts while process 0 is giving it a piece of a buffer.
static CUresult export_late(void *out, CUmemGenericAllocationHandle memory, CUmemAllocationHandleType type,
                            unsigned long long flags)
{
  meet(2);
  meet(2);
  return export_memory(out, memory, type, flags);
}

static void deserted_body(int process, void *arg)
{
  (void)arg;
  join(process, 2, 1);
  char *memory = take(first, BEHIND, 64 << 10);
  export_memory = cu->MemExportToShareableHandle;
  if (process == 0) {
    ((tt_cuda *)(uintptr_t)cu)->MemExportToShareableHandle = export_late;
    const ncclResult_t res = call(ALL_REDUCE, first, (float *)(void *)memory, (float *)(void *)memory, 3000);
    CHECK(res == ncclRemoteError && strstr(ncclGetLastError(NULL), "rank 1") != NULL, "%d: %s", (int)res,
          ncclGetLastError(NULL));
  } else {
    meet(2);
    OK(ncclCommAbort(comms[first]));
    meet(2);
  }
  meet(2);
  if (process == 0) {
    OK(ncclCommAbort(comms[first]));
  }
  empty_mailbox();
  CHECK(allocations() == 2, "%d allocations", allocations());
}

static void test_deserted(void **state)
{
  (void)state;
  if (!peers_none) { // else nothing is opened
    PROCESSES(2, 60, deserted_body, NULL);
  }
}

// A window across two allocations of cuMemCreate, of processes.
static void window_body(int process, void *arg)
{
  const size_t granule = 2 << 20, bytes = 8192;
  ncclWindow_t window;
  (void)arg;
  join(process, 2, 1);
  take(first, BEHIND, 64 << 10);
  float *at = (float *)(uintptr_t)(mapped[0].base + granule - bytes / 2), *from = at + 1536;
  const cudaStream_t stream = (cudaStream_t)streams[first];
  const int other = 1 - process;
  const ncclWaitSignalDesc_t wait = {.opCnt = 1, .peer = other};
  fill(from, process, 256);
  spoil(at, process, 256);
  ON(first, cu->CtxSynchronize());
  OK(ncclCommWindowRegister(comms[first], at, bytes, &window, NCCL_WIN_COLL_SYMMETRIC));
  meet(2);
  OK(ncclPutSignal(from, 1024, ncclUint8, other, window, bytes / 2 - 512, 0, 0, 0, comms[first], stream));
  OK(ncclWaitSignal(1, (ncclWaitSignalDesc_t *)(uintptr_t)&wait, comms[first], stream));
  wait_all();
  ON(first, cu->MemcpyDtoH(image, address(at + (bytes / 2 - 512) / 4), 1024));
  for (size_t i = 0; i < 256; i++) {
    CHECK(image[i] == value_of(other, i), "element %zu: %g", i, (double)image[i]);
  }
  meet(2);
  OK(ncclCommWindowDeregister(comms[first], window));
  leave();
}

static void test_window(void **state)
{
  (void)state;
  if (!peers_none) { // else the ranks have no access to each other
    PROCESSES(2, 60, window_body, NULL);
  }
}

// A rank's buffers lie in one allocation after the other, while others keep theirs; the calls are not waited for.
static void slots_body(int process, void *arg)
{
  rank_memory m[SLOTS];
  const buffers plain = {.kind = DEVICE};
  const int n = 3;
  (void)arg;
  join(process, n, 1);
  for (int round = 0; round < 5; round++) {
    for (int i = 0; i < SLOTS; i++) {
      memory_open(ALL_REDUCE, first, 700, &plain, &m[i]);
    }
    for (int i = 0; i < 3 * SLOTS; i++) {
      OK(call(ALL_REDUCE, first, m[i % SLOTS].in, m[i % SLOTS].out, 700));
    }
    wait_all();
    for (int i = 0; i < SLOTS; i++) {
      compare(ALL_REDUCE, first, m[i].out, 700);
      if (process != round % n) {
        memory_close(first, &plain, &m[i]); // the others' stay until the process ends
      }
    }
  }
  leave();
}

static void test_again(void **state)
{
  (void)state;
  PROCESSES(3, 100, again_body, NULL);
  PROCESSES(3, 100, slots_body, NULL);
}

// Two communicators of the same processes share the same allocations.
static void two_body(int process, void *arg)
{
  rank_memory m;
  const buffers plain = {.kind = DEVICE};
  ncclComm_t one;
  (void)arg;
  join(process, 2, 1);
  one = comms[first];
  OK(tt_gpu_enter(device_of(first)));
  OK(ncclCommSplit(one, 0, process, &comms[first], NULL));
  tt_gpu_leave();
  memory_open(ALL_GATHER, first, 1000, &plain, &m);
  for (int i = 0; i < 4; i++) {
    ncclComm_t other = comms[first];
    OK(call(ALL_GATHER, first, m.in, m.out, 1000));
    wait_all();
    compare(ALL_GATHER, first, m.out, 1000);
    comms[first] = one;
    one = other;
  }
  memory_close(first, &plain, &m);
  OK(ncclCommDestroy(one));
  leave();
}

static void test_two(void **state)
{
  (void)state;
  PROCESSES(2, 100, two_body, NULL);
}

// One of two communicators ends while a call of the other one waits for what comes later.
static void ends_body(int process, void *arg)
{
  rank_memory m;
  const buffers plain = {.kind = DEVICE};
  (void)arg;
  join(process, 2, 1);
  ncclComm_t one = comms[first];
  OK(tt_gpu_enter(device_of(first)));
  OK(ncclCommSplit(one, 0, process, &comms[first], NULL));
  tt_gpu_leave();
  memory_open(ALL_GATHER, first, 1000, &plain, &m);
  OK(call(ALL_GATHER, first, m.in, m.out, 1000));
  wait_all();
  compare(ALL_GATHER, first, m.out, 1000);
  if (process == 0) {
    OK(ncclRecv(m.out, 1000, ncclFloat, 1, one, (cudaStream_t)streams[first]));
  }
  OK(ncclCommDestroy(comms[first]));
  meet(2);
  if (process == 1) {
    OK(ncclSend(m.in, 1000, ncclFloat, 0, one, (cudaStream_t)streams[first]));
  }
  wait_all();
  comms[first] = one;
  memory_close(first, &plain, &m);
  leave();
}

static void test_ends(void **state)
{
  (void)state;
  PROCESSES(2, 100, ends_body, NULL);
}

// ---- What goes wrong ----

static bool is_over(ncclResult_t res)
{
  const double end = seconds_now() + GENEROUS(10);
  while (res == ncclSuccess && seconds_now() < end) {
    OK(ncclCommGetAsyncError(comms[first], &res));
    sleep_ms(1);
  }
  const char *text = ncclGetLastError(comms[first]);
  CHECK(res == ncclRemoteError && strstr(text, "rank 1") != NULL, "%d: %s", (int)res, text);
  return true;
}

// Rank 1 is killed between two calls. The others have new buffers, which nobody opens, or the old ones.
typedef struct killing {
  bool new;
  memory_kind kind;
} killing;

static void killed_body(int process, void *arg)
{
  const killing *k = arg;
  rank_memory m[2];
  const buffers plain = {.kind = k->kind};
  join(process, 3, 1);
  memory_open(ALL_REDUCE, first, 5000, &plain, &m[0]);
  memory_open(ALL_REDUCE, first, 5000, &plain, &m[1]);
  OK(call(ALL_REDUCE, first, m[0].in, m[0].out, 5000));
  wait_all();
  compare(ALL_REDUCE, first, m[0].out, 5000);
  if (process == 1) {
    _exit(0);
  }
  is_over(call(ALL_REDUCE, first, m[k->new].in, m[k->new].out, 5000));
  OK(ncclCommAbort(comms[first]));
  wait_all();
  memory_close(first, &plain, &m[0]);
  memory_close(first, &plain, &m[1]);
}

static void test_killed(void **state)
{
  static const killing killings[] = {{false, DEVICE}, {true, DEVICE}, {false, BEHIND}, {true, BEHIND}};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(killings); i++) {
    PROCESSES(3, 60, killed_body, (void *)(uintptr_t)&killings[i]);
  }
}

// Rank 2 has left, which has opened rank 0's buffer. That is freed, and rank 0 has something for rank 1.
static void left_body(int process, void *arg)
{
  rank_memory m;
  const buffers plain = {.kind = DEVICE};
  (void)arg;
  join(process, 3, 1);
  memory_open(ALL_REDUCE, first, 5000, &plain, &m);
  OK(call(ALL_REDUCE, first, m.in, m.out, 5000));
  wait_all();
  meet(3);
  if (process == 2) {
    leave();
  }
  meet(3);
  memory_close(first, &plain, &m);
  if (process == 2) {
    return;
  }
  char *one = take(first, DEVICE, 64 << 10);
  float *at = (float *)(void *)one;
  if (process == 0) {
    fill(at, 0, 5000);
    OK(ncclSend(at, 5000, ncclFloat, 1, comms[0], (cudaStream_t)streams[0]));
  } else {
    OK(ncclRecv(at, 5000, ncclFloat, 0, comms[1], (cudaStream_t)streams[1]));
  }
  wait_all();
  ncclResult_t res = ncclSuccess;
  OK(ncclCommGetAsyncError(comms[first], &res));
  CHECK(res == ncclSuccess, "%d: %s", (int)res, ncclGetLastError(comms[first]));
  for (int i = 0; i < 5000; i++) {
    CHECK(at[i] == value_of(0, (size_t)i), "element %d: %g", i, (double)at[i]); // the host reads memory of devices
  }
  give(first, DEVICE, one);
  leave();
}

static void test_left(void **state)
{
  (void)state;
  PROCESSES(3, 60, left_body, NULL);
}

typedef struct moment {
  double after_ms;
  memory_kind kind;
} moment;

static void *exit_later(void *arg)
{
  sleep_ms(((const moment *)arg)->after_ms);
  kill(getpid(), SIGKILL);
  return arg;
}

// Rank 1 is killed at any moment, while calls on new buffers follow each other.
static void moment_body(int process, void *arg)
{
  pthread_t thread;
  rank_memory m[SLOTS];
  const buffers plain = {.kind = ((const moment *)arg)->kind};
  ncclResult_t res = ncclSuccess;
  join(process, 3, 1);
  if (process == 1) {
    assert_int_equal(pthread_create(&thread, NULL, exit_later, arg), 0);
  }
  for (int i = 0; res == ncclSuccess; i++) {
    if (i >= SLOTS) {
      wait_all();
      memory_close(first, &plain, &m[i % SLOTS]);
    }
    memory_open(ALL_REDUCE, first, 3000, &plain, &m[i % SLOTS]);
    res = call(ALL_REDUCE, first, m[i % SLOTS].in, m[i % SLOTS].out, 3000);
    if (res == ncclSuccess) {
      OK(ncclCommGetAsyncError(comms[first], &res));
    }
  }
  is_over(res);
  OK(ncclCommAbort(comms[first]));
  wait_all();
}

static void test_moment(void **state)
{
  static const moment moments[] = {{0, DEVICE},  {3, DEVICE}, {11, DEVICE}, {24, DEVICE},
                                   {50, DEVICE}, {4, BEHIND}, {17, BEHIND}, {40, BEHIND}};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(moments); i++) {
    ranks_set s;
    start_processes(&s, &(run){.n = 3, .seconds = 60, .fn = moment_body, .arg = (void *)(uintptr_t)&moments[i]});
    s.expected[1] = -SIGKILL;
    assert_int_equal(finish_processes(&s), 0);
  }
}

// Rank 0 waits until rank 1's process, which is stopped, has opened its buffer. An abort ends that.
static void *abort_later(void *arg)
{
  sleep_ms(300);
  OK(ncclCommAbort(comms[first]));
  return arg;
}

static void stopped_body(int process, void *arg)
{
  pthread_t thread;
  rank_memory m;
  const buffers plain = {.kind = DEVICE};
  (void)arg;
  join(process, 2, 1);
  memory_open(ALL_REDUCE, first, 1000, &plain, &m);
  meet(2);
  if (process == 1) {
    atomic_store(&the_board->word[0], (uint64_t)getpid());
    raise(SIGSTOP);
    _exit(0);
  }
  while (atomic_load(&the_board->word[0]) == 0) {
    sleep_ms(1);
  }
  while (tt_proc_doing((pid_t)atomic_load(&the_board->word[0])) != 'T') {
    sleep_ms(1);
  }
  sleep_ms(100); // its other threads stand, too
  assert_int_equal(pthread_create(&thread, NULL, abort_later, NULL), 0);
  const bool waits = !peers_none;
  const ncclResult_t res = call(ALL_REDUCE, first, m.in, m.out, 1000);
  CHECK((res != ncclSuccess) == waits, "%d: %s", (int)res, ncclGetLastError(NULL));
  pthread_join(thread, NULL);
  kill((pid_t)atomic_load(&the_board->word[0]), SIGCONT);
}

static void test_stopped(void **state)
{
  (void)state;
  PROCESSES(2, 60, stopped_body, NULL);
}

static int in_mode(const char *modes, unsigned number)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_functions), cmocka_unit_test(test_pinned),  cmocka_unit_test(test_again),
      cmocka_unit_test(test_two),       cmocka_unit_test(test_killed),  cmocka_unit_test(test_moment),
      cmocka_unit_test(test_stopped),   cmocka_unit_test(test_left),    cmocka_unit_test(test_ends),
      cmocka_unit_test(test_created),   cmocka_unit_test(test_mapped),  cmocka_unit_test(test_refused),
      cmocka_unit_test(test_window),    cmocka_unit_test(test_deserted)};
  (void)number;
  set_modes(modes, "ipc-test");
  peers_none = strstr(modes, "peers=none") != NULL;
  return cmocka_run_group_tests_name(modes, tests, NULL, NULL);
}

// An argument chooses tests by name; CUDA_IPC_MODE one mode.
int main(int argc, char **argv)
{
  static const char *const modes[] = {"devices=2,order=random,seed=5", "", "slices,queues=1", "devices=3,peers=none",
                                      "stores,stale,seed=3,slices"};
  use_driver();
  setenv("NCCL_HOST_DIRECT_THRESHOLD", "0", 1);
  if (argc > 1) {
    cmocka_set_test_filter(argv[1]);
  }
  return for_each_mode(modes, TT_COUNT(modes), MODE_STEP, getenv("CUDA_IPC_MODE"), in_mode) != 0;
}
