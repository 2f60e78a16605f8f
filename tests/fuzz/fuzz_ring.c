// fuzz_ring.c: frames of the ring, as a rank of the job that has lost its mind might send them. Whatever comes, the
// call returns. Input: a byte that is not looked at, one that says where it is cut into what the predecessor and the
// successor send, then the bytes.
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/util.h"
#include "bootstrap/bootstrap_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RANKS = 3, BLOCK = 4, MOST = 32768 };

static void demand(bool good)
{
  if (!good) {
    abort();
  }
}

// A connection on which `size` bytes have come, and nothing more comes.
static int make_stream(const uint8_t *data, size_t size, int *far)
{
  int fds[2];
  demand(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
  demand(size == 0 || tt_sock_send(fds[1], data, size) == (ssize_t)size);
  tt_sock_finish(fds[1]);
  *far = fds[1];
  return fds[0];
}

static void feed_ring(tt_bootstrap *b, const uint8_t *data, size_t size, size_t cut)
{
  int far[2];
  uint8_t blocks[RANKS * BLOCK] = {0};
  size_t first = TT_MIN(cut, size);
  b->prev = make_stream(data, first, &far[0]);
  b->next = make_stream(data + first, size - first, &far[1]);
  ncclResult_t res = tt_bootstrap_allgather(b, blocks, BLOCK);
  demand(blocks[BLOCK] == 0); // own block
  if (res != ncclSuccess) {
    demand(b->broken != ncclSuccess && tt_bootstrap_barrier(b) == b->broken);
  } else {
    (void)tt_bootstrap_barrier(b);
  }
  tt_sock_close(&far[0]);
  tt_sock_close(&far[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static const tt_key key = {.b = {1}};
  setenv("NCCL_DEBUG", "NONE", 1);
  if (size < 2) {
    return 0;
  }
  tt_bootstrap *b = tt_bs_new(1, RANKS, &key, NULL);
  size_t cut = data[1] * 4ul, n = TT_MIN(size - 2, (size_t)MOST);
  feed_ring(b, data + 2, n, cut);
  tt_bootstrap_destroy(b);
  return 0;
}
