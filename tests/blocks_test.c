// blocks_test.c: collectives whose blocks have lengths of their own: every block in its place and nothing beside it,
// for any lengths and displacements; wrong arguments, and ranks that disagree, are named.
#include "harness.h"

typedef enum { ALL_GATHER, REDUCE_SCATTER, GATHER, SCATTER, ALL_TO_ALL, FUNCS } func;
typedef enum { EQUAL, MIXED, SPARSE, LARGE, NONE, LENGTHS } lengths;
typedef enum { PACKED, GAPS, BACKWARDS, LAYOUTS } layout; // PACKED: displacements are NULL

static const char *const func_names[FUNCS] = {"AllGatherV", "ReduceScatterV", "GatherV", "ScatterV", "AlltoAllV"};

typedef struct sample {
  func f;
  int n, root;
  lengths how;
  layout lie;
  bool in_place;
  ncclDataType_t type; // int8, int32, float32 or int64
  ncclRedOp_t op;
} sample;

// One rank's buffer of a call.
typedef struct side {
  size_t counts[MAX_RANKS], displs[MAX_RANKS];
  size_t elements; // up to the end of the last block
  bool packed;
  char *memory;
} side;

typedef struct part {
  int rank;
  ncclComm_t comm;
  cudaStream_t stream;
  side in, out;
  char *src, *dst;
} part;

static size_t size_of(ncclDataType_t type)
{
  return type == ncclInt8 ? 1 : type == ncclInt64 ? 8 : 4;
}

static unsigned blocks_mix(unsigned x)
{
  x = (x ^ x >> 16) * 0x7feb352du;
  return x ^ x >> 15;
}

// Elements that go from one rank to another.
static size_t length_of(const sample *s, int from, int to)
{
  static const size_t mixed[] = {0, 1, 2, 3, 17, 64, 997, 4099, 20011}, large[] = {0, 1, 100003, 300007};
  unsigned h = blocks_mix((unsigned)((s->f == REDUCE_SCATTER || s->f == SCATTER ? 0 : from + 1) * 64 +
                                     (s->f == ALL_GATHER || s->f == GATHER ? 0 : to + 1) + (int)s->how * 7777));
  switch (s->how) {
  case EQUAL: return 17;
  case MIXED: return mixed[h % 9];
  case SPARSE: return h % 5 == 0 ? 131 : 0;
  case LARGE: return large[h % 4];
  default: return 0;
  }
}

// Element `i` of what goes from one rank to another. Sums of up to 16 of them are exact in all types.
static int element_of(const sample *s, int from, int to, size_t i)
{
  int target = s->f == ALL_GATHER || s->f == GATHER ? 0 : to;
  unsigned h = blocks_mix((unsigned)i * 31u + (unsigned)from * 7u + (unsigned)target * 1009u);
  return s->f == REDUCE_SCATTER ? (int)(h % 7) : (int)(h % 127);
}

static void blocks_put(char *at, size_t i, ncclDataType_t type, int v)
{
  float f = (float)v;
  int64_t wide = v;
  int32_t whole = v;
  size_t size = size_of(type);
  memcpy(at + i * size, type == ncclFloat ? (void *)&f : type == ncclInt64 ? (void *)&wide : (void *)&whole, size);
}

static bool has_value(const char *at, size_t i, ncclDataType_t type, int v)
{
  char want[8];
  blocks_put(want, 0, type, v);
  return memcmp(at + i * size_of(type), want, size_of(type)) == 0;
}

// Lays out the blocks of a buffer, whose counts are known.
static void lay_out(const sample *s, side *b)
{
  size_t gap = s->lie == PACKED ? 0 : 3, at = gap;
  b->packed = s->lie == PACKED;
  for (int k = 0; k < s->n; k++) {
    int i = s->lie == BACKWARDS ? s->n - 1 - k : k;
    b->displs[i] = at;
    at += b->counts[i] + gap;
  }
  b->elements = at;
}

static void side_open(const sample *s, side *b, size_t least)
{
  size_t bytes = (b->elements > least ? b->elements : least) * size_of(s->type);
  b->memory = malloc(bytes + 1);
  CHECK(b->memory != NULL, "no memory");
  memset(b->memory, 0x5a, bytes + 1);
}

