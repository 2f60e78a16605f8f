// connect.c: how a connection comes to be, and how it ends. See ofi_priv.h.
#include <stdio.h>
#include <string.h>

#include "base/result.h"
#include "net/ofi/ofi_priv.h"
#include "os/random.h"

// The accepting side's answer: where its endpoint is, and the connection's tag.
typedef struct ofi_answer {
  uint64_t tag;
  uint64_t addr_size;
  char addr[TT_OFI_ADDR];
} ofi_answer;
static_assert(sizeof(ofi_answer) == 80 && sizeof(ofi_answer) <= TT_RDV_ANSWER, "ofi_answer is sent as it is");

// Caller holds the lock.
static ncclResult_t add_conn(tt_ofi *net, tt_ofi_dev *dev, const tt_ofi_conn *conn, tt_ofi_conn **out)
{
  tt_ofi_conn *c = tt_calloc(1, sizeof *c);
  if (c == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for a connection with rank %d", net->base.env.rank, conn->peer);
  }
  *c = *conn;
  c->net = net;
  c->dev = dev;
  for (size_t i = 0; i < TT_COUNT(c->reqs); i++) {
    c->reqs[i].conn = c;
  }
  c->next = dev->conns;
  dev->conns = c;
  *out = c;
  return ncclSuccess;
}

ncclResult_t tt_ofi_close_conn(void *comm)
{
  tt_ofi_conn *c = comm;
  if (c == NULL) {
    return ncclSuccess;
  }
  tt_ofi_dev *dev = c->dev;
  pthread_mutex_lock(&dev->lock);
  if (!tt_ofi_take_back(c)) { // the memory of its messages must go, so the endpoint does
    char why[TT_OFI_WHY];
    snprintf(why, sizeof why, "rank %d: a connection was closed while libfabric still had messages of it",
             c->net->base.env.rank);
    tt_ofi_dev_give_up(dev, why);
  }
  TT_RDV_UNLINK(&dev->conns, c);
  pthread_mutex_unlock(&dev->lock);
  tt_free(c);
  return ncclSuccess;
}

// ---- The accepting end

// Caller holds the lock.
static ncclResult_t make_receiver(tt_ofi *net, const tt_rdv_ends *ends, ofi_answer *answer, tt_ofi_conn **out)
{
  tt_ofi_dev *dev = &net->devs[ends->dev];
  TT_TRY(tt_ofi_dev_open(net, dev));
  tt_random(&answer->tag, sizeof answer->tag);
  answer->tag &= TT_OFI_TAGS;
  answer->addr_size = dev->addr_size;
  memcpy(answer->addr, dev->addr, dev->addr_size);
  return add_conn(net, dev, &(tt_ofi_conn){.peer = ends->peer, .tag = answer->tag}, out);
}

ncclResult_t tt_ofi_accept(void *listen_comm, void **recv_comm)
{
  tt_rdv_ends *ends = tt_rdv_accept(listen_comm);
  tt_ofi *net = (tt_ofi *)tt_rdv_listener_net(listen_comm);
  tt_ofi_conn *c = NULL;
  ofi_answer answer = {0};
  *recv_comm = NULL;
  if (ends == NULL) {
    return ncclSuccess;
  }
  pthread_mutex_lock(&net->devs[ends->dev].lock);
  ncclResult_t res = make_receiver(net, ends, &answer, &c);
  pthread_mutex_unlock(&net->devs[ends->dev].lock);
  // The socket is new: it takes a few bytes. Where it has ended, the connecting side has given up, and begins anew.
  if (res == ncclSuccess && tt_sock_send_whole(ends->fds[0], &answer, sizeof answer) == 0) {
    tt_sock_finish(ends->fds[0]);
    *recv_comm = c;
  } else {
    tt_ofi_close_conn(c);
  }
  tt_rdv_taken(listen_comm, false);
  return res;
}

// ---- The connecting end

// Caller holds the lock.
static ncclResult_t make_sender(tt_ofi *net, const tt_rdv_ends *ends, const ofi_answer *answer, tt_ofi_conn **out)
{
  tt_ofi_dev *dev = &net->devs[ends->dev];
  fi_addr_t to;
  TT_TRY(tt_ofi_dev_open(net, dev));
  if (answer->addr_size > TT_OFI_ADDR || answer->tag > TT_OFI_TAGS ||
      fi_av_insert(dev->av, answer->addr, 1, &to, 0, NULL) != 1) {
    return tt_fail(ncclRemoteError, "rank %d: libfabric does not take the address of rank %d", net->base.env.rank,
                   ends->peer);
  }
  return add_conn(net, dev, &(tt_ofi_conn){.send = true, .peer = ends->peer, .tag = answer->tag, .to = to}, out);
}

ncclResult_t tt_ofi_connect(void *ctx, int dev, void *handle, void **send_comm)
{
  tt_ofi *net = ctx;
  tt_rdv_call *call = NULL;
  tt_ofi_conn *c = NULL;
  ofi_answer answer;
  *send_comm = NULL;
  TT_TRY(tt_rdv_connect(&net->base, dev, handle, &call));
  if (call == NULL) {
    return ncclSuccess;
  }
  int e = call->said ? 0 : tt_rdv_say_go(call, 0);
  e = e == 0 ? tt_rdv_answer(call, sizeof answer) : e;
  if (e <= 0) {
    return e == 0 ? ncclSuccess : tt_rdv_call_fail(call, e);
  }
  memcpy(&answer, call->answer, sizeof answer);
  pthread_mutex_lock(&net->devs[dev].lock);
  ncclResult_t res = make_sender(net, &call->ends, &answer, &c);
  pthread_mutex_unlock(&net->devs[dev].lock);
  tt_rdv_call_destroy(call);
  *send_comm = c;
  return res;
}
