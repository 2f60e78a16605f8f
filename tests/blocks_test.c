// blocks_test.c: collectives whose blocks have lengths of their own: every block in its place and nothing beside it,
// for any lengths and displacements; wrong arguments, and ranks that disagree, are named.
#include "blocks.h"

// ---- All samples

enum { SAMPLES = FUNCS * LENGTHS * LAYOUTS * 2 };

static sample sample_of(int number, int n)
{
  static const ncclDataType_t types[] = {ncclInt32, ncclFloat, ncclInt8, ncclInt64};
  return (sample){.n = n,
                  .f = (func)(number % FUNCS),
                  .how = (lengths)(number / FUNCS % LENGTHS),
                  .lie = (layout)(number / FUNCS / LENGTHS % LAYOUTS),
                  .in_place = number / FUNCS / LENGTHS / LAYOUTS % 2 == 1,
                  .type = types[number % 4],
                  .op = number % 3 == 0 ? ncclMax : ncclSum,
                  .root = number % n};
}

// The next sample from number *at on; false at the end. An instrumented program takes one in SLOWER, others for each n.
static bool next_sample(int *at, int n, sample *s)
{
  while (*at < SAMPLES && blocks_mix((unsigned)(*at * 64 + n)) % SLOWER != 0) {
    ++*at;
  }
  *s = sample_of(*at, n);
  return (*at)++ < SAMPLES;
}

static void one_thread_body(int rank, void *arg)
{
  int n = *(const int *)arg;
  world w;
  sample s;
  (void)rank;
  world_open(&w, n);
  for (int at = 0; next_sample(&at, n, &s);) {
    part p[MAX_RANKS];
    OK(ncclGroupStart());
    for (int i = 0; i < n; i++) {
      p[i] = (part){.rank = i, .comm = w.comm[i], .stream = w.stream[i]};
      prepare(&s, &p[i]);
      OK(call(&s, &p[i]));
    }
    OK(ncclGroupEnd());
    world_wait(&w);
    for (int i = 0; i < n; i++) {
      verify(&s, &p[i]);
    }
  }
  world_close(&w);
}

static void in_one_process(void **state)
{
  (void)state;
  for (int n = 1; n <= 8; n += n < 3 ? 1 : n == 3 ? 4 : 1) {
    PROCESSES(1, 60, one_thread_body, &n);
  }
}

static void play(const sample *s, part *p)
{
  prepare(s, p);
  OK(call(s, p));
  OK(tuttiStreamSynchronize(p->stream));
  verify(s, p);
}

static const sample *only; // NULL: all are played

// A rank of its own thread or process: one call after the other, without groups.
static void play_all(part *p, int n)
{
  sample s;
  for (int at = 0; only == NULL && next_sample(&at, n, &s);) {
    play(&s, p);
  }
  if (only != NULL) {
    play(only, p);
  }
}

static void thread_body(int rank, void *arg)
{
  const world *w = arg;
  part p = {.rank = rank, .comm = w->comm[rank], .stream = w->stream[rank]};
  play_all(&p, w->n);
}

static void threads_body(int rank, void *arg)
{
  world w;
  (void)rank;
  world_open(&w, *(const int *)arg);
  run_threads(w.n, thread_body, &w);
  world_close(&w);
}

static void in_threads(void **state)
{
  (void)state;
  for (int n = 2; n <= 3; n++) {
    PROCESSES(1, 60, threads_body, &n);
  }
}

// Each sample as the only call of its communicators: a plan has room for no more than that.
static void firsts_body(int rank, void *arg)
{
  sample s;
  only = &s;
  for (int at = 0; next_sample(&at, *(const int *)arg, &s);) {
    threads_body(rank, arg);
  }
}

static void alone(void **state)
{
  (void)state;
  PROCESSES(1, 60, firsts_body, &(int){3});
}

static void process_body(int rank, void *arg)
{
  int n = *(const int *)arg;
  part p = {.rank = rank, .comm = join_processes(0, n, rank)};
  OK(tuttiStreamCreate(&p.stream, TUTTI_STREAM_NON_BLOCKING));
  play_all(&p, n);
  OK(tuttiStreamDestroy(p.stream));
  OK(ncclCommDestroy(p.comm));
}

