// stall.c: see stall.h.
#include "device/host/stall.h"

#include <stdarg.h>
#include <unistd.h>

#include "base/advice.h"
#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/text.h"
#include "base/util.h"
#include "device/host/wait_priv.h"
#include "os/clock.h"

#define FRESH_CHECKS 10                  // what a page shows is good for so many turns of NCCL_PEER_CHECK_MS
#define COPY_TURN_NS (25 * TT_NS_PER_MS) // and in a copy so much longer for each rank
#define PROOF_NS (2 * TT_NS_PER_S)       // a deadlock is reported by lines first, and then is an error
#define LOOK_MOST_NS (2 * TT_NS_PER_S)   // a longer time between two looks: the process did not run
#define TEXT_BYTES 1024

// ---- what this rank shows

// Where the lanes are: another value when one has moved.
static uint64_t stall_mark(const tt_plan *p)
{
  uint64_t mark = 1;
  for (const tt_lane *l = p->turns; l != NULL; l = l->next) {
    mark = mark * 31 + (uintptr_t)l + l->pos * 7 + l->pc;
  }
  return mark;
}

// The lane that stands for all: the first that waits for another rank. `*alone`: the others wait for that one, too.
static const tt_lane *stall_lane(const tt_plan *p, bool *alone)
{
  const tt_lane *first = NULL;
  *alone = true;
  for (const tt_lane *l = p->turns; l != NULL; l = l->next) {
    if (!l->done && l->waits_for >= 0 && l->waits_for < p->port->nranks) {
      first = first == NULL ? l : first;
      *alone &= l->waits_for == first->waits_for && l->receives == first->receives;
    } else if (!l->done) {
      *alone = false;
    }
  }
  return first;
}

static void stall_hide(tt_rank_page *page)
{
  tt_wait_show(page, &(tt_wait){.since_ns = 0});
}

static void stall_show_lane(const tt_plan *p, const tt_lane *l, bool alone)
{
  tt_wait w = {.since_ns = p->stall.since_ns,
               .seen_ns = p->stall.seen_ns,
               .sig = l->call->sig,
               .count = l->call->sig_count,
               .peer = (uint32_t)l->waits_for,
               .how = (l->receives ? TT_WAIT_RECEIVES : 0u) | (alone ? TT_WAIT_ALONE : 0u)};
  tt_wait_show(p->port->page, &w);
}

void tt_stall_behind(tt_plan *p, const tt_work *current)
{
  bool plan = current->ops == &tt_plan_ops || current->ops == &tt_plan_watched_ops;
  const tt_plan *c = plan ? (const tt_plan *)current : NULL;
  if (c != NULL && c->port == p->port) {
    return; // that one shows more
  }
  if (atomic_load_explicit(&p->port->done, memory_order_acquire) != p->ticket) {
    return; // an earlier plan of the communicator, on another stream, shows more
  }
  uint64_t now = tt_now_ns();
  p->stall.since_ns = p->stall.since_ns == 0 ? now : p->stall.since_ns;
  tt_wait w = {.since_ns = p->stall.since_ns, .seen_ns = now, .how = TT_WAIT_BEHIND};
  if (c != NULL && c->ncalls > 0) {
    w.sig = c->calls[0].sig;
    w.count = c->calls[0].sig_count;
    w.hash = c->port->hash;
  }
  tt_wait_show(p->port->page, &w);
}

// ---- what others show

static bool stall_is_near(const tt_port *port, int rank)
{
  return rank == port->rank || (port->neighbors != NULL && port->neighbors[rank].page != NULL);
}

// The page of a rank, or the copy of it that the network brings. NULL: this rank is not connected with it.
static const tt_rank_page *stall_page(const tt_port *port, int rank)
{
  if (rank == port->rank) {
    return port->page;
  }
  if (stall_is_near(port, rank)) {
    return port->neighbors[rank].page;
  }
  const tt_link *link = __atomic_load_n(&port->links[rank], __ATOMIC_ACQUIRE);
  return link != NULL ? link->page : NULL;
}

// How old what a page shows may be: a rank that waits looks at every turn of NCCL_PEER_CHECK_MS; a copy is brought up
// to date in turn with those of all other peers (proxy/probe.c).
static uint64_t stall_fresh_ns(const tt_port *port, int rank)
{
  uint64_t near_ns = TT_MAX(FRESH_CHECKS * tt_peer_check_ns(), (uint64_t)TT_NS_PER_S);
  return stall_is_near(port, rank) ? near_ns : 2 * near_ns + (uint64_t)port->nranks * COPY_TURN_NS;
}

