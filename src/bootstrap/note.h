// note.h: short sealed messages, both ways, on a connection that has passed the handshake. Whoever does not know the key can neither add
// nor change one, and none can be left out, repeated, or used in another connection: each seal covers the hello (and so both nonces), the
// direction and a running number.
//
//   on the wire: kind (4 bytes), size (4 bytes), `size` bytes, seal (32 bytes)
#pragma once
#include "bootstrap/hello.h"
#include "nccl.h"

enum { TT_NOTE_MAX = 1280 };

typedef struct tt_note {
  uint32_t kind;
  uint32_t size;
  uint8_t body[TT_NOTE_MAX];
} tt_note;

typedef struct tt_notes {
  int fd; // -1: none
  bool accepted;
  tt_key key; // of this connection
  uint32_t sent, heard;
  size_t got;        // bytes of the one that is arriving
  struct inbox *box; // and these; NULL between two
} tt_notes;

// No connection: tt_notes_close accepts it.
void tt_notes_none(tt_notes *n);
// Takes over `fd`, on which `hello` has been answered under `key`. `accepted`: by this side.
void tt_notes_open(tt_notes *n, int fd, const tt_key *key, const tt_hello *hello, bool accepted);
// Sends one, at most TT_NOTE_MAX bytes, without waiting. 0, or -errno (-ENOBUFS: the other side does not read); then nothing more can be
// sent.
int tt_note_send(tt_notes *n, uint32_t kind, const void *body, size_t size);
// Sends kind `kind` with the text of a failure, cut to TT_FAIL_TEXT - 1 bytes, and its code, if there is a connection.
#define TT_FAIL_TEXT 1024
void tt_note_send_failure(tt_notes *n, uint32_t kind, ncclResult_t code, const char *text);
// What such a note says: the code, ncclRemoteError where it is none, and the text, which stands in `buf` (TT_FAIL_TEXT bytes) from then on.
ncclResult_t tt_note_failure(const tt_note *note, char *buf);
// Takes the next one, without waiting. 1: it is in *note; 0: not yet (also without memory, after 10 ms); < 0: -ECONNRESET (the end),
// -EBADMSG (not a note with a right seal).
int tt_note_recv(tt_notes *n, tt_note *note);
// Closes the connection. What was sent still arrives.
void tt_notes_close(tt_notes *n);
