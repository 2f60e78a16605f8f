#include "pattern.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "types.h"

enum { SUM, PROD, MAX, MIN, AVG, BIT_OR = PERF_BITAND + 1, BIT_XOR, LOGICAL_XOR = PERF_LOGICALAND + 2 };

struct perf_patterns {
  pthread_mutex_t lock;
  perf_pattern *first;
};

uint64_t perf_mulsum_scalar(int type, int rank)
{
  unsigned v = rank % 2 ? 2 : 1; // fold_float knows it too
  return perf_type_info(type)->cls == PERF_FLOATING ? perf_encode(type, v) : v;
}

static bool is_power_of_two(int n)
{
  return (n & (n - 1)) == 0;
}

// Is `rank` one of the `members` ranks that count at position k? Any `members` neighbours on the ring of ranks, chosen
// by k.
static bool is_member(int nranks, int rank, size_t k, int members)
{
  return (int)((perf_mix(k, 77) % (unsigned)nranks + (unsigned)rank) % (unsigned)nranks) < members;
}

// A whole number such that the absolute values over all ranks add up to at most `budget`: every partial sum is then
// exact.
static double bounded_integer(int nranks, int rank, size_t k, double budget)
{
  uint64_t r = perf_mix(k, (uint64_t)rank + 1000);
  int64_t each = (int64_t)fmin(budget / nranks, 1 << 15);
  if (each >= 1) {
    return (double)((int64_t)(r % (uint64_t)(2 * each + 1)) - each);
  }
  if (!is_member(nranks, rank, k, (int)fmax(budget, 1))) {
    return 0;
  }
  return r & 1 ? 1 : -1;
}

// Signed powers of two whose exponents stay within what the type can hold for any subset of ranks.
static double bounded_power(int type, int nranks, int rank, size_t k)
{
  const perf_type *t = perf_type_info(type);
  int range = (1 << (t->exponent_bits - 1)) - 2; // exponents -range..range are normal numbers in every type
  int each = range / nranks < 3 ? range / nranks : 3;
  int members = each >= 1 ? nranks : range;
  uint64_t r = perf_mix(k, (uint64_t)rank + 2000);
  int exponent = 0;
  if (is_member(nranks, rank, k, members)) {
    int width = each >= 1 ? each : 1;
    exponent = (int)(r % (uint64_t)(2 * width + 1)) - width;
  }
  return ldexp(r >> 40 & 1 ? -1 : 1, exponent);
}

// Any finite number but zero (whose sign max and min do not define).
static uint64_t any_finite(int type, uint64_t r)
{
  const perf_type *t = perf_type_info(type);
  uint64_t bits = r & (~(uint64_t)0 >> (64 - 8 * t->size));
  uint64_t sign = (uint64_t)1 << (8 * t->size - 1);
  if (!isfinite(perf_decode(type, bits))) {
    bits &= ~((uint64_t)1 << (t->mantissa_bits + t->exponent_bits - 1));
  }
  return (bits & ~sign) == 0 ? 1 : bits;
}

// avg over n ranks, n not a power of two: 1/n is rounded, so the result is too. Types with long mantissas: positive
// values on all ranks, relative error below (n + 2) / 2^mantissa. Short ones: one rank counts per position, and only
// the product x * (1/n) is rounded.
static bool avg_is_sparse(int type)
{
  return perf_type_info(type)->mantissa_bits < 23;
}

static double avg_value(int type, int nranks, int rank, size_t k)
{
  uint64_t r = perf_mix(k, (uint64_t)rank + 3000);
  if (is_power_of_two(nranks)) {
    return bounded_integer(nranks, rank, k, perf_exact_integers(type)) * (nranks < 256 ? nranks : 256);
  }
  if (!avg_is_sparse(type)) {
    return (double)(1 + r % 16);
  }
  return is_member(nranks, rank, k, 1) ? perf_decode(type, perf_encode(type, (double)(16 + r % 225))) : 0;
}

static bool is_bitwise(int op)
{
  return op >= PERF_BITAND && op < PERF_LOGICALAND;
}

// Is the rank's element true? So that a single rank decides now and then.
static bool is_true(const perf_pattern *p, int rank, size_t k)
{
  uint64_t r = perf_mix(k, (uint64_t)rank + 7000);
  bool rare = r % (2 * (unsigned)p->nranks) == 0;
  return p->op == LOGICAL_XOR ? r >> 32 & 1 : (p->op == PERF_LOGICALAND) != rare;
}

// One rank in so many as there are has other bits than the operation's neutral ones.
static uint64_t sparse_bits(const perf_pattern *p, int rank, size_t k)
{
  uint64_t r = perf_mix(k, (uint64_t)rank + 8000);
  if (p->op == BIT_XOR) {
    return r;
  }
  uint64_t bits = (r >> 32) % (unsigned)p->nranks == 0 ? perf_mix(r, k) : 0;
  return p->op == PERF_BITAND ? ~bits : bits;
}

