// stall_chain.c: see stall_chain.h.
#include "base/param.h"
#include "base/util.h"
#include "device/stall_chain.h"
#include "device/one_sided.h"
#include "os/clock.h"

#define FRESH_CHECKS 10                  // what a page shows is good for so many turns of NCCL_PEER_CHECK_MS
#define COPY_TURN_NS (25 * TT_NS_PER_MS) // and in a copy so much longer for each rank

uint64_t tt_peer_check_ns(void)
{
  int64_t ms = tt_params_get()->peer_check_ms;
  return (uint64_t)TT_CLAMP(ms, 1, 3600000) * 1000000ull;
}

// ---- what others show

bool tt_stall_is_near(const tt_port *port, int rank)
{
  return rank == port->rank || (port->neighbors != NULL && port->neighbors[rank].page != NULL);
}

const tt_rank_page *tt_stall_page(const tt_port *port, int rank)
{
  if (rank == port->rank) {
    return port->page;
  }
  if (tt_stall_is_near(port, rank)) {
    return port->neighbors[rank].page;
  }
  const tt_link *link = __atomic_load_n(&port->links[rank], __ATOMIC_ACQUIRE);
  return link != NULL ? link->page : NULL;
}

bool tt_stall_sees(const tt_port *port, int rank)
{
  const tt_rank_page *page = tt_stall_page(port, rank);
  return page != NULL && atomic_load_explicit(&page->state, memory_order_acquire) != TT_RANK_INIT;
}

// How old what a page shows may be: a rank that waits looks at every turn of NCCL_PEER_CHECK_MS; a copy is brought up
// to date in turn with those of all other peers (proxy/probe.c).
static uint64_t stall_fresh_ns(const tt_port *port, int rank)
{
  uint64_t near_ns = TT_MAX(FRESH_CHECKS * tt_peer_check_ns(), (uint64_t)TT_NS_PER_S);
  return tt_stall_is_near(port, rank) ? near_ns : 2 * near_ns + (uint64_t)port->nranks * COPY_TURN_NS;
}

bool tt_stall_read(const tt_port *port, int rank, uint64_t now, tt_wait *out)
{
  const tt_rank_page *page = tt_stall_page(port, rank);
  return page != NULL && tt_wait_read(page, out) && (out->how & TT_WAIT_BEHIND || out->peer < (uint32_t)port->nranks) &&
         now < out->seen_ns + stall_fresh_ns(port, rank);
}

bool tt_stall_elsewhere(const tt_port *port, int rank, uint64_t now, tt_wait *out)
{
  return tt_stall_is_near(port, rank) && tt_wait_read_at(tt_stall_page(port, rank)->elsewhere, out) &&
         now < out->seen_ns + stall_fresh_ns(port, rank);
}

// ---- from rank to rank

bool tt_stall_waits(const tt_port *port, int rank, uint64_t now, tt_wait *out)
{
  return tt_stall_read(port, rank, now, out) && !(out->how & TT_WAIT_BEHIND);
}

// The last rank waits for one that this rank knows nothing of. It says which rank the cause is. Or it says which is the
// least rank that it knows of on the way. Where that leads back to the rank that the chain begins with, there is a
// circle, and this rank says so to those that wait for it. Such news come from ranks that wait, so none stay where the
// circle is broken; but the number of a rank that has left it would go round for ever.
static void stall_hear(tt_stall_chain *c, const tt_port *port, int start, uint64_t now)
{
  tt_wait w;
  bool part = (c->last.how & TT_WAIT_LEAST) != 0;
  uint32_t more = part ? (uint32_t)(c->last.hash >> 32) : 0;
  int said = (int)((uint32_t)c->last.hash - 1), hops = c->n - 1 + (int)TT_MIN(more, (uint32_t)port->nranks + 1);
  bool sound = said >= 0 && said < port->nranks && hops <= port->nranks;
  c->circle = part && sound && (said == start || (c->last.how & TT_WAIT_ROUND));
  bool known = c->circle || (sound && !part && !tt_stall_waits(port, said, now, &w));
  if (part && sound && said < c->least) {
    c->least = said;
    c->hops = hops;
  }
  c->blind = !known;
  c->relayed = c->circle || (known && c->cause != said);
  c->cause = known ? said : c->cause;
}

