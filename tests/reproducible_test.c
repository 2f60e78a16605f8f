// reproducible_test.c: with TUTTI_REPRODUCIBLE=1 sums have the bits of a plain loop over the ranks, whatever the size,
// the algorithm asked for, the transport and the placement; so have calls with TUTTI_OPTION_RANK_ORDER.
#include "reference.h"

#include <math.h>

enum { REPEAT = 1021, NSIZES = 4 }; // inputs repeat after REPEAT elements: references stay short, wrong places show
static const size_t sizes[NSIZES] = {1, 1009, 0, 0}, bytes_of[NSIZES] = {0, 0, (64 << 10) + 4, (4 << 20) + 4};
static const int types[] = {ncclFloat, ncclHalf, ncclBfloat16}, ops[] = {ncclSum, ncclAvg, PREMUL_HOST};
static const int rank_counts[] = {1, 2, 3, 5, 7, 8};

// How the ranks of a run are placed, and what else is set.
typedef struct setting {
  const char *name;
  const char *env[4];
  bool per_call, two_hosts;
} setting;

static const setting plain = {.name = "plain", .env = {"TUTTI_REPRODUCIBLE=1"}};
static const setting others[] = {
    {.name = "Ring", .env = {"TUTTI_REPRODUCIBLE=1", "NCCL_ALGO=Ring"}},
    {.name = "Tree", .env = {"TUTTI_REPRODUCIBLE=1", "NCCL_ALGO=Tree"}},
    {.name = "Ordered, Simple", .env = {"TUTTI_REPRODUCIBLE=1", "NCCL_ALGO=Ordered", "NCCL_PROTO=Simple"}},
    {.name = "no access", .env = {"TUTTI_REPRODUCIBLE=1", "NCCL_CMA_ENABLE=0"}},
    {.name = "TCP", .env = {"TUTTI_REPRODUCIBLE=1", "NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1"}},
    {.name = "two hosts", .env = {"TUTTI_REPRODUCIBLE=1"}, .two_hosts = true},
    {.name = "the call's option", .env = {"TUTTI_REPRODUCIBLE=0"}, .per_call = true},
};

// --- The reference. Sums are made in float and rounded once; a factor's product is rounded first.

static float narrow_values[ncclNumTypes][1 << 15]; // by code, without the sign; sorted

static void tabulate(int type)
{
  for (uint64_t code = 0; code < 1 << 15 && formats[type].size == 2; code++) {
    narrow_values[type][code] = (float)decode(type, code);
  }
}

static float to_float(int type, uint64_t bits)
{
  if (type == ncclFloat) {
    uint32_t low = (uint32_t)bits;
    float x;
    memcpy(&x, &low, sizeof x);
    return x;
  }
  float x = narrow_values[type][bits & 0x7fff];
  return bits >> 15 & 1 ? -x : x;
}

// The nearest value of the type, of two the one with the even code. Not for what is beyond the largest.
static uint64_t from_float(int type, float x)
{
  if (type == ncclFloat) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
  }
  const float *value_of = narrow_values[type];
  double a = fabs((double)x);
  uint64_t low = 0, high = ((uint64_t)1 << 15) - ((uint64_t)1 << formats[type].mbits); // infinity
  while (high - low > 1) {
    uint64_t middle = (low + high) / 2;
    *((double)value_of[middle] <= a ? &low : &high) = middle;
  }
  double below = a - (double)value_of[low], above = (double)value_of[high] - a;
  bool up = above < below || (above == below && low % 2 == 1);
  return (low + up) | (uint64_t)(signbit(x) != 0) << 15;
}

// Of mixed magnitudes and signs. The sums of eight halves stay finite.
static uint64_t input_bits(int type, int rank, size_t i)
{
  const format *f = &formats[type];
  uint32_t h = mix((uint32_t)(i % REPEAT) * 64 + (uint32_t)rank), reach = type == ncclHalf ? 10 : 24;
  return power_of_two((int)(h % (2 * reach)) - (int)reach, f, (int)(h >> 31), mix(h) & ((1u << f->mbits) - 1));
}

static uint64_t factor_bits(int type, int op, int n, int rank)
{
  return from_float(type, op == ncclAvg ? (float)(1.0 / n) : 0.3F + 0.17F * (float)rank);
}

static uint64_t expected_bits(const sample *s, size_t i)
{
  volatile float sum = 0; // no operation is joined with another
  bool scaled = s->op != ncclSum && (s->op != ncclAvg || s->n > 1);
  for (int r = 0; r < s->n; r++) {
    volatile float x = to_float(s->type, input_bits(s->type, r, i));
    if (scaled) {
      x = x * to_float(s->type, factor_bits(s->type, s->op, s->n, r));
      x = to_float(s->type, from_float(s->type, x));
    }
    sum = r == 0 ? x : sum + x;
  }
  return from_float(s->type, sum);
}

