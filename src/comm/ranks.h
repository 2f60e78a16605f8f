// ranks.h: what follows from the list of all ranks: who shares memory, whose cores these are, who belongs to a group. n log n for n ranks. Any thread.
#pragma once
#include "coll/layout.h"
#include "transport/transport.h"

// The layout: ranks that need no network between them are one node. The caller destroys *out. Errors: ncclSystemError.
ncclResult_t tt_ranks_layout(const tt_peer *peers, int n, tt_layout **out);

// Each rank's cores become those that the ranks of its machine have together: processes that are bound to a core each have as many as they are. Fake nodes
// (NCCL_HOSTID) are one machine. *mine: ranks on the machine of rank `me`; *crowded: some machine has more ranks than cores. Errors: ncclSystemError.
ncclResult_t tt_ranks_pool_cores(tt_peer *peers, int n, int me, int *mine, bool *crowded);

// What ranks tell each other when they split a communicator.
typedef struct tt_split_choice {
  int32_t color, key, rank;
} tt_split_choice;
_Static_assert(sizeof(tt_split_choice) == 12, "bootstrap message layout");

// Writes the group of rank `me` into `members`, which has room for all, by key, then by rank. `all` is by rank, and is in disorder afterwards. Returns how
// many there are; *place: which of them `me` is.
int tt_ranks_members(tt_split_choice *all, int n, int me, int *members, int *place);
