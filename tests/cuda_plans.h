// cuda_plans.h: for cuda_plan_test.c and cuda_capture_test.c: the ranks of executor.h on GPUs of the driver for tests,
// all in this process, and the algorithms' schedules as plans of theirs.
#pragma once
#include "cuda_modes.h"
#include "executor.h"

#include <string.h>

#include "base/util.h"
#include "coll/level.h"
#include "device/cuda/work/capture.h"
#include "device/cuda/work/inbox.h"
#include "device/cuda/work/owner.h"
#include "device/cuda/work/submit.h"
#include "device/cuda/work/walk.h"
#include "os/clock.h"

enum { RANKS = 8, SCRATCH = 1 << 20, WORDS = MAX_WORDS + MOST * 4 * GUARD };

static const tt_cuda *cu;
static tt_gpu_port *gpu_ports[RANKS];
static tt_gpu_stream *gpu_streams[RANKS][2];
static CUstream handles[RANKS][2];
static tt_plan plans[RANKS];
static tt_gpu_work works[RANKS];
static char *scratch;       // SCRATCH bytes for each rank
static bool ll128;          // LL messages are in lines, where both ranks are resident
static int left_out = -1;   // a rank that does not come
static int by_streams = -1; // a rank whose streams wait, though others are resident
// Of the mixtures this mode tries one in `every`, from `phase` on. The first mode tries all.
static unsigned every, phase;

// ---- The world on a GPU ----

static void pin(void *memory, size_t bytes)
{
  assert_int_equal(cu->MemHostRegister(memory, TT_ROUND_UP(bytes, (size_t)4096), CU_MEMHOSTREGISTER_PORTABLE),
                   CUDA_SUCCESS);
}

// Ranks take turns with the GPUs.
static int device_of(int rank)
{
  const int n = tt_gpu_count();
  assert_true(n > 0); // the call may have failed by order
  return rank % n;
}