static void between_processes(void **state)
{
  static const int counts[] = {2, 3, 7};
  (void)state;
  for (int i = 0; i < 3; i++) {
    PROCESSES(counts[i], 60, process_body, (void *)(uintptr_t)&counts[i]);
  }
}

static void between_processes_without_access(void **state)
{
  int n = 3;
  (void)state;
  assert_int_equal(
      run_processes(&(run){.n = n, .seconds = 60, .fn = process_body, .arg = &n, .env = ENV("NCCL_CMA_ENABLE=0")}), 0);
}

// ---- With others

enum { FEW = 3 };

// A group of several calls on each communicator, in which collectives and messages keep their order.
static void mixed_group(const world *w)
{
  sample s[2] = {{.f = ALL_GATHER, .n = FEW, .how = MIXED, .type = ncclInt32},
                 {.f = ALL_TO_ALL, .n = FEW, .how = LARGE, .lie = GAPS, .type = ncclFloat}};
  part p[2][FEW];
  float sums[FEW], sent[FEW], got[FEW];
  OK(ncclGroupStart());
  for (int i = 0; i < FEW; i++) {
    sums[i] = sent[i] = (float)i;
    for (int k = 0; k < 2; k++) {
      p[k][i] = (part){.rank = i, .comm = w->comm[i], .stream = w->stream[i]};
      prepare(&s[k], &p[k][i]);
    }
    OK(ncclSend(&sent[i], 1, ncclFloat, (i + 1) % FEW, w->comm[i], w->stream[i]));
    OK(call(&s[0], &p[0][i]));
    OK(ncclAllReduce(&sums[i], &sums[i], 1, ncclFloat, ncclSum, w->comm[i], w->stream[i]));
    OK(call(&s[1], &p[1][i]));
    OK(ncclRecv(&got[i], 1, ncclFloat, (i + FEW - 1) % FEW, w->comm[i], w->stream[i]));
  }
  OK(ncclGroupEnd());
  world_wait(w);
  for (int i = 0; i < FEW; i++) {
    CHECK(sums[i] == 3 && got[i] == (float)((i + FEW - 1) % FEW), "rank %d has %g, %g", i, sums[i], got[i]);
    verify(&s[0], &p[0][i]);
    verify(&s[1], &p[1][i]);
  }
}

// What a group has is estimated and dropped, or dropped because of an error.
static void dropped_groups(const world *w)
{
  sample s = {.f = REDUCE_SCATTER, .n = FEW, .how = EQUAL, .type = ncclFloat};
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  part p = {.rank = 0, .comm = w->comm[0], .stream = w->stream[0]};
  for (s.f = ALL_GATHER; s.f < FUNCS; s.f++) {
    prepare(&s, &p);
    OK(ncclGroupStart());
    OK(call(&s, &p));
    OK(ncclGroupSimulateEnd(&info));
    CHECK(info.estimatedTime > 0, "%s takes %g us", func_names[s.f], (double)info.estimatedTime);
    OK(ncclGroupStart());
    OK(call(&s, &p));
    GIVES(ncclAllReduce(NULL, NULL, 1, ncclFloat, ncclSum, p.comm, p.stream), ncclInvalidArgument);
    GIVES(ncclGroupEnd(), ncclInvalidArgument);
    free(p.in.memory);
    free(p.out.memory);
  }
}

// Each launch of a graph does what the calls would do then.
static void captured_calls(const world *w)
{
  sample s = {.n = FEW, .how = MIXED, .lie = GAPS, .type = ncclInt32, .root = 1};
  part p[FEW];
  tuttiGraph_t graph[FEW];
  tuttiGraphExec_t exec[FEW];
  for (s.f = ALL_GATHER; s.f < FUNCS; s.f++) {
    for (int i = 0; i < FEW; i++) {
      p[i] = (part){.rank = i, .comm = w->comm[i], .stream = w->stream[i]};
      prepare(&s, &p[i]);
      OK(tuttiStreamBeginCapture(p[i].stream, tuttiCaptureRelaxed));
      OK(call(&s, &p[i]));
      OK(tuttiStreamEndCapture(p[i].stream, &graph[i]));
      OK(tuttiGraphInstantiate(&exec[i], graph[i]));
      OK(tuttiGraphDestroy(graph[i]));
    }
    for (int round = 0; round < 3; round++) {
      for (int i = 0; i < FEW; i++) {
        memset(p[i].out.memory, 0x5a, p[i].out.elements * size_of(s.type));
        OK(tuttiGraphLaunch(exec[i], p[i].stream));
      }
      world_wait(w);
    }
    for (int i = 0; i < FEW; i++) {
      OK(tuttiGraphExecDestroy(exec[i]));
      verify(&s, &p[i]);
    }
  }
}

