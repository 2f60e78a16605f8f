// broadcast_perf: every rank gets the root's vector.
#include "perf.h"

static void counts(perf_case *c, size_t count)
{
  c->count = c->send_count = c->recv_count = count;
  c->send_offset = c->recv_offset = 0;
}

static void input(const perf_case *c, perf_layout *l)
{
  if (c->rank == c->root) {
    perf_put_copy(l, 0, c->count, c->root, 0);
  }
}

static void output(const perf_case *c, perf_layout *l)
{
  perf_put_copy(l, 0, c->count, c->root, 0);
}

static ncclResult_t run(const perf_call *x)
{
  return ncclBroadcast(x->send, x->recv, x->c->count, x->c->type, x->c->root, x->comm, x->stream);
}

static const perf_coll coll = {
    .redop = "none", .rooted = true, .counts = counts, .input = input, .output = output, .run = run};

int main(int argc, char **argv)
{
  return perf_main(&coll, argc, argv);
}
