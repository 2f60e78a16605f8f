// shake.h: the handshake of hello.h on one connected socket, both sides, without ever waiting.
#pragma once
#include "bootstrap/hello.h"

// Who is let in.
typedef struct tt_welcome {
  tt_key key;
  unsigned kinds; // tt_hello_kind bits
  int to;         // the listener's own rank; -1: root
  // Writes the key that a complete hello has to know, and leaves *key alone when it names none. `key` is then one that nobody knows. NULL:
  // `key` is the only one.
  void (*find)(void *arg, const tt_hello *h, tt_key *key);
  void *arg;
} tt_welcome;

// The accepting side.
typedef struct tt_shake_in {
  int fd;
  size_t got; // bytes of the hello
  tt_greeting greeting;
  tt_hello hello;
} tt_shake_in;

// Greets. The socket stays the caller's. 0 or -errno.
int tt_shake_in_start(tt_shake_in *s, int fd);
// Reads what has come; a complete hello of one who is welcome is answered by the proof. 1: done; 0: not yet; < 0: this is not one of us,
// `*why` says what it was (a text; untouched otherwise). Nothing beyond the hello is read.
int tt_shake_in_step(tt_shake_in *s, const tt_welcome *welcome, const char **why);

// The connecting side.
typedef struct tt_shake_out {
  int fd;
  bool greeted;     // the greeting is complete
  bool spoke;       // the hello is on its way
  size_t got, sent; // bytes of greeting, then of proof; of the hello
  tt_greeting greeting;
  tt_hello hello; // sealed once greeted and allowed to speak
  tt_seal proof;
} tt_shake_out;

// Prepares the connecting side of a connected socket. The socket stays the caller's.
void tt_shake_out_start(tt_shake_out *s, int fd);
// Goes on as far as possible. After the greeting it waits until `speak`, then says `hello` under `key`. 1: the other end has proved itself;
// 0: not yet; < 0: -EPROTO, -EPROTONOSUPPORT (no greeting of ours), -EACCES (the proof is wrong, or the other end says that our hello is),
// -EKEYREJECTED (a public key, and another user's process of this machine),
// or the connection's error: -ECONNRESET before the proof means that it was dropped unread, for want of room, and may be tried again.
int tt_shake_out_step(tt_shake_out *s, const tt_key *key, const tt_hello *hello, bool speak);
// True when the next step needs the socket to be writable rather than readable. Pure.
bool tt_shake_out_writes(const tt_shake_out *s);
