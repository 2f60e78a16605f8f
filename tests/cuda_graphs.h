// cuda_graphs.h: for the tests of captured plans: ranks of cuda_plans.h, their graphs, and replays.
#pragma once
#include "cuda_plans.h"

#include "device/cuda/work/capture.h"
#include "device/cuda/work/pool.h"

// How the ranks' plans become graphs.
typedef enum {
  ALONE, // each rank captures for itself, as in processes of their own, and has a graph of its own
  APART, // all at once, into a graph for each
  ONE,   // all into one
  WAYS
} way;

static CUevent joints[RANKS];
static CUgraph graphs[RANKS];
static CUgraphExec execs[RANKS];
static int ngraphs, graph_rank[RANKS];

static void ok(CUresult error)
{
  if (error != CUDA_SUCCESS) {
    fail_msg("%s", tt_cuda_text(cu, error));
  }
}

// ---- Graphs ----

static void enter(int rank)
{
  assert_int_equal(tt_gpu_enter(device_of(rank)), ncclSuccess);
}

// The stream's work goes on behind that of the other one.
static void join(CUstream before, CUstream behind, int rank)
{
  ok(cu->EventRecord(joints[rank], before));
  ok(cu->StreamWaitEvent(behind, joints[rank], 0));
}

static void open_joints(void)
{
  for (int r = 0; r < RANKS; r++) {
    enter(r);
    ok(cu->EventCreate(&joints[r], CU_EVENT_DISABLE_TIMING));
    tt_gpu_leave();
  }
}

static CUstreamCaptureMode capture_mode(void)
{
  static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                              CU_STREAM_CAPTURE_MODE_RELAXED};
  return modes[runs / WAYS % TT_COUNT(modes)];
}

static void graph_end(int rank)
{
  enter(rank);
  ok(cu->StreamEndCapture(handles[rank][0], &graphs[ngraphs]));
  ok(cu->GraphInstantiateWithFlags(&execs[ngraphs], graphs[ngraphs], 0));
  tt_gpu_leave();
  graph_rank[ngraphs++] = rank;
}

static int rank_of(const tt_gpu_work *work)
{
  return work->port == NULL ? -1 : (int)(work->plan - plans);
}

static void graph_begin(int rank)
{
  enter(rank);
  ok(cu->StreamBeginCapture(handles[rank][0], capture_mode()));
  tt_gpu_leave();
}

static ncclResult_t capture_alone(int n)
{
  ncclResult_t res = ncclSuccess;
  for (int i = 0; i < n; i++) {
    graph_begin(rank_of(&works[i]));
    const ncclResult_t its = tt_gpu_capture(&works[i], 1);
    graph_end(rank_of(&works[i]));
    res = res == ncclSuccess ? its : res;
  }
  return res;
}

static ncclResult_t capture_apart(int n)
{
  for (int i = 0; i < n; i++) {
    graph_begin(rank_of(&works[i]));
  }
  const ncclResult_t res = tt_gpu_capture(works, n);
  for (int i = 0; i < n; i++) {
    graph_end(rank_of(&works[i]));
  }
  return res;
}

// The streams of the other ranks are forks of the first one's.
static ncclResult_t capture_one(int n)
{
  const int first = rank_of(&works[0]);
  const CUstream origin = handles[first][0];
  graph_begin(first);
  for (int i = 1; i < n; i++) {
    join(origin, handles[rank_of(&works[i])][0], first);
  }
  const ncclResult_t res = tt_gpu_capture(works, n);
  for (int i = 1; i < n; i++) {
    const int r = rank_of(&works[i]);
    join(handles[r][0], origin, r);
  }
  graph_end(first);
  return res;
}

static inline ncclResult_t capture(way how, int n)
{
  ngraphs = 0;
  switch (how) {
  case ALONE: return capture_alone(n);
  case APART: return capture_apart(n);
  default: return capture_one(n);
  }
}

// In an order that differs from time to time. A graph of all ranks stands behind all ranks' streams, and they behind
// it.
static void replay(way how)
{
  static unsigned turn;
  turn += 3;
  for (int r = 0; r < w.n && how == ONE; r++) {
    if (r != graph_rank[0]) {
      join(handles[r][0], handles[graph_rank[0]][0], r);
    }
  }
  for (int i = 0; i < ngraphs; i++) {
    const int k = (int)((turn + (unsigned)i) % (unsigned)ngraphs);
    enter(graph_rank[k]);
    ok(cu->GraphLaunch(execs[k], handles[graph_rank[k]][0]));
    tt_gpu_leave();
  }
  for (int r = 0; r < w.n && how == ONE; r++) {
    if (r != graph_rank[0]) {
      join(handles[graph_rank[0]][0], handles[r][0], graph_rank[0]);
    }
  }
}

static void destroy_graphs(void)
{
  for (int i = 0; i < ngraphs; i++) {
    ok(cu->GraphDestroy(graphs[i]));
    ok(cu->GraphExecDestroy(execs[i]));
  }
  ngraphs = 0;
}

static void synchronize(void)
{
  for (int r = 0; r < w.n; r++) {
    ok(cu->StreamSynchronize(handles[r][0]));
  }
}

// The graphs have gone: their memory is the pool's again.
static void await_no_captures(void)
{
  for (int r = 0; r < w.n; r++) {
    for (int tries = 0; tt_gpu_port_captures(gpu_ports[r]) > 0; tries++) {
      assert_true(tries < 10000);
      tt_sleep_ns(TT_NS_PER_MS);
    }
  }
}

static inline size_t pool_bytes(void)
{
  size_t bytes, taken;
  tt_gpu_pool_count(&bytes, &taken);
  return bytes;
}

static inline size_t pool_taken(void)
{
  size_t bytes, taken;
  tt_gpu_pool_count(&bytes, &taken);
  return taken;
}
