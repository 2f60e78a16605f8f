// scatter_v_perf: rank r gets block r, of its own size, of the root's vector.
#include "blocks.h"
#include "matrix.h"
#include "tutti.h"

static void input(const perf_case *c, perf_layout *l)
{
  if (c->rank == c->root) {
    perf_put_copy(l, 0, c->send_count, c->root, 0);
  }
}

static void output(const perf_case *c, perf_layout *l)
{
  perf_put_copy(l, 0, c->recv_count, c->root, perf_blocks_before(c, c->rank));
}

static ncclResult_t run(const perf_call *x)
{
  const perf_case *c = x->c;
  return tuttiScatterV(x->send, perf_blocks(c), NULL, x->recv, c->recv_count, c->type, c->root, x->comm, x->stream);
}

static const perf_coll coll = {
    .redop = "none",
    .rooted = true,
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