static void with_others_body(int rank, void *arg)
{
  world w;
  (void)rank, (void)arg;
  world_open(&w, FEW);
  mixed_group(&w);
  dropped_groups(&w);
  captured_calls(&w);
  mixed_group(&w);
  world_close(&w);
}

static void with_others(void **state)
{
  (void)state;
  PROCESSES(1, 30, with_others_body, NULL);
}

static void settle(ncclComm_t comm)
{
  ncclResult_t now = ncclInProgress;
  while (now == ncclInProgress) {
    OK(ncclCommGetAsyncError(comm, &now));
  }
  CHECK(now == ncclSuccess, "%s", ncclGetLastError(comm));
}

static void nonblocking_body(int rank, void *arg)
{
  int n = *(const int *)arg;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  part p = {.rank = rank};
  config.blocking = 0;
  ncclResult_t res = ncclCommInitRankConfig(&p.comm, n, shared_id(0, rank), rank, &config);
  CHECK(res == ncclSuccess || res == ncclInProgress, "%s", ncclGetErrorString(res));
  settle(p.comm);
  OK(tuttiStreamCreate(&p.stream, TUTTI_STREAM_NON_BLOCKING));
  play_all(&p, n);
  res = ncclCommFinalize(p.comm);
  CHECK(res == ncclSuccess || res == ncclInProgress, "%s", ncclGetErrorString(res));
  settle(p.comm);
  OK(ncclCommDestroy(p.comm));
  OK(tuttiStreamDestroy(p.stream));
}

static void nonblocking(void **state)
{
  int n = 3;
  (void)state;
  PROCESSES(n, 60, nonblocking_body, &n);
}

// ---- Order

// Values that round at every step: what another order would give differs.
static float rounding_value(int rank, size_t i)
{
  return 1.0f / (float)(1 + blocks_mix((unsigned)i * 64 + (unsigned)rank) % 1000);
}

static void order_body(int rank, void *arg)
{
  int n = *(const int *)arg;
  static const size_t each[] = {5, 997, 50021};
  cudaStream_t stream;
  ncclComm_t comm = join_processes(0, n, rank);
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_NON_BLOCKING));
  for (size_t k = 0; k < 3; k++) {
    size_t counts[MAX_RANKS], total = 0;
    for (int i = 0; i < n; i++) {
      counts[i] = each[k];
      total += counts[i];
    }
    float *in = malloc(total * sizeof *in), *out = malloc(counts[rank] * sizeof *out);
    for (size_t i = 0; i < total; i++) {
      in[i] = rounding_value(rank, i);
    }
    OK(tuttiReduceScatterV(in, out, counts, ncclFloat, ncclSum, comm, stream));
    OK(tuttiStreamSynchronize(stream));
    for (size_t i = 0; i < counts[rank]; i++) {
      volatile float sum = rounding_value(0, (size_t)rank * counts[0] + i);
      for (int r = 1; r < n; r++) {
        sum = sum + rounding_value(r, (size_t)rank * counts[0] + i);
      }
      CHECK(out[i] == sum, "%zu elements: element %zu is %a, not %a", counts[rank], i, (double)out[i], (double)sum);
    }
    free(in);
    free(out);
  }
  OK(tuttiStreamDestroy(stream));
  OK(ncclCommDestroy(comm));
}

static void sums_in_the_order_of_the_ranks(void **state)
{
  int n = 5;
  (void)state;
  PROCESSES(n, 30, order_body, &n);
}

// ---- Wrong arguments

