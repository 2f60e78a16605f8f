// reference.h: collectives on small exact values, one element at a time: what every algorithm must give, bit for bit.
#pragma once
#include "harness.h"

enum { ALLREDUCE, REDUCESCATTER, REDUCE, BROADCAST, ALLGATHER, ALLTOALL, GATHER, SCATTER, RING, FUNCS };
enum { PREMUL_HOST = ncclNumOps, PREMUL_DEVICE, OPS };
enum { GUARD = 64, GUARD_BYTE = 0xa5, PERIOD = 10007 };

HARNESS const char *const func_name[FUNCS] = {"AllReduce", "ReduceScatter", "Reduce",  "Broadcast", "AllGather",
                                              "AlltoAll",  "Gather",        "Scatter", "Send"};

// A number format: exponent and mantissa bits, 0 for integers.
typedef struct format {
  const char *name;
  int size, ebits, mbits;
  bool is_signed;
} format;

HARNESS const format formats[ncclNumTypes] = {
#define SIGNED true
#define UNSIGNED false
#define FLOATING true
#define FINITE true
#define T(id, word, bytes, cls, exponent, mantissa, kernels) {word, bytes, exponent, mantissa, cls},
#include "base/types.def"
#undef SIGNED
#undef UNSIGNED
#undef FLOATING
#undef FINITE
};

typedef struct sample {
  int func, type, op;
  size_t count; // of one block
  int n, root;
  bool in_place;
  int in_offset, out_offset; // bytes from an aligned address
} sample;

// One rank's part in a sample.
typedef struct part {
  int rank;
  ncclComm_t comm;
  cudaStream_t stream;
  char *in_memory, *out_memory; // whole allocations; the same one when in place
  char *in, *out;
  size_t in_size, out_size;
  ncclRedOp_t user_op;
  uint64_t scalar;
} part;

HARNESS bool reduces(int func)
{
  return func == ALLREDUCE || func == REDUCESCATTER || func == REDUCE;
}

