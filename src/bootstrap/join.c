// join.c: the rank's side of the conversation with the roots: connect, send the card, wait for the answer on the same connection.
// A rank has one line, to the root of its share; the first rank of a share has two, and carries what these roots say to each other.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/param.h"
#include "base/result.h"
#include "base/util.h"
#include "bootstrap/bootstrap_priv.h"
#include "os/netif.h"

#define REFUSED_NS (2 * TT_NS_PER_S) // how long to believe that a root which is gone comes back
#define DIAL_NS (20 * TT_NS_PER_S)   // for one attempt: when an address is silent, what another one has said counts
#define SPARE_NS (10 * TT_NS_PER_S)  // the root is the one that gives up first, and says why
#define LAST_NS (2 * TT_NS_PER_S)    // for telling another root what went wrong
#define PAUSE_NS (20 * TT_NS_PER_MS) // before a connection that was dropped is made again
enum { REJOINS = 20 };

// The connection to one root.
typedef struct {
  const tt_id *id;
  int share;        // whose root it is
  tt_dial *dial;    // while connecting
  tt_notes notes;   // then; open until the root's last word is here
  bool joined;      // the root has said so
  bool told;        // its last word is here
  int dials;        // that have failed
  int drops;        // of connections, before the root had said anything
  uint64_t rest_ns; // when to dial again
  tt_join_way way;
} root_line;

typedef struct {
  tt_join *j;
  root_line lines[2]; // to the own root, and to the one before where this rank is the neighbour
  int nlines;
  uint64_t began_ns, deadline_ns;
  uint32_t heard, carried; // bits of note kinds that the root before has said, and that the own root has been told
  ncclResult_t failure;    // what a root has said; ncclSuccess: nothing
  char text[TT_FAIL_TEXT]; // and its text
} talk;

static uint64_t join_patience_ns(void)
{
  return tt_span_ns(tt_params_get()->bootstrap_timeout, TT_NS_PER_S);
}

static bool is_fixed(const root_line *l)
{
  return (l->id->flags & TT_ID_FIXED) != 0;
}

// Nobody is there, or somebody else is by now. An id's root listens before the id exists.
static bool is_gone(const root_line *l, int e)
{
  return !is_fixed(l) && (e == -ECONNREFUSED || e == -EACCES || e == -EPROTO);
}

static ncclResult_t unreachable(const talk *t, const root_line *l, int e)
{
  char at[TT_ADDRS_TEXT];
  tt_addrs_text(&l->id->root, at);
  if (is_gone(l, e)) {
    return tt_fail(ncclInvalidUsage,
                   "rank %d: nobody listens at %s for this unique id: it was already used by a communicator (each needs a new one from "
                   "ncclGetUniqueId), was not used in time (TUTTI_ID_TIMEOUT), or the process that made it has ended",
                   t->j->rank, at);
  }
  if (e == -EKEYREJECTED) {
    return tt_fail(ncclInvalidUsage,
                   "rank %d: who listens at %s, as NCCL_COMM_ID says, is another user's process. Choose another port, or let the ranks of "
                   "several users share a secret (TUTTI_COMM_ID_SECRET)",
                   t->j->rank, at);
  }
  if (e == -EACCES && is_fixed(l)) {
    return tt_fail(ncclInvalidUsage,
                   "rank %d: the root at %s belongs to another job, or NCCL_COMM_ID is not the same text on all ranks, or the "
                   "secret of TUTTI_COMM_ID_SECRET or TUTTI_COMM_ID_SECRET_FILE is another one",
                   t->j->rank, at);
  }
  if (tt_sock_is_shortage(e)) {
    return tt_fail(ncclSystemError, "rank %d cannot connect to the bootstrap root at %s: %s", t->j->rank, at, tt_sock_error_text(e));
  }
  return tt_fail(ncclSystemError, "rank %d cannot reach the bootstrap root at %s: %s. Check that this machine can connect there%s",
                 t->j->rank, at, strerror(-e),
                 is_fixed(l) ? ", and that rank 0 runs where NCCL_COMM_ID says" : " (NCCL_SOCKET_IFNAME on rank 0)");
}

