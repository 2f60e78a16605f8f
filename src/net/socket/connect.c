// connect.c: connections out of the sockets that a rendezvous gives. See socket_priv.h.
//
// A connection from A to B and one from B to A share a control socket where that is possible: the frames of the second
// go over the socket of the first, against the direction of its frames. Acknowledgements then travel with the data, so
// a small message costs a packet less.
#include <string.h>

#include "base/log.h"
#include "base/result.h"
#include "net/socket/socket_priv.h"
#include "os/clock.h"

#define HIGHER_WAITS_NS TT_NS_PER_S
#define LOWER_WAITS_NS (5 * TT_NS_PER_MS)

// The connecting side's frames will come over the socket of a connection from here to there.
static bool share_with_sender(tt_snet *net, tt_rdv_ends *ends)
{
  int shared = -1;
  if (tt_snet_conn_share(net, ends->peer, true, ends->twin, &shared) == 0) {
    tt_info(TT_NET, "socket: rank %d dropped a connection of rank %d that was to share a socket which is gone",
            net->base.env.rank, ends->peer);
    return false;
  }
  tt_sock_close(&ends->fds[0]);
  ends->fds[0] = shared;
  return true;
}

ncclResult_t tt_snet_accept(void *listen_comm, void **recv_comm)
{
  tt_rdv_ends *ends = tt_rdv_accept(listen_comm);
  tt_snet *net = (tt_snet *)tt_rdv_listener_net(listen_comm);
  tt_snet_conn *c = NULL;
  ncclResult_t res = ncclSuccess;
  if (ends != NULL && (ends->twin == 0 || share_with_sender(net, ends))) {
    res = tt_snet_conn_create(net, ends, &c);
  }
  if (ends != NULL) {
    tt_rdv_taken(listen_comm, c != NULL);
  }
  *recv_comm = c;
  return res;
}

// The peer is connecting to this rank too: one of the two waits, so that one socket can do for both. The higher rank
// waits until the other connection stands, the lower one for what is under way already. Not for ever: what is lost
// otherwise is a microsecond per message.
static bool should_wait(const tt_rdv_call *call)
{
  uint64_t most = call->net->env.rank > call->ends.peer ? HIGHER_WAITS_NS : LOWER_WAITS_NS;
  return tt_now_ns() - call->ready_ns < most && tt_rdv_peer_comes(call->net, call->ends.peer);
}

// Says that everything stands, and over which socket the frames will come.
static int finish_call(tt_snet *net, tt_rdv_call *call)
{
  int shared = -1;
  uint32_t twin = tt_snet_conn_share(net, call->ends.peer, false, 0, &shared);
  int e = tt_rdv_say_go(call, twin);
  if (twin != 0) {
    call->ends.wire = call->ends.twin = twin;
    tt_sock_finish(call->ends.fds[0]);
    tt_sock_close(&call->ends.fds[0]);
    call->ends.fds[0] = shared;
  }
  return e;
}

ncclResult_t tt_snet_connect(void *ctx, int dev, void *handle, void **send_comm)
{
  tt_rdv_call *call = NULL;
  tt_snet_conn *c = NULL;
  *send_comm = NULL;
  TT_TRY(tt_rdv_connect(ctx, dev, handle, &call));
  if (call == NULL || should_wait(call)) {
    return ncclSuccess;
  }
  int e = finish_call(ctx, call);
  if (e != 0) {
    return tt_rdv_call_fail(call, e);
  }
  ncclResult_t res = tt_snet_conn_create(ctx, &call->ends, &c);
  if (res == ncclSuccess) {
    memset(call->ends.fds, -1, sizeof(call->ends.fds));
    *send_comm = c;
  }
  tt_rdv_call_destroy(call);
  return res;
}