// A buffer of one block lies as that of a packed list with one entry.
static void measure(const sample *s, part *p)
{
  bool wide_in = s->f == REDUCE_SCATTER || s->f == SCATTER || s->f == ALL_TO_ALL;
  bool wide_out = s->f == ALL_GATHER || s->f == GATHER || s->f == ALL_TO_ALL;
  int from = s->f == SCATTER ? s->root : p->rank;
  memset(&p->in, 0, sizeof p->in);
  memset(&p->out, 0, sizeof p->out);
  for (int i = 0; i < s->n; i++) {
    p->in.counts[i] = wide_in ? length_of(s, from, i) : 0;
    p->out.counts[i] = wide_out ? length_of(s, i, p->rank) : 0;
  }
  if (wide_in) {
    sample packed = *s;
    packed.lie = s->f == REDUCE_SCATTER ? PACKED : s->lie;
    lay_out(&packed, &p->in);
  } else {
    p->in.elements = p->in.counts[0] = length_of(s, p->rank, s->root);
  }
  if (wide_out) {
    lay_out(s, &p->out);
  } else {
    p->out.elements = p->out.counts[0] = length_of(s, from, p->rank);
  }
}

static void fill_block(const sample *s, part *p, int to, size_t at, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    blocks_put(p->src + at * size_of(s->type), i, s->type, element_of(s, p->rank, to, i));
  }
}

static void fill(const sample *s, part *p)
{
  if (s->f == ALL_GATHER || s->f == GATHER) {
    fill_block(s, p, 0, 0, p->in.counts[0]);
    return;
  }
  for (int i = 0; i < s->n && (s->f != SCATTER || p->rank == s->root); i++) {
    fill_block(s, p, i, p->in.displs[i], p->in.counts[i]);
  }
}

static void prepare(const sample *s, part *p)
{
  size_t size = size_of(s->type);
  measure(s, p);
  side_open(s, &p->in, s->f == ALL_TO_ALL ? p->out.elements : 0);
  side_open(s, &p->out, 0);
  p->src = p->in.memory;
  p->dst = p->out.memory;
  if (s->in_place && s->f == ALL_TO_ALL) {
    p->dst = p->src;
  } else if (s->in_place && (s->f == ALL_GATHER || (s->f == GATHER && p->rank == s->root))) {
    p->src = p->dst + p->out.displs[p->rank] * size;
  } else if (s->in_place && (s->f == REDUCE_SCATTER || (s->f == SCATTER && p->rank == s->root))) {
    p->dst = p->src + p->in.displs[p->rank] * size;
  }
  fill(s, p);
}

static ncclResult_t call(const sample *s, const part *p)
{
  const size_t *in_at = p->in.packed ? NULL : p->in.displs, *out_at = p->out.packed ? NULL : p->out.displs;
  switch (s->f) {
  case ALL_GATHER:
    return tuttiAllGatherV(p->src, p->in.counts[0], p->dst, p->out.counts, out_at, s->type, p->comm, p->stream);
  case REDUCE_SCATTER: return tuttiReduceScatterV(p->src, p->dst, p->in.counts, s->type, s->op, p->comm, p->stream);
  case GATHER:
    return p->rank == s->root
               ? tuttiGatherV(p->src, p->in.counts[0], p->dst, p->out.counts, out_at, s->type, s->root, p->comm,
                              p->stream)
               : tuttiGatherV(p->src, p->in.counts[0], NULL, NULL, NULL, s->type, s->root, p->comm, p->stream);
  case SCATTER:
    return p->rank == s->root
               ? tuttiScatterV(p->src, p->in.counts, in_at, p->dst, p->out.counts[0], s->type, s->root, p->comm,
                               p->stream)
               : tuttiScatterV(NULL, NULL, NULL, p->dst, p->out.counts[0], s->type, s->root, p->comm, p->stream);
  default:
    return tuttiAlltoAllV(p->src, p->in.counts, in_at, p->dst, p->out.counts, out_at, s->type, p->comm, p->stream);
  }
}

