// handle.c: the bytes that say where a listener is. They come from another rank: nothing in them is believed. See socket_priv.h.
#include <netinet/in.h>
#include <string.h>

#include "net/socket/socket_priv.h"

static bool zero(const void *data, size_t size)
{
  const char *b = data;
  for (size_t i = 0; i < size; i++) {
    if (b[i] != 0) {
      return false;
    }
  }
  return true;
}

const char *tt_snet_handle_check(const tt_snet_handle *h, int nranks)
{
  if (h->magic != TT_SNET_HANDLE_MAGIC) {
    return "it is not of the socket network";
  }
  if (h->rank < 0 || h->rank >= nranks) {
    return "it names a rank that does not exist";
  }
  if (h->nsocks > TT_SNET_SOCKS || h->nthreads > TT_SNET_THREADS || !zero(h->zero, sizeof(h->zero))) {
    return "its numbers of sockets or threads are impossible";
  }
  tt_addrs at;
  return tt_addrs_unpack(h->addrs, h->more, &at) && at.n > 0 ? NULL : "it has no usable address";
}

static bool link_local(const tt_addr *a)
{
  return a->family == AF_INET6 && a->ip[0] == 0xfe && (a->ip[1] & 0xc0) == 0x80;
}

void tt_snet_handle_write(tt_snet_handle *h, const tt_addrs *at, int rank, uint64_t cookie, const tt_snet_dev *dev)
{
  memset(h, 0, sizeof(*h));
  h->magic = TT_SNET_HANDLE_MAGIC;
  h->rank = rank;
  h->cookie = cookie;
  h->nsocks = (uint8_t)dev->nsocks;
  h->nthreads = (uint8_t)dev->nthreads;
  h->more = tt_addrs_pack(at, h->addrs);
}

void tt_snet_handle_addrs(const tt_snet_handle *h, const tt_snet_dev *from, tt_addrs *out)
{
  (void)tt_addrs_unpack(h->addrs, h->more, out);
  for (uint32_t i = 0; i < out->n; i++) {
    // A scope is a number of the machine that owns the address: here it is the interface to leave by.
    if (link_local(&out->a[i]) && from->index != 0) {
      out->a[i].scope = from->index;
    }
  }
}
