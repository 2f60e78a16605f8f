// join.c: the rank's side of the conversation with the root: connect, send the card, wait for the answer on the same connection.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/param.h"
#include "base/result.h"
#include "base/util.h"
#include "bootstrap/bootstrap_priv.h"
#include "os/netif.h"

#define REFUSED_NS (2 * TT_NS_PER_S) // an id's root listens before the id exists, so a refusal is nearly always final
#define LATE_NS (5 * TT_NS_PER_S)    // the root is the one that gives up first, and says why
#define PAUSE_NS (20 * TT_NS_PER_MS) // before a connection that was dropped is made again
enum { REJOINS = 20 };

typedef struct {
  const tt_id *id;
  tt_join *j;
  tt_dial *dial;                           // while connecting
  tt_notes line;                           // then; open until the root's answer is here
  bool joined;                             // the root has said so
  bool told;                               // the answer is here
  int dials;                               // that have failed
  int drops;                               // of connections, before the root had said anything
  uint64_t began_ns, rest_ns, deadline_ns; // rest_ns: when to dial again
} talk;

static uint64_t patience_ns(void)
{
  return (uint64_t)TT_MAX(tt_params_get()->bootstrap_timeout, 1) * TT_NS_PER_S;
}

static bool is_fixed(const talk *t)
{
  return (t->id->flags & TT_ID_FIXED) != 0;
}

static ncclResult_t unreachable(const talk *t, int e)
{
  char at[TT_ADDRS_TEXT];
  tt_addrs_text(&t->id->root, at);
  if (e == -ECONNREFUSED && !is_fixed(t)) {
    return tt_fail(ncclInvalidUsage,
                   "rank %d: nobody listens at %s: this unique id was already used by a communicator (each needs a new one from "
                   "ncclGetUniqueId), or the process that made it has ended",
                   t->j->rank, at);
  }
  if (e == -EACCES && is_fixed(t)) {
    return tt_fail(ncclInvalidUsage, "rank %d: the root at %s belongs to another job, or NCCL_COMM_ID is not the same text on all ranks",
                   t->j->rank, at);
  }
  return tt_fail(ncclSystemError, "rank %d cannot reach the bootstrap root at %s: %s. Check that this machine can connect there%s",
                 t->j->rank, at, strerror(-e),
                 is_fixed(t) ? ", and that rank 0 runs where NCCL_COMM_ID says" : " (NCCL_SOCKET_IFNAME on rank 0)");
}

// Rests before the next dial, as NCCL does longer each time. False: no more of them.
static bool rest(talk *t, int e)
{
  const tt_params *p = tt_params_get();
  uint64_t now = tt_now_ns(), pause = (uint64_t)TT_MAX(p->socket_retry_sleep_msec, 1) * (uint64_t)++t->dials * TT_NS_PER_MS;
  uint64_t end = e == -ECONNREFUSED && !is_fixed(t) ? t->began_ns + REFUSED_NS : t->deadline_ns;
  bool final = e == -EMFILE || e == -ENFILE || e == -EAFNOSUPPORT || e == -EACCES || e == -EPROTONOSUPPORT;
  if (final || t->dials > p->socket_retry_cnt || now + pause > end) {
    return false;
  }
  t->rest_ns = now + pause;
  return true;
}

// Where this rank's peers shall find it: every usable address, that from which it has reached the root first (which cannot lead nowhere),
// unless the user has named interfaces.
static ncclResult_t own_addresses(const talk *t, tt_addrs *out)
{
  const tt_params *p = tt_params_get();
  tt_addrs all;
  tt_addr here;
  out->n = 0;
  TT_TRY(tt_netif_addrs(&all));
  if ((p->socket_ifname == NULL || *p->socket_ifname == '\0') && tt_sock_local(t->line.fd, &here) == 0) {
    here.port = 0;
    bool link_local = here.scope != 0;
    if (!link_local) {
      tt_addrs_add(out, &here);
    }
  }
  for (uint32_t i = 0; i < all.n; i++) {
    tt_addrs_add(out, &all.a[i]);
  }
  return ncclSuccess;
}

static ncclResult_t open_door(talk *t)
{
  tt_addrs own;
  char text[TT_ADDRS_TEXT];
  if (t->j->nranks == 1 || t->j->door->addrs.n > 0) {
    return ncclSuccess;
  }
  TT_TRY(own_addresses(t, &own));
  int e = tt_greeter_open(t->j->door, &own, &t->j->key, TT_HELLO_RING | TT_HELLO_PEER, t->j->rank);
  return e == 0 ? ncclSuccess
                : tt_fail(ncclSystemError, "rank %d cannot listen on %s: %s", t->j->rank, tt_addrs_text(&own, text), strerror(-e));
}

// The connection was lost before the root had taken notice of this rank: it may come again.
static ncclResult_t dropped(talk *t)
{
  tt_notes_close(&t->line);
  if (++t->drops > REJOINS) {
    return tt_fail(ncclSystemError, "rank %d: the bootstrap root dropped %d connections in a row", t->j->rank, REJOINS);
  }
  t->rest_ns = tt_now_ns() + PAUSE_NS;
  return ncclSuccess;
}

