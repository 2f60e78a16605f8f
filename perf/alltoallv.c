// alltoallv_perf: every rank gives each rank a block of its own size, by sends and receives in a group.
#include "blocks.h"
#include "matrix.h"

static ncclResult_t run(const perf_call *x)
{
  const perf_case *c = x->c;
  const char *send = x->send;
  char *recv = x->recv;
  ncclResult_t r = ncclGroupStart();
  for (int peer = 0; peer < c->nranks && r == ncclSuccess; peer++) {
    size_t out = perf_traffic(c, c->rank, peer), in = perf_traffic(c, peer, c->rank);
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

static const perf_coll coll = {.redop = "none",
                               .no_in_place = true,
                               .counts = perf_traffic_counts,
                               .input = perf_traffic_input,
                               .output = perf_traffic_output,
                               .bus_factor = perf_factor_others,
                               .run = run,
                               .help = perf_blocks_help,
                               .prepare = perf_matrix_prepare,
                               .summary = perf_traffic_summary};

int main(int argc, char **argv)
{
  return perf_main(&coll, argc, argv);
}
