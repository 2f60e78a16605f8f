// join.c: the rank's side of the conversation with the root: connect, report, wait for the answer on a second socket.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/param.h"
#include "base/result.h"
#include "base/util.h"
#include "bootstrap/bootstrap_priv.h"
#include "os/netif.h"

#define REFUSED_NS (2 * TT_NS_PER_S) // an id's root listens before the id exists, so a refusal is nearly always final
#define GRACE_NS (1 * TT_NS_PER_S)   // for an answer that travels slower than the end of the line
enum { REJOINS = 20 };

typedef struct {
  const tt_id *id;
  tt_join *j;
  int line;       // connection to the root, open until its answer is here
  bool joined;    // the root has said so
  tt_greeter ear; // for the answer
  uint64_t deadline_ns;
} talk;

static uint64_t patience_ns(void)
{
  return (uint64_t)TT_MAX(tt_params_get()->bootstrap_timeout, 1) * TT_NS_PER_S;
}

static ncclResult_t unreachable(const talk *t, int e)
{
  char at[TT_ADDR_TEXT];
  tt_addr_text(&t->id->root, at);
  if (e == -ECONNREFUSED && (t->id->flags & TT_ID_FIXED) == 0) {
    return tt_fail(ncclInvalidUsage,
                   "rank %d: nobody listens at %s: this unique id was already used by a communicator (each needs a new one from "
                   "ncclGetUniqueId), or the process that made it has ended",
                   t->j->rank, at);
  }
  return tt_fail(ncclSystemError, "rank %d cannot reach the bootstrap root at %s: %s. Check that this machine can connect there%s",
                 t->j->rank, at, strerror(-e),
                 (t->id->flags & TT_ID_FIXED) != 0 ? ", and that rank 0 runs where NCCL_COMM_ID says" : " (NCCL_SOCKET_IFNAME on rank 0)");
}

// Sleeps before attempt `attempt` + 1, as NCCL does longer each time. False: no more attempts.
static bool retry(const talk *t, int e, int attempt, uint64_t began_ns)
{
  const tt_params *p = tt_params_get();
  uint64_t now = tt_now_ns(), pause = (uint64_t)TT_MAX(p->socket_retry_sleep_msec, 1) * (uint64_t)(attempt + 1) * TT_NS_PER_MS;
  bool quick = e == -ECONNREFUSED && (t->id->flags & TT_ID_FIXED) == 0;
  uint64_t end = quick ? began_ns + REFUSED_NS : t->deadline_ns;
  if (e == -EMFILE || e == -ENFILE || e == -EAFNOSUPPORT || attempt >= p->socket_retry_cnt || now + pause > end) {
    return false;
  }
  tt_until until = {.abort_flag = t->j->abort_flag, .deadline_ns = now + pause};
  return tt_sock_poll(NULL, 0, &until) == -ETIMEDOUT;
}

static ncclResult_t connect_root(talk *t)
{
  uint64_t began = tt_now_ns();
  tt_until until = {.abort_flag = t->j->abort_flag, .deadline_ns = t->deadline_ns};
  for (int attempt = 0;; attempt++) {
    int e = tt_tcp_connect(&t->id->root, &until, &t->line);
    if (e == 0) {
      return ncclSuccess;
    }
    if (!tt_aborted(t->j->abort_flag) && retry(t, e, attempt, began)) {
      continue;
    }
    return tt_aborted(t->j->abort_flag) ? ncclInternalError : unreachable(t, e);
  }
}

// Where this rank's peers shall find it: the interface the user names, else the address from which the root is reached. The latter
// cannot be an interface that leads nowhere.
static ncclResult_t own_address(const talk *t, tt_addr *out)
{
  const char *name = tt_params_get()->socket_ifname;
  if (name != NULL && *name != '\0') {
    tt_netif at;
    int n = 0;
    TT_TRY(tt_netif_find(&at, 1, &n));
    *out = at.addr;
    return ncclSuccess;
  }
  int e = tt_sock_local(t->line, out);
  out->port = 0;
  return e == 0 ? ncclSuccess : tt_fail(ncclSystemError, "rank %d: no own address: %s", t->j->rank, strerror(-e));
}

static ncclResult_t open_sockets(talk *t)
{
  tt_addr own;
  char text[TT_ADDR_TEXT];
  TT_TRY(own_address(t, &own));
  int e = tt_greeter_open(&t->ear, &own, &t->id->key, TT_HELLO_ANSWER, t->j->rank);
  if (e == 0 && t->j->nranks > 1) {
    e = tt_greeter_open(t->j->door, &own, &t->j->key, TT_HELLO_RING | TT_HELLO_PEER, t->j->rank);
  }
  if (e != 0) {
    return tt_fail(ncclSystemError, "rank %d cannot listen on %s: %s", t->j->rank, tt_addr_text(&own, text), strerror(-e));
  }
  return ncclSuccess;
}

// Returns the socket's outcome: an error means that the root has dropped the connection, and to try again.
static int send_hello(talk *t)
{
  tt_until until = {.abort_flag = t->j->abort_flag, .deadline_ns = t->deadline_ns};
  tt_hello h = {.kind = TT_HELLO_JOIN, .rank = t->j->rank, .to = -1, .nranks = t->j->nranks, .pid = (uint32_t)getpid()};
  h.peer = t->j->door->addr;
  h.answer = t->ear.addr;
  tt_hello_seal(&h, &t->id->key);
  return tt_sock_send_all(t->line, &h, sizeof(h), &until);
}

