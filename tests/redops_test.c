// The operations of tutti.h: bitwise and logical ones, and functions of the program. Every type, several numbers of
// ranks, sizes from nothing to more than a chunk, every reducing function, against a plain loop over the ranks. Any
// code of a type is an input.
#include "reference.h"

#include "base/util.h"

static const int rank_counts[] = {1, 2, 3, 7};
static const size_t counts[] = {0, 1, 1009, 300007};
enum { NCOUNTS = sizeof counts / sizeof counts[0], NRANKS = sizeof rank_counts / sizeof rank_counts[0] };

static const ncclRedOp_t ops[] = {tuttiBitAnd,     tuttiBitOr,     tuttiBitXor,
                                  tuttiLogicalAnd, tuttiLogicalOr, tuttiLogicalXor};
enum { BIT_AND, BIT_OR, BIT_XOR, LOGICAL_AND, LOGICAL_OR, LOGICAL_XOR, FUNCTION, ORDERED, NOPS };

static bool is_logical(int op)
{
  return op >= LOGICAL_AND && op <= LOGICAL_XOR;
}

static uint64_t mask_of(int type)
{
  return ~(uint64_t)0 >> (64 - 8 * formats[type].size);
}

// Any code; of logical operations often a zero, with either sign.
static uint64_t input_of(const sample *s, int rank, size_t i)
{
  uint32_t h = mix((uint32_t)(i % PERIOD) * 64 + (uint32_t)rank);
  uint64_t code = (uint64_t)mix(h + 1) << 32 | mix(h + 2);
  bool zero = is_logical(s->op) && h % 8 < (s->op == LOGICAL_AND ? 1 : s->op == LOGICAL_OR ? 6 : 4);
  uint64_t sign = formats[s->type].ebits > 0 && h >> 8 & 1 ? ~(mask_of(s->type) >> 1) : 0;
  return (zero ? sign : code) & mask_of(s->type);
}

static bool is_true(int type, uint64_t code)
{
  return (formats[type].ebits > 0 ? code & mask_of(type) >> 1 : code) != 0;
}

// The halves of a code are a factor and a term of t -> factor * t + term: first b, then a. Does not commute.
static uint64_t compose(int type, uint64_t a, uint64_t b)
{
  int half = 4 * formats[type].size;
  uint64_t low = ((uint64_t)1 << half) - 1, x = a >> half & low, y = a & low;
  return (x * (b >> half & low) & low) << half | ((x * (b & low) + y) & low);
}

static uint64_t fold(int op, int type, uint64_t a, uint64_t b)
{
  bool x = is_true(type, a), y = is_true(type, b);
  switch (op) {
  case BIT_AND: return a & b;
  case BIT_OR: return a | b;
  case BIT_XOR: return a ^ b;
  case LOGICAL_AND: return encode(type, x && y);
  case LOGICAL_OR: return encode(type, x || y);
  case LOGICAL_XOR: return encode(type, x != y);
  case FUNCTION: return (a + b) & mask_of(type);
  default: return compose(type, a, b);
  }
}

static const int function_numbers[] = {FUNCTION, ORDERED}; // what the functions get as their argument

static void combine(const void *in, void *inout, size_t count, ncclDataType_t type, void *arg)
{
  const int op = *(const int *)arg, size = formats[type].size;
  CHECK((uintptr_t)inout % 64 == 0 && count > 0, "a function's block at %p has %zu elements", inout, count);
  for (size_t i = 0; i < count; i++) {
    put(inout, i, size, fold(op, (int)type, get(in, i, size), get(inout, i, size)));
  }
}

static ncclRedOp_t new_function(int op, ncclComm_t comm)
{
  ncclRedOp_t made;
  OK(tuttiRedOpCreateUser(&made, combine, op == FUNCTION, (void *)(uintptr_t)&function_numbers[op - FUNCTION], comm));
  return made;
}

