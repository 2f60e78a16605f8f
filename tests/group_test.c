// One thread issuing for many ranks, groups, messages, streams, events.
#include "buffers.h"

static void with_sizes(void (*fn)(world *w, buffers *b))
{
  static const size_t counts[] = {1, COUNT, LARGE};
  world w;
  world_open(&w, N);
  for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
    buffers b;
    buffers_open(&b, N, counts[k]);
    fn(&w, &b);
    buffers_close(&b, N);
  }
  world_close(&w);
}

// --- Launching

static void grouped(world *w, buffers *b)
{
  OK(ncclGroupStart());
  for (int i = 0; i < N; i++) {
    OK(sum(w, b, i));
  }
  OK(ncclGroupEnd());
  world_wait(w);
  expect_sum(b, N, "grouped");
}

static void ungrouped(world *w, buffers *b)
{
  for (int i = N - 1; i >= 0; i--) {
    double start = seconds_now();
    OK(sum(w, b, i));
    CHECK(seconds_now() - start < GENEROUS(2), "the launch of rank %d took %g s", i, seconds_now() - start);
    CHECK(i == 0 || tuttiStreamQuery(w->stream[i]) == ncclInProgress, "rank %d is done although rank 0 has not begun",
          i);
  }
  world_wait(w);
  expect_sum(b, N, "ungrouped");
}

static void one_thread_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  with_sizes(grouped);
  with_sizes(ungrouped);
}

static void one_thread_issues_for_all(void **state)
{
  (void)state;
  PROCESSES(1, 20, one_thread_body, NULL);
}

// Two communicators, used in opposite orders by even and odd ranks, on streams of their own.
static void opposite_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  world w[2];
  buffers b[2];
  for (int k = 0; k < 2; k++) {
    world_open(&w[k], N);
    buffers_open(&b[k], N, k == 0 ? COUNT : LARGE);
  }
  for (int round = 0; round < 20 / SLOWER + 2; round++) {
    for (int i = 0; i < N; i++) {
      OK(sum(&w[i % 2], &b[i % 2], i));
      OK(sum(&w[1 - i % 2], &b[1 - i % 2], i));
    }
    OK(ncclGroupStart());
    for (int i = 0; i < N; i++) {
      OK(sum(&w[1 - i % 2], &b[1 - i % 2], i));
      OK(sum(&w[i % 2], &b[i % 2], i));
    }
    OK(ncclGroupEnd());
    for (int k = 0; k < 2; k++) {
      world_wait(&w[(round + k) % 2]);
    }
    expect_sum(&b[0], N, "first communicator");
    expect_sum(&b[1], N, "second communicator");
  }
  for (int k = 0; k < 2; k++) {
    world_close(&w[k]);
    buffers_close(&b[k], N);
  }
}

static void opposite_orders(void **state)
{
  (void)state;
  PROCESSES(1, 30, opposite_body, NULL);
}

// Opens groups in a group; only the last end launches.
static void nested_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  world w;
  buffers b;
  world_open(&w, 3);
  buffers_open(&b, 3, COUNT);
  OK(ncclGroupStart());
  for (int i = 0; i < 3; i++) {
    OK(ncclGroupStart());
    OK(sum(&w, &b, i));
    OK(ncclGroupEnd());
  }
  sleep_ms(20);
  CHECK(b.out[0][0] == 0 && tuttiStreamQuery(w.stream[0]) == ncclSuccess, "an inner end has launched");
  OK(ncclGroupEnd());
  world_wait(&w);
  expect_sum(&b, 3, "nested");
  OK(ncclGroupStart());
  OK(ncclGroupEnd());
  world_close(&w);
  buffers_close(&b, 3);
}

static void nested_groups(void **state)
{
  (void)state;
  PROCESSES(1, 10, nested_body, NULL);
}

// --- Several operations in one group