// Takes the root's verdict from its connection.
static ncclResult_t read_answer(talk *t, const tt_hello *h, int fd)
{
  char text[TT_HELLO_TEXT + 1] = "";
  tt_until until = {.abort_flag = t->j->abort_flag, .deadline_ns = tt_now_ns() + TT_GREET_NS};
  size_t size = TT_MIN(h->size, TT_HELLO_TEXT);
  int e = tt_sock_recv_all(fd, text, size, &until);
  tt_sock_close(&fd);
  if (e == -ECANCELED) {
    return ncclInternalError;
  }
  if (h->code != ncclSuccess) {
    bool known = h->code > ncclSuccess && h->code < ncclInProgress;
    return tt_fail(known ? (ncclResult_t)h->code : ncclRemoteError, "rank %d could not join: %s", t->j->rank,
                   e == 0 ? text : "the root's explanation was cut off");
  }
  t->j->next = h->peer;
  return ncclSuccess;
}

// Bytes from the root are signs of life. An end before the first one: this connection was dropped; afterwards: the root is dying.
static void read_line(talk *t)
{
  char buf[64];
  ssize_t n = tt_sock_recv(t->line, buf, sizeof(buf));
  if (n > 0) {
    t->joined = true;
    t->deadline_ns = tt_now_ns() + patience_ns() + TT_GREET_NS;
  } else if (n != -EAGAIN) {
    tt_sock_close(&t->line);
    t->deadline_ns = t->joined ? tt_now_ns() + GRACE_NS : t->deadline_ns;
  }
}

static ncclResult_t gave_up(const talk *t)
{
  char at[TT_ADDR_TEXT];
  tt_addr_text(&t->id->root, at);
  if (t->joined && t->line < 0) {
    return tt_fail(ncclRemoteError,
                   "rank %d: the bootstrap root at %s went away before all %d ranks had joined: see the process that made the id",
                   t->j->rank, at, t->j->nranks);
  }
  return tt_fail(ncclRemoteError, "rank %d: the bootstrap root at %s %s for %llu s (NCCL_BOOTSTRAP_TIMEOUT)", t->j->rank, at,
                 t->joined ? "is silent" : "accepts connections but does not answer", (unsigned long long)(patience_ns() / TT_NS_PER_S));
}

// Waits for the answer. *again: the root has dropped the connection before it took notice of this rank.
static ncclResult_t await_answer(talk *t, bool *again)
{
  struct pollfd fds[2 + TT_GREET_MAX];
  for (;;) {
    tt_hello h;
    int fd = -1;
    tt_until until = {.abort_flag = t->j->abort_flag, .deadline_ns = t->deadline_ns};
    fds[0] = (struct pollfd){.fd = t->line, .events = POLLIN};
    size_t n = 1 + tt_greeter_poll(&t->ear, fds + 1, &until.deadline_ns);
    if (tt_sock_poll(fds, n, &until) == -ECANCELED) {
      return ncclInternalError;
    }
    if (tt_greeter_next(&t->ear, &h, &fd)) {
      return read_answer(t, &h, fd);
    }
    if (t->line >= 0 && fds[0].revents != 0) {
      read_line(t);
    }
    *again = t->line < 0 && !t->joined;
    if (*again) {
      return ncclSuccess;
    }
    if (tt_now_ns() >= t->deadline_ns) {
      return gave_up(t);
    }
  }
}

// One attempt.
static ncclResult_t report(talk *t, bool *again)
{
  *again = false;
  TT_TRY(connect_root(t));
  if (t->ear.fd < 0) {
    TT_TRY(open_sockets(t));
  }
  int e = send_hello(t);
  if (e == -ECANCELED) {
    return ncclInternalError;
  }
  if (e != 0) {
    tt_sock_close(&t->line);
    *again = true;
    return ncclSuccess;
  }
  return await_answer(t, again);
}

static ncclResult_t report_until_heard(talk *t)
{
  for (int attempt = 0; attempt < REJOINS; attempt++) {
    bool again = false;
    TT_TRY(report(t, &again));
    if (!again) {
      return ncclSuccess;
    }
    tt_until until = {.abort_flag = t->j->abort_flag, .deadline_ns = tt_now_ns() + 20 * TT_NS_PER_MS};
    if (tt_sock_poll(NULL, 0, &until) == -ECANCELED) {
      return ncclInternalError;
    }
  }
  return tt_fail(ncclSystemError, "rank %d: the bootstrap root dropped %d connections in a row", t->j->rank, REJOINS);
}

ncclResult_t tt_join_root(const tt_id *id, tt_join *j)
{
  talk t = {.id = id, .j = j, .line = -1, .deadline_ns = tt_now_ns() + patience_ns() + TT_GREET_NS};
  tt_greeter_none(&t.ear);
  ncclResult_t res = report_until_heard(&t);
  tt_greeter_close(&t.ear, true);
  tt_sock_finish(t.line);
  tt_sock_close(&t.line);
  return res;
}
