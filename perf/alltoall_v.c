// alltoall_v_perf: every rank gives each rank a block of its own size, by tuttiAlltoAllV.
#include "blocks.h"
#include "matrix.h"
#include "tutti.h"

static ncclResult_t run(const perf_call *x)
{
  const size_t *out = perf_traffic_list(x->c, false), *in = perf_traffic_list(x->c, true);
  return tuttiAlltoAllV(x->send, out, NULL, x->recv, in, NULL, x->c->type, x->comm, x->stream);
}

static const perf_coll coll = {.redop = "none",
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
