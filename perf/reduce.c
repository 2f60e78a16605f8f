// reduce_perf: every rank gives a vector, the root gets the reduction of all.
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
  if (c->rank == c->root) {
    perf_put_reduced(l, 0, c->count, 0);
  } else if (c->in_place) {
    perf_put_input(l, 0, c->count, c->rank, 0); // the other ranks' buffers are only read
  }
}

static ncclResult_t run(const perf_call *x)
{
  return ncclReduce(x->send, x->recv, x->c->count, x->c->type, x->op, x->c->root, x->comm, x->stream);
}

static const perf_coll coll = {.rooted = true, .counts = counts, .input = input, .output = output, .run = run};

int main(int argc, char **argv)
{
  return perf_main(&coll, argc, argv);
}