HARNESS uint32_t mix(uint32_t x)
{
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

HARNESS uint64_t power_of_two(int e, const format *f, int sign, uint64_t mantissa)
{
  uint64_t bias = ((uint64_t)1 << (f->ebits - 1)) - 1;
  return (uint64_t)sign << (f->ebits + f->mbits) | (bias + (uint64_t)e) << f->mbits | mantissa;
}

// Bits of a small whole number, which every format can hold.
HARNESS uint64_t encode(int type, int v)
{
  const format *f = &formats[type];
  if (f->ebits == 0) {
    return (uint64_t)(int64_t)v;
  }
  int a = v < 0 ? -v : v, e = 0;
  if (a == 0) {
    return 0;
  }
  while (a >> (e + 1) != 0) {
    e++;
  }
  return power_of_two(e, f, v < 0, ((uint64_t)a << f->mbits >> e) - ((uint64_t)1 << f->mbits));
}

HARNESS double decode(int type, uint64_t bits)
{
  const format *f = &formats[type];
  uint64_t mantissa = bits & (((uint64_t)1 << f->mbits) - 1);
  int e = (int)(bits >> f->mbits & (((uint64_t)1 << f->ebits) - 1)), bias = (1 << (f->ebits - 1)) - 1;
  double v = (double)mantissa / (double)((uint64_t)1 << f->mbits) + (e != 0);
  for (int k = e != 0 ? e : 1; k < bias; k++) {
    v /= 2;
  }
  for (int k = bias; k < e; k++) {
    v *= 2;
  }
  return bits >> (f->ebits + f->mbits) & 1 ? -v : v;
}

HARNESS void put(void *base, size_t i, int size, uint64_t bits)
{
  memcpy((char *)base + i * (size_t)size, &bits, (size_t)size); // little endian
}

HARNESS uint64_t get(const void *base, size_t i, int size)
{
  uint64_t bits = 0;
  memcpy(&bits, (const char *)base + i * (size_t)size, (size_t)size);
  return bits;
}

// Input of a rank at element i of the whole. All partial results are whole numbers up to 8, exact in every format and
// every order. Repeats after a prime number of elements: a chunk in the wrong place shows, and most of a large buffer
// is checked by memcmp.
HARNESS int value(const sample *s, int rank, size_t i)
{
  i %= PERIOD;
  bool negative = formats[s->type].is_signed && i % 2 == 1;
  int turn = (int)((i + 3 * (size_t)rank) % (size_t)s->n), v;
  switch (s->op) {
  case ncclProd: return turn < 3 ? (negative && rank == 0 ? -2 : 2) : (negative && rank == 0 ? -1 : 1);
  case ncclMax:
  case ncclMin: return (int)((i * 5 + (size_t)rank * 3) % 8) - (formats[s->type].is_signed ? 3 : 0);
  case ncclSum:
  case ncclAvg: v = turn < 4 ? 1 + (int)(i + (size_t)rank) % 2 : 0; break;
  default: v = turn < 4; break;
  }
  return negative ? -v : v;
}

HARNESS int scalar_of(int rank)
{
  return 1 + rank % 2;
}

// Sum, product, … over the ranks; for the average the sum.
HARNESS int combined(const sample *s, size_t i)
{
  int all = s->op == ncclProd ? 1 : value(s, 0, i) * (s->op == ncclMax || s->op == ncclMin);
  for (int r = 0; r < s->n; r++) {
    int v = value(s, r, i);
    switch (s->op) {
    case ncclProd: all *= v; break;
    case ncclMax: all = v > all ? v : all; break;
    case ncclMin: all = v < all ? v : all; break;
    case PREMUL_HOST:
    case PREMUL_DEVICE: all += v * scalar_of(r); break;
    default: all += v; break;
    }
  }
  return all;
}

// Bits at element i of a rank's data, for functions that only move.
HARNESS uint64_t pattern(int rank, size_t i)
{
  uint32_t h = mix((uint32_t)i * 2654435761u + (uint32_t)rank * 97u + 1);
  return (uint64_t)h << 32 | mix(h);
}

HARNESS size_t in_blocks(const sample *s)
{
  return s->func == REDUCESCATTER || s->func == ALLTOALL || s->func == SCATTER ? (size_t)s->n : 1;
}

HARNESS size_t out_blocks(const sample *s)
{
  return s->func == ALLGATHER || s->func == ALLTOALL || s->func == GATHER ? (size_t)s->n : 1;
}

HARNESS char *guarded(size_t size, int offset, char **memory)
{
  size_t whole = size + 2 * GUARD + 16;
  *memory = malloc(whole);
  CHECK(*memory != NULL, "no memory for a buffer of %zu bytes", whole);
  memset(*memory, GUARD_BYTE, whole);
  return *memory + GUARD + offset;
}

HARNESS void check_guards(const char *buffer, size_t size, const char *what)
{
  for (int i = 1; i <= GUARD; i++) {
    CHECK((unsigned char)buffer[-i] == GUARD_BYTE && (unsigned char)buffer[size + (size_t)i - 1] == GUARD_BYTE,
          "%s: written %d bytes outside of the buffer", what, i);
  }
}

HARNESS void fill(const sample *s, part *p)
{
  size_t esize = (size_t)formats[s->type].size, n = p->in_size / esize;
  for (size_t i = 0; i < n; i++) {
    if (reduces(s->func) && i >= PERIOD) {
      size_t more = i < n - i ? i / PERIOD * PERIOD : n - i;
      memcpy(p->in + i * esize, p->in, more * esize);
      i += more - 1;
    } else {
      put(p->in, i, (int)esize, reduces(s->func) ? encode(s->type, value(s, p->rank, i)) : pattern(p->rank, i));
    }
  }
}

// Makes and fills the buffers of one rank.
HARNESS void prepare(const sample *s, part *p)
{
  size_t esize = (size_t)formats[s->type].size, block = s->count * esize;
  p->in_size = in_blocks(s) * block;
  p->out_size = out_blocks(s) * block;
  if (s->in_place && p->out_size >= p->in_size) {
    p->out = guarded(p->out_size, s->out_offset, &p->out_memory);
    p->in = p->out + (s->func == ALLGATHER || s->func == GATHER ? (size_t)p->rank * block : 0);
    p->in_memory = NULL;
  } else {
    p->in = guarded(p->in_size, s->in_offset, &p->in_memory);
    p->out_memory = NULL;
    p->out = s->in_place ? p->in + (size_t)p->rank * block : guarded(p->out_size, s->out_offset, &p->out_memory);
  }
  fill(s, p);
  if (s->op >= ncclNumOps) {
    p->scalar = encode(s->type, scalar_of(p->rank));
    OK(ncclRedOpCreatePreMulSum(&p->user_op, &p->scalar, (ncclDataType_t)s->type,
                                s->op == PREMUL_HOST ? ncclScalarHostImmediate : ncclScalarDevice, p->comm));
  } else {
    p->user_op = (ncclRedOp_t)s->op;
  }
}

// Calls the function for one rank; RING between ncclGroupStart and ncclGroupEnd of the caller.
HARNESS void call(const sample *s, const part *p)
{
  ncclDataType_t t = (ncclDataType_t)s->type;
  int next = (p->rank + 1) % s->n, before = (p->rank + s->n - 1) % s->n;
  switch (s->func) {
  case ALLREDUCE: OK(ncclAllReduce(p->in, p->out, s->count, t, p->user_op, p->comm, p->stream)); break;
  case REDUCESCATTER: OK(ncclReduceScatter(p->in, p->out, s->count, t, p->user_op, p->comm, p->stream)); break;
  case REDUCE:
    OK(ncclReduce(p->in, p->rank == s->root ? p->out : NULL, s->count, t, p->user_op, s->root, p->comm, p->stream));
    break;
  case BROADCAST:
    OK(ncclBroadcast(p->rank == s->root ? p->in : NULL, p->out, s->count, t, s->root, p->comm, p->stream));
    break;
  case ALLGATHER: OK(ncclAllGather(p->in, p->out, s->count, t, p->comm, p->stream)); break;
  case ALLTOALL: OK(ncclAlltoAll(p->in, p->out, s->count, t, p->comm, p->stream)); break;
  case GATHER:
    OK(ncclGather(p->in, p->rank == s->root ? p->out : NULL, s->count, t, s->root, p->comm, p->stream));
    break;
  case SCATTER:
    OK(ncclScatter(p->rank == s->root ? p->in : NULL, p->out, s->count, t, s->root, p->comm, p->stream));
    break;
  default:
    OK(ncclSend(p->in, s->count, t, next, p->comm, p->stream));
    OK(ncclRecv(p->out, s->count, t, before, p->comm, p->stream));
    break;
  }
}

// Element k of the output as it must be, for functions that only move.
HARNESS uint64_t moved(const sample *s, int rank, size_t k)
{
  size_t block = k / s->count, at = k % s->count;
  switch (s->func) {
  case BROADCAST: return pattern(s->root, k);
  case ALLTOALL: return pattern((int)block, (size_t)rank * s->count + at);
  case SCATTER: return pattern(s->root, (size_t)rank * s->count + at);
  case RING: return pattern((rank + s->n - 1) % s->n, k);
  default: return pattern((int)block, at);
  }
}

HARNESS void describe(const sample *s, char *text, size_t size)
{
  snprintf(text, size, "%s %s op %d count %zu ranks %d root %d%s offsets %d %d", func_name[s->func],
           formats[s->type].name, s->op, s->count, s->n, s->root, s->in_place ? " in place" : "", s->in_offset,
           s->out_offset);
}

// Is the average of floats right? Its rounding depends on the order; the bits are compared elsewhere.
HARNESS bool near(const sample *s, uint64_t got, int total)
{
  double want = (double)total / s->n, d = decode(s->type, got) - want, tolerance = 8.0 * s->n;
  for (int i = 0; i < formats[s->type].mbits + (s->n > 8 ? 1 : 3); i++) {
    tolerance /= 2;
  }
  return d <= tolerance && -d <= tolerance;
}

HARNESS void check_element(const sample *s, const part *p, size_t k)
{
  int size = formats[s->type].size;
  uint64_t got = get(p->out, k, size), want = 0, mask = size == 8 ? ~(uint64_t)0 : ((uint64_t)1 << (8 * size)) - 1;
  bool good;
  if (reduces(s->func)) {
    int all = combined(s, s->func == REDUCESCATTER ? (size_t)p->rank * s->count + k : k);
    bool average = s->op == ncclAvg, is_float = formats[s->type].ebits > 0;
    want = encode(s->type, average && !is_float ? all / s->n : all) & mask;
    good = average && is_float ? near(s, got, all)
                               : got == want || (is_float && decode(s->type, got) == decode(s->type, want));
  } else {
    want = moved(s, p->rank, k) & mask;
    good = got == want;
  }
  if (!good) {
    char text[200];
    describe(s, text, sizeof text);
    CHECK(good, "%s: rank %d, element %zu: 0x%llx, not 0x%llx", text, p->rank, k, (unsigned long long)got,
          (unsigned long long)want);
  }
}

// Checks the output of one rank, all that lies around it, and gives the buffers back.
HARNESS void verify(const sample *s, part *p)
{
  bool has_output = (s->func != REDUCE && s->func != GATHER) || p->rank == s->root;
  size_t n = p->out_size / (size_t)formats[s->type].size;
  size_t esize = (size_t)formats[s->type].size;
  bool repeats = reduces(s->func) && n > PERIOD && memcmp(p->out, p->out + PERIOD * esize, (n - PERIOD) * esize) == 0;
  for (size_t k = 0; k < (repeats ? PERIOD : n) && has_output; k++) {
    check_element(s, p, k);
  }
  if (p->out_memory != NULL) {
    check_guards(p->out, p->out_size, func_name[s->func]);
  }
  if (p->in_memory != NULL) {
    check_guards(p->in, p->in_size, func_name[s->func]);
  }
  if (s->op >= ncclNumOps) {
    OK(ncclRedOpDestroy(p->user_op, p->comm));
  }
  free(p->in_memory);
  free(p->out_memory);
}
