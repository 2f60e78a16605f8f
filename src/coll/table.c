// table.c: the table of algorithms. A new algorithm is one file and one row.

#include "base/text.h"
#include "base/util.h"
#include "coll/coll_priv.h"

#define F(name) (1u << TT_FUNC_##name)

static const tt_algorithm table[] = {
    {"Ring", "neighbours only; n-1 hops (all-reduce 2n-2); best for large messages through FIFOs",
     F(ALLREDUCE) | F(REDUCESCATTER) | F(ALLGATHER) | F(BROADCAST) | F(REDUCE), 0, TT_FOLLOWS_RING, tt_ring_write, false},
    {"Tree", "double binary tree; about 2 log2 n hops; middle sizes and many ranks", F(ALLREDUCE) | F(BROADCAST) | F(REDUCE), 0,
     TT_FOLLOWS_TREE, tt_tree_write, false},
    {"RD", "recursive doubling; log2 n hops with the whole message; small messages", F(ALLREDUCE), 0, TT_FOLLOWS_NODES, tt_rd_write, false},
    {"PAT", "distances doubled every round; log2 n rounds; small blocks and many ranks", F(ALLGATHER) | F(REDUCESCATTER), 0,
     TT_FOLLOWS_NODES, tt_pat_write, false},
    {"Oneshot", "everybody sends everything to everybody who needs it; one hop; smallest messages",
     F(ALLREDUCE) | F(ALLGATHER) | F(REDUCESCATTER) | F(BROADCAST) | F(REDUCE), 0, TT_FOLLOWS_NODES, tt_oneshot_write, false},
    {"Direct", "reads straight from the peers' buffers; no staging copy", (1u << TT_NFUNCS) - 1, TT_NEEDS_READ, TT_FOLLOWS_NODES,
     tt_direct_write, false},
    {"DirectWrite", "reads and writes the peers' buffers; each byte is read once and written once",
     F(ALLREDUCE) | F(REDUCESCATTER) | F(ALLGATHER) | F(BROADCAST) | F(REDUCE), TT_NEEDS_READ | TT_NEEDS_WRITE, TT_FOLLOWS_NODES,
     tt_directw_write, false},
    {"Pairwise", "all-to-all through FIFOs, in distance order", F(ALLTOALL), 0, TT_FOLLOWS_NODES, tt_exchange_write, false},
    {"Linear", "the root talks to each rank in turn; send and receive through a FIFO", F(GATHER) | F(SCATTER) | F(SEND) | F(RECV), 0,
     TT_FOLLOWS_NODES, tt_exchange_write, false},
    {"HierRing", "rings between nodes side by side, everybody with everybody inside; large messages on several nodes",
     F(ALLREDUCE) | F(REDUCESCATTER) | F(ALLGATHER), 0, TT_FOLLOWS_NODES, tt_hierring_write, false},
    {"HierRD", "a leader per node, recursive doubling between leaders; small messages on several nodes", F(ALLREDUCE), 0, TT_FOLLOWS_NODES,
     tt_hierrd_write, false},
    {"CollNetChain", "a chain to the node's first rank, then the network sums over the nodes; needs a plugin that reduces", F(ALLREDUCE), 0,
     TT_FOLLOWS_NODES, tt_collnet_chain_write, true},
    {"CollNetDirect", "several heads per node, each for its part, then the network sums over the nodes; needs a plugin that reduces",
     F(ALLREDUCE), 0, TT_FOLLOWS_NODES, tt_collnet_direct_write, true},
};

const tt_algorithm *tt_algorithms(int *count)
{
  if (count != NULL) {
    *count = (int)TT_COUNT(table);
  }
  return table;
}

int tt_algorithm_find(const char *name)
{
  for (int i = 0; i < (int)TT_COUNT(table); i++) {
    if (tt_casecmp(table[i].name, name) == 0) {
      return i;
    }
  }
  return -1;
}

int tt_algorithm_channels(const tt_algorithm *a, const tt_layout *layout)
{
  const void *given = NULL;
  if (layout && a->follows != TT_FOLLOWS_NODES) {
    given = a->follows == TT_FOLLOWS_RING ? layout->channels.rings : layout->channels.ups;
  }
  return given ? layout->channels.count : 0;
}

void tt_schedule_free(tt_schedule *s)
{
  if (s) {
    tt_free(s->strands);
    tt_free(s->steps);
    tt_free(s->refs);
    tt_free(s);
  }
}

const char *const tt_func_names[TT_NFUNCS] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce",
                                              "AlltoAll",  "Gather", "Scatter",   "Send",          "Recv"};
