// conn.c: see conn.h.
#include "bootstrap/conn.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "bootstrap/crypt.h"
#include "os/sockuser.h"
#include "os/tls.h"

// ---- The handshake

// Of judge_hello, which is known by its address.
static const char OTHER_CRYPT[] = "a rank of this job that has not the encryption key of this process: call "
                                  "ncclSetEncryption with one key on every rank, before ncclGetUniqueId";

int tt_conn_greet(tt_conn *c, int fd)
{
  *c = (tt_conn){.fd = fd, .stage = TT_CONN_HELLO};
  tt_greeting_make(&c->greeting);
  return tt_sock_send_whole(c->fd, &c->greeting, sizeof(c->greeting));
}

static bool has_other_crypt(const tt_hello *h)
{
  return (h->kind & TT_HELLO_DIFFERS) != 0;
}

// Behind the proof: TLS, if the greeting says so. 1: all is done; 0: not yet.
static int begin_tls(tt_conn *c, bool accepting)
{
  c->stage = TT_CONN_TLS;
  int e = c->greeting.crypt == 0 ? 1 : tt_crypt_start(c->fd, &c->greeting, &c->hello, accepting);
  return e == 0 ? tt_tls_shake(c->fd) : e;
}

// NULL: so far the hello may be welcome, or, complete, is, and *key is the one that it knows.
static const char *judge_hello(const tt_conn *c, const tt_welcome *welcome, tt_key *key)
{
  const tt_hello *h = &c->hello;
  bool whole = c->at == sizeof(*h);
  *key = welcome->key;
  if (whole && welcome->find != NULL) {
    welcome->find(welcome->arg, h, key);
  }
  const char *wrong = tt_hello_check(h, c->at, key, &c->greeting);
  if (wrong == NULL && whole && ((h->kind & welcome->kinds) == 0 || h->to != welcome->to)) {
    wrong = "a rank that wanted another socket";
  } else if (wrong == NULL && whole && key->is_public && tt_sock_is_strangers(c->fd)) {
    wrong = "a process of another user of this machine (NCCL_COMM_ID without TUTTI_COMM_ID_SECRET)";
  } else if (wrong == NULL && whole && has_other_crypt(h)) {
    wrong = OTHER_CRYPT;
  }
  return wrong;
}

static int accept_tls(int e, const char **why)
{
  if (e < 0) {
    *why = "its TLS handshake failed: is something between the machines changing what they send?";
  }
  return e;
}

int tt_conn_accept(tt_conn *c, const tt_welcome *welcome, const char **why)
{
  tt_key key;
  if (c->stage == TT_CONN_TLS) {
    return accept_tls(tt_tls_shake(c->fd), why);
  }
  int e = tt_sock_pass(c->fd, &c->hello, sizeof(c->hello), &c->at, false);
  const char *wrong = judge_hello(c, welcome, &key);
  if (wrong == NULL && e == 1) {
    c->proven = true;
    c->proof = tt_proof_make(&c->hello, &key, &c->greeting);
  }
  // A complete hello is answered even when it is wrong: a proof of zeros says at once that it is no use to try again.
  int sent = e == 1 ? tt_sock_send_whole(c->fd, &c->proof, sizeof(c->proof)) : 0;
  if (wrong != NULL) {
    *why = wrong;
    return e != 1 ? -EPROTO : wrong == OTHER_CRYPT ? -ENOKEY : -EACCES;
  }
  if (e < 0) {
    *why = c->at == 0 ? "it closed without a word" : "it closed before its hello was complete";
  } else if (sent < 0) {
    *why = "it closed before the proof could be sent";
  }
  return sent < 0 ? sent : e == 1 ? accept_tls(begin_tls(c, true), why) : e;
}

int tt_conn_start(tt_conn *c, const tt_addr *to)
{
  *c = (tt_conn){.fd = -1};
  int e = tt_tcp_connect_start(to, &c->fd);
  return e == -EINPROGRESS ? 0 : e == -EACCES ? -EPERM : e;
}

// A port of this machine on which no process listens can be given to the very socket that connects to it, which then
// talks to itself.
static bool is_itself(int fd)
{
  tt_addr own, other;
  return tt_sock_local(fd, &own) == 0 && tt_sock_peer(fd, &other) == 0 && own.port == other.port &&
         tt_addr_same_ip(&own, &other);
}

static int await_connected(const tt_conn *c)
{
  struct pollfd p = {.fd = c->fd, .events = POLLOUT};
  if (tt_sock_poll(&p, 1, &(tt_until){.deadline_ns = 1}) <= 0) {
    return 0;
  }
  int e = tt_tcp_connect_end(c->fd);
  e = e == 0 && is_itself(c->fd) ? -ECONNREFUSED : e;
  tt_sock_watch(c->fd, e == 0); // the listener may have ended just now
  return e == 0 ? 1 : e == -EACCES ? -EPERM : e;
}

static int hear_greeting(tt_conn *c, const tt_key *key)
{
  int e = tt_sock_pass(c->fd, &c->greeting, sizeof(c->greeting), &c->at, false),
      wrong = tt_greeting_check(&c->greeting, c->at);
  return wrong != 0 ? wrong : e == 1 && key->is_public && tt_sock_is_strangers(c->fd) ? -EKEYREJECTED : e;
}

static int hear_proof(tt_conn *c, const tt_key *key)
{
  int e = tt_sock_pass(c->fd, &c->proof, sizeof(c->proof), &c->at, false);
  if (e != 0 && has_other_crypt(&c->hello)) {
    return -ENOKEY;
  }
  if (e != 1) {
    return e;
  }
  tt_seal want = tt_proof_make(&c->hello, key, &c->greeting);
  return tt_seal_same(&want, &c->proof) ? 1 : -EACCES;
}

