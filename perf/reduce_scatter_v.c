// reduce_scatter_v_perf: every rank gives a vector, rank r gets block r, of its own size, of the reduction of all.
#include "blocks.h"
#include "matrix.h"
#include "tutti.h"

static void input(const perf_case *c, perf_layout *l)
{
  perf_put_input(l, 0, c->send_count, c->rank, 0);
}

static void output(const perf_case *c, perf_layout *l)
{
  perf_put_reduced(l, 0, c->recv_count, perf_blocks_before(c, c->rank));
}

static ncclResult_t run(const perf_call *x)
{
  return tuttiReduceScatterV(x->send, x->recv, perf_blocks(x->c), x->c->type, x->op, x->comm, x->stream);
}

static const perf_coll coll = {
    .counts = perf_blocks_scattered,
    .input = input,
    .output = output,
    .bus_factor = perf_factor_others,
    .run = run,
    .help = perf_blocks_help,
    .prepare = perf_matrix_prepare,
};

int main(int argc, char **argv)
{
  return perf_main(&coll, argc, argv);
}