static uint64_t expected_at(const sample *s, size_t i)
{
  uint64_t all = input_of(s, 0, i);
  if (is_logical(s->op)) {
    all = encode(s->type, is_true(s->type, all));
  }
  for (int r = 1; r < s->n; r++) {
    all = fold(s->op, s->type, all, input_of(s, r, i));
  }
  return all;
}

// The same from a table, which all elements of a sample share: inputs repeat.
static uint64_t wanted_at(const sample *s, size_t i)
{
  static _Thread_local uint64_t table[PERIOD];
  static _Thread_local sample made;
  size_t n = s->count * (s->func == REDUCESCATTER ? (size_t)s->n : 1);
  if (made.count != s->count || made.func != s->func || made.op != s->op || made.type != s->type || made.n != s->n) {
    for (size_t k = 0; k < n && k < PERIOD; k++) {
      table[k] = expected_at(s, k) & mask_of(s->type);
    }
    made = *s;
  }
  return table[i % PERIOD];
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
  never |= s->op == ORDERED && c->env != NULL && strcmp(c->env, "NCCL_ALGO=Oneshot") != 0;
  return !never && mix(number + (uint32_t)c->n) % ((s->count <= 1009 ? 1 : c->large) * SLOWER) == 0;
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
  const size_t size = (size_t)formats[s->type].size, n = p->in_size / size;
  for (size_t i = 0; i < n && i < PERIOD; i++) {
    put(p->in, i, (int)size, input_of(s, p->rank, i));
  }
  for (size_t i = PERIOD; i < n; i += PERIOD) {
    memcpy(p->in + i * size, p->in, (n - i < PERIOD ? n - i : PERIOD) * size);
  }
  p->user_op = s->op >= FUNCTION ? new_function(s->op, p->comm) : ops[s->op];
}

// The handle may go as soon as the call has been made.
static void called(const sample *s, const part *p)
{
  if (s->op >= FUNCTION) {
    OK(ncclRedOpDestroy(p->user_op, p->comm));
  }
}

