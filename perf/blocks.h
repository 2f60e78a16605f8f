// blocks.h: blocks of several lengths: what the programs ..._v_perf and alltoallv_perf have in common. matrix.h says
// how long the blocks are.
#pragma once
#include "perf.h"

// For perf_coll.help.
extern const char perf_blocks_help[];

// One vector of blocks, the same on all ranks: block i is as long as rank 0's part for rank i in alltoallv_perf.
// Elements of one block, and of all before it; of all of them with `rank` = c->nranks.
size_t perf_block(const perf_case *c, int rank);
size_t perf_blocks_before(const perf_case *c, int rank);
// perf_coll.counts of programs in which each rank gives its block and gets all, or gives all and gets its block.
void perf_blocks_gathered(perf_case *c, size_t count);
void perf_blocks_scattered(perf_case *c, size_t count);
// What a rank has that got the blocks of all ranks.
void perf_blocks_output(const perf_case *c, perf_layout *l);
// The lengths of all blocks, in the order of the ranks. The calling thread's: valid until it calls this or
// perf_traffic_list again.
const size_t *perf_blocks(const perf_case *c);

// From each rank to each other one: elements, and the members of perf_coll of these names.
size_t perf_traffic(const perf_case *c, int from, int to);
void perf_traffic_counts(perf_case *c, size_t count);
void perf_traffic_input(const perf_case *c, perf_layout *l);
void perf_traffic_output(const perf_case *c, perf_layout *l);
void perf_traffic_summary(const perf_case *c, double seconds);
// What the rank sends to each one, or receives from each one. As perf_blocks, one list of each kind.
const size_t *perf_traffic_list(const perf_case *c, bool receives);