static void wrong_lists(ncclComm_t c, cudaStream_t s)
{
  const size_t two[] = {2, 2}, huge[] = {SIZE_MAX / 4, 2}, other[] = {2, 3}, far[] = {0, SIZE_MAX - 1}, none[] = {0, 0};
  int x[8] = {0};
  REFUSED(tuttiAllGatherV(x, 2, x, NULL, NULL, ncclInt32, c, s), ncclInvalidArgument, "recvcounts is NULL", "rank 1",
          "tuttiAllGatherV");
  REFUSED(tuttiAllGatherV(NULL, 2, x, two, NULL, ncclInt32, c, s), ncclInvalidArgument, "sendbuff is NULL",
          "sendcount is 2");
  REFUSED(tuttiAllGatherV(x, 2, NULL, two, NULL, ncclInt32, c, s), ncclInvalidArgument, "recvbuff is NULL",
          "recvcounts[0] is 2");
  REFUSED(tuttiAllGatherV(x, 2, x, other, NULL, ncclInt32, c, s), ncclInvalidArgument, "sendcount is 2",
          "recvcounts[1] is 3", "own block");
  REFUSED(tuttiAllGatherV(x, 2, x, huge, NULL, ncclInt32, c, s), ncclInvalidArgument, "recvcounts[0]",
          "does not fit into memory");
  REFUSED(tuttiAllGatherV(x, 2, x, two, far, ncclInt32, c, s), ncclInvalidArgument, "recvcounts[1] is 2",
          "does not fit into memory");
  REFUSED(tuttiReduceScatterV(x, x, NULL, ncclInt32, ncclSum, c, s), ncclInvalidArgument, "recvcounts is NULL");
  REFUSED(tuttiReduceScatterV(x, NULL, two, ncclInt32, ncclSum, c, s), ncclInvalidArgument, "recvbuff is NULL",
          "recvcounts[1] is 2");
  REFUSED(tuttiReduceScatterV(x, x, two, ncclInt32, (ncclRedOp_t)77, c, s), ncclInvalidArgument, "operation 77");
  REFUSED(tuttiGatherV(x, 2, x, NULL, NULL, ncclInt32, 1, c, s), ncclInvalidArgument, "recvcounts is NULL");
  REFUSED(tuttiGatherV(x, 2, x, two, NULL, ncclInt32, 2, c, s), ncclInvalidArgument, "root is 2");
  REFUSED(tuttiScatterV(x, other, NULL, x, 2, ncclInt32, 1, c, s), ncclInvalidArgument, "sendcounts[1] is 3",
          "recvcount is 2");
  REFUSED(tuttiScatterV(x, two, NULL, x, 2, (ncclDataType_t)99, 1, c, s), ncclInvalidArgument, "datatype 99");
  REFUSED(tuttiAlltoAllV(x, two, NULL, x, NULL, NULL, ncclInt32, c, s), ncclInvalidArgument, "recvcounts is NULL");
  REFUSED(tuttiAlltoAllV(x, two, NULL, x, other, NULL, ncclInt32, c, s), ncclInvalidArgument, "sendcounts[1] is 2",
          "recvcounts[1] is 3");
  REFUSED(tuttiAlltoAllV(x, two, NULL, x, two, NULL, ncclInt32, NULL, s), ncclInvalidArgument, "tuttiAlltoAllV");
  OK(tuttiAlltoAllV(NULL, none, far, NULL, none, NULL, ncclInt32, c, s)); // empty blocks lie nowhere
}

static void wrong_arguments_body(int rank, void *arg)
{
  world w;
  const size_t none[] = {0, 0};
  (void)rank, (void)arg;
  world_open(&w, 2);
  wrong_lists(w.comm[1], w.stream[1]);
  OK(tuttiAlltoAllV(NULL, none, NULL, NULL, none, NULL, ncclInt32, w.comm[0], w.stream[0]));
  world_wait(&w);
  world_close(&w);
}

static void wrong_arguments(void **state)
{
  (void)state;
  PROCESSES(1, 10, wrong_arguments_body, NULL);
}

// Blocks that are written to one place.
static void overlapping_lists(ncclComm_t c, cudaStream_t s)
{
  const size_t two[] = {2, 2, 2}, mixed[] = {5, 1, 0}, in_order[] = {0, 1, 4}, crossed[] = {4, 0, 1},
               same[] = {0, 4, 0}, inside[] = {1, 3, 0};
  int x[8] = {0};
  REFUSED(tuttiAllGatherV(x, 2, x, two, in_order, ncclInt32, c, s), ncclInvalidArgument, "tuttiAllGatherV on rank 0",
          "in recvbuff the block of rank 0, elements 0 to 1, and that of rank 1, elements 1 to 2, overlap");
  REFUSED(tuttiAllGatherV(x, 2, x, two, crossed, ncclInt32, c, s), ncclInvalidArgument,
          "the block of rank 1, elements 0 to 1, and that of rank 2, elements 1 to 2, overlap");
  REFUSED(tuttiGatherV(x, 2, x, two, same, ncclInt32, 0, c, s), ncclInvalidArgument, "tuttiGatherV on rank 0",
          "of rank 0, elements 0 to 1", "of rank 2, elements 0 to 1", "overlap");
  REFUSED(tuttiAlltoAllV(x, mixed, NULL, x, mixed, inside, ncclInt32, c, s), ncclInvalidArgument,
          "the block of rank 0, elements 1 to 5, and that of rank 1, elements 3 to 3, overlap");
}

