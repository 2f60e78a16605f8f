// sendrecv_perf: rank r sends to r + 1 and receives from r - 1.
#include "perf.h"

static void counts(perf_case *c, size_t count)
{
  c->count = c->send_count = c->recv_count = count;
  c->send_offset = c->recv_offset = 0;
}

static int previous(const perf_case *c)
{
  return (c->rank + c->nranks - 1) % c->nranks;
}

static void input(const perf_case *c, perf_layout *l)
{
  perf_put_copy(l, 0, c->count, c->rank, 0);
}

static void output(const perf_case *c, perf_layout *l)
{
  perf_put_copy(l, 0, c->count, previous(c), 0);
}

static ncclResult_t run(const perf_call *x)
{
  const perf_case *c = x->c;
  ncclResult_t r = ncclGroupStart();
  if (r == ncclSuccess) {
    r = ncclSend(x->send, c->count, c->type, (c->rank + 1) % c->nranks, x->comm, x->stream);
    ncclResult_t s = ncclRecv(x->recv, c->count, c->type, previous(c), x->comm, x->stream);
    ncclResult_t e = ncclGroupEnd();
    r = r != ncclSuccess ? r : s != ncclSuccess ? s : e;
  }
  return r;
}

static const perf_coll coll = {
    .no_in_place = true, .max_p2p_peers = 2, .counts = counts, .input = input, .output = output, .run = run};

int main(int argc, char **argv)
{
  return perf_main(&coll, argc, argv);
}
