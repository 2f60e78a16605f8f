// message.c: messages of connections. See ofi_priv.h.
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/result.h"
#include "base/util.h"
#include "net/ofi/ofi_priv.h"
#include "os/clock.h"

#define TAKE_BACK_NS (20 * TT_NS_PER_MS) // for sends, which cannot be called off, to be done

static bool has_busy_request(const tt_ofi_conn *c)
{
  for (size_t i = 0; i < TT_COUNT(c->reqs); i++) {
    if (c->reqs[i].state == TT_OFI_BUSY) {
      return true;
    }
  }
  return false;
}

bool tt_ofi_take_back(tt_ofi_conn *c)
{
  tt_ofi_dev *dev = c->dev;
  for (size_t i = 0; i < TT_COUNT(c->reqs) && dev->ep != NULL; i++) {
    if (c->reqs[i].state == TT_OFI_BUSY) {
      fi_cancel(&dev->ep->fid, &c->reqs[i].context);
    }
  }
  uint64_t end = tt_now_ns() + TAKE_BACK_NS;
  do {
    tt_ofi_progress(c->net, dev, NULL);
  } while (dev->ep != NULL && has_busy_request(c) && tt_now_ns() < end);
  return dev->ep == NULL || !has_busy_request(c);
}

// ---- Memory

ncclResult_t tt_ofi_reg_mr(void *comm, void *data, size_t size, int type, void **mhandle)
{
  const tt_ofi_conn *c = comm;
  tt_ofi_dev *dev = c->dev;
  struct fid_mr *mr = NULL;
  (void)type; // host memory alone is offered
  pthread_mutex_lock(&dev->lock);
  int e = dev->local_mr && dev->domain != NULL
              ? fi_mr_reg(dev->domain, data, size, FI_SEND | FI_RECV, 0, 0, 0, &mr, NULL)
              : 0;
  pthread_mutex_unlock(&dev->lock);
  if (e != 0) {
    return tt_fail(ncclSystemError, "libfabric cannot register %zu bytes with %s: error %d (see ulimit -l)", size,
                   dev->name, -e);
  }
  *mhandle = mr;
  return ncclSuccess;
}

ncclResult_t tt_ofi_dereg_mr(void *comm, void *mhandle)
{
  tt_ofi_conn *c = comm;
  struct fid_mr *mr = mhandle;
  if (mr != NULL) {
    pthread_mutex_lock(&c->dev->lock);
    fi_close(&mr->fid);
    pthread_mutex_unlock(&c->dev->lock);
  }
  return ncclSuccess;
}

// ---- A connection's messages

static const char *direction(const tt_ofi_conn *c)
{
  return c->send ? "to" : "from";
}

// Keeps the first reason; later calls fail with it.
static ncclResult_t fail_conn(tt_ofi_conn *c, const char *what, int error)
{
  if (c->why[0] == '\0' && c->dev->ep == NULL) {
    snprintf(c->why, sizeof c->why, "rank %d: the connection %s rank %d over OFI has ended with its endpoint: %.128s",
             c->net->base.env.rank, direction(c), c->peer, c->dev->why);
  } else if (c->why[0] == '\0') {
    snprintf(c->why, sizeof c->why, "rank %d: %s rank %d over OFI (%s, %s) failed: %s", c->net->base.env.rank, what,
             c->peer, c->dev->name, c->dev->info->fabric_attr->prov_name, c->net->lib.strerror(error));
  }
  return tt_fail(ncclRemoteError, "%s", c->why);
}

static tt_ofi_req *free_request(tt_ofi_conn *c)
{
  for (size_t i = 0; i < TT_COUNT(c->reqs); i++) {
    if (c->reqs[i].state == TT_OFI_FREE) {
      return &c->reqs[i];
    }
  }
  return NULL;
}

// 0, or a negative FI_E…: -FI_EAGAIN: not now.
static int post_request(tt_ofi_conn *c, tt_ofi_req *req, void *data, size_t size, struct fid_mr *mr)
{
  struct fid_ep *ep = c->dev->ep;
  void *desc = mr != NULL ? fi_mr_desc(mr) : NULL;
  ssize_t e = ep == NULL ? -FI_EOPBADSTATE
              : c->send  ? fi_tsend(ep, data, size, desc, c->to, c->tag, &req->context)
                         : fi_trecv(ep, data, size, desc, FI_ADDR_UNSPEC, c->tag, 0, &req->context);
  req->error = 0;
  req->state = e == 0 ? TT_OFI_BUSY : TT_OFI_FREE;
  return (int)e;
}

