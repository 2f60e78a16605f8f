// root.c: the thread behind a unique id. It collects where every rank listens and tells each of them its successor; then it ends.
// It never waits for one connection, holds nothing but its own sockets, and says what is wrong to everybody who has joined.
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/util.h"
#include "bootstrap/answer.h"
#include "bootstrap/bootstrap_priv.h"
#include "os/thread.h"

#define TICK_NS (30 * TT_NS_PER_S)  // how often to say who is missing
#define ANSWER_NS (5 * TT_NS_PER_S) // for the answers
#define LINGER_NS (2 * TT_NS_PER_S) // for telling late ranks what went wrong

typedef struct {
  int line; // the rank's connection, open while the root lives: each side sees by it that the other has died. -1: not joined
  tt_addr peer, answer;
  uint32_t pid;
} seat;

typedef struct {
  tt_greeter door;
  tt_key key;
  int nranks; // 0 until the first rank has come
  int first;  // that rank
  int joined;
  seat *seats;              // nranks
  uint64_t timeout_ns;      // since the last rank has joined
  uint64_t end_ns, tick_ns; // 0: none
  ncclResult_t code;        // ncclSuccess, or what every rank gets
  char text[TT_HELLO_TEXT];
  int told, to_tell; // after a failure
  struct pollfd *fds;
} root;

// Really one per process: its root threads, whoever started them.
static int live_roots;

int tt_root_count(void)
{
  return __atomic_load_n(&live_roots, __ATOMIC_ACQUIRE);
}

static bool is_joined(const root *r, int rank)
{
  return r->seats[rank].line >= 0;
}

// "3, 5-7" of the ranks that have not joined; what does not fit ends in "...".
static void missing_text(const root *r, char *buf, size_t room)
{
  size_t used = 0;
  buf[0] = '\0';
  for (int i = 0; i < r->nranks; i++) {
    int last = i;
    if (is_joined(r, i)) {
      continue;
    }
    while (last + 1 < r->nranks && !is_joined(r, last + 1)) {
      last++;
    }
    if (used + 32 > room) {
      snprintf(buf + used, room - used, ", ...");
      return;
    }
    used += (size_t)snprintf(buf + used, room - used, last > i ? "%s%d-%d" : "%s%d", used > 0 ? ", " : "", i, last);
    i = last;
  }
}

static tt_answer answer_for(const root *r, int rank, const tt_addr *to)
{
  tt_answer a = {.to = *to};
  a.hello.kind = TT_HELLO_ANSWER;
  a.hello.rank = -1;
  a.hello.to = rank;
  a.hello.nranks = r->nranks;
  a.hello.code = r->code;
  return a;
}

// Tells everybody who has joined, at once: where the successor is, or the failure.
static void answer_joined(root *r)
{
  tt_answer *all = tt_calloc((size_t)r->nranks, sizeof(*all));
  int n = 0;
  for (int i = 0; i < r->nranks && all == NULL; i++) {
    tt_sock_close(&r->seats[i].line); // every rank says that the root has gone
  }
  if (all == NULL) {
    return;
  }
  for (int i = 0; i < r->nranks; i++) {
    if (is_joined(r, i)) {
      all[n] = answer_for(r, i, &r->seats[i].answer);
      all[n++].hello.peer = r->seats[(i + 1) % r->nranks].peer;
    }
  }
  tt_answer_all(all, n, &r->key, r->text, tt_now_ns() + ANSWER_NS);
  r->told += n;
  tt_free(all);
}