void tt_stall_follow(tt_stall_chain *c, const tt_port *port, int rank, const tt_wait *first, uint64_t now)
{
  tt_wait w = first != NULL ? *first : (tt_wait){.since_ns = 0};
  *c = (tt_stall_chain){.cause = rank};
  for (; c->n < port->nranks && ((c->n == 0 && first != NULL) || tt_stall_waits(port, c->cause, now, &w)); c->n++) {
    if (c->n == 0 || c->cause < c->least) {
      c->least = c->cause;
      c->hops = c->n;
    }
    c->first = c->n == 0 ? w : c->first;
    c->far |= !tt_stall_is_near(port, (int)w.peer);
    c->old |= c->n > 0 && (c->last.seen_ns < w.since_ns || w.seen_ns < c->first.since_ns || c->last.after != w.number);
    c->last = w;
    c->last_rank = c->cause;
    c->cause = (int)w.peer;
  }
  int at = c->cause, steps = 0;
  for (; c->n == port->nranks && steps < port->nranks && tt_stall_waits(port, at, now, &w); steps++) {
    at = (int)w.peer;
    c->cause = TT_MIN(c->cause, at);
  }
  c->circle = steps == port->nranks;
  if (c->circle) {
    c->least = c->cause;
    c->hops = 0;
  } else if (!tt_stall_sees(port, c->cause)) {
    c->blind = true;
    if (c->n > 1) {
      stall_hear(c, port, rank, now);
    }
  }
}

// ---- proofs

// Does what this rank waits for stand behind the one-sided wait that the next one's page shows, as the rank has seen?
static bool stall_is_held(const tt_port *port, int rank, const tt_wait *w, const tt_wait *next)
{
  tt_wait again;
  bool signal = (w->how & TT_WAIT_SIGNAL) != 0, held = false;
  uint32_t what = signal ? tt_held_put(rank, tt_sig_ctx(w->sig)) : TT_HELD_PLANS;
  const tt_rank_page *page = tt_stall_page(port, (int)w->peer);
  if (!tt_stall_is_near(port, (int)w->peer) || w->seen_ns < next->since_ns || !(next->how & TT_WAIT_SIGNAL) ||
      (next->how & TT_WAIT_BEHIND) || (signal && (w->sig & 15) != TT_SIG_WAIT)) {
    return false;
  }
  for (int i = 0; i < TT_HELD && !held; i++) {
    held = atomic_load_explicit(&page->held[i], memory_order_acquire) == what;
  }
  return held && w->seen_ns >= atomic_load_explicit(&page->held_ns, memory_order_relaxed) &&
         tt_wait_read_at(page->rma_wait, &again) && again.since_ns == next->since_ns;
}

bool tt_stall_depends(const tt_port *port, int rank, const tt_wait *w, const tt_wait *next, uint64_t now)
{
  int next_rank = (int)w->peer;
  bool signals = ((w->how | next->how) & TT_WAIT_SIGNAL) != 0;
  bool behind = (next->how & TT_WAIT_BEHIND) != 0 && tt_stall_is_near(port, next_rank) && w->seen_ns >= next->since_ns;
  bool sure =
      (w->how & TT_WAIT_ALONE) != 0 && (w->how & TT_WAIT_SURE) != 0 && w->after != 0 && w->after == next->number;
  return (w->how & TT_WAIT_BEHIND) == 0 && (signals ? stall_is_held(port, rank, w, next) : behind || sure) &&
         now >= w->since_ns + TT_STALL_PROOF_NS;
}

bool tt_stall_is_deadlock(const tt_port *port, const tt_wait *first, uint64_t now)
{
  tt_wait w = *first, next;
  int rank = port->rank;
  for (int steps = 0; steps < port->nranks; steps++, w = next) {
    int peer = (int)w.peer;
    bool back = peer == port->rank;
    next = *first;
    if ((!back && !tt_stall_waits(port, peer, now, &next)) || !tt_stall_depends(port, rank, &w, &next, now)) {
      return false;
    }
    if (back) {
      return true;
    }
    rank = peer;
  }
  return false;
}