// What the rank shows. False: nothing, or it has not looked for long: its process may be stopped.
static bool stall_read(const tt_port *port, int rank, uint64_t now, tt_wait *out)
{
  const tt_rank_page *page = stall_page(port, rank);
  return page != NULL && tt_wait_read(page, out) && out->peer < (uint32_t)port->nranks &&
         now < out->seen_ns + stall_fresh_ns(port, rank);
}

// Does the rank wait for another one?
static bool stall_waits(const tt_port *port, int rank, uint64_t now, tt_wait *out)
{
  return stall_read(port, rank, now, out) && !(out->how & TT_WAIT_BEHIND);
}

// Who waits for whom, from one rank on.
typedef struct stall_chain {
  int n;               // ranks that wait, each for the next one; in a circle as many as there are ranks
  tt_wait first, last; // what the first and the last of them wait for
  int last_rank;
  int cause;   // for which the last one waits
  bool circle; // it waits, too: in a circle, whose least rank it is
} stall_chain;

// Each rank is looked at once; pages may change meanwhile, so nothing but their number bounds the walk.
static void stall_follow(stall_chain *c, const tt_port *port, int rank, uint64_t now)
{
  tt_wait w;
  *c = (stall_chain){.cause = rank};
  for (; c->n < port->nranks && stall_waits(port, c->cause, now, &w); c->n++) {
    c->first = c->n == 0 ? w : c->first;
    c->last = w;
    c->last_rank = c->cause;
    c->cause = (int)w.peer;
  }
  int at = c->cause, steps = 0;
  for (; c->n == port->nranks && steps < port->nranks && stall_waits(port, at, now, &w); steps++) {
    at = (int)w.peer;
    c->cause = TT_MIN(c->cause, at);
  }
  c->circle = steps == port->nranks;
}

// Does the chain of this rank lead back to it, so that none of its ranks can ever move? Each waits for a message from
// the next one and for nothing else. It began its last look after the next one had stopped moving: had that one sent
// the message, it would have been found. So there is no first one to move, for plans of a communicator are over one
// after the other. All are on this machine: over a network something may be under way. Each page is read once.
static bool stall_is_deadlock(const tt_port *port, uint64_t now)
{
  tt_wait first, w, next;
  if (!stall_waits(port, port->rank, now, &first)) {
    return false;
  }
  w = first;
  for (int steps = 0; steps < port->nranks; steps++, w = next) {
    int rank = (int)w.peer;
    bool back = rank == port->rank;
    next = first;
    if (!stall_is_near(port, rank) || (!back && !stall_waits(port, rank, now, &next)) ||
        w.how != (TT_WAIT_RECEIVES | TT_WAIT_ALONE) || w.seen_ns < next.since_ns || now < w.since_ns + PROOF_NS) {
      return false;
    }
    if (back) {
      return true;
    }
  }
  return false;
}

// ---- the verdict

// A text that grows; what does not fit is left out.
typedef struct stall_text {
  char text[TEXT_BYTES];
  size_t length;
} stall_text;

static void __attribute__((format(printf, 2, 3))) stall_add(stall_text *t, const char *fmt, ...)
{
  va_list args;
  va_start(args, fmt);
  int n = tt_vformat(t->text + t->length, sizeof t->text - t->length, fmt, args);
  va_end(args);
  t->length = TT_MIN(t->length + (size_t)TT_MAX(n, 0), sizeof t->text - 1);
}

// "rank 0 waits in operation 3 AllReduce … for rank 1", "rank 0 waits to receive 8 bytes from rank 1".
static void stall_add_wait(stall_text *t, int rank, const tt_wait *w)
{
  char call[TT_CALL_TEXT];
  bool receives = w->how & TT_WAIT_RECEIVES;
  if (w->sig >> 32 != 0) {
    stall_add(t, "rank %d waits in %s for rank %u", rank, tt_call_describe(call, w->sig, w->count, -1), w->peer);
  } else {
    stall_add(t, "rank %d waits to %s %llu bytes %s rank %u", rank, receives ? "receive" : "send",
              (unsigned long long)TT_SIG_COUNT(w->count), receives ? "from" : "to", w->peer);
  }
}

// All waits from `first` on, up to it again. False: one is on another machine.
static bool stall_add_circle(stall_text *t, const tt_port *port, int first, uint64_t now)
{
  tt_wait w;
  bool near = true;
  int rank = first, steps = 0;
  do {
    if (!stall_waits(port, rank, now, &w)) {
      break; // it has just gone on
    }
    near &= stall_is_near(port, rank);
    stall_add(t, steps == 0 ? "" : "; ");
    stall_add_wait(t, rank, &w);
    rank = (int)w.peer;
  } while (rank != first && ++steps < port->nranks);
  return near;
}

