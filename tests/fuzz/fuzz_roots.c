// fuzz_roots.c: what ranks and roots say to each other in sealed notes, both readers. A note's bytes come from the
// input: with a right seal, because only members of the job get that far, or as they are. Input: a byte that says which
// reader, then pieces: who, kind, size, bytes.
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

// The readers are static functions of these files; the program takes them from here and not from the library.
#include "../../src/bootstrap/join.c"
#include "../../src/bootstrap/root.c"

#include "os/shm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const tt_key key = {.b = {1}};

static void demand(bool good)
{
  if (!good) {
    abort();
  }
}

typedef struct {
  const uint8_t *data;
  size_t size;
} input;

static uint8_t next_byte(input *in)
{
  uint8_t b = in->size > 0 ? in->data[0] : 0;
  in->data += in->size > 0;
  in->size -= in->size > 0;
  return b;
}

// A connection; `near` is the reader's end.
typedef struct {
  tt_conn near, far;
} wire;

static wire make_wire(const tt_hello *h)
{
  int fds[2];
  wire w;
  demand(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
  demand(tt_conn_open(&w.near, fds[0], &key, h, true) == 0);
  demand(tt_conn_open(&w.far, fds[1], &key, h, false) == 0);
  return w;
}

// Sends what the input says: a sealed note, or bytes as they are.
static void say_next(tt_conn *far, input *in)
{
  uint8_t kind = next_byte(in), n = next_byte(in);
  size_t size = n < in->size ? n : in->size;
  if ((kind & 0x80) != 0) {
    (void)(size > 0 && tt_sock_send(far->fd, in->data, size) > 0);
  } else {
    (void)tt_note_send(far, kind % 9, in->data, size);
  }
  in->data += size;
  in->size -= size;
}

// Cards that fit, or that the input changes.
static void say_card(tt_conn *far, input *in)
{
  tt_join_card card = {
      .peer = {.n = 1, .a = {{.family = AF_INET, .port = 1}}}, .nroots = next_byte(in) % 4, .share = next_byte(in) % 4};
  uint8_t at = next_byte(in), n = next_byte(in);
  size_t size = n < in->size ? n : in->size;
  size = TT_MIN(size, sizeof(card) - at % sizeof(card));
  memcpy((uint8_t *)&card + at % sizeof(card), in->data, size);
  in->data += size;
  in->size -= size;
  (void)tt_note_send(far, TT_NOTE_JOIN, &card, sizeof(card));
}

static void feed_root(input *in)
{
  enum { WIRES = 12 };
  tt_conn far[WIRES];
  int n = 0;
  static const tt_greeter no_door;
  tt_root_shared shared = {.door = &no_door, .events = -1, .file_limit = 1024};
  demand(tt_events_open(&shared.events) == 0);
  tt_root *r = tt_root_new(&shared, &key, 0, NULL);
  demand(r != NULL);
  while (in->size > 0) {
    uint8_t what = next_byte(in);
    if (n < WIRES && what % 4 == 0) {
      tt_hello h = {
          .kind = TT_HELLO_JOIN, .rank = (int8_t)next_byte(in) % 8, .to = -1, .nranks = 1 + next_byte(in) % 8};
      int fds[2];
      demand(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
      demand(tt_conn_open(&far[n++], fds[1], &key, &h, false) == 0);
      tt_root_take(r, &h, fds[0]);
      say_card(&far[n - 1], in);
    } else if (n > 0 && what % 4 == 1) {
      tt_conn_close(&far[what / 4 % n]);
    } else if (n > 0) {
      say_next(&far[what / 4 % n], in);
    }
    void *lines[WIRES];
    for (int k = tt_events_take(shared.events, lines, WIRES); k > 0; k--) {
      (void)tt_root_hear(lines[k - 1]);
    }
    demand(r->seats.joined <= r->seats.n);
  }
  if (r->job.nranks > 0 && !root_failed(r)) {
    char text[64];
    seats_text(r, false, text, sizeof(text));
    name_missing(r);
    time_out(r);
  }
  tt_root_answer(r);
  demand(!tt_root_is_open(r));
  for (int i = 0; i < n; i++) {
    tt_conn_close(&far[i]);
  }
  tt_root_destroy(r);
  tt_fd_close(shared.events);
}

static void feed_rank(input *in)
{
  tt_id ids[2];
  tt_bootstrap *b = tt_bs_new(2, 4, &key, NULL);
  tt_join j = {.ids = ids, .nids = 2, .b = b};
  talk t = {.j = &j, .b = b, .deadline_ns = UINT64_MAX};
  tt_conn far[2];
  memset(ids, 0, sizeof(ids));
  for (int i = 0; i < 2; i++) {
    tt_hello h = {.kind = TT_HELLO_JOIN, .rank = i};
    wire w = make_wire(&h);
    add_line(&t, i);
    t.lines[i].conn = w.near;
    far[i] = w.far;
  }
  ncclResult_t res = ncclSuccess;
  while (in->size > 0 && res == ncclSuccess) {
    int which = next_byte(in) % 2;
    say_next(&far[which], in);
    for (int i = 0; i < 2 && res == ncclSuccess; i++) {
      if (t.lines[i].conn.fd >= 0) {
        res = go_on_listening(&t, &t.lines[i]);
      }
    }
  }
  if (t.failure != ncclSuccess) {
    pass_failure(&t);
  }
  for (int i = 0; i < 2; i++) {
    tt_conn_close(&far[i]);
    tt_conn_close(&t.lines[i].conn);
  }
  tt_bootstrap_destroy(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  input in = {data, size};
  setenv("NCCL_DEBUG", "NONE", 1);
  if (next_byte(&in) % 2 == 0) {
    feed_root(&in);
  } else {
    feed_rank(&in);
  }
  return 0;
}
