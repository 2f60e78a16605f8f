// ring_end.c: how a ring ends, and how all of its ranks learn the cause.
//
// A rank that must stop, or leaves in order, sends STOP frames both ways round the ring. They say which rank is the
// cause, so every rank names the same one. A connection that is closed or reset without such a frame means that the
// process behind it has died; one with another error may be the network's fault. Between calls nobody reads the
// connections; tt_bootstrap_look does it then, so that the news goes on.
#define _GNU_SOURCE // POLLRDHUP
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/result.h"
#include "bootstrap/bootstrap_priv.h"

enum { PEEK = 8192 };
enum { REASON_BIT = 8, ATTEMPT_BIT = 16, ATTEMPT_MOST = 0xffff, FINISHED_BIT = 32 }; // in the size of a STOP
#define TELL_PREV_NS (TT_NS_PER_S / 2) // for the predecessor to come: as long as a root waits for a lost rank

// Why a rank is the cause, beside ncclRemoteError. Sent as it is.
static const struct {
  const char *text;
  tt_ring_end end;
} reasons[] = {
    [TT_STOP_GONE] = {"has gone", TT_RING_ENDED},
    [TT_STOP_LATE] = {"has not made this call in time (NCCL_BOOTSTRAP_TIMEOUT)", TT_RING_ENDED},
    [TT_STOP_ABORTED] = {"was aborted in it, or stopped waiting", TT_RING_ENDED},
    [TT_STOP_LISTS] = {"excludes other ranks than the rank before it: all survivors must pass the same ranks",
                       TT_RING_ENDED},
    [TT_STOP_PAST] = {"has given this shrink up, and is at a later one", TT_RING_ENDED},
    [TT_STOP_DIED] = {"has gone: it was killed, or left by _exit", TT_RING_DIED},
    [TT_STOP_LOST] = {"has gone, or the network between has failed", TT_RING_LOST},
    [TT_STOP_EXITED] = {"has gone: it has exited without ncclCommDestroy", TT_RING_EXITED},
};

// What a frame says, be it a STOP or not.
typedef struct stop {
  int cause;
  ncclResult_t code;
  tt_stop_reason reason;
  uint32_t attempt, finished;
} stop;

static uint32_t attempt_of(const tt_bootstrap *b)
{
  return b->shrinks != NULL ? TT_MIN(b->shrinks->attempt, ATTEMPT_MOST) : 0;
}

static tt_frame stop_frame(const tt_bootstrap *b, int cause, ncclResult_t code, tt_stop_reason reason)
{
  return (tt_frame){.kind = TT_FRAME_STOP,
                    .number = (uint32_t)cause,
                    .size = (uint64_t)code | (uint64_t)reason << REASON_BIT | (uint64_t)attempt_of(b) << ATTEMPT_BIT |
                            (uint64_t)b->finished << FINISHED_BIT};
}

void tt_ring_stop(tt_bootstrap *b, bool forward, int cause, ncclResult_t code, tt_stop_reason reason)
{
  b->last_stop = stop_frame(b, cause, code, reason);
  if (b->next >= 0 && forward) {
    (void)tt_sock_send(b->next, &b->last_stop, sizeof b->last_stop);
  }
  if (b->prev >= 0) {
    (void)tt_sock_send(b->prev, &b->last_stop, sizeof b->last_stop);
  }
  tt_sock_finish(b->next);
  tt_sock_finish(b->prev);
  b->cause = cause;
  b->reason = reason;
  b->end = reasons[reason].end;
  __atomic_store_n(&b->broken, code, __ATOMIC_RELEASE);
}

void tt_ring_tell(tt_bootstrap *b, int fd)
{
  (void)tt_sock_send(fd, &b->last_stop, sizeof(b->last_stop));
  tt_sock_finish(fd);
}

// The cause of a shrink that is refused has its number in the parent.
static bool names_parents(const tt_bootstrap *b)
{
  return b->reason == TT_STOP_LISTS || b->reason == TT_STOP_PAST;
}

static bool is_cause(const tt_bootstrap *b, int rank)
{
  return b->cause == (names_parents(b) ? tt_shrink_name(b, rank) : rank);
}

void tt_ring_tell_late_prev(tt_bootstrap *b)
{
  uint64_t end_ns = tt_now_ns() + TELL_PREV_NS;
  struct pollfd none = {.fd = -1};
  if (b->prev >= 0 || is_cause(b, b->predecessor) || tt_aborted(b->abort_flag)) {
    return;
  }
  while (b->prev < 0 && tt_now_ns() < end_ns && tt_bs_wait(b, &none, 1, end_ns) == ncclSuccess) {
  }
  if (b->prev >= 0) {
    tt_ring_tell(b, b->prev);
  }
}

void tt_ring_refuse(const tt_bootstrap *b, int fd, int cause, ncclResult_t code, tt_stop_reason reason)
{
  tt_frame f = stop_frame(b, cause, code, reason);
  (void)tt_sock_send(fd, &f, sizeof f);
  tt_sock_finish(fd);
  tt_sock_close(&fd);
}

void tt_bootstrap_stop(tt_bootstrap *b)
{
  if (b == NULL) {
    return;
  }
  tt_bs_hold(b);
  if (b->broken == ncclSuccess) {
    tt_ring_stop(b, true, b->rank, ncclRemoteError, TT_STOP_ABORTED);
  }
  tt_bs_release(b);
}

