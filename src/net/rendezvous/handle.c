// handle.c: the bytes that describe a listener. They come from another rank, so everything is checked. See
// rendezvous.h.
#include <string.h>

#include "net/rendezvous/rendezvous.h"

const char *tt_rdv_handle_check(const tt_rdv_handle *h, uint32_t magic, int nranks)
{
  static const uint8_t zero[sizeof(h->zero)];
  if (h->magic != magic) {
    return "it is another network's (NCCL_NET must be the same on all ranks)";
  }
  if (h->rank < 0 || h->rank >= nranks) {
    return "it names a rank that does not exist";
  }
  if (h->nsocks > TT_RDV_SOCKS || h->nthreads > TT_RDV_THREADS || memcmp(h->zero, zero, sizeof(zero)) != 0) {
    return "its numbers of sockets or threads are impossible";
  }
  tt_addrs at;
  return tt_addrs_unpack(h->addrs, h->more, &at) && at.n > 0 ? NULL : "it has no usable address";
}

void tt_rdv_handle_write(tt_rdv_handle *h, const tt_rdv *net, const tt_addrs *at, uint64_t cookie,
                         const tt_rdv_dev *dev)
{
  *h = (tt_rdv_handle){.magic = net->magic,
                       .rank = net->env.rank,
                       .cookie = cookie,
                       .nsocks = (uint8_t)dev->nsocks,
                       .nthreads = (uint8_t)dev->nthreads};
  h->more = tt_addrs_pack(at, h->addrs);
}

void tt_rdv_handle_addrs(const tt_rdv_handle *h, const tt_rdv_dev *from, tt_addrs *out)
{
  (void)tt_addrs_unpack(h->addrs, h->more, out);
  for (uint32_t i = 0; i < out->n; i++) {
    // A scope is a number of the machine that owns the address: here it is the interface to leave by.
    if (tt_addr_is_link_local(&out->a[i]) && from->index != 0) {
      out->a[i].scope = from->index;
    }
  }
}