// What rank puts at position k: always exactly a value of the type.
static double float_value(const perf_pattern *p, int rank, size_t k)
{
  double exact = perf_exact_integers(p->type);
  if (p->op >= PERF_LOGICALAND) {
    return is_true(p, rank, k) ? bounded_power(p->type, p->nranks, rank, k) : 0;
  }
  switch (p->op) {
  case PROD: return bounded_power(p->type, p->nranks, rank, k);
  case MAX:
  case MIN: return perf_decode(p->type, any_finite(p->type, perf_mix(k, (uint64_t)rank + 4000)));
  case AVG: return avg_value(p->type, p->nranks, rank, k);
  case PERF_MULSUM: return bounded_integer(p->nranks, rank, k, exact / 2);
  default: return bounded_integer(p->nranks, rank, k, exact);
  }
}

// Integers wrap, which is exact: any bits will do. Products stay odd, or they would soon be zero. avg divides, so its
// sum must not wrap.
static uint64_t integer_input(const perf_pattern *p, int rank, size_t k)
{
  const perf_type *t = perf_type_info(p->type);
  uint64_t r = perf_mix(k, (uint64_t)rank + 5000);
  if (is_bitwise(p->op)) {
    return sparse_bits(p, rank, k);
  }
  if (p->op >= PERF_LOGICALAND) {
    return is_true(p, rank, k) ? r | 1 : 0;
  }
  if (p->op == PROD) {
    return r | 1;
  }
  if (p->op != AVG) {
    return r;
  }
  double v = bounded_integer(p->nranks, rank, k, ldexp(1, (t->size < 4 ? 8 * t->size : 30) - 1) - 1);
  return (uint64_t)(int64_t)(t->cls == PERF_UNSIGNED ? fabs(v) : v);
}

static uint64_t input_bits(const perf_pattern *p, int rank, size_t k)
{
  return perf_type_info(p->type)->cls == PERF_FLOATING ? perf_encode(p->type, float_value(p, rank, k))
                                                       : integer_input(p, rank, k);
}

static uint64_t fold_integer(const perf_pattern *p, uint64_t acc, uint64_t v, int rank)
{
  int64_t a = perf_extend(p->type, acc), b = perf_extend(p->type, v);
  bool less = perf_type_info(p->type)->cls == PERF_SIGNED ? b < a : (uint64_t)b < (uint64_t)a;
  switch (p->op) {
  case PROD: return acc * v;
  case MAX: return less ? acc : v;
  case MIN: return less ? v : acc;
  case PERF_MULSUM: return acc + v * perf_mulsum_scalar(p->type, rank);
  case PERF_BITAND: return acc & v;
  case BIT_OR: return acc | v;
  case BIT_XOR: return acc ^ v;
  default: return acc + v;
  }
}

static double fold_float(const perf_pattern *p, double acc, double v, int rank)
{
  switch (p->op) {
  case PROD: return acc * v;
  case MAX: return v > acc ? v : acc;
  case MIN: return v < acc ? v : acc;
  case PERF_MULSUM: return acc + v * (rank % 2 ? 2 : 1);
  default: return acc + v;
  }
}

static uint64_t reduced_integer(const perf_pattern *p, size_t k)
{
  uint64_t acc = input_bits(p, 0, k);
  for (int rank = 1; rank < p->nranks; rank++) {
    acc = fold_integer(p, acc, input_bits(p, rank, k), rank);
  }
  return p->op == AVG ? (uint64_t)(perf_extend(p->type, acc) / p->nranks) : acc;
}

static uint64_t reduced_float(const perf_pattern *p, size_t k)
{
  double acc = float_value(p, 0, k); // rank 0's scalar of mulsum is 1
  for (int rank = 1; rank < p->nranks; rank++) {
    acc = fold_float(p, acc, float_value(p, rank, k), rank);
  }
  if (p->op == AVG) {
    // The factor is a value of the type, as the library must pass it; exact for powers of two.
    acc = avg_is_sparse(p->type) || is_power_of_two(p->nranks)
              ? acc * perf_decode(p->type, perf_encode(p->type, 1.0 / p->nranks))
              : acc / p->nranks;
  }
  return perf_encode(p->type, acc);
}

static bool reduced_truth(const perf_pattern *p, size_t k)
{
  int trues = 0;
  for (int rank = 0; rank < p->nranks; rank++) {
    trues += is_true(p, rank, k);
  }
  return p->op == PERF_LOGICALAND ? trues == p->nranks : p->op == LOGICAL_XOR ? trues % 2 == 1 : trues > 0;
}

