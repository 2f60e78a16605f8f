// wait.c: the one place where a rank of a formed or forming ring waits, and where its predecessor comes in meanwhile.
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/text.h"
#include "base/util.h"
#include "bootstrap/bootstrap_priv.h"

#define LINE_NS (30 * TT_NS_PER_S)    // between two lines that say what is waited for; earlier where patience is short
#define SLICE_NS (100 * TT_NS_PER_MS) // the longest sleep between two looks at the abort flags

static _Thread_local int wait_ring = -1; // tt_bootstrap_listen

void tt_bootstrap_listen(int ring)
{
  wait_ring = ring;
}

uint64_t tt_bs_patience_ns(void)
{
  return tt_span_ns(tt_params_get()->bootstrap_timeout, TT_NS_PER_S);
}

static uint64_t next_line_ns(void)
{
  return tt_now_ns() + TT_MIN(LINE_NS, tt_bs_patience_ns() / 3 * 2);
}

void tt_bootstrap_watch(tt_bootstrap *b, const volatile uint32_t *also, const char *what)
{
  b->abort_also = also;
  b->what = what;
}

void tt_bootstrap_care(tt_bootstrap *b, tt_ring_look_fn look, void *arg, bool own)
{
  b->look = look;
  b->look_arg = arg;
  b->look_own = own;
}

void tt_bs_hold(tt_bootstrap *b)
{
  while (__atomic_exchange_n(&b->busy, 1, __ATOMIC_ACQUIRE) != 0) {
    sched_yield(); // a look from outside takes microseconds
  }
}

void tt_bs_release(tt_bootstrap *b)
{
  __atomic_store_n(&b->busy, 0, __ATOMIC_RELEASE);
}

tt_bootstrap *tt_bs_new(int rank, int nranks, const tt_key *key, const volatile uint32_t *abort_flag)
{
  tt_bootstrap *b = tt_calloc(1, sizeof(*b));
  if (b == NULL) {
    (void)tt_fail(ncclSystemError, "no memory for the bootstrap of rank %d of %d", rank, nranks);
    return NULL;
  }
  b->next = b->prev = b->dead = b->cause = -1;
  b->rank = rank;
  b->nranks = nranks;
  b->successor = (int)(((int64_t)rank + 1) % nranks); // of a number out of range, which the root refuses: nothing
  b->predecessor = (int)(((int64_t)rank + nranks - 1) % nranks);
  b->owner = getpid();
  b->key = *key;
  tt_key name = tt_key_derive(key, "name", NULL, 0);
  memcpy(b->name, name.b, sizeof(b->name));
  b->abort_flag = abort_flag;
  b->line_ns = next_line_ns();
  return b;
}

ncclResult_t tt_bs_begin(tt_bootstrap *b, const char *fmt, ...)
{
  va_list ap;
  int used = snprintf(b->doing, sizeof(b->doing), "rank %d of %d: %s%s", tt_shrink_name(b, b->rank), tt_shrink_size(b),
                      b->what == NULL ? "" : b->what, b->what == NULL ? "" : ": ");
  va_start(ap, fmt);
  tt_vformat(b->doing + used, sizeof(b->doing) - (size_t)used, fmt, ap);
  va_end(ap);
  b->awaits[0] = '\0';
  b->line_ns = next_line_ns();
  b->look_ns = tt_now_ns() + SLICE_NS;
  ncclResult_t broken = __atomic_load_n(&b->broken, __ATOMIC_ACQUIRE);
  if (getpid() != b->owner) {
    return tt_fail(ncclInvalidUsage, "%s: a forked child cannot use its parent's communicator; create one in the child",
                   b->doing);
  }
  if (broken != ncclSuccess && b->heard) {
    return tt_ring_error(b);
  }
  if (broken != ncclSuccess) {
    return tt_fail(broken, "%s: an earlier call of this kind failed or was aborted, and ended the ring of these ranks",
                   b->doing);
  }
  return ncclSuccess;
}

void tt_bs_awaits(tt_bootstrap *b, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  tt_vformat(b->awaits, sizeof(b->awaits), fmt, ap);
  va_end(ap);
}