// Caller holds the lock. Where libfabric has no room it may get some by going on.
static ncclResult_t post_message(tt_ofi_conn *c, void *data, size_t size, void *mhandle, void **request)
{
  if (c->why[0] != '\0' || c->dev->ep == NULL) {
    return fail_conn(c, "", 0);
  }
  size_t most = c->dev->info->ep_attr->max_msg_size;
  if (size > most) {
    return tt_fail(ncclInvalidUsage,
                   "rank %d: a message of %zu bytes %s rank %d is too large for %s: %zu bytes at most (NCCL_BUFFSIZE)",
                   c->net->base.env.rank, size, direction(c), c->peer, c->dev->name, most);
  }
  tt_ofi_req *req = free_request(c);
  if (req == NULL) {
    return ncclSuccess;
  }
  int e = post_request(c, req, data, size, mhandle);
  if (e == -FI_EAGAIN) {
    tt_ofi_progress(c->net, c->dev, NULL);
    e = post_request(c, req, data, size, mhandle);
  }
  if (e == -FI_EAGAIN) {
    return ncclSuccess;
  }
  if (e != 0) {
    return fail_conn(c, c->send ? "sending to" : "receiving from", -e);
  }
  *request = req;
  return ncclSuccess;
}

static ncclResult_t start_locked(tt_ofi_conn *c, void *data, size_t size, void *mhandle, void **request)
{
  *request = NULL;
  pthread_mutex_lock(&c->dev->lock);
  ncclResult_t res = post_message(c, data, size, mhandle, request);
  pthread_mutex_unlock(&c->dev->lock);
  return res;
}

ncclResult_t tt_ofi_isend(void *send_comm, void *data, size_t size, int tag, void *mhandle, void *phandle,
                          void **request)
{
  (void)tag; // messages of a connection come in order
  (void)phandle;
  return start_locked(send_comm, data, size, mhandle, request);
}

ncclResult_t tt_ofi_irecv(void *recv_comm, int n, void **data, const size_t *sizes, const int *tags, void **mhandles,
                          void **phandles, void **request)
{
  (void)tags;
  (void)phandles;
  if (n != 1) {
    return tt_fail(ncclInvalidUsage, "the network OFI receives one buffer at a time, not %d", n);
  }
  return start_locked(recv_comm, data[0], sizes[0], mhandles != NULL ? mhandles[0] : NULL, request);
}

// Caller holds the lock.
static ncclResult_t look_at_request(tt_ofi_conn *c, tt_ofi_req *req, int *done, size_t *sizes)
{
  if (req->state == TT_OFI_BUSY) {
    tt_ofi_progress(c->net, c->dev, req);
  }
  if (req->state == TT_OFI_BUSY) {
    tt_ofi_before_sleep(c->net, c->dev, req);
  }
  if (req->state == TT_OFI_BUSY) {
    return c->dev->ep == NULL ? fail_conn(c, "", 0) : ncclSuccess;
  }
  req->state = TT_OFI_FREE;
  if (req->error == FI_ETRUNC) { // providers do not all tell how long it was, nor go on after it
    snprintf(c->why, sizeof c->why,
             "rank %d: a message from rank %d over OFI does not fit into the buffer posted for it: do all ranks call "
             "with the same count?",
             c->net->base.env.rank, c->peer);
    return tt_fail(ncclInvalidUsage, "%s", c->why);
  }
  if (req->error != 0) {
    return fail_conn(c, c->send ? "sending to" : "receiving from", req->error);
  }
  if (sizes != NULL) {
    sizes[0] = req->size;
  }
  *done = 1;
  return ncclSuccess;
}

ncclResult_t tt_ofi_test(void *request, int *done, size_t *sizes)
{
  tt_ofi_req *req = request;
  tt_ofi_conn *c = req->conn;
  *done = 0;
  pthread_mutex_lock(&c->dev->lock);
  ncclResult_t res = look_at_request(c, req, done, sizes);
  pthread_mutex_unlock(&c->dev->lock);
  return res;
}