// Rests before the next dial, as NCCL does longer each time. False: no more of them.
static bool rest_line(const talk *t, root_line *l, int e)
{
  const tt_params *p = tt_params_get();
  uint64_t now = tt_now_ns(), pause = tt_span_ns(p->socket_retry_sleep_msec, (uint64_t)++l->dials * TT_NS_PER_MS);
  uint64_t end = is_gone(l, e) ? t->began_ns + REFUSED_NS : t->deadline_ns;
  bool final =
      e == -EMFILE || e == -ENFILE || e == -EAFNOSUPPORT || e == -EPROTONOSUPPORT || e == -EKEYREJECTED || (e == -EACCES && is_fixed(l));
  if (final || l->dials > p->socket_retry_cnt || now + pause > end) {
    return false;
  }
  l->rest_ns = now + pause;
  return true;
}

// Where this rank's peers shall find it: every usable address, that from which it has reached the root first (which cannot lead nowhere),
// unless the user has named interfaces. A link-local address means nothing to other machines, so it stays behind.
static ncclResult_t own_addresses(const root_line *l, tt_addrs *out)
{
  const tt_params *p = tt_params_get();
  tt_addr here = l->way.own;
  here.port = 0;
  bool first = (p->socket_ifname == NULL || *p->socket_ifname == '\0') && here.family != 0 && here.scope == 0;
  TT_TRY(tt_netif_addrs(first ? &here : NULL, out));
  tt_netif_tell_left_out(out);
  return ncclSuccess;
}

static ncclResult_t open_door(const talk *t, const root_line *l)
{
  tt_addrs own;
  char text[TT_ADDRS_TEXT];
  if (t->j->nranks == 1 || t->j->b->door.addrs.n > 0) {
    return ncclSuccess;
  }
  TT_TRY(own_addresses(l, &own));
  int e = tt_greeter_open(&t->j->b->door, &own, &t->j->key, TT_HELLO_RING, t->j->rank);
  return e == 0 ? ncclSuccess
                : tt_fail(ncclSystemError, "rank %d cannot listen on %s: %s", t->j->rank, tt_addrs_text(&own, text), tt_sock_error_text(e));
}

// The connection was lost before the root had taken notice of this rank: it may come again.
static ncclResult_t line_dropped(const talk *t, root_line *l)
{
  tt_notes_close(&l->notes);
  if (++l->drops > REJOINS) {
    return tt_fail(ncclSystemError, "rank %d: the bootstrap root dropped %d connections in a row", t->j->rank, REJOINS);
  }
  l->rest_ns = tt_now_ns() + PAUSE_NS;
  return ncclSuccess;
}

static tt_join_card card_of(const talk *t, const root_line *l)
{
  return (tt_join_card){
      .peer = t->j->b->door.addrs, .ids = t->j->ids_name, .nroots = t->j->nids, .share = l->share, .pid = (uint32_t)getpid()};
}

// Connected: tells the root where this rank's peers find it.
static ncclResult_t send_card(const talk *t, root_line *l)
{
  TT_TRY(open_door(t, l));
  tt_join_card card = card_of(t, l);
  return tt_note_send(&l->notes, TT_NOTE_JOIN, &card, sizeof(card)) == 0 ? ncclSuccess : line_dropped(t, l);
}

static tt_hello hello_of(const talk *t, const root_line *l)
{
  return (tt_hello){.kind = TT_HELLO_JOIN, .rank = t->j->rank, .to = -1, .nranks = t->j->nranks, .tag = tt_key_name(&l->id->key)};
}

static ncclResult_t go_on_dialing(const talk *t, root_line *l)
{
  tt_hello h = hello_of(t, l);
  int fd = -1, e = 0;
  if (tt_now_ns() < l->rest_ns) {
    return ncclSuccess;
  }
  if (l->dial == NULL) {
    e = tt_dial_start(&l->id->root, &l->id->key, &h, TT_MIN(t->deadline_ns, tt_now_ns() + DIAL_NS), &l->dial);
  }
  e = e == 0 ? tt_dial_step(l->dial, &fd, &l->way.at) : e;
  if (e == 0) {
    return ncclSuccess;
  }
  if (e == 1) {
    tt_notes_open(&l->notes, fd, &l->id->key, tt_dial_hello(l->dial), false);
    (void)tt_sock_local(fd, &l->way.own);
  }
  tt_dial_cancel(l->dial);
  l->dial = NULL;
  return e == 1 ? send_card(t, l) : rest_line(t, l, e) ? ncclSuccess : unreachable(t, l, e);
}

