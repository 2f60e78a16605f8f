// reduce.c: what surrounds the kernels: which set of them, blocks, several destinations, streaming.
#include "device/reduce.h"

#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "base/advice.h"
#include "base/opcode.h"
#include "base/param.h"
#include "base/util.h"
#include "device/reduce_convert.h"
#include "device/host/reduce_priv.h"

enum {
  BLOCK_BYTES = 8192,     // of accumulator or output: with the current sources it fits the first-level cache
  STREAM_MIN = 16 * 1024, // of one call: the fence behind it costs as much as half a kilobyte
  COPY_BLOCK = 16 * 1024, // of a copy to several destinations
};

// ---- Choice of the instruction set ----

static const tt_kernels *chosen; // written once, or by tests

#ifdef __x86_64__
// Not every compiler's __builtin_cpu_supports knows this one.
static bool has_f16c(void)
{
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

static const tt_kernels *isa_find(const char *name)
{
#ifdef __x86_64__
  __builtin_cpu_init();
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#ifdef TT_HAVE_AVX512BF16
  bool bf16 = avx512 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi");
  if (bf16 && (!name || strcmp(name, "avx512bf16") == 0)) {
    return &tt_kernels_avx512bf16;
  }
#endif
  if (avx512 && (!name || strcmp(name, "avx512") == 0)) {
    return &tt_kernels_avx512;
  }
  if (avx2 && (!name || strcmp(name, "avx2") == 0)) {
    return &tt_kernels_avx2;
  }
#endif
  return !name || strcmp(name, "plain") == 0 ? &tt_kernels_plain : NULL;
}

const char *tt_reduce_select(const char *name)
{
  const tt_kernels *k = isa_find(name);
  if (k == NULL) {
    return NULL;
  }
  __atomic_store_n(&chosen, k, __ATOMIC_RELEASE);
  return k->name;
}

// Two threads may both come here; they store the same.
static __attribute__((cold, noinline)) const tt_kernels *kernels_choose(void)
{
  const char *want = tt_params_get()->host_isa;
  if (tt_reduce_select(want && *want ? want : NULL) == NULL) {
    const char *best = tt_reduce_select(NULL);
    tt_advise("NCCL_HOST_ISA=%s is not one of plain, avx2, avx512, avx512bf16, or this machine lacks it: using %s",
              want, best);
  }
  return __atomic_load_n(&chosen, __ATOMIC_RELAXED);
}

static inline const tt_kernels *kernels(void)
{
  const tt_kernels *k = __atomic_load_n(&chosen, __ATOMIC_ACQUIRE);
  return TT_LIKELY(k != NULL) ? k : kernels_choose();
}

// ---- Built-in operations ----

// The low bytes hold the value.
static uint64_t value_bits(const void *value, size_t size)
{
  uint64_t bits = 0;
  memcpy(&bits, value, size);
  return bits;
}

// Bits of x in a floating type; 0 for the others.
static uint64_t float_bits(ncclDataType_t type, double x)
{
#define WIDE_ROW(T, DIV) value_bits(&(T){(T)x}, sizeof(T))
#define NARROW_ROW(prefix, size) tt_##prefix##_from_f32((float)x)
#define T(id, name, bytes, cls, exponent, mantissa, row) [nccl##id] = type == nccl##id && (exponent) > 0 ? (row) : 0,
  const uint64_t bits[] = {
#include "base/types.def"
  };
  return bits[type];
}

// Bitwise and logical operations.
static void redop_bits(tt_redop *op, ncclDataType_t type, int code, int nranks)
{
  if (tt_opcode_is_bitwise(code)) {
    *op = (tt_redop){.type = TT_RED_BITS,
                     .kind = (uint8_t)(code - TT_OP_BIT_AND),
                     .shift = (uint8_t)__builtin_ctzl(tt_type_size((int)type))};
    return;
  }
  *op = (tt_redop){.type = (uint8_t)(TT_RED_TRUTH + (int)type),
                   .kind = (uint8_t)(code - TT_OP_LOGICAL_AND),
                   .divisor = nranks == 1 ? 2 : 0};
}

void tt_redop_builtin(tt_redop *op, ncclDataType_t type, ncclRedOp_t red, int nranks)
{
  static const uint8_t kinds[TT_OP_SCALED + 1] = {
      [ncclSum] = TT_RED_SUM, [ncclProd] = TT_RED_PROD, [ncclMax] = TT_RED_MAX,
      [ncclMin] = TT_RED_MIN, [ncclAvg] = TT_RED_SUM,   [TT_OP_SCALED] = TT_RED_SUM};
  const int code = tt_opcode_of(red);
  if (code > TT_OP_SCALED) {
    redop_bits(op, type, code, nranks);
    return;
  }
  *op = (tt_redop){.type = (uint8_t)type, .kind = kinds[code]};
  if (red != ncclAvg || nranks <= 1) {
    return;
  }
  bool is_float = float_bits(type, 1) != 0;
  op->prescale = is_float;
  op->scalar = float_bits(type, 1.0 / nranks);
  op->divisor = is_float ? 0 : (uint32_t)nranks;
}

// ---- One call ----

typedef struct tt_job {
  const tt_kernels *isa;
  const tt_kernel_row *row;
  int kind, nsrc, ndst;
  bool scaled; // scale may be looked at
  const void *const *src;
  const uint64_t *const *scale;
  void *const *dst;
  uint32_t divisor; // 0: none
  bool stream, keep_first;
} tt_job;

static inline const void *reduce_at(const tt_job *j, int k, size_t byte)
{
  return (const char *)j->src[k] + byte;
}

static inline const uint64_t *reduce_scalar_of(const tt_job *j, int k)
{
  return j->scaled ? j->scale[k] : NULL;
}

// Any number of scaled sources of a wide type, in an accumulator.
static void fold_accumulate(const tt_job *j, void *out, size_t first, size_t n)
{
  _Alignas(64) char acc[BLOCK_BYTES];
  const size_t size = j->row->size, block = BLOCK_BYTES / size;
  for (size_t done = 0; done < n; done += block) {
    size_t m = TT_MIN(block, n - done), byte = (first + done) * size;
    j->row->open(acc, reduce_at(j, 0, byte), reduce_scalar_of(j, 0), m);
    for (int k = 1; k < j->nsrc; k++) {
      j->row->step[j->kind](acc, reduce_at(j, k, byte), reduce_scalar_of(j, k), m);
    }
    j->row->close((char *)out + done * size, acc, m);
  }
}

// Five and more unscaled sources of a wide type: four at first, then the result so far and three more.
static void fold_chain(const tt_job *j, void *out, size_t first, size_t n)
{
  _Alignas(64) char acc[BLOCK_BYTES];
  const size_t size = j->row->size, block = BLOCK_BYTES / size;
  const tt_kernel_row *row = j->row;
  for (size_t done = 0; done < n; done += block) {
    size_t m = TT_MIN(block, n - done), b = (first + done) * size;
    row->fold4[j->kind](acc, reduce_at(j, 0, b), reduce_at(j, 1, b), reduce_at(j, 2, b), reduce_at(j, 3, b), m);
    int k = 4;
    for (; j->nsrc - k > 3; k += 3) {
      row->fold4[j->kind](acc, acc, reduce_at(j, k, b), reduce_at(j, k + 1, b), reduce_at(j, k + 2, b), m);
    }
    void *to = (char *)out + done * size;
    switch (j->nsrc - k) {
    case 1: row->fold2[j->kind](to, acc, reduce_at(j, k, b), m); break;
    case 2: row->fold3[j->kind](to, acc, reduce_at(j, k, b), reduce_at(j, k + 1, b), m); break;
    default: row->fold4[j->kind](to, acc, reduce_at(j, k, b), reduce_at(j, k + 1, b), reduce_at(j, k + 2, b), m); break;
    }
  }
}

// Three and more sources of kernels that take two.
static void fold_pairs(const tt_job *j, void *out, size_t first, size_t n)
{
  _Alignas(64) char acc[BLOCK_BYTES];
  const size_t size = j->row->size, block = BLOCK_BYTES / size;
  tt_fold2_fn *const fold2 = j->row->fold2[j->kind];
  for (size_t done = 0; done < n; done += block) {
    size_t m = TT_MIN(block, n - done), b = (first + done) * size;
    fold2(acc, reduce_at(j, 0, b), reduce_at(j, 1, b), m);
    for (int k = 2; k < j->nsrc - 1; k++) {
      fold2(acc, acc, reduce_at(j, k, b), m);
    }
    fold2((char *)out + done * size, acc, reduce_at(j, j->nsrc - 1, b), m);
  }
}

// out = the n elements of the result that begin with `first`, before the division.
static void fold(const tt_job *j, void *out, size_t first, size_t n)
{
  const tt_kernel_row *row = j->row;
  const size_t b = first * row->size;
  if (j->nsrc == 2 && !j->scaled) {
    row->fold2[j->kind](out, reduce_at(j, 0, b), reduce_at(j, 1, b), n);
  } else if (j->nsrc == 1 && !j->scaled) {
    if (out != reduce_at(j, 0, b)) {
      memcpy(out, reduce_at(j, 0, b), n * row->size);
    }
  } else if (row->many[j->kind]) {
    const tt_many m = {j->src, j->scaled ? j->scale : NULL, j->nsrc, b};
    row->many[j->kind](out, &m, n);
  } else if (row->fold3[j->kind] == NULL) {
    fold_pairs(j, out, first, n);
  } else if (j->nsrc == 2) {
    row->fold2s[j->kind](out, reduce_at(j, 0, b), reduce_at(j, 1, b), j->scale[0], j->scale[1], n);
  } else if (j->scaled) {
    fold_accumulate(j, out, first, n);
  } else if (j->nsrc == 3) {
    row->fold3[j->kind](out, reduce_at(j, 0, b), reduce_at(j, 1, b), reduce_at(j, 2, b), n);
  } else if (j->nsrc == 4) {
    row->fold4[j->kind](out, reduce_at(j, 0, b), reduce_at(j, 1, b), reduce_at(j, 2, b), reduce_at(j, 3, b), n);
  } else {
    fold_chain(j, out, first, n);
  }
}

// Two sources, one or two streamed destinations whose lines hold whole elements: no detour over a buffer.
static void fold2_stream(const tt_job *j, size_t count)
{
  const tt_kernel_row *row = j->row;
  char *dst = j->dst[0], *dst2 = j->ndst == 2 ? j->dst[1] : NULL;
  const char *a = j->src[0], *b = j->src[1];
  const size_t bytes = count * row->size, head = -(uintptr_t)dst % TT_CACHE_LINE,
               body = (bytes - head) / TT_RED_CHUNK * TT_RED_CHUNK;
  const size_t tail = head + body;
  row->fold2[j->kind](dst, a, b, head / row->size);
  row->fold2nt[j->kind](dst + head, dst2 == NULL ? NULL : dst2 + head, a + head, b + head, body / row->size);
  row->fold2[j->kind](dst + tail, a + tail, b + tail, (bytes - tail) / row->size);
  if (dst2 != NULL) {
    memcpy(dst2, dst, head);
    memcpy(dst2 + tail, dst + tail, bytes - tail);
  }
  j->isa->fence();
}

static inline bool is_source(const tt_job *j, const void *p)
{
  for (int k = 0; k < j->nsrc; k++) {
    if (j->src[k] == p) {
      return true;
    }
  }
  return false;
}

// May fold2_stream do this call? Where the result of one destination would have to pass through a buffer first
// (scalars, more sources), non-temporal stores were a quarter slower than ordinary ones when measured; the lines of a
// source are in the cache anyway.
static bool is_plain_stream(const tt_job *j)
{
  bool plain = j->stream && j->nsrc == 2 && !j->scaled && !j->divisor && j->row->fold2nt[j->kind] != NULL &&
               (uintptr_t)j->dst[0] % j->row->size == 0 && !is_source(j, j->dst[0]);
  if (j->ndst == 2) {
    return plain && !j->keep_first && !is_source(j, j->dst[1]) &&
           ((uintptr_t)j->dst[0] - (uintptr_t)j->dst[1]) % TT_CACHE_LINE == 0;
  }
  return plain && j->ndst == 1;
}

static void reduce_copy(const tt_kernels *isa, void *dst, const void *src, size_t bytes, bool stream)
{
  if (dst == src) {
    return;
  }
  if (stream) {
    isa->stream(dst, src, bytes);
  } else {
    memcpy(dst, src, bytes);
  }
}

// Each block of the result is made in the first destination, or in a buffer when that one is streamed too, finished
// while it is in the first-level cache, and copied to the others.
static void run_blocks(const tt_job *j, size_t count)
{
  _Alignas(64) char buffer[BLOCK_BYTES];
  const size_t size = j->row->size, block = BLOCK_BYTES / size;
  const bool aside = j->stream && !j->keep_first && j->ndst > 1 && !is_source(j, j->dst[0]);
  for (size_t i = 0; i < count; i += block) {
    size_t m = TT_MIN(block, count - i);
    char *out = aside ? buffer : (char *)j->dst[0] + i * size;
    fold(j, out, i, m);
    if (j->divisor) {
      j->row->divide(out, m, j->divisor);
    }
    for (int d = !aside; d < j->ndst; d++) {
      char *to = (char *)j->dst[d] + i * size;
      if (to != out) {
        reduce_copy(j->isa, to, out, m * size, j->stream && !is_source(j, j->dst[d]));
      }
    }
  }
  if (j->stream) {
    j->isa->fence();
  }
}

// A program's function: inout = in op inout, from the last source on. A block of sources is read before its
// destinations are written, which may be sources.
static __attribute__((noinline)) void reduce_by_function(const tt_redop *op, size_t size, const tt_job *j, size_t count)
{
  _Alignas(TT_CACHE_LINE) char acc[BLOCK_BYTES];
  const size_t block = BLOCK_BYTES / size;
  for (size_t i = 0; i < count; i += block) {
    size_t m = TT_MIN(block, count - i), at = i * size;
    memcpy(acc, (const char *)j->src[j->nsrc - 1] + at, m * size);
    for (int k = j->nsrc - 2; k >= 0; k--) {
      op->fn((const char *)j->src[k] + at, acc, m, (ncclDataType_t)op->type, op->arg);
    }
    for (int d = 0; d < j->ndst; d++) {
      memcpy((char *)j->dst[d] + at, acc, m * size);
    }
  }
}

static inline bool has_scalar(const tt_redop *op, int nsrc, const uint64_t *const *scale)
{
  if (!op->prescale || !scale) {
    return false;
  }
  for (int k = 0; k < nsrc; k++) {
    if (scale[k]) {
      return true;
    }
  }
  return false;
}

void tt_reduce(const tt_redop *op, int ndst, void *const *dst, int nsrc, const void *const *src,
               const uint64_t *const *scale, size_t count, unsigned flags)
{
  const tt_kernels *isa = kernels();
  const tt_kernel_row *row = &isa->rows[op->type];
  const bool scaled = has_scalar(op, nsrc, scale);
  count <<= op->shift;
  if (TT_UNLIKELY(op->fn != NULL) && nsrc > 1) {
    reduce_by_function(op, row->size, &(tt_job){.nsrc = nsrc, .ndst = ndst, .src = src, .dst = dst}, count);
    return;
  }
  const bool divide = (flags & TT_REDUCE_FINAL) && op->divisor > 1 && row->divide;
  const bool stream = (flags & TT_REDUCE_STREAM) && count * row->size >= STREAM_MIN;
  if (TT_LIKELY(nsrc == 2 && ndst == 1 && !scaled && !divide && !stream)) {
    row->fold2[op->kind](dst[0], src[0], src[1], count);
    return;
  }
  if (nsrc == 1 && !scaled && !divide) {
    tt_copy(ndst, dst, src[0], count * row->size, flags);
    return;
  }
  tt_job j = {.isa = isa,
              .row = row,
              .kind = op->kind,
              .nsrc = nsrc,
              .ndst = ndst,
              .scaled = scaled,
              .stream = stream,
              .keep_first = (flags & TT_REDUCE_KEEP_FIRST) != 0,
              .src = src,
              .dst = dst,
              .scale = scale,
              .divisor = divide ? op->divisor : 0};
  if (is_plain_stream(&j)) {
    fold2_stream(&j, count);
  } else if (ndst == 1 && !divide) {
    fold(&j, dst[0], 0, count);
  } else {
    run_blocks(&j, count);
  }
}

void tt_copy(int ndst, void *const *dst, const void *src, size_t bytes, unsigned flags)
{
  const tt_kernels *isa = kernels();
  const bool stream = (flags & TT_REDUCE_STREAM) && bytes >= STREAM_MIN,
             keep_first = (flags & TT_REDUCE_KEEP_FIRST) != 0;
  const size_t block = ndst == 1 ? bytes : COPY_BLOCK;
  for (size_t i = 0; i < bytes; i += block) {
    size_t m = TT_MIN(block, bytes - i);
    for (int d = 0; d < ndst; d++) {
      reduce_copy(isa, (char *)dst[d] + i, (const char *)src + i, m, stream && (d > 0 || !keep_first));
    }
  }
  if (stream) {
    isa->fence();
  }
}
