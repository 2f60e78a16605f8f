// owner.h: which rank may write into another rank's output, and when the owner may have it back.
//
// A step may write straight into a peer's output (TT_PEER_OUT): by pointer in one process, into memory that both map,
// or through the kernel. While all goes well tokens say when. But an owner that stops (abort, error) gives its buffers
// back to the user at once. So the two agree by two words:
//   writer: names the owner on its own page (`writes`), full fence, looks at the owner's state: stopped? then it writes
//   nothing; else it writes a bounded
//           piece. Afterwards it takes the name back, full fence, and rings the owner's bell if that has stopped
//           meanwhile: it may sleep because of the name.
//   owner:  stores its state, full fence (tt_port_stop), and only then looks at its peers' pages: where one names it,
//   it waits (tt_port_writer).
// Either the writer sees that the owner has stopped, or the owner sees the name and waits until the piece is written
// (tests/owner_model_test.c walks all interleavings). So no rank writes into a buffer after a stream has reported an
// error or ncclCommAbort has returned. One-sided operations agree in the same way by other words (one_sided.h).
// Exception: a writer that does not finish in time (tt_port_writer). Rule: `writes` and `state` are written by their
// page's rank alone, and lie on different lines: a writer's own stays in its cache, and so does what it reads.
#pragma once
#include "device/link.h"

#define TT_WRITES_ALL UINT32_MAX   // in `writes`: several peers' outputs at once
#define TT_WRITES_BYTES (1u << 20) // of each output, under one name: what an owner waits for is short

// Has the rank stopped, for its peers? Then its buffers are its user's.
static inline bool tt_page_stopped(const tt_rank_page *page)
{
  return atomic_load_explicit(&page->state, memory_order_acquire) >= TT_RANK_FAILED;
}

// Names whose output this rank is about to write into: 1 + rank, or TT_WRITES_ALL. Look at each owner's state
// afterwards. The thread that runs the rank's plan.
static inline void tt_writes_begin(tt_rank_page *own, uint32_t whose)
{
  atomic_exchange(&own->writes, whose);
  tt_bell_fence_after_rmw();
}

// Nothing is under way any more. Then tt_writes_ring each owner.
static inline void tt_writes_end(tt_rank_page *own)
{
  atomic_exchange(&own->writes, 0);
  tt_bell_fence_after_rmw();
}

// Wakes an owner that has stopped, and may wait for the name to go.
static inline void tt_writes_ring(tt_rank_page *owner)
{
  if (TT_UNLIKELY(tt_page_stopped(owner))) {
    tt_bell_ring(&owner->bell);
  }
}