static void finish(const sample *s, part *p)
{
  const int size = formats[s->type].size;
  for (size_t k = 0; k < s->count && (s->func != REDUCE || p->rank == s->root); k++) {
    uint64_t got = get(p->out, k, size),
             want = wanted_at(s, s->func == REDUCESCATTER ? (size_t)p->rank * s->count + k : k);
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
      called(&s, &p[i]);
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

// All samples of a thread with one rank.
static void play(const choice *c, part *p)
{
  sample s;
  for (uint32_t at = 0; next_sample(c, &at, &s);) {
    begin(&s, p);
    call(&s, p);
    called(&s, p);
    OK(tuttiStreamSynchronize(p->stream));
    finish(&s, p);
  }
}

static void process_body(int rank, void *arg)
{
  const choice *c = arg;
  part p = {.rank = rank, .comm = join_processes(0, c->n, rank)};
  OK(tuttiStreamCreate(&p.stream, TUTTI_STREAM_NON_BLOCKING));
  play(c, &p);
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

// --- Ranks as threads

typedef struct crew {
  world w;
  const choice *c;
} crew;

static void thread_body(int rank, void *arg)
{
  const crew *all = arg;
  part p = {.rank = rank, .comm = all->w.comm[rank], .stream = all->w.stream[rank]};
  play(all->c, &p);
}

static void threads_body(int rank, void *arg)
{
  crew all = {.c = arg};
  (void)rank;
  world_open(&all.w, all.c->n);
  run_threads(all.w.n, thread_body, &all);
  world_close(&all.w);
}

static void between_threads(void **state)
{
  (void)state;
  for (int i = 1; i < NRANKS; i++) {
    choice c = {.n = rank_counts[i], .large = 12};
    PROCESSES(1, 60, threads_body, &c);
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

static void refused_handles_body(int rank, void *arg)
{
  (void)rank;
  (void)arg;
  world w;
  ncclRedOp_t op = ncclSum;
  int x[2] = {0}, number = FUNCTION;
  world_open(&w, 2);
  ncclComm_t *c = w.comm;
  REFUSED(tuttiRedOpCreateUser(&op, NULL, 1, NULL, c[0]), ncclInvalidArgument, "rank 0", "fn is NULL");
  REFUSED(tuttiRedOpCreateUser(NULL, combine, 1, NULL, c[1]), ncclInvalidArgument, "rank 1", "op is");
  REFUSED(tuttiRedOpCreateUser(&op, combine, 2, NULL, c[0]), ncclInvalidArgument, "commutes is 2");
  GIVES(tuttiRedOpCreateUser(&op, combine, 1, NULL, NULL), ncclInvalidArgument);
  CHECK(op == ncclSum, "a failed call made an operation");
  OK(tuttiRedOpCreateUser(&op, combine, 1, &number, c[0]));
  REFUSED(ncclAllReduce(x, x, 1, ncclInt32, op, c[1], w.stream[1]), ncclInvalidArgument, "rank 1", "live handle");
  REFUSED(ncclRedOpDestroy(op, c[1]), ncclInvalidArgument, "live handle");
  OK(ncclRedOpDestroy(op, c[0]));
  REFUSED(ncclRedOpDestroy(op, c[0]), ncclInvalidArgument, "live handle");
  ncclRedOp_t other = new_function(FUNCTION, c[0]); // in the same place
  REFUSED(ncclAllReduce(x, x, 1, ncclInt32, op, c[0], w.stream[0]), ncclInvalidArgument, "rank 0", "live handle");
  OK(ncclRedOpDestroy(other, c[0]));
  world_close(&w);
}

static void wrong_handles_are_refused(void **state)
{
  (void)state;
  PROCESSES(1, 10, refused_handles_body, NULL);
}

// --- Freed handles

enum { CYCLES = 3000 / SLOWER };

static ncclRedOp_t new_operation(int i, ncclComm_t comm)
{
  float half = 0.5f;
  ncclRedOp_t op;
  if (i % 3 > 0) {
    return new_function(FUNCTION + i % 3 - 1, comm);
  }
  OK(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat32, ncclScalarHostImmediate, comm));
  return op;
}

static void refused_stale(ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
  float x = 1;
  REFUSED(ncclAllReduce(&x, &x, 1, ncclFloat32, op, comm, stream), ncclInvalidArgument, "live handle");
  REFUSED(ncclRedOpDestroy(op, comm), ncclInvalidArgument, "live handle");
}

// A handle of every age is kept, and refused from then on.
static void stale_body(int rank, void *arg)
{
  static ncclRedOp_t stale[CYCLES];
  world w;
  (void)rank, (void)arg;
  world_open(&w, 1);
  for (int i = 0; i < CYCLES; i++) {
    stale[i] = new_operation(i, w.comm[0]);
    OK(ncclRedOpDestroy(stale[i], w.comm[0]));
    refused_stale(stale[i / 2], w.comm[0], w.stream[0]);
  }
  float x = 3;
  ncclRedOp_t op = new_operation(0, w.comm[0]); // the only one that lives
  for (int i = 0; i < CYCLES; i++) {
    refused_stale(stale[i], w.comm[0], w.stream[0]);
  }
  OK(ncclAllReduce(&x, &x, 1, ncclFloat32, op, w.comm[0], w.stream[0]));
  world_wait(&w);
  CHECK(x == 1.5f, "%g, not 1.5", (double)x);
  OK(ncclRedOpDestroy(op, w.comm[0]));
  world_close(&w);
}

static void freed_handles_are_refused(void **state)
{
  (void)state;
  PROCESSES(1, 60, stale_body, NULL);
}

// Each thread has a communicator, and sees the handles of the others; one more they use in turn.
enum { THREADS = 4 };
typedef struct mill {
  world w;
  _Atomic int shown[THREADS]; // the newest handle of each
  ncclComm_t common;
  pthread_mutex_t turn; // of `common` and `common_op`
  ncclRedOp_t common_op;
} mill;

static void mill_common(mill *m, int i)
{
  pthread_mutex_lock(&m->turn);
  ncclRedOp_t old = m->common_op;
  OK(ncclRedOpDestroy(old, m->common));
  m->common_op = new_operation(i, m->common);
  GIVES(ncclRedOpDestroy(old, m->common), ncclInvalidArgument);
  pthread_mutex_unlock(&m->turn);
}

static void mill_body(int rank, void *arg)
{
  mill *m = arg;
  ncclComm_t comm = m->w.comm[rank];
  static _Thread_local ncclRedOp_t stale[CYCLES];
  for (int i = 0; i < CYCLES; i++) {
    ncclRedOp_t op = new_operation(i + rank, comm);
    m->shown[rank] = (int)op;
    int foreign = m->shown[(rank + 1 + i % (THREADS - 1)) % THREADS];
    GIVES(ncclRedOpDestroy((ncclRedOp_t)foreign, comm), ncclInvalidArgument);
    OK(ncclRedOpDestroy(op, comm));
    stale[i] = op;
    refused_stale(stale[i / 3], comm, m->w.stream[rank]);
    mill_common(m, i);
  }
}

static void mill_process(int rank, void *arg)
{
  mill m = {.turn = PTHREAD_MUTEX_INITIALIZER};
  (void)rank, (void)arg;
  world_open(&m.w, THREADS);
  OK(ncclCommInitAll(&m.common, 1, NULL));
  m.common_op = new_operation(0, m.common);
  run_threads(THREADS, mill_body, &m);
  OK(ncclCommDestroy(m.common));
  world_close(&m.w);
}

static void freed_handles_are_refused_in_threads(void **state)
{
  (void)state;
  PROCESSES(1, 60, mill_process, NULL);
}

// The ranks' order needs Oneshot.
static void forbidden_body(int rank, void *arg)
{
  (void)rank;
  (void)arg;
  putenv((char *)(uintptr_t) "NCCL_ALGO=Ring");
  world w;
  int x[2] = {0};
  world_open(&w, 2);
  ncclRedOp_t op = new_function(ORDERED, w.comm[0]);
  REFUSED(ncclAllReduce(x, x, 1, ncclInt32, op, w.comm[0], w.stream[0]), ncclInvalidUsage, "does not commute",
          "Oneshot", "NCCL_ALGO");
  OK(ncclRedOpDestroy(op, w.comm[0]));
  world_close(&w);
}

static void order_that_cannot_be_had_is_refused(void **state)
{
  (void)state;
  PROCESSES(1, 10, forbidden_body, NULL);
}

// A graph keeps the function when the handle is gone; each launch calls it.
static void graph_body(int rank, void *arg)
{
  (void)arg;
  enum { COUNT = 5000 };
  static uint64_t in[COUNT], out[COUNT];
  sample s = {.type = ncclUint64, .op = ORDERED, .n = 2};
  ncclComm_t comm = join_processes(0, 2, rank);
  cudaStream_t stream;
  tuttiGraph_t graph;
  tuttiGraphExec_t exec;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_NON_BLOCKING));
  ncclRedOp_t op = new_function(ORDERED, comm);
  OK(tuttiStreamBeginCapture(stream, 0));
  OK(ncclAllReduce(in, out, COUNT, ncclUint64, op, comm, stream));
  OK(tuttiStreamEndCapture(stream, &graph));
  OK(ncclRedOpDestroy(op, comm));
  OK(tuttiGraphInstantiate(&exec, graph));
  for (int turn = 0; turn < 3; turn++) {
    for (size_t i = 0; i < COUNT; i++) {
      in[i] = input_of(&s, rank, i + (size_t)turn);
      out[i] = 0;
    }
    OK(tuttiGraphLaunch(exec, stream));
    OK(tuttiStreamSynchronize(stream));
    for (size_t i = 0; i < COUNT; i++) {
      CHECK(out[i] == expected_at(&s, i + (size_t)turn), "launch %d, element %zu", turn, i);
    }
  }
  OK(tuttiGraphExecDestroy(exec));
  OK(tuttiGraphDestroy(graph));
  OK(tuttiStreamDestroy(stream));
  OK(ncclCommDestroy(comm));
}

static void graphs_keep_functions(void **state)
{
  (void)state;
  PROCESSES(2, 20, graph_body, NULL);
}

// With settings of one call.
static void settings_body(int rank, void *arg)
{
  (void)arg;
  uint32_t x = (uint32_t)rank + 2;
  sample s = {.type = ncclUint32, .op = ORDERED, .n = 2};
  ncclComm_t comm = join_processes(0, 2, rank);
  cudaStream_t stream;
  ncclCollConfig_t f = NCCL_COLLCONFIG_INITIALIZER;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_NON_BLOCKING));
  ncclRedOp_t op = new_function(ORDERED, comm);
  f.algSelection = "RING";
  f.forceAlgSelection = 1;
  REFUSED(ncclAllReduceConfig(&x, &x, 1, ncclUint32, op, comm, stream, &f), ncclInvalidArgument, "does not commute",
          "RING");
  f.forceAlgSelection = 0;
  x = (uint32_t)input_of(&s, rank, 0);
  OK(ncclAllReduceConfig(&x, &x, 1, ncclUint32, op, comm, stream, &f));
  OK(tuttiStreamSynchronize(stream));
  CHECK(x == expected_at(&s, 0), "0x%x, not 0x%llx", x, (unsigned long long)expected_at(&s, 0));
  OK(ncclRedOpDestroy(op, comm));
  OK(tuttiStreamDestroy(stream));
  OK(ncclCommDestroy(comm));
}

