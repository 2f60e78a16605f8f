// ring.c: see ring.h.
#include "ras/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "base/util.h"
#include "bootstrap/dial.h"
#include "os/clock.h"
#include "ras/wire.h"

// NCCL's times, in seconds.
#define ALIVE_SECONDS 1.0
#define WARN_SECONDS 5.0
#define DEAD_SECONDS 60.0
#define RETRY_SECONDS 1.0
#define LINK_IDLE_SECONDS 60.0
enum { LINKS_MOST = 4096 };

typedef enum { PEER_ALIVE, PEER_UNRESPONSIVE, PEER_DEAD, PEER_LEFT } peer_state;

typedef struct ring_peer {
  ras_peer peer;
  uint64_t number; // of the newest communicator with it
  peer_state state;
} ring_peer;

// A connection that another process has made.
typedef struct ring_link {
  struct ring_link *next;
  tt_conn conn;
  uint64_t cookie; // of that process
  bool ring;       // it is the predecessor, or was
  uint64_t heard_ns;
  ras_text kept; // of the answer that it fetches page by page
} ring_link;

struct ras_ring {
  uint64_t version; // of the registry
  ring_peer *peers; // in the ring's order
  int n;
  ring_link *links;
  int nlinks;
  uint64_t before; // the process that this one watches; 0: none
  uint64_t heard_ns;
  uint64_t alive_ns; // when the next keep-alive is due
  // The successor.
  uint64_t after; // 0: none
  tt_dial *dial;
  tt_conn conn;        // open: fd >= 0
  uint64_t retry_ns;   // when to connect again
  uint64_t failing_ns; // since then it has not been reached; 0: it has
};

tt_hello ras_hello(const ras_peer *to)
{
  return (tt_hello){.kind = TT_HELLO_RAS, .tag = to->tag, .cookie = tt_proc_self().cookie};
}

static ring_peer *ring_find(const ras_ring *r, uint64_t cookie)
{
  for (int i = 0; i < r->n; i++) {
    if (r->peers[i].peer.who.proc.cookie == cookie) {
      return &r->peers[i];
    }
  }
  return NULL;
}

static bool is_out(const ring_peer *p)
{
  return p->state == PEER_DEAD || p->state == PEER_LEFT;
}

// ---- what becomes of the list

static void keep_state(ras_server *s, const ras_ring *r, ring_peer *p)
{
  const ring_peer *old = ring_find(r, p->peer.who.proc.cookie);
  if (old == NULL) {
    ras_event(s, RAS_LIFECYCLE, "PEER_NEW", &p->peer.who, "");
  } else if (old->state != PEER_LEFT || p->number <= old->number) {
    p->state = old->state;
  }
}

void ras_ring_refresh(ras_server *s)
{
  uint64_t version = ras_registry_version();
  ras_sighting *list;
  if (s->ring == NULL && (s->ring = tt_calloc(1, sizeof *s->ring)) != NULL) {
    s->ring->conn.fd = -1;
  }
  if (s->ring == NULL || s->ring->version == version) {
    return;
  }
  ras_ring *r = s->ring;
  int n = ras_registry_peers(&list);
  ring_peer *peers = n >= 0 ? tt_calloc((size_t)n + 1, sizeof *peers) : NULL;
  for (int i = 0; peers != NULL && i < n; i++) {
    peers[i].peer = list[i].peer;
    peers[i].number = list[i].number;
    keep_state(s, r, &peers[i]);
  }
  tt_free(list);
  if (peers != NULL) {
    tt_free(r->peers);
    r->peers = peers;
    r->n = n;
    r->version = version;
  }
}

// Place in the list behind which this process stands.
static int own_place(const ras_server *s)
{
  const ras_ring *r = s->ring;
  uint64_t self = tt_proc_self().cookie;
  int i = 0;
  while (i < r->n && r->peers[i].peer.who.proc.cookie < self) {
    i++;
  }
  return i;
}

// The next process in this direction that takes part; NULL: none does.
static ring_peer *neighbour(const ras_server *s, int direction)
{
  const ras_ring *r = s->ring;
  int place = own_place(s);
  for (int k = 0; k < r->n; k++) {
    ring_peer *p = &r->peers[(direction > 0 ? place + k : place - 1 - k + 2 * r->n) % r->n];
    if (!is_out(p)) {
      return p;
    }
  }
  return NULL;
}

// ---- news

