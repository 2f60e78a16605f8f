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
#include <stdbool.h>
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

// The same for a rank of `parent`, whose number it keeps, with one id. It asks what the parent asks
// (tt_bootstrap_care), so a death in the parent ends the wait, and all that have joined hear of it.
ncclResult_t tt_bootstrap_grow(const tt_bootstrap *parent, const ncclUniqueId *id, int nranks,
                               const volatile uint32_t *abort_flag, tt_bootstrap **out);

// A smaller ring from an existing one: `members` are ranks of the parent in the order of the child's ranks; the caller
// is one of them. Collective over the *parent* (ranks not in any child pass count = 0 and get *out = NULL). `tag`
// distinguishes splits in time: members that pass different tags or lists are told so (ncclInvalidUsage). `abort_flag`
// is the child's; the parent's is watched as well. A rank that cannot take part (wrong members: ncclInvalidArgument)
// still answers, and its fellow members get ncclRemoteError.
ncclResult_t tt_bootstrap_split(tt_bootstrap *parent, const int *members, int count, uint64_t tag,
                                const volatile uint32_t *abort_flag, tt_bootstrap **out);

// The same for a ring whose other ranks need not take part, and may be dead: `members`, in ascending order, alone call
// it, all with the same list; the parent's ring is not used, and may have ended. The child's secret is new each time.
// When it has failed it may be called again, with fewer members too. Two calls on one parent one after the other.
// Errors: ncclRemoteError, which names the member that has gone, does not come (NCCL_BOOTSTRAP_TIMEOUT) or has given
// up; ncclInvalidUsage, members with different lists; ncclSystemError.
ncclResult_t tt_bootstrap_shrink(tt_bootstrap *parent, const int *members, int count,
                                 const volatile uint32_t *abort_flag, tt_bootstrap **out);

// Fills `data` (nranks blocks of `size` bytes, own block already in place) with every rank's block. Errors:
// ncclRemoteError on every survivor, naming the rank that has gone, or from which nothing has come for
// NCCL_BOOTSTRAP_TIMEOUT seconds; ncclInvalidUsage when ranks pass different sizes or are not at the same call. Both
// end the ring: later calls fail the same way. size 0 does nothing.
ncclResult_t tt_bootstrap_allgather(tt_bootstrap *b, void *data, size_t size);
// Returns when every rank has called it.
ncclResult_t tt_bootstrap_barrier(tt_bootstrap *b);

// While the calling thread waits for a bootstrap it watches `ring` (tt_ring_open) too: a thread that sets an abort flag
// rings it. -1: none; then the flags are looked at every 100 ms.
void tt_bootstrap_listen(int ring);
// From now on ncclCommAbort of another communicator ends the waits of `b` as well: `also` is its flag, and `what` (a
// literal) names the call in messages. NULL and NULL: no more. The thread that uses `b`.
void tt_bootstrap_watch(tt_bootstrap *b, const volatile uint32_t *also, const char *what);
// While a call waits, asks `look` each 100 ms: 0 or more is the number of a rank that has died, and the call fails with
// ncclRemoteError. `own`: it is a rank of this ring, which is named to all. Rings that are made from `b` meanwhile
// ask, too, until they get another one. NULL: none. The thread that uses `b`.
typedef int (*tt_ring_look_fn)(void *arg);
void tt_bootstrap_care(tt_bootstrap *b, tt_ring_look_fn look, void *arg, bool own);

// How a ring has ended.
typedef enum {
  TT_RING_STANDS,
  TT_RING_BUSY,   // a call uses it, and sees for itself
  TT_RING_ENDED,  // a rank has left in order, a call has failed or was aborted
  TT_RING_DIED,   // the process of a rank was killed, or left by _exit
  TT_RING_LOST,   // the connection of a rank has failed: it has died, or the network has
  TT_RING_EXITED, // the process of a rank has exited without tt_bootstrap_destroy
} tt_ring_end;

// Outside of calls: has a neighbour ended the ring? Then this rank does, too: the news goes round. *rank: the cause.
// Any thread, until tt_bootstrap_destroy.
tt_ring_end tt_bootstrap_look(tt_bootstrap *b, int *rank);
// The connections of the two neighbours (-1: none): their POLLRDHUP says that there may be something to look at.
void tt_bootstrap_connections(const tt_bootstrap *b, int fds[2]);
// This process exits without tt_bootstrap_destroy: says so to the ring, unless a call uses it. Any thread.
void tt_bootstrap_exit(tt_bootstrap *b);
// Ends the ring: the neighbours are told that this rank has aborted a call. NULL, and a ring that has ended, are
// allowed.
void tt_bootstrap_stop(tt_bootstrap *b);

// 16 bytes known to this ring's ranks only (derived per split), for use as a communicator's secret and name.
const uint8_t *tt_bootstrap_secret(const tt_bootstrap *b);
// How many microseconds something takes to the successor in the ring: half of the shortest time that its kernel has
// taken to answer. 0: not known, or the ring has ended.
uint32_t tt_bootstrap_way_us(const tt_bootstrap *b);
// Can every process compute it (NCCL_COMM_ID without a secret)? Pure.
bool tt_bootstrap_is_public(const tt_bootstrap *b);

// Closes everything. NULL is allowed. Never waits for peers; what they have been sent still arrives.
void tt_bootstrap_destroy(tt_bootstrap *b);
