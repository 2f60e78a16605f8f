// All collectives, types, operations, sizes, numbers of ranks, algorithms and protocols give the right bits, the same
// everywhere and always.
#include "reference.h"

#include <sys/resource.h>

#include "coll/coll.h"
#include "device/host/reduce_priv.h"

static const int rank_counts[] = {1, 2, 3, 4, 7, 8};
static const size_t counts[] = {0, 1, 2, 3, 17, 1000, 4099, 100003};
enum { NCOUNTS = sizeof counts / sizeof counts[0], NRANKS = sizeof rank_counts / sizeof rank_counts[0] };

// What of the whole table one run takes.
typedef struct choice {
  int n;
  unsigned small, large; // one in so many samples: of up to 1000 elements, of more
  unsigned funcs;        // bits
  bool few_types;        // four of them
  const char *env[3];
} choice;

// The next sample after number `*at` that the choice takes; false at the end.
static bool next_sample(const choice *c, uint32_t *at, sample *s)
{
  static const int few[] = {ncclUint8, ncclInt32, ncclHalf, ncclDouble};
  for (uint32_t i = *at;; i++) {
    uint32_t rest = i, h = mix(i * 8 + (uint32_t)c->n);
    *s = (sample){.n = c->n, .in_place = rest % 2 != 0};
    s->count = counts[(rest /= 2) % NCOUNTS];
    s->op = (int)((rest /= NCOUNTS) % OPS);
    s->func = (int)((rest /= OPS) % FUNCS);
    uint32_t type = rest / FUNCS;
    if (type >= (c->few_types ? 4 : (uint32_t)ncclNumTypes)) {
      return false;
    }
    s->type = c->few_types ? few[type] : (int)type;
    s->root = (int)(h % (unsigned)c->n);
    s->in_offset = h % 3 == 0 ? 0 : (int)(h >> 4 & 15);
    s->out_offset = h % 3 == 0 ? 0 : (int)(h >> 8 & 15);
    unsigned thin = (s->count <= 1000 ? c->small : c->large) * SLOWER;
    bool never = (!reduces(s->func) && s->op != 0) || (s->in_place && (s->func == ALLTOALL || s->func == RING)) ||
                 (c->funcs & 1u << s->func) == 0;
    if (!never && (h >> 12) % thin == 0) {
      *at = i + 1;
      return true;
    }
  }
}

// --- All ranks in one process

static void play(const world *w, const sample *s)
{
  part p[MAX_RANKS];
  OK(ncclGroupStart());
  for (int i = 0; i < w->n; i++) {
    p[i] = (part){.rank = i, .comm = w->comm[i], .stream = w->stream[i]};
    prepare(s, &p[i]);
    call(s, &p[i]);
  }
  OK(ncclGroupEnd());
  world_wait(w);
  for (int i = 0; i < w->n; i++) {
    verify(s, &p[i]);
  }
}

static void set_environment(const choice *c)
{
  for (int i = 0; i < 3 && c->env[i] != NULL; i++) {
    putenv((char *)(uintptr_t)c->env[i]);
  }
}

static void samples_body(int rank, void *arg)
{
  const choice *c = arg;
  world w;
  sample s;
  (void)rank;
  set_environment(c);
  world_open(&w, c->n);
  for (uint32_t at = 0; next_sample(c, &at, &s);) {
    play(&w, &s);
  }
  world_close(&w);
}

static void in_one_process(void **state)
{
  (void)state;
  for (int i = 0; i < NRANKS; i++) {
    choice c = {.n = rank_counts[i], .small = 3, .large = 24, .funcs = ~0u};
    PROCESSES(1, 60, samples_body, &c);
  }
}

// How many ranks of one process can all be connected by sockets: a pair takes up to ten descriptors while it connects.
static int most_ranks(void)
{
  struct rlimit limit;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
  return over_network() && limit.rlim_max < 5 * 64 * 64 ? 48 : 64;
}

static void with_many_ranks(void **state)
{
  (void)state;
  const int many[] = {16, most_ranks()};
  for (size_t i = 0; i < sizeof many / sizeof many[0]; i++) {
    int n = many[i];
    choice c = {.n = n, .small = (unsigned)n / 2, .large = (unsigned)n * 60, .funcs = ~0u};
    PROCESSES(1, 60, samples_body, &c);
  }
}

// --- Ranks as processes

