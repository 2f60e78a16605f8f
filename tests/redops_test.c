// The operations of tutti.h: bitwise and logical ones. Every type, several numbers of ranks, sizes from nothing to more
// than a chunk, every reducing function, against a plain loop over the ranks. Any code of a type is an input.
#include "reference.h"

#include "base/util.h"

static const int rank_counts[] = {1, 2, 3, 7};
static const size_t counts[] = {0, 1, 1009, 300007};
enum { NCOUNTS = sizeof counts / sizeof counts[0], NRANKS = sizeof rank_counts / sizeof rank_counts[0] };

static const ncclRedOp_t ops[] = {tuttiBitAnd,     tuttiBitOr,     tuttiBitXor,
                                  tuttiLogicalAnd, tuttiLogicalOr, tuttiLogicalXor};
enum { BIT_AND, BIT_OR, BIT_XOR, LOGICAL_AND, LOGICAL_OR, LOGICAL_XOR, NOPS };

static uint64_t mask_of(int type)
{
  return ~(uint64_t)0 >> (64 - 8 * formats[type].size);
}

// Any code; of logical operations often a zero, with either sign.
static uint64_t input_of(const sample *s, int rank, size_t i)
{
  uint32_t h = mix((uint32_t)(i % PERIOD) * 64 + (uint32_t)rank);
  uint64_t code = (uint64_t)mix(h + 1) << 32 | mix(h + 2);
  bool zero = s->op >= LOGICAL_AND && h % 8 < (s->op == LOGICAL_AND ? 1 : s->op == LOGICAL_OR ? 6 : 4);
  uint64_t sign = formats[s->type].ebits > 0 && h >> 8 & 1 ? ~(mask_of(s->type) >> 1) : 0;
  return (zero ? sign : code) & mask_of(s->type);
}

static bool is_true(int type, uint64_t code)
{
  return (formats[type].ebits > 0 ? code & mask_of(type) >> 1 : code) != 0;
}

static uint64_t fold(const sample *s, uint64_t a, uint64_t b)
{
  bool x = is_true(s->type, a), y = is_true(s->type, b);
  switch (s->op) {
  case BIT_AND: return a & b;
  case BIT_OR: return a | b;
  case BIT_XOR: return a ^ b;
  case LOGICAL_AND: return encode(s->type, x && y);
  case LOGICAL_OR: return encode(s->type, x || y);
  default: return encode(s->type, x != y);
  }
}

static uint64_t expected_at(const sample *s, size_t i)
{
  uint64_t all = input_of(s, 0, i);
  if (s->op >= LOGICAL_AND) {
    all = encode(s->type, is_true(s->type, all));
  }
  for (int r = 1; r < s->n; r++) {
    all = fold(s, all, input_of(s, r, i));
  }
  return all;
}

// What one run takes: `large`: one in so many samples of over 1009 elements.
typedef struct choice {
  int n;
  unsigned large;
  const char *env;
} choice;

static bool is_wanted(const choice *c, const sample *s, uint32_t number)
{
  bool never = (s->op <= BIT_XOR && formats[s->type].ebits > 0) || (s->in_place && s->func == REDUCE && s->root != 0);
  return !never && (s->count <= 1009 || mix(number + (uint32_t)c->n) % (c->large * SLOWER) == 0);
}

// The next sample after number `*at` that the choice takes; false at the end.
static bool next_sample(const choice *c, uint32_t *at, sample *s)
{
  static const int funcs[] = {ALLREDUCE, REDUCESCATTER, REDUCE};
  for (uint32_t i = *at;; i++) {
    uint32_t rest = i;
    *s = (sample){.n = c->n, .in_place = rest % 2 != 0, .root = c->n / 2, .in_offset = (int)(i % 3), .out_offset = 5};
    s->count = counts[(rest /= 2) % NCOUNTS];
    s->func = funcs[(rest /= NCOUNTS) % 3];
    s->op = (int)((rest /= 3) % NOPS);
    s->type = (int)(rest / NOPS);
    if (s->type >= ncclNumTypes) {
      return false;
    }
    if (is_wanted(c, s, i)) {
      *at = i + 1;
      return true;
    }
  }
}

static void begin(const sample *s, part *p)
{
  sample plain = *s;
  plain.op = ncclSum;
  prepare(&plain, p);
  for (size_t i = 0; i < p->in_size / (size_t)formats[s->type].size; i++) {
    put(p->in, i, formats[s->type].size, input_of(s, p->rank, i));
  }
  p->user_op = ops[s->op];
}

static void finish(const sample *s, part *p)
{
  const int size = formats[s->type].size;
  for (size_t k = 0; k < s->count && (s->func != REDUCE || p->rank == s->root); k++) {
    uint64_t got = get(p->out, k, size),
             want = expected_at(s, s->func == REDUCESCATTER ? (size_t)p->rank * s->count + k : k) & mask_of(s->type);
    if (got != want) {
      char text[200];
      describe(s, text, sizeof text);
      CHECK(got == want, "%s: rank %d, element %zu: 0x%llx, not 0x%llx", text, p->rank, k, (unsigned long long)got,
            (unsigned long long)want);
    }
  }
  if (p->out_memory != NULL) {
    check_guards(p->out, p->out_size, func_name[s->func]);
  }
  if (p->in_memory != NULL) {
    check_guards(p->in, p->in_size, func_name[s->func]);
  }
  free(p->in_memory);
  free(p->out_memory);
}