static void settings_of_a_call_hold(void **state)
{
  (void)state;
  PROCESSES(2, 20, settings_body, NULL);
}

// Two ranks that call different operations: both are told which.
static void differ_body(int rank, void *arg)
{
  const bool functions = *(const bool *)arg;
  int32_t x[64] = {0};
  cudaStream_t stream;
  ncclComm_t comm = join_processes(0, 2, rank);
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_NON_BLOCKING));
  ncclRedOp_t op = functions ? new_function(FUNCTION + rank, comm) : rank == 0 ? tuttiBitXor : tuttiLogicalXor;
  OK(ncclAllReduce(x, x, 64, ncclInt32, op, comm, stream));
  if (functions) {
    REFUSED(tuttiStreamSynchronize(stream), ncclInvalidUsage, "op function", "op ordered function");
  } else {
    REFUSED(tuttiStreamSynchronize(stream), ncclInvalidUsage, "bitxor", "logicalxor");
  }
  OK(tuttiStreamDestroy(stream));
  OK(ncclCommAbort(comm));
}

static void mismatches_are_named(void **state)
{
  (void)state;
  for (int i = 0; i < 2; i++) {
    bool functions = i == 1;
    PROCESSES(2, 20, differ_body, &functions);
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(in_one_process),
      cmocka_unit_test(with_algorithms),
      cmocka_unit_test(between_processes),
      cmocka_unit_test(between_threads),
      cmocka_unit_test(wrong_calls_are_refused),
      cmocka_unit_test(mismatches_are_named),
      cmocka_unit_test(wrong_handles_are_refused),
      cmocka_unit_test(freed_handles_are_refused),
      cmocka_unit_test(freed_handles_are_refused_in_threads),
      cmocka_unit_test(order_that_cannot_be_had_is_refused),
      cmocka_unit_test(graphs_keep_functions),
      cmocka_unit_test(settings_of_a_call_hold),
  };
  return RUN_TESTS("redops", tests, argc, argv);
}