static void process_samples(int rank, void *arg)
{
  const choice *c = arg;
  sample s;
  set_environment(c);
  part p = {.rank = rank, .comm = join_processes(0, c->n, rank)};
  OK(tuttiStreamCreate(&p.stream, TUTTI_STREAM_NON_BLOCKING));
  for (uint32_t at = 0; next_sample(c, &at, &s);) {
    prepare(&s, &p);
    OK(ncclGroupStart());
    call(&s, &p);
    OK(ncclGroupEnd());
    OK(tuttiStreamSynchronize(p.stream));
    verify(&s, &p);
  }
  OK(tuttiStreamDestroy(p.stream));
  OK(ncclCommDestroy(p.comm));
}

static void between_processes(void **state)
{
  (void)state;
  for (int i = 1; i < NRANKS; i++) {
    choice c = {.n = rank_counts[i], .small = 8, .large = 24, .funcs = ~0u};
    PROCESSES(c.n, 60, process_samples, &c);
  }
}

// The peer's memory cannot be reached.
static void between_processes_without_access(void **state)
{
  (void)state;
  static const char *const switches[] = {"NCCL_CMA_ENABLE=0", "NCCL_P2P_DISABLE=1"};
  for (int i = 0; i < 2; i++) {
    choice c = {.n = 3, .small = 16, .large = 24, .funcs = ~0u, .few_types = true, .env = {switches[i]}};
    PROCESSES(c.n, 30, process_samples, &c);
    PROCESSES(1, 30, samples_body, &c);
  }
}

// --- Algorithms and protocols

// The library's number of a function here.
static const tt_func lib_func[FUNCS] = {TT_FUNC_ALLREDUCE, TT_FUNC_REDUCESCATTER, TT_FUNC_REDUCE,
                                        TT_FUNC_BROADCAST, TT_FUNC_ALLGATHER,     TT_FUNC_ALLTOALL,
                                        TT_FUNC_GATHER,    TT_FUNC_SCATTER,       TT_FUNC_SEND};

// "AllReduce:Ring;Broadcast:Ring…" for all functions that the algorithm has.
static unsigned algorithm_setting(const tt_algorithm *a, char *text, size_t size)
{
  unsigned funcs = 0;
  snprintf(text, size, "NCCL_ALGO=");
  for (int f = 0; f < FUNCS; f++) {
    if (a->funcs & 1u << lib_func[f]) {
      size_t used = strlen(text);
      snprintf(text + used, size - used, "%s%s:%s%s%s", funcs != 0 ? ";" : "", func_name[f], a->name,
               f == RING ? ";Recv:" : "", f == RING ? a->name : "");
      funcs |= 1u << f;
    }
  }
  return funcs;
}

// An algorithm that reads the peers' buffers has no place on the network, and one whose network reduces only on one
// that does (collnet_test).
static bool is_possible(const tt_algorithm *a)
{
  return !a->in_network && (a->needs == 0 || !over_network());
}

static void with_algorithm(const tt_algorithm *a, const char *proto)
{
  char algo[512], protocol[64];
  unsigned funcs = algorithm_setting(a, algo, sizeof algo);
  snprintf(protocol, sizeof protocol, "NCCL_PROTO=%s", proto);
  for (int i = 1; i < NRANKS; i++) {
    choice c = {
        .n = rank_counts[i], .small = 8, .large = 48, .funcs = funcs, .few_types = true, .env = {algo, protocol}};
    PROCESSES(1, 30, samples_body, &c);
  }
  for (int n = 2; n <= 5; n += 3) {
    choice c = {.n = n, .small = 24, .large = 48, .funcs = funcs, .few_types = true, .env = {algo, protocol}};
    PROCESSES(n, 30, process_samples, &c);
  }
}

static void with_each_algorithm_and_protocol(void **state)
{
  (void)state;
  int n;
  const tt_algorithm *all = tt_algorithms(&n);
  for (int i = 0; i < n; i++) {
    if (is_possible(&all[i])) {
      with_algorithm(&all[i], "Simple");
      with_algorithm(&all[i], "LL");
    }
  }
}

// --- Random numbers: the same bits on every rank and in every run

static uint64_t random_bits(int type, uint32_t seed)
{
  const format *f = &formats[type];
  uint64_t r = (uint64_t)mix(seed) << 32 | mix(seed ^ 0x5bd1e995u);
  if (f->ebits == 0) {
    return r;
  }
  return power_of_two((int)(r >> 60) % 4 - 2, f, (int)(r >> 59 & 1), r & (((uint64_t)1 << f->mbits) - 1));
}

