// connect.c: how a connection comes to be, and how it ends. See ofi_priv.h.
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/result.h"
#include "base/util.h"
#include "net/ofi/ofi_priv.h"
#include "os/clock.h"
#include "os/random.h"

#define HANDLE_MAGIC 0x69666f5f74747574ull // "tutt_ofi" in a little-endian dump

// What tells a connecting rank where a listener is.
typedef struct ofi_handle {
  uint64_t magic;
  uint64_t tag;
  int32_t rank;
  uint16_t addr_size;
  uint16_t zero;
  uint8_t nonce[TT_NONCE_BYTES]; // of the greeting
  char addr[TT_OFI_ADDR];
} ofi_handle;
static_assert(sizeof(ofi_handle) <= TT_NET_HANDLE, "a handle is sent in the network's bytes");

// The first message, from the connecting end. hello.cookie is the tag for the answer; the seal of `addr` is under the key too.
typedef struct ofi_hello {
  tt_hello hello;
  uint64_t addr_size;
  char addr[TT_OFI_ADDR];
  tt_seal seal;
} ofi_hello;
static_assert(sizeof(ofi_hello) == 88 + 8 + TT_OFI_ADDR + 32, "ofi_hello is sent as it is");

static tt_seal seal_addr(const tt_key *key, const ofi_hello *h)
{
  const tt_part parts[] = {{&h->hello, sizeof h->hello}, {&h->addr_size, sizeof h->addr_size}, {h->addr, sizeof h->addr}};
  return tt_key_seal(key, "ofi address", parts, TT_COUNT(parts));
}

// What the two ends of a handshake send and receive.
typedef struct ofi_letters {
  ofi_hello hello;
  tt_seal proof;
} ofi_letters;

enum { HELLO, PROOF, LETTERS };

struct tt_ofi_listener {
  tt_ofi *net;
  tt_ofi_listener *next;
  tt_ofi_dev *dev;
  uint64_t tag;
  tt_greeting greeting;
  tt_ofi_req reqs[LETTERS]; // hello received, proof sent
  struct fid_mr *mr;
  ofi_letters letters;
  tt_ofi_conn *conn; // once the hello was good
  fi_addr_t from;    // who said it
  bool warned;
};

struct tt_ofi_call {
  tt_ofi *net;
  tt_ofi_call *next;
  tt_ofi_dev *dev;
  ofi_handle handle;
  uint64_t deadline_ns;
  fi_addr_t to;
  tt_greeting greeting;
  tt_ofi_req reqs[LETTERS]; // hello sent, proof received
  struct fid_mr *mr;
  ofi_letters letters;
};

static uint64_t random_tag(void)
{
  uint64_t tag;
  tt_random(&tag, sizeof tag);
  return tag & TT_OFI_TAGS;
}

// The nonce travels in the handle: both ends make the same greeting of it.
static void make_greeting(tt_greeting *g, uint8_t nonce[TT_NONCE_BYTES], bool given)
{
  tt_greeting_make(g);
  if (given) {
    memcpy(g->nonce, nonce, TT_NONCE_BYTES);
  } else {
    memcpy(nonce, g->nonce, TT_NONCE_BYTES);
  }
}

static ncclResult_t find_device(tt_ofi *net, int i, tt_ofi_dev **out)
{
  if (i < 0 || i >= net->ndevs) {
    return tt_fail(ncclInvalidUsage, "rank %d: the network OFI has no device %d, only 0 … %d", net->env.rank, i, net->ndevs - 1);
  }
  *out = &net->devs[i];
  return ncclSuccess;
}

static tt_ofi_conn *new_conn(tt_ofi *net, tt_ofi_dev *dev, bool send, int peer, uint64_t tag)
{
  tt_ofi_conn *c = tt_calloc(1, sizeof *c);
  if (c != NULL) {
    c->net = net;
    c->dev = dev;
    c->send = send;
    c->peer = peer;
    c->tag = tag;
    for (size_t i = 0; i < TT_COUNT(c->reqs); i++) {
      c->reqs[i].conn = c;
    }
    c->next = dev->conns;
    dev->conns = c;
  }
  return c;
}

