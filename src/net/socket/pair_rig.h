// pair.h: two contexts of the socket network in one process, and a connection between them. For tests and measuring
// programs.
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "net/socket/socket_priv.h"
#include "os/clock.h"

#define NET (&tt_net_socket)

typedef struct pair {
  tt_snet *net[2]; // rank 0 sends, rank 1 receives
  void *listener;  // rank 1's
  void *send, *recv;
  char handle[TT_NET_HANDLE];
} pair;

static inline tt_snet *pair_context(int rank, int threads, int sockets)
{
  tt_net_env env = {.rank = rank, .nranks = 2, .comm_hash = 7, .key = {.b = {1, 2, 3}}};
  void *ctx = NULL;
  assert_int_equal(NET->init(&env, &ctx), ncclSuccess);
  tt_snet *net = ctx;
  for (int i = 0; i < net->base.ndevs; i++) {
    net->base.devs[i].nthreads = threads;
    net->base.devs[i].nsocks = sockets;
  }
  return net;
}

// Connects what listens at p->handle. Fails the test after 20 s.
static inline void pair_connect(pair *p)
{
  uint64_t end = tt_now_ns() + 20 * TT_NS_PER_S;
  while (p->send == NULL || p->recv == NULL) {
    if (p->send == NULL) {
      assert_int_equal(NET->connect(p->net[0], 0, p->handle, &p->send), ncclSuccess);
    }
    if (p->recv == NULL) {
      assert_int_equal(NET->accept(p->listener, &p->recv), ncclSuccess);
    }
    assert_true(tt_now_ns() < end);
  }
}

static inline void pair_listen(pair *p)
{
  p->listener = p->send = p->recv = NULL;
  memset(p->handle, 0xee, sizeof(p->handle));
  assert_int_equal(NET->listen(p->net[1], 0, p->handle, &p->listener), ncclSuccess);
}

// threads[0], sockets[0]: the sender's; [1]: the receiver's.
static inline void pair_open2(pair *p, const int threads[2], const int sockets[2])
{
  memset(p, 0, sizeof(*p));
  for (int i = 0; i < 2; i++) {
    p->net[i] = pair_context(i, threads[i], sockets[i]);
  }
  pair_listen(p);
  pair_connect(p);
}

static inline void pair_open(pair *p, int threads, int sockets)
{
  pair_open2(p, (int[]){threads, threads}, (int[]){sockets, sockets});
}

static inline void pair_close(pair *p)
{
  NET->close_send(p->send);
  NET->close_recv(p->recv);
  NET->close_listen(p->listener);
  NET->finalize(p->net[0]);
  NET->finalize(p->net[1]);
}

// Bytes that tell message `number` and place from others.
static inline void pair_pattern(char *data, size_t size, unsigned number)
{
  for (size_t i = 0; i < size; i++) {
    data[i] = (char)(number * 131 + i * 7 + (i >> 8));
  }
}

static inline int pair_pattern_holds(const char *data, size_t size, unsigned number)
{
  for (size_t i = 0; i < size; i++) {
    if (data[i] != (char)(number * 131 + i * 7 + (i >> 8))) {
      return 0;
    }
  }
  return 1;
}

static inline int pair_descriptors(void)
{
  int n = 0;
  for (int fd = 0; fd < 4096; fd++) {
    n += fcntl(fd, F_GETFD) >= 0;
  }
  return n;
}