// What the process of the rank does, as far as the system knows.
static void stall_add_process(stall_text *t, const tt_port *port, int rank)
{
  int pid = port->neighbors != NULL && port->neighbors[rank].page != NULL ? port->neighbors[rank].pid : 0;
  char doing = pid == 0 || pid == getpid() ? 0 : tt_proc_doing(pid);
  const char *what = doing == 'T'   ? "is stopped by a signal (kill -CONT lets it go on)"
                     : doing == 't' ? "is stopped by a debugger"
                     : doing == 'D' ? "waits for a disk or for memory"
                     : doing == 'R' ? "computes"
                     : doing == 'S' ? "sleeps"
                     : doing == 'Z' ? "has ended"
                                    : NULL;
  if (what != NULL) {
    stall_add(t, ", and its process %d %s", pid, what);
  }
}

// What the rank does, which is waited for in the operation `sig`.
static void stall_add_rank(stall_text *t, const tt_port *port, int rank, uint64_t sig, uint64_t now)
{
  char call[TT_CALL_TEXT];
  uint64_t shown, count;
  tt_wait w;
  const tt_rank_page *page = stall_page(port, rank);
  uint32_t number = (uint32_t)(sig >> 32);
  stall_add(t, "rank %d ", rank);
  if (page == NULL || atomic_load_explicit(&page->state, memory_order_acquire) == TT_RANK_INIT) {
    stall_add(t, "is on another machine, whose log says more");
  } else if (stall_read(port, rank, now, &w) && (w.how & TT_WAIT_BEHIND) != 0) {
    stall_add(t, "has queued its call behind ");
    stall_add(t, w.hash != 0 ? "%s of communicator %#llx, in the same stream" : "other work in the same stream",
              tt_call_describe(call, w.sig, w.count, -1), (unsigned long long)w.hash);
  } else if (number != 0 && tt_page_shown(page, number, &shown, &count)) {
    stall_add(t, "has begun it, but does not go on");
    stall_add_process(t, port, rank);
  } else if (tt_shown_read(&page->shown[atomic_load(&page->now) % (1 + TT_SHOWN)], &shown, &count)) {
    stall_add(t, "has not called it (its last call was %s)", tt_call_describe(call, shown, count, -1));
    stall_add_process(t, port, rank);
  } else {
    stall_add(t, "has not called it, nor anything else in this communicator");
    stall_add_process(t, port, rank);
  }
}

// How many ranks of this machine wait for this cause. 0: one with a lower number than this one does, and reports it.
static int stall_count(const tt_port *port, int cause, uint64_t now, uint64_t warn_ns)
{
  int n = 1;
  stall_chain c;
  for (int i = 0; port->neighbors != NULL && i < port->nranks; i++) {
    if (i == port->rank || !stall_is_near(port, i)) {
      continue;
    }
    stall_follow(&c, port, i, now);
    if (c.n > 0 && c.cause == cause) {
      if (i < port->rank && now - TT_MIN(now, c.first.since_ns) >= warn_ns) {
        return 0;
      }
      n++;
    }
  }
  return n;
}

// `n`: ranks of this machine that wait for the same cause; 0: not counted.
static void stall_verdict(stall_text *t, const tt_port *port, const stall_chain *c, uint64_t now, int n)
{
  if (c->n == 0) { // no rank: a network that reduces
    stall_add(t, "rank %d waits for the network that reduces", port->rank);
    return;
  }
  if (c->circle) {
    stall_text circle = {.length = 0};
    stall_add(t, stall_add_circle(&circle, port, c->cause, now)
                     ? "deadlock, ranks wait for each other: "
                     : "ranks of several machines wait for each other, and messages may be lost: ");
    stall_add(t, "%s", circle.text);
    return;
  }
  stall_add_wait(t, port->rank, &c->first);
  stall_add(t, "; ");
  if (c->n > 1) {
    stall_add_wait(t, c->last_rank, &c->last);
    stall_add(t, "; ");
  }
  stall_add_rank(t, port, c->cause, c->last.sig, now);
  if (n > 0) {
    stall_add(t, "; %d rank%s of this machine wait%s for it", n, n == 1 ? "" : "s", n == 1 ? "s" : "");
  }
}

// ---- looking

static uint64_t stall_limit_ns(int64_t ms)
{
  return ms <= 0 ? UINT64_MAX : (uint64_t)TT_MIN(ms, INT64_MAX / 1000000) * TT_NS_PER_MS;
}

