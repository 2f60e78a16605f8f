// What the network does with the user's buffers: it reads and writes large ones where they lie, but only while an
// operation owns them. Every pair of ranks is on the network here.
#include "buffers.h"

enum { BIG = 300000 }; // floats

// With threads of its own the network wants its messages in one piece: they go by way of the slots.
static void over_the_network(int seconds, void (*fn)(int rank, void *arg))
{
  static const char *const by_itself[] = {"NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", NULL};
  static const char *const helped[] = {"NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_SOCKET_NTHREADS=2",
                                       "NCCL_NSOCKS_PERTHREAD=2", NULL};
  assert_int_equal(run_processes(&(run){.n = 1, .seconds = seconds, .fn = fn, .env = by_itself}), 0);
  assert_int_equal(run_processes(&(run){.n = 1, .seconds = seconds, .fn = fn, .env = helped}), 0);
}

// --- Operations that follow each other without a wait

static void fill(float *x, size_t count, float value)
{
  for (size_t i = 0; i < count; i++) {
    x[i] = value;
  }
}

static void check_all(const float *x, size_t count, float value, const char *what, int rank)
{
  for (size_t i = 0; i < count; i++) {
    CHECK(x[i] == value, "%s, rank %d, element %zu: %g, not %g", what, rank, i, (double)x[i], (double)value);
  }
}

// Each operation's output is the next one's input: none may write its output before the one before has read it.
static void chain_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  for (int n = 2; n <= 3; n++) {
    world w;
    buffers b;
    world_open(&w, n);
    buffers_open(&b, n, BIG);
    for (int i = 0; i < n; i++) {
      fill(b.in[i], BIG, 1);
    }
    float expected = 1;
    for (int k = 0; k < 8; k++, expected *= (float)n) {
      for (int i = 0; i < n; i++) {
        float *from = k % 2 == 0 ? b.in[i] : b.out[i], *to = k % 2 == 0 ? b.out[i] : b.in[i];
        OK(ncclAllReduce(from, to, BIG - (size_t)k, ncclFloat, ncclSum, w.comm[i], w.stream[i]));
      }
    }
    world_wait(&w);
    for (int i = 0; i < n; i++) {
      check_all(b.in[i], BIG - 7, expected, "chain", i);
    }
    buffers_close(&b, n);
    world_close(&w);
  }
}

static void operations_in_a_row(void **state)
{
  (void)state;
  over_the_network(60, chain_body);
}

typedef struct late_reader {
  const float *x;
  float *copy;
} late_reader;

static void read_late(void *arg)
{
  late_reader *l = arg;
  sleep_ms(100);
  memcpy(l->copy, l->x, BIG * sizeof(float));
}

// The receiver's stream still works on the buffer when the message is there.
static void late_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  world w;
  buffers b;
  float *copy = malloc(BIG * sizeof(float));
  world_open(&w, 2);
  buffers_open(&b, 2, BIG);
  for (int round = 0; round < 3; round++) {
    fill(b.in[0], BIG, 5);
    fill(b.out[1], BIG, 7);
    late_reader l = {.x = b.out[1], .copy = copy};
    OK(tuttiLaunchHostFunc(w.stream[1], read_late, &l));
    OK(ncclRecv(b.out[1], BIG, ncclFloat, 0, w.comm[1], w.stream[1]));
    OK(ncclSend(b.in[0], BIG, ncclFloat, 1, w.comm[0], w.stream[0]));
    if (round > 0) {
      OK(tuttiStreamSynchronize(w.stream[0])); // from here on the input is the user's
      fill(b.in[0], BIG, 9);
    }
    world_wait(&w);
    check_all(copy, BIG, 7, "before the receive", 1);
    check_all(b.out[1], BIG, 5, "received", 1);
  }
  free(copy);
  buffers_close(&b, 2);
  world_close(&w);
}

static void earlier_work_keeps_its_buffers(void **state)
{
  (void)state;
  over_the_network(60, late_body);
}

// --- How buffers may lie

