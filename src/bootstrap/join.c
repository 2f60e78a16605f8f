// join.c: the rank's side of the conversation with the roots: connect, send the card, wait for the answer on the same
// connection. A rank has one line, to the root of its share. The first rank of a share has two, and carries what these
// roots say to each other.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/param.h"
#include "base/result.h"
#include "base/util.h"
#include "bootstrap/bootstrap_priv.h"
#include "os/netif.h"

#define REFUSED_NS (500 * TT_NS_PER_MS) // how long to believe that a root which is gone comes back
#define DIAL_NS (20 * TT_NS_PER_S)      // for one attempt: when an address is silent, what another one has said counts
#define SPARE_NS (10 * TT_NS_PER_S)     // the root is the one that gives up first, and says why
#define LAST_NS (2 * TT_NS_PER_S)       // for telling another root what went wrong

// The connection to one root.
typedef struct {
  const tt_id *id;
  int share;        // whose root it is
  tt_dial *dial;    // while connecting
  tt_conn conn;     // then; open until the root's last word is here
  bool heard;       // the root has had the hello of this connection
  bool joined;      // the root has said so
  bool done;        // its last word is here
  int dials;        // that have failed, or whose connection was lost before the root had said anything
  uint64_t rest_ns; // when to dial again
  tt_join_way way;
} join_line;

typedef struct {
  tt_join *j;
  tt_bootstrap *b;
  join_line lines[2]; // to the own root, and to the one before where this rank is the neighbour
  int nlines;
  uint64_t began_ns, deadline_ns;
  int32_t heard, carried;  // complete shares, as the root before has said, and as the own root has heard of
  ncclResult_t failure;    // what a root has said; ncclSuccess: nothing
  char text[TT_FAIL_TEXT]; // and its text
} talk;

static bool is_fixed(const join_line *l)
{
  return (l->id->flags & TT_ID_FIXED) != 0;
}

// No process listens there, or another one by now. An id's root listens before the id exists.
static bool is_gone(const join_line *l, int e)
{
  return !is_fixed(l) && (e == -ECONNREFUSED || e == -EACCES || e == -EPROTO);
}

static ncclResult_t unreachable(const talk *t, const join_line *l, int e)
{
  char at[TT_ADDRS_TEXT];
  tt_addrs_text(&l->id->root, at);
  if (is_gone(l, e)) {
    return tt_fail(
        ncclInvalidUsage,
        "rank %d: nobody listens at %s for this unique id, which process %u of that machine made. Either that "
        "process has ended: it must live until all ranks have joined, so call ncclGetUniqueId in one that "
        "stays, such as rank 0's. Or the id was already used by a communicator (each needs a new one), or "
        "was not used in time (TUTTI_ID_TIMEOUT)",
        t->b->rank, at, l->id->pid);
  }
  if (e == -EKEYREJECTED) {
    return tt_fail(ncclInvalidUsage,
                   "rank %d: the listener at %s, which NCCL_COMM_ID names, is another user's process. Choose another "
                   "port, or let the ranks of several users share a secret (TUTTI_COMM_ID_SECRET)",
                   t->b->rank, at);
  }
  if (e == -ENOKEY) {
    return tt_fail(ncclInvalidUsage, "rank %d cannot join at %s: %s", t->b->rank, at, tt_sock_error_text(e));
  }
  if (e == -EACCES && is_fixed(l)) {
    return tt_fail(
        ncclInvalidUsage,
        "rank %d: the root at %s belongs to another job, or NCCL_COMM_ID is not the same text on all ranks, or the "
        "secrets differ (TUTTI_COMM_ID_SECRET, TUTTI_COMM_ID_SECRET_FILE)",
        t->b->rank, at);
  }
  if (tt_sock_is_shortage(e)) {
    return tt_fail(ncclSystemError, "rank %d cannot connect to the bootstrap root at %s: %s", t->b->rank, at,
                   tt_sock_error_text(e));
  }
  return tt_fail(ncclSystemError,
                 "rank %d cannot reach the bootstrap root at %s: %s. Check that this machine can connect there%s",
                 t->b->rank, at, strerror(-e),
                 is_fixed(l) ? ", and that rank 0 runs where NCCL_COMM_ID says" : " (NCCL_SOCKET_IFNAME on rank 0)");
}

