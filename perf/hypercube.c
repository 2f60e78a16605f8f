// hypercube_perf: an all-gather made of log2(n) exchanges with the neighbours along each dimension.
#include "perf.h"

static void counts(perf_case *c, size_t count)
{
  c->count = c->send_count = perf_share(c, count);
  c->recv_count = c->count * (size_t)c->nranks;
  c->send_offset = (size_t)c->rank * c->count;
  c->recv_offset = 0;
}

static void input(const perf_case *c, perf_layout *l)
{
  perf_put_copy(l, 0, c->count, c->rank, 0);
}

static void output(const perf_case *c, perf_layout *l)
{
  for (int r = 0; r < c->nranks; r++) {
    perf_put_copy(l, (size_t)r * c->count, c->count, r, 0);
  }
}

// Swaps what both have gathered so far: `mask` blocks.
static ncclResult_t exchange(const perf_call *x, int mask)
{
  const perf_case *c = x->c;
  size_t block = c->count * c->elt;
  int mine = c->rank & ~(mask - 1);
  ncclResult_t r = ncclGroupStart();
  if (r == ncclSuccess) {
    r = ncclSend(x->recv + (size_t)mine * block, c->count * (size_t)mask, c->type, c->rank ^ mask, x->comm, x->stream);
    ncclResult_t s = ncclRecv(x->recv + (size_t)(mine ^ mask) * block, c->count * (size_t)mask, c->type, c->rank ^ mask,
                              x->comm, x->stream);
    ncclResult_t e = ncclGroupEnd();
    r = r != ncclSuccess ? r : s != ncclSuccess ? s : e;
  }
  return r;
}

static ncclResult_t run(const perf_call *x)
{
  size_t block = x->c->count * x->c->elt;
  char *own = x->recv + (size_t)x->c->rank * block;
  ncclResult_t r = own == x->send ? ncclSuccess : perf_copy(x, own, x->send, block);
  for (int mask = 1; mask < x->c->nranks && r == ncclSuccess; mask <<= 1) {
    r = exchange(x, mask);
  }
  return r;
}

static bool skip(int nranks)
{
  return (nranks & (nranks - 1)) != 0;
}

static const perf_coll coll = {
    .redop = "",
    .no_group = true,
    .counts = counts,
    .input = input,
    .output = output,
    .alg_factor = perf_factor_others,
    .run = run,
    .skip = skip,
};

int main(int argc, char **argv)
{
  return perf_main(&coll, argc, argv);
}