// When a wait is first reported: later each time that a wait of this communicator was, and went on all the same.
static uint64_t stall_warn_ns(const tt_port *port)
{
  uint64_t first_ns = stall_limit_ns(tt_params_get()->stall_warn_ms);
  unsigned doubled = TT_MIN(port->slow_waits, 8u);
  return first_ns > UINT64_MAX >> doubled ? UINT64_MAX : first_ns << doubled;
}

static void stall_report(tt_plan *p, const stall_chain *c, uint64_t now)
{
  stall_text t = {.length = 0};
  const tt_port *port = p->port;
  const tt_rank_page *page = stall_page(port, c->cause);
  int n = c->n == 0 ? 1 : stall_count(port, c->cause, now, stall_warn_ns(port));
  if (n == 0 || (page != NULL && atomic_load_explicit(&page->state, memory_order_acquire) >= TT_RANK_FAILED)) {
    return; // another rank reports it, or an error comes
  }
  stall_verdict(&t, port, c, now, n);
  tt_warn_user("no progress for %llu.%llu s in communicator %#llx: %s (NCCL_STALL_WARN_MS)",
               (unsigned long long)(p->stall.waited_ns / TT_NS_PER_S),
               (unsigned long long)(p->stall.waited_ns / (TT_NS_PER_S / 10) % 10), (unsigned long long)port->hash,
               t.text);
  p->stall.said = true;
}

static ncclResult_t stall_error(const tt_plan *p, const stall_chain *c, uint64_t now)
{
  stall_text t = {.length = 0};
  if (stall_is_deadlock(p->port, now)) {
    stall_add_circle(&t, p->port, p->port->rank, now);
    return tt_fail(ncclInvalidUsage, "deadlock: ranks wait for each other, and none can go on: %s", t.text);
  }
  if (p->stall.waited_ns >= stall_limit_ns(tt_params_get()->stall_error_ms)) {
    stall_verdict(&t, p->port, c, now, 0);
    return tt_fail(ncclTimeout, "no progress for %llu ms (NCCL_STALL_ERROR_MS): %s",
                   (unsigned long long)(p->stall.waited_ns / TT_NS_PER_MS), t.text);
  }
  return ncclSuccess;
}

// Brings the copy of the cause's page up to date, if it is on another machine.
static void stall_probe(const tt_port *port, int cause)
{
  const tt_link *link = cause == port->rank ? NULL : __atomic_load_n(&port->links[cause], __ATOMIC_ACQUIRE);
  if (link != NULL && link->networked) {
    port->mover->probe(port->mover_self, cause);
  }
}

// The plan has moved, or is complete, after it had not for a while.
static void stall_moved(const tt_plan *p)
{
  if (p->stall.said) {
    tt_warn_user("rank %d, communicator %#llx: goes on after %llu s", p->port->rank, (unsigned long long)p->port->hash,
                 (unsigned long long)(p->stall.waited_ns / TT_NS_PER_S));
    p->port->slow_waits++;
  }
  stall_hide(p->port->page);
}

ncclResult_t tt_stall_look(tt_plan *p, uint64_t seen_ns)
{
  bool alone;
  stall_chain c = {.cause = p->port->rank};
  uint64_t mark = stall_mark(p), now = tt_now_ns();
  if (p->stall.since_ns == 0 || p->stall.mark != mark) {
    stall_moved(p);
    p->stall =
        (tt_stall){.since_ns = now, .seen_ns = now, .next_ns = stall_warn_ns(p->port), .mark = mark, .cause = -1};
    return ncclSuccess;
  }
  p->stall.waited_ns += TT_MIN(seen_ns - TT_MIN(seen_ns, p->stall.seen_ns), LOOK_MOST_NS);
  p->stall.seen_ns = seen_ns;
  const tt_lane *l = stall_lane(p, &alone);
  if (l != NULL) {
    stall_show_lane(p, l, alone);
    stall_follow(&c, p->port, p->port->rank, now);
    stall_probe(p->port, c.cause);
  }
  ncclResult_t res = stall_error(p, &c, now);
  bool steady = p->stall.cause == c.cause; // else a page may have been seen while it changed
  p->stall.cause = c.cause;
  if (res == ncclSuccess && steady && p->stall.waited_ns >= p->stall.next_ns) {
    p->stall.next_ns = 2 * p->stall.waited_ns;
    stall_report(p, &c, now);
  }
  return res;
}

void tt_stall_end(tt_plan *p, bool complete)
{
  if (TT_UNLIKELY(p->stall.since_ns != 0)) {
    if (complete) {
      stall_moved(p);
    }
    stall_hide(p->port->page);
    p->stall = (tt_stall){0};
  }
}