static uint64_t reduced_bits(const perf_pattern *p, size_t k)
{
  if (p->op >= PERF_LOGICALAND) {
    bool all = reduced_truth(p, k);
    return perf_type_info(p->type)->cls == PERF_FLOATING ? perf_encode(p->type, all) : all;
  }
  return perf_type_info(p->type)->cls == PERF_FLOATING ? reduced_float(p, k) : reduced_integer(p, k);
}

static uint8_t *new_table(const perf_pattern *p)
{
  return malloc(2 * PERF_PERIOD * p->elt);
}

static void double_table(const perf_pattern *p, uint8_t *table)
{
  memcpy(table + PERF_PERIOD * p->elt, table, PERF_PERIOD * p->elt);
}

static uint8_t *make_input(const perf_pattern *p, int rank)
{
  uint8_t *table = new_table(p);
  for (size_t k = 0; table && k < PERF_PERIOD; k++) {
    perf_store(table, k, p->elt, input_bits(p, rank, k));
  }
  if (table) {
    double_table(p, table);
  }
  return table;
}

static void free_pattern(perf_pattern *p)
{
  if (!p) {
    return;
  }
  for (int rank = 0; p->input && rank < p->nranks; rank++) {
    free(p->input[rank]);
  }
  free(p->input);
  free(p->copy);
  free(p->reduced);
  free(p);
}

static perf_pattern *new_pattern(int type, int op, int nranks)
{
  perf_pattern *p = calloc(1, sizeof(*p));
  if (!p) {
    return NULL;
  }
  *p = (perf_pattern){.type = type, .op = op, .nranks = nranks, .elt = perf_type_info(type)->size};
  p->copy = new_table(p);
  p->reduced = new_table(p);
  p->input = calloc((size_t)nranks, sizeof(*p->input));
  if (!p->copy || !p->reduced || !p->input) {
    free_pattern(p);
    return NULL;
  }
  for (size_t k = 0; k < PERF_PERIOD; k++) {
    perf_store(p->copy, k, p->elt, perf_mix(k, 6000));
    perf_store(p->reduced, k, p->elt, reduced_bits(p, k));
  }
  double_table(p, p->copy);
  double_table(p, p->reduced);
  if (op == AVG && perf_type_info(type)->cls == PERF_FLOATING && !is_power_of_two(nranks)) {
    p->tolerance = avg_is_sparse(type) ? 1 : (unsigned)nranks + 2;
  }
  return p;
}

perf_patterns *perf_patterns_create(void)
{
  perf_patterns *set = calloc(1, sizeof(*set));
  if (set) {
    pthread_mutex_init(&set->lock, NULL);
  }
  return set;
}

void perf_patterns_destroy(perf_patterns *set)
{
  if (!set) {
    return;
  }
  while (set->first) {
    perf_pattern *p = set->first;
    set->first = p->next;
    free_pattern(p);
  }
  pthread_mutex_destroy(&set->lock);
  free(set);
}

static perf_pattern *find_or_make(perf_patterns *set, int type, int op, int nranks)
{
  for (perf_pattern *p = set->first; p; p = p->next) {
    if (p->type == type && p->op == op && p->nranks == nranks) {
      return p;
    }
  }
  perf_pattern *p = new_pattern(type, op, nranks);
  if (p) {
    p->next = set->first;
    set->first = p;
  }
  return p;
}

// The table of one rank, made outside the lock: it takes a while. In another group there may be a rank of the same
// number that makes the same table; the first one is kept. False: no memory.
static bool add_input(perf_patterns *set, perf_pattern *p, int rank)
{
  uint8_t *table = make_input(p, rank);
  if (!table) {
    return false;
  }
  pthread_mutex_lock(&set->lock);
  if (p->input[rank]) {
    free(table);
  } else {
    p->input[rank] = table;
  }
  pthread_mutex_unlock(&set->lock);
  return true;
}

perf_pattern *perf_pattern_acquire(perf_patterns *set, int type, int op, int nranks, int rank)
{
  pthread_mutex_lock(&set->lock);
  perf_pattern *p = find_or_make(set, type, op, nranks);
  if (p) {
    p->users++;
  }
  bool make = p && !p->input[rank];
  pthread_mutex_unlock(&set->lock);
  if (make && !add_input(set, p, rank)) {
    perf_pattern_release(set, p);
    return NULL;
  }
  return p;
}

void perf_pattern_release(perf_patterns *set, perf_pattern *p)
{
  if (!p) {
    return;
  }
  pthread_mutex_lock(&set->lock);
  if (--p->users == 0) {
    perf_pattern **at = &set->first;
    while (*at != p) {
      at = &(*at)->next;
    }
    *at = p->next;
    free_pattern(p);
  }
  pthread_mutex_unlock(&set->lock);
}