// Takes back what `reqs` have under way. Where that cannot be had the endpoint goes, because the memory must.
static void end_requests(const tt_ofi *net, tt_ofi_dev *dev, tt_ofi_req *reqs, int n)
{
  if (!tt_ofi_take_back(net, dev, reqs, n)) {
    char why[TT_OFI_WHY];
    snprintf(why, sizeof why, "rank %d: a connection was closed while libfabric still had messages of it", net->env.rank);
    tt_ofi_dev_give_up(dev, why);
  }
}

static void close_mr(struct fid_mr *mr)
{
  if (mr != NULL) {
    fi_close(&mr->fid);
  }
}

ncclResult_t tt_ofi_close_conn(void *comm)
{
  tt_ofi_conn *c = comm;
  if (c == NULL) {
    return ncclSuccess;
  }
  tt_ofi_dev *dev = c->dev;
  pthread_mutex_lock(&dev->lock);
  end_requests(c->net, dev, c->reqs, (int)TT_COUNT(c->reqs));
  for (tt_ofi_conn **at = &dev->conns; *at != NULL; at = &(*at)->next) {
    if (*at == c) {
      *at = c->next;
      break;
    }
  }
  pthread_mutex_unlock(&dev->lock);
  tt_free(c);
  return ncclSuccess;
}

// ---- The accepting end

static int await_hello(tt_ofi_listener *l)
{
  const tt_ofi_piece piece = {l->tag | TT_OFI_CONTROL, &l->letters.hello, sizeof l->letters.hello, l->mr};
  return tt_ofi_post_recv(l->dev, &l->reqs[HELLO], &piece);
}

// Caller holds the lock.
static ncclResult_t start_listening(tt_ofi_listener *l)
{
  const tt_net_env *env = &l->net->env;
  TT_TRY(tt_ofi_dev_open(l->net, l->dev));
  TT_TRY(tt_ofi_register(l->dev, &l->letters, sizeof l->letters, &l->mr));
  int e = await_hello(l);
  return e == 0 ? ncclSuccess
                : tt_fail(ncclSystemError, "rank %d: cannot listen on %s: %s", env->rank, l->dev->name, l->net->lib.strerror(-e));
}

static void fill_handle(tt_ofi_listener *l, void *handle)
{
  ofi_handle h = {.magic = HANDLE_MAGIC, .tag = l->tag, .rank = l->net->env.rank, .addr_size = (uint16_t)l->dev->addr_size};
  make_greeting(&l->greeting, h.nonce, false);
  memcpy(h.addr, l->dev->addr, l->dev->addr_size);
  memset(handle, 0, TT_NET_HANDLE);
  memcpy(handle, &h, sizeof h);
}

ncclResult_t tt_ofi_listen(void *ctx, int dev, void *handle, void **listen_comm)
{
  tt_ofi *net = ctx;
  tt_ofi_dev *d = NULL;
  TT_TRY(find_device(net, dev, &d));
  tt_ofi_listener *l = tt_calloc(1, sizeof *l);
  if (l == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for a listener", net->env.rank);
  }
  l->net = net;
  l->dev = d;
  l->tag = random_tag();
  l->next = net->listeners;
  net->listeners = l;
  pthread_mutex_lock(&d->lock);
  ncclResult_t res = start_listening(l);
  if (res == ncclSuccess) {
    fill_handle(l, handle);
  }
  pthread_mutex_unlock(&d->lock);
  if (res != ncclSuccess) {
    tt_ofi_close_listen(l);
    return res;
  }
  *listen_comm = l;
  return ncclSuccess;
}

// NULL: it is a hello of this communicator; else why not.
static const char *check_hello(const tt_ofi_listener *l)
{
  const ofi_hello *h = &l->letters.hello;
  const tt_net_env *env = &l->net->env;
  if (l->reqs[HELLO].error != 0 || l->reqs[HELLO].size != sizeof *h) {
    return "its size is wrong";
  }
  const char *why = tt_hello_check(&h->hello, sizeof h->hello, &env->key, &l->greeting);
  tt_seal seal = seal_addr(&env->key, h);
  if (why != NULL) {
    return why;
  }
  bool good = tt_seal_same(&seal, &h->seal) && h->addr_size <= TT_OFI_ADDR && h->hello.kind == TT_HELLO_NET && h->hello.to == env->rank &&
              h->hello.rank >= 0 && h->hello.rank < env->nranks;
  return good ? NULL : "it is for somebody else";
}