// Three collectives and a ring of messages, of every rank, in one group.
static void mixed_round(world *w, size_t count)
{
  int n = w->n;
  buffers a, b, ring;
  float *all[MAX_RANKS];
  buffers_open(&a, n, count);
  buffers_open(&b, n, count);
  buffers_open(&ring, n, count);
  OK(ncclGroupStart());
  for (int i = 0; i < n; i++) {
    all[i] = calloc((size_t)n * count, sizeof(float));
    OK(ncclRecv(ring.out[i], count, ncclFloat, (i + n - 1) % n, w->comm[i], w->stream[i]));
    OK(sum(w, &a, i));
    OK(ncclSend(ring.in[i], count, ncclFloat, (i + 1) % n, w->comm[i], w->stream[i]));
    OK(ncclBroadcast(b.in[i], b.out[i], count, ncclFloat, 1, w->comm[i], w->stream[i]));
    OK(ncclAllGather(a.in[i], all[i], count, ncclFloat, w->comm[i], w->stream[i]));
  }
  OK(ncclGroupEnd());
  world_wait(w);
  expect_sum(&a, n, "mixed all-reduce");
  for (int i = 0; i < n; i++) {
    expect(ring.out[i], count, (float)((i + n - 1) % n + 1), "mixed receive", i);
    expect(b.out[i], count, 2, "mixed broadcast", i);
    for (int k = 0; k < n; k++) {
      expect(all[i] + (size_t)k * count, count, (float)(k + 1), "mixed all-gather", i);
    }
    free(all[i]);
  }
  buffers_close(&a, n);
  buffers_close(&b, n);
  buffers_close(&ring, n);
}

static void mixed_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  world w;
  for (int n = 2; n <= 4; n++) {
    world_open(&w, n);
    for (int round = 0; round < 3; round++) {
      mixed_round(&w, 3);
      mixed_round(&w, COUNT * 3);
      mixed_round(&w, LARGE / 3 * 3);
    }
    world_close(&w);
  }
}

static void mixes_functions(void **state)
{
  (void)state;
  PROCESSES(1, 30, mixed_body, NULL);
}

// The same between processes: (rank, n) in place of all ranks.
static void mixed_process(int rank, void *arg)
{
  int n = *(int *)arg;
  world w = {.n = 1, .comm = {join_processes(0, n, rank)}};
  static const size_t counts[] = {3, 900, 60000, 600000};
  OK(tuttiStreamCreate(&w.stream[0], TUTTI_STREAM_NON_BLOCKING));
  for (int round = 0; round < 12; round++) {
    size_t count = counts[round % 4];
    float *in = malloc(count * sizeof(float)), *out = calloc(count, sizeof(float)),
          *total = calloc(count, sizeof(float));
    for (size_t k = 0; k < count; k++) {
      in[k] = (float)(rank + 1) * (float)(k % 3 + 1);
    }
    OK(ncclGroupStart());
    OK(ncclSend(in, count, ncclFloat, (rank + 1) % n, w.comm[0], w.stream[0]));
    OK(ncclAllReduce(in, total, count, ncclFloat, ncclSum, w.comm[0], w.stream[0]));
    OK(ncclRecv(out, count, ncclFloat, (rank + n - 1) % n, w.comm[0], w.stream[0]));
    OK(ncclGroupEnd());
    world_wait(&w);
    expect(out, count, (float)((rank + n - 1) % n + 1), "ring between processes", rank);
    expect(total, count, (float)(n * (n + 1) / 2), "sum between processes", rank);
    free(in);
    free(out);
    free(total);
  }
  world_close(&w);
}

static void mixes_functions_between_processes(void **state)
{
  (void)state;
  for (int n = 1; n <= 4; n++) {
    PROCESSES(n, 20, mixed_process, &n);
  }
}

