// blocks.h: calls of collectives whose blocks have lengths of their own (blocks_test.c): buffers, values, the call, the
// check of its results.
#pragma once
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