// The hello was good: makes the connection. Caller holds the lock.
static ncclResult_t take_hello(tt_ofi_listener *l)
{
  const ofi_hello *h = &l->letters.hello;
  if (fi_av_insert(l->dev->av, h->addr, 1, &l->from, 0, NULL) != 1) {
    return tt_fail(ncclRemoteError, "rank %d: libfabric does not take the address of rank %d", l->net->env.rank, h->hello.rank);
  }
  l->letters.proof = tt_proof_make(&h->hello, &l->net->env.key, &l->greeting);
  l->conn = new_conn(l->net, l->dev, false, h->hello.rank, l->tag);
  return l->conn != NULL ? ncclSuccess : tt_fail(ncclSystemError, "rank %d: no memory for a connection", l->net->env.rank);
}

// Answers the hello, as soon as there is room. Caller holds the lock.
static ncclResult_t prove(tt_ofi_listener *l)
{
  const tt_ofi_piece piece = {l->letters.hello.hello.cookie | TT_OFI_CONTROL, &l->letters.proof, sizeof l->letters.proof, l->mr};
  int e = tt_ofi_post_send(l->dev, &l->reqs[PROOF], l->from, &piece);
  return e == 0 || e == -FI_EAGAIN ? ncclSuccess
                                   : tt_fail(ncclRemoteError, "rank %d: cannot answer rank %d over %s: %s", l->net->env.rank, l->conn->peer,
                                             l->dev->name, l->net->lib.strerror(-e));
}

static ncclResult_t drop_hello(tt_ofi_listener *l, const char *why)
{
  if (!l->warned) {
    tt_warn("rank %d: a message to the listener on %s is no hello of this communicator and was dropped: %s", l->net->env.rank, l->dev->name,
            why);
    l->warned = true;
  }
  int e = await_hello(l);
  return e == 0 ? ncclSuccess
                : tt_fail(ncclSystemError, "rank %d: cannot listen on %s any more: %s", l->net->env.rank, l->dev->name,
                          l->net->lib.strerror(-e));
}

// Caller holds the lock.
static ncclResult_t accept_step(tt_ofi_listener *l, tt_ofi_conn **out)
{
  tt_ofi_progress(l->net, l->dev, NULL);
  if (l->dev->ep == NULL) {
    return tt_fail(ncclRemoteError, "%s", l->dev->why);
  }
  if (l->reqs[HELLO].state == TT_OFI_DONE && l->conn == NULL) {
    const char *why = check_hello(l);
    TT_TRY(why != NULL ? drop_hello(l, why) : take_hello(l));
  }
  if (l->conn != NULL && l->reqs[PROOF].state == TT_OFI_FREE) {
    TT_TRY(prove(l));
  }
  if (l->conn != NULL && l->reqs[PROOF].state == TT_OFI_DONE) {
    if (l->reqs[PROOF].error != 0) {
      return tt_fail(ncclRemoteError, "rank %d: cannot answer rank %d over %s: %s", l->net->env.rank, l->conn->peer, l->dev->name,
                     l->net->lib.strerror(l->reqs[PROOF].error));
    }
    *out = l->conn;
    l->conn = NULL;
    l->reqs[HELLO].state = l->reqs[PROOF].state = TT_OFI_FREE;
  }
  return ncclSuccess;
}

ncclResult_t tt_ofi_accept(void *listen_comm, void **recv_comm)
{
  tt_ofi_listener *l = listen_comm;
  tt_ofi_conn *c = NULL;
  *recv_comm = NULL;
  pthread_mutex_lock(&l->dev->lock);
  ncclResult_t res = accept_step(l, &c);
  pthread_mutex_unlock(&l->dev->lock);
  if (res == ncclSuccess) {
    *recv_comm = c;
  }
  return res;
}

