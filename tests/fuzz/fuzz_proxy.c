// fuzz_proxy.c: whatever a peer's proxy sends on a control connection, the own service neither breaks nor believes what
// cannot be.
//
// Byte 0: bit 0 the connection was dialled by us, bit 1 the network fails sometimes, bits 2 to 7 how many bytes come at
// a time. The rest is what the peer sends.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/result.h"
#include "os/shm.h"
#include "proxy/puts.h"
#include "proxy/service_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { RANKS = 4, ME = 2, PEER = 1 };

static void demand(int good)
{
  if (!good) {
    abort();
  }
}

// ---- a network that only says that it does what it is asked

static int fails, open_things;

static ncclResult_t properties(void *ctx, int dev, tt_net_props *props)
{
  (void)ctx;
  demand(dev >= 0 && dev < 2);
  *props = (tt_net_props){.name = "fuzz"};
  return ncclSuccess;
}

static ncclResult_t make(void **out)
{
  if (fails && ++fails % 3 == 0) {
    return tt_fail(ncclSystemError, "the network fails");
  }
  open_things++;
  *out = malloc(1);
  return *out == NULL ? ncclSystemError : ncclSuccess;
}

static ncclResult_t net_listen(void *ctx, int dev, void *handle, void **comm)
{
  (void)ctx;
  demand(dev >= 0 && dev < 2);
  memset(handle, 5, TT_NET_HANDLE);
  return make(comm);
}

static ncclResult_t net_connect(void *ctx, int dev, void *handle, void **comm)
{
  (void)ctx;
  demand(dev >= 0 && dev < 2);
  ((volatile char *)handle)[TT_NET_HANDLE - 1] = 1;
  return make(comm);
}

static ncclResult_t net_accept(void *listener, void **comm)
{
  demand(listener != NULL);
  return make(comm);
}

static ncclResult_t net_close(void *comm)
{
  open_things -= comm != NULL;
  free(comm);
  return ncclSuccess;
}

static const tt_net_ops net = {.name = "fuzz",
                               .get_properties = properties,
                               .listen = net_listen,
                               .connect = net_connect,
                               .accept = net_accept,
                               .close_send = net_close,
                               .close_recv = net_close,
                               .close_listen = net_close};

// ---- a service without a thread

typedef struct scene {
  tt_proxy proxy;
  tt_proxy_service service;
  tt_port port;
  tt_link *links[RANKS];
  _Atomic(tt_proxy_peer *) peers[RANKS];
  tt_proxy_where where[RANKS]; // no addresses: a peer that has to be dialled cannot be
  int gpus[RANKS], relays[RANKS];
  int other_end;
} scene;

static void step_all(scene *s, uint64_t *now)
{
  uint64_t wake_ns = 0;
  *now += 50 * TT_NS_PER_MS;
  for (tt_proxy_ties *t = s->service.ties; t != NULL; t = t->next) {
    tt_proxy_setup_step(&s->service, t, *now, &wake_ns);
    tt_proxy_state_step(&s->service, t, *now, &wake_ns);
    demand(atomic_load(&t->peer->page.state) <= TT_RANK_LOST);
  }
  for (tt_proxy_puts *g = atomic_load(&s->proxy.puts.list); g != NULL; g = g->next) {
    tt_puts_step(&s->service, g, *now);
  }
}

static tt_proxy_talk *set_scene(scene *s, int outgoing)
{
  int fds[2];
  demand(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
  s->other_end = fds[1];
  s->port = (tt_port){.rank = ME, .nranks = RANKS, .page = &s->port.lone_page, .links = s->links};
  s->proxy.rank = ME;
  s->proxy.nranks = RANKS;
  s->proxy.hash = 4711;
  s->proxy.port = &s->port;
  s->proxy.net = &net;
  s->proxy.peers = s->peers;
  s->proxy.service = &s->service;
  pthread_mutex_init(&s->proxy.lock, NULL);
  s->service.proxy = &s->proxy;
  s->service.where = s->where;
  s->service.gpus = s->gpus;
  s->service.relays = s->relays;
  s->service.wake = s->service.events = -1;
  s->service.ndevices = 2;
  s->service.limits = (tt_proxy_limits){
      .connect_ns = TT_NS_PER_S, .attempt_ns = TT_NS_PER_S, .refused_ns = 1, .grace_ns = 100 * TT_NS_PER_MS};
  tt_proxy_talk *k = calloc(1, sizeof *k);
  demand(k != NULL);
  *k = (tt_proxy_talk){.fd = fds[0], .rank = PEER, .outgoing = outgoing, .known = outgoing};
  s->service.talks = k;
  tt_proxy_ties *t = tt_proxy_ties_get(&s->service, PEER);
  demand(t != NULL);
  if (outgoing) {
    t->out = k;
    t->dial.stage = TT_DIAL_DONE;
    t->linked_ns = 1;
    tt_proxy_setup_begin(&s->service, t);
  }
  return k;
}

static void clear_scene(scene *s, tt_proxy_talk *k)
{
  for (tt_proxy_ties *t = s->service.ties; t != NULL; t = t->next) {
    tt_proxy_setup_end(&s->service, t, false);
  }
  tt_puts_cancel(&s->service);
  tt_puts_free(&s->proxy);
  for (int i = 0; i < RANKS; i++) {
    tt_proxy_peer *peer = atomic_load(&s->peers[i]);
    if (peer != NULL) {
      net_close(peer->send.comm);
      net_close(peer->recv.comm);
      tt_free(peer->ties);
      tt_free(peer);
    }
  }
  demand(open_things == 0);
  tt_fd_close(k->fd);
  tt_fd_close(s->other_end);
  free(k);
  pthread_mutex_destroy(&s->proxy.lock);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
  (void)argc;
  (void)argv;
  setenv("NCCL_DEBUG", "NONE", 1);
  return 0;
}

static void read_one(const uint8_t *data, size_t size, bool dialled)
{
  tt_msg m;
  const char *why = NULL;
  int n = tt_msg_read(data, size, PEER, dialled, &m, &why);
  demand(n <= (int)size && (n >= 0 || why != NULL));
  demand(n <= 0 || tt_msg_size(m.head.type) + (int)sizeof m.head == n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static scene s;
  uint64_t now = 2;
  read_one(data, size, false);
  read_one(data, size, true);
  if (size < 1) {
    return 0;
  }
  memset(&s, 0, sizeof s);
  fails = data[0] >> 1 & 1;
  size_t piece = 1 + (data[0] >> 2);
  tt_proxy_talk *k = set_scene(&s, data[0] & 1);
  for (size_t at = 1; at < size && k->fd >= 0; at += piece) {
    char sink[4096];
    size_t n = size - at < piece ? size - at : piece;
    demand(k->got + n <= sizeof k->in);
    memcpy(k->in + k->got, data + at, n);
    k->got += n;
    tt_proxy_talk_feed(&s.service, k);
    demand(k->fd < 0 || k->got < sizeof(tt_msg));
    step_all(&s, &now);
    while (read(s.other_end, sink, sizeof sink) > 0) {
    }
  }
  for (int i = 0; i < 30; i++) {
    step_all(&s, &now);
  }
  clear_scene(&s, k);
  return 0;
}
