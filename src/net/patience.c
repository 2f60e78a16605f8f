// patience.c: NCCL_NET_TIMEOUT in seconds. Not in net.c, because tests put networks of their own in place of that file.
#include "base/param.h"
#include "net/net.h"

unsigned tt_net_patience(void)
{
  int64_t s = tt_params_get()->net_timeout;
  return s <= 0 || s > TT_NET_FOR_EVER ? TT_NET_FOR_EVER : (unsigned)s;
}
