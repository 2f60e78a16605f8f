// owner.c: see owner.h.
#include "device/cuda/work/owner.h"

#include "base/log.h"
#include "device/cuda/work/capture_priv.h"
#include "os/clock.h"

#ifndef TT_GPU_OWNER_MS
#define TT_GPU_OWNER_MS 1500 // for the longest step of a peer
#endif
#define OWNER_NS (TT_GPU_OWNER_MS * TT_NS_PER_MS)

// The peer's tokens come by this FIFO, and this rank's go by that one. NULL: there are none.
static tt_fifo_line *tokens_line(const tt_link *link, bool sends)
{
  const tt_fifo *f = sends ? &link->send[TT_TOK] : &link->recv[TT_TOK];
  return link->networked || f->slots == NULL ? NULL : tt_fifo_line_of(f);
}

static const tt_link *owner_link(const tt_gpu_port *p, int peer)
{
  return peer == p->port->rank ? NULL : __atomic_load_n(&p->port->links[peer], __ATOMIC_ACQUIRE);
}

static void captured_end(tt_fifo_line *line, int peer, bool sends, void *arg)
{
  (void)peer;
  (void)arg;
  if (sends) {
    atomic_store_explicit(&line->ended, 1, memory_order_release);
  }
}

static void owner_end(tt_gpu_port *p)
{
  for (int i = 0; i < p->port->nranks; i++) {
    const tt_link *link = owner_link(p, i);
    tt_fifo_line *line = link != NULL ? tokens_line(link, true) : NULL;
    if (line != NULL) {
      atomic_store_explicit(&line->ended, 1, memory_order_release);
    }
  }
  tt_gpu_captures_tokens(p, captured_end, NULL);
  atomic_thread_fence(memory_order_seq_cst);
}

// Has the process ended, with all that it had on GPUs? It gives up its life before its devices.
static bool user_is_gone(const tt_link *link)
{
  const char doing = tt_link_ended(link) ? tt_proc_doing(link->proc.pid) : 'R';
  return doing == 0 || doing == 'Z' || doing == 'X';
}

static bool line_is_used(tt_fifo_line *line)
{
  return atomic_load_explicit(&line->uses, memory_order_acquire) != 0;
}

// A link whose peer uses this rank's memory in a replay.
typedef struct replay_user {
  const tt_gpu_port *port;
  const tt_link *link; // NULL: none has been found
} replay_user;

static void captured_used(tt_fifo_line *line, int peer, bool sends, void *arg)
{
  replay_user *u = arg;
  const tt_link *link = u->link == NULL && sends && line_is_used(line) ? owner_link(u->port, peer) : NULL;
  u->link = link != NULL && !user_is_gone(link) ? link : u->link;
}

// A link whose peer uses this rank's memory. NULL: there is none.
static const tt_link *owner_user(tt_gpu_port *p)
{
  replay_user replays = {.port = p};
  tt_gpu_captures_tokens(p, captured_used, &replays);
  for (int i = 0; i < p->port->nranks && replays.link == NULL; i++) {
    const tt_link *link = owner_link(p, i);
    tt_fifo_line *line = link != NULL ? tokens_line(link, true) : NULL;
    if (line != NULL && line_is_used(line) && !user_is_gone(link)) {
      return link;
    }
  }
  return replays.link;
}

// Has the port waited long enough for this peer's step?
static bool user_is_left(tt_gpu_port *p, const tt_link *link)
{
  const uint64_t now = tt_now_ns();
  uint64_t since = 0;
  if (__atomic_compare_exchange_n(&p->used_ns, &since, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    since = now;
    tt_info(TT_COLL, "rank %d has stopped, and waits until a kernel of rank %d (process %d) has done with its buffers",
            p->port->rank, link->peer, link->proc.pid);
  }
  if (now - TT_MIN(since, now) < OWNER_NS) {
    return false;
  }
  if (!atomic_exchange(&p->unused, true)) {
    tt_warn("rank %d has stopped, but a kernel of rank %d (process %d) that uses its buffers has not ended for %d ms: "
            "the buffers of the last operation may still be read and written. Kill that process, or do not use that "
            "memory for anything else",
            p->port->rank, link->peer, link->proc.pid, (int)(OWNER_NS / TT_NS_PER_MS));
  }
  return true;
}

bool tt_gpu_owner_free(tt_gpu_port *p)
{
  owner_end(p); // each time: connections come about meanwhile
  if (atomic_load_explicit(&p->unused, memory_order_acquire)) {
    return true;
  }
  const tt_link *link = owner_user(p);
  return link == NULL || user_is_left(p, link);
}

static void captured_leave(tt_fifo_line *line, int peer, bool sends, void *arg)
{
  (void)peer;
  (void)arg;
  if (!sends) {
    atomic_store_explicit(&line->uses, 0, memory_order_release);
  }
}

void tt_gpu_owner_leave(const tt_gpu_port *p)
{
  tt_gpu_captures_tokens(p, captured_leave, NULL);
  for (int i = 0; i < p->port->nranks; i++) {
    const tt_link *link = owner_link(p, i);
    tt_fifo_line *line = link != NULL ? tokens_line(link, false) : NULL;
    if (line != NULL) {
      atomic_store_explicit(&line->uses, 0, memory_order_release);
    }
  }
}