// Messages of many sizes between the same two ranks, both ways, in one group; they pair in order.
static void many_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  enum { MESSAGES = 60, SPACE = 70000 };
  world w;
  world_open(&w, 2);
  float *from[2], *to[2];
  for (int i = 0; i < 2; i++) {
    from[i] = malloc(SPACE * sizeof(float));
    to[i] = calloc((size_t)MESSAGES * SPACE, sizeof(float));
    for (int k = 0; k < SPACE; k++) {
      from[i][k] = (float)(i * 100000 + k);
    }
  }
  OK(ncclGroupStart());
  for (int m = 0; m < MESSAGES; m++) {
    size_t count = (size_t)m % 5 == 4 ? SPACE - (size_t)m : (size_t)(m * m);
    for (int i = 0; i < 2; i++) {
      OK(ncclSend(from[i] + m, count - (count > (size_t)m ? (size_t)m : 0), ncclFloat, 1 - i, w.comm[i], w.stream[i]));
      OK(ncclRecv(to[i] + (size_t)m * SPACE, count - (count > (size_t)m ? (size_t)m : 0), ncclFloat, 1 - i, w.comm[i],
                  w.stream[i]));
    }
  }
  OK(ncclGroupEnd());
  world_wait(&w);
  for (int m = 0; m < MESSAGES; m++) {
    size_t count = (size_t)m % 5 == 4 ? SPACE - (size_t)m : (size_t)(m * m);
    count -= count > (size_t)m ? (size_t)m : 0;
    for (int i = 0; i < 2; i++) {
      for (size_t k = 0; k < count; k++) {
        float got = to[i][(size_t)m * SPACE + k], want = (float)((1 - i) * 100000 + m) + (float)k;
        CHECK(got == want, "message %d of %zu to rank %d, element %zu: %g, not %g", m, count, i, k, (double)got,
              (double)want);
      }
    }
  }
  for (int i = 0; i < 2; i++) {
    free(from[i]);
    free(to[i]);
  }
  world_close(&w);
}

static void many_messages_to_one_peer(void **state)
{
  (void)state;
  PROCESSES(1, 20, many_body, NULL);
}

static void self_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  static const size_t counts[] = {1, COUNT, LARGE};
  for (int n = 1; n <= 3; n++) {
    world w;
    world_open(&w, n);
    for (int k = 0; k < 3; k++) {
      buffers b;
      buffers_open(&b, n, counts[k]);
      for (int twice = 0; twice < 2; twice++) {
        OK(ncclGroupStart());
        for (int i = 0; i < n; i++) {
          OK(twice ? ncclRecv(b.out[i], counts[k], ncclFloat, i, w.comm[i], w.stream[i])
                   : ncclSend(b.in[i], counts[k], ncclFloat, i, w.comm[i], w.stream[i]));
          OK(twice ? ncclSend(b.in[i], counts[k], ncclFloat, i, w.comm[i], w.stream[i])
                   : ncclRecv(b.out[i], counts[k], ncclFloat, i, w.comm[i], w.stream[i]));
        }
        OK(ncclGroupEnd());
        world_wait(&w);
        for (int i = 0; i < n; i++) {
          expect(b.out[i], counts[k], (float)(i + 1), "to oneself", i);
          memset(b.out[i], 0, counts[k] * sizeof(float));
        }
      }
      buffers_close(&b, n);
    }
    world_close(&w);
  }
}

static void messages_to_oneself(void **state)
{
  (void)state;
  PROCESSES(1, 20, self_body, NULL);
}

// --- Streams

