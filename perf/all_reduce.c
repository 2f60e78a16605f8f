// all_reduce_perf: every rank gives a vector, every rank gets the reduction of all.
#include "perf.h"

static void counts(perf_case *c, size_t count)
{
  c->count = c->send_count = c->recv_count = count;
  c->send_offset = c->recv_offset = 0;
}

static void input(const perf_case *c, perf_layout *l)
{
  perf_put_input(l, 0, c->count, c->rank, 0);
}

static void output(const perf_case *c, perf_layout *l)
{
  perf_put_reduced(l, 0, c->count, 0);
}

static ncclResult_t run(const perf_call *x)
{
  return ncclAllReduce(x->send, x->recv, x->c->count, x->c->type, x->op, x->comm, x->stream);
}

static const perf_coll coll = {
    .counts = counts, .input = input, .output = output, .bus_factor = perf_factor_twice, .run = run};

int main(int argc, char **argv)
{
  return perf_main(&coll, argc, argv);
}