// --- One call

static void set_input(const sample *s, part *p)
{
  size_t size = (size_t)formats[s->type].size, n = p->in_size / size;
  for (size_t i = 0; i < n && i < REPEAT; i++) {
    put(p->in, i, (int)size, input_bits(s->type, p->rank, i));
  }
  for (size_t i = REPEAT; i < n; i += REPEAT) {
    memcpy(p->in + i * size, p->in, (n - i < REPEAT ? n - i : REPEAT) * size);
  }
  if (s->op >= ncclNumOps) {
    p->scalar = factor_bits(s->type, s->op, s->n, p->rank);
    OK(ncclRedOpCreatePreMulSum(&p->user_op, &p->scalar, (ncclDataType_t)s->type, ncclScalarHostImmediate, p->comm));
  } else {
    p->user_op = (ncclRedOp_t)s->op;
  }
}

static void open_part(const sample *s, part *p)
{
  sample copy = *s;
  copy.op = ncclSum; // the buffers alone
  prepare(&copy, p);
  set_input(s, p);
}

static void call_in_order(const sample *s, const part *p)
{
  ncclConfigExt_t order = {.key = {TUTTI_VENDOR_ID, TUTTI_OPTION_RANK_ORDER}, .val = {.i = 1}};
  ncclCollConfig_t f = NCCL_COLLCONFIG_INITIALIZER;
  ncclDataType_t t = (ncclDataType_t)s->type;
  f.ext = &order;
  switch (s->func) {
  case ALLREDUCE: OK(ncclAllReduceConfig(p->in, p->out, s->count, t, p->user_op, p->comm, p->stream, &f)); break;
  case REDUCE: OK(ncclReduceConfig(p->in, p->out, s->count, t, p->user_op, s->root, p->comm, p->stream, &f)); break;
  default: OK(ncclReduceScatterConfig(p->in, p->out, s->count, t, p->user_op, p->comm, p->stream, &f)); break;
  }
}

// The output of one rank, a period after the other; then gives the buffers back.
static void check_part(const sample *s, part *p, const char *name)
{
  char want[2 * REPEAT * sizeof(float)], text[200]; // twice, so that it may begin anywhere
  size_t size = (size_t)formats[s->type].size, at = s->func == REDUCESCATTER ? (size_t)p->rank * s->count : 0;
  const char *first = want + at % REPEAT * size;
  for (size_t i = 0; i < REPEAT; i++) {
    put(want, i, (int)size, expected_bits(s, i));
  }
  memcpy(want + REPEAT * size, want, REPEAT * size);
  for (size_t k = 0; k < s->count && (s->func != REDUCE || p->rank == s->root); k += REPEAT) {
    size_t n = s->count - k < REPEAT ? s->count - k : REPEAT;
    describe(s, text, sizeof text);
    CHECK(memcmp(p->out + k * size, first, n * size) == 0, "%s: %s: rank %d has other bits in elements %zu to %zu",
          name, text, p->rank, k, k + n - 1);
  }
  if (s->op >= ncclNumOps) {
    OK(ncclRedOpDestroy(p->user_op, p->comm));
  }
  free(p->in_memory);
  free(p->out_memory);
}

// The next sample from number *at on; false at the end. Of the longest, one in two; in an instrumented program one in
// SLOWER of all, others for each n.
static bool next_ordered(int n, unsigned *at, sample *s)
{
  static const int funcs[] = {ALLREDUCE, REDUCE, REDUCESCATTER};
  for (unsigned i = *at; i < NSIZES * 27; i++) {
    unsigned size = i / 27, h = mix(i * 8 + (unsigned)n);
    *s = (sample){.func = funcs[i % 3], .op = ops[i / 3 % 3], .type = types[i / 9 % 3], .n = n};
    s->root = (int)(h % (unsigned)n);
    s->in_place = h >> 8 & 1;
    size_t count = sizes[size] > 0 ? sizes[size] : bytes_of[size] / (size_t)formats[s->type].size;
    s->count = s->func == REDUCESCATTER ? (count + (size_t)n - 1) / (size_t)n : count;
    if ((size < NSIZES - 1 || h >> 16 & 1) && (h >> 17) % SLOWER == 0) {
      *at = i + 1;
      return true;
    }
  }
  return false;
}

static void settle(const setting *how, int rank)
{
  for (int i = 0; i < 4 && how->env[i] != NULL; i++) {
    putenv((char *)(uintptr_t)how->env[i]);
  }
  if (how->two_hosts) {
    setenv("NCCL_HOSTID", rank % 2 == 0 ? "even" : "odd", 1);
  }
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
    tabulate(types[i]);
  }
}

typedef struct job {
  int n;
  const setting *how;
} job;

