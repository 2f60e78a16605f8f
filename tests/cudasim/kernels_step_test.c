// kernels_step_test.c: an operation as stream work: the kernels that ship, and waits of streams for words, on the
// driver for tests. n ranks on one GPU or on several, in one process or in n.
//
// The operation is an all-reduce in which each rank reads every other one's input:
//   arrive -> streams wait for the peers' tokens -> resolve, combine, post -> streams wait until the tokens are back
#include "rig.h"

#include "base/util.h"
#include "device/cuda/kernels/choose.h"
#include "device/cuda/kernels/modules.h"

#if defined TT_TSAN || defined TT_ASAN
enum { SEEDS = 2, MORE_SEEDS = 2, CROWDED = 1 }; // the driver's machine is ten times slower
#else
enum { SEEDS = 20, MORE_SEEDS = 8, CROWDED = 5 }; // CROWDED: modes with 8 ranks
#endif
enum { MAX_RANKS = 8, ROUNDS = 4, COUNT = 3000, BYTES = COUNT * 4, SLOTS = 2, OPERANDS = MAX_RANKS + 1 };

// From one rank to another. The head is the reader's. `again` and `back` are a captured operation's: each replay finds
// them 0, and leaves them so.
typedef struct step_fifo {
  tt_cuda_slot slot[SLOTS], again;
  _Atomic uint32_t head, back;
  uint32_t pad[14];
} step_fifo;

// What a rank's kernels read while they run. Of one round.
typedef struct step_lists {
  tt_cuda_ref refs[OPERANDS];
  tt_cuda_post tokens[MAX_RANKS], backs[MAX_RANKS];
} step_lists;

// In memory that all processes share, pinned.
typedef struct step_shared {
  step_fifo fifo[MAX_RANKS][MAX_RANKS]; // from, to
  tt_cuda_map maps[MAX_RANKS][MAX_RANKS][2];
  CUipcMemHandle handle[MAX_RANKS];
  uint64_t base[MAX_RANKS];
  _Atomic uint32_t stop[MAX_RANKS];
  tt_cuda_fault fault[MAX_RANKS];
  step_lists lists[MAX_RANKS][ROUNDS];
} step_shared;
_Static_assert(sizeof(step_shared) <= RIG_SHARED - (1 << 16), "it lies in the rig's shared memory");

// A rank, in the process that runs it.
typedef struct step_rank {
  int number, device;
  CUstream stream;
  CUdeviceptr in, out, results, operands, go;
  uint32_t count; // that it thinks the operation has
} step_rank;

static step_shared *all;
static int nranks;
static step_rank ranks[MAX_RANKS];

static CUdeviceptr address(const volatile void *p)
{
  return (CUdeviceptr)(uintptr_t)p;
}

static void use(const step_rank *r)
{
  rig_context(r->device);
}

static CUfunction kernel(const step_rank *r, const char *module, const char *name)
{
  static struct {
    const char *module, *name;
    CUfunction function;
  } known[8][8];
  int i = 0;
  while (known[r->device][i].name != NULL &&
         (strcmp(known[r->device][i].name, name) != 0 || strcmp(known[r->device][i].module, module) != 0)) {
    i++;
  }
  if (known[r->device][i].name == NULL) {
    CUmodule m;
    OK(cu.ModuleLoadDataEx(&m, tt_ptx_find(module), 0, NULL, NULL));
    OK(cu.ModuleGetFunction(&known[r->device][i].function, m, name));
    known[r->device][i].module = module;
    known[r->device][i].name = name;
  }
  return known[r->device][i].function;
}

static void launch(const step_rank *r, const char *module, const char *name, unsigned ctas, tt_cuda_step *args)
{
  void *params[] = {args};
  OK(cu.LaunchKernel(kernel(r, module, name), ctas, 1, 1, TT_CUDA_THREADS, 1, 1, 0, r->stream, params, NULL));
}

// A step without parts.
static tt_cuda_step base(const step_rank *r, uint32_t round)
{
  return (tt_cuda_step){.port = {address(&all->stop[r->number]), address(&all->fault[r->number]), r->go},
                        .call = {.sig = 1000 + round, .count = r->count},
                        .operands = r->operands};
}