static void gpu_begin(int n, int slots, uint32_t first)
{
  open_world(n, slots, TT_ACCESS_LOCAL, first);
  pin(w.memory, w.bytes);
  for (int i = 0; i < n; i++) {
    const int device = device_of(i);
    w.ports[i].ll128 = ll128 && i != by_streams;
    assert_int_equal(tt_gpu_port_open(&w.ports[i], device, &gpu_ports[i]), ncclSuccess);
    if (i == by_streams) {
      tt_gpu_walk_close(gpu_ports[i]);
    }
    assert_int_equal(tt_gpu_enter(device), ncclSuccess);
    for (int k = 0; k < 2; k++) {
      CUstream *s = &handles[i][k];
      assert_int_equal(cu->StreamCreateWithPriority(s, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
      assert_int_equal(tt_gpu_stream_get((cudaStream_t)*s, device, "test", &gpu_streams[i][k]), ncclSuccess);
    }
    tt_gpu_leave();
  }
}

static void gpu_connect(int n)
{
  for (int i = 0; i < n * n; i++) {
    assert_int_equal(tt_gpu_inbox_connect(gpu_ports[i / n], &w.links[i]), ncclSuccess);
  }
  for (int i = 0; i < n * n; i++) { // both ends of a link agree
    const bool both = ll128 && i / n != by_streams && i % n != by_streams && i / n != i % n;
    const tt_link *back = &w.links[i % n * n + i / n];
    bool lines[2] = {false, false};
    const CUdeviceptr from = tt_gpu_inbox_at(gpu_ports[i / n], i % n, &w.links[i].send[TT_LL], &lines[0]),
                      to = tt_gpu_inbox_at(gpu_ports[i % n], i / n, &back->recv[TT_LL], &lines[1]);
    assert_true(both ? from != 0 && lines[0] && lines[1] : from == 0);
    assert_true(from == to);
  }
}

static void gpu_open(int n, int slots, uint32_t first)
{
  gpu_begin(n, slots, first);
  gpu_connect(n);
}

static void gpu_close(void)
{
  for (int i = 0; i < w.n; i++) {
    tt_gpu_port_close(gpu_ports[i]);
    assert_int_equal(cu->StreamDestroy(handles[i][0]), CUDA_SUCCESS);
    assert_int_equal(cu->StreamDestroy(handles[i][1]), CUDA_SUCCESS);
  }
  assert_int_equal(cu->MemHostUnregister(w.memory), CUDA_SUCCESS);
  close_world();
}

// The lanes that executor.h has made, as plans on each rank's stream `k`. Returns how many have work.
static int make_plans(int k)
{
  int n = 0;
  for (int r = 0; r < w.n; r++) {
    plans[r] =
        (tt_plan){.lanes = lanes, .scratch = scratch + (size_t)r * SCRATCH, .scratch_size = SCRATCH - sizeof(uint64_t)};
    plans[r].turns_end = &plans[r].turns;
  }
  for (int i = 0; i < nlanes; i++) {
    tt_lane *l = &lanes[i];
    const int r = lane_rank[i];
    l->tmp = plans[r].scratch + SCRATCH / 2;
    l->turn = l->after >= 0 && l->nafter > 0; // the second channel
    assert_true((size_t)l->sched->ntmp * l->slot <= SCRATCH / 2 - sizeof(uint64_t));
    if (!l->done && r != left_out) {
      tt_plan_add(&plans[r], l, NULL);
    }
  }
  for (int r = 0; r < w.n; r++) {
    if (plans[r].turns != NULL) {
      works[n++] = (tt_gpu_work){.port = gpu_ports[r], .stream = gpu_streams[r][k], .plan = &plans[r]};
    }
  }
  return n;
}

// Rank r's input is read from a copy that the plan makes.
static void stage_input(side *s, int r)
{
  plans[r].stage_src = s->in;
  plans[r].stage_bytes = s->nin * 4;
  assert_true(plans[r].stage_bytes <= SCRATCH / 2);
  s->call.in = plans[r].scratch;
}

// Its factor lies in memory that kernels read when they run, behind the scratch.
static void keep_factor(side *s, int r)
{
  uint64_t *at = (uint64_t *)(void *)(scratch + (size_t)(r + 1) * SCRATCH - sizeof *at);
  *at = s->call.op.scalar;
  s->call.scalar = at;
  s->call.op.scalar = 0;
}

// The calls of a trial as they are, or with staged inputs and factors in memory.
static inline void vary_calls(const trial *t, int n)
{
  for (int i = 0; i < (is_p2p(t->f) ? 2 : w.n) && n > 0; i++) {
    side *s = &sides[i];
    const int r = rank_of_side(t, i);
    if (runs % 2 == 1 && s->nin > 0) {
      stage_input(s, r);
    }
    if (runs % 4 >= 2 && t->op == PREMUL) {
      keep_factor(s, r);
    }
  }
}

// The lanes once more, for the same calls.
static inline void renew_lanes(const trial *t)
{
  nlanes = 0;
  for (int i = 0; i < (is_p2p(t->f) ? 2 : w.n); i++) {
    add_lanes(t, &sides[i], rank_of_side(t, i));
  }
}

// ---- What to try ----

// A message has the receiver's schedule, too.
static void schedules(const tt_algorithm *a, tt_func f, int root, int to, bool channels)
{
  for (int i = 0; i < (is_p2p(f) ? 2 : w.n); i++) {
    const bool sends = is_p2p(f) && i == 0;
    const tt_shape shape = {.func = !is_p2p(f) ? f
                                    : sends    ? TT_FUNC_SEND
                                               : TT_FUNC_RECV,
                            .nranks = w.n,
                            .root = sends ? to : root,
                            .rank = !is_p2p(f) ? i
                                    : sends    ? root
                                               : to};
    assert_int_equal(tt_algorithm_write(a, &shape, &sides[i].s), ncclSuccess);
    assert_int_equal(tt_schedule_level(a, &shape, sides[i].s), ncclSuccess);
    if (channels) { // a second one, which begins when the first is done
      assert_int_equal(tt_algorithm_write(a, &shape, &sides[i].more[0]), ncclSuccess);
      assert_int_equal(tt_schedule_level(a, &shape, sides[i].more[0]), ncclSuccess);
    }
  }
}

static void drop_schedules(void)
{
  for (int i = 0; i < MOST; i++) {
    tt_schedule_free(sides[i].s);
    tt_schedule_free(sides[i].more[0]);
    sides[i].s = sides[i].more[0] = NULL;
  }
}

static bool uses_fifos(void)
{
  for (int i = 0; i < w.n && sides[i].s != NULL; i++) {
    for (int k = 0; k < sides[i].s->nrefs; k++) {
      if (sides[i].s->refs[k].kind == TT_FIFO) {
        return true;
      }
    }
  }
  return false;
}

// The i-th mixture: in place and not, SIMPLE and LL, sums and averages and factors, one pass and several.
static void try_one(const tt_algorithm *a, tt_func f, int root, int to, unsigned i)
{
  static const size_t counts[] = {41, 1, 150, 0, 2500}, chunks[] = {16, 64, 7};
  trial t = {.a = a,
             .f = f,
             .root = root,
             .to = to,
             .in_place = i % 2 == 1,
             .proto = i / 2 % 2 == 0 ? TT_SIMPLE : TT_LL,
             .floats = f == TT_FUNC_ALLREDUCE && i % 3 == 1,
             .op = tt_func_reduces(f) ? (int)(i % 3) : SUM,
             .count = counts[i % TT_COUNT(counts)],
             .chunk = chunks[i / 2 % TT_COUNT(chunks)]};
  t.chunk = t.proto == TT_LL && !ll128 ? TT_MIN(t.chunk, 10) : t.chunk;
  schedules(a, f, root, to, i % 4 == 1 && !is_p2p(f));
  if (t.count > 200) { // several launches for a step, where nothing goes through FIFOs
    const bool fifos = uses_fifos();
    t.count = fifos ? 200 : t.count;
    t.chunk = fifos ? t.chunk : t.count;
  }
  run_trial(&t);
  drop_schedules();
}

static void try_row(const tt_algorithm *a, tt_func f, unsigned how_many)
{
  static unsigned next;
  for (unsigned i = 0; i < how_many; i++, next++) {
    const int root = (int)next % w.n, to = (int)(next / 2) % w.n;
    if (next % every == phase % every) {
      try_one(a, f, is_rooted(f) || is_p2p(f) ? root : 0, to, next);
    }
  }
}

// Every function of every algorithm; of messages the sender stands for both.
static inline void try_all(int n, int slots, uint32_t first, unsigned how_many)
{
  int count;
  const tt_algorithm *table = tt_algorithms(&count);
  gpu_open(n, slots, first);
  for (int i = 0; i < count; i++) {
    for (int f = 0; f < TT_NFUNCS; f++) {
      if ((table[i].funcs >> f & 1) && f != TT_FUNC_RECV) {
        try_row(&table[i], (tt_func)f, how_many);
      }
    }
  }
  gpu_close();
}

// ---- One operation by hand ----

static const trial direct_sum = {.f = TT_FUNC_ALLREDUCE, .count = 41, .chunk = 16};

// All ranks but one submit an all-reduce; nothing of it is complete.
static void begin_trial(const trial *t)
{
  uint32_t *at = arena;
  schedules(t->a, t->f, 0, 0, false);
  nlanes = 0;
  for (int i = 0; i < w.n; i++) {
    at = prepare(t, &sides[i], i, at);
  }
}

static inline void begin_function(trial *t, tt_func f)
{
  *t = direct_sum;
  t->f = f;
  t->a = &tt_algorithms(NULL)[TT_ALGO_DIRECT];
  begin_trial(t);
}

static inline void begin_direct(trial *t)
{
  begin_function(t, TT_FUNC_ALLREDUCE);
}

// *idle: has the port nothing to do, plans or replays? Errors: such work has failed.
static ncclResult_t look_at_port(tt_gpu_port *p, tt_gpu_stream *const streams[2], bool *idle)
{
  bool replays = false, stream = true;
  *idle = tt_gpu_port_idle(p);
  for (int k = 0; k < 2 && !*idle; k++) {
    TT_TRY(tt_gpu_stream_query(streams[k], &stream));
  }
  TT_TRY(tt_gpu_port_replays(p, &replays));
  *idle &= !replays;
  return ncclSuccess;
}

// Stops the port, and waits until nothing of it runs, nor any replay of its graphs that has been launched. Ports of one
// device that wait for this one have been stopped: they may stand before it in a hardware queue. Errors: as above.
static inline ncclResult_t settle(int rank)
{
  tt_gpu_port *p = gpu_ports[rank];
  bool idle = false;
  tt_gpu_port_stop(p);
  TT_TRY(look_at_port(p, gpu_streams[rank], &idle));
  while (!idle) {
    tt_sleep_ns(TT_NS_PER_MS / 10);
    tt_gpu_port_stop(p);
    TT_TRY(look_at_port(p, gpu_streams[rank], &idle));
  }
  tt_gpu_owner_leave(p);
  return ncclSuccess;
}

// ---- Modes: each has a process of its own ----

// Every GPU reads and writes the memory of every other one.
static bool reach_all(void)
{
  CUcontext contexts[TT_GPUS];
  const int n = tt_gpu_count();
  bool all = true;
  for (int i = 0; i < n; i++) {
    all &= tt_gpu_context(i, &contexts[i]) == ncclSuccess;
  }
  for (int i = 0; i < n && all; i++) {
    all &= tt_gpu_enter(i) == ncclSuccess;
    for (int k = 0; k < n; k++) {
      all &= k == i || cu->CtxEnablePeerAccess(contexts[k], 0) == CUDA_SUCCESS;
    }
    tt_gpu_leave();
  }
  return all;
}

// Opens the driver for tests in this mode; `name`: of what its processes share. Returns whether it could.
static bool open_mode(const char *modes, const char *name)
{
  CUcontext context;
  void *memory;
  set_modes(modes, name);
  cu = tt_cuda_get(NULL);
  if (cu == NULL || tt_gpu_context(0, &context) != ncclSuccess || cu->CtxSetCurrent(context) != CUDA_SUCCESS ||
      !reach_all()) {
    return false;
  }
  pin(arena, WORDS * sizeof *arena);
  if (cu->MemHostAlloc(&memory, RANKS * SCRATCH, CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS) {
    return false;
  }
  scratch = memory;
  return true;
}
