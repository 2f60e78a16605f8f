// port.c: stopping a rank, telling its peers, and waiting for those that write into its memory.
#include <stdio.h>

#include "base/log.h"
#include "base/result.h"
#include "device/one_sided.h"
#include "device/owner.h"
#include "os/clock.h"

#define LOOK_NS (100 * TT_NS_PER_MS) // between two looks whether a writer lives
// How long a stopped rank waits for a writer whose process is stopped, and for one whose process runs.
#define HALTED_NS (300 * TT_NS_PER_MS)
#define WRITER_NS (800 * TT_NS_PER_MS)

// The page of a rank; NULL: this rank is not connected with it, and it is on another machine.
static tt_rank_page *port_page(const tt_port *port, int rank)
{
  if (port->neighbors != NULL && port->neighbors[rank].page != NULL) {
    return port->neighbors[rank].page;
  }
  tt_link *link = port->links != NULL ? __atomic_load_n(&port->links[rank], __ATOMIC_ACQUIRE) : NULL;
  return link != NULL ? link->page : NULL;
}

void tt_port_ring_all(tt_port *port)
{
  tt_bell_fence();
  for (int i = 0; i < port->nranks; i++) {
    tt_rank_page *page = i == port->rank ? NULL : port_page(port, i);
    if (page != NULL) {
      tt_bell_alarm(&page->bell);
    }
  }
  tt_bell_ring(&port->page->bell);
}

const char *tt_culprit_text(char out[TT_CULPRIT_TEXT], const tt_port *port, tt_culprit c, const char *joint)
{
  static const char *const what[] = {
      [TT_RANK_FAILED] = "has failed",
      [TT_RANK_ABORTED] = "has aborted the communicator",
      [TT_RANK_REVOKED] = "has revoked the communicator",
      [TT_RANK_GONE] = "has finalized or destroyed the communicator",
      [TT_RANK_LOST] = "cannot be reached any more: its process has ended, or the network between has failed",
      [TT_RANK_KILLED] = "was killed, or left by _exit",
      [TT_RANK_EXITED] = "has exited without ncclCommDestroy",
  };
  char where[112] = "";
  int rank = tt_culprit_rank(c);
  const tt_neighbor *n = port->neighbors != NULL ? &port->neighbors[rank] : NULL;
  if (n != NULL && n->host != NULL) {
    snprintf(where, sizeof where, " (pid %d, host %.64s)", n->number, n->host);
  }
  snprintf(out, TT_CULPRIT_TEXT, "rank %d%s%s %s", rank, where, joint, what[tt_culprit_how(c)]);
  return out;
}

// Has the process of this rank of the machine ended, which its page says to be running?
static bool is_dead(const tt_port *port, int rank)
{
  const tt_neighbor *n = &port->neighbors[rank];
  uint64_t own = port->neighbors[port->rank].cookie;
  // Its life first: a rank that leaves in order says so before it lets go.
  return n->page != NULL && n->cookie != own && !tt_proc_holds(port->life, n->cookie) &&
         atomic_load_explicit(&n->page->state, memory_order_acquire) == TT_RANK_RUNNING &&
         atomic_load_explicit(&n->page->exits, memory_order_acquire) == 0;
}

bool tt_culprit_is_valid(const tt_port *port, tt_culprit c)
{
  return (uint32_t)tt_culprit_rank(c) < (uint32_t)port->nranks && tt_culprit_rank(c) != port->rank &&
         tt_culprit_how(c) >= TT_RANK_FAILED && tt_culprit_how(c) <= TT_RANK_EXITED;
}

// What the ranks of this machine that have stopped say.
static tt_culprit culprit_shown(const tt_port *port)
{
  for (int i = 0; i < port->nranks; i++) {
    const tt_rank_page *page = port->neighbors[i].page;
    if (page != NULL && i != port->rank && atomic_load_explicit(&page->state, memory_order_acquire) >= TT_RANK_FAILED) {
      tt_culprit c = __atomic_load_n(&page->culprit, __ATOMIC_RELAXED);
      if (tt_culprit_died(c) && tt_culprit_is_valid(port, c)) {
        return c;
      }
    }
  }
  return 0;
}

