// fuzz_net.c: what a peer sends to the socket network (frames and payloads), and a listener's handle, are bytes from
// outside. Whatever they are, the receiver ends with messages or a named error, nothing is written outside the posted
// buffers, and nothing hangs.
//
// Input: byte 0: number of data sockets (0-3) and of buffers posted; bytes 1-8: sizes of the buffers; then pieces
// {length, socket, bytes …}.
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/socket/socket_priv.h"
#include "os/events.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { BUFFERS = 8 };

static tt_snet net;

static void demand(int good)
{
  if (!good) {
    abort();
  }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
  (void)argc;
  (void)argv;
  setenv("NCCL_DEBUG", "NONE", 1);
  net = (tt_snet){.base = {.network = "fuzz",
                           .env = {.rank = 1, .nranks = 4},
                           .timeout_s = 60,
                           .ndevs = 1,
                           .devs = {{.name = "fuzz"}}},
                  .inline_max = 100,
                  .min_piece = 10,
                  .watched = true};
  pthread_mutex_init(&net.base.lock, NULL);
  demand(tt_events_open(&net.base.events) == 0 && tt_ring_open(&net.base.ring) == 0);
  return 0;
}

// Sends the input's pieces over their sockets; a full socket drops the rest of a piece.
static void feed(const uint8_t *data, size_t size, const int *fds, int n)
{
  while (size >= 2) {
    size_t length = data[0], at = data[1] % (unsigned)n;
    data += 2;
    size -= 2;
    length = length < size ? length : size;
    (void)!send(fds[at], data, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    data += length;
    size -= length;
  }
}

// Tests everything until nothing gets on; the other end has closed by now, so each request ends in a message or in an
// error.
static void test_all(void **requests, int n)
{
  for (int i = 0; i < n; i++) {
    int done = 0;
    size_t got = 0;
    ncclResult_t res = ncclSuccess;
    while (res == ncclSuccess && !done) {
      res = tt_snet_test(requests[i], &done, &got);
    }
    if (res != ncclSuccess) {
      demand(res == ncclRemoteError);
      return;
    }
  }
}

static void try_frames(const uint8_t *data, size_t size)
{
  if (size < 9) {
    return;
  }
  int nsocks = data[0] & 3, n = 1 + (data[0] >> 2) % BUFFERS, far[1 + 3];
  tt_rdv_ends ends = {.peer = 2, .nsocks = nsocks, .wire = 1};
  for (int i = 0; i <= nsocks; i++) {
    int pair[2];
    demand(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    ends.fds[i] = pair[0];
    far[i] = pair[1];
  }
  tt_snet_conn *c = NULL;
  demand(tt_snet_conn_create(&net, &ends, &c) == ncclSuccess);
  void *requests[BUFFERS];
  char *buffers[BUFFERS];
  size_t room[BUFFERS];
  for (int i = 0; i < n; i++) {
    int tag = 0;
    room[i] = (size_t)data[1 + i] * (i % 3 == 2 ? 300 : 1);
    buffers[i] = malloc(room[i] + 1); // a sanitizer sees what is beyond
    void *at = room[i] > 0 ? buffers[i] : NULL;
    demand(tt_snet_irecv(c, 1, &at, &room[i], &tag, NULL, NULL, &requests[i]) == ncclSuccess && requests[i] != NULL);
  }
  feed(data + 9, size - 9, far, 1 + nsocks);
  for (int i = 0; i <= nsocks; i++) {
    close(far[i]);
  }
  test_all(requests, n);
  tt_snet_conn_destroy(c);
  for (int i = 0; i < n; i++) {
    free(buffers[i]);
  }
}

static void try_handle(const uint8_t *data, size_t size)
{
  tt_rdv_handle h;
  tt_addrs to;
  char text[TT_ADDR_TEXT];
  memset(&h, 0, sizeof(h));
  memcpy(&h, data, size < sizeof(h) ? size : sizeof(h));
  if (tt_rdv_handle_check(&h, TT_SNET_HANDLE_MAGIC, 4) != NULL) {
    h.magic = TT_SNET_HANDLE_MAGIC;
    h.rank &= 3;
  }
  if (tt_rdv_handle_check(&h, TT_SNET_HANDLE_MAGIC, 4) == NULL) {
    tt_rdv_handle_addrs(&h, &net.base.devs[0], &to);
    demand(to.n >= 1 && to.n <= TT_ADDRS_MAX);
    for (uint32_t i = 0; i < to.n; i++) {
      demand(to.a[i].port != 0 && tt_addr_text(&to.a[i], text)[0] != '(');
    }
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  try_handle(data, size);
  try_frames(data, size);
  return 0;
}
