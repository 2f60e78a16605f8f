// choose.c: see choose.h.
#include "device/cuda/kernels/choose.h"

#include <stddef.h>

#include "base/util.h"
#include "device/lane.h"
#include "device/reduce_element.h"

// What kernels.h says again, in the part of C that compilers for GPUs read.
#define SAME(a, b) _Static_assert((a) == (b), "kernels.h says the same")
#define SAME_PLACE(member, slot_member) SAME(offsetof(tt_cuda_slot, member), offsetof(tt_slot, slot_member))
SAME(sizeof(tt_cuda_slot), sizeof(tt_slot));
SAME_PLACE(seq, seq);
SAME_PLACE(bytes, bytes);
SAME_PLACE(sig, sig);
SAME_PLACE(count, count);
SAME_PLACE(in, desc.in);
SAME_PLACE(out, desc.out);
SAME_PLACE(in_mem, desc.in_mem);
SAME_PLACE(out_mem, desc.out_mem);
SAME_PLACE(scalar, desc.scalar);
SAME_PLACE(freed, desc.freed);
SAME(sizeof(tt_cuda_line), sizeof(tt_fifo_line));
SAME(offsetof(tt_cuda_line, uses), offsetof(tt_fifo_line, uses));
SAME(offsetof(tt_cuda_line, ended), offsetof(tt_fifo_line, ended));
SAME(TT_CUDA_DECIDED, TT_SIG_DECIDED);
SAME((int)TT_CUDA_SUM, (int)TT_RED_SUM);
SAME((int)TT_CUDA_PROD, (int)TT_RED_PROD);
SAME((int)TT_CUDA_MAX, (int)TT_RED_MAX);
SAME((int)TT_CUDA_MIN, (int)TT_RED_MIN);
SAME((int)TT_CUDA_AND, (int)TT_RED_AND);
SAME((int)TT_CUDA_OR, (int)TT_RED_OR);
SAME((int)TT_CUDA_XOR, (int)TT_RED_XOR);
// Both sides are compiled by different compilers.
SAME(sizeof(tt_cuda_map), 32);
SAME(sizeof(tt_cuda_ref), 80);
SAME(sizeof(tt_cuda_operand), 32);
SAME(sizeof(tt_cuda_fault), 48);
SAME(sizeof(tt_cuda_post), 40);
SAME(sizeof(tt_cuda_combine), 72);
SAME(sizeof(tt_cuda_posts), 16);
SAME(sizeof(tt_cuda_arrive), 64);
SAME(sizeof(tt_cuda_resolve), 16);
SAME(sizeof(tt_cuda_step), 232);
SAME(sizeof(tt_cuda_wait), 16);
SAME(sizeof(tt_cuda_item), 288);
SAME(sizeof(tt_cuda_walk), 16);

// What a type's codes mean to logical operations; and its name, that of its module.
typedef struct tt_kernel_type {
  const char *name;
  uint32_t bytes;
  bool integer;
  uint64_t mask, one;
} tt_kernel_type;

static const tt_kernel_type kernel_types[] = {
#define T(id, word, size, cls, exponent, mantissa, kernels) \
  [nccl##id] = {#id, size, (exponent) == 0, TT_TRUTH_MASK(size, exponent), TT_TRUTH_ONE(exponent, mantissa)},
#include "base/types.def"
};

static void kernel_divide(tt_cuda_combine *c, const tt_kernel_type *type, uint32_t divisor)
{
  const tt_div d = div_make(divisor, type->bytes == 8 ? 64 : 32);
  c->mul = d.mul;
  c->shift = (uint32_t)d.shift;
}

static const char *kernel_logical(uint32_t bytes)
{
  return bytes == 1 ? "logical1" : bytes == 2 ? "logical2" : bytes == 4 ? "logical4" : "logical8";
}

void tt_kernel_choose(const tt_kernel_use *use, tt_kernel *out)
{
  const tt_redop *op = use->op;
  const bool bits = op->type == TT_RED_BITS, truth = op->type >= TT_RED_TRUTH;
  const tt_kernel_type *type = bits ? NULL : &kernel_types[truth ? op->type - TT_RED_TRUTH : op->type];
  const bool finish = use->final && op->divisor > 1;
  const size_t bytes = bits ? use->count << op->shift : use->count * type->bytes;
  *out = (tt_kernel){
      .module = "bits",
      .args = {.count = use->count, .nsrc = (uint32_t)use->nsrc, .ndst = (uint32_t)use->ndst, .kind = op->kind}};
  if (use->nsrc == 1 && !finish && !(use->scaled && op->prescale)) {
    out->module = "step";
    out->name = "copy";
    out->args.count = bytes;
  } else if (bits) {
    out->name = "bitwise";
    out->args.count = bytes;
  } else if (truth) {
    out->name = kernel_logical(type->bytes);
    out->args.mask = type->mask;
    out->args.one = type->one;
  } else {
    out->module = type->name;
    out->name = "combine";
    if (finish && type->integer) {
      kernel_divide(&out->args, type, op->divisor);
    }
  }
}

unsigned tt_kernel_threads(size_t most)
{
  return (unsigned)TT_MIN(TT_ROUND_UP(TT_MAX(most, (size_t)1), (size_t)TT_CUDA_WARP), (size_t)TT_CUDA_THREADS);
}