ncclResult_t tt_ofi_close_listen(void *listen_comm)
{
  tt_ofi_listener *l = listen_comm;
  if (l == NULL) {
    return ncclSuccess;
  }
  for (tt_ofi_listener **at = &l->net->listeners; *at != NULL; at = &(*at)->next) {
    if (*at == l) {
      *at = l->next;
      break;
    }
  }
  pthread_mutex_lock(&l->dev->lock);
  end_requests(l->net, l->dev, l->reqs, LETTERS);
  close_mr(l->mr);
  pthread_mutex_unlock(&l->dev->lock);
  tt_ofi_close_conn(l->conn);
  tt_free(l);
  return ncclSuccess;
}

// ---- The connecting end

static tt_ofi_call *find_call(const tt_ofi *net, const tt_ofi_dev *dev, const ofi_handle *h)
{
  for (tt_ofi_call *call = net->calls; call != NULL; call = call->next) {
    if (call->dev == dev && call->handle.tag == h->tag && call->handle.rank == h->rank) {
      return call;
    }
  }
  return NULL;
}

static void call_destroy(tt_ofi_call *call)
{
  for (tt_ofi_call **at = &call->net->calls; *at != NULL; at = &(*at)->next) {
    if (*at == call) {
      *at = call->next;
      break;
    }
  }
  pthread_mutex_lock(&call->dev->lock);
  end_requests(call->net, call->dev, call->reqs, LETTERS);
  close_mr(call->mr);
  pthread_mutex_unlock(&call->dev->lock);
  tt_free(call);
}

static void write_hello(tt_ofi_call *call)
{
  const tt_net_env *env = &call->net->env;
  ofi_hello *h = &call->letters.hello;
  h->hello = (tt_hello){.kind = TT_HELLO_NET, .rank = env->rank, .to = call->handle.rank, .nranks = env->nranks, .cookie = random_tag()};
  make_greeting(&call->greeting, call->handle.nonce, true);
  tt_hello_seal(&h->hello, &env->key, &call->greeting);
  h->addr_size = call->dev->addr_size;
  memcpy(h->addr, call->dev->addr, call->dev->addr_size);
  h->seal = seal_addr(&env->key, h);
}

// Caller holds the lock.
static ncclResult_t begin(tt_ofi_call *call)
{
  tt_ofi_dev *dev = call->dev;
  TT_TRY(tt_ofi_dev_open(call->net, dev));
  TT_TRY(tt_ofi_register(dev, &call->letters, sizeof call->letters, &call->mr));
  if (fi_av_insert(dev->av, call->handle.addr, 1, &call->to, 0, NULL) != 1) {
    return tt_fail(ncclRemoteError, "rank %d: libfabric does not take the address of rank %d", call->net->env.rank, call->handle.rank);
  }
  write_hello(call);
  const tt_ofi_piece piece = {call->letters.hello.hello.cookie | TT_OFI_CONTROL, &call->letters.proof, sizeof call->letters.proof,
                              call->mr};
  int e = tt_ofi_post_recv(dev, &call->reqs[PROOF], &piece);
  return e == 0 ? ncclSuccess
                : tt_fail(ncclSystemError, "rank %d: %s has no room for a message: %s", call->net->env.rank, dev->name,
                          call->net->lib.strerror(-e));
}

static ncclResult_t fail_call(const tt_ofi_call *call, const char *why)
{
  return tt_fail(ncclRemoteError, "rank %d: cannot connect to rank %d over OFI (%s, %s): %s", call->net->env.rank, call->handle.rank,
                 call->dev->name, call->dev->info->fabric_attr->prov_name, why);
}