// All-gather and reduce-scatter in place, and an all-reduce.
static void in_place_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  for (int n = 2; n <= 4; n++) {
    world w;
    float *x[MAX_RANKS];
    world_open(&w, n);
    for (int i = 0; i < n; i++) {
      x[i] = malloc((size_t)n * BIG * sizeof(float));
      fill(x[i], (size_t)n * BIG, -1);
      fill(x[i] + (size_t)i * BIG, BIG, (float)(i + 1));
      OK(ncclAllGather(x[i] + (size_t)i * BIG, x[i], BIG, ncclFloat, w.comm[i], w.stream[i]));
    }
    for (int i = 0; i < n; i++) {
      OK(ncclAllReduce(x[i], x[i], (size_t)n * BIG, ncclFloat, ncclSum, w.comm[i], w.stream[i]));
    }
    for (int i = 0; i < n; i++) {
      OK(ncclReduceScatter(x[i], x[i] + (size_t)i * BIG, BIG, ncclFloat, ncclSum, w.comm[i], w.stream[i]));
    }
    for (int i = 0; i < n; i++) {
      OK(ncclBroadcast(x[i] + (size_t)i * BIG, x[i] + (size_t)i * BIG, BIG, ncclFloat, n - 1, w.comm[i], w.stream[i]));
    }
    world_wait(&w);
    for (int i = 0; i < n; i++) {
      check_all(x[i] + (size_t)i * BIG, BIG, (float)(n * n * n), "in place", i);
      free(x[i]);
    }
    world_close(&w);
  }
}

static void in_place(void **state)
{
  (void)state;
  over_the_network(60, in_place_body);
}

// Buffers that overlap as NCCL does not allow: what comes out is nobody's business, but both ranks come to an end, and
// nothing else is touched.
static void overlap_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  world w;
  float *x[2];
  world_open(&w, 2);
  for (int i = 0; i < 2; i++) {
    x[i] = malloc(2 * BIG * sizeof(float));
    fill(x[i], 2 * BIG, 3);
  }
  for (size_t off = 1; off < BIG; off = off * 20 + 3) {
    for (int i = 0; i < 2; i++) {
      OK(ncclAllReduce(x[i] + off, x[i], BIG, ncclFloat, ncclMax, w.comm[i], w.stream[i]));
    }
    for (int i = 0; i < 2; i++) {
      OK(ncclAllReduce(x[i], x[i] + off, BIG, ncclFloat, ncclMax, w.comm[i], w.stream[i]));
    }
  }
  world_wait(&w);
  for (int i = 0; i < 2; i++) {
    check_all(x[i], 2 * BIG, 3, "overlapping", i); // the maximum of equal numbers
    free(x[i]);
  }
  world_close(&w);
}

static void overlapping(void **state)
{
  (void)state;
  over_the_network(60, overlap_body);
}

// --- Ends in the middle

typedef struct quitter {
  world w;
  int round;
} quitter;

// Frees its buffers as soon as the abort has returned, while the peer goes on sending and receiving.
static void quit(int rank, void *arg)
{
  quitter *q = arg;
  size_t count = 4 * BIG;
  float *in = malloc(count * sizeof(float)), *out = malloc(count * sizeof(float));
  fill(in, count, 1);
  if (q->round % 2 == 0) {
    OK(ncclGroupStart());
    OK(ncclSend(in, count, ncclFloat, 1 - rank, q->w.comm[rank], q->w.stream[rank]));
    OK(ncclRecv(out, count, ncclFloat, 1 - rank, q->w.comm[rank], q->w.stream[rank]));
    OK(ncclGroupEnd());
  } else {
    OK(ncclAllReduce(in, out, count, ncclFloat, ncclSum, q->w.comm[rank], q->w.stream[rank]));
  }
  if (rank == q->round / 2 % 2) {
    sleep_ms(0.3 * (q->round % 8));
  } else {
    (void)tuttiStreamSynchronize(q->w.stream[rank]); // ends well, or because the other one has aborted
  }
  OK(ncclCommAbort(q->w.comm[rank]));
  free(in);
  free(out);
}

static void quit_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  for (int round = 0; round < 24; round++) {
    quitter q = {.round = round};
    world_open(&q.w, 2);
    run_threads(2, quit, &q);
    for (int i = 0; i < 2; i++) {
      OK(tuttiStreamDestroy(q.w.stream[i]));
    }
  }
}

static void buffers_freed_after_an_abort(void **state)
{
  (void)state;
  over_the_network(120, quit_body);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(operations_in_a_row),
      cmocka_unit_test(earlier_work_keeps_its_buffers),
      cmocka_unit_test(in_place),
      cmocka_unit_test(overlapping),
      cmocka_unit_test(buffers_freed_after_an_abort),
  };
  return RUN_TESTS("net_buffers", tests, argc, argv);
}