tt_culprit tt_port_look(tt_port *port)
{
  if (port->neighbors == NULL) {
    return 0;
  }
  tt_culprit c = culprit_shown(port);
  uint32_t at = atomic_load_explicit(&port->looked, memory_order_relaxed);
  int looks = port->life < 0 ? 0 : TT_MIN(port->nranks, (int)TT_PORT_LOOKS);
  for (int i = 0; i < looks && c == 0; i++) {
    int rank = (int)(++at % (uint32_t)port->nranks);
    c = is_dead(port, rank) ? tt_culprit_of(rank, TT_RANK_KILLED) : 0;
  }
  atomic_store_explicit(&port->looked, at, memory_order_relaxed);
  return c;
}

ncclResult_t tt_port_accuse(const tt_port *port, int rank, const tt_rank_page *page, uint32_t state,
                            tt_culprit *culprit)
{
  char text[TT_CULPRIT_TEXT], root[TT_CULPRIT_TEXT];
  if (state == TT_RANK_LOST &&
      __atomic_load_n(&port->exited, __ATOMIC_ACQUIRE) == tt_culprit_of(rank, TT_RANK_EXITED)) {
    state = TT_RANK_EXITED;
  }
  const tt_why *why = &page->why;
  if (state == TT_RANK_FAILED && why->code != ncclSuccess && why->code < ncclNumResults) {
    *culprit = tt_culprit_of(rank, state);
    return tt_fail((ncclResult_t)why->code, "%.*s", (int)sizeof why->text - 1, why->text);
  }
  tt_culprit first = tt_culprit_of(rank, state), said = __atomic_load_n(&page->culprit, __ATOMIC_RELAXED);
  bool passes =
      state == TT_RANK_FAILED && said != 0 && tt_culprit_rank(said) != rank && tt_culprit_is_valid(port, said);
  *culprit = passes ? said : first;
  return tt_fail(ncclRemoteError, "rank %d waits for %s%s%s", port->rank, tt_culprit_text(text, port, first, ", which"),
                 passes ? " because " : "", passes ? tt_culprit_text(root, port, said, "") : "");
}

static void port_lock(tt_port *port)
{
  while (atomic_exchange_explicit(&port->stopping, 1, memory_order_acquire) != 0) {
  }
}

static void port_unlock(tt_port *port)
{
  atomic_store_explicit(&port->stopping, 0, memory_order_release);
}

// The port has stopped for what another rank's end has caused, a broken connection for instance: here is the cause.
static void port_explain(tt_port *port, tt_culprit c, const char *why)
{
  port_lock(port);
  bool known = tt_culprit_how(__atomic_load_n(&port->page->culprit, __ATOMIC_RELAXED)) > TT_RANK_LOST;
  if (!known && !atomic_load_explicit(&port->rooted, memory_order_relaxed)) {
    snprintf(port->root, sizeof port->root, "%s", why);
    __atomic_store_n(&port->page->culprit, c, __ATOMIC_RELAXED);
    atomic_store_explicit(&port->rooted, true, memory_order_release);
    tt_last_error_root(why);
  }
  port_unlock(port);
}

bool tt_port_blame(tt_port *port, tt_culprit c)
{
  char text[TT_CULPRIT_TEXT], why[TT_CULPRIT_TEXT + 32];
  ncclResult_t status = tt_port_status(port);
  snprintf(why, sizeof why, "rank %d: %s", port->rank, tt_culprit_text(text, port, c, ""));
  if (status == ncclSuccess) {
    tt_last_error_root(why);
    tt_port_stop_for(port, tt_fail(ncclRemoteError, "%s", why), c);
  } else if (status == ncclRemoteError && tt_culprit_how(c) > TT_RANK_LOST) {
    port_explain(port, c, why);
  }
  return status == ncclSuccess;
}

bool tt_port_watch(tt_port *port)
{
  tt_culprit c = tt_port_look(port);
  if (c != 0) {
    tt_port_blame(port, c);
  }
  return c == 0;
}

