// All-reduces between processes of which some buffers are mapped by the peers (ncclMemAlloc) and others are not: the
// right sums, the same bits on every rank and in every run, whichever rank writes into another one's output.
#include "harness.h"

enum { MOST = 3 * 524288 + 4099, ROUNDS = 2 };

static const size_t counts[] = {1, 1000, 65537, 524288, MOST};
static const size_t offsets[] = {0, 4, 64, 100}; // bytes

typedef struct buffer {
  char *base;
  bool mapped;
} buffer;

static buffer buffer_of(bool mapped, size_t bytes)
{
  buffer b = {.mapped = mapped};
  if (mapped) {
    OK(ncclMemAlloc((void **)&b.base, bytes));
  } else {
    CHECK((b.base = malloc(bytes)) != NULL, "no memory");
  }
  return b;
}

static void drop(buffer *b)
{
  if (b->mapped) {
    OK(ncclMemFree(b->base));
  } else {
    free(b->base);
  }
}

static uint32_t mixed(uint32_t x)
{
  x = (x ^ x >> 16) * 0x45d9f3bu;
  return x ^ x >> 15;
}

// Small numbers, whose sums are exact, or any that are not: then only sameness is checked.
static float value(int rank, size_t i, bool exact)
{
  uint32_t r = mixed((uint32_t)i * 8 + (uint32_t)rank);
  return exact ? (float)(r % 1000) : (float)r / 3.0F;
}

static void check_sums(const float *out, size_t count, int n, bool average)
{
  for (size_t i = 0; i < count; i++) {
    float sum = 0;
    for (int k = 0; k < n; k++) {
      sum += value(k, i, true);
    }
    sum /= average ? (float)n : 1;
    CHECK(out[i] == sum, "element %zu of %zu: %g, not %g", i, count, (double)out[i], (double)sum);
  }
}

static uint64_t fingerprint(const float *x, size_t count)
{
  uint64_t h = 14695981039346656037ull;
  for (size_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, &x[i], sizeof bits);
    h = (h ^ bits) * 1099511628211ull;
  }
  return h | 1; // 0: nobody has been here
}

typedef struct sample {
  int number, n, rank;
  size_t count, at_in, at_out; // at: where it begins, in bytes
  bool in_place;
} sample;

// One run of a sample. Inputs behind and before the call's part must be as they were.
static void one_call(const sample *s, ncclComm_t comm, const buffer *in, const buffer *out, bool exact)
{
  float *to = (float *)(out->base + s->at_out), *from = s->in_place ? to : (float *)(in->base + s->at_in);
  bool average = exact && s->n == 2 && s->number % 2 != 0;
  memset(out->base, 0x55, MOST * sizeof(float) + 256);
  for (size_t i = 0; i < s->count; i++) {
    from[i] = value(s->rank, i, exact);
  }
  OK(ncclAllReduce(from, to, s->count, ncclFloat, average ? ncclAvg : ncclSum, comm, NULL));
  OK(tuttiStreamSynchronize(NULL));
  for (int i = 1; i <= 4 && s->at_out >= 4; i++) {
    CHECK(((char *)to)[-i] == 0x55, "byte %d before the output", i);
  }
  for (int i = 0; i < 4; i++) {
    CHECK(((char *)(to + s->count))[i] == 0x55, "byte %d behind the output", i);
  }
  if (exact) {
    check_sums(to, s->count, s->n, average);
    return;
  }
  uint64_t mine = fingerprint(to, s->count), first = 0;
  bool same = atomic_compare_exchange_strong(&the_board->word[s->number], &first, mine) || first == mine;
  CHECK(same, "sample %d, rank %d: other bits than another rank or run", s->number, s->rank);
}

static void every_sample(ncclComm_t comm, int n, int rank, int *number, buffer b[2])
{
  for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
    for (size_t o = 0; o < sizeof offsets / sizeof offsets[0]; o++, ++*number) {
      size_t step = (size_t)rank * (o / 3);
      sample s = {
          .number = *number, .n = n, .rank = rank, .count = counts[k] / SLOWER + 1, .in_place = *number % 3 == 0};
      s.count = s.count < MOST ? s.count : MOST;
      s.at_in = offsets[(o + step) % 4];
      s.at_out = offsets[(o + k + step) % 4];
      for (int round = 0; round < ROUNDS; round++) {
        one_call(&s, comm, &b[0], &b[1], false);
      }
      one_call(&s, comm, &b[0], &b[1], true);
    }
  }
}

// Which buffers are mapped differs from round to round: bit 2 * rank that rank's input, bit 2 * rank + 1 its output.
static void body(int rank, void *arg)
{
  int n = *(int *)arg, number = 0;
  setenv("NCCL_ALGO", "AllReduce:Direct", 1);
  ncclComm_t comm = join_processes(0, n, rank);
  const unsigned patterns[] = {0, ~0u, 0xaa, 0x55, 0x0b, 0x26, 0x08};
  for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
    buffer b[2];
    for (int k = 0; k < 2; k++) {
      b[k] = buffer_of((patterns[i] >> (2 * rank + k) & 1) != 0, MOST * sizeof(float) + 256);
    }
    every_sample(comm, n, rank, &number, b);
    drop(&b[0]);
    drop(&b[1]);
  }
  OK(ncclCommDestroy(comm));
}

static void some_buffers_are_mapped(void **state)
{
  (void)state;
  for (int n = 2; n <= 3; n++) {
    PROCESSES(n, 100, body, &n);
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(some_buffers_are_mapped),
  };
  return RUN_TESTS("mapped", tests, argc, argv);
}