static void ring_spread(ras_server *s, uint32_t kind, uint64_t cookie)
{
  const ras_about about = {.cookie = cookie};
  ras_ring *r = s->ring;
  if (r->conn.fd >= 0) {
    (void)tt_note_send(&r->conn, kind, &about, sizeof about);
  }
  for (ring_link *l = r->links; l != NULL; l = l->next) {
    if (l->ring) {
      (void)tt_note_send(&l->conn, kind, &about, sizeof about);
    }
  }
}

static void set_dead(ras_server *s, ring_peer *p, const char *why)
{
  if (p->state == PEER_DEAD) {
    return;
  }
  p->state = PEER_DEAD;
  tt_info(TT_RAS, "RAS: process %d is considered dead: %s", p->peer.who.proc.pid, why);
  ras_event(s, RAS_LIFECYCLE, "PEER_DEAD", &p->peer.who, why);
  ring_spread(s, RAS_NOTE_DEAD, p->peer.who.proc.cookie);
}

// The same by the clock alone: its process may live.
static void time_out_dead(ras_server *s, ring_peer *p, const char *why)
{
  if (p->state != PEER_DEAD) {
    ras_event(s, RAS_TRACE, "PEER_TIMEOUT_DEAD", &p->peer.who, why);
    set_dead(s, p, why);
  }
}

static void set_alive(ras_server *s, ring_peer *p)
{
  bool dead = p->state == PEER_DEAD;
  if (p->state == PEER_ALIVE) {
    return;
  }
  p->state = PEER_ALIVE;
  ras_event(s, RAS_TRACE, "PEER_RECOVERED", &p->peer.who, "");
  if (dead) {
    ring_spread(s, RAS_NOTE_BACK, p->peer.who.proc.cookie);
  }
}

static bool has_ended(const tt_ras_member *who)
{
  bool visible = who->pid_space != 0 && who->pid_space == tt_proc_pid_space() && who->host == tt_proc_host_hash();
  return visible && !tt_proc_alive(&who->proc);
}

bool ras_ring_gave_up(const ras_server *s, uint64_t cookie)
{
  const ring_peer *p = s->ring != NULL ? ring_find(s->ring, cookie) : NULL;
  return p != NULL && p->state == PEER_DEAD;
}

bool ras_ring_is_dead(const ras_server *s, const tt_ras_member *who)
{
  return ras_ring_gave_up(s, who->proc.cookie) || has_ended(who);
}

// ---- the successor

static void drop_successor(ras_ring *r)
{
  tt_dial_cancel(r->dial);
  r->dial = NULL;
  tt_conn_close(&r->conn);
}

static void successor_failed(ras_server *s, ring_peer *p, uint64_t now)
{
  ras_ring *r = s->ring;
  drop_successor(r);
  r->failing_ns = r->failing_ns != 0 ? r->failing_ns : now;
  r->retry_ns = now + ras_seconds(s, RETRY_SECONDS);
  ras_event(s, RAS_TRACE, "PEER_DISCONNECTED", &p->peer.who, "");
  if (has_ended(&p->peer.who)) {
    set_dead(s, p, "its process has ended");
  } else if (now - r->failing_ns > ras_seconds(s, DEAD_SECONDS)) {
    time_out_dead(s, p, "it cannot be reached");
  }
}

// Also the dead are news for a successor.
static void successor_connected(ras_server *s, const ring_peer *p, int fd)
{
  ras_ring *r = s->ring;
  if (tt_conn_open(&r->conn, fd, &p->peer.key, tt_dial_hello(r->dial), false) != 0) {
    tt_sock_close(&fd);
  }
  tt_dial_cancel(r->dial);
  r->dial = NULL;
  r->failing_ns = 0;
  r->alive_ns = 0;
  ras_event(s, RAS_TRACE, "PEER_CONNECTED", &p->peer.who, "");
  for (int i = 0; i < r->n && r->conn.fd >= 0; i++) {
    if (r->peers[i].state == PEER_DEAD) {
      const ras_about about = {.cookie = r->peers[i].peer.who.proc.cookie};
      (void)tt_note_send(&r->conn, RAS_NOTE_DEAD, &about, sizeof about);
    }
  }
}

