// root.c: what a unique id does once ranks use it. It collects where every rank listens and tells each of them its
// successor; then it ends. It never waits, because all roots of a process share one thread (lobby.c). What is wrong it
// says to all that have joined.
//
// A root collects until it has all ranks, has failed, or its time is over. A root that has failed stays for a while to
// tell late ranks. Then it is closed; the lobby lets it answer, and it ends when all ranks have taken their answers.
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "base/util.h"
#include "bootstrap/bootstrap_priv.h"

#define TICK_NS (25 * TT_NS_PER_S)     // how often to name the missing ranks: before a rank says that it waits (wait.c)
#define ANSWER_NS (5 * TT_NS_PER_S)    // for ranks to take their answers
#define TELL_NS (2 * TT_NS_PER_S)      // for telling late ranks what went wrong
#define CARD_NS (5 * TT_NS_PER_S)      // between a rank's hello and its card
#define BACK_NS (10 * TT_AGAIN_NS)     // for a rank that has lost its connection before its card to come again
#define LATE_NS (5 * TT_NS_PER_S)      // a root that has all its ranks leaves it to the others to give up first
#define HELD_UP_NS (50 * TT_NS_PER_MS) // a thread that wakes up so late was held up (a stopped process, a busy machine)
#define PUT_OFF_NS (5 * TT_NS_PER_S)   // and then puts an end off by as long as it was away, but at most by this
enum { NOTES_AT_ONCE = 8 }; // that one step takes from one rank: a rank that never stops must not hold up the other ids

// The connection of a rank that has proved itself. It stays open while the root lives: each side sees by it that the
// other has died.
typedef struct tt_root_line {
  tt_root *root;
  tt_conn conn;
  int seat;    // -1: its card has not come
  bool lost;   // the connection has ended without a card; in root.lost
  bool spared; // the rank has got the time to come again once more
  struct tt_root_line *next_lost;
  tt_span due;       // without a seat: in root.arrivals, at the time when the card, or the rank, must have come
  tt_addr from;      // the other end. This and the card: of those with a seat
  tt_join_card card; // what it has said
} tt_root_line;

struct tt_root {
  const tt_root_shared *shared;
  const tt_key *key;
  void *id; // the lobby's
  int nlines;
  tt_span *arrivals;   // lines without a seat
  tt_root_line *lost;  // those whose ranks may come again
  bool over, answered; // the time of the current state is; every rank has its answer, and the lines are about to end
  // As the first rank says.
  struct {
    int nranks; // 0 until it has come
    int first;  // that rank
    int nroots, share;
    uint64_t ids;
  } job;
  // Own ranks in order, then, where there are more roots, the neighbour: the first rank of the next share.
  struct {
    tt_root_line **lines; // NULL: not joined, or gone
    int begin, own, n, joined;
  } seats;
  // Complete shares in a row, as far as is known: those before this one (-1: the first is not), and what the next root
  // was told. From nroots on all ranks have joined.
  struct {
    int before, passed;
  } shares;
  // 0: no end, no tick. `spared`: the end was put off since it was set.
  struct {
    uint64_t end_ns, tick_ns;
    bool spared;
  } time;
  struct {
    ncclResult_t code; // ncclSuccess, or what every rank gets
    char *text;        // NULL: no memory for it
    int sent, to_send; // to so many ranks
  } failure;
};

int tt_share_begin(int nranks, int nroots, int share)
{
  return share * (nranks / nroots) + TT_MIN(share, nranks % nroots);
}

int tt_share_of(int nranks, int nroots, int rank)
{
  int low = 0, high = nroots - 1;
  while (low < high) {
    int middle = (low + high + 1) / 2;
    if (rank < tt_share_begin(nranks, nroots, middle)) {
      high = middle - 1;
    } else {
      low = middle;
    }
  }
  return low;
}

static bool has_all_ranks(const tt_root *r)
{
  return r->job.nranks > 0 && r->seats.joined == r->seats.n;
}

// Have the ranks of all shares joined?
static bool is_complete(const tt_root *r)
{
  return r->job.nranks > 0 && r->shares.passed >= r->job.nroots;
}

