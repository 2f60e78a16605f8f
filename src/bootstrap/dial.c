// dial.c: see dial.h.
#include "bootstrap/dial.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "os/clock.h"
#include "os/events.h"

#define STAGGER_NS (100 * TT_NS_PER_MS)
#define PAUSE_NS (20 * TT_NS_PER_MS) // after the first drop; longer each time
enum { TRIES = 50, LONGEST_PAUSE = 10 };

typedef enum { IDLE, CONNECTING, SHAKING, RESTING, FAILED } try_state;

// One address.
typedef struct {
  try_state state;
  int tries;        // connections that were dropped
  int error;        // the last one
  uint64_t wake_ns; // RESTING: when to try again
  tt_shake shake;
} try;

struct tt_dial {
  tt_addrs to;
  tt_key key;
  tt_hello hello;
  uint64_t deadline_ns; // 0: none
  uint64_t next_ns;     // when the next address may begin
  uint32_t begun;       // addresses that have
  int speaker;          // whose hello is said; -1: nobody's
  bool again;           // a try has failed: look at the others once more
  int failure;          // after the end, or 0
  int events;           // a set that watches the connections, or -1
  void *owner;          // whom it tells
  try tries[TT_ADDRS_MAX];
};

int tt_dial_start(const tt_addrs *to, const tt_key *key, const tt_hello *hello, uint64_t deadline_ns, tt_dial **out)
{
  if (to->n < 1 || to->n > TT_ADDRS_MAX) {
    return -EINVAL;
  }
  tt_dial *d = tt_calloc(1, sizeof(*d));
  if (d == NULL) {
    return -ENOMEM;
  }
  d->to = *to;
  d->key = *key;
  d->hello = *hello;
  d->deadline_ns = deadline_ns;
  d->speaker = d->events = -1;
  for (int i = 0; i < TT_ADDRS_MAX; i++) {
    d->tries[i].shake.fd = -1;
  }
  *out = d;
  return 0;
}

void tt_dial_watch(tt_dial *d, int events, void *owner)
{
  d->events = events;
  d->owner = owner;
}

// The set is told first: a forked child may have a copy of the descriptor.
static void leave_set(const tt_dial *d, const try *t)
{
  if (d->events >= 0 && t->shake.fd >= 0) {
    tt_events_remove(d->events, t->shake.fd);
  }
}

static void close_try(const tt_dial *d, try *t)
{
  leave_set(d, t);
  tt_sock_close(&t->shake.fd);
}

// How much a failure says about the whole: the right one may be where this process could not even try, or where nothing answers; somebody
// was there and refused, or was not ours; nobody was. (-EADDRNOTAVAIL is also what an address of a family that this machine has not got
// says.)
static int weight_of_error(int e)
{
  switch (e) {
  case -EMFILE:
  case -ENFILE:
  case -ENOBUFS:
  case -ENOMEM: return 7;
  case -ETIMEDOUT: return 6;
  case -EKEYREJECTED:
  case -EACCES: return 5;
  case -EPROTONOSUPPORT: return 4;
  case -EPROTO: return 3;
  case -ECONNREFUSED: return 2;
  case -ECONNRESET: return 1;
  default: return 0;
  }
}

// What may pass: a drop before the answer, and being out of descriptors, ports or memory.
static bool may_pass(int e)
{
  return e == -ECONNRESET || tt_sock_is_shortage(e);
}

static void fail_try(tt_dial *d, uint32_t i, int e, uint64_t now)
{
  try *t = &d->tries[i];
  close_try(d, t);
  d->speaker = d->speaker == (int)i ? -1 : d->speaker;
  d->next_ns = now;
  d->again = true;
  t->tries++;
  t->error = e;
  if (may_pass(e) && t->tries < TRIES) {
    t->state = RESTING;
    t->wake_ns = now + (uint64_t)TT_MIN(t->tries, LONGEST_PAUSE) * PAUSE_NS;
  } else {
    t->state = FAILED;
  }
}

// A port of this machine on which nobody listens can be given to the very socket that connects to it, which then talks to itself.
static bool is_itself(int fd)
{
  tt_addr own, other;
  return tt_sock_local(fd, &own) == 0 && tt_sock_peer(fd, &other) == 0 && own.port == other.port && tt_addr_same_ip(&own, &other);
}

static void try_connected(tt_dial *d, uint32_t i, int e, uint64_t now)
{
  try *t = &d->tries[i];
  e = e == 0 && is_itself(t->shake.fd) ? -ECONNREFUSED : e;
  if (e != 0) {
    fail_try(d, i, e, now);
    return;
  }
  t->state = SHAKING;
  tt_sock_watch(t->shake.fd, true); // the listener may have ended just now
  t->shake = (tt_shake){.fd = t->shake.fd};
}

