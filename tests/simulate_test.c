// ncclGroupSimulateEnd: how long a group would take, without running it.
#include "buffers.h"

#define UNTOUCHED 77.0f

// The estimate for a group of one all-reduce of `count` floats by every rank of the world.
static float estimate(world *w, buffers *b, size_t count)
{
  ncclSimInfo_t sim = NCCL_SIM_INFO_INITIALIZER;
  OK(ncclGroupStart());
  for (int i = 0; i < w->n; i++) {
    OK(ncclAllReduce(b->in[i], b->out[i], count, ncclFloat, ncclSum, w->comm[i], w->stream[i]));
  }
  OK(ncclGroupSimulateEnd(&sim));
  return sim.estimatedTime;
}

static void grows_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  world w;
  buffers b;
  world_open(&w, N);
  buffers_open(&b, N, LARGE);
  for (int i = 0; i < N; i++) {
    b.out[i][0] = UNTOUCHED;
  }
  float last = 0;
  for (size_t count = 1; count <= LARGE; count *= 8) {
    float us = estimate(&w, &b, count);
    CHECK(us > 0 && us < 1e6f && us >= last, "%zu floats: %g us, fewer: %g us", count, (double)us, (double)last);
    last = us;
  }
  CHECK(last > 2 * estimate(&w, &b, 1), "%d floats are as fast as one", LARGE);
  for (int i = 0; i < N; i++) {
    OK(tuttiStreamSynchronize(w.stream[i]));
    CHECK(b.out[i][0] == UNTOUCHED, "rank %d: the simulated group was run", i);
  }
  buffers_close(&b, N);
  buffers_open(&b, N, COUNT);
  OK(ncclGroupStart()); // the communicators are as good as before, on all ranks
  for (int i = 0; i < N; i++) {
    OK(sum(&w, &b, i));
  }
  OK(ncclGroupEnd());
  world_wait(&w);
  expect_sum(&b, N, "after simulating");
  buffers_close(&b, N);
  world_close(&w);
}

static void grows_and_runs_nothing(void **state)
{
  (void)state;
  PROCESSES(1, 30, grows_body, NULL);
}

// Two of a kind take about twice as long; every function has an estimate; messages do, too.
static void sums_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  world w;
  buffers b;
  world_open(&w, 2);
  buffers_open(&b, 2, LARGE);
  ncclComm_t c = w.comm[0];
  cudaStream_t s = w.stream[0];
  float *in = b.in[0], *out = b.out[0];
  size_t n = LARGE / 2;
  float one = 0;
  for (int k = 0; k < 12; k++) {
    ncclSimInfo_t sim = NCCL_SIM_INFO_INITIALIZER;
    OK(ncclGroupStart());
    switch (k) {
    case 0: OK(ncclAllReduce(in, out, n, ncclFloat, ncclSum, c, s)); break;
    case 1:
      OK(ncclAllReduce(in, out, n, ncclFloat, ncclSum, c, s));
      OK(ncclAllReduce(in, out, n, ncclFloat, ncclSum, c, s));
      break;
    case 2: OK(ncclReduceScatter(in, out, n, ncclFloat, ncclMax, c, s)); break;
    case 3: OK(ncclAllGather(in, out, n, ncclFloat, c, s)); break;
    case 4: OK(ncclBroadcast(in, out, n, ncclFloat, 1, c, s)); break;
    case 5: OK(ncclReduce(in, out, n, ncclFloat, ncclSum, 1, c, s)); break;
    case 6: OK(ncclAlltoAll(in, out, n, ncclFloat, c, s)); break;
    case 7: OK(ncclGather(in, out, n, ncclFloat, 0, c, s)); break;
    case 8: OK(ncclScatter(in, out, n, ncclFloat, 0, c, s)); break;
    case 9: OK(ncclSend(in, n, ncclFloat, 1, c, s)); break;
    case 10:
      OK(ncclSend(in, n, ncclFloat, 1, c, s));
      OK(ncclRecv(out, n, ncclFloat, 1, c, s));
      break;
    default: OK(ncclSend(in, n, ncclFloat, 0, c, s)); OK(ncclRecv(out, n, ncclFloat, 0, c, s));
    }
    OK(ncclGroupSimulateEnd(&sim));
    CHECK(sim.estimatedTime > 0, "case %d: %g us", k, (double)sim.estimatedTime);
    CHECK(k != 1 || (sim.estimatedTime > 1.9f * one && sim.estimatedTime < 2.1f * one), "two take %g us, one %g us",
          (double)sim.estimatedTime, (double)one);
    one = k == 0 ? sim.estimatedTime : one;
  }
  buffers_close(&b, 2);
  world_close(&w);
}

static void every_function(void **state)
{
  (void)state;
  PROCESSES(1, 30, sums_body, NULL);
}

static void wrong_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  world w;
  buffers b;
  world_open(&w, 2);
  buffers_open(&b, 2, COUNT);
  ncclSimInfo_t sim = NCCL_SIM_INFO_INITIALIZER, zero = {0};
  ncclComm_t child;
  REFUSED(ncclGroupSimulateEnd(&sim), ncclInvalidUsage, "ncclGroupSimulateEnd", "no group is open");
  OK(ncclGroupStart());
  OK(ncclGroupSimulateEnd(&sim)); // empty
  CHECK(sim.estimatedTime == NCCL_UNDEF_FLOAT, "an empty group takes %g us", (double)sim.estimatedTime);
  OK(ncclGroupStart());
  OK(ncclGroupStart()); // an inner end closes nothing
  OK(sum(&w, &b, 0));
  OK(ncclGroupSimulateEnd(&sim));
  CHECK(sim.estimatedTime == NCCL_UNDEF_FLOAT, "an inner group takes %g us", (double)sim.estimatedTime);
  OK(ncclGroupSimulateEnd(&sim));
  CHECK(sim.estimatedTime > 0, "an outer group takes %g us", (double)sim.estimatedTime);
  OK(ncclGroupStart());
  REFUSED(ncclGroupSimulateEnd(NULL), ncclInvalidArgument, "NULL");
  REFUSED(ncclGroupEnd(), ncclInvalidUsage, "ncclGroupEnd");
  OK(ncclGroupStart());
  REFUSED(ncclGroupSimulateEnd(&zero), ncclInvalidArgument, "NCCL_SIM_INFO_INITIALIZER");
  OK(ncclGroupStart());
  REFUSED(ncclSend(b.in[0], 1, ncclFloat, 9, w.comm[0], w.stream[0]), ncclInvalidArgument, "9");
  GIVES(ncclGroupSimulateEnd(&sim), ncclInvalidArgument); // as ncclGroupEnd would
  OK(ncclGroupStart());
  OK(ncclCommSplit(w.comm[0], 0, 0, &child, NULL));
  REFUSED(ncclGroupSimulateEnd(&sim), ncclInvalidUsage, "dropped");
  buffers_close(&b, 2);
  world_close(&w);
}

static void wrong_use(void **state)
{
  (void)state;
  PROCESSES(1, 30, wrong_body, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(grows_and_runs_nothing),
      cmocka_unit_test(every_function),
      cmocka_unit_test(wrong_use),
  };
  return RUN_TESTS("simulate", tests, argc, argv);
}
