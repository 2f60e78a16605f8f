// cuda_process_graphs.h: graphs of the ranks of one process, for tests of ranks in several processes.
#pragma once
#include "cuda_processes.h"

static unsigned capture_kind; // which mode captures have, in turn

HARNESS void follow(int earlier, int later)
{
  CUevent event;
  ON(earlier, cu->EventCreate(&event, CU_EVENT_DISABLE_TIMING));
  ON(earlier, cu->EventRecord(event, streams[earlier]));
  ON(later, cu->StreamWaitEvent(streams[later], event, 0));
  ON(earlier, cu->EventDestroy(event));
}

HARNESS void capture_begin(void)
{
  static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                              CU_STREAM_CAPTURE_MODE_RELAXED};
  ON(first, cu->StreamBeginCapture(streams[first], modes[capture_kind % TT_COUNT(modes)]));
  for (int r = first + 1; r < last; r++) {
    follow(first, r);
  }
}

HARNESS CUgraphExec capture_end(void)
{
  CUgraph graph;
  CUgraphExec exec;
  for (int r = first + 1; r < last; r++) {
    follow(r, first);
  }
  ON(first, cu->StreamEndCapture(streams[first], &graph));
  ON(first, cu->GraphInstantiateWithFlags(&exec, graph, 0));
  ON(first, cu->GraphDestroy(graph));
  return exec;
}

HARNESS void calls_of_all(function f, const rank_memory *m, size_t n)
{
  OK(ncclGroupStart());
  for (int r = first; r < last; r++) {
    OK(call(f, r, m[r].in, m[r].out, n));
  }
  OK(ncclGroupEnd());
}

HARNESS CUgraphExec capture(function f, const rank_memory *m, size_t n)
{
  capture_begin();
  calls_of_all(f, m, n);
  return capture_end();
}

// Behind the streams of all ranks of this process, and they behind it.
HARNESS void launch(CUgraphExec exec)
{
  for (int r = first + 1; r < last; r++) {
    follow(r, first);
  }
  ON(first, cu->GraphLaunch(exec, streams[first]));
  for (int r = first + 1; r < last; r++) {
    follow(first, r);
  }
}

HARNESS void destroy_exec(CUgraphExec exec)
{
  ON(first, cu->GraphExecDestroy(exec));
}

HARNESS void open_all(function f, size_t n, const buffers *b, rank_memory *m)
{
  for (int r = first; r < last; r++) {
    memory_open(f, r, n, b, &m[r]);
  }
}

HARNESS void close_all(const buffers *b, const rank_memory *m)
{
  for (int r = first; r < last; r++) {
    memory_close(r, b, &m[r]);
  }
}

// Inputs are what they were, and outputs are spoilt.
HARNESS void renew(function f, const rank_memory *m, size_t n)
{
  for (int r = first; r < last; r++) {
    spoil(m[r].out, r, n * blocks_out(f));
    fill(m[r].in, r, n * blocks_in(f));
  }
}
