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

#define TICK_NS (25 * TT_NS_PER_S)  // how often to say who is missing: before a rank says that it waits (wait.c)
#define ANSWER_NS (5 * TT_NS_PER_S) // for ranks to take their answers
#define LINGER_NS (2 * TT_NS_PER_S) // for telling late ranks what went wrong
#define CARD_NS (5 * TT_NS_PER_S)   // between a rank's hello and its card
#define LATE_NS (5 * TT_NS_PER_S)   // a root that has all its ranks leaves it to the others to give up first
enum { NOTES_AT_ONCE = 8 };         // that one step takes from one rank: a rank that never stops sending must not hold up the other ids

// A rank that has joined.
typedef struct {
  tt_notes line; // open while the root lives: each side sees by it that the other has died. No socket: not joined
  tt_addr from;  // the other end of it
  tt_join_card card;
} seat;

// A rank that has proved itself and says who it is.
typedef struct {
  tt_notes line;
  tt_hello hello;
  uint64_t deadline_ns;
} arrival;

struct tt_root {
  const tt_greeter *door; // through which its ranks come
  tt_key key;
  int nranks;              // 0 until the first rank has come
  int first;               // that rank
  int nroots, share;       // as it says
  uint64_t ids;            // the same
  int begin, count;        // own ranks
  int joined, nseats;      // nseats: one more than count when there are more roots
  seat *seats;             // own ranks in order, then the neighbour: the first rank of the next share
  bool ready, passed, all; // READY has come, was passed on; every rank of every share has joined
  int narrivals, arrivals_room;
  arrival *arrivals;
  uint64_t file_limit;      // most descriptors that the process may have
  uint64_t timeout_ns;      // since the last rank has joined; before the first, TUTTI_ID_TIMEOUT counts
  uint64_t end_ns, tick_ns; // 0: none
  bool spared;              // end_ns was put off since it was set
  bool over, answered;      // the time of the current state is; every rank has its answer, and the lines are about to end
  ncclResult_t code;        // ncclSuccess, or what every rank gets
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
  return r->seats[place].line.fd >= 0;
}

static bool complete(const tt_root *r)
{
  return r->nranks > 0 && r->joined == r->nseats;
}

static int rank_at(const tt_root *r, int place)
{
  return (r->begin + place) % r->nranks;
}

// The seat of a rank; -1: it does not sit here. A single root has no neighbour.
static int place_of(const tt_root *r, int rank)
{
  int place = rank - r->begin;
  return place >= 0 && place < r->count ? place : r->nseats > r->count && rank == rank_at(r, r->count) ? r->count : -1;
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
    used += (size_t)snprintf(buf + used, room - used, last > i ? "%s%d-%d" : "%s%d", used > 0 ? ", " : "", rank_at(r, i), rank_at(r, last));
    i = last;
  }
}

static void send_failure(const tt_root *r, tt_notes *line)
{
  uint8_t note[sizeof(int32_t) + TT_FAIL_TEXT];
  int32_t code = (int32_t)r->code;
  size_t size = strlen(r->text);
  memcpy(note, &code, sizeof(code));
  memcpy(note + sizeof(code), r->text, size);
  (void)tt_note_send(line, TT_NOTE_FAIL, note, sizeof(code) + size);
}

// Tells everybody who has joined where the successor is, or the failure. Who cannot be told has gone, and its successor will notice.
static void answer_joined(tt_root *r)
{
  for (int i = 0; i < r->nseats; i++) {
    tt_notes *line = &r->seats[i].line;
    if (is_joined(r, i) && r->code != ncclSuccess) {
      send_failure(r, line);
      r->told++;
    } else if (i < r->count) {
      const tt_addrs *next = &r->seats[(i + 1) % r->nseats].card.peer;
      (void)tt_note_send(line, TT_NOTE_NEXT, next, sizeof(*next));
    } else {
      (void)tt_note_send(line, TT_NOTE_GO, NULL, 0);
    }
  }
}

static void set_end(tt_root *r, uint64_t end_ns)
{
  r->end_ns = end_ns;
  r->spared = false;
}

