// root.c: what a unique id does once ranks use it. It collects where every rank listens and tells each of them its successor; then it
// ends. It never waits for anything, because all roots of a process share one thread (lobby.c), and says what is wrong to everybody who has
// joined.
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/text.h"
#include "base/util.h"
#include "bootstrap/bootstrap_priv.h"
#include "os/events.h"

#define TICK_NS (25 * TT_NS_PER_S)  // how often to say who is missing: before a rank says that it waits (wait.c)
#define ANSWER_NS (5 * TT_NS_PER_S) // for ranks to take their answers
#define LINGER_NS (2 * TT_NS_PER_S) // for telling late ranks what went wrong
#define CARD_NS (5 * TT_NS_PER_S)   // between a rank's hello and its card
#define LATE_NS (5 * TT_NS_PER_S)   // a root that has all its ranks leaves it to the others to give up first
enum { NOTES_AT_ONCE = 8 };         // that one step takes from one rank: a rank that never stops sending must not hold up the other ids

// The connection of a rank that has proved itself. It stays open while the root lives: each side sees by it that the other has died.
typedef struct tt_root_line {
  tt_root *root;
  tt_notes notes;
  tt_hello hello;
  int place;                           // its seat; -1: its card has not come
  tt_addr from;                        // the other end. This and the card: of those with a seat
  tt_join_card card;                   // what it has said
  uint64_t card_ns;                    // until when the card must have come
  struct tt_root_line *before, *after; // of those without a seat, by card_ns
} tt_root_line;

struct tt_root {
  const tt_root_shared *shared;
  void *id; // the lobby's
  tt_key key;
  int nranks;                    // 0 until the first rank has come
  int first;                     // that rank
  int nroots, share;             // as it says
  uint64_t ids;                  // the same
  int begin, count;              // own ranks
  int joined, nseats;            // nseats: one more than count when there are more roots
  tt_root_line **seats;          // own ranks in order, then the neighbour: the first rank of the next share. NULL: not joined, or gone
  bool ready, passed, all;       // READY has come, was passed on; every rank of every share has joined
  int nlines;                    // with a seat or without
  tt_root_line *oldest, *newest; // without a seat
  uint64_t timeout_ns;           // since the last rank has joined; before the first, TUTTI_ID_TIMEOUT counts
  uint64_t end_ns, tick_ns;      // 0: none
  bool spared;                   // end_ns was put off since it was set
  bool over, answered;           // the time of the current state is; every rank has its answer, and the lines are about to end
  ncclResult_t code;             // ncclSuccess, or what every rank gets
  char text[TT_FAIL_TEXT];
  int told, to_tell; // after a failure
};

// Really one per process: how many ranks have joined its roots.
static unsigned joined_ever;

unsigned tt_root_joined(void)
{
  return __atomic_load_n(&joined_ever, __ATOMIC_ACQUIRE);
}

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

static bool is_joined(const tt_root *r, int place)
{
  return r->seats[place] != NULL;
}

static bool has_all_ranks(const tt_root *r)
{
  return r->nranks > 0 && r->joined == r->nseats;
}

static int rank_of_seat(const tt_root *r, int place)
{
  return (r->begin + place) % r->nranks;
}

// The seat of a rank; -1: it does not sit here. A single root has no neighbour.
static int seat_of(const tt_root *r, int rank)
{
  int place = rank - r->begin;
  return place >= 0 && place < r->count ? place : r->nseats > r->count && rank == rank_of_seat(r, r->count) ? r->count : -1;
}

// "3, 5-7" of the ranks that have not joined; what does not fit ends in "...".
static void missing_text(const tt_root *r, char *buf, size_t room)
{
  size_t used = 0;
  buf[0] = '\0';
  for (int i = 0; i < r->nseats; i++) {
    int last = i;
    if (is_joined(r, i)) {
      continue;
    }
    while (last + 1 < r->count && !is_joined(r, last + 1)) {
      last++;
    }
    if (used + 32 > room) {
      snprintf(buf + used, room - used, ", ...");
      return;
    }
    used += (size_t)snprintf(buf + used, room - used, last > i ? "%s%d-%d" : "%s%d", used > 0 ? ", " : "", rank_of_seat(r, i),
                             rank_of_seat(r, last));
    i = last;
  }
}