static void launch_tokens(const step_rank *r, uint32_t round, const tt_cuda_post *tokens, uint32_t n)
{
  tt_cuda_step a = base(r, round);
  a.port.go = 0;
  a.arrive = (tt_cuda_arrive){.to = {.posts = address(tokens), .nposts = n}, .in = r->in, .in_mem = 5};
  launch(r, "step", "copy", 1, &a);
}

// ---- Setup ----

static void rank_open(step_rank *r, int number, int devices)
{
  *r = (step_rank){.number = number, .device = number % devices, .count = COUNT};
  use(r);
  r->stream = rig_stream();
  r->in = rig_memory(BYTES);
  r->out = rig_memory(BYTES);
  r->results = rig_memory(ROUNDS * BYTES);
  r->operands = rig_memory(OPERANDS * sizeof(tt_cuda_operand));
  r->go = rig_memory(4);
  OK(cu.MemsetD32(r->out, 0x5a5a5a5a, COUNT));
  kernel(r, "step", "copy"); // loaded before any stream waits
  kernel(r, "Int32", "combine");
}

static void reach_peers(const step_rank *r, int devices)
{
  for (int d = 0; d < devices; d++) {
    CUcontext context;
    OK(cu.DevicePrimaryCtxRetain(&context, d));
    if (d != r->device) {
      CUresult error = cu.CtxEnablePeerAccess(context, 0);
      CHECK(error == CUDA_SUCCESS || error == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    }
  }
}

// The other ranks are in other processes: opens their memory.
static void map_peers(const step_rank *r)
{
  all->base[r->number] = r->in;
  OK(cu.IpcGetMemHandle(&all->handle[r->number], r->in));
  rig_barrier(nranks);
  for (int p = 0; p < nranks; p++) {
    if (p != r->number) {
      CUdeviceptr here;
      OK(cu.IpcOpenMemHandle(&here, all->handle[p], 1));
      all->maps[r->number][p][0] = (tt_cuda_map){.remote = all->base[p], .bytes = BYTES, .here = here, .handle = 5};
    }
  }
}

// ---- Submitting ----

// The stream waits until the word has come so far.
static void await(const step_rank *r, const volatile void *word, uint32_t value)
{
  OK(cu.StreamWaitValue32(r->stream, address(word), value, CU_STREAM_WAIT_VALUE_GEQ));
}

static void begin(const step_rank *r, uint32_t round)
{
  step_lists *l = &all->lists[r->number][round];
  uint32_t n = 0;
  use(r);
  OK(cu.MemsetD32Async(r->in, (round + 1) * 100 + (uint32_t)r->number, COUNT, r->stream));
  for (int p = 0; p < nranks; p++) {
    step_fifo *f = &all->fifo[r->number][p];
    if (p != r->number) {
      if (round >= SLOTS) {
        await(r, &f->head, round + 1 - SLOTS);
      }
      l->tokens[n++] = (tt_cuda_post){.at = address(&f->slot[round % SLOTS]), .seq = round + 1};
    }
  }
  launch_tokens(r, round, l->tokens, n);
}

static void list_operands(const step_rank *r, uint32_t round, bool processes)
{
  step_lists *l = &all->lists[r->number][round];
  for (int p = 0; p < nranks; p++) {
    l->refs[p] = (tt_cuda_ref){.at = r->in, .bytes = BYTES, .peer = p, .where = TT_CUDA_AT};
    if (p != r->number) {
      l->refs[p] = (tt_cuda_ref){.bytes = BYTES,
                                 .slot = address(&all->fifo[p][r->number].slot[round % SLOTS]),
                                 .maps = processes ? address(all->maps[r->number][p]) : 0,
                                 .seq = round + 1,
                                 .peer = p,
                                 .where = TT_CUDA_PEER_IN};
    }
  }
  l->refs[nranks] = (tt_cuda_ref){.at = r->out, .bytes = BYTES, .peer = r->number, .where = TT_CUDA_AT};
}

static tt_cuda_resolve part_resolve(const step_rank *r, uint32_t round)
{
  return (tt_cuda_resolve){
      .refs = address(all->lists[r->number][round].refs), .nrefs = (uint32_t)nranks + 1, .scalar_bytes = 4};
}

static tt_kernel part_combine(void)
{
  tt_redop op;
  tt_kernel k;
  tt_redop_builtin(&op, ncclInt32, ncclSum, nranks);
  tt_kernel_choose(&(tt_kernel_use){&op, nranks, 1, COUNT, false, true}, &k);
  return k;
}

static tt_cuda_posts part_post(const step_rank *r, uint32_t round)
{
  step_lists *l = &all->lists[r->number][round];
  uint32_t n = 0;
  for (int p = 0; p < nranks; p++) {
    if (p != r->number) {
      l->backs[n++] = (tt_cuda_post){.at = address(&all->fifo[p][r->number].head), .seq = round + 1, .word = 1};
    }
  }
  return (tt_cuda_posts){.posts = address(l->backs), .nposts = n};
}

// In three launches, or in one.
static void submit_step(const step_rank *r, uint32_t round, bool whole)
{
  const tt_kernel k = part_combine();
  tt_cuda_step a = base(r, round);
  a.resolve = part_resolve(r, round);
  if (!whole) {
    launch(r, "step", "copy", 1, &a);
    a.resolve.nrefs = 0;
  }
  a.combine = k.args;
  if (!whole) {
    launch(r, k.module, k.name, 2, &a);
    a.combine.count = 0;
  }
  a.post = part_post(r, round);
  launch(r, k.module, k.name, 1, &a);
}

static void combine(const step_rank *r, uint32_t round, bool processes)
{
  use(r);
  for (int p = 0; p < nranks; p++) {
    if (p != r->number) {
      await(r, &all->fifo[p][r->number].slot[round % SLOTS].seq, round + 1);
    }
  }
  list_operands(r, round, processes);
  submit_step(r, round, round % 2 == 0);
}

static void finish(const step_rank *r, uint32_t round)
{
  use(r);
  for (int p = 0; p < nranks; p++) {
    if (p != r->number) {
      await(r, &all->fifo[r->number][p].head, round + 1);
    }
  }
  OK(cu.MemcpyAsync(r->results + (CUdeviceptr)round * BYTES, r->out, BYTES, r->stream));
}

static void check_results(const step_rank *r, uint32_t rounds)
{
  static uint32_t got[ROUNDS * COUNT];
  use(r);
  OK(cu.StreamSynchronize(r->stream));
  CHECK(all->fault[r->number].code == TT_CUDA_FINE);
  OK(cu.MemcpyDtoH(got, r->results, sizeof got));
  for (uint32_t round = 0; round < rounds; round++) {
    uint32_t sum = 0;
    for (int p = 0; p < nranks; p++) {
      sum += (round + 1) * 100 + (uint32_t)p;
    }
    for (uint32_t i = 0; i < COUNT; i++) {
      CHECK(got[round * COUNT + i] == sum);
    }
  }
}

// ---- In one process: phase by phase over the ranks, so that what a stream waits for was submitted before ----

static int job_ranks, job_devices;

static void open_all(void)
{
  all = rig_shared();
  nranks = job_ranks;
  rig_context(0);
  OK(cu.MemHostRegister(all, TT_ROUND_UP(sizeof *all, 4096),
                        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  for (int i = 0; i < nranks; i++) {
    rank_open(&ranks[i], i, job_devices);
    reach_peers(&ranks[i], job_devices);
  }
}

static void one_round(uint32_t round)
{
  for (int i = 0; i < nranks; i++) {
    begin(&ranks[i], round);
  }
  for (int i = 0; i < nranks; i++) {
    combine(&ranks[i], round, false);
  }
  for (int i = 0; i < nranks; i++) {
    finish(&ranks[i], round);
  }
}

static void one_process(void)
{
  open_all();
  for (uint32_t round = 0; round < ROUNDS; round++) {
    one_round(round);
  }
  for (int i = 0; i < nranks; i++) {
    check_results(&ranks[i], ROUNDS);
  }
}

static void run_one(const char *modes, int n, int devices)
{
  char full[256];
  job_ranks = n;
  job_devices = devices;
  snprintf(full, sizeof full, "%s%sdevices=%d,deadlock=60000", modes, *modes != '\0' ? "," : "", devices);
  rig_quiet(full, 1, one_process);
}

static void test_one_process(void **state)
{
  (void)state;
  static const char *const modes[] = {"", "queues=1", "blocking", "queues=1,blocking", "launches=3,queues=1"};
  for (size_t i = 0; i < TT_COUNT(modes); i++) {
    run_one(modes[i], 2, 1);
    if (i < CROWDED) {
      run_one(modes[i], 8, 1);
    }
    run_one(modes[i], 4, 4);
  }
}

static void test_one_process_random(void **state)
{
  (void)state;
  char modes[64];
  for (int seed = 1; seed <= SEEDS; seed++) {
    snprintf(modes, sizeof modes, "order=random,stores,stale,step=500,seed=%d", seed);
    run_one(modes, 2 + seed % 3, 1 + seed % 2);
  }
}

// ---- Each rank a process ----

static void own_process(void)
{
  all = rig_shared();
  nranks = job_ranks;
  step_rank *r = &ranks[rank];
  rig_context(0);
  OK(cu.MemHostRegister(all, TT_ROUND_UP(sizeof *all, 4096),
                        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  rank_open(r, rank, job_devices);
  map_peers(r);
  for (uint32_t round = 0; round < ROUNDS; round++) {
    begin(r, round);
    combine(r, round, true);
    finish(r, round);
  }
  check_results(r, ROUNDS);
  rig_barrier(nranks); // peers may read this rank's memory until then
}

static void run_many(const char *modes, int n, int devices)
{
  char full[256];
  job_ranks = n;
  job_devices = devices;
  snprintf(full, sizeof full, "%s%sdevices=%d,deadlock=60000", modes, *modes != '\0' ? "," : "", devices);
  rig_quiet(full, n, own_process);
}

static void test_processes(void **state)
{
  (void)state;
  char modes[64];
  run_many("", 2, 1);
  run_many("", 4, 2);
  run_many("queues=1,blocking", 3, 1);
  for (int seed = 1; seed <= TT_MIN(MORE_SEEDS, 6); seed++) {
    snprintf(modes, sizeof modes, "slices=5,order=random,stores,stale,step=500,seed=%d", seed);
    run_many(modes, 2 + seed % 3, 1);
  }
}

// ---- Captured, and replayed between eager operations. Constants in waits would be wrong in the second replay, so a
// captured operation waits for 1 in words of its own, and sets them back ----

enum { REPLAYS = 12 };

static void capture_begin(const step_rank *r)
{
  step_lists *l = &all->lists[r->number][ROUNDS - 1]; // that round is not run
  uint32_t n = 0;
  use(r);
  for (int p = 0; p < nranks; p++) {
    if (p != r->number) {
      l->tokens[n++] = (tt_cuda_post){.at = address(&all->fifo[r->number][p].again), .seq = 1};
    }
  }
  launch_tokens(r, 0, l->tokens, n);
  for (int p = 0; p < nranks; p++) {
    if (p != r->number) {
      OK(cu.StreamWaitValue32(r->stream, address(&all->fifo[p][r->number].again.seq), 1, CU_STREAM_WAIT_VALUE_EQ));
    }
  }
}

static void capture_combine(const step_rank *r)
{
  step_lists *l = &all->lists[r->number][ROUNDS - 1];
  uint32_t n = 0;
  list_operands(r, ROUNDS - 1, false);
  for (int p = 0; p < nranks; p++) {
    if (p != r->number) {
      l->refs[p].slot = address(&all->fifo[p][r->number].again);
      l->refs[p].seq = 1;
      l->backs[n++] = (tt_cuda_post){.at = address(&all->fifo[p][r->number].back), .seq = 1, .word = 1};
    }
  }
  const tt_kernel k = part_combine();
  tt_cuda_step a = base(r, 0);
  a.resolve = part_resolve(r, ROUNDS - 1);
  launch(r, "step", "copy", 1, &a);
  a.resolve.nrefs = 0;
  a.combine = k.args;
  launch(r, k.module, k.name, 2, &a);
}

// The token's word is 0 before the peer may send the next one, hence by the stream, before `post`.
static void capture_finish(const step_rank *r)
{
  step_lists *l = &all->lists[r->number][ROUNDS - 1];
  for (int p = 0; p < nranks; p++) {
    if (p != r->number) {
      OK(cu.StreamWriteValue32(r->stream, address(&all->fifo[p][r->number].again.seq), 0, 0));
    }
  }
  tt_cuda_step a = base(r, 0);
  a.post = (tt_cuda_posts){.posts = address(l->backs), .nposts = (uint32_t)nranks - 1};
  launch(r, "step", "copy", 1, &a);
  for (int p = 0; p < nranks; p++) {
    if (p != r->number) {
      OK(cu.StreamWaitValue32(r->stream, address(&all->fifo[r->number][p].back), 1, CU_STREAM_WAIT_VALUE_EQ));
      OK(cu.StreamWriteValue32(r->stream, address(&all->fifo[r->number][p].back), 0, 0));
    }
  }
}

static CUgraphExec capture(const step_rank *r)
{
  CUgraph graph;
  CUgraphExec exec;
  use(r);
  OK(cu.StreamBeginCapture(r->stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  capture_begin(r);
  capture_combine(r);
  capture_finish(r);
  OK(cu.StreamEndCapture(r->stream, &graph));
  OK(cu.GraphInstantiateWithFlags(&exec, graph, 0));
  OK(cu.GraphDestroy(graph));
  return exec;
}

// All elements of the output have this value.
static void check_output(const step_rank *r, uint32_t value)
{
  static uint32_t got[COUNT];
  use(r);
  OK(cu.StreamSynchronize(r->stream));
  OK(cu.MemcpyDtoH(got, r->out, sizeof got));
  for (uint32_t i = 0; i < COUNT; i++) {
    CHECK(got[i] == value);
  }
}

static void replay(CUgraphExec *graphs, uint32_t value)
{
  for (int i = 0; i < nranks; i++) {
    use(&ranks[i]);
    OK(cu.MemsetD32Async(ranks[i].in, value + (uint32_t)i, COUNT, ranks[i].stream));
    OK(cu.GraphLaunch(graphs[i], ranks[i].stream));
  }
}

static void captured(void)
{
  CUgraphExec graphs[MAX_RANKS];
  open_all();
  const uint32_t more = (uint32_t)(nranks * (nranks - 1) / 2);
  for (int i = 0; i < nranks; i++) {
    graphs[i] = capture(&ranks[i]);
  }
  for (uint32_t k = 0; k < REPLAYS; k++) {
    replay(graphs, 7 * k);
    replay(graphs, 1000 * k); // nobody waits in between
    for (int i = 0; i < nranks && k % 2 == 1; i++) {
      check_output(&ranks[i], 1000 * k * (uint32_t)nranks + more);
    }
    if (k < ROUNDS - 1) {
      one_round(k);
    }
  }
  for (int i = 0; i < nranks; i++) {
    check_results(&ranks[i], ROUNDS - 1);
    OK(cu.GraphExecDestroy(graphs[i]));
  }
}

static void test_captured(void **state)
{
  (void)state;
  job_ranks = 3;
  char modes[96];
  for (int seed = 1; seed <= TT_MIN(MORE_SEEDS, 4); seed++) {
    job_devices = 1; // queues are taken in turn: none has two streams
    snprintf(modes, sizeof modes, "queues=32,stores,stale,step=500,deadlock=60000,seed=%d", seed);
    rig_quiet(modes, 1, captured);
    job_devices = 3;
    snprintf(modes, sizeof modes, "order=random,stores,stale,step=500,deadlock=60000,seed=%d,devices=3", seed);
    rig_quiet(modes, 1, captured);
  }
}

// A graph is submitted as a whole. So where two ranks' streams share a hardware queue, the second one's graph stands
// behind the first one's wait for it: a program with several ranks of a GPU in one process must keep them apart.
static void test_captured_in_one_queue(void **state)
{
  (void)state;
  int status = 0;
  if (real_driver()) {
    skip(); // it would stand there
  }
  job_ranks = 2;
  job_devices = 1;
  rig_run_some("queues=1,deadlock=300", 1, captured, rig_err, sizeof rig_err, &status);
  assert_int_not_equal(status, 0);
  assert_non_null(strstr(rig_err, "stands in hardware queue 0 behind stream"));
}

// ---- What goes wrong ----

// Lets the streams of a rank go that wait for others: what an abort does.
static void release(const step_rank *r, uint32_t round)
{
  atomic_store(&all->stop[r->number], 1);
  for (int p = 0; p < nranks; p++) {
    if (p != r->number) {
      __atomic_store_n(&all->fifo[p][r->number].slot[round % SLOTS].seq, round + 1, __ATOMIC_RELEASE);
      atomic_store(&all->fifo[r->number][p].head, round + 1);
    }
  }
}

static void check_untouched(const step_rank *r)
{
  static uint32_t got[COUNT];
  use(r);
  OK(cu.StreamSynchronize(r->stream));
  OK(cu.MemcpyDtoH(got, r->out, sizeof got));
  for (uint32_t i = 0; i < COUNT; i++) {
    CHECK(got[i] == 0x5a5a5a5a);
  }
}

// Rank 1 does not come; rank 0 is stopped.
static void stopped(void)
{
  open_all();
  begin(&ranks[0], 0);
  combine(&ranks[0], 0, false);
  finish(&ranks[0], 0);
  rig_sleep_ms(20);
  CHECK(cu.StreamQuery(ranks[0].stream) == CUDA_ERROR_NOT_READY);
  release(&ranks[0], 0);
  check_untouched(&ranks[0]);
  CHECK(all->fault[0].code == TT_CUDA_FINE && all->fifo[1][0].head == 0); // nothing was given back
}

static void test_stop(void **state)
{
  (void)state;
  job_ranks = 2;
  job_devices = 1;
  rig_quiet("deadlock=0", 1, stopped); // the host lets it go
  rig_quiet("deadlock=0,queues=1,order=random", 1, stopped);
}

// Has the rank found out that rank 1 has another count? Then it names the right one.
static bool check_fault(int i)
{
  const tt_cuda_fault *f = &all->fault[i];
  if (__atomic_load_n(&f->code, __ATOMIC_ACQUIRE) == TT_CUDA_FINE) {
    return false;
  }
  CHECK(f->code == TT_CUDA_MISMATCH && f->sig == 1000 && f->peer == (i == 1 ? 0 : 1));
  CHECK(f->count == (i == 1 ? COUNT : COUNT - 1));
  return true;
}

// Rank 1 has another count than ranks 0 and 2.
static void mismatched(void)
{
  open_all();
  ranks[1].count = COUNT - 1;
  for (int i = 0; i < nranks; i++) {
    begin(&ranks[i], 0);
  }
  for (int i = 0; i < nranks; i++) {
    combine(&ranks[i], 0, false);
    finish(&ranks[i], 0);
  }
  // A rank is let go as soon as it has found out: others may stand behind it in a hardware queue.
  for (int done = 0, i = 0; done < nranks; i = (i + 1) % nranks) {
    if (atomic_load(&all->stop[i]) == 0 && check_fault(i)) {
      release(&ranks[i], 0);
      done++;
    }
    rig_sleep_ms(1);
  }
  for (int i = 0; i < nranks; i++) {
    check_untouched(&ranks[i]);
  }
}

static void test_mismatch(void **state)
{
  (void)state;
  job_ranks = 3;
  job_devices = 1;
  rig_quiet("deadlock=0", 1, mismatched);
  rig_quiet("deadlock=0,queues=1", 1, mismatched);
  for (int seed = 1; seed <= MORE_SEEDS; seed++) {
    char modes[64];
    snprintf(modes, sizeof modes, "deadlock=0,stores,stale,order=random,seed=%d", seed);
    rig_quiet(modes, 1, mismatched);
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_process),
      cmocka_unit_test(test_one_process_random),
      cmocka_unit_test(test_processes),
      cmocka_unit_test(test_captured),
      cmocka_unit_test(test_captured_in_one_queue),
      cmocka_unit_test(test_stop),
      cmocka_unit_test(test_mismatch),
  };
  if (argc > 1) {
    cmocka_set_test_filter(argv[1]);
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
