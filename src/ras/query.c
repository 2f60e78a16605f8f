// query.c: see query.h.
#include "ras/query.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "bootstrap/dial.h"
#include "os/clock.h"
#include "ras/ring.h"
#include "ras/wire.h"

#define ANSWER_SECONDS 5.0 // for a process's whole answer
#define HASTE 0.9          // part of a client's time-out after which the answer goes out
enum { LEGS_AT_ONCE = 128, PAGES_MOST = 100000, KIN_MOST = 1 << 16, KIN_COMMS = 4096 };

typedef enum { LEG_WAITS, LEG_DIALS, LEG_ASKED, LEG_ANSWERED, LEG_FAILED } leg_state;

// One process that is asked: for its ranks, for those of communicators that are new here, and for what the client
// wants.
typedef struct leg {
  ras_peer peer;
  bool is_lost; // is considered dead by a process that knows it
  leg_state state;
  tt_dial *dial;
  tt_conn conn;
  ras_request asked;
  int pages;
  ras_text text; // of its answer so far
} leg;

// A communicator of others.
typedef struct kin_comm {
  uint64_t hash;
  uint64_t from; // cookie of the process that is asked for its ranks
  bool asked;
} kin_comm;

struct ras_query {
  ras_question what;
  uint32_t arg;
  uint64_t began_ns, deadline_ns;
  ras_report report;
  ras_text lines;
  bool any_text; // in `lines`, of a process
  leg *all;
  int n, room, open; // open: dialled or asked
  kin_comm *comms;
  int ncomms, comm_room;
  int nmet;   // of report.kin: whose processes are among the legs
  int npeers; // that have answered, with this one
};

// ---- what is collected

static void collect_ranks(ras_query *q, const ras_rank *ranks, int n)
{
  if (tt_grow(&q->report.ranks, q->report.nranks, n, &q->report.rank_room, sizeof *ranks)) {
    memcpy(q->report.ranks + q->report.nranks, ranks, (size_t)n * sizeof *ranks);
    q->report.nranks += n;
  }
}

// Notes the communicators that are not this process's: `from` will be asked for their ranks.
static void note_comms(ras_query *q, uint64_t from, const ras_answer *a)
{
  for (uint32_t i = 0; i < a->n; i++) {
    tt_ras_member m;
    int k = ras_registry_member(a->ranks[i].hash, 0, &m) || q->ncomms >= KIN_COMMS ? q->ncomms + 1 : 0;
    while (k < q->ncomms && q->comms[k].hash != a->ranks[i].hash) {
      k++;
    }
    if (k == q->ncomms && tt_grow(&q->comms, q->ncomms, 1, &q->comm_room, sizeof *q->comms)) {
      q->comms[q->ncomms++] = (kin_comm){.hash = a->ranks[i].hash, .from = from};
    }
  }
}

static void collect_kin(ras_query *q, const tt_key *key, const ras_answer *a)
{
  ras_report *r = &q->report;
  if (r->nkin < KIN_MOST && tt_grow(&r->kin, r->nkin, (int)a->n, &r->kin_room, sizeof *r->kin)) {
    for (uint32_t i = 0; i < a->n; i++) {
      r->kin[r->nkin] = a->kin[i];
      ras_kin_cover(&r->kin[r->nkin++], key);
    }
  }
}

// A page of a process's answer to `what`, whose text is `text`.
static void collect(ras_query *q, uint32_t what, ras_text *text, const ras_answer *a)
{
  if (what != RAS_QUERY_RANKS) {
    ras_add(text, "%.*s", (int)a->n, a->text);
  } else if (q->what == RAS_QUERY_RANKS) {
    collect_ranks(q, a->ranks, (int)a->n);
  }
}

// The text of a process is whole. Of lines a part is good too; a dump is good as a whole, and a process may have none.
static void collect_text(ras_query *q, ras_text *text, bool whole)
{
  bool dump = q->what == RAS_QUERY_RECORDER;
  if (text->size > 0 && !text->failed && (whole || !dump)) {
    ras_add(&q->lines, "%s%s", dump && q->any_text ? ",\n" : "", text->data);
    q->any_text = true;
  }
  ras_text_free(text);
}

static void query_self(const ras_server *s, ras_query *q)
{
  ras_request request = {.what = q->what, .arg = q->arg};
  ras_text kept = {.size = 0}, text = {.size = 0};
  do {
    ras_answer a;
    ras_answer_make(s, &request, NULL, &kept, &a);
    collect(q, q->what, &text, &a);
    request.cursor = a.cursor;
  } while (request.cursor != 0);
  collect_text(q, &text, true);
  q->npeers = 1;
}

// ---- one process

static void leg_end(ras_query *q, leg *a, leg_state state)
{
  tt_dial_cancel(a->dial);
  a->dial = NULL;
  tt_conn_close(&a->conn);
  a->state = state;
  collect_text(q, &a->text, state == LEG_ANSWERED);
  q->open--;
  q->npeers += state == LEG_ANSWERED;
}