static bool root_failed(const tt_root *r)
{
  return r->failure.code != ncclSuccess;
}

static int rank_of_seat(const tt_root *r, int seat)
{
  return (r->seats.begin + seat) % r->job.nranks;
}

// The seat of a rank; -1: it does not sit here, or is no rank at all. A single root has no neighbour.
static int root_seat_of(const tt_root *r, int rank)
{
  int begin = r->seats.begin, own = r->seats.own;
  bool sits = rank >= begin && rank - begin < own;
  return sits ? rank - begin : r->seats.n > own && rank == rank_of_seat(r, own) ? own : -1;
}

// "3, 5-7" of the ranks that have joined this root, or have not; what does not fit ends in "...".
static void seats_text(const tt_root *r, bool joined, char *buf, size_t room)
{
  buf[0] = '\0';
  for (int i = 0, last; i < r->seats.n; i = last + 1) {
    last = i;
    while (last + 1 < r->seats.own && (r->seats.lines[last + 1] != NULL) == (r->seats.lines[i] != NULL)) {
      last++;
    }
    if ((r->seats.lines[i] != NULL) == joined) {
      tt_list_add(buf, room, last > i ? "%d-%d" : "%d", rank_of_seat(r, i), rank_of_seat(r, last));
    }
  }
}

static void send_failure(tt_root *r, tt_root_line *l)
{
  const char *text = r->failure.text != NULL ? r->failure.text : "no memory for the text of what went wrong";
  tt_note_send_failure(&l->conn, TT_NOTE_FAIL, r->failure.code, text);
  r->failure.sent++;
}

static void send_shares(tt_root *r)
{
  int32_t n = r->shares.passed;
  (void)tt_note_send(&r->seats.lines[r->seats.own]->conn, TT_NOTE_READY, &n, sizeof(n));
}

static void answer_seat(tt_root *r, int i)
{
  tt_root_line *l = r->seats.lines[i];
  if (root_failed(r)) {
    send_failure(r, l);
  } else if (i < r->seats.own) {
    const tt_addrs *next = &r->seats.lines[(i + 1) % r->seats.n]->card.peer;
    (void)tt_note_send(&l->conn, TT_NOTE_NEXT, next, sizeof(*next));
  } else {
    send_shares(r);
  }
}

// Tells all that have joined where the successor is, or the failure. A rank that cannot be told has gone, and its
// successor will notice. Ranks of this process last: it may end as soon as they know, and this thread with it.
static void answer_joined(tt_root *r)
{
  uint32_t pid = (uint32_t)getpid();
  for (int here = 0; here < 2; here++) {
    for (int i = 0; i < r->seats.n; i++) {
      if (r->seats.lines[i] != NULL && (r->seats.lines[i]->card.pid == pid) == here) {
        answer_seat(r, i);
      }
    }
  }
}

static void set_end(tt_root *r, uint64_t end_ns)
{
  r->time.end_ns = end_ns;
  r->time.spared = false;
}

