// stall.c: see stall.h.
#include "device/elsewhere.h"
#include "device/stall.h"
#include "device/stall_chain.h"
#include "device/one_sided.h"

#include <stdarg.h>
#include <unistd.h>

#include "base/advice.h"
#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/text.h"
#include "base/util.h"
#include "os/clock.h"

#define FAR_NS TT_NS_PER_S             // a rank of another machine is not reported before: news of it take their time
#define LOOK_MOST_NS (2 * TT_NS_PER_S) // a longer time between two looks: the process did not run
#define TEXT_BYTES TT_VERDICT_TEXT

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

static uint32_t stall_next_number(tt_port *port)
{
  return atomic_fetch_add_explicit(&port->waits, 1, memory_order_relaxed) + 1;
}

// Batches on several streams may wait at a time: the page shows the first one's wait.
static bool stall_may_show(tt_port *port, tt_stall *s)
{
  tt_stall *shown = NULL;
  return !s->batch || atomic_compare_exchange_strong(&port->rma_shown, &shown, s) || shown == s;
}

static void stall_show(tt_port *port, tt_stall *s, const tt_wait *w)
{
  if (stall_may_show(port, s)) {
    tt_wait_show(s->batch ? port->page->rma_wait : port->page->wait, w);
  }
  if (!(w->how & TT_WAIT_BEHIND)) {
    tt_elsewhere_show(port, w);
  }
}

static void stall_hide(tt_port *port, const tt_stall *s)
{
  tt_rank_page *page = port->page;
  tt_elsewhere_show(port, &(tt_wait){.since_ns = 0});
  if (!s->batch) {
    tt_wait_show(page->wait, &(tt_wait){.since_ns = 0});
  } else if (atomic_load_explicit(&port->rma_shown, memory_order_relaxed) == s) {
    for (int i = 0; i < TT_HELD; i++) {
      atomic_store_explicit(&page->held[i], 0, memory_order_relaxed);
    }
    tt_wait_show(page->rma_wait, &(tt_wait){.since_ns = 0});
    atomic_store_explicit(&port->rma_shown, NULL, memory_order_release);
  }
}

void tt_stall_hold(tt_port *port, const tt_stall *s, uint32_t what)
{
  tt_rank_page *page = port->page;
  int i = 0;
  if (atomic_load_explicit(&port->rma_shown, memory_order_relaxed) != s) {
    return;
  }
  uint32_t held;
  while (i < TT_HELD && (held = atomic_load_explicit(&page->held[i], memory_order_relaxed)) != 0 && held != what) {
    i++;
  }
  if (i < TT_HELD && held == 0) {
    atomic_store_explicit(&page->held_ns, tt_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&page->held[i], what, memory_order_release);
  }
}

static tt_wait stall_wait_of(const tt_lane *l, bool alone)
{
  return (tt_wait){.sig = l->call->sig,
                   .count = l->call->sig_count,
                   .peer = (uint32_t)l->waits_for,
                   .how = (l->receives ? TT_WAIT_RECEIVES : 0u) | (alone ? TT_WAIT_ALONE : 0u)};
}

// ---- what this rank waits for

// Does the rank's call stand behind other work, so that it cannot even begin?
static bool stall_is_behind(const tt_port *port, int rank, uint64_t now)
{
  tt_wait w;
  return tt_stall_read(port, rank, now, &w) && (w.how & TT_WAIT_BEHIND) != 0;
}

// The lane that stands for all: the first that waits for another rank, or for one that has not even begun. `*alone`:
// the others wait for that rank, too.
static const tt_lane *stall_lane(const tt_plan *p, uint64_t now, bool *alone)
{
  const tt_lane *first = NULL, *behind = NULL;
  *alone = true;
  for (const tt_lane *l = p->turns; l != NULL; l = l->next) {
    if (!l->done && l->waits_for >= 0 && l->waits_for < p->port->nranks) {
      first = first == NULL ? l : first;
      behind = behind == NULL && stall_is_behind(p->port, l->waits_for, now) ? l : behind;
      *alone &= l->waits_for == first->waits_for && l->receives == first->receives;
    } else if (!l->done) {
      *alone = false;
    }
  }
  return behind != NULL ? behind : first;
}