static void fill_random(const sample *s, part *p)
{
  for (size_t i = 0; i < p->in_size / (size_t)formats[s->type].size; i++) {
    put(p->in, i, formats[s->type].size, random_bits(s->type, (uint32_t)i * 64u + (uint32_t)p->rank));
  }
}

static uint64_t fingerprint(const char *data, size_t size)
{
  uint64_t h = 14695981039346656037ull;
  for (size_t i = 0; i < size; i++) {
    h = (h ^ (unsigned char)data[i]) * 1099511628211ull;
  }
  return h;
}

static void drop(part *p)
{
  free(p->in_memory);
  free(p->out_memory);
}

// One run of a sample on random numbers; the ranks begin in an order that depends on `round`. Fingerprints go to
// `prints`.
static void random_run(const world *w, const sample *s, int round, uint64_t *prints)
{
  part p[MAX_RANKS];
  for (int i = 0; i < w->n; i++) {
    p[i] = (part){.rank = i, .comm = w->comm[i], .stream = w->stream[i]};
    prepare(s, &p[i]);
    fill_random(s, &p[i]);
  }
  for (int i = 0; i < w->n; i++) {
    call(s, &p[round % 2 == 0 ? i : w->n - 1 - i]);
  }
  world_wait(w);
  for (int i = 0; i < w->n; i++) {
    prints[i] = fingerprint(p[i].out, p[i].out_size);
    drop(&p[i]);
  }
}

static void random_body(int rank, void *arg)
{
  const choice *c = arg;
  (void)rank;
  world w;
  set_environment(c);
  world_open(&w, c->n);
  sample s = {.n = c->n, .root = c->n / 2};
  for (s.type = 0; s.type < ncclNumTypes; s.type++) {
    for (int k = 0; k < 3 * FUNCS * 5; k++) {
      uint64_t first[MAX_RANKS], second[MAX_RANKS];
      s.func = k / 15;
      s.count = counts[5 + k % 3];
      s.op = k / 3 % 5;
      if (!reduces(s.func) || (c->funcs & 1u << s.func) == 0 ||
          (s.count > 1000 && mix((uint32_t)(k + s.type)) % (8 * SLOWER) != 0)) {
        continue;
      }
      random_run(&w, &s, 0, first);
      random_run(&w, &s, 1, second);
      for (int i = 0; i < c->n; i++) {
        char text[200];
        describe(&s, text, sizeof text);
        CHECK(first[i] == second[i] || (s.func == REDUCE && i != s.root), "%s: rank %d: two runs differ", text, i);
        CHECK(s.func != ALLREDUCE || first[i] == first[0], "%s: ranks 0 and %d differ", text, i);
      }
    }
  }
  world_close(&w);
}

static void random_numbers(void **state)
{
  (void)state;
  int n;
  char algo[512];
  const tt_algorithm *all = tt_algorithms(&n);
  for (int i = 1; i < NRANKS; i++) {
    choice c = {.n = rank_counts[i], .funcs = ~0u};
    PROCESSES(1, 30, random_body, &c);
  }
  for (int i = 0; i < n; i++) {
    choice c = {.n = 7, .env = {algo}};
    c.funcs = algorithm_setting(&all[i], algo, sizeof algo);
    if (is_possible(&all[i])) {
      PROCESSES(1, 30, random_body, &c);
    }
  }
}

static void random_process(int rank, void *arg)
{
  const choice *c = arg;
  sample s = {.n = c->n, .func = ALLREDUCE};
  part p = {.rank = rank, .comm = join_processes(0, c->n, rank)};
  OK(tuttiStreamCreate(&p.stream, TUTTI_STREAM_NON_BLOCKING));
  for (int k = 0; k < 4 * ncclNumTypes; k++) {
    s.type = k % ncclNumTypes;
    s.count = counts[4 + k / ncclNumTypes];
    for (int round = 0; round < 2; round++) {
      prepare(&s, &p);
      fill_random(&s, &p);
      sleep_ms((double)(mix((uint32_t)(k * 2 + round) * 64 + (uint32_t)rank) % 1000) / 1000);
      call(&s, &p);
      OK(tuttiStreamSynchronize(p.stream));
      uint64_t h = fingerprint(p.out, p.out_size), first = 0;
      bool same = atomic_compare_exchange_strong(&the_board->word[k], &first, h) || first == h;
      CHECK(same, "type %s count %zu: rank %d run %d has other bits", formats[s.type].name, s.count, rank, round);
      drop(&p);
    }
  }
  OK(tuttiStreamDestroy(p.stream));
  OK(ncclCommDestroy(p.comm));
}