static void fail_root(tt_root *r, ncclResult_t code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
// All ranks so far get code and text. A rank that comes within TELL_NS gets it too, until as many as there should be
// have been told.
static void fail_root(tt_root *r, ncclResult_t code, const char *fmt, ...)
{
  va_list ap;
  r->failure.text = tt_calloc(1, TT_FAIL_TEXT);
  if (r->failure.text != NULL) {
    va_start(ap, fmt);
    tt_vformat(r->failure.text, TT_FAIL_TEXT, fmt, ap);
    va_end(ap);
    tt_info(TT_BOOTSTRAP | TT_INIT, "bootstrap root: %s", r->failure.text);
  }
  r->failure.code = code;
  set_end(r, tt_now_ns() + TELL_NS);
  r->time.tick_ns = 0;
  r->failure.to_send = TT_MAX(r->failure.to_send, r->seats.n);
  answer_joined(r);
}

// ---- Is what a rank says right? If not, all ranks that should come are told.

// What the first rank says holds for the others. A rank keeps its line until all have come, so there must be a
// descriptor for each.
static void take_first(tt_root *r, const tt_hello *h, const tt_join_card *card)
{
  int begin = tt_share_begin(h->nranks, card->nroots, card->share);
  int own = tt_share_begin(h->nranks, card->nroots, card->share + 1) - begin, n = own + (card->nroots > 1);
  int most = TT_DIV_UP(h->nranks, card->nroots);
  uint64_t limit = r->shared->file_limit;
  if ((uint64_t)most >= limit) {
    fail_root(
        r, ncclRemoteError,
        "the process that made the unique id may have %llu files open, and needs a connection to each of %d "
        "ranks: raise its limit (ulimit -n), or divide the ranks among more unique ids (ncclCommInitRankScalable)",
        (unsigned long long)limit, most);
    return;
  }
  r->seats.lines = tt_calloc((size_t)n, sizeof(r->seats.lines[0]));
  if (r->seats.lines == NULL) { // remote to the ranks that are told
    fail_root(r, ncclRemoteError, "the process that made the unique id has no memory for a root of %d ranks",
              h->nranks);
    return;
  }
  r->job.nranks = h->nranks;
  r->job.first = h->rank;
  r->job.nroots = card->nroots;
  r->job.share = card->share;
  r->job.ids = card->ids;
  r->seats.begin = begin;
  r->seats.own = own;
  r->seats.n = n;
  r->shares.before = card->share == 0 ? 0 : -1;
}

// Is it possible at all?
static void check_numbers(tt_root *r, const tt_root_line *l)
{
  char from[TT_ADDR_TEXT];
  const tt_hello *h = &l->conn.hello;
  const tt_join_card *card = &l->card;
  if (h->nranks < 1 || h->nranks > TT_BOOTSTRAP_MAX_RANKS) {
    fail_root(r, ncclInvalidUsage, "a rank reports %d ranks; from 1 to %d are possible", h->nranks,
              TT_BOOTSTRAP_MAX_RANKS);
    return;
  }
  if (card->nroots < 1 || card->nroots > h->nranks || card->share < 0 || card->share >= card->nroots) {
    fail_root(r, ncclInternalError, "rank %d of %d speaks of root %d of %d", h->rank, h->nranks, card->share,
              card->nroots);
    return;
  }
  r->failure.to_send = TT_DIV_UP(h->nranks, card->nroots) + (card->nroots > 1);
  if (h->rank < 0 || h->rank >= h->nranks) {
    fail_root(r, ncclInvalidUsage, "%s (process %u) calls itself rank %d of %d: ranks go from 0 to %d",
              tt_addr_text(&l->from, from), card->pid, h->rank, h->nranks, h->nranks - 1);
  } else if (r->job.nranks == 0) {
    take_first(r, h, card);
  }
}

// Does it say the same as the first one? With several roots it may be one too many here, and missing elsewhere.
static void check_agreement(tt_root *r, const tt_root_line *l)
{
  int first = r->job.first, rank = l->conn.hello.rank, nranks = l->conn.hello.nranks, nroots = l->card.nroots;
  r->failure.to_send = r->job.nroots > 1 || nroots > 1 ? r->seats.n + 1 : TT_MAX(r->job.nranks, nranks);
  if (nranks != r->job.nranks) {
    fail_root(r, ncclInvalidUsage, "ranks disagree about their number: rank %d says %d ranks, rank %d says %d ranks",
              first, r->job.nranks, rank, nranks);
  } else if (nroots != r->job.nroots) {
    fail_root(r, ncclInvalidUsage, "ranks disagree about the number of unique ids: rank %d has %d, rank %d has %d",
              first, r->job.nroots, rank, nroots);
  } else if (l->card.ids != r->job.ids || l->card.share != r->job.share || root_seat_of(r, rank) < 0) {
    fail_root(r, ncclInvalidUsage, "rank %d and rank %d have different unique ids, or the same in another order", first,
              rank);
  }
}

static void check_seat(tt_root *r, const tt_root_line *l)
{
  char a[TT_ADDR_TEXT], b[TT_ADDR_TEXT];
  int rank = l->conn.hello.rank;
  const tt_root_line *other = r->seats.lines[root_seat_of(r, rank)];
  r->failure.to_send = 0;
  if (other != NULL) {
    fail_root(r, ncclInvalidUsage,
              "two ranks call themselves rank %d of %d: %s (process %u) and %s (process %u). Give each its own number",
              rank, r->job.nranks, tt_addr_text(&other->from, a), other->card.pid, tt_addr_text(&l->from, b),
              l->card.pid);
  } else if (r->job.nranks > 1 && !tt_addrs_good(&l->card.peer)) {
    fail_root(r, ncclInternalError, "rank %d (%s, process %u) has sent no usable address", rank,
              tt_addr_text(&l->from, a), l->card.pid);
  }
}

static bool check_rank(tt_root *r, const tt_root_line *l)
{
  void (*const checks[])(tt_root *, const tt_root_line *) = {check_numbers, check_agreement, check_seat};
  for (size_t i = 0; i < TT_COUNT(checks) && !root_failed(r); i++) {
    checks[i](r, l);
  }
  return !root_failed(r);
}

// ---- Lines

// A forked child may have a copy of the descriptor, so the set is told first.
static void close_line(tt_root_line *l)
{
  if (l->conn.fd >= 0) {
    tt_events_remove(l->root->shared->events, l->conn.fd);
    tt_conn_close(&l->conn);
  }
}

static void end_line(tt_root_line *l)
{
  tt_root *r = l->root;
  if (l->lost) {
    tt_root_line **at = &r->lost;
    while (*at != l) {
      at = &(*at)->next_lost;
    }
    *at = l->next_lost;
  }
  tt_timer_set(&r->arrivals, &l->due, 0);
  if (l->seat >= 0) {
    r->seats.lines[l->seat] = NULL;
  }
  r->nlines--;
  close_line(l);
  tt_free(l);
}

// A line of a rank whose card is to come, or which is to come again, by a time.
static void begin_line(tt_root *r, tt_root_line *l, uint64_t due_ns)
{
  l->root = r;
  l->seat = -1;
  tt_timer_set(&r->arrivals, &l->due, due_ns);
  r->nlines++;
}

// The rank has come again.
static void forgive_lost(tt_root *r, int rank)
{
  for (tt_root_line *l = r->lost, *next; l != NULL; l = next) {
    next = l->next_lost;
    if (l->conn.hello.rank == rank) {
      end_line(l);
    }
  }
}

void tt_root_take(tt_root *r, const tt_hello *h, int fd)
{
  tt_root_line *l = tt_calloc(1, sizeof(*l));
  if (l == NULL || tt_conn_open(&l->conn, fd, r->key, h, true) != 0) {
    tt_free(l);
    tt_sock_close(&fd); // it will try again
    return;
  }
  begin_line(r, l, tt_now_ns() + CARD_NS);
  forgive_lost(r, h->rank);
  if (tt_events_watch(r->shared->events, fd, TT_EVENTS_IN, l) != 0) {
    end_line(l);
  }
}

// Of a rank that gets no answer, and may be the first one that comes: so many others do.
static void expect_others(tt_root *r, const tt_hello *h)
{
  r->failure.to_send = TT_CLAMP(h->nranks, 1, TT_BOOTSTRAP_MAX_RANKS) - 1;
}

void tt_root_refuse(tt_root *r, const tt_hello *h)
{
  if (!root_failed(r) && !r->answered) {
    expect_others(r, h);
    fail_root(r, ncclInvalidUsage,
              "rank %d has not the encryption key of the process that made the unique id: call ncclSetEncryption with "
              "one key on every rank, before ncclGetUniqueId",
              h->rank);
  }
}

// The connection has ended, most likely because the rank has died; it has a moment to come again.
static void lose_line(tt_root *r, tt_root_line *l)
{
  tt_hello h = l->conn.hello;
  close_line(l);
  l->conn.hello = h;
  l->lost = true;
  l->next_lost = r->lost;
  r->lost = l;
  tt_timer_set(&r->arrivals, &l->due, tt_now_ns() + BACK_NS);
}

void tt_root_miss(tt_root *r, const tt_hello *h)
{
  tt_root_line *l = root_failed(r) || r->answered ? NULL : tt_calloc(1, sizeof(*l));
  if (l != NULL) {
    l->conn = (tt_conn){.fd = -1, .hello = *h};
    begin_line(r, l, 0);
    lose_line(r, l);
  }
}

// The time of a lost line is over.
static void judge_lost(tt_root *r, tt_root_line *l)
{
  tt_hello h = l->conn.hello;
  int seat = r->job.nranks > 0 ? root_seat_of(r, h.rank) : -1;
  bool sits = seat >= 0 && r->seats.lines[seat] != NULL;
  end_line(l);
  if (!sits && !root_failed(r) && !r->answered) {
    expect_others(r, &h);
    fail_root(r, ncclRemoteError,
              "rank %d went away while it joined: its connection to the root has ended, and it has not come again",
              h.rank);
  }
}

// Once the shares before are complete and all ranks are here, the next root may know. What it hears last, when all
// shares are complete, is its answer.
static void pass_shares(tt_root *r)
{
  if (has_all_ranks(r) && r->shares.before >= r->shares.passed) {
    r->shares.passed = r->shares.before + 1;
    if (r->shares.passed < r->job.nroots) {
      send_shares(r);
    }
  }
}

static void set_tick(tt_root *r)
{
  r->time.tick_ns = tt_now_ns() + TT_MIN(TICK_NS, tt_bs_patience_ns() / 2);
}

static void take_seat(tt_root *r, tt_root_line *l)
{
  tt_timer_set(&r->arrivals, &l->due, 0);
  l->seat = root_seat_of(r, l->conn.hello.rank);
  r->seats.lines[l->seat] = l;
  r->seats.joined++;
  set_end(r, tt_now_ns() + tt_bs_patience_ns() + (has_all_ranks(r) ? LATE_NS : 0));
  if (r->time.tick_ns == 0) {
    set_tick(r);
  }
  pass_shares(r);
}

// Seats a rank that has sent its card, or tells it why not.
static void take_rank(tt_root *r, tt_root_line *l)
{
  (void)tt_sock_peer(l->conn.fd, &l->from);
  // Without this note a rank whose connection ends knows that it may try again.
  if (tt_note_send(&l->conn, TT_NOTE_JOINED, NULL, 0) != 0) {
    lose_line(r, l);
  } else if (root_failed(r) || !check_rank(r, l)) {
    send_failure(r, l);
    end_line(l);
  } else {
    take_seat(r, l);
  }
}

// Reads the card if it has come. A line on which something else comes is dropped, and `late` one without.
static void hear_card(tt_root *r, tt_root_line *l, bool late)
{
  tt_note note;
  int e = tt_note_recv(&l->conn, &note);
  if (e == 1 && note.frame.kind == TT_NOTE_JOIN && note.frame.size == sizeof(l->card)) {
    memcpy(&l->card, note.body, sizeof(l->card));
    take_rank(r, l);
  } else if (e == -ECONNRESET) {
    lose_line(r, l);
  } else if (e != 0 || late) {
    end_line(l);
  }
}

// Ranks of another share are missing, as their root says: it is that root which gives up first. Passed on until it has
// gone round.
static void take_wait(tt_root *r, int32_t share)
{
  if (has_all_ranks(r) && share >= 0 && share < r->job.nroots) {
    set_end(r, tt_now_ns() + tt_bs_patience_ns() + LATE_NS);
    if ((r->job.share + 1) % r->job.nroots != share) {
      (void)tt_note_send(&r->seats.lines[r->seats.own]->conn, TT_NOTE_WAIT, &share, sizeof(share));
    }
  }
}

// What another root says, through the rank that sits at both. False: no rank of ours says this.
static bool take_note(tt_root *r, const tt_root_line *l, const tt_note *note)
{
  bool several = r->job.nroots > 1, from_before = several && l->seat == 0;
  char text[TT_FAIL_TEXT];
  int32_t n = -1;
  if (note->frame.kind == TT_NOTE_FAIL && several) {
    ncclResult_t code = tt_note_failure(note, text);
    fail_root(r, code, "%s", text);
    return true;
  }
  memcpy(&n, note->body, note->frame.size == sizeof(n) ? sizeof(n) : 0);
  if (note->frame.kind == TT_NOTE_READY && from_before) {
    r->shares.before = TT_CLAMP(n, r->shares.before, r->job.nroots);
    pass_shares(r);
  } else if (note->frame.kind == TT_NOTE_WAIT && from_before) {
    take_wait(r, n);
  }
  return from_before && (note->frame.kind == TT_NOTE_READY || note->frame.kind == TT_NOTE_WAIT);
}

// A joined rank sends nothing of its own: when its line says something else than notes of another root, it has gone. It
// closes its line when it has its answer; closing first would look like a death. What it says from then on is no news.
static void hear_seat(tt_root *r, tt_root_line *l)
{
  char at[TT_ADDR_TEXT];
  tt_note note;
  int e = 1;
  bool done = root_failed(r) || r->answered;
  for (int i = 0; i < NOTES_AT_ONCE && e == 1 && done == (root_failed(r) || r->answered); i++) {
    e = tt_note_recv(&l->conn, &note);
    e = e == 1 && !done && !take_note(r, l, &note) ? -EPROTO : e;
  }
  if (e < 0) {
    if (!done) {
      fail_root(r, ncclRemoteError, "rank %d (%s, process %u) went away before all %d ranks had joined",
                l->conn.hello.rank, tt_addr_text(&l->from, at), l->card.pid, r->job.nranks);
    }
    end_line(l);
  }
}

void *tt_root_hear(void *line)
{
  tt_root_line *l = line;
  tt_root *r = l->root;
  if (l->seat < 0) {
    hear_card(r, l, false);
  } else {
    hear_seat(r, l);
  }
  return r->id;
}

// ---- Time

// Names the missing ranks, here and to the waiting ones, which learn that the root lives; the neighbour tells the next
// root.
static void name_missing(tt_root *r)
{
  char missing[256], text[320];
  int32_t share = r->job.share;
  seats_text(r, false, missing, sizeof(missing));
  if (has_all_ranks(r)) {
    snprintf(text, sizeof(text), "ranks of the other %d roots", r->job.nroots - 1);
  } else {
    snprintf(text, sizeof(text), "ranks %s of %d", missing, r->job.nranks);
  }
  tt_attn(TT_BOOTSTRAP | TT_INIT, "bootstrap root: waiting for %s", text);
  for (int i = 0; i < r->seats.n; i++) {
    tt_root_line *l = r->seats.lines[i];
    if (l != NULL && i < r->seats.own) {
      (void)tt_note_send(&l->conn, TT_NOTE_WAIT, text, strlen(text));
    } else if (l != NULL) {
      (void)tt_note_send(&l->conn, TT_NOTE_WAIT, &share, has_all_ranks(r) ? 0 : sizeof(share));
    }
  }
  set_tick(r);
}

static void time_out(tt_root *r)
{
  char missing[256], joined[256];
  unsigned long long seconds = tt_bs_patience_ns() / TT_NS_PER_S;
  int shortage = r->shared->door->shortage;
  seats_text(r, false, missing, sizeof(missing));
  seats_text(r, true, joined, sizeof(joined));
  if (has_all_ranks(r)) {
    fail_root(r, ncclRemoteError,
              "no sign of the roots of other unique ids within %llu s since the last of ranks %d-%d joined "
              "(NCCL_BOOTSTRAP_TIMEOUT)",
              seconds, r->seats.begin, r->seats.begin + r->seats.own - 1);
  } else {
    fail_root(r, ncclRemoteError,
              "ranks %s of %d have not joined within %llu s since the last one did (NCCL_BOOTSTRAP_TIMEOUT); of those "
              "that join here, ranks %s have%s%s",
              missing, r->job.nranks, seconds, joined, shortage != 0 ? ". The root could not take all that came: " : "",
              shortage != 0 ? tt_sock_error_text(shortage) : "");
  }
}

// Has this thread been away beyond the time for which it had slept? Then it has not heard the ranks that came
// meanwhile.
static bool held_up(uint64_t wake_ns)
{
  uint64_t now = tt_now_ns();
  return now > wake_ns && now - wake_ns >= HELD_UP_NS;
}

// Is the time over? Where this thread was held up, the end is put off for as long as it was away, once.
static bool root_is_over(tt_root *r, uint64_t wake_ns)
{
  uint64_t now = tt_now_ns();
  if (r->time.end_ns == 0 || now < r->time.end_ns) {
    return false;
  }
  if (!held_up(wake_ns) || r->time.spared) {
    return true;
  }
  r->time.end_ns = now + TT_MIN(now - wake_ns, PUT_OFF_NS);
  r->time.spared = true;
  return false;
}

bool tt_root_is_open(const tt_root *r)
{
  return !r->over && !r->answered && (root_failed(r) ? r->failure.sent < r->failure.to_send : !is_complete(r));
}

uint64_t tt_root_wake_ns(const tt_root *r)
{
  const tt_span *first = tt_timer_first(r->arrivals);
  uint64_t wake_ns = first == NULL ? 0 : first->start;
  tt_wake_by(&wake_ns, r->time.end_ns);
  tt_wake_by(&wake_ns, r->time.tick_ns);
  return wake_ns;
}

void tt_root_step(tt_root *r, uint64_t wake_ns)
{
  if (root_is_over(r, wake_ns)) {
    r->over = r->answered || root_failed(r) || r->job.nranks == 0;
    if (!r->over) {
      time_out(r);
    } else if (r->job.nranks == 0) {
      tt_info(TT_BOOTSTRAP | TT_INIT, "bootstrap: no rank has used a unique id in time (TUTTI_ID_TIMEOUT): it ends");
    }
  }
  for (tt_span *s; (s = tt_timer_first(r->arrivals)) != NULL && tt_now_ns() >= s->start;) {
    tt_root_line *l = TT_SPAN_OWNER(s, tt_root_line, due);
    if (l->lost && held_up(wake_ns) && !l->spared) {
      l->spared = true;
      tt_timer_set(&r->arrivals, &l->due, tt_now_ns() + BACK_NS);
    } else if (l->lost) {
      judge_lost(r, l);
    } else {
      hear_card(r, l, true);
    }
  }
  if (r->time.tick_ns != 0 && tt_now_ns() >= r->time.tick_ns) {
    name_missing(r);
  }
}

static void drop_arrivals(tt_root *r)
{
  for (tt_span *s; (s = r->arrivals) != NULL;) {
    end_line(TT_SPAN_OWNER(s, tt_root_line, due));
  }
}

void tt_root_answer(tt_root *r)
{
  drop_arrivals(r);
  if (!root_failed(r)) {
    answer_joined(r);
  }
  r->answered = true;
  r->over = false;
  r->time.tick_ns = 0;
  set_end(r, tt_now_ns() + ANSWER_NS);
}

bool tt_root_has_ended(const tt_root *r)
{
  return r->answered && (r->over || r->nlines == 0);
}

tt_root *tt_root_new(const tt_root_shared *shared, const tt_key *key, uint64_t end_ns, void *id)
{
  tt_root *r = tt_calloc(1, sizeof(*r));
  if (r != NULL) {
    r->shared = shared;
    r->key = key;
    r->id = id;
    r->time.end_ns = end_ns;
  }
  return r;
}

void tt_root_destroy(tt_root *r)
{
  for (int i = 0; i < r->seats.n; i++) {
    if (r->seats.lines[i] != NULL) {
      tt_sock_kill(r->seats.lines[i]->conn.fd);
      end_line(r->seats.lines[i]);
    }
  }
  drop_arrivals(r);
  tt_free(r->seats.lines);
  tt_free(r->failure.text);
  tt_free(r);
}