// Operations of one communicator on different streams of one group, then a dependent one on a third.
static void streams_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  world w;
  buffers a, b;
  cudaStream_t second[2], third[2];
  tuttiEvent_t done[2];
  world_open(&w, 2);
  buffers_open(&a, 2, LARGE);
  buffers_open(&b, 2, LARGE);
  for (int i = 0; i < 2; i++) {
    OK(tuttiStreamCreate(&second[i], TUTTI_STREAM_NON_BLOCKING));
    OK(tuttiStreamCreate(&third[i], TUTTI_STREAM_NON_BLOCKING));
    OK(tuttiEventCreate(&done[i]));
  }
  for (int round = 0; round < 10; round++) {
    OK(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
      OK(sum(&w, &a, i));
      OK(ncclAllReduce(b.in[i], b.out[i], LARGE, ncclFloat, ncclMax, w.comm[i], second[i]));
      OK(ncclSend(a.in[i], LARGE, ncclFloat, 1 - i, w.comm[i], second[i]));
      OK(ncclRecv(b.in[i], LARGE, ncclFloat, 1 - i, w.comm[i], third[i]));
    }
    OK(ncclGroupEnd());
    for (int i = 0; i < 2; i++) { // in[i] now holds the other's values: give them back
      OK(tuttiEventRecord(done[i], second[i]));
      OK(tuttiStreamWaitEvent(third[i], done[i]));
      OK(tuttiEventRecord(done[i], w.stream[i]));
      OK(tuttiStreamWaitEvent(third[i], done[i]));
      OK(tuttiMemcpyAsync(b.in[i], a.in[i], LARGE * sizeof(float), third[i]));
      OK(tuttiEventRecord(done[i], third[i]));
    }
    for (int i = 0; i < 2; i++) {
      OK(tuttiEventSynchronize(done[i]));
      CHECK(tuttiEventQuery(done[i]) == ncclSuccess, "event of rank %d", i);
    }
    expect_sum(&a, 2, "first stream");
    for (int i = 0; i < 2; i++) {
      expect(b.out[i], LARGE, 2, "second stream", i);
    }
  }
  for (int i = 0; i < 2; i++) {
    OK(tuttiStreamDestroy(second[i]));
    OK(tuttiStreamDestroy(third[i]));
    OK(tuttiEventDestroy(done[i]));
  }
  world_close(&w);
  buffers_close(&a, 2);
  buffers_close(&b, 2);
}

static void several_streams(void **state)
{
  (void)state;
  PROCESSES(1, 20, streams_body, NULL);
}

static void slow_mark(void *arg)
{
  sleep_ms(30);
  atomic_fetch_add((_Atomic int *)arg, 1);
}

typedef struct seen {
  _Atomic int *mark;
  int at;
} seen;

static void look(void *arg)
{
  seen *s = arg;
  s->at = atomic_load(s->mark);
}

// Work on `later` comes after work on `earlier` (ordered), or does not wait for it.
static void expect_order(cudaStream_t earlier, cudaStream_t later, const char *what)
{
  _Atomic int mark = 0;
  seen s = {.mark = &mark, .at = -1};
  OK(tuttiLaunchHostFunc(earlier, slow_mark, &mark));
  OK(tuttiLaunchHostFunc(later, look, &s));
  OK(tuttiStreamSynchronize(later));
  CHECK(s.at == 1, "%s: not in order (%d)", what, s.at);
  OK(tuttiStreamSynchronize(earlier));
}

// A receive holds `held` until the send comes: work on `free_stream` passes it.
static void expect_free(world *w, cudaStream_t held, cudaStream_t free_stream, const char *what)
{
  _Atomic int mark = 7;
  seen s = {.mark = &mark, .at = -1};
  int in = 5, out = 0;
  OK(ncclRecv(&out, 1, ncclInt, 1, w->comm[0], held));
  OK(tuttiLaunchHostFunc(free_stream, look, &s));
  OK(tuttiStreamSynchronize(free_stream));
  CHECK(s.at == 7 && tuttiStreamQuery(held) == ncclInProgress, "%s: waits", what);
  OK(ncclSend(&in, 1, ncclInt, 0, w->comm[1], w->stream[1]));
  OK(tuttiStreamSynchronize(held));
  CHECK(out == 5, "%s: received %d", what, out);
  OK(tuttiStreamSynchronize(w->stream[1]));
}