// Connected: tells the root where this rank's peers find it.
static ncclResult_t send_card(talk *t)
{
  tt_join_card card = {.pid = (uint32_t)getpid()};
  TT_TRY(open_door(t));
  card.peer = t->j->door->addrs;
  return tt_note_send(&t->line, TT_NOTE_JOIN, &card, sizeof(card)) == 0 ? ncclSuccess : dropped(t);
}

static ncclResult_t go_on_dialing(talk *t)
{
  tt_hello h = {.kind = TT_HELLO_JOIN, .rank = t->j->rank, .to = -1, .nranks = t->j->nranks};
  int fd = -1, e = 0;
  if (tt_now_ns() < t->rest_ns) {
    return ncclSuccess;
  }
  if (t->dial == NULL) {
    e = tt_dial_start(&t->id->root, &t->id->key, &h, t->deadline_ns, &t->dial);
  }
  e = e == 0 ? tt_dial_step(t->dial, &fd, &t->j->root) : e;
  if (e == 0) {
    return ncclSuccess;
  }
  if (e == 1) {
    tt_notes_open(&t->line, fd, &t->id->key, tt_dial_hello(t->dial), false);
  }
  tt_dial_cancel(t->dial);
  t->dial = NULL;
  return e == 1 ? send_card(t) : rest(t, e) ? ncclSuccess : unreachable(t, e);
}

static ncclResult_t take_failure(const talk *t, const tt_note *note)
{
  int32_t code;
  int size = (int)note->size - (int)sizeof(code);
  if (size < 0) {
    return tt_fail(ncclRemoteError, "rank %d could not join: the root's explanation was cut off", t->j->rank);
  }
  memcpy(&code, note->body, sizeof(code));
  bool known = code > ncclSuccess && code < ncclInProgress;
  return tt_fail(known ? (ncclResult_t)code : ncclRemoteError, "rank %d could not join: %.*s", t->j->rank, size,
                 (const char *)note->body + sizeof(code));
}

static ncclResult_t take_note(talk *t, const tt_note *note)
{
  t->joined = true;
  t->deadline_ns = tt_now_ns() + patience_ns() + LATE_NS;
  if (note->kind == TT_NOTE_FAIL) {
    return take_failure(t, note);
  }
  if (note->kind == TT_NOTE_NEXT && note->size == sizeof(t->j->next)) {
    memcpy(&t->j->next, note->body, sizeof(t->j->next));
    t->told = true;
  }
  return ncclSuccess;
}

static ncclResult_t gave_up(const talk *t)
{
  char at[TT_ADDR_TEXT], all[TT_ADDRS_TEXT];
  if (t->joined && t->line.fd < 0) {
    return tt_fail(ncclRemoteError,
                   "rank %d: the bootstrap root at %s went away before all %d ranks had joined: see the process that made the id",
                   t->j->rank, tt_addr_text(&t->j->root, at), t->j->nranks);
  }
  return tt_fail(ncclRemoteError, "rank %d: the bootstrap root at %s %s for %llu s (NCCL_BOOTSTRAP_TIMEOUT)", t->j->rank,
                 tt_addrs_text(&t->id->root, all), t->joined ? "is silent" : "accepts connections but does not answer",
                 (unsigned long long)(patience_ns() / TT_NS_PER_S));
}

static ncclResult_t go_on_listening(talk *t)
{
  tt_note note;
  int e = 1;
  while (!t->told && (e = tt_note_recv(&t->line, &note)) == 1) {
    TT_TRY(take_note(t, &note));
  }
  if (t->told || e >= 0) {
    return ncclSuccess;
  }
  if (!t->joined) {
    return dropped(t);
  }
  tt_notes_close(&t->line);
  return gave_up(t);
}

static ncclResult_t wait_talk(talk *t)
{
  struct pollfd fds[TT_DIAL_POLL] = {{.fd = t->line.fd, .events = POLLIN}};
  tt_until until = {.abort_flag = t->j->abort_flag, .deadline_ns = t->deadline_ns};
  size_t n = 1;
  if (t->dial != NULL) {
    n = tt_dial_poll(t->dial, fds, &until.deadline_ns);
  } else if (t->line.fd < 0) {
    until.deadline_ns = TT_MIN(t->rest_ns, t->deadline_ns);
  }
  if (tt_sock_poll(fds, n, &until) == -ECANCELED) {
    return ncclInternalError;
  }
  return t->dial == NULL && tt_now_ns() >= t->deadline_ns ? gave_up(t) : ncclSuccess;
}

static ncclResult_t talk_until_told(talk *t)
{
  for (;;) {
    if (t->line.fd < 0) {
      TT_TRY(go_on_dialing(t));
    }
    if (t->line.fd >= 0) {
      TT_TRY(go_on_listening(t));
    }
    if (t->told) {
      return ncclSuccess;
    }
    TT_TRY(wait_talk(t));
  }
}

ncclResult_t tt_join_root(const tt_id *id, tt_join *j)
{
  uint64_t now = tt_now_ns();
  talk t = {.id = id, .j = j, .began_ns = now, .deadline_ns = now + patience_ns() + LATE_NS};
  tt_notes_none(&t.line);
  ncclResult_t res = talk_until_told(&t);
  tt_dial_cancel(t.dial);
  tt_notes_close(&t.line);
  return res;
}