static void fail(root *r, ncclResult_t code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
// Everybody so far gets code and text; whoever comes within LINGER_NS gets it too, until as many as there should be have been told.
static void fail(root *r, ncclResult_t code, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(r->text, sizeof(r->text), fmt, ap);
  va_end(ap);
  tt_info(TT_BOOTSTRAP | TT_INIT, "bootstrap root: %s", r->text);
  r->code = code;
  r->end_ns = tt_now_ns() + LINGER_NS;
  r->tick_ns = 0;
  r->to_tell = TT_MAX(r->to_tell, r->nranks);
  answer_joined(r);
}

static void tell_failure(root *r, const tt_hello *h)
{
  tt_answer a = answer_for(r, h->rank, &h->answer);
  tt_answer_all(&a, 1, &r->key, r->text, tt_now_ns() + ANSWER_NS);
  r->told++;
}

static bool first_rank(root *r, const tt_hello *h)
{
  r->seats = tt_calloc((size_t)h->nranks, sizeof(r->seats[0]));
  r->fds = tt_calloc((size_t)h->nranks + 1 + TT_GREET_MAX, sizeof(r->fds[0]));
  if (r->seats == NULL || r->fds == NULL) {
    return false;
  }
  for (int i = 0; i < h->nranks; i++) {
    r->seats[i].line = -1;
  }
  r->nranks = h->nranks;
  r->first = h->rank;
  return true;
}

// Finds out why this rank cannot sit down; true when it can.
static bool check_rank(root *r, const tt_hello *h)
{
  char a[TT_ADDR_TEXT], b[TT_ADDR_TEXT];
  if (h->nranks < 1 || h->nranks > TT_BOOTSTRAP_MAX_RANKS) {
    fail(r, ncclInvalidUsage, "a rank reports %d ranks; from 1 to %d are possible", h->nranks, TT_BOOTSTRAP_MAX_RANKS);
  } else if (h->rank < 0 || h->rank >= h->nranks) {
    r->to_tell = h->nranks;
    fail(r, ncclInvalidUsage, "%s (process %u) calls itself rank %d of %d: ranks go from 0 to %d", tt_addr_text(&h->answer, a), h->pid,
         h->rank, h->nranks, h->nranks - 1);
  } else if (r->nranks == 0 && !first_rank(r, h)) {
    fail(r, ncclRemoteError, "the process that made the unique id has no memory for a root of %d ranks",
         h->nranks); // for whom it is told, remote
  } else if (h->nranks != r->nranks) {
    r->to_tell = h->nranks;
    fail(r, ncclInvalidUsage, "ranks disagree about their number: rank %d says %d ranks, rank %d says %d ranks", r->first, r->nranks,
         h->rank, h->nranks);
  } else if (is_joined(r, h->rank)) {
    const seat *s = &r->seats[h->rank];
    fail(r, ncclInvalidUsage, "two ranks call themselves rank %d of %d: %s (process %u) and %s (process %u). Give each its own number",
         h->rank, r->nranks, tt_addr_text(&s->answer, a), s->pid, tt_addr_text(&h->answer, b), h->pid);
  }
  return r->code == ncclSuccess;
}

static void take_rank(root *r, const tt_hello *h, int fd)
{
  // One byte says that the rank counts as joined: without it a rank whose connection ends knows that it may try again.
  if (tt_sock_send(fd, "J", 1) != 1) {
    tt_sock_close(&fd);
    return;
  }
  if (r->code != ncclSuccess || !check_rank(r, h)) {
    tell_failure(r, h);
    tt_sock_close(&fd);
    return;
  }
  r->seats[h->rank] = (seat){.line = fd, .peer = h->peer, .answer = h->answer, .pid = h->pid};
  r->joined++;
  uint64_t now = tt_now_ns();
  r->end_ns = now + r->timeout_ns;
  if (r->tick_ns == 0) {
    r->tick_ns = now + TT_MIN(TICK_NS, r->timeout_ns / 2);
  }
}

// A joined rank sends nothing more: whatever makes its line readable, it has gone.
static void look_at_lines(root *r, const struct pollfd *lines)
{
  char at[TT_ADDR_TEXT];
  for (int i = 0; i < r->nranks && r->code == ncclSuccess; i++) {
    seat *s = &r->seats[i];
    if (s->line >= 0 && s->line == lines[i].fd && lines[i].revents != 0) {
      tt_sock_close(&s->line);
      r->told++;
      fail(r, ncclRemoteError, "rank %d (%s, process %u) went away before all %d ranks had joined", i, tt_addr_text(&s->answer, at), s->pid,
           r->nranks);
    }
  }
}

// Says who is missing, here and (one byte each) to the waiting ranks, which learn that the root lives.
static void tick(root *r)
{
  char missing[256];
  missing_text(r, missing, sizeof(missing));
  tt_info(TT_BOOTSTRAP | TT_INIT, "bootstrap root: waiting for ranks %s of %d", missing, r->nranks);
  for (int i = 0; i < r->nranks; i++) {
    if (is_joined(r, i)) {
      (void)tt_sock_send(r->seats[i].line, "W", 1);
    }
  }
  r->tick_ns = tt_now_ns() + TT_MIN(TICK_NS, r->timeout_ns / 2);
}

// Waits for the next thing to do. Returns false when the time of the current state is over.
static bool wait_event(root *r, struct pollfd *one, size_t *door_fds)
{
  struct pollfd *fds = r->fds != NULL ? r->fds : one;
  tt_until until = {.deadline_ns = r->end_ns};
  if (r->tick_ns != 0) {
    until.deadline_ns = TT_MIN(until.deadline_ns, r->tick_ns);
  }
  size_t n = tt_greeter_poll(&r->door, fds, &until.deadline_ns);
  *door_fds = n;
  for (int i = 0; i < r->nranks; i++) {
    fds[n++] = (struct pollfd){.fd = r->code == ncclSuccess ? r->seats[i].line : -1, .events = POLLIN};
  }
  int ready = tt_sock_poll(fds, n, &until);
  return ready > 0 || r->end_ns == 0 || tt_now_ns() < r->end_ns;
}

static void time_out(root *r)
{
  char missing[256];
  missing_text(r, missing, sizeof(missing));
  fail(r, ncclRemoteError, "ranks %s of %d have not joined within %llu s since the last one did (NCCL_BOOTSTRAP_TIMEOUT)", missing,
       r->nranks, (unsigned long long)(r->timeout_ns / TT_NS_PER_S));
}

// Everybody has joined, or everybody who came has been told why not.
static bool finished(const root *r)
{
  return r->code == ncclSuccess ? r->nranks > 0 && r->joined == r->nranks : r->told >= r->to_tell;
}

static void collect(root *r)
{
  struct pollfd one[1 + TT_GREET_MAX];
  while (!finished(r)) {
    tt_hello h;
    int fd = -1;
    size_t door_fds = 0;
    if (!wait_event(r, one, &door_fds)) {
      if (r->code != ncclSuccess) {
        return;
      }
      time_out(r);
    }
    if (r->fds != NULL) {
      look_at_lines(r, r->fds + door_fds);
    }
    while (!finished(r) && tt_greeter_next(&r->door, &h, &fd)) {
      take_rank(r, &h, fd);
    }
    if (r->tick_ns != 0 && tt_now_ns() >= r->tick_ns) {
      tick(r);
    }
  }
}

// A rank closes its line when it has its answer; closing first would look like a death.
static void await_lines(root *r)
{
  tt_until until = {.deadline_ns = tt_now_ns() + ANSWER_NS};
  for (int i = 0; i < r->nranks; i++) {
    struct pollfd p = {.fd = r->seats[i].line, .events = POLLIN};
    if (p.fd >= 0) {
      (void)tt_sock_poll(&p, 1, &until);
    }
  }
}

static void destroy(root *r)
{
  tt_greeter_close(&r->door, true);
  for (int i = 0; i < r->nranks; i++) {
    tt_sock_kill(r->seats[i].line);
    tt_sock_close(&r->seats[i].line);
  }
  tt_free(r->seats);
  tt_free(r->fds);
  tt_free(r);
}

static void *run(void *arg)
{
  root *r = arg;
  collect(r);
  // From here on nobody can join: who tries learns at once that the id is used up.
  tt_greeter_close(&r->door, true);
  if (r->code == ncclSuccess) {
    answer_joined(r);
  }
  await_lines(r);
  destroy(r);
  __atomic_sub_fetch(&live_roots, 1, __ATOMIC_RELEASE);
  return NULL;
}

// A root of the job's communicator before this one may be about to leave the port of NCCL_COMM_ID.
static int listen_patiently(root *r, const tt_id *in)
{
  uint64_t give_up = tt_now_ns() + 2 * TT_NS_PER_S;
  for (;;) {
    int e = tt_greeter_open(&r->door, &in->root, &in->key, TT_HELLO_JOIN, -1);
    if (e != -EADDRINUSE || (in->flags & TT_ID_FIXED) == 0 || tt_now_ns() > give_up) {
      return e;
    }
    tt_sleep_ns(20 * TT_NS_PER_MS);
  }
}

static ncclResult_t listen_failed(const tt_id *in, int e)
{
  char at[TT_ADDR_TEXT];
  return tt_fail(ncclSystemError, "the bootstrap root cannot listen on %s: %s%s", tt_addr_text(&in->root, at), strerror(-e),
                 (in->flags & TT_ID_FIXED) != 0 ? " (NCCL_COMM_ID must name a free port of the machine of rank 0)" : "");
}

ncclResult_t tt_root_start(const tt_id *in, tt_addr *bound)
{
  root *r = tt_calloc(1, sizeof(*r));
  ncclResult_t res = ncclSuccess;
  if (r == NULL) {
    return tt_fail(ncclSystemError, "no memory for a bootstrap root");
  }
  r->key = in->key;
  r->timeout_ns = (uint64_t)TT_MAX(tt_params_get()->bootstrap_timeout, 1) * TT_NS_PER_S;
  tt_sock_raise_file_limit();
  int e = listen_patiently(r, in);
  if (e != 0) {
    TT_TRY_GOTO(listen_failed(in, e), res);
  }
  tt_addr at = r->door.addr;
  __atomic_add_fetch(&live_roots, 1, __ATOMIC_RELAXED);
  res = tt_thread_start_detached("tutti root", run, r);
  if (res != ncclSuccess) {
    __atomic_sub_fetch(&live_roots, 1, __ATOMIC_RELAXED);
    goto fail;
  }
  tt_info(TT_BOOTSTRAP, "bootstrap root listens on port %u", at.port);
  *bound = at; // not read from r: the thread may have ended already
  return ncclSuccess;
fail:
  destroy(r);
  return res;
}