// Lets in the connections that have proved themselves; the predecessor's is the only one that may. Errors: those of a
// shrink's door.
static ncclResult_t let_prev_in(tt_bootstrap *b)
{
  tt_hello h;
  int fd = -1;
  while (tt_greeter_next(&b->door, &h, &fd)) {
    if (b->shrinks != NULL) {
      TT_TRY(tt_shrink_judge(b, &h, fd));
    } else if (h.rank == b->predecessor && b->prev < 0) {
      b->prev = fd;
    } else {
      tt_attn(TT_BOOTSTRAP, "%s: dropped a connection from rank %d, which is not the predecessor", b->doing, h.rank);
      tt_sock_close(&fd);
    }
  }
  return ncclSuccess;
}

static bool bs_aborted(const tt_bootstrap *b)
{
  return tt_aborted(b->abort_flag) || tt_aborted(b->abort_also);
}

// Asks whether a rank has died, if it is time.
static ncclResult_t bs_look(tt_bootstrap *b)
{
  uint64_t now = tt_now_ns();
  if (b->look == NULL || now < b->look_ns) {
    return ncclSuccess;
  }
  b->look_ns = now + SLICE_NS;
  b->dead = b->look(b->look_arg);
  return b->dead < 0 ? ncclSuccess
                     : tt_fail(ncclRemoteError, "%s: rank %d%s has died", b->doing, b->dead,
                               b->look_own ? "" : " of the parent");
}

// After a while of waiting: says so, and ends the connection to a successor that cannot be reached any more.
static void say_line(tt_bootstrap *b)
{
  tt_attn(TT_BOOTSTRAP, "%s: still waiting%s%s", b->doing, b->awaits[0] != '\0' ? " for " : "", b->awaits);
  b->line_ns = next_line_ns();
  if (b->next >= 0 && tt_sock_lost(b->next)) {
    tt_sock_kill(b->next);
  }
}

ncclResult_t tt_bs_wait(tt_bootstrap *b, struct pollfd *want, size_t nwant, uint64_t wake_ns)
{
  struct pollfd fds[TT_BS_WANTS + TT_GREET_POLL + 1];
  bool watched = b->abort_flag != NULL || b->abort_also != NULL || b->look != NULL;
  if (bs_aborted(b)) {
    return ncclInternalError;
  }
  tt_until until = {.deadline_ns = b->line_ns};
  tt_wake_by(&until.deadline_ns, wake_ns);
  tt_wake_by(&until.deadline_ns, watched ? tt_now_ns() + SLICE_NS : 0);
  memcpy(fds, want, nwant * sizeof(*want));
  bool served = b->prev < 0; // later ones are for a shrink
  size_t n = nwant + (served ? tt_greeter_poll(&b->door, fds + nwant, &until.deadline_ns) : 0);
  fds[n] = (struct pollfd){.fd = wait_ring, .events = POLLIN};
  (void)tt_sock_poll(fds, n + (wait_ring >= 0), &until);
  if (fds[n].revents != 0) {
    tt_ring_clear(wait_ring);
  }
  memcpy(want, fds, nwant * sizeof(*want));
  bool others = served && b->door.npending > 0;
  for (size_t i = nwant; i < n; i++) {
    others |= fds[i].revents != 0;
  }
  if (bs_aborted(b)) {
    return ncclInternalError;
  }
  if (tt_now_ns() >= b->line_ns) {
    say_line(b);
  }
  if (others) {
    TT_TRY(let_prev_in(b));
  }
  return bs_look(b);
}

ncclResult_t tt_bs_dial(tt_bootstrap *b, tt_dial *d, int *fd, int *e)
{
  tt_addr at;
  ncclResult_t res = ncclSuccess;
  while (res == ncclSuccess && (*e = tt_dial_step(d, fd, &at)) == 0) {
    struct pollfd want[TT_DIAL_POLL];
    uint64_t wake_ns = 0;
    size_t n = tt_dial_poll(d, want, &wake_ns);
    res = tt_bs_wait(b, want, n, wake_ns);
  }
  *e = TT_MIN(*e, 0);
  return res;
}