static void dial_successor(ras_server *s, ring_peer *p, uint64_t now)
{
  ras_ring *r = s->ring;
  int fd = -1, e = 0;
  if (r->dial == NULL && now >= r->retry_ns) {
    const tt_addrs to = {.n = 1, .a = {p->peer.who.at}};
    const tt_hello hello = ras_hello(&p->peer);
    ras_event(s, RAS_TRACE, r->failing_ns != 0 ? "PEER_RETRY" : "PEER_CONNECTING", &p->peer.who, "");
    e = tt_dial_start(&to, &p->peer.key, &hello, now + ras_seconds(s, DEAD_SECONDS), &r->dial);
  }
  if (r->dial != NULL && e == 0) {
    e = tt_dial_step(r->dial, &fd, &(tt_addr){.family = 0});
  }
  if (e < 0) {
    if (e == -ETIMEDOUT) {
      ras_event(s, RAS_TRACE, "PEER_INIT_TIMEOUT", &p->peer.who, "");
    }
    successor_failed(s, p, now);
  } else if (e > 0) {
    successor_connected(s, p, fd);
  }
}

static void say_alive(ras_server *s, uint64_t now)
{
  const ras_about about = {.cookie = tt_proc_self().cookie};
  ras_ring *r = s->ring;
  r->alive_ns = now + ras_seconds(s, ALIVE_SECONDS);
  int e = r->conn.fd >= 0 ? tt_note_send(&r->conn, RAS_NOTE_ALIVE, &about, sizeof about) : 0;
  const ring_peer *p = e == -ENOBUFS ? ring_find(r, r->after) : NULL;
  if (p != NULL) { // another error shows when the connection is read
    ras_event(s, RAS_TRACE, "PEER_SEND_STUCK", &p->peer.who, "");
  }
}

// ---- notes

static void ring_take_news(ras_server *s, const tt_note *note)
{
  ras_about about;
  memcpy(&about, note->body, sizeof about);
  ring_peer *p = ring_find(s->ring, about.cookie);
  if (p == NULL) {
    return;
  }
  if (note->frame.kind == RAS_NOTE_DEAD) {
    set_dead(s, p, "others cannot reach it");
  } else if (note->frame.kind == RAS_NOTE_BACK && p->state == PEER_DEAD) {
    set_alive(s, p);
  } else if (note->frame.kind == RAS_NOTE_LEAVES) {
    p->state = PEER_LEFT;
  }
}

static bool answer_request(const ras_server *s, ring_link *l, const tt_note *note)
{
  ras_request request;
  ras_answer answer;
  if (note->frame.size != sizeof request) {
    return false;
  }
  memcpy(&request, note->body, sizeof request);
  size_t size = ras_answer_make(s, &request, &l->conn.key, &l->kept, &answer);
  return tt_note_send(&l->conn, RAS_NOTE_ANSWER, &answer, size) == 0;
}

static void take_alive(ras_server *s, ring_link *l, uint64_t now)
{
  ras_ring *r = s->ring;
  ring_peer *p = ring_find(r, l->cookie);
  l->ring = true;
  r->heard_ns = l->cookie == r->before ? now : r->heard_ns;
  if (p != NULL) {
    set_alive(s, p);
  }
}

// False: the connection is over.
static bool link_take_note(ras_server *s, ring_link *l, const tt_note *note, uint64_t now)
{
  l->heard_ns = now;
  if (note->frame.kind == RAS_NOTE_REQUEST) {
    return answer_request(s, l, note);
  }
  if (note->frame.size != sizeof(ras_about)) {
    return false;
  }
  if (note->frame.kind == RAS_NOTE_ALIVE) {
    take_alive(s, l, now);
  } else {
    ring_take_news(s, note);
  }
  return true;
}

static bool link_step(ras_server *s, ring_link *l, uint64_t now)
{
  tt_note note;
  int e;
  while ((e = tt_note_recv(&l->conn, &note)) == 1) {
    if (!link_take_note(s, l, &note, now)) {
      return false;
    }
  }
  return e == 0 && now < l->heard_ns + ras_seconds(s, LINK_IDLE_SECONDS);
}

static void link_free(ring_link *l)
{
  tt_conn_close(&l->conn);
  ras_text_free(&l->kept);
  tt_free(l);
}

static void links_step(ras_server *s, uint64_t now)
{
  ras_ring *r = s->ring;
  for (ring_link **at = &r->links; *at != NULL;) {
    ring_link *l = *at;
    if (link_step(s, l, now)) {
      at = &l->next;
      continue;
    }
    *at = l->next;
    r->nlinks--;
    link_free(l);
  }
}