static void random_numbers_between_processes(void **state)
{
  (void)state;
  for (int i = 1; i < NRANKS; i++) {
    choice c = {.n = rank_counts[i]};
    PROCESSES(c.n, 30, random_process, &c);
  }
}

// --- One element of two ranks: the same bits in a call of any length, at any place, with every algorithm and
// instruction set

enum { ALIKE_COUNT = 4099, ALIKE_MOST = 70, ALIKE_OPS = ncclNumOps + 1 };

// Of each type and operation, of the first run: later ones compare with them. Shared by the runs' processes.
static uint64_t (*alike_prints)[ncclNumTypes][ALIKE_OPS];

// Zeros, subnormals, odd mantissas, the largest numbers, infinities, NaN: and as many random bits.
static uint64_t special_bits(const sample *s, uint32_t seed)
{
  const format *f = &formats[s->type];
  uint32_t h = mix(seed);
  if (f->ebits == 0 || h % 2 == 0) {
    return (uint64_t)mix(h) << 32 | mix(~h);
  }
  const uint64_t one = power_of_two(0, f, 0, 0), least = (uint64_t)1 << f->mbits,
                 inf = least * (((uint64_t)1 << f->ebits) - 1);
  const uint64_t magnitudes[] = {0, 1, least - 1, least, least + 1, one, one + 1, inf - 1, inf, inf + least - 1};
  return magnitudes[h / 2 % 10] | (uint64_t)(h >> 31) << (f->ebits + f->mbits);
}

// Both ranks reduce elements at … at + count - 1, twice: the second time as a call that is known.
static void alike_call(const world *w, const sample *s, const part *p, size_t at, size_t count)
{
  size_t skip = at * (size_t)formats[s->type].size;
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < 2; i++) {
      OK(ncclAllReduce(p[i].in + skip, p[i].out + skip, count, (ncclDataType_t)s->type, p[i].user_op, w->comm[i],
                       w->stream[i]));
    }
    world_wait(w);
  }
}

static void alike_lengths(const world *w, const sample *s, part *p, const char *isa)
{
  size_t size = (size_t)formats[s->type].size;
  char *want = malloc(p[0].out_size), text[200];
  CHECK(want != NULL, "no memory");
  describe(s, text, sizeof text);
  alike_call(w, s, p, 0, s->count);
  memcpy(want, p[0].out, p[0].out_size);
  uint64_t *first = &(*alike_prints)[s->type][s->op], print = fingerprint(want, p[0].out_size);
  CHECK(*first == 0 || *first == print, "%s, %s: other bits than in the first run", text, isa);
  *first = print;
  for (size_t n = 1; n <= ALIKE_MOST; n++) {
    size_t at = mix((uint32_t)n) % (s->count - n);
    alike_call(w, s, p, at, n);
    for (size_t k = at; k < at + n; k++) {
      for (int i = 0; i < 2; i++) {
        CHECK(memcmp(p[i].out + k * size, want + k * size, size) == 0,
              "%s, %s, call of %zu: element %zu of rank %d: 0x%llx, not 0x%llx", text, isa, n, k, i,
              (unsigned long long)get(p[i].out, k, (int)size), (unsigned long long)get(want, k, (int)size));
      }
    }
  }
  free(want);
}

static void alike_sample(const world *w, const sample *s, const char *isa)
{
  part p[2];
  for (int i = 0; i < 2; i++) {
    p[i] = (part){.rank = i, .comm = w->comm[i], .stream = w->stream[i]};
    prepare(s, &p[i]);
    for (size_t k = 0; k < s->count; k++) {
      put(p[i].in, k, formats[s->type].size, special_bits(s, (uint32_t)k * 2 + (uint32_t)i));
    }
  }
  alike_lengths(w, s, p, isa);
  for (int i = 0; i < 2; i++) {
    if (s->op >= ncclNumOps) {
      OK(ncclRedOpDestroy(p[i].user_op, p[i].comm));
    }
    drop(&p[i]);
  }
}