void tt_port_watch_idle(tt_port *port, uint64_t every_ns)
{
  uint64_t now = tt_now_ns(), last = __atomic_load_n(&port->watched_ns, __ATOMIC_RELAXED);
  if (now - last >= every_ns &&
      __atomic_compare_exchange_n(&port->watched_ns, &last, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    tt_port_watch(port);
  }
}

void tt_port_stop(tt_port *port, ncclResult_t code)
{
  tt_port_stop_for(port, code, 0);
}

// Is the error one of all ranks alike (tt_why)?
static bool port_concerns_all(ncclResult_t code, tt_culprit c)
{
  return code == ncclInvalidUsage || code == ncclTimeout || tt_culprit_how(c) == TT_RANK_GONE;
}

void tt_port_stop_for(tt_port *port, ncclResult_t code, tt_culprit culprit)
{
  const char *why = tt_last_error();
  bool failed = false;
  // The text is written before the code is published; the second caller changes nothing.
  port_lock(port);
  if (tt_port_status(port) == ncclSuccess) {
    snprintf(port->error, sizeof port->error, "%s", why == NULL ? "" : why);
    uint32_t how = __atomic_load_n(&port->abort_flag, __ATOMIC_ACQUIRE);
    uint32_t state = how == TT_REVOKED ? TT_RANK_REVOKED : how != 0 ? TT_RANK_ABORTED : TT_RANK_FAILED;
    failed = state == TT_RANK_FAILED;
    if (failed && port_concerns_all(code, culprit)) {
      port->page->why.code = (uint32_t)code;
      snprintf(port->page->why.text, sizeof port->page->why.text, "%.*s", (int)sizeof port->page->why.text - 1,
               port->error);
    }
    __atomic_store_n(&port->page->culprit, culprit, __ATOMIC_RELAXED);
    // First: a rank that sees the code looks which peers still write (owner.h).
    atomic_store_explicit(&port->page->state, state, memory_order_release);
    atomic_store_explicit(&port->stop, (uint32_t)code, memory_order_release);
  }
  port_unlock(port);
  if (port->mover != NULL) {
    port->mover->state_changed(port->mover_self);
  }
  tt_port_ring_all(port);
  if (failed && port->alarm != NULL) {
    port->alarm(port);
  }
}

// Does the peer's page name this rank?
static bool is_named(const tt_port *port, const tt_link *link)
{
  uint32_t whose = atomic_load_explicit(&link->page->writes, memory_order_acquire);
  return (link->in != NULL && tt_row_is_written(link->in)) || whose == (uint32_t)port->rank + 1 ||
         whose == TT_WRITES_ALL;
}

// Has the rank waited long enough for the piece that this peer is writing? Then it waits no more, and says so.
static bool writer_is_left(tt_port *port, const tt_link *link)
{
  uint64_t now = tt_now_ns(), since = 0;
  if (__atomic_compare_exchange_n(&port->writer_ns, &since, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    since = now;
  }
  char doing = tt_proc_doing(link->proc.pid);
  bool halted = doing == 'T' || doing == 't';
  if (now - since < (halted ? HALTED_NS : WRITER_NS)) {
    return false;
  }
  if (!atomic_exchange(&port->unwritten, true)) {
    tt_warn("rank %d has stopped, but rank %d (process %d%s) is in the middle of writing into its output, and does not "
            "finish: if that process goes on, up to %u KiB of the output of the last operation may still change. Kill "
            "the process, or do not use that memory for anything else",
            port->rank, link->peer, link->proc.pid, halted ? ", which is stopped by a signal" : "",
            TT_WRITES_BYTES >> 10);
  }
  return true;
}

const tt_link *tt_port_writer(tt_port *port, bool look)
{
  if (atomic_load_explicit(&port->unwritten, memory_order_acquire)) {
    return NULL;
  }
  tt_bell_fence(); // the state was stored before
  for (int i = 0; port->links != NULL && i < port->nranks; i++) {
    const tt_link *link = __atomic_load_n(&port->links[i], __ATOMIC_ACQUIRE);
    if (link == NULL || link->page == NULL || i == port->rank || !is_named(port, link) ||
        (look && (tt_link_ended(link) || writer_is_left(port, link)))) {
      continue;
    }
    return link;
  }
  atomic_store_explicit(&port->unwritten, true, memory_order_release);
  return NULL;
}

void tt_port_await_writers(tt_port *port)
{
  tt_bell *bell = &port->page->bell;
  bool rung = true;
  while (tt_port_writer(port, !rung) != NULL) {
    uint32_t ticket = tt_bell_announce(bell);
    rung = tt_port_writer(port, false) == NULL || tt_bell_sleep(&bell, &ticket, 1, LOOK_NS);
    tt_bell_leave(bell);
  }
}
