// alltoallv_perf: every rank gives each rank a block of its own size (matrix.h says which).
#include "matrix.h"
#include "perf.h"

static size_t total(const perf_case *c)
{
  return c->count * (size_t)c->nranks * c->elt;
}

static size_t elements(const perf_case *c, int from, int to)
{
  return perf_matrix_bytes(from, to, c->nranks, total(c)) / c->elt;
}

static void counts(perf_case *c, size_t count)
{
  c->count = perf_matrix_given() ? 0 : perf_share(c, count);
  c->send_count = perf_matrix_most(false, c->nranks, total(c)) / c->elt;
  c->recv_count = perf_matrix_most(true, c->nranks, total(c)) / c->elt;
  c->send_offset = c->recv_offset = 0;
}

static size_t elements_before(const perf_case *c, int from, int to)
{
  return perf_matrix_before(from, to, c->nranks, total(c)) / c->elt;
}

static void input(const perf_case *c, perf_layout *l)
{
  perf_put_copy(l, 0, elements_before(c, c->rank, c->nranks), c->rank, 0);
}

static void output(const perf_case *c, perf_layout *l)
{
  size_t at = 0;
  for (int from = 0; from < c->nranks; from++) {
    perf_put_copy(l, at, elements(c, from, c->rank), from, elements_before(c, from, c->rank));
    at += elements(c, from, c->rank);
  }
}

static ncclResult_t run(const perf_call *x)
{
  const perf_case *c = x->c;
  const char *send = x->send;
  char *recv = x->recv;
  ncclResult_t r = ncclGroupStart();
  for (int peer = 0; peer < c->nranks && r == ncclSuccess; peer++) {
    size_t out = elements(c, c->rank, peer), in = elements(c, peer, c->rank);
    r = out ? ncclSend(send, out, c->type, peer, x->comm, x->stream) : ncclSuccess;
    if (in && r == ncclSuccess) {
      r = ncclRecv(recv, in, c->type, peer, x->comm, x->stream);
    }
    send += out * c->elt;
    recv += in * c->elt;
  }
  ncclResult_t e = ncclGroupEnd();
  return r != ncclSuccess ? r : e;
}

static void summary(const perf_case *c, double seconds)
{
  perf_matrix_summary(c->nranks, total(c), seconds);
}

static const perf_coll coll = {.redop = "none",
                               .no_in_place = true,
                               .counts = counts,
                               .input = input,
                               .output = output,
                               .bus_factor = perf_factor_others,
                               .run = run,
                               .prepare = perf_matrix_prepare,
                               .summary = summary};

int main(int argc, char **argv)
{
  return perf_main(&coll, argc, argv);
}
