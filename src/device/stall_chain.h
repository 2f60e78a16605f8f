// stall_chain.h: what the ranks' pages show of their waits, which rank waits for which, and what that proves. Any
// thread. `now`: tt_now_ns().
#pragma once
#include "device/lane.h"
#include "os/clock.h"

// A deadlock is reported by lines first, and then is an error.
#define TT_STALL_PROOF_NS (2 * TT_NS_PER_S)

// Nanoseconds between two looks whether peers live (NCCL_PEER_CHECK_MS).
uint64_t tt_peer_check_ns(void);

// Is the rank on this machine?
bool tt_stall_is_near(const tt_port *port, int rank);

// The page of a rank, or the copy of it that the network brings. NULL: this rank is not connected with it.
const tt_rank_page *tt_stall_page(const tt_port *port, int rank);

// Is anything known of the rank?
bool tt_stall_sees(const tt_port *port, int rank);

// What the rank shows. False: nothing, or it has not looked for long: its process may be stopped.
bool tt_stall_read(const tt_port *port, int rank, uint64_t now, tt_wait *out);

// What the process of a rank of this machine waits for in another communicator (tt_rank_page.elsewhere). False:
// nothing.
bool tt_stall_elsewhere(const tt_port *port, int rank, uint64_t now, tt_wait *out);

// Does the rank wait for another one? *out: how.
bool tt_stall_waits(const tt_port *port, int rank, uint64_t now, tt_wait *out);

// Which rank waits for which, from one rank on.
typedef struct tt_stall_chain {
  int n;               // ranks that wait, each for the next one; in a circle as many as there are ranks
  tt_wait first, last; // what the first and the last of them wait for
  int last_rank;
  int cause;    // for which the last one waits
  bool circle;  // the cause waits, too: in a circle, whose least rank it is
  int least;    // the least of the ranks that wait, as far as it is known,
  int hops;     // and so many waits from the first one
  bool relayed; // cause or circle is known from the last rank: this one is not connected with those behind it
  bool blind;   // nothing is known of the cause, and the last rank does not know more
  bool old;     // something was seen before what follows from it had begun: a copy that the network has not renewed
  bool far;     // one of them is on another machine
} tt_stall_chain;

// From `rank` on, which waits for `first`; NULL: as its page shows. Each rank is looked at once; pages may change
// meanwhile, so nothing but their number bounds the walk.
void tt_stall_follow(tt_stall_chain *c, const tt_port *port, int rank, const tt_wait *first, uint64_t now);

// Is it proved that a rank's wait cannot end before that of the next one, which it waits for and nothing else? As that
// rank itself says of this very wait of the next one; so it does not matter how old the two pages are, nor on which
// machines. Or the next one has not even begun its plan, and was on this machine seen to wait before.
// One-sided operations of several streams do not wait for each other: what the rank waits for must be held by that
// wait.
bool tt_stall_depends(const tt_port *port, int rank, const tt_wait *w, const tt_wait *next, uint64_t now);

// Does the chain of this rank, which waits for `first`, lead back to it, so that none of its ranks can ever move? Each
// wait of the circle ends after the next one, so none of them is the first to end: it would have to end before itself.
// Plans of a communicator are over one after the other, so nothing else of a rank can move either. That needs no common
// clock, and no pages that were read at one time. Each page is read once.
bool tt_stall_is_deadlock(const tt_port *port, const tt_wait *first, uint64_t now);
