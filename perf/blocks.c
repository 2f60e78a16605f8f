#include "blocks.h"

#include "matrix.h"
#include "options.h"

const char perf_blocks_help[] =
    "Lengths of blocks, from variables:\n"
    "\tNCCL_TESTS_ALLTOALLV_SPREAD=0..1   1 (default): they grow from nothing, in proportion to the number of the rank "
    "(all-to-all: to the distance between the two); 0: all are equal; between: a blend\n"
    "\tNCCL_TESTS_ALLTOALLV_MATRIX_FILE=FILE   bytes from each rank to each one, a row for each; programs with one "
    "list of blocks take the first row\n"
    "\tNCCL_TESTS_ALLTOALLV_MATRIX_SCALE=FACTOR   for the numbers of the file\n";

static _Thread_local size_t lists[2][PERF_MAX_RANKS];

static size_t blocks_total(const perf_case *c)
{
  return c->count * (size_t)c->nranks * c->elt;
}

size_t perf_traffic(const perf_case *c, int from, int to)
{
  return perf_matrix_bytes(from, to, c->nranks, blocks_total(c)) / c->elt;
}

static size_t traffic_before(const perf_case *c, int from, int to)
{
  return perf_matrix_before(from, to, c->nranks, blocks_total(c)) / c->elt;
}

size_t perf_block(const perf_case *c, int rank)
{
  return perf_traffic(c, 0, rank);
}

size_t perf_blocks_before(const perf_case *c, int rank)
{
  return traffic_before(c, 0, rank);
}

// The count of a case, from which the lengths follow; 0: a file gives them.
static void blocks_share(perf_case *c, size_t count)
{
  c->count = perf_matrix_given() ? 0 : perf_share(c, count);
}

void perf_blocks_gathered(perf_case *c, size_t count)
{
  blocks_share(c, count);
  c->send_count = perf_block(c, c->rank);
  c->recv_count = perf_blocks_before(c, c->nranks);
  c->send_offset = perf_blocks_before(c, c->rank);
  c->recv_offset = 0;
}

void perf_blocks_scattered(perf_case *c, size_t count)
{
  blocks_share(c, count);
  c->send_count = perf_blocks_before(c, c->nranks);
  c->recv_count = perf_block(c, c->rank);
  c->send_offset = 0;
  c->recv_offset = perf_blocks_before(c, c->rank);
}

void perf_blocks_output(const perf_case *c, perf_layout *l)
{
  for (int r = 0; r < c->nranks; r++) {
    perf_put_copy(l, perf_blocks_before(c, r), perf_block(c, r), r, 0);
  }
}

const size_t *perf_blocks(const perf_case *c)
{
  for (int rank = 0; rank < c->nranks; rank++) {
    lists[0][rank] = perf_block(c, rank);
  }
  return lists[0];
}

const size_t *perf_traffic_list(const perf_case *c, bool receives)
{
  for (int peer = 0; peer < c->nranks; peer++) {
    lists[receives][peer] = receives ? perf_traffic(c, peer, c->rank) : perf_traffic(c, c->rank, peer);
  }
  return lists[receives];
}

void perf_traffic_counts(perf_case *c, size_t count)
{
  blocks_share(c, count);
  c->send_count = perf_matrix_most(false, c->nranks, blocks_total(c)) / c->elt;
  c->recv_count = perf_matrix_most(true, c->nranks, blocks_total(c)) / c->elt;
  c->send_offset = c->recv_offset = 0;
}

void perf_traffic_input(const perf_case *c, perf_layout *l)
{
  perf_put_copy(l, 0, traffic_before(c, c->rank, c->nranks), c->rank, 0);
}

void perf_traffic_output(const perf_case *c, perf_layout *l)
{
  size_t at = 0;
  for (int from = 0; from < c->nranks; from++) {
    perf_put_copy(l, at, perf_traffic(c, from, c->rank), from, traffic_before(c, from, c->rank));
    at += perf_traffic(c, from, c->rank);
  }
}

void perf_traffic_summary(const perf_case *c, double seconds)
{
  perf_matrix_summary(c->nranks, blocks_total(c), seconds);
}