// What the rank that the lane waits for shows now, for the next look: until then all lanes are looked at again. So this
// wait cannot end before that one, if the peer alone can end it by moving: all that it had done before is here. Over
// shared memory that is so at once. Over a network messages may be under way; the copy of its page tells where none is
// (TT_WAIT_EMPTY). There the network itself may make room for a message, unless the peer takes none (TT_WAIT_SHUT), and
// then the network is full (tt_mover.stands).
static void stall_note_next(const tt_port *port, tt_stall *s, int peer, uint64_t now)
{
  s->next_rank = peer;
  if (!tt_stall_read(port, peer, now, &s->next)) {
    s->next = (tt_wait){.since_ns = 0};
  }
}

static bool stall_is_sure(const tt_port *port, const tt_stall *s, const tt_wait *w)
{
  int peer = (int)w->peer;
  if ((w->how & TT_WAIT_SIGNAL) != 0 || s->next_rank != peer) {
    return false;
  }
  return tt_stall_is_near(port, peer) ||
         (w->how & TT_WAIT_RECEIVES ? (s->next.how & TT_WAIT_EMPTY) != 0
                                    : (s->next.how & TT_WAIT_SHUT) != 0 && port->mover->stands(port->mover_self, peer));
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

// " (channel 0, step 2: a token)", where the rank says that.
static void stall_add_place(stall_text *t, uint32_t how)
{
  const bool receives = (how & TT_WAIT_RECEIVES) != 0;
  if (how & TT_WAIT_AT) {
    stall_add(t, " (channel %u, step %u: %s)", tt_wait_channel(how), tt_wait_step(how),
              how & TT_WAIT_TOKEN ? (receives ? "a token" : "its token back")
              : receives          ? "a message"
                                  : "a free slot");
  }
}

// "rank 0 waits in operation 3 AllReduce … for rank 1", "rank 0 waits to receive 8 bytes from rank 1"; "… waits, in a
// launch of a graph, …".
static void stall_add_wait(stall_text *t, int rank, const tt_wait *w)
{
  char call[TT_CALL_TEXT];
  bool receives = w->how & TT_WAIT_RECEIVES;
  const char *where = w->how & TT_WAIT_REPLAY ? ", in a launch of a graph," : "";
  if (w->how & TT_WAIT_SIGNAL) {
    stall_add(t, "rank %d waits in %s", rank, tt_call_describe(call, w->sig, w->count, (int)w->peer));
  } else if (w->sig >> 32 != 0) {
    stall_add(t, "rank %d waits%s in %s for rank %u", rank, where, tt_call_describe(call, w->sig, w->count, -1),
              w->peer);
    stall_add_place(t, w->how);
  } else {
    stall_add(t, "rank %d waits%s to %s %llu bytes %s rank %u", rank, where, receives ? "receive" : "send",
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
    if (!tt_stall_waits(port, rank, now, &w)) {
      break; // it has just gone on
    }
    near &= tt_stall_is_near(port, rank);
    stall_add(t, steps == 0 ? "" : "; ");
    stall_add_wait(t, rank, &w);
    rank = (int)w.peer;
  } while (rank != first && ++steps < port->nranks);
  return near;
}

static int stall_pid(const tt_port *port, int rank)
{
  return port->neighbors != NULL && port->neighbors[rank].page != NULL ? port->neighbors[rank].pid : 0;
}

static void stall_add_process(stall_text *t, const tt_port *port, int rank)
{
  char text[TT_PROC_TEXT];
  int pid = stall_pid(port, rank);
  if (pid != 0 && pid != getpid() && tt_proc_describe(pid, text)) {
    stall_add(t, ", and its process %d %s", pid, text);
  }
}

// The rank has not done what is waited for. One-sided calls are not shown.
static void stall_add_late(stall_text *t, const tt_wait *wait, const char *last)
{
  bool signal = (wait->how & TT_WAIT_SIGNAL) != 0;
  int what = (int)(wait->sig & 15);
  stall_add(t, "has not %s",
            !signal               ? "called it"
            : what == TT_SIG_WAIT ? "signalled"
            : what == TT_SIG_PUT  ? "registered it"
                                  : "taken them");
  if (last[0] != '\0') {
    stall_add(t, signal ? " (its last collective or message was %s)" : " (its last call was %s)", last);
  } else if (!signal) {
    stall_add(t, ", nor anything else in this communicator");
  }
}

// And what its process waits for meanwhile in another communicator.
static void stall_add_elsewhere(stall_text *t, const tt_port *port, int rank, uint64_t now)
{
  tt_wait w;
  if (tt_stall_elsewhere(port, rank, now, &w)) {
    stall_add(t, "; it waits in communicator %#llx: ", (unsigned long long)w.hash);
    stall_add_wait(t, (int)w.number, &w);
    stall_add(t, " there");
  }
}

// What the rank does, for which `wait` waits. Returns the class of that.
static const char *stall_add_rank(stall_text *t, const tt_port *port, int rank, const tt_wait *wait, uint64_t now)
{
  char call[TT_CALL_TEXT];
  uint64_t shown, count;
  tt_wait w;
  const tt_rank_page *page = tt_stall_page(port, rank);
  uint32_t number = (uint32_t)(wait->sig >> 32);
  stall_add(t, "rank %d ", rank);
  if (!tt_stall_sees(port, rank)) {
    stall_add(t, "is on another machine, whose log says more");
    return "remote";
  }
  bool behind = tt_stall_read(port, rank, now, &w) && (w.how & TT_WAIT_BEHIND) != 0;
  if (behind && ((w.how ^ wait->how) & TT_WAIT_SIGNAL) == 0) {
    stall_add(t, "has queued its call behind ");
    stall_add(t, w.hash != 0 ? "%s of communicator %#llx, in the same stream" : "other work in the same stream",
              tt_call_describe(call, w.sig, w.count, -1), (unsigned long long)w.hash);
    return "behind";
  }
  if (wait->how & TT_WAIT_REPLAY) { // what a page shows of the call is its capture
    stall_add(t, "has not launched a graph with it as often, or does not go on");
    stall_add_process(t, port, rank);
    stall_add_elsewhere(t, port, rank, now);
    return "late";
  }
  if (number != 0 && tt_page_shown(page, number, &shown, &count)) {
    stall_add(t, "has begun it, but does not go on");
    stall_add_process(t, port, rank);
    return "stuck";
  }
  bool called = tt_shown_read(&page->shown[atomic_load(&page->now) % (1 + TT_SHOWN)], &shown, &count);
  stall_add_late(t, wait, called ? tt_call_describe(call, shown, count, -1) : "");
  stall_add_process(t, port, rank);
  stall_add_elsewhere(t, port, rank, now);
  return "late";
}

// How many ranks of this machine wait for this cause. 0: one with a lower number than this one does, and reports it.
static int stall_count(const tt_port *port, int cause, uint64_t now, uint64_t warn_ns)
{
  int n = 1;
  tt_stall_chain c;
  for (int i = 0; port->neighbors != NULL && i < port->nranks; i++) {
    if (i == port->rank || !tt_stall_is_near(port, i)) {
      continue;
    }
    tt_stall_follow(&c, port, i, NULL, now);
    if (c.n > 0 && c.cause == cause) {
      if (i < port->rank && now - TT_MIN(now, c.first.since_ns) >= warn_ns) {
        return 0;
      }
      n++;
    }
  }
  return n;
}

// `n`: ranks of this machine that wait for the same cause; 0: not counted. Returns the class (stall.h).
static const char *stall_verdict(stall_text *t, const tt_port *port, const tt_stall_chain *c, uint64_t now, int n)
{
  if (c->n == 0) { // no rank: a network that reduces
    stall_add(t, "rank %d waits for the network that reduces", port->rank);
    return "network";
  }
  if (c->circle) {
    stall_text circle = {.length = 0};
    bool near = stall_add_circle(&circle, port, c->relayed ? port->rank : c->cause, now);
    near &= !c->relayed;
    if (c->relayed) {
      stall_add(&circle, "; and so on, as rank %d says, to rank %d", c->last_rank, c->cause);
    }
    stall_add(t, near ? "deadlock, ranks wait for each other: "
                      : "ranks of several machines wait for each other, and messages may be lost: ");
    stall_add(t, "%s", circle.text);
    return near ? "deadlock" : "circle";
  }
  stall_add_wait(t, port->rank, &c->first);
  stall_add(t, "; ");
  if (c->n > 1) {
    stall_add_wait(t, c->last_rank, &c->last);
    stall_add(t, c->relayed ? ", and so, as it says, for rank %d; " : "; ", c->cause);
  }
  const char *class = stall_add_rank(t, port, c->cause, &c->last, now);
  if (n > 0) {
    stall_add(t, "; %d rank%s of this machine wait%s for it", n, n == 1 ? "" : "s", n == 1 ? "s" : "");
  }
  return class;
}

void tt_stall_tell(const tt_port *port, tt_verdict *out)
{
  tt_stall_chain c;
  stall_text t = {.length = 0};
  uint64_t now = tt_now_ns();
  *out = (tt_verdict){.class = "none", .cause = -1};
  tt_stall_follow(&c, port, port->rank, NULL, now);
  if (c.n == 0) {
    return; // it does not wait for a rank
  }
  out->class = stall_verdict(&t, port, &c, now, 0);
  out->cause = c.circle ? -1 : c.cause;
  out->pid = c.circle ? 0 : stall_pid(port, c.cause);
  out->waited_ns = now - TT_MIN(now, c.first.since_ns);
  tt_format(out->text, sizeof out->text, "%s", t.text);
}

bool tt_stall_view(const tt_port *port, int rank, tt_rank_view *out)
{
  static const char *const states[] = {"starting", "running", "failed", "aborted", "revoked", "finalized", "lost"};
  const tt_rank_page *page = tt_stall_page(port, rank);
  uint64_t now = tt_now_ns();
  *out = (tt_rank_view){.pid = stall_pid(port, rank)};
  if (page == NULL) {
    return false;
  }
  uint32_t state = atomic_load_explicit(&page->state, memory_order_acquire);
  out->state = state < TT_COUNT(states) ? states[state] : "?";
  if (tt_shown_read(&page->shown[atomic_load(&page->now) % (1 + TT_SHOWN)], &out->sig, &out->count)) {
    out->number = (uint32_t)(out->sig >> 32);
    tt_call_describe(out->call, out->sig, out->count, -1);
  }
  out->waits = tt_stall_read(port, rank, now, &out->wait);
  out->waited_ns = out->waits ? now - TT_MIN(now, out->wait.since_ns) : 0;
  return true;
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
  unsigned doubled = TT_MIN(atomic_load_explicit(&port->slow_waits, memory_order_relaxed), 8u);
  return first_ns > UINT64_MAX >> doubled ? UINT64_MAX : first_ns << doubled;
}

// When it is reported although the looks do not agree, or lead to a rank of which nothing is known.
static uint64_t stall_unripe_ns(uint64_t next_ns)
{
  return next_ns > UINT64_MAX / 2 - TT_STALL_PROOF_NS ? UINT64_MAX : 2 * (next_ns + TT_STALL_PROOF_NS);
}

static void stall_report(const tt_stalled *k, const tt_stall_chain *c, uint64_t now)
{
  stall_text t = {.length = 0};
  tt_port *port = k->port;
  tt_stall *s = k->stall;
  const tt_rank_page *page = tt_stall_page(port, c->cause);
  int n = c->n == 0 ? 1 : stall_count(port, c->cause, now, stall_warn_ns(port));
  if (n == 0 || (page != NULL && atomic_load_explicit(&page->state, memory_order_acquire) >= TT_RANK_FAILED)) {
    return; // another rank reports it, or an error comes
  }
  stall_verdict(&t, port, c, now, n);
  tt_warn_user("no progress for %llu.%llu s in communicator %#llx: %s (NCCL_STALL_WARN_MS)",
               (unsigned long long)(s->waited_ns / TT_NS_PER_S),
               (unsigned long long)(s->waited_ns / (TT_NS_PER_S / 10) % 10), (unsigned long long)port->hash, t.text);
  s->said = true;
  if (port->alarm != NULL) {
    port->alarm(port);
  }
}

static ncclResult_t stall_error(const tt_stalled *k, const tt_stall_chain *c, uint64_t now)
{
  stall_text t = {.length = 0};
  uint64_t waited_ns = k->stall->waited_ns;
  if (c->n > 0 && tt_stall_is_deadlock(k->port, &c->first, now)) {
    stall_add_circle(&t, k->port, k->port->rank, now);
    return tt_fail(ncclInvalidUsage, "deadlock: ranks wait for each other, and none can go on: %s", t.text);
  }
  int64_t own = k->error_ms, limit_ms = own != 0 ? own : tt_params_get()->stall_error_ms;
  if (waited_ns >= stall_limit_ns(limit_ms)) {
    stall_verdict(&t, k->port, c, now, 0);
    return tt_fail(ncclTimeout, "no progress for %llu ms (%s): %s", (unsigned long long)(waited_ns / TT_NS_PER_MS),
                   own != 0 ? "TUTTI_OPTION_STALL_ERROR_MS" : "NCCL_STALL_ERROR_MS", t.text);
  }
  return ncclSuccess;
}

// Brings the copy of the rank's page up to date, if it is on another machine.
static void stall_probe(const tt_port *port, int rank)
{
  const tt_link *link = rank == port->rank ? NULL : __atomic_load_n(&port->links[rank], __ATOMIC_ACQUIRE);
  if (link != NULL && link->networked) {
    port->mover->probe(port->mover_self, rank);
  }
}

// The work has moved, or is complete, after it had not for a while.
static void stall_moved(tt_port *port, const tt_stall *s)
{
  if (s->said) {
    tt_warn_user("rank %d, communicator %#llx: goes on after %llu s", port->rank, (unsigned long long)port->hash,
                 (unsigned long long)(s->waited_ns / TT_NS_PER_S));
    atomic_fetch_add_explicit(&port->slow_waits, 1, memory_order_relaxed);
  }
  stall_hide(port, s);
}

// Shows the wait, and follows it. *c: whom it leads to.
static void stall_trace(const tt_stalled *k, tt_stall_chain *c, uint64_t now)
{
  const tt_stall *s = k->stall;
  tt_wait w = *k->wait;
  w.since_ns = s->since_ns;
  w.seen_ns = s->seen_ns;
  w.hash = s->hash;
  w.how |= s->how;
  w.how |= stall_is_sure(k->port, s, &w) ? TT_WAIT_SURE : 0u;
  w.number = s->number;
  w.after = s->next.since_ns != 0 && s->next_rank == (int)w.peer ? s->next.number : 0;
  stall_show(k->port, k->stall, &w);
  stall_note_next(k->port, k->stall, (int)w.peer, now);
  tt_stall_follow(c, k->port, k->port->rank, &w, now);
  stall_probe(k->port, c->cause);
  if (c->n > 0) {
    stall_probe(k->port, c->last_rank);
  }
}

ncclResult_t tt_stall_look_at(const tt_stalled *k, uint64_t seen_ns)
{
  tt_stall *s = k->stall;
  tt_stall_chain c = {.cause = k->port->rank};
  uint64_t now = tt_now_ns();
  s->batch = k->batch;
  if (s->since_ns == 0 || s->mark != k->mark) {
    stall_moved(k->port, s);
    *s = (tt_stall){.since_ns = now,
                    .seen_ns = now,
                    .next_ns = stall_warn_ns(k->port),
                    .mark = k->mark,
                    .cause = -1,
                    .number = stall_next_number(k->port),
                    .batch = k->batch};
    return ncclSuccess;
  }
  s->waited_ns += TT_MIN(seen_ns - TT_MIN(seen_ns, s->seen_ns), LOOK_MOST_NS);
  s->seen_ns = seen_ns;
  if (k->wait != NULL) {
    stall_trace(k, &c, now);
  }
  ncclResult_t res = stall_error(k, &c, now);
  bool early = c.far && s->waited_ns < (c.circle ? TT_STALL_PROOF_NS : FAR_NS);
  bool steady = s->cause == c.cause && !c.old; // else a page may have been seen while it changed
  bool ripe = steady && !early && (!c.blind || c.n == 1);
  s->cause = c.cause;
  bool known = c.n == 0 || (steady && !c.circle && !c.blind);
  s->hash = c.n == 0 ? 0 : known ? (uint64_t)(int64_t)(c.cause + 1) : tt_wait_least(c.least, c.hops);
  s->how = known ? 0 : TT_WAIT_LEAST | (c.circle ? (uint32_t)TT_WAIT_ROUND : 0u);
  if (res == ncclSuccess && s->waited_ns >= (ripe ? s->next_ns : stall_unripe_ns(s->next_ns))) {
    s->next_ns = 2 * s->waited_ns;
    stall_report(k, &c, now);
  }
  return res;
}

ncclResult_t tt_stall_look(tt_plan *p, uint64_t seen_ns)
{
  bool alone;
  const tt_lane *l = stall_lane(p, tt_now_ns(), &alone);
  tt_wait w = l != NULL ? stall_wait_of(l, alone) : (tt_wait){.since_ns = 0};
  const tt_stalled k = {.port = p->port,
                        .stall = &p->stall,
                        .mark = stall_mark(p),
                        .wait = l != NULL ? &w : NULL,
                        .error_ms = p->stall_error_ms};
  return tt_stall_look_at(&k, seen_ns);
}

void tt_stall_over(tt_port *port, tt_stall *s, bool complete)
{
  if (TT_UNLIKELY(s->since_ns != 0)) {
    if (complete) {
      stall_moved(port, s);
    }
    stall_hide(port, s);
    *s = (tt_stall){0};
  }
}

// ---- two communicators whose calls stand in streams in opposite order

// Follows who waits for whom in `port` from a rank on, to one whose call stands behind one of communicator `hash`.
// Returns that communicator's rank there; -1: it is not proved that the first rank depends on it. Adds the waits to
// `t`.
static int stall_cross(stall_text *t, const tt_port *port, int rank, uint64_t hash, uint64_t now)
{
  tt_wait w, next;
  char call[TT_CALL_TEXT];
  if (!tt_stall_waits(port, rank, now, &w)) {
    return -1;
  }
  for (int steps = 0; steps < port->nranks; steps++, w = next) {
    int peer = (int)w.peer;
    if (!tt_stall_read(port, peer, now, &next) || !tt_stall_depends(port, rank, &w, &next, now)) {
      return -1;
    }
    if (steps == 0 || (next.how & TT_WAIT_BEHIND) != 0) {
      stall_add_wait(t, rank, &w);
      stall_add(t, " in communicator %#llx; ", (unsigned long long)port->hash);
    }
    if ((next.how & TT_WAIT_BEHIND) != 0) {
      stall_add(t, "rank %d has queued its call there behind %s of communicator %#llx; ", peer,
                tt_call_describe(call, next.sig, next.count, -1), (unsigned long long)next.hash);
      return next.hash == hash && now >= next.since_ns + TT_STALL_PROOF_NS ? (int)next.peer : -1;
    }
    rank = peer;
  }
  return -1;
}

// The rank's plan of `port` stands behind one of `current`. Is it proved that this one waits for the first, by way of
// other ranks that stand in the opposite order? Then both fail. The runner of both.
static void stall_prove_behind(tt_port *port, tt_port *current)
{
  stall_text t = {.length = 0};
  uint64_t now = tt_now_ns();
  int rank = current->rank, hops = 0;
  do {
    int there = stall_cross(&t, current, rank, port->hash, now);
    rank = there < 0 || there >= port->nranks ? -1 : stall_cross(&t, port, there, current->hash, now);
  } while (rank >= 0 && rank < current->nranks && rank != current->rank && ++hops < current->nranks);
  if (rank != current->rank) {
    return;
  }
  (void)tt_fail(ncclInvalidUsage, "deadlock: two communicators are used in opposite order on one stream: %s", t.text);
  tt_port_stop(current, ncclInvalidUsage);
  tt_port_stop(port, ncclInvalidUsage);
}

// Must every rank make this call before any can complete it?
static bool stall_needs_all(uint64_t sig)
{
  return sig >> 32 != 0 && tt_call_needs_all(sig);
}

// Does a rank of `c`, which may be on another machine, stand in the opposite order of the two? It runs a call of p's
// communicator that p's rank has not begun, and has not begun the call that `c` runs. So neither can ever complete,
// whatever is under way over a network, and however old the copy of its page is. Its wait goes to *w. -1: no rank.
static int stall_opposite(const tt_plan *p, const tt_plan *c, tt_wait *w)
{
  uint64_t sig = c->calls[0].sig, count;
  uint32_t own = (uint32_t)(p->calls[0].sig >> 32), number = (uint32_t)(sig >> 32);
  for (int i = 0; i < c->port->nranks && stall_needs_all(sig) && own != 0; i++) {
    const tt_rank_page *page = i == c->port->rank ? NULL : tt_stall_page(c->port, i);
    uint64_t shown;
    bool waits = page != NULL && tt_wait_read(page, w);
    if (!waits || (w->how & (TT_WAIT_BEHIND | TT_WAIT_SIGNAL)) != TT_WAIT_BEHIND || w->hash != p->port->hash) {
      continue;
    }
    bool begun = (int32_t)((uint32_t)(w->sig >> 32) - own) < 0 || tt_page_shown(page, number, &shown, &count);
    bool last = tt_shown_read(&page->shown[atomic_load(&page->now) % (1 + TT_SHOWN)], &shown, &count);
    if (!begun && stall_needs_all(w->sig) && (!last || (int32_t)((uint32_t)(shown >> 32) - number) < 0)) {
      return i;
    }
  }
  return -1;
}

// The same proof where the other rank may be on another machine.
static void stall_prove_far(tt_plan *p, tt_plan *c, uint64_t now)
{
  tt_wait w;
  char here[TT_CALL_TEXT], there[TT_CALL_TEXT];
  int peer = now < p->stall.since_ns + TT_STALL_PROOF_NS ? -1 : stall_opposite(p, c, &w);
  if (peer < 0) {
    return;
  }
  (void)tt_fail(
      ncclInvalidUsage,
      "deadlock: two communicators are used in opposite order on one stream: rank %d is in %s of communicator "
      "%#llx before that of communicator %#llx; rank %d is in %s there, and has queued its call here behind it",
      c->port->rank, tt_call_describe(here, c->calls[0].sig, c->calls[0].sig_count, -1),
      (unsigned long long)c->port->hash, (unsigned long long)p->port->hash, peer,
      tt_call_describe(there, w.sig, w.count, -1));
  tt_port_stop(c->port, ncclInvalidUsage);
  tt_port_stop(p->port, ncclInvalidUsage);
}

// The plan of `current`; NULL: it is other work.
static tt_plan *stall_plan(const tt_work *current)
{
  bool plan = current->ops == &tt_plan_ops || current->ops == &tt_plan_watched_ops;
  return plan ? (tt_plan *)(uintptr_t)current : NULL;
}

// The port of `current`; NULL: it is neither a plan nor a batch.
static const tt_port *stall_port(const tt_work *current)
{
  const tt_plan *c = stall_plan(current);
  return c != NULL ? c->port : current->ops == &tt_rma_ops ? ((const tt_rma_batch *)current)->rma->port : NULL;
}

void tt_stall_show_behind(tt_port *port, tt_stall *s, const tt_work *current)
{
  const tt_plan *c = stall_plan(current);
  uint64_t now = tt_now_ns();
  if (s->since_ns == 0) {
    s->since_ns = now;
    s->number = stall_next_number(port);
  }
  tt_wait w = {.since_ns = s->since_ns,
               .seen_ns = now,
               .how = TT_WAIT_BEHIND | (s->batch ? (uint32_t)TT_WAIT_SIGNAL : 0u),
               .number = s->number};
  if (c != NULL && c->ncalls > 0) {
    w.sig = c->calls[0].sig;
    w.count = c->calls[0].sig_count;
    w.hash = c->port->hash;
    w.peer = (uint32_t)c->port->rank;
  }
  stall_show(port, s, &w);
}

void tt_stall_behind(tt_plan *p, const tt_work *current)
{
  tt_plan *c = stall_plan(current);
  if (atomic_load_explicit(&p->port->done, memory_order_acquire) != p->ticket) {
    return; // an earlier plan of the communicator shows more
  }
  if (stall_port(current) == p->port) { // that one shows more
    if (c == NULL) {
      tt_stall_hold(p->port, &((const tt_rma_batch *)current)->stall, TT_HELD_PLANS);
    }
    return;
  }
  tt_stall_show_behind(p->port, &p->stall, current);
  if (c != NULL && tt_port_status(c->port) == ncclSuccess) {
    stall_prove_behind(p->port, c->port);
    if (tt_port_status(c->port) == ncclSuccess && c->ncalls > 0 && p->ncalls > 0) {
      stall_prove_far(p, c, tt_now_ns());
    }
  }
}
