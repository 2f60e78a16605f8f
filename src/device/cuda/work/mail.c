// mail.c: see mail.h.
#include "device/cuda/work/mail.h"

#include <stdio.h>
#include <string.h>

#include "base/advice.h"
#include "base/param.h"
#include "base/result.h"
#include "os/clock.h"
#include "os/proc.h"

enum { NAP_LEAST_NS = 10 * 1000, NAP_MOST_NS = 1000 * 1000, LATE_TEXT = TT_PROC_TEXT + 128 };

// What has become of the peer; TT_RANK_RUNNING as long as it answers. A rank that has left in order answers until it
// has completed what it had begun.
static uint32_t mail_state(const tt_gpu_port *p, int peer)
{
  const tt_neighbor *n = tt_gpu_neighbor(p, peer);
  const bool ended = p->port->life >= 0 && !tt_proc_holds(p->port->life, n->cookie);
  const uint32_t state = atomic_load_explicit(&n->page->state, memory_order_acquire);
  const bool exits = atomic_load_explicit(&n->page->exits, memory_order_acquire) != 0,
             serves = atomic_load_explicit(&n->to->served, memory_order_acquire) != TT_GPU_MAIL_LEFT;
  if (ended && state < TT_RANK_FAILED) {
    return exits ? TT_RANK_EXITED : TT_RANK_KILLED;
  }
  return state < TT_RANK_FAILED || (state == TT_RANK_GONE && serves && !ended) ? TT_RANK_RUNNING : state;
}

static void mail_late_text(char out[LATE_TEXT], const tt_gpu_port *p, int peer, int64_t seconds)
{
  char doing[TT_PROC_TEXT];
  const int pid = tt_gpu_neighbor(p, peer)->pid,
            n = snprintf(out, LATE_TEXT, "rank %d: rank %d has not answered for %lld s whether it can open memory",
                         p->port->rank, peer, (long long)seconds);
  if (pid != 0 && tt_proc_describe(pid, doing)) {
    snprintf(out + n, (size_t)(LATE_TEXT - n), "; its process %d %s", pid, doing);
  }
}

// Warns once the peer has been late for NCCL_STALL_WARN_MS.
static void mail_warn(const tt_gpu_port *p, int peer, uint64_t since_ns, bool *said)
{
  char text[LATE_TEXT];
  const int64_t ms = tt_params_get()->stall_warn_ms;
  if (!*said && ms > 0 && (int64_t)((tt_now_ns() - since_ns) / TT_NS_PER_MS) >= ms) {
    *said = true;
    mail_late_text(text, p, peer, ms / 1000);
    tt_warn_user("%s (NCCL_STALL_WARN_MS)", text);
  }
}

static bool mail_answered(const tt_mail *m, uint32_t number)
{
  return atomic_load_explicit(&m->answered, memory_order_acquire) == number;
}

// Waits for the answer to that request.
static bool mail_await(const tt_gpu_port *p, int peer, uint32_t number, uint64_t since_ns, uint32_t *state)
{
  const tt_mail *m = tt_gpu_neighbor(p, peer)->to;
  const uint64_t limit_ns = tt_span_ns(tt_params_get()->bootstrap_timeout, TT_NS_PER_S);
  uint64_t nap_ns = NAP_LEAST_NS;
  bool said = false;
  *state = TT_RANK_RUNNING;
  while (!mail_answered(m, number)) {
    const bool looks = nap_ns == NAP_MOST_NS; // at the peer's process: a system call
    *state = looks ? mail_state(p, peer) : TT_RANK_RUNNING;
    const bool gone = *state != TT_RANK_RUNNING && !mail_answered(m, number); // what it answered before counts
    if (gone || tt_port_status(p->port) != ncclSuccess ||
        __atomic_load_n(&p->port->abort_flag, __ATOMIC_RELAXED) != 0 || tt_now_ns() - since_ns > limit_ns) {
      return false;
    }
    mail_warn(p, peer, since_ns, &said);
    tt_sleep_ns(nap_ns);
    nap_ns = TT_MIN(nap_ns * 3 / 2, (uint64_t)NAP_MOST_NS);
  }
  return true;
}

// The peer may be reading an earlier request still, which came too late for this rank.
bool tt_gpu_mail_request(const tt_gpu_port *p, int peer, const void *body, size_t bytes, uint32_t *answer,
                         uint32_t *state)
{
  tt_mail *m = tt_gpu_neighbor(p, peer)->to;
  const uint64_t since_ns = tt_now_ns();
  const uint32_t asked = atomic_load_explicit(&m->asked, memory_order_relaxed);
  if (!mail_await(p, peer, asked, since_ns, state)) {
    return false;
  }
  memcpy(m->body, body, bytes);
  atomic_store_explicit(&m->asked, asked + 1, memory_order_release);
  tt_bell_fence();
  tt_bell_ring(&tt_gpu_neighbor(p, peer)->page->bell);
  if (!mail_await(p, peer, asked + 1, since_ns, state)) {
    return false;
  }
  *answer = m->answer;
  return true;
}

ncclResult_t tt_gpu_mail_fail(const tt_gpu_port *p, int peer, uint32_t state)
{
  tt_culprit culprit = 0;
  char text[LATE_TEXT];
  ncclResult_t res = tt_port_status(p->port);
  if (res != ncclSuccess) {
    return res;
  }
  if (state != TT_RANK_RUNNING) {
    res = tt_port_accuse(p->port, peer, tt_gpu_neighbor(p, peer)->page, state, &culprit);
  } else if (__atomic_load_n(&p->port->abort_flag, __ATOMIC_RELAXED) != 0) {
    return tt_fail(ncclInternalError, "rank %d: aborted", p->port->rank);
  } else {
    mail_late_text(text, p, peer, tt_params_get()->bootstrap_timeout);
    res = tt_fail(ncclRemoteError, "%s (NCCL_BOOTSTRAP_TIMEOUT)", text);
  }
  tt_port_stop_for(p->port, res, culprit);
  return res;
}

ncclResult_t tt_gpu_mail_require(const tt_gpu_port *p, int peer, const void *body, size_t bytes, uint32_t *answer)
{
  uint32_t state;
  return tt_gpu_mail_request(p, peer, body, bytes, answer, &state) ? ncclSuccess : tt_gpu_mail_fail(p, peer, state);
}
