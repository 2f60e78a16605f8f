// bootstrap.h: how ranks find each other before they can communicate (seed 002 §1-2).
//
// A process that makes unique ids listens on TCP ports, with one thread for all of them. An id holds these addresses
// and a random secret. Every rank listens too, and tells the root of its id where. It learns its successor, and the
// ranks form a ring. After that: all-gather and barrier. A process with several addresses is reached by the first
// that answers. Every connection starts with a handshake that proves knowledge of the secret (hello.h).
//
// All calls on one tt_bootstrap are made by one thread at a time; different objects are independent. `abort_flag` is
// polled at least every 100 ms in every wait. When it becomes non-zero the call returns ncclInternalError, without a
// line in the log. NULL: none. It must live as long as the object.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "bootstrap/hello.h"
#include "nccl.h"

typedef struct tt_bootstrap tt_bootstrap;

// Makes an id, which the thread for all ids of this process serves. It ends by itself when all ranks have joined, or
// have heard what is wrong. It also ends NCCL_BOOTSTRAP_TIMEOUT seconds (default 300) after the last rank joined, or
// after TUTTI_ID_TIMEOUT seconds (an hour) when none has. With NCCL_COMM_ID the id names that address, and rank 0
// starts the root in tt_bootstrap_init. Honours NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY. Where no interface is up
// there is no root, and the id has no address: it is for one rank. Any thread. Errors: ncclSystemError (no usable
// interface, no descriptors), ncclInvalidArgument (NCCL_COMM_ID), ncclInvalidUsage (NCCL_SOCKET_FAMILY).
ncclResult_t tt_bootstrap_id(ncclUniqueId *id);

// Joins as `rank` of `nranks`, and waits for all others. The result is written to *out only on success; free it with
// tt_bootstrap_destroy. `nids` ids, the same on all ranks, at most nranks. The ranks are divided among their roots in
// order, as evenly as possible, so that many ranks do not wait for one root. With NCCL_COMM_ID there is one root,
// whatever nids is. An error of one rank is reported to all ranks of all roots; a rank number out of range is reported
// to the root like any other. Errors, each with ranks and values:
//   ncclInvalidArgument  not an id made by tt_bootstrap_id; nids or nranks out of range; an id twice.
//   ncclInvalidUsage     two ranks with one number; a rank outside 0..nranks-1; ranks that disagree about nranks or the
//                        ids; an id that was already used.
//   ncclSystemError      a root cannot be reached.
//   ncclRemoteError      a peer or a root went away; a rank did not come within NCCL_BOOTSTRAP_TIMEOUT.
ncclResult_t tt_bootstrap_init(const ncclUniqueId *ids, int nids, int nranks, int rank,
                               const volatile uint32_t *abort_flag, tt_bootstrap **out);

// A smaller ring from an existing one: `members` are ranks of the parent in the order of the child's ranks; the caller
// is one of them. Collective over the *parent* (ranks not in any child pass count = 0 and get *out = NULL). `tag`
// distinguishes splits in time: members that pass different tags or lists are told so (ncclInvalidUsage). `abort_flag`
// is the child's; the parent's is watched as well. A rank that cannot take part (wrong members: ncclInvalidArgument)
// still answers, and its fellow members get ncclRemoteError.
ncclResult_t tt_bootstrap_split(tt_bootstrap *parent, const int *members, int count, uint64_t tag,
                                const volatile uint32_t *abort_flag, tt_bootstrap **out);

// Fills `data` (nranks blocks of `size` bytes, own block already in place) with every rank's block. Errors:
// ncclRemoteError on every survivor, naming the rank that has gone, or from which nothing has come for
// NCCL_BOOTSTRAP_TIMEOUT seconds; ncclInvalidUsage when ranks pass different sizes or are not at the same call. Both
// end the ring: later calls fail the same way. size 0 does nothing.
ncclResult_t tt_bootstrap_allgather(tt_bootstrap *b, void *data, size_t size);
// Returns when every rank has called it.
ncclResult_t tt_bootstrap_barrier(tt_bootstrap *b);

// From now on ncclCommAbort of another communicator ends the waits of `b` as well: `also` is its flag, and `what` (a
// literal) names the call in messages. NULL and NULL: no more. The thread that uses `b`.
void tt_bootstrap_watch(tt_bootstrap *b, const volatile uint32_t *also, const char *what);
// Ends the ring: the neighbours are told that this rank has aborted a call. NULL, and a ring that has ended, are
// allowed.
void tt_bootstrap_stop(tt_bootstrap *b);

// 16 bytes known to this ring's ranks only (derived per split), for use as a communicator's secret and name.
const uint8_t *tt_bootstrap_secret(const tt_bootstrap *b);
// Can every process compute it (NCCL_COMM_ID without a secret)? Pure.
bool tt_bootstrap_is_public(const tt_bootstrap *b);

// Closes everything. NULL is allowed. Never waits for peers; what they have been sent still arrives.
void tt_bootstrap_destroy(tt_bootstrap *b);