// Blocks that are read may overlap, and an empty block lies nowhere.
static void permitted_overlap(const world *w)
{
  const size_t ones[FEW] = {1, 1, 1}, start[FEW] = {0, 0, 0}, threes[FEW] = {3, 0, 3}, around[FEW] = {3, 1, 0};
  const int three[FEW][3] = {{100, 101, 102}, {0}, {120, 121, 122}};
  int in[FEW], out[FEW][FEW], part_of[FEW], wide[FEW][2 * FEW];
  OK(ncclGroupStart());
  for (int i = 0; i < FEW; i++) {
    in[i] = 10 + i;
    memset(wide[i], 0x5a, sizeof wide[i]);
    OK(tuttiAlltoAllV(&in[i], ones, start, out[i], ones, NULL, ncclInt32, w->comm[i], w->stream[i]));
    OK(tuttiScatterV(&in[1], ones, start, &part_of[i], 1, ncclInt32, 1, w->comm[i], w->stream[i]));
    OK(tuttiAllGatherV(three[i], threes[i], wide[i], threes, around, ncclInt32, w->comm[i], w->stream[i]));
  }
  OK(ncclGroupEnd());
  world_wait(w);
  for (int i = 0; i < FEW; i++) {
    CHECK(part_of[i] == 11, "rank %d has got %d", i, part_of[i]);
    for (int k = 0; k < FEW; k++) {
      CHECK(out[i][k] == 10 + k, "rank %d has %d of rank %d", i, out[i][k], k);
      CHECK(wide[i][k] == 120 + k && wide[i][3 + k] == 100 + k, "rank %d has %d, %d", i, wide[i][k], wide[i][3 + k]);
    }
  }
}

static void overlap_body(int rank, void *arg)
{
  world w;
  (void)rank, (void)arg;
  world_open(&w, FEW);
  overlapping_lists(w.comm[0], w.stream[0]);
  permitted_overlap(&w);
  world_close(&w);
}

static void overlap(void **state)
{
  (void)state;
  PROCESSES(1, 10, overlap_body, NULL);
}

// ---- Ranks that disagree

enum { RIGHT = 7, FAR_COUNT = 300000 };

typedef struct quarrel {
  func f;
  size_t wrong; // what rank 1 says of its block with rank 0
  bool plain;   // or it makes the call with equal blocks
  const char *words[4];
} quarrel;

// Rank 1 says otherwise than rank 0.
static ncclResult_t quarrel_call(const quarrel *q, int rank, int *in, int *out, ncclComm_t c, cudaStream_t s)
{
  size_t counts[FEW] = {RIGHT, RIGHT, RIGHT}, other[FEW] = {RIGHT, RIGHT, RIGHT};
  size_t mine = rank == 1 ? q->wrong : RIGHT;
  if (rank == 1 && q->plain) {
    return ncclAllGather(in, out, RIGHT, ncclInt32, c, s);
  }
  switch (q->f) {
  case ALL_GATHER:
    counts[1] = mine;
    return tuttiAllGatherV(in, rank == 1 ? mine : RIGHT, out, counts, NULL, ncclInt32, c, s);
  case REDUCE_SCATTER: counts[0] = mine; return tuttiReduceScatterV(in, out, counts, ncclInt32, ncclSum, c, s);
  case GATHER: return tuttiGatherV(in, mine, out, counts, NULL, ncclInt32, 0, c, s);
  case SCATTER: return tuttiScatterV(in, counts, NULL, out, mine, ncclInt32, 0, c, s);
  default: other[0] = mine; return tuttiAlltoAllV(in, other, NULL, out, counts, NULL, ncclInt32, c, s);
  }
}

