// blocks.c: see blocks.h.
#include "comm/blocks.h"

#include "comm/comm.h"
#include "comm/tuning_priv.h"

#define OWN_CHUNK (512u << 10) // bytes of the own block that are copied in a turn

static char nothing[TT_CACHE_LINE]; // where an empty block lies

tt_blocks *tt_blocks_new(int nranks)
{
  tt_blocks *b = tt_calloc(1, sizeof *b + 2 * (size_t)nranks * sizeof(tt_block));
  if (b != NULL) {
    b->holders = 1;
    b->out = b->in + nranks;
  }
  return b;
}

void tt_blocks_hold(tt_blocks *b)
{
  if (b != NULL) {
    b->holders++;
  }
}

void tt_blocks_drop(tt_blocks *b)
{
  if (b != NULL && --b->holders == 0) {
    tt_free(b);
  }
}

size_t tt_blocks_staged(const tt_task *t)
{
  size_t end = 0;
  for (int i = 0; i < t->comm->nranks && t->func == TT_FUNC_ALLTOALLV && t->in == t->out; i++) {
    const tt_block *b = &t->blocks->in[i];
    end = b->count > 0 ? TT_MAX(end, b->at + b->count) : end;
  }
  return end * tt_type_size(t->type);
}

int tt_blocks_parts(const tt_task *t)
{
  return tt_func_reduces(t->func) ? t->comm->nranks : 2 * t->comm->nranks - 1;
}

// Where a block of the buffer lies.
static char *place_of_block(const tt_task *t, const void *buffer, const tt_block *b)
{
  return b->count == 0 ? nothing : (char *)(uintptr_t)buffer + b->at * tt_type_size(t->type);
}

// Makes the part a function of its own over `count` elements.
static void block_become(tt_task *part, tt_func func, int peer, size_t count)
{
  part->func = func;
  part->root = peer;
  part->count = count;
  part->blocks = NULL;
  part->kind = tt_task_kind(func, part->type, part->op, peer);
}

// The sum of one rank's block: the own one comes last, so that what others wait for goes first.
static bool sum_part(const tt_task *t, int i, tt_task *part)
{
  int root = (t->comm->rank + 1 + i) % t->comm->nranks;
  const tt_block *b = &t->blocks->in[root];
  part->in = place_of_block(t, t->in, b);
  part->out = root == t->comm->rank ? place_of_block(t, t->out, &t->blocks->out[root]) : nothing;
  block_become(part, TT_FUNC_REDUCE, root, b->count);
  return true;
}

// Does something of rank `from` go to rank `to`?
static bool block_flows(const tt_task *t, int from, int to)
{
  return t->func == TT_FUNC_GATHERV ? to == t->root : t->func != TT_FUNC_SCATTERV || from == t->root;
}

// The own block: nothing to do where it lies where it belongs.
static bool own_part(const tt_task *t, tt_task *part)
{
  int me = t->comm->rank;
  part->in = place_of_block(t, t->in, &t->blocks->in[me]);
  part->out = place_of_block(t, t->out, &t->blocks->out[me]);
  block_become(part, TT_FUNC_BROADCAST, -1, t->blocks->in[me].count);
  return block_flows(t, me, me) && part->count > 0 && part->in != part->out;
}

bool tt_blocks_part(const tt_task *t, int i, tt_task *part)
{
  int n = t->comm->nranks, me = t->comm->rank;
  *part = *t;
  if (tt_func_reduces(t->func)) {
    return sum_part(t, i, part);
  }
  if (i == 2 * (n - 1)) {
    return own_part(t, part);
  }
  bool send = i < n - 1;
  int peer = send ? (me + 1 + i) % n : (me + 2 * n - 2 - i) % n;
  const tt_block *b = send ? &t->blocks->in[peer] : &t->blocks->out[peer];
  part->in = send ? place_of_block(t, t->in, b) : NULL;
  part->out = send ? NULL : place_of_block(t, t->out, b);
  block_become(part, send ? TT_FUNC_SEND : TT_FUNC_RECV, peer, b->count);
  return send ? block_flows(t, me, peer) : block_flows(t, peer, me);
}

// Of what sums, these two add in the order of the ranks, and of each pair of ranks use one direction: so all parts can
// run side by side. What NCCL_ALGO says of Reduce is followed where it leaves one of them.
static ncclResult_t choose_sum(const tt_task *part, tt_choice *out)
{
  const uint32_t oneshot = 1u << TT_ALGO_ONESHOT;
  tt_selection s = {.ll = oneshot, .simple = oneshot | 1u << TT_ALGO_DIRECT};
  tt_tuning_restrict(part->comm, TT_FUNC_REDUCE, false, &s);
  if ((s.ll | s.simple) == 0) {
    s = (tt_selection){.ll = oneshot, .simple = oneshot};
  }
  return tt_tuning_select(part->comm, TT_FUNC_REDUCE, TT_MAX(tt_task_bytes(part), 1), &s, out);
}

ncclResult_t tt_blocks_choose(const tt_task *part, tt_choice *out)
{
  if (part->root < 0) {
    *out = (tt_choice){.algo = TT_ALGO_ONESHOT, .proto = TT_SIMPLE, .chunk = OWN_CHUNK, .channels = 1};
    return ncclSuccess;
  }
  if (part->func == TT_FUNC_REDUCE) {
    return choose_sum(part, out);
  }
  return tt_tuning_choose(part->comm, part->func, TT_MAX(tt_task_bytes(part), 1), part->root, false, out);
}