static ncclResult_t take_failure(talk *t, const tt_note *note)
{
  t->failure = tt_note_failure(note, t->text);
  return tt_fail(t->failure, "rank %d could not join: %s", t->j->rank, t->text);
}

// What the root before says is for the own root, as soon as this rank has joined it. That one's end is seen elsewhere.
static void carry(talk *t)
{
  root_line *own = &t->lines[0];
  for (uint32_t kind = TT_NOTE_READY; kind <= TT_NOTE_GO && own->joined && !own->told; kind++) {
    if ((t->heard & ~t->carried & 1u << kind) != 0) {
      t->carried |= 1u << kind;
      (void)tt_note_send(&own->notes, kind, NULL, 0);
    }
  }
}

static void take_from_before(talk *t, root_line *l, const tt_note *note)
{
  root_line *own = &t->lines[0];
  if (note->kind == TT_NOTE_READY || note->kind == TT_NOTE_GO) {
    l->told = note->kind == TT_NOTE_GO;
    t->heard |= 1u << note->kind;
  } else if (note->kind == TT_NOTE_WAIT && note->size > 0 && own->joined && !own->told) {
    (void)tt_note_send(&own->notes, TT_NOTE_WAIT, note->body, note->size);
  }
}

static ncclResult_t hear_note(talk *t, root_line *l, const tt_note *note)
{
  l->joined = true;
  t->deadline_ns = tt_now_ns() + join_patience_ns() + SPARE_NS;
  if (note->kind == TT_NOTE_FAIL) {
    return take_failure(t, note);
  }
  if (l != &t->lines[0]) {
    take_from_before(t, l, note);
  } else if (note->kind == TT_NOTE_NEXT && note->size == sizeof(t->j->next)) {
    memcpy(&t->j->next, note->body, sizeof(t->j->next));
    l->told = true;
  } else if (note->kind == TT_NOTE_WAIT) {
    tt_bs_awaits(t->j->b, "%.*s", (int)note->size, (const char *)note->body);
  }
  carry(t);
  return ncclSuccess;
}

// `l` has been silent, or has ended.
static ncclResult_t gave_up(const talk *t, const root_line *l)
{
  char at[TT_ADDR_TEXT], all[TT_ADDRS_TEXT];
  if (l->joined && l->notes.fd < 0) {
    return tt_fail(ncclRemoteError,
                   "rank %d: the bootstrap root at %s went away before all %d ranks had joined: see the process that made the id",
                   t->j->rank, tt_addr_text(&l->way.at, at), t->j->nranks);
  }
  return tt_fail(ncclRemoteError, "rank %d: the bootstrap root at %s %s for %llu s (NCCL_BOOTSTRAP_TIMEOUT)", t->j->rank,
                 tt_addrs_text(&l->id->root, all), l->joined ? "is silent" : "accepts connections but does not answer",
                 (unsigned long long)(join_patience_ns() / TT_NS_PER_S));
}

static ncclResult_t go_on_listening(talk *t, root_line *l)
{
  tt_note note;
  int e = 1;
  while (!l->told && (e = tt_note_recv(&l->notes, &note)) == 1) {
    TT_TRY(hear_note(t, l, &note));
  }
  if (l->told || e >= 0) {
    return ncclSuccess;
  }
  if (!l->joined) {
    return line_dropped(t, l);
  }
  tt_notes_close(&l->notes);
  return gave_up(t, l);
}

static ncclResult_t step_line(talk *t, root_line *l)
{
  if (l->notes.fd < 0) {
    TT_TRY(go_on_dialing(t, l));
  }
  return l->notes.fd >= 0 ? go_on_listening(t, l) : ncclSuccess;
}