// Caller holds the lock.
static ncclResult_t call_step(tt_ofi_call *call, tt_ofi_conn **out)
{
  tt_ofi_req *hello = &call->reqs[HELLO], *proof = &call->reqs[PROOF];
  int e = 0;
  if (hello->state == TT_OFI_FREE) {
    const tt_ofi_piece piece = {call->handle.tag | TT_OFI_CONTROL, &call->letters.hello, sizeof call->letters.hello, call->mr};
    e = tt_ofi_post_send(call->dev, hello, call->to, &piece);
  }
  tt_ofi_progress(call->net, call->dev, NULL);
  if (e != 0 && e != -FI_EAGAIN) {
    return fail_call(call, call->net->lib.strerror(-e));
  }
  if (call->dev->ep == NULL) {
    return fail_call(call, call->dev->why);
  }
  if (hello->state == TT_OFI_DONE && hello->error != 0) {
    return fail_call(call, call->net->lib.strerror(hello->error));
  }
  if (proof->state != TT_OFI_DONE || hello->state != TT_OFI_DONE) {
    return tt_now_ns() < call->deadline_ns ? ncclSuccess
                                           : fail_call(call, "no answer (NCCL_NET_TIMEOUT; is a firewall between the machines?)");
  }
  tt_seal want = tt_proof_make(&call->letters.hello.hello, &call->net->env.key, &call->greeting);
  if (proof->error != 0 || proof->size != sizeof want || !tt_seal_same(&want, &call->letters.proof)) {
    return fail_call(call, "who listens there does not know this communicator's secret");
  }
  *out = new_conn(call->net, call->dev, true, call->handle.rank, call->handle.tag);
  if (*out == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for a connection", call->net->env.rank);
  }
  (*out)->to = call->to;
  return ncclSuccess;
}

static ncclResult_t check_handle(const tt_ofi *net, const ofi_handle *h)
{
  bool good = h->magic == HANDLE_MAGIC && h->tag <= TT_OFI_TAGS && h->rank >= 0 && h->rank < net->env.nranks && h->addr_size > 0 &&
              h->addr_size <= TT_OFI_ADDR;
  return good ? ncclSuccess
              : tt_fail(ncclRemoteError,
                        "rank %d: a handle to connect to is no handle of the network OFI (NCCL_NET must be the same on all ranks)",
                        net->env.rank);
}

static ncclResult_t new_call(tt_ofi *net, tt_ofi_dev *dev, const ofi_handle *h, tt_ofi_call **out)
{
  tt_ofi_call *call = tt_calloc(1, sizeof *call);
  if (call == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory to connect to rank %d", net->env.rank, h->rank);
  }
  call->net = net;
  call->dev = dev;
  call->handle = *h;
  uint64_t patience = tt_net_patience();
  call->deadline_ns = tt_now_ns() + patience * TT_NS_PER_S;
  call->next = net->calls;
  net->calls = call;
  pthread_mutex_lock(&dev->lock);
  ncclResult_t res = begin(call);
  pthread_mutex_unlock(&dev->lock);
  if (res != ncclSuccess) {
    call_destroy(call);
    return res;
  }
  *out = call;
  return ncclSuccess;
}

ncclResult_t tt_ofi_connect(void *ctx, int dev, void *handle, void **send_comm)
{
  tt_ofi *net = ctx;
  tt_ofi_dev *d = NULL;
  tt_ofi_conn *c = NULL;
  ofi_handle h;
  *send_comm = NULL;
  memcpy(&h, handle, sizeof h);
  TT_TRY(check_handle(net, &h));
  TT_TRY(find_device(net, dev, &d));
  tt_ofi_call *call = find_call(net, d, &h);
  if (call == NULL) {
    TT_TRY(new_call(net, d, &h, &call));
  }
  pthread_mutex_lock(&d->lock);
  ncclResult_t res = call_step(call, &c);
  pthread_mutex_unlock(&d->lock);
  if (res != ncclSuccess || c != NULL) {
    call_destroy(call);
  }
  *send_comm = c;
  return res;
}

void tt_ofi_cancel(void *ctx, int dev, const void *handle)
{
  tt_ofi *net = ctx;
  ofi_handle h;
  memcpy(&h, handle, sizeof h);
  tt_ofi_call *call = dev >= 0 && dev < net->ndevs ? find_call(net, &net->devs[dev], &h) : NULL;
  if (call != NULL) {
    call_destroy(call);
  }
}

void tt_ofi_calls_destroy(tt_ofi *net)
{
  while (net->calls != NULL) {
    call_destroy(net->calls);
  }
  while (net->listeners != NULL) {
    tt_ofi_close_listen(net->listeners);
  }
}
