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

// One address.
typedef struct {
  enum { DIAL_RESTING, DIAL_BUSY, DIAL_FAILED } state;
  int tries;        // connections that have ended
  int error;        // of the last one
  uint64_t wake_ns; // RESTING: when to try, for the first time or again
  tt_conn conn;
} dial_try;

struct tt_dial {
  tt_addrs to;
  tt_key key;
  tt_hello hello;
  uint64_t deadline_ns; // 0: none
  int speaker;          // the address whose connection says the hello; -1: none
  int failure;          // after the end, or 0
  int events;           // a set that watches the connections, or -1
  void *owner;          // what it tells
  dial_try tries[TT_ADDRS_MAX];
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
  *d = (tt_dial){.to = *to, .key = *key, .hello = *hello, .deadline_ns = deadline_ns, .speaker = -1, .events = -1};
  for (uint32_t i = 0; i < to->n; i++) {
    d->tries[i].wake_ns = tt_now_ns() + i * STAGGER_NS;
    d->tries[i].conn.fd = -1;
  }
  *out = d;
  return 0;
}

void tt_dial_watch(tt_dial *d, int events, void *owner)
{
  d->events = events;
  d->owner = owner;
}

// Takes the descriptor of a try out of the set: a forked child may have a copy of it.
static int dial_release(const tt_dial *d, dial_try *t)
{
  int fd = t->conn.fd;
  if (d->events >= 0 && fd >= 0) {
    tt_events_remove(d->events, fd);
  }
  t->conn.fd = -1;
  return fd;
}

static void dial_close(tt_dial *d)
{
  for (uint32_t i = 0; i < d->to.n; i++) {
    int fd = dial_release(d, &d->tries[i]);
    tt_sock_close(&fd);
  }
}

// How much a failure says about the whole: the right one may be where this process could not even try, or where nothing
// answers; a process was there and refused, or was not ours; none was. (-EADDRNOTAVAIL is also what an address of a
// family that this machine has not got says.)
static int weight_of_error(int e)
{
  static const int says_more[] = {0,       -ECONNRESET, -ECONNREFUSED, -EPROTO,   -EPROTONOSUPPORT,
                                  -EACCES, -ENOKEY,     -EKEYREJECTED, -ETIMEDOUT};
  int weight = TT_COUNT(says_more) - 1;
  if (e == -EMFILE || e == -ENFILE || e == -ENOBUFS || e == -ENOMEM) {
    return weight + 1;
  }
  while (weight > 0 && says_more[weight] != e) {
    weight--;
  }
  return weight;
}

// Lets the next address begin now instead of at its time, and those behind it as much earlier.
static void hurry_next(tt_dial *d, uint64_t now)
{
  uint64_t early = 0;
  for (uint32_t i = 0; i < d->to.n; i++) {
    dial_try *t = &d->tries[i];
    if (t->state == DIAL_RESTING && t->tries == 0 && t->wake_ns > now) {
      early = early == 0 ? t->wake_ns - now : early;
      t->wake_ns -= early;
    }
  }
}

// A drop before the answer may pass, and so may a lack of descriptors, ports or memory.
static void fail_try(tt_dial *d, uint32_t i, int e, uint64_t now)
{
  dial_try *t = &d->tries[i];
  int fd = dial_release(d, t);
  tt_sock_close(&fd);
  d->speaker = d->speaker == (int)i ? -1 : d->speaker;
  t->error = e;
  t->tries++;
  t->state = (e == -ECONNRESET || tt_sock_is_shortage(e)) && t->tries < TRIES ? DIAL_RESTING : DIAL_FAILED;
  t->wake_ns = now + (uint64_t)TT_MIN(t->tries, LONGEST_PAUSE) * PAUSE_NS;
  hurry_next(d, now);
}