static void leg_dial(ras_query *q, leg *a)
{
  const tt_addrs to = {.n = 1, .a = {a->peer.who.at}};
  const tt_hello hello = ras_hello(&a->peer);
  a->state = LEG_DIALS;
  q->open++;
  if (tt_dial_start(&to, &a->peer.key, &hello, 0, &a->dial) != 0) {
    leg_end(q, a, LEG_FAILED);
  }
}

static bool leg_send(leg *a)
{
  return tt_note_send(&a->conn, RAS_NOTE_REQUEST, &a->asked, sizeof a->asked) == 0;
}

// The next question after one that has been answered. False: there is none.
static bool leg_next(ras_query *q, leg *a)
{
  if (a->asked.what == q->what && q->what != RAS_QUERY_RANKS) {
    return false;
  }
  for (int i = 0; i < q->ncomms; i++) {
    kin_comm *c = &q->comms[i];
    if (c->from == a->peer.who.proc.cookie && !c->asked) {
      c->asked = true;
      a->asked = (ras_request){.what = RAS_QUERY_KIN, .hash = c->hash};
      return true;
    }
  }
  a->asked = (ras_request){.what = q->what, .arg = q->arg};
  return q->what != RAS_QUERY_RANKS;
}

static void leg_connect(ras_query *q, leg *a)
{
  int fd, e = tt_dial_step(a->dial, &fd, &(tt_addr){.family = 0});
  if (e == 0) {
    return;
  }
  if (e > 0 && tt_conn_open(&a->conn, fd, &a->peer.key, tt_dial_hello(a->dial), false) != 0) {
    tt_sock_close(&fd);
    e = -ENOMEM;
  }
  if (e < 0) {
    leg_end(q, a, LEG_FAILED);
    return;
  }
  tt_dial_cancel(a->dial);
  a->dial = NULL;
  a->state = LEG_ASKED;
  a->asked = (ras_request){.what = RAS_QUERY_RANKS};
  if (!leg_send(a)) {
    leg_end(q, a, LEG_FAILED);
  }
}

static void leg_receive(ras_query *q, leg *a)
{
  tt_note note;
  int e;
  while ((e = tt_note_recv(&a->conn, &note)) == 1) {
    if (!ras_answer_good(&note, a->asked.what) || ++a->pages > PAGES_MOST || a->text.size > RAS_ANSWER_MOST) {
      leg_end(q, a, LEG_FAILED);
      return;
    }
    ras_answer page;
    memcpy(&page, note.body, note.frame.size);
    if (a->asked.what == RAS_QUERY_KIN) {
      collect_kin(q, &a->conn.key, &page);
    } else {
      collect(q, a->asked.what, &a->text, &page);
    }
    if (a->asked.what == RAS_QUERY_RANKS) {
      note_comms(q, a->peer.who.proc.cookie, &page);
    }
    a->asked.cursor = page.cursor;
    if (page.cursor == 0 && !leg_next(q, a)) {
      leg_end(q, a, LEG_ANSWERED);
      return;
    }
    if (!leg_send(a)) {
      break;
    }
  }
  if (e != 0) {
    leg_end(q, a, LEG_FAILED);
  }
}

static void leg_step(ras_query *q, leg *a)
{
  if (a->state == LEG_WAITS && q->open < LEGS_AT_ONCE) {
    leg_dial(q, a);
  }
  if (a->state == LEG_DIALS) {
    leg_connect(q, a);
  }
  if (a->state == LEG_ASKED) {
    leg_receive(q, a);
  }
}

// ---- the whole

static bool is_met(const ras_query *q, uint64_t cookie)
{
  int i = 0;
  while (i < q->n && q->all[i].peer.who.proc.cookie != cookie) {
    i++;
  }
  return i < q->n || cookie == tt_proc_self().cookie;
}

// Processes that others have told of are asked too.
static void meet_kin(ras_query *q)
{
  for (; q->nmet < q->report.nkin; q->nmet++) {
    const ras_kin *kin = &q->report.kin[q->nmet];
    if (!is_met(q, kin->peer.who.proc.cookie) && tt_grow(&q->all, q->n, 1, &q->room, sizeof *q->all)) {
      q->all[q->n++] = (leg){.peer = kin->peer,
                             .is_lost = kin->dead != 0,
                             .conn.fd = -1,
                             .state = kin->dead != 0 ? LEG_FAILED : LEG_WAITS};
    }
  }
}

static void query_free(ras_query *q)
{
  for (int i = 0; q->all != NULL && i < q->n; i++) {
    tt_dial_cancel(q->all[i].dial);
    tt_conn_close(&q->all[i].conn);
    ras_text_free(&q->all[i].text);
  }
  tt_free(q->all);
  tt_free(q->comms);
  ras_report_free(&q->report);
  ras_text_free(&q->lines);
  tt_free(q);
}

