// note.c: see note.h.
#include "bootstrap/note.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "os/clock.h"

enum { HEAD = offsetof(tt_note, body) };

typedef struct inbox {
  uint8_t bytes[sizeof(tt_note) + sizeof(tt_seal)];
} inbox;

void tt_notes_none(tt_notes *n)
{
  memset(n, 0, sizeof(*n));
  n->fd = -1;
}

void tt_notes_open(tt_notes *n, int fd, const tt_key *key, const tt_hello *hello, bool accepted)
{
  tt_notes_none(n);
  n->fd = fd;
  n->accepted = accepted;
  n->key = tt_key_derive(key, "notes", hello, sizeof(*hello));
}

static tt_seal note_seal(const tt_notes *n, bool from_accepting, uint32_t number, const uint8_t *bytes, size_t size)
{
  uint32_t which[2] = {from_accepting, number};
  tt_part parts[] = {{which, sizeof(which)}, {bytes, size}};
  return tt_key_seal(&n->key, "tutti note", parts, 2);
}

int tt_note_send(tt_notes *n, uint32_t kind, const void *body, size_t size)
{
  inbox out;
  uint32_t head[2] = {kind, (uint32_t)size};
  if (size > TT_NOTE_MAX || n->fd < 0) {
    return size > TT_NOTE_MAX ? -EMSGSIZE : -ECONNRESET;
  }
  memcpy(out.bytes, head, HEAD);
  if (size > 0) {
    memcpy(out.bytes + HEAD, body, size);
  }
  tt_seal seal = note_seal(n, n->accepted, n->sent++, out.bytes, HEAD + size);
  memcpy(out.bytes + HEAD + size, &seal, sizeof(seal));
  size_t all = HEAD + size + sizeof(seal);
  ssize_t sent = tt_sock_send(n->fd, out.bytes, all);
  return sent == (ssize_t)all ? 0 : sent < 0 && sent != -EAGAIN ? (int)sent : -ENOBUFS;
}

void tt_note_send_failure(tt_notes *n, uint32_t kind, ncclResult_t code, const char *text)
{
  uint8_t body[sizeof(int32_t) + TT_FAIL_TEXT];
  int32_t number = (int32_t)code;
  size_t size = strnlen(text, TT_FAIL_TEXT - 1);
  static_assert(sizeof(body) <= TT_NOTE_MAX, "it fits into a note");
  memcpy(body, &number, sizeof(number));
  memcpy(body + sizeof(number), text, size);
  (void)tt_note_send(n, kind, body, sizeof(number) + size);
}

ncclResult_t tt_note_failure(const tt_note *note, char *buf)
{
  int32_t code = ncclRemoteError;
  size_t size = note->size > sizeof(code) ? TT_MIN(note->size - sizeof(code), (size_t)TT_FAIL_TEXT - 1) : 0;
  memcpy(&code, note->body, note->size < sizeof(code) ? 0 : sizeof(code));
  memcpy(buf, note->body + sizeof(code), size);
  buf[size] = '\0';
  return code > ncclSuccess && code < ncclInProgress ? (ncclResult_t)code : ncclRemoteError;
}

// Bytes of the arriving note as far as they are known: its head first. 0: it is too long.
static size_t bytes_wanted(const tt_notes *n)
{
  uint32_t head[2];
  if (n->got < HEAD) {
    return HEAD;
  }
  memcpy(head, n->box->bytes, HEAD);
  return head[1] > TT_NOTE_MAX ? 0 : HEAD + head[1] + sizeof(tt_seal);
}

static int check_note(tt_notes *n, tt_note *note)
{
  size_t size = n->got - sizeof(tt_seal);
  tt_seal want = note_seal(n, !n->accepted, n->heard++, n->box->bytes, size), is;
  memcpy(&is, n->box->bytes + size, sizeof(is));
  bool good = tt_seal_same(&want, &is);
  if (good) {
    memcpy(note, n->box->bytes, size);
  }
  tt_free(n->box);
  n->box = NULL;
  n->got = 0;
  return good ? 1 : -EBADMSG;
}

int tt_note_recv(tt_notes *n, tt_note *note)
{
  if (n->box == NULL) {
    n->box = tt_calloc(1, sizeof(*n->box));
  }
  if (n->box == NULL) {
    tt_sleep_ns(10 * TT_NS_PER_MS); // what has come stays in the socket, and poll(2) would come back at once
    return 0;
  }
  for (;;) {
    size_t wanted = bytes_wanted(n);
    if (wanted == 0) {
      return -EBADMSG;
    }
    if (n->got == wanted) {
      return check_note(n, note);
    }
    ssize_t got = n->fd < 0 ? -ECONNRESET : tt_sock_recv(n->fd, n->box->bytes + n->got, wanted - n->got);
    if (got < 0) {
      if (n->got == 0) {
        tt_free(n->box);
        n->box = NULL;
      }
      return got == -EAGAIN ? 0 : (int)got;
    }
    n->got += (size_t)got;
  }
}

void tt_notes_close(tt_notes *n)
{
  tt_sock_finish(n->fd);
  tt_sock_close(&n->fd);
  tt_free(n->box);
  tt_notes_none(n);
}