int tt_conn_connect(tt_conn *c, const tt_key *key, const tt_hello *hello, bool speak)
{
  int e = 1;
  while (e == 1) {
    switch (c->stage) {
    case TT_CONN_CONNECTING: e = await_connected(c); break;
    case TT_CONN_GREETING: e = hear_greeting(c, key); break;
    case TT_CONN_SILENT:
      if (!speak) {
        return 0;
      }
      c->hello = *hello;
      c->hello.kind |= c->greeting.crypt == tt_crypt_name(c->greeting.nonce) ? 0 : TT_HELLO_DIFFERS;
      tt_hello_seal(&c->hello, key, &c->greeting);
      break;
    case TT_CONN_HELLO: e = tt_sock_pass(c->fd, &c->hello, sizeof(c->hello), &c->at, true); break;
    case TT_CONN_PROOF: e = hear_proof(c, key); return e == 1 ? begin_tls(c, false) : e;
    case TT_CONN_TLS: return tt_tls_shake(c->fd);
    }
    if (e == 1) {
      c->stage++;
      c->at = 0;
    }
  }
  return e;
}

// ---- Notes

// A note as it travels: the frame, as many bytes of the body as there are, the seal.
typedef struct conn_inbox {
  tt_note note;
  tt_seal room;
} conn_inbox;

int tt_conn_open(tt_conn *c, int fd, const tt_key *key, const tt_hello *hello, bool accepted)
{
  tt_key own = tt_key_derive(key, "notes", hello, sizeof(*hello));
  conn_inbox *box = tt_calloc(1, sizeof(*box));
  *c = (tt_conn){.fd = box != NULL ? fd : -1, .accepted = accepted, .hello = *hello, .key = own, .box = box};
  return box != NULL ? 0 : -ENOMEM;
}

static tt_seal note_seal(const tt_conn *c, bool from_accepting, const tt_note *note)
{
  tt_part parts[] = {{&from_accepting, sizeof(from_accepting)}, {note, sizeof(note->frame) + note->frame.size}};
  return tt_key_seal(&c->key, "tutti note", parts, 2);
}

int tt_note_send(tt_conn *c, uint32_t kind, const void *body, size_t size)
{
  conn_inbox out;
  if (size > TT_NOTE_MAX || c->fd < 0) {
    return size > TT_NOTE_MAX ? -EMSGSIZE : -ECONNRESET;
  }
  out.note.frame = (tt_frame){.kind = kind, .number = c->sent++, .size = size};
  if (size > 0) {
    memcpy(out.note.body, body, size);
  }
  tt_seal seal = note_seal(c, c->accepted, &out.note);
  memcpy((uint8_t *)&out + sizeof(tt_frame) + size, &seal, sizeof(seal));
  return tt_sock_send_whole(c->fd, &out, sizeof(tt_frame) + size + sizeof(seal));
}

void tt_note_send_failure(tt_conn *c, uint32_t kind, ncclResult_t code, const char *text)
{
  uint8_t body[sizeof(int32_t) + TT_FAIL_TEXT];
  int32_t number = (int32_t)code;
  size_t size = strnlen(text, TT_FAIL_TEXT - 1);
  static_assert(sizeof(body) <= TT_NOTE_MAX, "it fits into a note");
  memcpy(body, &number, sizeof(number));
  memcpy(body + sizeof(number), text, size);
  (void)tt_note_send(c, kind, body, sizeof(number) + size);
}

ncclResult_t tt_note_failure(const tt_note *note, char *buf)
{
  int32_t code = ncclRemoteError;
  size_t all = note->frame.size, size = all > sizeof(code) ? TT_MIN(all - sizeof(code), (size_t)TT_FAIL_TEXT - 1) : 0;
  memcpy(&code, note->body, all < sizeof(code) ? 0 : sizeof(code));
  memcpy(buf, note->body + sizeof(code), size);
  buf[size] = '\0';
  return code > ncclSuccess && code < ncclInProgress ? (ncclResult_t)code : ncclRemoteError;
}

// Goes on with the note in the inbox, its frame first: that says how long it is.
static int hear_note(tt_conn *c)
{
  const tt_frame *f = &c->box->note.frame;
  int e = tt_sock_pass(c->fd, c->box, sizeof(*f), &c->at, false);
  if (e == 1 && f->size > TT_NOTE_MAX) {
    return -EBADMSG;
  }
  return e == 1 ? tt_sock_pass(c->fd, c->box, sizeof(*f) + f->size + sizeof(tt_seal), &c->at, false) : e;
}

static int check_note(tt_conn *c)
{
  const tt_note *note = &c->box->note;
  tt_seal want = note_seal(c, !c->accepted, note), is;
  memcpy(&is, (const uint8_t *)note + sizeof(tt_frame) + note->frame.size, sizeof(is));
  return tt_seal_same(&want, &is) && note->frame.number == c->heard++ ? 1 : -EBADMSG;
}

int tt_note_recv(tt_conn *c, tt_note *note)
{
  int e = c->fd < 0 ? -ECONNRESET : hear_note(c);
  e = e == 1 ? check_note(c) : e;
  if (e == 1) {
    memcpy(note, &c->box->note, sizeof(tt_frame) + c->box->note.frame.size);
  }
  c->at = e == 0 ? c->at : 0;
  return e;
}

void tt_conn_close(tt_conn *c)
{
  tt_sock_finish(c->fd);
  tt_sock_close(&c->fd);
  tt_free(c->box);
  *c = (tt_conn){.fd = -1};
}
