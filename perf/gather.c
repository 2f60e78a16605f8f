// gather_perf: the root gets every rank's block, in the order of the ranks.
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
  for (int r = 0; c->rank == c->root && r < c->nranks; r++) {
    perf_put_copy(l, (size_t)r * c->count, c->count, r, 0);
  }
}

static ncclResult_t run(const perf_call *x)
{
  return ncclGather(x->send, x->recv, x->c->count, x->c->type, x->c->root, x->comm, x->stream);
}

static const perf_coll coll = {
    .redop = "none",
    .rooted = true,
    .counts = counts,
    .input = input,
    .output = output,
    .bus_factor = perf_factor_others,
    .run = run,
};

int main(int argc, char **argv)
{
  return perf_main(&coll, argc, argv);
}