static bool list_legs(ras_server *s, ras_query *q)
{
  ras_sighting *peers = NULL;
  int n = ras_registry_peers(&peers);
  bool good = n >= 0 && tt_grow(&q->all, 0, n, &q->room, sizeof *q->all);
  q->n = good ? n : 0;
  for (int i = 0; i < q->n; i++) {
    bool gone = ras_ring_gave_up(s, peers[i].peer.who.proc.cookie);
    q->all[i] = (leg){.peer = peers[i].peer, .conn.fd = -1, .state = gone ? LEG_FAILED : LEG_WAITS};
  }
  tt_free(peers);
  return good;
}

void ras_query_start(ras_server *s, ras_question what, uint32_t arg, double seconds)
{
  ras_query *q = tt_calloc(1, sizeof *q);
  if (q == NULL) {
    return;
  }
  uint64_t most = ras_seconds(s, ANSWER_SECONDS), haste = (uint64_t)(TT_MIN(seconds, 1e6) * HASTE * 1e9);
  q->what = what;
  q->arg = arg;
  q->began_ns = tt_now_ns();
  q->deadline_ns = q->began_ns + (seconds > 0 ? TT_MIN(most, haste) : most);
  if (!list_legs(s, q)) {
    query_free(q);
    return;
  }
  if (what == RAS_QUERY_DIAGNOSTICS) {
    ras_add(&q->lines, "=== RAS Diagnostics ===\n");
  } else if (what == RAS_QUERY_RECORDER) {
    ras_add(&q->lines, "{\"tutti\": {\"flight_recorder\": [\n");
  }
  query_self(s, q);
  s->query = q;
  ras_query_step(s);
}

static bool list_processes(ras_server *s, ras_query *q)
{
  ras_report *r = &q->report;
  r->processes = tt_calloc((size_t)q->n + 1, sizeof *r->processes);
  if (r->processes == NULL) {
    return false;
  }
  r->processes[r->nprocesses++] = (ras_process){
      .who = {.proc = tt_proc_self(), .at = ras_server_address(s), .host = tt_proc_host_hash()}, .answered = true};
  for (int i = 0; i < q->n; i++) {
    const leg *a = &q->all[i];
    bool answered = a->state == LEG_ANSWERED;
    r->processes[r->nprocesses++] =
        (ras_process){.who = a->peer.who,
                      .answered = answered,
                      .unresponsive = !answered,
                      .dead = !answered && (a->is_lost || ras_ring_is_dead(s, &a->peer.who))};
  }
  return true;
}

static void query_end(ras_server *s, ras_query *q)
{
  double seconds = (double)(tt_now_ns() - q->began_ns) / 1e9;
  ras_query_result result = {.what = q->what, .report = &q->report, .lines = &q->lines};
  s->query = NULL;
  q->report.seconds = seconds;
  for (int i = 0; i < q->n; i++) {
    q->report.timeouts += q->all[i].state == LEG_ASKED || q->all[i].state == LEG_DIALS;
  }
  if (q->what == RAS_QUERY_DIAGNOSTICS) {
    ras_add(&q->lines, "RAS diagnostics completed in %.0f ms across %d RAS peer%s\n", seconds * 1e3, q->npeers,
            q->npeers == 1 ? "" : "s");
  } else if (q->what == RAS_QUERY_RECORDER) {
    ras_add(&q->lines, "],\n\"processes\": %d, \"missing_processes\": %d}}\n", q->n + 1, q->n + 1 - q->npeers);
  }
  if (list_processes(s, q) && ras_report_sort(&q->report)) {
    ras_clients_answer(s, &result);
  }
  query_free(q);
}

void ras_query_poll(ras_server *s)
{
  const ras_query *q = s->query;
  for (int i = 0; q != NULL && i < q->n; i++) {
    leg *a = &q->all[i];
    struct pollfd fds[TT_DIAL_POLL];
    size_t n = a->dial != NULL ? tt_dial_poll(a->dial, fds, &s->polls.wake_ns) : 0;
    for (size_t k = 0; k < n; k++) {
      ras_poll_add(&s->polls, fds[k].fd, fds[k].events);
    }
    if (a->state == LEG_ASKED) {
      ras_poll_add(&s->polls, a->conn.fd, POLLIN);
    }
  }
  if (q != NULL) {
    tt_wake_by(&s->polls.wake_ns, q->deadline_ns);
  }
}

void ras_query_step(ras_server *s)
{
  ras_query *q = s->query;
  if (q == NULL) {
    return;
  }
  bool waits = false;
  for (int i = 0; i < q->n; i++) {
    leg_step(q, &q->all[i]);
    meet_kin(q);
    waits |= q->all[i].state < LEG_ANSWERED;
  }
  if (!waits || tt_now_ns() >= q->deadline_ns) {
    query_end(s, q);
  }
}

void ras_query_cancel(ras_server *s)
{
  if (s->query != NULL) {
    query_free(s->query);
    s->query = NULL;
  }
}
