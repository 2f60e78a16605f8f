// conn.h: one connection and its states: the handshake of hello.h on either side, then sealed notes. Nothing here
// waits.
//
// A note is a frame, its body and a seal. The seal covers the hello (and so both nonces), the direction, and the frame
// with its running number. So a process without the key can neither add nor change a note, and none can be left out,
// repeated, or used on another connection.
#pragma once
#include "bootstrap/hello.h"
#include "nccl.h"
#include "os/socket.h"

// What stands before each note, and before each block of a ring (ring.c).
typedef struct tt_frame {
  uint32_t kind;
  uint32_t number; // of the note, or of the ring's operation
  uint64_t size;   // bytes of the body that follows
} tt_frame;
static_assert(sizeof(tt_frame) == 16, "frames are sent as they are");

enum { TT_NOTE_MAX = 1280, TT_FAIL_TEXT = 1024 };

typedef struct tt_note {
  tt_frame frame;
  uint8_t body[TT_NOTE_MAX];
} tt_note;

// The socket is the caller's until the connection is open.
typedef struct tt_conn {
  int fd; // -1: none
  // The connecting side goes through all stages (SILENT: greeted, it may not speak yet). The accepting side is in
  // HELLO. Both end in TLS, its handshake, where their processes have an encryption key (crypt.h).
  enum { TT_CONN_CONNECTING, TT_CONN_GREETING, TT_CONN_SILENT, TT_CONN_HELLO, TT_CONN_PROOF, TT_CONN_TLS } stage;
  size_t at; // bytes of the message under way
  tt_greeting greeting;
  tt_hello hello; // connecting side: sealed once it may speak
  bool proven;    // accepting side: the hello was accepted. Stays true if the connection ends
  tt_seal proof;
  // Once it is open.
  bool accepted;
  tt_key key; // of this connection
  uint32_t sent, heard;
  struct conn_inbox *box; // room for the note that is arriving
} tt_conn;

// The hellos that a listener accepts.
typedef struct tt_welcome {
  tt_key key;
  unsigned kinds; // tt_hello_kind bits
  int to;         // the listener's own rank; -1: root
  // Writes the key that a complete hello has to know. When the hello names none it leaves *key alone; `key` is then a
  // key that no process knows. NULL: `key` is the only one.
  void (*find)(void *arg, const tt_hello *h, tt_key *key);
  void *arg;
} tt_welcome;

// The accepting side: sends the greeting. 0 or -errno.
int tt_conn_greet(tt_conn *c, int fd);
// Reads what has come; a complete and welcome hello is answered by the proof. 1: done; 0: not yet; < 0: this is no
// connection of ours, and `*why` says what it was (a text; untouched otherwise). -ENOKEY: a rank that knows the key,
// but has another encryption key. Nothing beyond the hello is read, and of TLS nothing beyond its handshake.
int tt_conn_accept(tt_conn *c, const tt_welcome *welcome, const char **why);
// The connecting side: begins to connect. 0, c->fd is the caller's, or -errno (-EPERM: the kernel forbids it).
int tt_conn_start(tt_conn *c, const tt_addr *to);
// Goes on as far as possible. After the greeting it waits until `speak`, then sends `hello` under `key`. 1: the other
// end has proved itself; 0: not yet; < 0: an error.
//   -EPROTO, -EPROTONOSUPPORT  no greeting of ours.
//   -EACCES                    the proof is wrong, or the other end says that our hello is.
//   -EKEYREJECTED              a public key, and another user's process of this machine.
//   -ENOKEY                    the other end has another encryption key, or one of the two has none (crypt.h).
//   -ECONNRESET                before the proof: the listener had no room and dropped it unread. It may be tried again.
//   others                     the connection's error.
int tt_conn_connect(tt_conn *c, const tt_key *key, const tt_hello *hello, bool speak);

// Opens it for notes. Takes over `fd`, on which `hello` has been answered under `key`. `accepted`: by this side. 0, or
// -ENOMEM: `fd` is still the caller's, and c->fd is -1.
int tt_conn_open(tt_conn *c, int fd, const tt_key *key, const tt_hello *hello, bool accepted);
// Sends a note of at most TT_NOTE_MAX bytes, without waiting. 0, or -errno (-ENOBUFS: the other side does not read);
// then nothing more can be sent.
int tt_note_send(tt_conn *c, uint32_t kind, const void *body, size_t size);
// Sends kind `kind` with the code and the text of a failure, cut to TT_FAIL_TEXT - 1 bytes, if there is a connection.
void tt_note_send_failure(tt_conn *c, uint32_t kind, ncclResult_t code, const char *text);
// What such a note says: the code, ncclRemoteError where it is none, and the text, in `buf` (TT_FAIL_TEXT bytes).
ncclResult_t tt_note_failure(const tt_note *note, char *buf);
// Takes the next one, without waiting. 1: it is in *note; 0: not yet; < 0: -ECONNRESET (the end), -EBADMSG (not a note
// with a right seal).
int tt_note_recv(tt_conn *c, tt_note *note);
// Closes it, and leaves {.fd = -1}. What was sent still arrives.
void tt_conn_close(tt_conn *c);
