// scatter_perf: rank r gets block r of the root's vector.
#include "perf.h"

static void counts(perf_case *c, size_t count)
{
  c->count = c->recv_count = perf_share(c, count);
  c->send_count = c->count * (size_t)c->nranks;
  c->send_offset = 0;
  c->recv_offset = (size_t)c->rank * c->count;
}

static void input(const perf_case *c, perf_layout *l)
{
  if (c->rank == c->root) {
    perf_put_copy(l, 0, c->send_count, c->root, 0);
  }
}

static void output(const perf_case *c, perf_layout *l)
{
  perf_put_copy(l, 0, c->count, c->root, (size_t)c->rank * c->count);
}

static ncclResult_t run(const perf_call *x)
{
  return ncclScatter(x->send, x->recv, x->c->count, x->c->type, x->c->root, x->comm, x->stream);
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
