// fuzz_tls.c: what comes in place of TLS's handshake or of its records. No bytes may harm either side, and none get
// through without the key. Input: a byte that says which side and when, then what the other end says.
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/socket.h"
#include "os/tls.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t key[TT_TLS_KEY] = {1};

static void demand(bool good)
{
  if (!good) {
    abort();
  }
}

static void shake_pair(const int fds[2])
{
  int e[2] = {0, 0};
  demand(tt_tls_start(fds[1], key, false) == 0);
  for (int i = 1; e[0] == 0 || e[1] == 0; i = 1 - i) {
    e[i] = e[i] == 0 ? tt_tls_shake(fds[i]) : e[i];
  }
  demand(e[0] == 1 && e[1] == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  int fds[2], e;
  char got[64];
  if (size < 1 || size > 4096) {
    return 0;
  }
  bool accepting = (data[0] & 1) != 0, shaken = (data[0] & 2) != 0;
  demand(tt_tls_load() == ncclSuccess);
  demand(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
  demand(tt_tls_start(fds[0], key, accepting || shaken) == 0);
  if (shaken) {
    shake_pair(fds);
  }
  int raw = dup(fds[1]); // not encrypted
  demand(size == 1 || send(raw, data + 1, size - 1, 0) == (ssize_t)size - 1);
  shutdown(raw, SHUT_WR);
  close(raw);
  if (shaken) {
    e = (int)tt_sock_recv(fds[0], got, sizeof got);
  } else {
    while ((e = tt_tls_shake(fds[0])) == 0) {
    }
  }
  demand(e == -EPROTO || e == -ECONNRESET);
  tt_sock_close(&fds[0]);
  tt_sock_close(&fds[1]);
  return 0;
}