static void process_body(int rank, void *arg)
{
  const job *j = arg;
  sample s;
  settle(j->how, rank);
  part p = {.rank = rank, .comm = join_processes(0, j->n, rank)};
  for (unsigned at = 0; next_ordered(j->n, &at, &s);) {
    open_part(&s, &p);
    (j->how->per_call ? call_in_order : call)(&s, &p);
    OK(tuttiStreamSynchronize(p.stream));
    check_part(&s, &p, j->how->name);
  }
  OK(ncclCommDestroy(p.comm));
}

static void threads_body(int rank, void *arg)
{
  const job *j = arg;
  world w;
  sample s;
  settle(j->how, rank);
  world_open(&w, j->n);
  for (unsigned at = 0; next_ordered(j->n, &at, &s);) {
    part p[MAX_RANKS];
    for (int i = 0; i < j->n; i++) {
      p[i] = (part){.rank = i, .comm = w.comm[i], .stream = w.stream[i]};
      open_part(&s, &p[i]);
      (j->how->per_call ? call_in_order : call)(&s, &p[i]);
    }
    world_wait(&w);
    for (int i = 0; i < j->n; i++) {
      check_part(&s, &p[i], j->how->name);
    }
  }
  world_close(&w);
}

// --- Tests

static void any_number_of_ranks(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof rank_counts / sizeof rank_counts[0]; i++) {
    job j = {rank_counts[i], &plain};
    PROCESSES(j.n, 30, process_body, &j);
    PROCESSES(1, 30, threads_body, &j);
  }
}

static void any_setting(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
    job few = {3, &others[i]}, many = {8, &others[i]}, threads = {5, &others[i]};
    PROCESSES(few.n, 30, process_body, &few);
    PROCESSES(many.n, 30, process_body, &many);
    if (!others[i].two_hosts) {
      PROCESSES(1, 30, threads_body, &threads);
    }
  }
}

static void differ_body(int rank, void *arg)
{
  (void)arg;
  ncclComm_t c = NULL;
  setenv("TUTTI_REPRODUCIBLE", rank == 1 ? "1" : "0", 1);
  REFUSED(ncclCommInitRank(&c, 3, shared_id(0, rank), rank), ncclInvalidUsage, "TUTTI_REPRODUCIBLE", "rank 1");
}

static void ranks_must_agree(void **state)
{
  (void)state;
  PROCESSES(3, 10, differ_body, NULL);
}

// What cannot keep the order: NCCL_ALGO is overridden with a line that says so, a forced selection is refused.
static void override_body(int rank, void *arg)
{
  char path[64], *text = calloc(1, 1 << 20);
  (void)arg;
  snprintf(path, sizeof path, "/tmp/tutti_reproducible_%d.log", (int)getpid());
  setenv("TUTTI_REPRODUCIBLE", "1", 1);
  setenv("NCCL_ALGO", "Ring,Tree", 1);
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_FILE", path, 1);
  ncclComm_t c = join_processes(0, 2, rank);
  OK(ncclCommDestroy(c));
  FILE *f = fopen(path, "r");
  CHECK(f != NULL && text != NULL && fread(text, 1, (1 << 20) - 1, f) > 0, "no %s", path);
  fclose(f);
  unlink(path);
  CHECK(has_words(text, (const char *const[]){"TUTTI_REPRODUCIBLE: NCCL_ALGO=Ring,Tree leaves nothing for AllReduce",
                                              "for ReduceScatter that", NULL}),
        "the log does not say what is overridden");
  free(text);
}

static void forced_body(int rank, void *arg)
{
  (void)arg;
  static float x[8];
  setenv("TUTTI_REPRODUCIBLE", "1", 1);
  ncclComm_t c = join_processes(0, 2, rank);
  ncclCollConfig_t f = NCCL_COLLCONFIG_INITIALIZER;
  f.algSelection = "RING";
  f.forceAlgSelection = 1;
  REFUSED(ncclAllReduceConfig(x, x, 8, ncclFloat, ncclSum, c, NULL, &f), ncclInvalidArgument, "RING",
          "TUTTI_REPRODUCIBLE");
  OK(ncclAllGatherConfig(x, x, 4, ncclFloat, c, NULL, &f)); // there is no order
  OK(tuttiStreamSynchronize(NULL));
  OK(ncclCommDestroy(c));
}

static void other_orders_are_overridden(void **state)
{
  (void)state;
  PROCESSES(2, 10, override_body, NULL);
  PROCESSES(2, 10, forced_body, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_number_of_ranks),
      cmocka_unit_test(any_setting),
      cmocka_unit_test(ranks_must_agree),
      cmocka_unit_test(other_orders_are_overridden),
  };
  return RUN_TESTS("reproducible", tests, argc, argv);
}