static void alike_body(int rank, void *arg)
{
  static const char *const isas[] = {"plain", "avx2", "avx512", "avx512bf16"};
  const choice *c = arg;
  world w;
  (void)rank;
  set_environment(c);
  world_open(&w, 2);
  for (int k = 0; k < 4; k++) {
    if (!tt_reduce_select(isas[k])) {
      continue;
    }
    sample s = {.n = 2, .func = ALLREDUCE, .count = ALIKE_COUNT};
    for (s.type = 0; s.type < ncclNumTypes; s.type++) {
      for (s.op = 0; s.op < ALIKE_OPS; s.op++) {
        alike_sample(&w, &s, isas[k]);
      }
    }
  }
  world_close(&w);
}

static void alike_everywhere(void **state)
{
  (void)state;
  int n;
  char algo[512];
  const tt_algorithm *all = tt_algorithms(&n);
#ifdef TT_TSAN // same calls as above: which bits they give, and by which instructions, is no matter of threads
  print_message("skipped: ThreadSanitizer\n");
  skip();
#endif
  alike_prints = mmap(NULL, sizeof *alike_prints, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(alike_prints != MAP_FAILED);
  PROCESSES(1, 60, alike_body, &((choice){.n = 2}));
  for (int i = 0; i < n; i++) {
    if (is_possible(&all[i]) && (all[i].funcs & 1u << TT_FUNC_ALLREDUCE)) {
      choice c = {.n = 2, .env = {algo}};
      algorithm_setting(&all[i], algo, sizeof algo);
      PROCESSES(1, 60, alike_body, &c);
    }
  }
  munmap(alike_prints, sizeof *alike_prints);
}

// --- More than 2^32 bytes

static const size_t HUGE = ((size_t)1 << 32) + (64 << 20) + 5;

static int page_byte(size_t i)
{
  return (int)(mix((uint32_t)(i >> 12)) & 0xff);
}

static void huge_fill(unsigned char *x)
{
  for (size_t i = 0; i < HUGE; i += 4096) {
    memset(x + i, page_byte(i), HUGE - i < 4096 ? HUGE - i : 4096);
  }
}

static void huge_check(const unsigned char *x, int plus, const char *what, int rank)
{
  for (size_t i = 0; i < HUGE; i += i % 4096 == 0 ? 509 : i + 4096 > HUGE ? 1 : 1021) {
    CHECK(x[i] == (unsigned char)(page_byte(i) + plus), "%s, rank %d, byte %zu: %d, not %d", what, rank, i, x[i],
          (unsigned char)(page_byte(i) + plus));
  }
}

static void huge_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  unsigned char *x[2];
  world w;
  for (int i = 0; i < 2; i++) {
    x[i] = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(x[i] != MAP_FAILED, "no address space");
    madvise(x[i], HUGE, MADV_HUGEPAGE); // two million faults of small pages would be half of this test's time
  }
  huge_fill(x[0]);
  world_open(&w, 2);
  for (int i = 0; i < 2; i++) {
    OK(ncclBroadcast(x[i], x[i], HUGE, ncclUint8, 0, w.comm[i], w.stream[i]));
  }
  world_wait(&w);
  huge_check(x[1], 0, "broadcast", 1);
  memset(x[1], 1, HUGE);
  for (int i = 0; i < 2; i++) {
    OK(ncclAllReduce(x[i], x[i], HUGE, ncclUint8, ncclSum, w.comm[i], w.stream[i]));
  }
  world_wait(&w);
  for (int i = 0; i < 2; i++) {
    huge_check(x[i], 1, "all-reduce", i);
    munmap(x[i], HUGE);
  }
  world_close(&w);
}

static void beyond_four_gigabytes(void **state)
{
  (void)state;
  if (SLOWER > 1 || status_value("/proc/meminfo", "MemAvailable:") < (20l << 20)) {
    print_message("skipped: %s\n", SLOWER > 1 ? "sanitizer" : "less than 20 GiB of memory available");
    skip();
  }
  assert_int_equal(
      run_processes(&(run){.n = 1, .seconds = 100, .fn = huge_body, .env = ENV("NCCL_ALGO=Broadcast:Ring")}), 0);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(in_one_process),
      cmocka_unit_test(with_many_ranks),
      cmocka_unit_test(between_processes),
      cmocka_unit_test(between_processes_without_access),
      cmocka_unit_test(with_each_algorithm_and_protocol),
      cmocka_unit_test(random_numbers),
      cmocka_unit_test(random_numbers_between_processes),
      cmocka_unit_test(alike_everywhere),
      cmocka_unit_test(beyond_four_gigabytes),
  };
  return RUN_TESTS("bits", tests, argc, argv);
}