// After a failed dial: rests before the next one, as NCCL does longer each time, or gives up. A root that has heard the
// rank does not wait for so long.
static ncclResult_t rest_line(const talk *t, join_line *l, int e)
{
  const tt_params *p = tt_params_get();
  uint64_t now = tt_now_ns(), pause = tt_span_ns(p->socket_retry_sleep_msec, (uint64_t)++l->dials * TT_NS_PER_MS);
  uint64_t end = is_gone(l, e) ? t->began_ns + REFUSED_NS : t->deadline_ns;
  bool final = e == -EMFILE || e == -ENFILE || e == -EAFNOSUPPORT || e == -EPROTONOSUPPORT || e == -EKEYREJECTED ||
               e == -ENOKEY || (e == -EACCES && is_fixed(l));
  l->rest_ns = now + (l->heard ? TT_MIN(pause, TT_AGAIN_NS) : pause);
  l->heard = false;
  return final || l->dials > p->socket_retry_cnt || l->rest_ns > end ? unreachable(t, l, e) : ncclSuccess;
}

// Listens for the peers of this rank: on every usable address, that from which it has reached the root first (which
// cannot lead nowhere), unless the user has named interfaces. A link-local address means nothing to other machines, so
// it stays behind.
static ncclResult_t open_door(const talk *t, const join_line *l)
{
  tt_addrs own;
  char text[TT_ADDRS_TEXT];
  const char *ifname = tt_params_get()->socket_ifname;
  tt_addr here = l->way.own;
  here.port = 0;
  if (t->b->nranks == 1 || t->b->door.addrs.n > 0) {
    return ncclSuccess;
  }
  bool first = (ifname == NULL || *ifname == '\0') && here.family != 0 && here.scope == 0;
  TT_TRY(tt_netif_addrs(first ? &here : NULL, &own));
  tt_netif_tell_left_out(&own);
  int e = tt_greeter_open(&t->b->door, &own, &t->b->key, TT_HELLO_RING, t->b->rank);
  return e == 0 ? ncclSuccess
                : tt_fail(ncclSystemError, "rank %d cannot listen on %s: %s", t->b->rank, tt_addrs_text(&own, text),
                          tt_sock_error_text(e));
}

// Begins to connect to the root of a line.
static int dial_root(const talk *t, join_line *l, uint64_t deadline_ns)
{
  tt_hello h = {
      .kind = TT_HELLO_JOIN, .rank = t->b->rank, .to = -1, .nranks = t->b->nranks, .tag = tt_key_name(&l->id->key)};
  return tt_dial_start(&l->id->root, &l->id->key, &h, deadline_ns, &l->dial);
}

static void end_dial(join_line *l)
{
  tt_dial_cancel(l->dial);
  l->dial = NULL;
}

// Connected: tells the root where this rank's peers find it.
static ncclResult_t send_card(const talk *t, join_line *l, int fd)
{
  (void)tt_sock_local(fd, &l->way.own);
  l->heard = true;
  int e = tt_conn_open(&l->conn, fd, &l->id->key, tt_dial_hello(l->dial), false);
  if (e != 0) {
    tt_sock_close(&fd);
    return rest_line(t, l, e);
  }
  TT_TRY(open_door(t, l));
  tt_join_card card = {.peer = t->b->door.addrs,
                       .ids = t->j->ids_name,
                       .nroots = t->j->nids,
                       .share = l->share,
                       .pid = (uint32_t)getpid()};
  (void)tt_note_send(&l->conn, TT_NOTE_JOIN, &card, sizeof(card)); // if it is lost, the end of the connection shows
  return ncclSuccess;
}