// Tells everybody who has joined where the successor is, or the failure. Who cannot be told has gone, and its successor will notice.
static void answer_joined(tt_root *r)
{
  for (int i = 0; i < r->nseats; i++) {
    if (!is_joined(r, i)) {
      continue;
    }
    tt_notes *notes = &r->seats[i]->notes;
    if (r->code != ncclSuccess) {
      tt_note_send_failure(notes, TT_NOTE_FAIL, r->code, r->text);
      r->told++;
    } else if (i < r->count) {
      const tt_addrs *next = &r->seats[(i + 1) % r->nseats]->card.peer;
      (void)tt_note_send(notes, TT_NOTE_NEXT, next, sizeof(*next));
    } else {
      (void)tt_note_send(notes, TT_NOTE_GO, NULL, 0);
    }
  }
}

static void set_end(tt_root *r, uint64_t end_ns)
{
  r->end_ns = end_ns;
  r->spared = false;
}

static void fail_root(tt_root *r, ncclResult_t code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
// Everybody so far gets code and text; whoever comes within LINGER_NS gets it too, until as many as there should be have been told.
static void fail_root(tt_root *r, ncclResult_t code, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  tt_vformat(r->text, sizeof(r->text), fmt, ap);
  va_end(ap);
  tt_info(TT_BOOTSTRAP | TT_INIT, "bootstrap root: %s", r->text);
  r->code = code;
  set_end(r, tt_now_ns() + LINGER_NS);
  r->tick_ns = 0;
  r->to_tell = TT_MAX(r->to_tell, r->nseats);
  answer_joined(r);
}

static bool first_rank(tt_root *r, const tt_hello *h, const tt_join_card *card)
{
  int begin = tt_share_begin(h->nranks, card->nroots, card->share);
  int count = tt_share_begin(h->nranks, card->nroots, card->share + 1) - begin;
  int nseats = count + (card->nroots > 1);
  r->seats = tt_calloc((size_t)nseats, sizeof(r->seats[0]));
  if (r->seats == NULL) {
    return false;
  }
  r->nranks = h->nranks;
  r->first = h->rank;
  r->nroots = card->nroots;
  r->share = card->share;
  r->ids = card->ids;
  r->ready = card->share == 0;
  r->begin = begin;
  r->count = count;
  r->nseats = nseats;
  return true;
}

// Is what the rank says possible at all? No: everybody who should come is told.
static bool check_numbers(tt_root *r, const tt_hello *h, const tt_join_card *card, const tt_addr *from)
{
  char a[TT_ADDR_TEXT];
  if (h->nranks < 1 || h->nranks > TT_BOOTSTRAP_MAX_RANKS) {
    fail_root(r, ncclInvalidUsage, "a rank reports %d ranks; from 1 to %d are possible", h->nranks, TT_BOOTSTRAP_MAX_RANKS);
  } else if (card->nroots < 1 || card->nroots > h->nranks || card->share < 0 || card->share >= card->nroots) {
    fail_root(r, ncclInternalError, "rank %d of %d speaks of root %d of %d", h->rank, h->nranks, card->share, card->nroots);
  } else if (h->rank < 0 || h->rank >= h->nranks) {
    r->to_tell = TT_DIV_UP(h->nranks, card->nroots) + (card->nroots > 1);
    fail_root(r, ncclInvalidUsage, "%s (process %u) calls itself rank %d of %d: ranks go from 0 to %d", tt_addr_text(from, a), card->pid,
              h->rank, h->nranks, h->nranks - 1);
  }
  return r->code == ncclSuccess;
}

// Does it say the same as the first one? With several roots it may be one too many here, and missing elsewhere.
static bool check_agreement(tt_root *r, const tt_hello *h, const tt_join_card *card)
{
  bool several = r->nroots > 1 || card->nroots > 1;
  r->to_tell = several ? r->nseats + 1 : TT_MAX(r->nranks, h->nranks);
  if (h->nranks != r->nranks) {
    fail_root(r, ncclInvalidUsage, "ranks disagree about their number: rank %d says %d ranks, rank %d says %d ranks", r->first, r->nranks,
              h->rank, h->nranks);
  } else if (card->nroots != r->nroots) {
    fail_root(r, ncclInvalidUsage, "ranks disagree about the number of unique ids: rank %d has %d, rank %d has %d", r->first, r->nroots,
              h->rank, card->nroots);
  } else if (card->ids != r->ids || card->share != r->share || seat_of(r, h->rank) < 0) {
    fail_root(r, ncclInvalidUsage, "rank %d and rank %d have different unique ids, or the same in another order", r->first, h->rank);
  } else {
    r->to_tell = 0;
  }
  return r->code == ncclSuccess;
}

// Every rank keeps its line until all have come.
static bool check_limit(tt_root *r, const tt_hello *h, const tt_join_card *card)
{
  int lines = TT_DIV_UP(h->nranks, card->nroots);
  if (r->nranks == 0 && (uint64_t)lines >= r->shared->file_limit) {
    r->to_tell = lines + (card->nroots > 1);
    fail_root(r, ncclRemoteError,
              "the process that made the unique id may have %llu files open, and needs a connection to each of %d ranks: raise its limit "
              "(ulimit -n), or divide the ranks among more unique ids (ncclCommInitRankScalable)",
              (unsigned long long)r->shared->file_limit, lines);
  }
  return r->code == ncclSuccess;
}

// Finds out why this rank cannot sit down; true when it can.
static bool check_rank(tt_root *r, const tt_root_line *l)
{
  char a[TT_ADDR_TEXT], b[TT_ADDR_TEXT];
  const tt_hello *h = &l->hello;
  const tt_join_card *card = &l->card;
  const tt_addr *from = &l->from;
  if (!check_numbers(r, h, card, from) || !check_limit(r, h, card)) {
    return false;
  }
  if (r->nranks == 0 && !first_rank(r, h, card)) {
    r->to_tell = TT_DIV_UP(h->nranks, card->nroots) + (card->nroots > 1);
    fail_root(r, ncclRemoteError, "the process that made the unique id has no memory for a root of %d ranks",
              h->nranks); // for whom it is told, remote
    return false;
  }
  if (!check_agreement(r, h, card)) {
    return false;
  }
  int place = seat_of(r, h->rank);
  if (is_joined(r, place)) {
    const tt_root_line *s = r->seats[place];
    fail_root(r, ncclInvalidUsage, "two ranks call themselves rank %d of %d: %s (process %u) and %s (process %u). Give each its own number",
              h->rank, r->nranks, tt_addr_text(&s->from, a), s->card.pid, tt_addr_text(from, b), card->pid);
  } else if (h->nranks > 1 && !tt_addrs_good(&card->peer)) {
    fail_root(r, ncclInternalError, "rank %d (%s, process %u) has sent no usable address", h->rank, tt_addr_text(from, a), card->pid);
  }
  return r->code == ncclSuccess;
}

// Once READY has come from the roots before and everybody is here, the next root may know.
static void pass_ready(tt_root *r)
{
  if (r->nroots > 1 && has_all_ranks(r) && r->ready && !r->passed) {
    r->passed = true;
    (void)tt_note_send(&r->seats[r->count]->notes, TT_NOTE_READY, NULL, 0);
  }
}

// ---- Lines

static void leave_arrivals(tt_root_line *l)
{
  tt_root *r = l->root;
  *(l->before != NULL ? &l->before->after : &r->oldest) = l->after;
  *(l->after != NULL ? &l->after->before : &r->newest) = l->before;
}

// A forked child may have a copy of the descriptor, so the set is told first.
static void end_line(tt_root_line *l)
{
  tt_root *r = l->root;
  if (l->place < 0) {
    leave_arrivals(l);
  } else {
    r->seats[l->place] = NULL;
  }
  r->nlines--;
  tt_events_remove(r->shared->events, l->notes.fd);
  tt_notes_close(&l->notes);
  tt_free(l);
}

void tt_root_take(tt_root *r, const tt_hello *h, int fd)
{
  tt_root_line *l = tt_calloc(1, sizeof(*l));
  if (l == NULL || tt_events_watch(r->shared->events, fd, TT_EVENTS_IN, l) != 0) {
    tt_free(l);
    tt_sock_close(&fd); // it will try again
    return;
  }
  *l = (tt_root_line){.root = r, .hello = *h, .place = -1, .card_ns = tt_now_ns() + CARD_NS, .before = r->newest};
  *(r->newest != NULL ? &r->newest->after : &r->oldest) = l;
  r->newest = l;
  r->nlines++;
  tt_notes_open(&l->notes, fd, &r->key, h, true);
}

static void take_seat(tt_root *r, tt_root_line *l)
{
  leave_arrivals(l);
  l->place = seat_of(r, l->hello.rank);
  r->seats[l->place] = l;
  r->joined++;
  __atomic_add_fetch(&joined_ever, 1, __ATOMIC_RELEASE);
  r->all = r->nroots == 1 && has_all_ranks(r);
  uint64_t now = tt_now_ns();
  set_end(r, now + r->timeout_ns + (has_all_ranks(r) ? LATE_NS : 0));
  if (r->tick_ns == 0) {
    r->tick_ns = now + TT_MIN(TICK_NS, r->timeout_ns / 2);
  }
  pass_ready(r);
}

// Seats a rank that has sent its card, or tells it why not.
static void take_rank(tt_root *r, tt_root_line *l)
{
  (void)tt_sock_peer(l->notes.fd, &l->from);
  // Without this note a rank whose connection ends knows that it may try again.
  if (tt_note_send(&l->notes, TT_NOTE_JOINED, NULL, 0) != 0) {
    end_line(l);
  } else if (r->code != ncclSuccess || !check_rank(r, l)) {
    tt_note_send_failure(&l->notes, TT_NOTE_FAIL, r->code, r->text);
    r->told++;
    end_line(l);
  } else {
    take_seat(r, l);
  }
}

// Reads the card if it has come. A line on which something else comes is dropped, and `late` one without.
static void hear_card(tt_root *r, tt_root_line *l, bool late)
{
  tt_note note;
  int e = tt_note_recv(&l->notes, &note);
  if (e == 1 && note.kind == TT_NOTE_JOIN && note.size == sizeof(l->card)) {
    memcpy(&l->card, note.body, sizeof(l->card));
    take_rank(r, l);
  } else if (e != 0 || late) {
    end_line(l);
  }
}

// Ranks of another share are missing, as their root says: it is that root which gives up first. Passed on until it has gone round.
static void take_wait(tt_root *r, const tt_note *note)
{
  int32_t share;
  if (note->size != sizeof(share) || !has_all_ranks(r)) {
    return;
  }
  memcpy(&share, note->body, sizeof(share));
  set_end(r, tt_now_ns() + r->timeout_ns + LATE_NS);
  if ((r->share + 1) % r->nroots != share) {
    (void)tt_note_send(&r->seats[r->count]->notes, TT_NOTE_WAIT, &share, sizeof(share));
  }
}

// What another root says, through the rank that sits at both. False: no rank of ours says this.
static bool take_note(tt_root *r, int place, const tt_note *note)
{
  bool from_before = r->nroots > 1 && place == 0;
  char text[TT_FAIL_TEXT];
  if (note->kind == TT_NOTE_FAIL && r->nroots > 1) {
    ncclResult_t code = tt_note_failure(note, text);
    fail_root(r, code, "%s", text);
  } else if (note->kind == TT_NOTE_READY && from_before) {
    r->all |= r->share == 0;
    r->ready = true;
    pass_ready(r);
  } else if (note->kind == TT_NOTE_GO && from_before) {
    r->all = true;
  } else if (note->kind == TT_NOTE_WAIT && from_before) {
    take_wait(r, note);
  } else {
    return false;
  }
  return true;
}

// A joined rank sends nothing of its own: when its line says something else than notes of another root, it has gone.
static void hear_seat(tt_root *r, tt_root_line *l)
{
  char at[TT_ADDR_TEXT];
  tt_note note;
  int e = 1;
  for (int i = 0; i < NOTES_AT_ONCE && e == 1 && r->code == ncclSuccess; i++) {
    e = tt_note_recv(&l->notes, &note);
    e = e == 1 && !take_note(r, l->place, &note) ? -EPROTO : e;
  }
  if (e < 0 && r->code == ncclSuccess) {
    fail_root(r, ncclRemoteError, "rank %d (%s, process %u) went away before all %d ranks had joined", rank_of_seat(r, l->place),
              tt_addr_text(&l->from, at), l->card.pid, r->nranks);
    end_line(l);
  }
}

// A rank closes its line when it has its answer; closing first would look like a death. What it says until then is no news.
static void await_end(tt_root_line *l)
{
  tt_note note;
  int e = 1;
  for (int i = 0; i < NOTES_AT_ONCE && e == 1; i++) {
    e = tt_note_recv(&l->notes, &note);
  }
  if (e < 0) {
    end_line(l);
  }
}

void *tt_root_hear(void *line)
{
  tt_root_line *l = line;
  tt_root *r = l->root;
  if (l->place < 0) {
    hear_card(r, l, false);
  } else if (r->code == ncclSuccess && !r->answered) {
    hear_seat(r, l);
  } else {
    await_end(l);
  }
  return r->id;
}

// ---- Time

// Says who is missing, here and to the waiting ranks, which learn that the root lives; the neighbour tells the next root.
static void tell_who_is_missing(tt_root *r)
{
  char missing[256], text[320];
  int32_t share = r->share;
  missing_text(r, missing, sizeof(missing));
  if (has_all_ranks(r)) {
    snprintf(text, sizeof(text), "ranks of the other %d roots", r->nroots - 1);
  } else {
    snprintf(text, sizeof(text), "ranks %s of %d", missing, r->nranks);
  }
  tt_info(TT_BOOTSTRAP | TT_INIT, "bootstrap root: waiting for %s", text);
  for (int i = 0; i < r->nseats; i++) {
    if (is_joined(r, i) && i < r->count) {
      (void)tt_note_send(&r->seats[i]->notes, TT_NOTE_WAIT, text, strlen(text));
    } else if (is_joined(r, i)) {
      (void)tt_note_send(&r->seats[i]->notes, TT_NOTE_WAIT, &share, has_all_ranks(r) ? 0 : sizeof(share));
    }
  }
  r->tick_ns = tt_now_ns() + TT_MIN(TICK_NS, r->timeout_ns / 2);
}

bool tt_bs_is_over(uint64_t *end_ns, bool *spared, uint64_t wake_ns)
{
  uint64_t now = tt_now_ns();
  if (*end_ns == 0 || now < *end_ns) {
    return false;
  }
  if (now - wake_ns < TT_HELD_UP_NS || *spared) {
    return true;
  }
  *end_ns = now + TT_MIN(now - wake_ns, TT_SPARE_NS);
  *spared = true;
  return false;
}

static void time_out(tt_root *r)
{
  char missing[256];
  unsigned long long seconds = r->timeout_ns / TT_NS_PER_S;
  missing_text(r, missing, sizeof(missing));
  if (has_all_ranks(r)) {
    fail_root(r, ncclRemoteError,
              "no sign of the roots of other unique ids within %llu s since the last of ranks %d-%d joined (NCCL_BOOTSTRAP_TIMEOUT)",
              seconds, r->begin, r->begin + r->count - 1);
  } else {
    int shortage = r->shared->door->shortage;
    fail_root(r, ncclRemoteError, "ranks %s of %d have not joined within %llu s since the last one did (NCCL_BOOTSTRAP_TIMEOUT)%s%s",
              missing, r->nranks, seconds, shortage != 0 ? ". The root could not take all that came: " : "",
              shortage != 0 ? tt_sock_error_text(shortage) : "");
  }
}

// Everybody has joined, or everybody who came has been told why not.
static bool root_finished(const tt_root *r)
{
  return r->code == ncclSuccess ? r->all : r->told >= r->to_tell;
}

bool tt_root_is_open(const tt_root *r)
{
  return !r->over && !r->answered && !root_finished(r);
}

uint64_t tt_root_wake_ns(const tt_root *r)
{
  uint64_t wake_ns = r->oldest != NULL ? r->oldest->card_ns : 0;
  tt_wake_by(&wake_ns, r->end_ns);
  tt_wake_by(&wake_ns, r->tick_ns);
  return wake_ns;
}

void tt_root_step(tt_root *r, uint64_t wake_ns)
{
  if (tt_bs_is_over(&r->end_ns, &r->spared, wake_ns)) {
    r->over = r->answered || r->code != ncclSuccess || r->nranks == 0;
    if (!r->over) {
      time_out(r);
    }
  }
  while (r->oldest != NULL && tt_now_ns() >= r->oldest->card_ns) {
    hear_card(r, r->oldest, true);
  }
  if (r->tick_ns != 0 && tt_now_ns() >= r->tick_ns) {
    tell_who_is_missing(r);
  }
}

static void drop_arrivals(tt_root *r)
{
  while (r->oldest != NULL) {
    end_line(r->oldest);
  }
}

void tt_root_answer(tt_root *r)
{
  if (r->answered) {
    return;
  }
  drop_arrivals(r);
  if (r->code == ncclSuccess) {
    answer_joined(r);
  }
  r->answered = true;
  r->over = false;
  r->tick_ns = 0;
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
    r->key = *key;
    r->end_ns = end_ns;
    r->id = id;
    r->timeout_ns = tt_span_ns(tt_params_get()->bootstrap_timeout, TT_NS_PER_S);
  }
  return r;
}

void tt_root_destroy(tt_root *r)
{
  for (int i = 0; i < r->nseats; i++) {
    if (is_joined(r, i)) {
      tt_sock_kill(r->seats[i]->notes.fd);
      end_line(r->seats[i]);
    }
  }
  drop_arrivals(r);
  tt_free(r->seats);
  tt_free(r);
}