void ras_ring_accept(ras_server *s, const tt_hello *hello, int fd)
{
  ras_ring *r = s->ring;
  tt_key key;
  ring_link *l =
      r != NULL && r->nlinks < LINKS_MOST && ras_registry_key(hello->tag, &key) ? tt_calloc(1, sizeof *l) : NULL;
  if (l == NULL || tt_conn_open(&l->conn, fd, &key, hello, true) != 0) {
    tt_sock_close(&fd);
    tt_free(l);
    return;
  }
  l->cookie = hello->cookie;
  l->heard_ns = tt_now_ns();
  l->next = r->links;
  r->links = l;
  r->nlinks++;
}

// ---- the ring

static void follow_successor(ras_server *s, uint64_t now)
{
  ras_ring *r = s->ring;
  ring_peer *p = neighbour(s, 1);
  uint64_t after = p != NULL ? p->peer.who.proc.cookie : 0;
  if (r->after != after) {
    drop_successor(r);
    r->after = after;
    r->retry_ns = r->failing_ns = 0;
  }
  tt_note note;
  while (r->conn.fd >= 0) {
    int e = tt_note_recv(&r->conn, &note);
    if (e == 1 && note.frame.size == sizeof(ras_about)) {
      ring_take_news(s, &note);
      continue;
    }
    if (e != 0) {
      successor_failed(s, p, now);
    }
    break;
  }
  if (p != NULL && !is_out(p) && r->conn.fd < 0) {
    dial_successor(s, p, now);
  }
}

static void watch_predecessor(ras_server *s, uint64_t now)
{
  ras_ring *r = s->ring;
  ring_peer *p = neighbour(s, -1);
  uint64_t before = p != NULL ? p->peer.who.proc.cookie : 0;
  if (r->before != before) {
    r->before = before;
    r->heard_ns = now;
  }
  uint64_t silent = now - r->heard_ns;
  if (p == NULL) {
    return;
  }
  if (silent > ras_seconds(s, DEAD_SECONDS)) {
    time_out_dead(s, p, "it has been silent for too long");
  } else if (silent > ras_seconds(s, WARN_SECONDS) && p->state == PEER_ALIVE) {
    p->state = PEER_UNRESPONSIVE;
    ras_event(s, RAS_TRACE, "PEER_KEEPALIVE_TIMEOUT", &p->peer.who, "");
    ras_event(s, RAS_TRACE, "PEER_UNRESPONSIVE", &p->peer.who, "");
  }
}

void ras_ring_step(ras_server *s)
{
  uint64_t now = tt_now_ns();
  ras_ring *r = s->ring;
  if (r == NULL) {
    return;
  }
  links_step(s, now);
  follow_successor(s, now);
  watch_predecessor(s, now);
  if (r->after != 0 && now >= r->alive_ns) {
    say_alive(s, now);
  }
}

void ras_ring_poll(ras_server *s)
{
  ras_ring *r = s->ring;
  struct pollfd fds[TT_DIAL_POLL];
  if (r == NULL) {
    return;
  }
  // The predecessor's connection is read at each wake-up, one a second at least: keep-alives need no other. News comes
  // from the successor, too, at once.
  for (const ring_link *l = r->links; l != NULL; l = l->next) {
    ras_poll_add(&s->polls, l->ring ? -1 : l->conn.fd, POLLIN);
  }
  ras_poll_add(&s->polls, r->conn.fd, POLLIN);
  size_t n = r->dial != NULL ? tt_dial_poll(r->dial, fds, &s->polls.wake_ns) : 0;
  for (size_t i = 0; i < n; i++) {
    ras_poll_add(&s->polls, fds[i].fd, fds[i].events);
  }
  if (neighbour(s, 1) != NULL) {
    tt_wake_by(&s->polls.wake_ns, TT_MAX(r->alive_ns, 1u));
    if (r->conn.fd < 0 && r->dial == NULL) {
      tt_wake_by(&s->polls.wake_ns, TT_MAX(r->retry_ns, 1u));
    }
  }
}

void ras_ring_close(ras_server *s)
{
  ras_ring *r = s->ring;
  if (r == NULL) {
    return;
  }
  ring_spread(s, RAS_NOTE_LEAVES, tt_proc_self().cookie);
  drop_successor(r);
  while (r->links != NULL) {
    ring_link *l = r->links;
    r->links = l->next;
    link_free(l);
  }
  tt_free(r->peers);
  tt_free(r);
  s->ring = NULL;
}