static ncclResult_t go_on_dialing(const talk *t, join_line *l)
{
  int fd = -1, e = 0;
  if (tt_now_ns() < l->rest_ns) {
    return ncclSuccess;
  }
  if (l->dial == NULL) {
    e = dial_root(t, l, TT_MIN(t->deadline_ns, tt_now_ns() + DIAL_NS));
  }
  e = e == 0 ? tt_dial_step(l->dial, &fd, &l->way.at) : e;
  if (e == 0) {
    return ncclSuccess;
  }
  ncclResult_t res = e == 1 ? send_card(t, l, fd) : rest_line(t, l, e);
  end_dial(l);
  return res;
}

// What the root before says is for the own root, as soon as this rank has joined it. The own root's end is seen
// elsewhere.
static void carry(talk *t)
{
  join_line *own = &t->lines[0];
  if (t->heard > t->carried && own->joined && !own->done) {
    t->carried = t->heard;
    (void)tt_note_send(&own->conn, TT_NOTE_READY, &t->carried, sizeof(t->carried));
  }
}

static void take_from_before(talk *t, join_line *l, const tt_note *note)
{
  join_line *own = &t->lines[0];
  if (note->frame.kind == TT_NOTE_READY && note->frame.size == sizeof(t->heard)) {
    memcpy(&t->heard, note->body, sizeof(t->heard));
    l->done = t->heard >= t->j->nids;
  } else if (note->frame.kind == TT_NOTE_WAIT && note->frame.size > 0 && own->joined && !own->done) {
    (void)tt_note_send(&own->conn, TT_NOTE_WAIT, note->body, note->frame.size);
  }
}

static ncclResult_t take_from_root(talk *t, join_line *l, const tt_note *note)
{
  l->joined = true;
  t->deadline_ns = tt_now_ns() + tt_bs_patience_ns() + SPARE_NS;
  if (note->frame.kind == TT_NOTE_FAIL) {
    t->failure = tt_note_failure(note, t->text);
    return tt_fail(t->failure, "rank %d could not join: %s", t->b->rank, t->text);
  }
  if (l != &t->lines[0]) {
    take_from_before(t, l, note);
  } else if (note->frame.kind == TT_NOTE_NEXT && note->frame.size == sizeof(t->j->next)) {
    memcpy(&t->j->next, note->body, sizeof(t->j->next));
    l->done = true;
  } else if (note->frame.kind == TT_NOTE_WAIT) {
    tt_bs_awaits(t->b, "%.*s", (int)note->frame.size, (const char *)note->body);
  }
  carry(t);
  return ncclSuccess;
}

// `l` has been silent, or has ended.
static ncclResult_t gave_up(const talk *t, const join_line *l)
{
  char at[TT_ADDR_TEXT], all[TT_ADDRS_TEXT];
  if (l->joined && l->conn.fd < 0) {
    return tt_fail(
        ncclRemoteError,
        "rank %d: the bootstrap root at %s went away before all %d ranks had joined: see the process that made the id",
        t->b->rank, tt_addr_text(&l->way.at, at), t->b->nranks);
  }
  return tt_fail(ncclRemoteError, "rank %d: the bootstrap root at %s %s for %llu s (NCCL_BOOTSTRAP_TIMEOUT)",
                 t->b->rank, tt_addrs_text(&l->id->root, all),
                 l->joined ? "is silent" : "accepts connections but does not answer",
                 (unsigned long long)(tt_bs_patience_ns() / TT_NS_PER_S));
}

static ncclResult_t go_on_listening(talk *t, join_line *l)
{
  tt_note note;
  int e = 1;
  while (!l->done && (e = tt_note_recv(&l->conn, &note)) == 1) {
    TT_TRY(take_from_root(t, l, &note));
  }
  if (l->done || e >= 0) {
    return ncclSuccess;
  }
  tt_conn_close(&l->conn);
  // The root had not taken notice of this rank: it may come again.
  return l->joined ? gave_up(t, l) : rest_line(t, l, e);
}

static ncclResult_t step_line(talk *t, join_line *l)
{
  if (l->conn.fd < 0) {
    TT_TRY(go_on_dialing(t, l));
  }
  return l->conn.fd >= 0 ? go_on_listening(t, l) : ncclSuccess;
}