static int result_of(const sample *s, int from, int to, size_t i)
{
  int sum = 0, most = 0;
  if (s->f != REDUCE_SCATTER) {
    return element_of(s, from, to, i);
  }
  for (int r = 0; r < s->n; r++) {
    int v = element_of(s, r, to, i);
    sum += v;
    most = v > most ? v : most;
  }
  return s->op == ncclMax ? most : sum;
}

static void verify_block(const sample *s, const part *p, int from, size_t at, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    CHECK(has_value(p->dst + at * size_of(s->type), i, s->type, result_of(s, from, p->rank, i)),
          "%s of %d ranks, lengths %d, layout %d%s, root %d: rank %d has a wrong element %zu of %zu from rank %d",
          func_names[s->f], s->n, (int)s->how, (int)s->lie, s->in_place ? ", in place" : "", s->root, p->rank, i, count,
          from);
  }
}

// What lies outside of the blocks has not been touched.
static void verify_gaps(const sample *s, const part *p)
{
  size_t size = size_of(s->type);
  char *seen = calloc(p->out.elements + 1, 1);
  for (int i = 0; i < s->n; i++) {
    memset(seen + p->out.displs[i], 1, p->out.counts[i]);
  }
  for (size_t i = 0; i < p->out.elements * size; i++) {
    CHECK(seen[i / size] || p->out.memory[i] == 0x5a, "%s: rank %d: byte %zu of a gap was written", func_names[s->f],
          p->rank, i);
  }
  CHECK(p->out.memory[p->out.elements * size] == 0x5a, "%s: rank %d: written behind the end", func_names[s->f],
        p->rank);
  free(seen);
}

static void verify(const sample *s, part *p)
{
  bool gathers = s->f == ALL_GATHER || s->f == GATHER || s->f == ALL_TO_ALL;
  if (!gathers) {
    verify_block(s, p, s->root, 0, p->out.counts[0]);
  } else if (s->f != GATHER || p->rank == s->root) {
    for (int i = 0; i < s->n; i++) {
      verify_block(s, p, i, p->out.displs[i], p->out.counts[i]);
    }
  }
  if (!s->in_place) {
    verify_gaps(s, p);
  }
  free(p->in.memory);
  free(p->out.memory);
}

// ---- All samples

// The sample of that number; false: there are no more.
static bool sample_of(int number, int n, sample *s)
{
  static const ncclDataType_t types[] = {ncclInt32, ncclFloat, ncclInt8, ncclInt64};
  *s = (sample){.n = n, .f = (func)(number % FUNCS)};
  s->how = (lengths)(number / FUNCS % LENGTHS);
  s->lie = (layout)(number / FUNCS / LENGTHS % LAYOUTS);
  s->in_place = number / FUNCS / LENGTHS / LAYOUTS % 2 == 1;
  s->type = types[number % 4];
  s->op = number % 3 == 0 ? ncclMax : ncclSum;
  s->root = number % n;
  return number < FUNCS * LENGTHS * LAYOUTS * 2;
}

static void one_thread_body(int rank, void *arg)
{
  int n = *(const int *)arg;
  world w;
  sample s;
  (void)rank;
  world_open(&w, n);
  for (int k = 0; sample_of(k, n, &s); k++) {
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

// A rank of its own thread or process: one call after the other, without groups.
static void play_all(part *p, int n)
{
  sample s;
  for (int k = 0; sample_of(k, n, &s); k++) {
    prepare(&s, p);
    OK(call(&s, p));
    OK(tuttiStreamSynchronize(p->stream));
    verify(&s, p);
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
      cmocka_unit_test(between_processes),
      cmocka_unit_test(between_processes_without_access),
      cmocka_unit_test(with_others),
      cmocka_unit_test(nonblocking),
      cmocka_unit_test(sums_in_the_order_of_the_ranks),
      cmocka_unit_test(wrong_arguments),
      cmocka_unit_test(disagreement_is_named),
      cmocka_unit_test(calls_have_names),
  };
  return RUN_TESTS("blocks", tests, argc, argv);
}
