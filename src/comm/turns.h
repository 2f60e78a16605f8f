// turns.h: children of one communicator (splits, shrunk and grown ones) are made one after the other in the order of
// the calls: they use its bootstrap ring, or its door.
//
// A turn is in the list from the call of ncclCommSplit until its job is over. A job that gives up before its turn
// leaves the peers without a partner: the calls behind it on this rank cannot be matched with the peers' any more. So
// these fail too, and the ring ends as soon as nobody uses it, which tells the peers.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "bootstrap/bootstrap.h"
#include "nccl.h"

// One split under way. Its memory is the caller's, until it has left. Everything in it is under the list's lock.
typedef struct tt_turn {
  struct tt_turn *next, **place; // place: what points to it
  volatile uint32_t *abort_flag; // the child's
  bool cut;                      // it, or one before it, has given up
  bool ringless;                 // a shrink: whether others have given up matters neither to it nor to its peers
  bool stopped;                  // by tt_turns_stop. The owner's after it has left
} tt_turn;

// `lock` guards the list and the two marks; `waiting` is written under it and read without.
typedef struct tt_turns {
  pthread_mutex_t lock;
  tt_turn *first, **end;
  _Atomic uint32_t waiting; // turns in the list
  bool cut;                 // new turns are cut, too
  bool aborted;             // there are no new turns
} tt_turns;

// Makes an empty list, in memory that may hold anything.
void tt_turns_init(tt_turns *l);
// Puts `t` at the end. False: the communicator is being aborted. `abort_flag` is looked at, and set by tt_turns_abort
// and tt_turns_stop, until `t` has left. `ringless`: as in tt_turn.
bool tt_turns_add(tt_turns *l, tt_turn *t, volatile uint32_t *abort_flag, bool ringless);
// Waits until all turns before `t` have left. Errors: ncclInternalError, without a line, when aborted; ncclRemoteError
// when an earlier split of this rank has given up before its turn.
ncclResult_t tt_turns_await(tt_turns *l, tt_turn *t);
// Takes `t` out of the list, wherever it stands. `ring` is the communicator's, which ends here if a turn has given up
// and nobody else can use it. Afterwards the split uses nothing of the communicator.
void tt_turns_leave(tt_turns *l, tt_turn *t, tt_bootstrap *ring);
// The children that are being made now end with an abort; later ones may begin. Does not wait.
void tt_turns_stop(tt_turns *l);
// The communicator is being aborted: so are its splits, and no more begin.
void tt_turns_abort(tt_turns *l);
// Waits until the list is empty. Afterwards no other thread uses it, unless the program calls ncclCommSplit meanwhile.
void tt_turns_drain(tt_turns *l);

// Is any split under way? Any thread.
static inline bool tt_turns_busy(const tt_turns *l)
{
  return atomic_load(&l->waiting) != 0;
}