static void fail(tt_root *r, ncclResult_t code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
// Everybody so far gets code and text; whoever comes within LINGER_NS gets it too, until as many as there should be have been told.
static void fail(tt_root *r, ncclResult_t code, const char *fmt, ...)
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
  for (int i = 0; i < nseats; i++) {
    tt_notes_none(&r->seats[i].line);
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
    fail(r, ncclInvalidUsage, "a rank reports %d ranks; from 1 to %d are possible", h->nranks, TT_BOOTSTRAP_MAX_RANKS);
  } else if (card->nroots < 1 || card->nroots > h->nranks || card->share < 0 || card->share >= card->nroots) {
    fail(r, ncclInternalError, "rank %d of %d speaks of root %d of %d", h->rank, h->nranks, card->share, card->nroots);
  } else if (h->rank < 0 || h->rank >= h->nranks) {
    r->to_tell = TT_DIV_UP(h->nranks, card->nroots) + (card->nroots > 1);
    fail(r, ncclInvalidUsage, "%s (process %u) calls itself rank %d of %d: ranks go from 0 to %d", tt_addr_text(from, a), card->pid,
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
    fail(r, ncclInvalidUsage, "ranks disagree about their number: rank %d says %d ranks, rank %d says %d ranks", r->first, r->nranks,
         h->rank, h->nranks);
  } else if (card->nroots != r->nroots) {
    fail(r, ncclInvalidUsage, "ranks disagree about the number of unique ids: rank %d has %d, rank %d has %d", r->first, r->nroots, h->rank,
         card->nroots);
  } else if (card->ids != r->ids || card->share != r->share || place_of(r, h->rank) < 0) {
    fail(r, ncclInvalidUsage, "rank %d and rank %d have different unique ids, or the same in another order", r->first, h->rank);
  } else {
    r->to_tell = 0;
  }
  return r->code == ncclSuccess;
}

// Every rank keeps its line until all have come.
static bool check_limit(tt_root *r, const tt_hello *h, const tt_join_card *card)
{
  int lines = TT_DIV_UP(h->nranks, card->nroots);
  if (r->nranks == 0 && (uint64_t)lines >= r->file_limit) {
    r->to_tell = lines + (card->nroots > 1);
    fail(r, ncclRemoteError,
         "the process that made the unique id may have %llu files open, and needs a connection to each of %d ranks: raise its limit "
         "(ulimit -n), or divide the ranks among more unique ids (ncclCommInitRankScalable)",
         (unsigned long long)r->file_limit, lines);
  }
  return r->code == ncclSuccess;
}

// Finds out why this rank cannot sit down; true when it can.
static bool check_rank(tt_root *r, const tt_hello *h, const tt_join_card *card, const tt_addr *from)
{
  char a[TT_ADDR_TEXT], b[TT_ADDR_TEXT];
  if (!check_numbers(r, h, card, from) || !check_limit(r, h, card)) {
    return false;
  }
  if (r->nranks == 0 && !first_rank(r, h, card)) {
    r->to_tell = TT_DIV_UP(h->nranks, card->nroots) + (card->nroots > 1);
    fail(r, ncclRemoteError, "the process that made the unique id has no memory for a root of %d ranks",
         h->nranks); // for whom it is told, remote
    return false;
  }
  if (!check_agreement(r, h, card)) {
    return false;
  }
  int place = place_of(r, h->rank);
  if (is_joined(r, place)) {
    const seat *s = &r->seats[place];
    fail(r, ncclInvalidUsage, "two ranks call themselves rank %d of %d: %s (process %u) and %s (process %u). Give each its own number",
         h->rank, r->nranks, tt_addr_text(&s->from, a), s->card.pid, tt_addr_text(from, b), card->pid);
  } else if (h->nranks > 1 && !tt_addrs_good(&card->peer)) {
    fail(r, ncclInternalError, "rank %d (%s, process %u) has sent no usable address", h->rank, tt_addr_text(from, a), card->pid);
  }
  return r->code == ncclSuccess;
}

// Once READY has come from the roots before and everybody is here, the next root may know.
static void pass_ready(tt_root *r)
{
  if (r->nroots > 1 && complete(r) && r->ready && !r->passed) {
    r->passed = true;
    (void)tt_note_send(&r->seats[r->count].line, TT_NOTE_READY, NULL, 0);
  }
}

// Seats a rank that has sent its card, or tells it why not. Takes over its line.
static void take_rank(tt_root *r, arrival *a, const tt_join_card *card)
{
  tt_addr from = {.family = 0};
  (void)tt_sock_peer(a->line.fd, &from);
  // Without this note a rank whose connection ends knows that it may try again.
  if (tt_note_send(&a->line, TT_NOTE_JOINED, NULL, 0) != 0) {
    tt_notes_close(&a->line);
    return;
  }
  if (r->code != ncclSuccess || !check_rank(r, &a->hello, card, &from)) {
    send_failure(r, &a->line);
    r->told++;
    tt_notes_close(&a->line);
    return;
  }
  r->seats[place_of(r, a->hello.rank)] = (seat){.line = a->line, .from = from, .card = *card};
  r->joined++;
  __atomic_add_fetch(&joined_ever, 1, __ATOMIC_RELEASE);
  r->all = r->nroots == 1 && complete(r);
  uint64_t now = tt_now_ns();
  set_end(r, now + r->timeout_ns + (complete(r) ? LATE_NS : 0));
  if (r->tick_ns == 0) {
    r->tick_ns = now + TT_MIN(TICK_NS, r->timeout_ns / 2);
  }
  pass_ready(r);
}

void tt_root_take(tt_root *r, const tt_hello *h, int fd)
{
  if (r->narrivals == r->arrivals_room) {
    int room = TT_MAX(8, 2 * r->arrivals_room);
    arrival *more = tt_calloc((size_t)room, sizeof(more[0]));
    if (more == NULL) {
      tt_sock_close(&fd); // it will try again
      return;
    }
    if (r->narrivals > 0) {
      memcpy(more, r->arrivals, (size_t)r->narrivals * sizeof(more[0]));
    }
    tt_free(r->arrivals);
    r->arrivals = more;
    r->arrivals_room = room;
  }
  arrival *a = &r->arrivals[r->narrivals++];
  *a = (arrival){.hello = *h, .deadline_ns = tt_now_ns() + CARD_NS};
  tt_notes_open(&a->line, fd, &r->key, h, true);
}

// Reads the cards that have come; arrivals that send something else, or nothing, are dropped.
static void hear_arrivals(tt_root *r)
{
  uint64_t now = tt_now_ns();
  for (int i = 0; i < r->narrivals;) {
    tt_note note;
    tt_join_card card;
    arrival *a = &r->arrivals[i];
    int e = tt_note_recv(&a->line, &note);
    if (e == 0 && now < a->deadline_ns) {
      i++;
      continue;
    }
    if (e == 1 && note.kind == TT_NOTE_JOIN && note.size == sizeof(card)) {
      memcpy(&card, note.body, sizeof(card));
      take_rank(r, a, &card);
    } else {
      tt_notes_close(&a->line);
    }
    r->arrivals[i] = r->arrivals[--r->narrivals];
  }
}

static void take_fail(tt_root *r, const tt_note *note)
{
  int32_t code = ncclRemoteError;
  int size = (int)note->size - (int)sizeof(code);
  memcpy(&code, note->body, size < 0 ? 0 : sizeof(code));
  bool known = code > ncclSuccess && code < ncclInProgress;
  fail(r, known ? (ncclResult_t)code : ncclRemoteError, "%.*s", TT_MAX(size, 0), (const char *)note->body + sizeof(code));
}

// Ranks of another share are missing, as their root says: it is that root which gives up first. Passed on until it has gone round.
static void take_wait(tt_root *r, const tt_note *note)
{
  int32_t share;
  if (note->size != sizeof(share) || !complete(r)) {
    return;
  }
  memcpy(&share, note->body, sizeof(share));
  set_end(r, tt_now_ns() + r->timeout_ns + LATE_NS);
  if ((r->share + 1) % r->nroots != share) {
    (void)tt_note_send(&r->seats[r->count].line, TT_NOTE_WAIT, &share, sizeof(share));
  }
}

// What another root says, through the rank that sits at both. False: no rank of ours says this.
static bool take_note(tt_root *r, int place, const tt_note *note)
{
  bool from_before = r->nroots > 1 && place == 0;
  if (note->kind == TT_NOTE_FAIL && r->nroots > 1) {
    take_fail(r, note);
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
static void hear_seat(tt_root *r, int place)
{
  char at[TT_ADDR_TEXT];
  tt_note note;
  seat *s = &r->seats[place];
  int e = 1;
  for (int i = 0; i < NOTES_AT_ONCE && e == 1 && r->code == ncclSuccess; i++) {
    e = tt_note_recv(&s->line, &note);
    e = e == 1 && !take_note(r, place, &note) ? -EPROTO : e;
  }
  if (e < 0 && r->code == ncclSuccess) {
    tt_notes_close(&s->line);
    r->told++;
    fail(r, ncclRemoteError, "rank %d (%s, process %u) went away before all %d ranks had joined", rank_at(r, place),
         tt_addr_text(&s->from, at), s->card.pid, r->nranks);
  }
}

// A rank closes its line when it has its answer; closing first would look like a death. What it says until then is no news.
static void await_end(tt_root *r, int place)
{
  tt_note note;
  tt_notes *line = &r->seats[place].line;
  int e = 1;
  for (int i = 0; i < NOTES_AT_ONCE && e == 1; i++) {
    e = tt_note_recv(line, &note);
  }
  if (e < 0) {
    tt_notes_close(line);
  }
}

// Does it listen to the ranks that have joined?
static bool hears_lines(const tt_root *r)
{
  return r->code == ncclSuccess || r->answered;
}

static void look_at_lines(tt_root *r, const struct pollfd *lines)
{
  for (int i = 0; i < r->nseats && hears_lines(r); i++) {
    if (!is_joined(r, i) || lines++->revents == 0) {
      continue;
    }
    if (r->answered) {
      await_end(r, i);
    } else {
      hear_seat(r, i);
    }
  }
}

// Says who is missing, here and to the waiting ranks, which learn that the root lives; the neighbour tells the next root.
static void tick(tt_root *r)
{
  char missing[256], text[320];
  int32_t share = r->share;
  missing_text(r, missing, sizeof(missing));
  if (complete(r)) {
    snprintf(text, sizeof(text), "ranks of the other %d roots", r->nroots - 1);
  } else {
    snprintf(text, sizeof(text), "ranks %s of %d", missing, r->nranks);
  }
  tt_info(TT_BOOTSTRAP | TT_INIT, "bootstrap root: waiting for %s", text);
  for (int i = 0; i < r->nseats; i++) {
    if (is_joined(r, i) && i < r->count) {
      (void)tt_note_send(&r->seats[i].line, TT_NOTE_WAIT, text, strlen(text));
    } else if (is_joined(r, i)) {
      (void)tt_note_send(&r->seats[i].line, TT_NOTE_WAIT, &share, complete(r) ? 0 : sizeof(share));
    }
  }
  r->tick_ns = tt_now_ns() + TT_MIN(TICK_NS, r->timeout_ns / 2);
}

// Is the time of the current state over? A root that was to wake up at `wake_ns` and was held up (a stopped process, a busy machine) has not heard who came
// meanwhile: it listens once more, for as long as it was away.
static bool is_over(tt_root *r, uint64_t wake_ns)
{
  uint64_t now = tt_now_ns();
  if (r->end_ns == 0 || now < r->end_ns) {
    return false;
  }
  if (now - wake_ns < TT_HELD_UP_NS || r->spared) {
    return true;
  }
  r->end_ns = now + TT_MIN(now - wake_ns, TT_SPARE_NS);
  r->spared = true;
  return false;
}

static void time_out(tt_root *r)
{
  char missing[256];
  unsigned long long seconds = r->timeout_ns / TT_NS_PER_S;
  missing_text(r, missing, sizeof(missing));
  if (complete(r)) {
    fail(r, ncclRemoteError,
         "no sign of the roots of other unique ids within %llu s since the last of ranks %d-%d joined (NCCL_BOOTSTRAP_TIMEOUT)", seconds,
         r->begin, r->begin + r->count - 1);
  } else {
    bool full = r->door->shortage != 0;
    fail(r, ncclRemoteError, "ranks %s of %d have not joined within %llu s since the last one did (NCCL_BOOTSTRAP_TIMEOUT)%s%s", missing,
         r->nranks, seconds, full ? ". The root could not take all that came: " : "", full ? tt_sock_error_text(r->door->shortage) : "");
  }
}

// Everybody has joined, or everybody who came has been told why not.
static bool finished(const tt_root *r)
{
  return r->code == ncclSuccess ? r->all : r->told >= r->to_tell;
}

bool tt_root_is_open(const tt_root *r)
{
  return !r->over && !r->answered && !finished(r);
}

size_t tt_root_poll_room(const tt_root *r)
{
  return (size_t)r->nseats + (size_t)r->narrivals;
}

// First the lines, as look_at_lines takes them. Seats without one stay out: poll(2) counts every entry against the limit of open files.
size_t tt_root_poll(const tt_root *r, struct pollfd *fds, uint64_t *wake_ns)
{
  size_t n = 0;
  for (int i = 0; i < r->nseats && hears_lines(r); i++) {
    if (is_joined(r, i)) {
      fds[n++] = (struct pollfd){.fd = r->seats[i].line.fd, .events = POLLIN};
    }
  }
  for (int i = 0; i < r->narrivals; i++) {
    fds[n++] = (struct pollfd){.fd = r->arrivals[i].line.fd, .events = POLLIN};
    tt_wake_by(wake_ns, r->arrivals[i].deadline_ns);
  }
  tt_wake_by(wake_ns, r->end_ns);
  tt_wake_by(wake_ns, r->tick_ns);
  return n;
}

void tt_root_step(tt_root *r, const struct pollfd *fds, uint64_t wake_ns)
{
  if (is_over(r, wake_ns)) {
    r->over = r->answered || r->code != ncclSuccess || r->nranks == 0;
    if (!r->over) {
      time_out(r);
    }
  }
  if (fds != NULL) {
    look_at_lines(r, fds);
  }
  hear_arrivals(r);
  if (r->tick_ns != 0 && tt_now_ns() >= r->tick_ns) {
    tick(r);
  }
}

void tt_root_starve(tt_root *r, size_t n)
{
  if (r->code == ncclSuccess && !r->answered) {
    r->to_tell = TT_MAX(r->nseats, 1);
    fail(r, ncclRemoteError, "the process that made the unique id may not wait for its %zu connections any more: see its ulimit -n", n);
  }
}

static void close_arrivals(tt_root *r)
{
  while (r->narrivals > 0) {
    tt_notes_close(&r->arrivals[--r->narrivals].line);
  }
}

void tt_root_answer(tt_root *r)
{
  if (r->answered) {
    return;
  }
  close_arrivals(r);
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
  bool lines = false;
  for (int i = 0; i < r->nseats; i++) {
    lines |= is_joined(r, i);
  }
  return r->answered && (r->over || !lines);
}

tt_root *tt_root_new(const tt_greeter *door, const tt_key *key, uint64_t end_ns, uint64_t file_limit)
{
  tt_root *r = tt_calloc(1, sizeof(*r));
  if (r != NULL) {
    r->door = door;
    r->key = *key;
    r->end_ns = end_ns;
    r->file_limit = file_limit;
    r->timeout_ns = tt_span_ns(tt_params_get()->bootstrap_timeout, TT_NS_PER_S);
  }
  return r;
}

void tt_root_destroy(tt_root *r)
{
  for (int i = 0; i < r->nseats; i++) {
    tt_sock_kill(r->seats[i].line.fd);
    tt_notes_close(&r->seats[i].line);
  }
  close_arrivals(r);
  tt_free(r->seats);
  tt_free(r->arrivals);
  tt_free(r);
}