static void set_environment(const choice *c)
{
  if (c->env != NULL) {
    putenv((char *)(uintptr_t)c->env);
  }
}

// --- All ranks in one process

static void one_process_body(int rank, void *arg)
{
  const choice *c = arg;
  world w;
  sample s;
  (void)rank;
  set_environment(c);
  world_open(&w, c->n);
  for (uint32_t at = 0; next_sample(c, &at, &s);) {
    part p[MAX_RANKS];
    OK(ncclGroupStart());
    for (int i = 0; i < w.n; i++) {
      p[i] = (part){.rank = i, .comm = w.comm[i], .stream = w.stream[i]};
      begin(&s, &p[i]);
      call(&s, &p[i]);
    }
    OK(ncclGroupEnd());
    world_wait(&w);
    for (int i = 0; i < w.n; i++) {
      finish(&s, &p[i]);
    }
  }
  world_close(&w);
}

static void in_one_process(void **state)
{
  (void)state;
  for (int i = 0; i < NRANKS; i++) {
    choice c = {.n = rank_counts[i], .large = 6};
    PROCESSES(1, 60, one_process_body, &c);
  }
}

static void with_algorithms(void **state)
{
  (void)state;
  static const char *const settings[] = {"NCCL_ALGO=Ring", "NCCL_ALGO=Oneshot", "NCCL_ALGO=^Oneshot,Ring"};
  for (int i = 0; i < 3; i++) {
    choice c = {.n = 3, .large = 24, .env = settings[i]};
    PROCESSES(1, 60, one_process_body, &c);
  }
}

// --- Ranks as processes

static void process_body(int rank, void *arg)
{
  const choice *c = arg;
  sample s;
  part p = {.rank = rank, .comm = join_processes(0, c->n, rank)};
  OK(tuttiStreamCreate(&p.stream, TUTTI_STREAM_NON_BLOCKING));
  for (uint32_t at = 0; next_sample(c, &at, &s);) {
    begin(&s, &p);
    call(&s, &p);
    OK(tuttiStreamSynchronize(p.stream));
    finish(&s, &p);
  }
  OK(tuttiStreamDestroy(p.stream));
  OK(ncclCommDestroy(p.comm));
}

static void between_processes(void **state)
{
  (void)state;
  for (int i = 1; i < NRANKS; i++) {
    choice c = {.n = rank_counts[i], .large = 12};
    PROCESSES(c.n, 60, process_body, &c);
  }
}

// --- Errors

static void refused_body(int rank, void *arg)
{
  (void)rank;
  (void)arg;
  world w;
  uint64_t x[2] = {0};
  world_open(&w, 1);
  for (int type = 0; type < ncclNumTypes; type++) {
    for (int op = BIT_AND; op <= BIT_XOR && formats[type].ebits > 0; op++) {
      REFUSED(ncclAllReduce(x, x, 1, (ncclDataType_t)type, ops[op], w.comm[0], w.stream[0]), ncclInvalidArgument,
              "rank 0", "integer", tt_type_name(type));
    }
  }
  ncclRedOp_t before = (ncclRedOp_t)((int)tuttiBitAnd - 1), behind = (ncclRedOp_t)((int)tuttiLogicalXor + 1);
  REFUSED(ncclAllReduce(x, x, 1, ncclInt32, before, w.comm[0], w.stream[0]), ncclInvalidArgument, "operation");
  REFUSED(ncclAllReduce(x, x, 1, ncclInt32, behind, w.comm[0], w.stream[0]), ncclInvalidArgument, "operation");
  REFUSED(ncclRedOpDestroy(tuttiBitAnd, w.comm[0]), ncclInvalidArgument, "not a live handle");
  world_close(&w);
}

static void wrong_calls_are_refused(void **state)
{
  (void)state;
  PROCESSES(1, 10, refused_body, NULL);
}

// Two ranks that call different operations: both are told which.
static void differ_body(int rank, void *arg)
{
  (void)arg;
  int32_t x[64] = {0};
  cudaStream_t stream;
  ncclComm_t comm = join_processes(0, 2, rank);
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_NON_BLOCKING));
  OK(ncclAllReduce(x, x, 64, ncclInt32, rank == 0 ? tuttiBitXor : tuttiLogicalXor, comm, stream));
  REFUSED(tuttiStreamSynchronize(stream), ncclInvalidUsage, "bitxor", "logicalxor");
  OK(tuttiStreamDestroy(stream));
  OK(ncclCommAbort(comm));
}

static void mismatches_are_named(void **state)
{
  (void)state;
  PROCESSES(2, 20, differ_body, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(in_one_process),       cmocka_unit_test(with_algorithms),
      cmocka_unit_test(between_processes),    cmocka_unit_test(wrong_calls_are_refused),
      cmocka_unit_test(mismatches_are_named),
  };
  return RUN_TESTS("redops", tests, argc, argv);
}