// Each rank learns of it, at the latest in the next call: counts those that say so in the first words of the board.
static void quarrel_body(int rank, void *arg)
{
  const quarrel *q = arg;
  int *in = calloc(FEW * FAR_COUNT, sizeof *in), *out = calloc(FEW * FAR_COUNT, sizeof *out);
  cudaStream_t s;
  ncclComm_t c = join_processes(0, FEW, rank);
  OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
  ncclResult_t res = quarrel_call(q, rank, in, out, c, s);
  res = res == ncclSuccess ? tuttiStreamSynchronize(s) : res;
  res = res == ncclSuccess ? ncclAllReduce(in, in, 1, ncclInt32, ncclSum, c, s) : res;
  res = res == ncclSuccess ? tuttiStreamSynchronize(s) : res;
  const char *text = ncclGetLastError(c);
  CHECK(res == ncclInvalidUsage || res == ncclRemoteError, "%s: rank %d: %d", func_names[q->f], rank, (int)res);
  CHECK(has_words(text, q->words), "%s, %zu: rank %d lacks a word: %s", func_names[q->f], q->wrong, rank, text);
  meet(FEW);
  OK(ncclCommAbort(c));
  OK(tuttiStreamDestroy(s));
  free(in);
  free(out);
}

static void disagreement_is_named(void **state)
{
  static const size_t wrong[] = {5, 0, FAR_COUNT};
  static const char *const counts[] = {"count 5 with rank", "count 0 with rank", "count 300000 with rank"};
  quarrel q;
  (void)state;
  for (int f = 0; f < FUNCS; f++) {
    for (int k = 0; k < 3; k++) {
      q = (quarrel){.f = (func)f, .wrong = wrong[k], .words = {"by count", func_names[f], counts[k], NULL}};
      PROCESSES(FEW, 20, quarrel_body, &q);
    }
  }
  q = (quarrel){.f = ALL_GATHER, .wrong = RIGHT, .plain = true, .words = {"by function", "AllGatherV", NULL}};
  PROCESSES(FEW, 20, quarrel_body, &q);
}

// ---- What is said of a call under way

static bool soon_says(ncclComm_t c, ncclResult_t (*ask)(ncclComm_t, char **), const char *const *words)
{
  bool said = false;
  for (double end = seconds_now() + GENEROUS(10); !said && seconds_now() < end; sleep_ms(1)) {
    char *text = NULL;
    OK(ask(c, &text));
    said = has_words(text, words);
    free(text);
  }
  return said;
}

static void names_body(int rank, void *arg)
{
  const size_t counts[] = {3, 4};
  int in[4] = {0}, out[7];
  cudaStream_t s;
  ncclComm_t c = join_processes(0, 2, rank);
  (void)arg;
  OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
  if (rank == 1) {
    meet(2); // rank 0 has seen that this one is late
  }
  OK(tuttiAllGatherV(in, counts[rank], out, counts, NULL, ncclInt32, c, s));
  if (rank == 0) {
    CHECK(soon_says(c, tuttiCommDiagnose, ENV("rank 1 has not called it", "operation 1 AllGatherV", "count 4")),
          "no verdict");
    CHECK(soon_says(c, tuttiCommDiagnose, ENV("\"function\":\"AllGatherV\"")), "not among the operations");
    CHECK(soon_says(c, tuttiCommFlightRecorder, ENV("nccl:all_gather_v")), "not recorded");
    meet(2);
  }
  OK(tuttiStreamSynchronize(s));
  OK(tuttiStreamDestroy(s));
  OK(ncclCommDestroy(c));
}

static void calls_have_names(void **state)
{
  (void)state;
  PROCESSES(2, 20, names_body, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(in_one_process),
      cmocka_unit_test(in_threads),
      cmocka_unit_test(alone),
      cmocka_unit_test(between_processes),
      cmocka_unit_test(between_processes_without_access),
      cmocka_unit_test(with_others),
      cmocka_unit_test(nonblocking),
      cmocka_unit_test(sums_in_the_order_of_the_ranks),
      cmocka_unit_test(wrong_arguments),
      cmocka_unit_test(overlap),
      cmocka_unit_test(disagreement_is_named),
      cmocka_unit_test(calls_have_names),
  };
  return RUN_TESTS("blocks", tests, argc, argv);
}