static void begin_try(tt_dial *d, uint32_t i, uint64_t now)
{
  try *t = &d->tries[i];
  int e = tt_tcp_connect_start(&d->to.a[i], &t->shake.fd);
  int w = d->events >= 0 && t->shake.fd >= 0
              ? tt_events_watch(d->events, t->shake.fd, TT_EVENTS_IN | TT_EVENTS_OUT | TT_EVENTS_EDGE, d->owner)
              : 0;
  if (w != 0) {
    fail_try(d, i, -ENOMEM, now);
  } else if (e == -EINPROGRESS) {
    t->state = CONNECTING;
  } else {
    try_connected(d, i, e == -EACCES ? -EPERM : e, now); // the kernel forbids it: no word of the listener
  }
}

// Goes on with one address. True: the handshake is done.
static bool step_try(tt_dial *d, uint32_t i, uint64_t now)
{
  try *t = &d->tries[i];
  struct pollfd p = {.fd = t->shake.fd, .events = POLLOUT};
  tt_until at_once = {.deadline_ns = 1};
  if (t->state == RESTING && now >= t->wake_ns) {
    begin_try(d, i, now);
  } else if (t->state == CONNECTING && tt_sock_poll(&p, 1, &at_once) > 0) {
    try_connected(d, i, tt_tcp_connect_end(t->shake.fd), now);
  }
  if (t->state != SHAKING) {
    return false;
  }
  bool speak = d->speaker < 0 || d->speaker == (int)i;
  int e = tt_shake_connect(&t->shake, &d->key, &d->hello, speak);
  if (t->shake.stage > TT_SHAKE_SILENT) {
    d->speaker = (int)i;
  }
  if (e < 0) {
    fail_try(d, i, e, now);
  }
  return e == 1;
}

// When nothing is left to wait for, or no time is left: the failure that says most. An address that only rests has had its answer.
static int dial_outcome(const tt_dial *d, uint64_t now)
{
  bool late = d->deadline_ns != 0 && now >= d->deadline_ns;
  int best = 0;
  for (uint32_t i = 0; i < d->to.n; i++) {
    const try *t = &d->tries[i];
    if (t->state != FAILED && !late) {
      return 0;
    }
    int e = t->state == FAILED || t->state == RESTING ? t->error : -ETIMEDOUT;
    best = best == 0 || weight_of_error(e) > weight_of_error(best) ? e : best;
  }
  return best;
}

static void close_tries(tt_dial *d)
{
  for (uint32_t i = 0; i < d->to.n; i++) {
    close_try(d, &d->tries[i]);
  }
}

int tt_dial_step(tt_dial *d, int *fd, tt_addr *at)
{
  d->again = d->failure == 0;
  while (d->again) {
    uint64_t now = tt_now_ns();
    d->again = false;
    if (d->begun < d->to.n && now >= d->next_ns) {
      d->next_ns = now + STAGGER_NS;
      begin_try(d, d->begun++, now);
    }
    for (uint32_t i = 0; i < d->begun; i++) {
      if (step_try(d, i, now)) {
        tt_sock_watch(d->tries[i].shake.fd, false);
        leave_set(d, &d->tries[i]);
        *fd = d->tries[i].shake.fd;
        *at = d->to.a[i];
        d->tries[i].shake.fd = -1;
        close_tries(d);
        return 1;
      }
    }
    d->failure = dial_outcome(d, now);
  }
  if (d->failure != 0) {
    close_tries(d);
  }
  return d->failure;
}

size_t tt_dial_poll(const tt_dial *d, struct pollfd *fds, uint64_t *wake_ns)
{
  size_t n = 0;
  for (uint32_t i = 0; i < d->begun; i++) {
    const try *t = &d->tries[i];
    if (t->state == RESTING) {
      tt_wake_by(wake_ns, t->wake_ns);
    } else if (fds != NULL && t->shake.fd >= 0 && (t->state == CONNECTING || t->shake.stage != TT_SHAKE_SILENT)) {
      bool writes = t->state == CONNECTING || t->shake.stage == TT_SHAKE_HELLO;
      fds[n++] = (struct pollfd){.fd = t->shake.fd, .events = writes ? POLLOUT : POLLIN};
    }
  }
  tt_wake_by(wake_ns, d->begun < d->to.n ? TT_MAX(d->next_ns, 1) : 0);
  tt_wake_by(wake_ns, d->deadline_ns);
  return n;
}

const tt_hello *tt_dial_hello(const tt_dial *d)
{
  return d->speaker < 0 ? NULL : &d->tries[d->speaker].shake.hello;
}

void tt_dial_cancel(tt_dial *d)
{
  if (d != NULL) {
    close_tries(d);
  }
  tt_free(d);
}

int tt_dial_finish(tt_dial *d, const volatile uint32_t *abort_flag, int *fd, tt_addr *at)
{
  int e;
  while ((e = tt_dial_step(d, fd, at)) == 0) {
    struct pollfd fds[TT_DIAL_POLL];
    tt_until wait = {.abort_flag = abort_flag};
    size_t n = tt_dial_poll(d, fds, &wait.deadline_ns);
    if (tt_sock_poll(fds, n, &wait) == -ECANCELED) {
      return -ECANCELED;
    }
  }
  return e;
}
