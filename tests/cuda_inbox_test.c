// cuda_inbox_test.c: messages in memory of the receiver's GPU (LL128, and large ones), between resident ranks of
// several processes: which pairs have it, and both ends agree; whose memory it is when a rank has gone
// (src/device/cuda/work/inbox.h).
#include "cuda_processes.h"

#include "device/cuda/work/inbox.h"
#include "device/cuda/work/rank.h"

// Sanitizers make the driver's machine up to twenty times slower.
#if defined TT_TSAN || defined TT_ASAN
enum { LARGE = 10000, MODE_STEP = 2 };
#else
enum { LARGE = 60000, MODE_STEP = 1 };
#endif
enum { RANKS = 3, MARK = 0x5a };

static bool ll128;   // small messages are in lines
static bool reaches; // GPUs reach each other

// ---- Ways to have none ----

// What is wrong with rank 1.
typedef enum {
  NOTHING,
  HAS_STREAMS,  // it is not resident
  HAS_NO_CALLS, // its driver has no cuMemCreate,
  CREATES_NOT,  // refuses that,
  MAPS_NOT,     // or access to what it has made,
  EXPORTS_NOT,  // or to export it,
  IMPORTS_NOT,  // or to import it
  OBSTACLES
} obstacle;

static CUresult create_none(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop,
                            unsigned long long flags)
{
  (void)out;
  (void)bytes;
  (void)prop;
  (void)flags;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult access_none(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
  (void)at;
  (void)bytes;
  (void)access;
  (void)count;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult export_none(void *out, CUmemGenericAllocationHandle memory, CUmemAllocationHandleType type,
                            unsigned long long flags)
{
  (void)out;
  (void)memory;
  (void)type;
  (void)flags;
  return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult import_none(CUmemGenericAllocationHandle *out, void *shareable, CUmemAllocationHandleType type)
{
  (void)out;
  (void)shareable;
  (void)type;
  return CUDA_ERROR_NOT_SUPPORTED;
}

static void hinder(obstacle what)
{
  if (what == HAS_STREAMS) { // before the driver is opened, and variables are read
    setenv("NCCL_CUDA_RESIDENT", "0", 1);
  }
  tt_cuda *driver = (tt_cuda *)(uintptr_t)tt_cuda_get(NULL);
  CHECK(driver != NULL, "no driver");
  if (what == HAS_NO_CALLS) {
    driver->MemCreate = NULL;
    driver->MemAddressReserve = NULL;
  } else if (what == CREATES_NOT) {
    driver->MemCreate = create_none;
  } else if (what == MAPS_NOT) {
    driver->MemSetAccess = access_none;
  } else if (what == EXPORTS_NOT) {
    driver->MemExportToShareableHandle = export_none;
  } else if (what == IMPORTS_NOT) {
    driver->MemImportFromShareableHandle = import_none;
  }
}

static bool has_inbox(int from, int to, obstacle what)
{
  if (!reaches) {
    return false;
  }
  switch (what) {
  case HAS_STREAMS:
  case MAPS_NOT:
  case HAS_NO_CALLS: return from != 1 && to != 1;
  case CREATES_NOT:
  case EXPORTS_NOT: return to != 1;
  case IMPORTS_NOT: return from != 1;
  default: return true;
  }
}

// ---- Ranks ----

static CUdeviceptr inbox_with(int peer, bool sends, tt_proto kind, bool *lines)
{
  const tt_link *link = comms[first]->port.links[peer];
  CHECK(link != NULL, "rank %d is not connected with rank %d", first, peer);
  return tt_gpu_inbox_at(tt_gpu_rank_port(&comms[first]->port), peer, sends ? &link->send[kind] : &link->recv[kind],
                         lines);
}

// Where messages of all kinds from and to the peer are.
static void check_end(int peer, bool sends, bool should)
{
  for (int kind = 0; kind < TT_NFIFOS; kind++) {
    const bool small = kind == TT_LL || kind == TT_TINY, may = kind == TT_SIMPLE || (small && ll128);
    bool lines = false;
    const bool has = inbox_with(peer, sends, (tt_proto)kind, &lines) != 0;
    CHECK(has == (should && may), "rank %d %s rank %d, messages of kind %d: %s inbox", first,
          sends ? "sends to" : "receives from", peer, kind, has ? "has an" : "has no");
    CHECK(!has || lines == small, "messages of kind %d are %s lines", kind, lines ? "in" : "not in");
  }
}

static void check_ends(obstacle what)
{
  for (int peer = 0; peer < nranks; peer++) {
    if (peer != first) {
      check_end(peer, true, has_inbox(first, peer, what));
      check_end(peer, false, has_inbox(peer, first, what));
    }
  }
}

static void try_all(size_t n)
{
  for (int f = 0; f < FUNCTIONS; f++) {
    const buffers plain = {.kind = DEVICE};
    rank_memory m;
    memory_open((function)f, first, n, &plain, &m);
    OK(ncclGroupStart());
    OK(call((function)f, first, m.in, m.out, n));
    OK(ncclGroupEnd());
    wait_all();
    if (f != REDUCE || first == 1 % nranks) {
      compare((function)f, first, m.out, n);
    }
    memory_close(first, &plain, &m);
  }
}

// The rest of what is mapped when all ranks of the process have left.
static void check_closed(void)
{
  CHECK(allocations() == 0, "rank %d: %d allocations are left", first, allocations());
}

static void ways_body(int process, void *arg)
{
  const obstacle what = *(const obstacle *)arg;
  static const size_t counts[] = {0, 1, 25, 26, 27, 700, 5000};
  if (process == 1) {
    hinder(what);
  }
  join(process, RANKS, 1);
  check_ends(what);
  const int made = allocations();
  CHECK(what != NOTHING || made == (reaches ? 2 * (RANKS - 1) : 0), "%d allocations, made and mapped", made);
  for (size_t i = 0; i < TT_COUNT(counts); i++) {
    try_all(counts[i]);
  }
  if (what == NOTHING || what == EXPORTS_NOT) { // each way, both ways
    try_all(LARGE);
  }
  leave();
  check_closed();
}

static void test_ways(void **state)
{
  static const obstacle all[OBSTACLES] = {NOTHING,  HAS_STREAMS, HAS_NO_CALLS, CREATES_NOT,
                                          MAPS_NOT, EXPORTS_NOT, IMPORTS_NOT};
  (void)state;
  for (int i = 0; i < (reaches ? OBSTACLES : 1); i++) {
    PROCESSES(RANKS, 100, ways_body, (void *)(uintptr_t)&all[i]);
  }
}

static void forbidden_body(int process, void *arg)
{
  (void)arg;
  join(process, 2, 1);
  check_end(1 - first, true, false);
  check_end(1 - first, false, false);
  CHECK(allocations() == 0, "rank %d has memory for messages", first);
  try_all(700);
  leave();
}

static void test_forbidden(void **state)
{
  (void)state;
  const run job = {.n = 2, .seconds = 60, .fn = forbidden_body, .env = ENV("NCCL_P2P_DISABLE=1")};
  assert_int_equal(run_processes(&job), 0);
}

// ---- A rank that does not answer ----

static CUresult import_late(CUmemGenericAllocationHandle *out, void *shareable, CUmemAllocationHandleType type)
{
  meet(2); // rank 0 has failed
  return import_none(out, shareable, type);
}

// Rank 1's process is held up while it opens what rank 0 offers. That says so, and gives up.
static void late_body(int process, void *arg)
{
  (void)arg;
  if (process == 1) {
    ((tt_cuda *)(uintptr_t)tt_cuda_get(NULL))->MemImportFromShareableHandle = import_late;
  }
  const ncclUniqueId id = shared_id(0, process);
  OK(tt_gpu_enter(device_of(process)));
  const ncclResult_t res = ncclCommInitRank(&comms[process], 2, id, process);
  tt_gpu_leave();
  if (process == 0) {
    CHECK(res == ncclRemoteError && strstr(ncclGetLastError(NULL), "rank 1 has not answered for 10 s") != NULL &&
              strstr(ncclGetLastError(NULL), "NCCL_BOOTSTRAP_TIMEOUT") != NULL,
          "%d: %s", (int)res, ncclGetLastError(NULL));
    meet(2);
  } else {
    CHECK(res != ncclSuccess, "rank 1 has a communicator");
  }
}

static void test_late(void **state)
{
  (void)state;
  const run job = {.n = 2, .seconds = 60, .fn = late_body, .env = ENV("NCCL_BOOTSTRAP_TIMEOUT=10")};
  assert_int_equal(run_processes(&job), 0);
}

// ---- Ranks that have gone ----

static void check_mark(const char *memory, size_t bytes)
{
  static char found[1 << 20];
  CHECK(bytes <= sizeof found, "%zu bytes", bytes);
  ON(first, cu->MemcpyDtoH(found, (CUdeviceptr)(uintptr_t)memory, bytes));
  for (size_t i = 0; i < bytes; i++) {
    CHECK(found[i] == MARK, "byte %zu has changed that was in an inbox before: %d", i, found[i]);
  }
}

// The receiver aborts, and its program has other memory. Or its process ends. What kernels of the sender write into its
// inbox until the sender has noticed goes nowhere.
static void gone_body(int process, void *arg)
{
  const bool ends = *(const bool *)arg;
  char *memory[4];
  const size_t bytes = 1 << 20;
  join(process, 2, 1);
  try_all(700);
  bool lines;
  const CUdeviceptr inbox = inbox_with(1 - first, true, TT_SIMPLE, &lines);
  CHECK(inbox != 0, "rank %d has no inbox", first);
  meet(2);
  if (process == 0) {
    if (ends) {
      _exit(0);
    }
    OK(ncclCommAbort(comms[0]));
    check_closed();
    for (int i = 0; i < 4; i++) {
      memory[i] = take(0, i % 2 == 0 ? DEVICE : CREATED, bytes);
      ON(0, cu->MemsetD8((CUdeviceptr)(uintptr_t)memory[i], MARK, bytes));
    }
    meet(2);
    meet(2);
    for (int i = 0; i < 4; i++) {
      check_mark(memory[i], bytes);
      give(0, i % 2 == 0 ? DEVICE : CREATED, memory[i]);
    }
    return;
  }
  if (ends) {
    ncclResult_t error = ncclSuccess;
    for (double limit = seconds_now() + 30; error == ncclSuccess && seconds_now() < limit; sleep_ms(1)) {
      OK(ncclCommGetAsyncError(comms[1], &error));
    }
    CHECK(error == ncclRemoteError, "%d: %s", (int)error, ncclGetLastError(comms[1]));
  } else {
    meet(2);
  }
  ON(1, cu->MemsetD8(inbox, 0, 1000));
  if (!ends) {
    meet(2);
  }
  OK(ncclCommAbort(comms[1]));
  check_closed();
}

static void test_gone(void **state)
{
  static const bool ends[] = {false, true};
  (void)state;
  for (int i = 0; i < (reaches ? 2 : 0); i++) {
    PROCESSES(2, 60, gone_body, (void *)(uintptr_t)&ends[i]);
  }
}

static int in_mode(const char *modes, unsigned number)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ways), cmocka_unit_test(test_forbidden),
                                     cmocka_unit_test(test_gone), cmocka_unit_test(test_late)};
  set_modes(modes, "inbox-test");
  reaches = strstr(modes, "peers=none") == NULL;
  ll128 = strstr(modes, "lines") != NULL;
  if (ll128) {
    setenv("NCCL_PROTO", "LL128,Simple", 1);
  }
  setenv("NCCL_ALGO", "Ring", 1);
  peers_none = true;                   // plans use FIFOs alone
  const size_t left_out = number != 0; // the last one waits for a time-out, once
  return _cmocka_run_group_tests(modes, tests, TT_COUNT(tests) - left_out, NULL, NULL);
}

// An argument chooses tests by name; CUDA_INBOX_MODE one mode.
int main(int argc, char **argv)
{
  static const char *const modes[] = {
      "resident,devices=3,lines", "resident,devices=4,waits,order=random,stores,stale,seed=3",
      "resident,devices=3,lines,order=random,stores,stale,seed=2", "resident,devices=3,peers=none"};
  use_driver();
  if (argc > 1) {
    cmocka_set_test_filter(argv[1]);
  }
  return for_each_mode(modes, TT_COUNT(modes), MODE_STEP, getenv("CUDA_INBOX_MODE"), in_mode) != 0;
}