static int begin_try(tt_dial *d, uint32_t i)
{
  dial_try *t = &d->tries[i];
  int e = tt_conn_start(&t->conn, &d->to.a[i]);
  t->state = DIAL_BUSY;
  if (e == 0 && d->events >= 0 &&
      tt_events_watch(d->events, t->conn.fd, TT_EVENTS_IN | TT_EVENTS_OUT | TT_EVENTS_EDGE, d->owner) != 0) {
    e = -ENOMEM;
  }
  return e;
}

// Goes on with one address: 1: the handshake is done; 0: not yet; < 0: it has failed.
static int step_try(tt_dial *d, uint32_t i, uint64_t now)
{
  dial_try *t = &d->tries[i];
  int e = t->state == DIAL_RESTING && now >= t->wake_ns ? begin_try(d, i) : 0;
  if (e == 0 && t->state == DIAL_BUSY) {
    e = tt_conn_connect(&t->conn, &d->key, &d->hello, d->speaker < 0 || d->speaker == (int)i);
    d->speaker = t->conn.stage > TT_CONN_SILENT ? (int)i : d->speaker;
  }
  if (e < 0) {
    fail_try(d, i, e, now);
  }
  return e;
}

// When nothing is left to wait for, or no time is left: the failure that says most. An address that only rests has had
// its answer, if it was tried.
static int dial_outcome(const tt_dial *d, uint64_t now)
{
  bool late = d->deadline_ns != 0 && now >= d->deadline_ns;
  int best = 0;
  for (uint32_t i = 0; i < d->to.n; i++) {
    const dial_try *t = &d->tries[i];
    if (t->state != DIAL_FAILED && !late) {
      return 0;
    }
    int e = t->state != DIAL_BUSY && t->tries > 0 ? t->error : -ETIMEDOUT;
    best = best == 0 || weight_of_error(e) > weight_of_error(best) ? e : best;
  }
  return best;
}

// One look at every address. 1: *fd and *at are the answer; < 0: one has failed, so another one may go on.
static int dial_round(tt_dial *d, int *fd, tt_addr *at)
{
  uint64_t now = tt_now_ns();
  int worst = 0;
  for (uint32_t i = 0; i < d->to.n; i++) {
    int e = step_try(d, i, now);
    if (e == 1) {
      tt_sock_watch(d->tries[i].conn.fd, false);
      *fd = dial_release(d, &d->tries[i]);
      *at = d->to.a[i];
      return 1;
    }
    worst = TT_MIN(worst, e);
  }
  d->failure = dial_outcome(d, now);
  return worst;
}

int tt_dial_step(tt_dial *d, int *fd, tt_addr *at)
{
  int e = -1;
  while (e < 0 && d->failure == 0) {
    e = dial_round(d, fd, at);
  }
  if (e == 1 || d->failure != 0) {
    dial_close(d);
  }
  return d->failure != 0 ? d->failure : e;
}

size_t tt_dial_poll(const tt_dial *d, struct pollfd *fds, uint64_t *wake_ns)
{
  size_t n = 0;
  for (uint32_t i = 0; i < d->to.n; i++) {
    const dial_try *t = &d->tries[i];
    if (t->state == DIAL_RESTING) {
      tt_wake_by(wake_ns, t->wake_ns);
    } else if (fds != NULL && t->conn.fd >= 0 && t->conn.stage != TT_CONN_SILENT) {
      bool writes = t->conn.stage == TT_CONN_CONNECTING || t->conn.stage == TT_CONN_HELLO;
      fds[n++] = (struct pollfd){.fd = t->conn.fd, .events = writes ? POLLOUT : POLLIN};
    }
  }
  tt_wake_by(wake_ns, d->deadline_ns);
  return n;
}

const tt_hello *tt_dial_hello(const tt_dial *d)
{
  return d->speaker < 0 ? NULL : &d->tries[d->speaker].conn.hello;
}

void tt_dial_cancel(tt_dial *d)
{
  if (d != NULL) {
    dial_close(d);
  }
  tt_free(d);
}