// What line `l` waits for. Returns how many.
static size_t poll_line(const join_line *l, struct pollfd *fds, uint64_t *wake_ns)
{
  if (l->done) {
    return 0;
  }
  if (l->dial != NULL) {
    return tt_dial_poll(l->dial, fds, wake_ns);
  }
  if (l->conn.fd < 0) {
    *wake_ns = TT_MIN(*wake_ns, l->rest_ns);
    return 0;
  }
  fds[0] = (struct pollfd){.fd = l->conn.fd, .events = POLLIN};
  return 1;
}

// Strangers at the own door are heard meanwhile: when the roots have spoken, the predecessor must not stand behind
// them.
static ncclResult_t wait_talk(const talk *t)
{
  struct pollfd fds[TT_BS_WANTS];
  uint64_t wake_ns = t->deadline_ns;
  const join_line *late = NULL; // a dial has its own deadline, and knows better what was wrong
  size_t n = 0;
  for (int i = 0; i < t->nlines; i++) {
    const join_line *l = &t->lines[i];
    n += poll_line(l, fds + n, &wake_ns);
    late = late == NULL && !l->done && l->dial == NULL ? l : late;
  }
  TT_TRY(tt_bs_wait(t->b, fds, n, wake_ns));
  return late != NULL && tt_now_ns() >= t->deadline_ns ? gave_up(t, late) : ncclSuccess;
}

static ncclResult_t talk_to_roots(talk *t)
{
  for (;;) {
    bool done = true;
    for (int i = 0; i < t->nlines; i++) {
      if (!t->lines[i].done) {
        TT_TRY(step_line(t, &t->lines[i]));
      }
      done &= t->lines[i].done;
    }
    if (done) {
      return ncclSuccess;
    }
    TT_TRY(wait_talk(t));
  }
}

// The init has failed before this line stood: its root shall hear of it all the same. Quietly; what goes wrong now is
// no news.
static void connect_late(const talk *t, join_line *l)
{
  int fd = -1, e = 0;
  end_dial(l);
  if (dial_root(t, l, tt_now_ns() + LAST_NS) == 0 && tt_bs_dial(t->b, l->dial, &fd, &e) == ncclSuccess && e == 0) {
    (void)send_card(t, l, fd);
  }
}

// What ends this rank's init ends that of all shares: the roots hear of it, unless they have said it themselves. After
// an abort they see the connection end.
static void pass_failure(talk *t)
{
  bool said = t->failure != ncclSuccess;
  ncclResult_t code = said ? t->failure : ncclRemoteError;
  const char *text = said ? t->text : tt_last_error();
  for (int i = 0; i < t->nlines; i++) {
    join_line *l = &t->lines[i];
    if (l->conn.fd < 0 && !l->joined) {
      connect_late(t, l);
    }
    tt_note_send_failure(&l->conn, TT_NOTE_FAIL, code, text);
  }
}

static void add_line(talk *t, int share)
{
  t->lines[t->nlines++] = (join_line){.id = &t->j->ids[share], .share = share, .conn.fd = -1, .way.share = share};
}

ncclResult_t tt_join_roots(tt_join *j)
{
  uint64_t now = tt_now_ns();
  talk t = {.j = j, .b = j->b, .began_ns = now, .deadline_ns = now + tt_bs_patience_ns() + SPARE_NS};
  int rank = j->b->rank, nranks = j->b->nranks, share = tt_share_of(nranks, j->nids, rank);
  add_line(&t, share);
  if (j->nids > 1 && rank == tt_share_begin(nranks, j->nids, share)) {
    add_line(&t, (share + j->nids - 1) % j->nids);
  }
  ncclResult_t res = talk_to_roots(&t);
  if (res != ncclSuccess && t.nlines > 1 && !tt_aborted(j->b->abort_flag)) {
    pass_failure(&t);
  }
  j->way = t.lines[0].way;
  for (int i = 0; i < t.nlines; i++) {
    end_dial(&t.lines[i]);
    tt_conn_close(&t.lines[i].conn);
  }
  return res;
}