// What line `l` waits for. Returns how many.
static size_t poll_line(const root_line *l, struct pollfd *fds, uint64_t *wake_ns)
{
  if (l->told) {
    return 0;
  }
  if (l->dial != NULL) {
    return tt_dial_poll(l->dial, fds, wake_ns);
  }
  if (l->notes.fd < 0) {
    *wake_ns = TT_MIN(*wake_ns, l->rest_ns);
    return 0;
  }
  fds[0] = (struct pollfd){.fd = l->notes.fd, .events = POLLIN};
  return 1;
}

// Strangers at the own door are heard meanwhile: when the roots have spoken, the predecessor must not stand behind them.
static ncclResult_t wait_talk(const talk *t)
{
  struct pollfd fds[TT_BS_WANTS];
  uint64_t wake_ns = t->deadline_ns;
  const root_line *late = NULL; // a dial has its own deadline, and knows better what was wrong
  size_t n = 0;
  for (int i = 0; i < t->nlines; i++) {
    const root_line *l = &t->lines[i];
    n += poll_line(l, fds + n, &wake_ns);
    late = late == NULL && !l->told && l->dial == NULL ? l : late;
  }
  TT_TRY(tt_bs_wait(t->j->b, fds, n, wake_ns));
  return late != NULL && tt_now_ns() >= t->deadline_ns ? gave_up(t, late) : ncclSuccess;
}

static ncclResult_t talk_until_told(talk *t)
{
  for (;;) {
    bool told = true;
    for (int i = 0; i < t->nlines; i++) {
      if (!t->lines[i].told) {
        TT_TRY(step_line(t, &t->lines[i]));
      }
      told &= t->lines[i].told;
    }
    if (told) {
      return ncclSuccess;
    }
    TT_TRY(wait_talk(t));
  }
}

// The init has failed before this line stood: its root shall hear of it all the same. Quietly; whatever goes wrong now is no news.
static void connect_late(const talk *t, root_line *l)
{
  tt_hello h = hello_of(t, l);
  int fd = -1;
  tt_dial_cancel(l->dial);
  l->dial = NULL;
  if (tt_dial_start(&l->id->root, &l->id->key, &h, tt_now_ns() + LAST_NS, &l->dial) == 0 &&
      tt_dial_finish(l->dial, t->j->abort_flag, &fd, &l->way.at) == 1) {
    tt_join_card card = card_of(t, l);
    tt_notes_open(&l->notes, fd, &l->id->key, tt_dial_hello(l->dial), false);
    (void)tt_note_send(&l->notes, TT_NOTE_JOIN, &card, sizeof(card));
  }
}

// What ends this rank's init ends that of all shares: the roots hear of it, unless they have said it themselves. After an abort they see
// the connection end.
static void pass_failure(talk *t)
{
  bool said = t->failure != ncclSuccess;
  ncclResult_t code = said ? t->failure : ncclRemoteError;
  const char *text = said ? t->text : tt_last_error();
  for (int i = 0; i < t->nlines; i++) {
    root_line *l = &t->lines[i];
    if (l->notes.fd < 0 && !l->joined) {
      connect_late(t, l);
    }
    tt_note_send_failure(&l->notes, TT_NOTE_FAIL, code, text);
  }
}

static void add_line(talk *t, int share)
{
  root_line *l = &t->lines[t->nlines++];
  l->id = &t->j->ids[share];
  l->share = share;
  l->way.share = share;
  tt_notes_none(&l->notes);
}

ncclResult_t tt_join_roots(tt_join *j)
{
  uint64_t now = tt_now_ns();
  talk t = {.j = j, .began_ns = now, .deadline_ns = now + join_patience_ns() + SPARE_NS};
  int share = tt_share_of(j->nranks, j->nids, j->rank);
  add_line(&t, share);
  if (j->nids > 1 && j->rank == tt_share_begin(j->nranks, j->nids, share)) {
    add_line(&t, (share + j->nids - 1) % j->nids);
  }
  ncclResult_t res = talk_until_told(&t);
  if (res != ncclSuccess && t.nlines > 1 && !tt_aborted(j->abort_flag)) {
    pass_failure(&t);
  }
  j->way = t.lines[0].way;
  for (int i = 0; i < t.nlines; i++) {
    tt_dial_cancel(t.lines[i].dial);
    tt_notes_close(&t.lines[i].notes);
  }
  return res;
}