static void special_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  cudaStream_t null = NULL, legacy = (cudaStream_t)1, own = (cudaStream_t)2, blocking, other, free_one;
  world w;
  world_open(&w, 2);
  OK(tuttiSetDevice(0));
  OK(tuttiStreamCreate(&blocking, TUTTI_STREAM_DEFAULT));
  OK(tuttiStreamCreate(&other, TUTTI_STREAM_DEFAULT));
  OK(tuttiStreamCreate(&free_one, TUTTI_STREAM_NON_BLOCKING));
  expect_order(null, legacy, "NULL and legacy are one");
  expect_order(blocking, null, "legacy waits for a blocking stream");
  expect_order(null, blocking, "a blocking stream waits for legacy");
  expect_order(null, own, "the thread's own stream waits for legacy");
  expect_order(own, null, "legacy waits for the thread's own stream");
  expect_free(&w, blocking, other, "two blocking streams");
  expect_free(&w, null, free_one, "a non-blocking stream beside legacy");
  expect_free(&w, free_one, null, "legacy beside a non-blocking stream");
  expect_free(&w, own, blocking, "the thread's own stream and a blocking one");
  OK(tuttiStreamDestroy(blocking));
  OK(tuttiStreamDestroy(other));
  OK(tuttiStreamDestroy(free_one));
  world_close(&w);
}

static void special_streams(void **state)
{
  (void)state;
  PROCESSES(1, 20, special_body, NULL);
}

// --- Operations of the user

// Two calls with operations that are destroyed at once; the second one gets the place of the first.
static void call_twice(const world *w, buffers b[2], int i, const float by[2])
{
  for (int k = 0; k < 2; k++) {
    ncclRedOp_t op;
    float scalar = by[k];
    OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, w->comm[i]));
    OK(ncclAllReduce(b[k].in[i], b[k].out[i], b[k].count, ncclFloat, op, w->comm[i], w->stream[i]));
    OK(ncclRedOpDestroy(op, w->comm[i]));
  }
}

// What has been destroyed, or never was, is refused however often calls like it were made.
static void expect_refusal(const world *w, buffers *b)
{
  static const int gone[] = {ncclNumOps, ncclNumOps + 100000, -1};
  for (int k = 0; k < 3; k++) {
    REFUSED(ncclAllReduce(b->in[0], b->out[0], b->count, ncclFloat, (ncclRedOp_t)gone[k], w->comm[0], w->stream[0]),
            ncclInvalidArgument, "live handle");
  }
}

static void operations(world *w, buffers *b)
{
  buffers both[2] = {*b};
  buffers_open(&both[1], N, b->count);
  for (int repeat = 0; repeat < 4; repeat++) { // small calls are ready from the second one on
    const float by[2] = {2 + (float)repeat, 13};
    OK(ncclGroupStart());
    for (int i = 0; i < N; i++) {
      call_twice(w, both, i, by);
    }
    OK(ncclGroupEnd());
    world_wait(w);
    for (int k = 0; k < 2; k++) {
      for (int i = 0; i < N; i++) {
        expect(both[k].out[i], b->count, by[k] * (float)(N * (N + 1) / 2),
               k == 0 ? "first operation" : "second operation", i);
      }
    }
  }
  expect_refusal(w, b);
  buffers_close(&both[1], N);
}

static void operations_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  with_sizes(operations);
}

static void operations_end_in_the_group(void **state)
{
  (void)state;
  PROCESSES(1, 20, operations_body, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_thread_issues_for_all),
      cmocka_unit_test(opposite_orders),
      cmocka_unit_test(nested_groups),
      cmocka_unit_test(mixes_functions),
      cmocka_unit_test(mixes_functions_between_processes),
      cmocka_unit_test(many_messages_to_one_peer),
      cmocka_unit_test(messages_to_oneself),
      cmocka_unit_test(several_streams),
      cmocka_unit_test(special_streams),
      cmocka_unit_test(operations_end_in_the_group),
  };
  return RUN_TESTS("group", tests, argc, argv);
}
