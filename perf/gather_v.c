// gather_v_perf: the root gets every rank's block, of its own size, in the order of the ranks.
#include "blocks.h"
#include "matrix.h"
#include "tutti.h"

static void input(const perf_case *c, perf_layout *l)
{
  perf_put_copy(l, 0, c->send_count, c->rank, 0);
}

static void output(const perf_case *c, perf_layout *l)
{
  if (c->rank == c->root) {
    perf_blocks_output(c, l);
  }
}

static ncclResult_t run(const perf_call *x)
{
  const perf_case *c = x->c;
  return tuttiGatherV(x->send, c->send_count, x->recv, perf_blocks(c), NULL, c->type, c->root, x->comm, x->stream);
}

static const perf_coll coll = {
    .redop = "none",
    .rooted = true,
    .counts = perf_blocks_gathered,
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