static stop stop_read(const tt_bootstrap *b, const tt_frame *f)
{
  uint8_t code = (uint8_t)f->size, reason = (uint8_t)(f->size >> REASON_BIT);
  return (stop){.cause = f->number < (uint32_t)tt_shrink_size(b) ? (int)f->number : b->rank,
                .code = code > 0 && code < ncclInProgress ? (ncclResult_t)code : ncclRemoteError,
                .reason = reason < TT_COUNT(reasons) ? (tt_stop_reason)reason : TT_STOP_GONE,
                .attempt = (uint32_t)(f->size >> ATTEMPT_BIT) & ATTEMPT_MOST,
                .finished = (uint32_t)(f->size >> FINISHED_BIT)};
}

bool tt_ring_ends_past(const tt_bootstrap *b, int neighbour, const tt_frame *f)
{
  if (b->shrinks == NULL || f->kind != TT_FRAME_STOP) {
    return false;
  }
  stop s = stop_read(b, f);
  bool gone = s.reason == TT_STOP_GONE || reasons[s.reason].end != TT_RING_ENDED; // another rank, and for good
  return s.attempt < attempt_of(b) && !(gone && s.cause != neighbour);
}

bool tt_ring_ends_later(const tt_bootstrap *b, const tt_frame *f)
{
  return f->kind == TT_FRAME_STOP && stop_read(b, f).finished >= b->sequence;
}

ncclResult_t tt_ring_neighbour_ended(tt_bootstrap *b, bool forward, int neighbour, const tt_frame *f)
{
  stop s = {.cause = neighbour, .code = ncclRemoteError, .reason = f == NULL ? TT_STOP_DIED : TT_STOP_LOST};
  if (f != NULL && f->kind == TT_FRAME_STOP) {
    s = stop_read(b, f);
  }
  tt_ring_stop(b, forward, s.cause, s.code, s.reason);
  return tt_ring_error(b);
}

ncclResult_t tt_ring_error(const tt_bootstrap *b)
{
  int name = names_parents(b) ? b->cause : tt_shrink_name(b, b->cause);
  if (b->broken != ncclRemoteError && b->reason != TT_STOP_LISTS) {
    return tt_fail(b->broken, "%s: stopped, because a call failed on rank %d (%s)", b->doing, name,
                   tt_result_string(b->broken));
  }
  bool neighbour = is_cause(b, b->predecessor) || is_cause(b, b->successor);
  return tt_fail(b->broken, "%s: rank %d %s%s", b->doing, name, reasons[b->reason].text,
                 neighbour ? "" : " (a neighbour reported it)");
}

// ---- between calls

// Has the neighbour behind `fd` ended the ring? What it has sent for the next call stays where it is. `ended`: nothing
// more can come.
static bool peek_stop(const tt_bootstrap *b, int fd, int neighbour, bool ended, stop *out)
{
  char data[PEEK];
  ssize_t n = fd < 0 ? -EAGAIN : tt_sock_take(fd, data, sizeof data, true);
  size_t at = 0, got = n > 0 ? (size_t)n : 0;
  *out = (stop){.cause = neighbour,
                .code = ncclRemoteError,
                .reason = tt_ring_is_closed(n) || n > 0 ? TT_STOP_DIED : TT_STOP_LOST};
  while (got - at >= sizeof(tt_frame)) {
    tt_frame f;
    memcpy(&f, data + at, sizeof f);
    if (f.kind == TT_FRAME_STOP) {
      *out = stop_read(b, &f);
      return !tt_ring_ends_past(b, neighbour, &f);
    }
    if (f.kind != TT_FRAME_BLOCK || f.size > got - at - sizeof f) {
      return false; // a call will see
    }
    at += sizeof f + (size_t)f.size;
  }
  if (n < 0) {
    return n != -EAGAIN;
  }
  if (at < got || got == sizeof data) {
    return false;
  }
  // A STOP may have come behind what was looked at, and then the end.
  return ended || (tt_sock_ended(fd) && peek_stop(b, fd, neighbour, true, out));
}

static bool hear_neighbours(tt_bootstrap *b)
{
  stop s;
  bool news = b->broken == ncclSuccess &&
              (peek_stop(b, b->prev, b->predecessor, false, &s) || peek_stop(b, b->next, b->successor, false, &s));
  if (news) {
    b->heard = true; // before `broken` is set
    tt_ring_stop(b, true, s.cause, s.code, s.reason);
  }
  return news;
}

ncclResult_t tt_ring_hear(tt_bootstrap *b)
{
  return hear_neighbours(b) ? tt_ring_error(b) : ncclSuccess;
}

tt_ring_end tt_bootstrap_look(tt_bootstrap *b, int *rank)
{
  if (__atomic_exchange_n(&b->busy, 1, __ATOMIC_ACQUIRE) != 0) {
    return TT_RING_BUSY;
  }
  (void)hear_neighbours(b);
  tt_ring_end end = b->end;
  *rank = b->cause;
  tt_bs_release(b);
  return end;
}

void tt_bootstrap_connections(const tt_bootstrap *b, int fds[2])
{
  fds[0] = b->prev;
  fds[1] = b->next;
}

static void ring_leave_for(tt_bootstrap *b, tt_stop_reason reason)
{
  if (b->broken == ncclSuccess && b->nranks > 1 && b->owner == getpid()) {
    tt_ring_stop(b, true, b->rank, ncclRemoteError, reason);
  }
}

void tt_bootstrap_exit(tt_bootstrap *b)
{
  if (b != NULL && __atomic_exchange_n(&b->busy, 1, __ATOMIC_ACQUIRE) == 0) {
    ring_leave_for(b, TT_STOP_EXITED);
    tt_bs_release(b);
  }
}

void tt_ring_leave(tt_bootstrap *b)
{
  ring_leave_for(b, TT_STOP_GONE);
}
