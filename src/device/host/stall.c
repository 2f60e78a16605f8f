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

#define FRESH_CHECKS 10            // a rank that waits looks this often at least, in turns of NCCL_PEER_CHECK_MS
#define PROOF_NS (2 * TT_NS_PER_S) // a circle that has stood for so long is one for ever
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
  tt_wait_show(page, &(tt_wait){0});
}

static void stall_show_lane(const tt_plan *p, const tt_lane *l, bool alone, uint64_t now)
{
  tt_wait w = {.since_ns = p->stall.since_ns,
               .seen_ns = now,
               .sig = l->call->sig,
               .count = l->call->sig_count,
               .peer = (uint32_t)l->waits_for,
               .how = (l->receives ? TT_WAIT_RECEIVES : 0u) | (alone ? TT_WAIT_ALONE : 0u)};
  tt_wait_show(p->port->page, &w);
}

void tt_stall_behind(tt_plan *p, const tt_work *current)
{
  const tt_plan *c = current->ops->behind != NULL ? (const tt_plan *)current : NULL;
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

// The page of a rank, or the copy of it that the network brings. NULL: this rank is not connected with it.
static const tt_rank_page *stall_page(const tt_port *port, int rank)
{
  const tt_rank_page *near = port->neighbors != NULL ? port->neighbors[rank].page : NULL;
  const tt_link *link = port->links[rank];
  return rank == port->rank ? port->page : near != NULL ? near : link != NULL ? link->page : NULL;
}

// What the rank shows. False: nothing, or it has not looked for long: its process may be stopped.
static bool stall_read(const tt_port *port, int rank, uint64_t now, tt_wait *out)
{
  const tt_rank_page *page = stall_page(port, rank);
  return page != NULL && tt_wait_read(page, out) && out->peer < (uint32_t)port->nranks &&
         now < out->seen_ns + FRESH_CHECKS * tt_peer_check_ns();
}

// Does the rank wait for another one?
static bool stall_waits(const tt_port *port, int rank, uint64_t now, tt_wait *out)
{
  return stall_read(port, rank, now, out) && !(out->how & TT_WAIT_BEHIND);
}

// The rank that those wait for which `rank` waits for, and so on. In a circle: the least of its ranks, and *circle.
static int stall_cause(const tt_port *port, int rank, uint64_t now, bool *circle)
{
  tt_wait w;
  int steps = 0;
  *circle = false;
  for (; steps < port->nranks && stall_waits(port, rank, now, &w); steps++) {
    rank = (int)w.peer;
  }
  if (steps < port->nranks) {
    return rank;
  }
  int least = rank;
  for (steps = 0; steps < port->nranks && stall_waits(port, rank, now, &w); steps++) {
    rank = (int)w.peer;
    least = TT_MIN(least, rank);
  }
  *circle = steps == port->nranks;
  return *circle ? least : rank;
}

// Can no rank of the circle ever move? Each waits for a message from the next one and for nothing else, has looked for
// it after the next one had stopped moving, and plans of a communicator are over one after the other. All are on this
// machine: over a network something may be under way. `rank`: in the circle.
static bool stall_is_proved(const tt_port *port, int rank, uint64_t now)
{
  int first = rank;
  tt_wait w, next;
  do {
    bool near = rank == port->rank || (port->neighbors != NULL && port->neighbors[rank].page != NULL);
    if (!near || !stall_waits(port, rank, now, &w) || !stall_waits(port, (int)w.peer, now, &next) ||
        w.how != (TT_WAIT_RECEIVES | TT_WAIT_ALONE) || w.seen_ns < next.since_ns || now < w.since_ns + PROOF_NS) {
      return false;
    }
    rank = (int)w.peer;
  } while (rank != first);
  return true;
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

static void stall_add_circle(stall_text *t, const tt_port *port, int first, uint64_t now)
{
  tt_wait w;
  int rank = first;
  do {
    if (!stall_waits(port, rank, now, &w)) {
      return;
    }
    stall_add(t, rank == first ? "" : "; ");
    stall_add_wait(t, rank, &w);
    rank = (int)w.peer;
  } while (rank != first);
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
  bool behind = stall_read(port, rank, now, &w);
  stall_add(t, "rank %d ", rank);
  if (behind && w.hash != 0) {
    stall_add(t, "has queued its call behind %s of communicator %#llx, in the same stream",
              tt_call_describe(call, w.sig, w.count, -1), (unsigned long long)w.hash);
  } else if (behind) {
    stall_add(t, "has queued its call behind other work in the same stream");
  } else if (page != NULL && number != 0 && tt_page_shown(page, number, &shown, &count)) {
    stall_add(t, "has begun it, but does not go on");
  } else if (page != NULL && tt_shown_read(&page->shown[atomic_load(&page->now) % (1 + TT_SHOWN)], &shown, &count)) {
    stall_add(t, "has not called it (its last call was %s)", tt_call_describe(call, shown, count, -1));
  } else {
    stall_add(t, "has not called it, nor anything else in this communicator");
  }
  if (!behind) {
    stall_add_process(t, port, rank);
  }
}

// How many ranks of this machine wait for this cause. 0: a rank with a lower number than this one does, and speaks.
static int stall_count(const tt_port *port, int cause, uint64_t now, uint64_t warn_ns)
{
  int n = 1;
  for (int i = 0; port->neighbors != NULL && i < port->nranks; i++) {
    tt_wait w;
    bool circle;
    if (i != port->rank && stall_waits(port, i, now, &w) && stall_cause(port, i, now, &circle) == cause) {
      if (i < port->rank && now >= w.since_ns + warn_ns) {
        return 0;
      }
      n++;
    }
  }
  return n;
}

// `n`: ranks of this machine that wait for the same cause; 0: not counted.
static void stall_verdict(stall_text *t, const tt_port *port, uint64_t now, int n)
{
  tt_wait w;
  bool circle;
  int cause = stall_cause(port, port->rank, now, &circle);
  if (circle) {
    stall_add(t, "ranks wait for each other in a circle: ");
    stall_add_circle(t, port, cause, now);
  } else if (stall_waits(port, port->rank, now, &w)) {
    stall_add_wait(t, port->rank, &w);
    stall_add(t, "; ");
    stall_add_rank(t, port, cause, w.sig, now);
    if (n > 0) {
      stall_add(t, "; %d rank%s of this machine wait%s for it", n, n == 1 ? "" : "s", n == 1 ? "s" : "");
    }
  }
}

// ---- looking

static uint64_t stall_limit_ns(int64_t ms)
{
  return ms <= 0 ? UINT64_MAX : (uint64_t)TT_MIN(ms, INT64_MAX / 1000000) * TT_NS_PER_MS;
}

static void stall_say(tt_plan *p, uint64_t now)
{
  stall_text t = {.length = 0};
  bool circle;
  const tt_port *port = p->port;
  uint64_t warn_ns = stall_limit_ns(tt_params_get()->stall_warn_ms);
  int cause = stall_cause(port, port->rank, now, &circle), n = stall_count(port, cause, now, warn_ns);
  const tt_rank_page *page = stall_page(port, cause);
  if (n == 0 || (page != NULL && atomic_load_explicit(&page->state, memory_order_acquire) >= TT_RANK_FAILED)) {
    return; // another rank speaks, or an error comes
  }
  stall_verdict(&t, port, now, n);
  tt_warn_user("no progress for %llu s in communicator %#llx: %s (NCCL_STALL_WARN_MS)",
               (unsigned long long)((now - p->stall.since_ns) / TT_NS_PER_S), (unsigned long long)port->hash, t.text);
  p->stall.said_ns = now;
}

// Is it time to say it, for the first time or again?
static bool stall_is_due(const tt_plan *p, uint64_t now)
{
  const tt_stall *s = &p->stall;
  uint64_t next = s->said_ns == 0 ? stall_limit_ns(tt_params_get()->stall_warn_ms) : 2 * (s->said_ns - s->since_ns);
  return now - s->since_ns >= next;
}

static ncclResult_t stall_error(const tt_plan *p, uint64_t now)
{
  stall_text t = {.length = 0};
  bool circle;
  const tt_port *port = p->port;
  int cause = stall_cause(port, port->rank, now, &circle);
  if (circle && stall_is_proved(port, cause, now)) {
    stall_add_circle(&t, port, cause, now);
    return tt_fail(ncclInvalidUsage, "ranks wait for each other in a circle, and none can go on: %s", t.text);
  }
  if (now - p->stall.since_ns >= stall_limit_ns(tt_params_get()->stall_error_ms)) {
    stall_verdict(&t, port, now, 0);
    return tt_fail(ncclTimeout, "no progress for %llu ms (NCCL_STALL_ERROR_MS): %s",
                   (unsigned long long)((now - p->stall.since_ns) / TT_NS_PER_MS), t.text);
  }
  return ncclSuccess;
}

// Brings the copy of the cause's page up to date, if it is on another machine.
static void stall_probe(const tt_port *port, uint64_t now)
{
  bool circle;
  int cause = stall_cause(port, port->rank, now, &circle);
  const tt_link *link = cause == port->rank ? NULL : port->links[cause];
  if (link != NULL && link->networked) {
    port->mover->probe(port->mover_self, cause);
  }
}

// The plan has moved, or is complete, after it had not for a while.
static void stall_moved(const tt_plan *p, uint64_t now)
{
  if (p->stall.said_ns != 0) {
    tt_warn_user("rank %d, communicator %#llx: goes on after %llu s", p->port->rank, (unsigned long long)p->port->hash,
                 (unsigned long long)((now - p->stall.since_ns) / TT_NS_PER_S));
  }
  stall_hide(p->port->page);
}

ncclResult_t tt_stall_look(tt_plan *p)
{
  bool alone;
  uint64_t now = tt_now_ns(), mark = stall_mark(p);
  if (p->stall.since_ns == 0 || p->stall.mark != mark) {
    stall_moved(p, now);
    p->stall = (tt_stall){.since_ns = now, .mark = mark};
    return ncclSuccess;
  }
  const tt_lane *l = stall_lane(p, &alone);
  if (l == NULL) {
    return ncclSuccess;
  }
  stall_show_lane(p, l, alone, now);
  stall_probe(p->port, now);
  ncclResult_t res = stall_error(p, now);
  if (res == ncclSuccess && stall_is_due(p, now)) {
    stall_say(p, now);
  }
  return res;
}

void tt_stall_end(tt_plan *p, bool complete)
{
  if (TT_UNLIKELY(p->stall.since_ns != 0)) {
    if (complete) {
      stall_moved(p, tt_now_ns());
    }
    stall_hide(p->port->page);
    p->stall = (tt_stall){0};
  }
}
