// service.c: a proxy's service thread. So far: nothing is connected.
#include "proxy/proxy_priv.h"

ncclResult_t tt_proxy_service_start(tt_proxy *p, const tt_key *key, tt_proxy_where *where)
{
  (void)p;
  (void)key;
  *where = (tt_proxy_where){0};
  return ncclSuccess;
}

ncclResult_t tt_proxy_meet(tt_proxy *p, const tt_proxy_where *all)
{
  (void)p;
  (void)all;
  return ncclSuccess;
}

void tt_proxy_service_stop(tt_proxy *p)
{
  (void)p;
}

void tt_proxy_service_link(tt_proxy *p, tt_proxy_peer *peer)
{
  (void)p;
  (void)peer;
}

void tt_proxy_alert(tt_proxy *p)
{
  (void)p;
}

void tt_proxy_service_forget(tt_proxy *p)
{
  (void)p;
}

void tt_proxy_state_changed(tt_proxy *p)
{
  (void)p;
}

void tt_proxy_ask(tt_proxy *p, int peer)
{
  (void)p;
  (void)peer;
}
