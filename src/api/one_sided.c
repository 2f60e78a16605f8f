// one_sided.c: ncclPutSignal, ncclSignal, ncclWaitSignal: checks, then comm/one_sided.c. docs/one-sided.md says what
// they promise.
#include "api/api_priv.h"
#include "base/result.h"
#include "comm/comm.h"
#include "comm/group.h"
#include "comm/one_sided.h"

static ncclResult_t check_number(const tt_rma_call *c, const char *name, int value, int end)
{
  return value >= 0 && value < end
             ? ncclSuccess
             : tt_fail(ncclInvalidArgument, "%s on rank %d: %s is %d; it must lie between 0 and %d", c->what,
                       c->comm->rank, name, value, end - 1);
}

static ncclResult_t check_supported(const tt_rma_call *c)
{
  const char *why;
  return c->comm->rma != NULL || tt_rma_supported(c->comm, &why)
             ? ncclSuccess
             : tt_fail(ncclInvalidArgument, "%s on rank %d: one-sided operations cannot be used here: %s", c->what,
                       c->comm->rank, why);
}

// There is something to work with once a window has been registered, or from the beginning where the user wants that.
// Then the peers of the call are connected.
static ncclResult_t check_begun(const tt_rma_call *c)
{
  if (c->comm->rma == NULL && !c->comm->config.rma_eager) {
    return tt_fail(ncclInvalidUsage,
                   "%s on rank %d: no window has been registered yet (ncclCommWindowRegister), and "
                   "ncclConfig_t.rmaEagerInit is not 1",
                   c->what, c->comm->rank);
  }
  TT_TRY(tt_rma_init(c->comm));
  for (int i = 0; i < c->nwaits; i++) {
    TT_TRY(tt_rma_reach(c->comm, c->waits[i].peer));
  }
  return c->nwaits == 0 ? tt_rma_reach(c->comm, c->peer) : ncclSuccess;
}

static ncclResult_t check_target(const tt_rma_call *c, int peer, int sig, int ctx)
{
  TT_TRY(check_number(c, "peer", peer, c->comm->nranks));
  TT_TRY(check_supported(c));
  TT_TRY(check_number(c, "ctx", ctx, c->comm->config.rma_contexts));
  return check_number(c, "sigIdx", sig, c->comm->config.rma_signals);
}

static ncclResult_t check_flags(const tt_rma_call *c, unsigned flags)
{
  return flags == 0 ? ncclSuccess
                    : tt_fail(ncclInvalidArgument, "%s on rank %d: flags are %#x; they must be 0", c->what,
                              c->comm->rank, flags);
}

// Where the peer has registered its window already, the place is checked at once, else when the put runs. The windows
// of a peer that has failed may be closed: then the put runs as well, and says how the peer has ended. One that has
// left in order has given up its windows itself.
static ncclResult_t check_window_place(const tt_rma_call *c)
{
  tt_window_note note;
  const tt_rma_peer *peer = &c->comm->rma->peers[c->peer];
  int found = tt_board_find(peer->board, c->window, &note);
  uint32_t state = peer->link != NULL ? tt_link_state(peer->link) : TT_RANK_GONE;
  if (found < 0 && state >= TT_RANK_FAILED && state != TT_RANK_GONE) {
    return ncclSuccess;
  }
  if (found < 0) {
    return tt_fail(ncclInvalidArgument, "%s on rank %d: rank %d has deregistered window %llu", c->what, c->comm->rank,
                   c->peer, (unsigned long long)c->window);
  }
  if (found > 0 && (c->offset > note.size || c->bytes > note.size - c->offset)) {
    return tt_fail(ncclInvalidArgument,
                   "%s on rank %d: %zu bytes at offset %llu do not lie in the window of rank %d, which has %llu bytes",
                   c->what, c->comm->rank, c->bytes, (unsigned long long)c->offset, c->peer,
                   (unsigned long long)note.size);
  }
  return ncclSuccess;
}

static ncclResult_t check_put(tt_rma_call *c, size_t count, ncclDataType_t type, ncclWindow_t window)
{
  const struct ncclComm *comm = c->comm;
  size_t size = tt_type_size((int)type);
  c->count = count;
  c->type = type;
  if (size == 0 || __builtin_mul_overflow(count, size, &c->bytes)) {
    return tt_fail(ncclInvalidArgument, "%s on rank %d: datatype is %d, count is %zu: no such size", c->what,
                   comm->rank, (int)type, count);
  }
  if (window == NULL || c->from == NULL) {
    return tt_fail(ncclInvalidArgument, "%s on rank %d: localbuff is %p, peerWin is %p; both must be given", c->what,
                   comm->rank, c->from, (void *)window);
  }
  TT_TRY(tt_comm_window_number(comm, c->what, window, &c->window));
  if (!tt_comm_in_window(comm, c->from, c->bytes)) {
    return tt_fail(ncclInvalidArgument,
                   "%s on rank %d: %zu bytes at %p do not lie in a window of this communicator: register the memory "
                   "with ncclCommWindowRegister",
                   c->what, comm->rank, c->bytes, c->from);
  }
  return check_window_place(c);
}

static ncclResult_t check_waits(const tt_rma_call *c)
{
  if (c->nwaits <= 0 || c->waits == NULL) {
    return tt_fail(ncclInvalidArgument, "%s on rank %d: nDesc is %d, signalDescs is %p; both must be given", c->what,
                   c->comm->rank, c->nwaits, (const void *)c->waits);
  }
  for (int i = 0; i < c->nwaits; i++) {
    const ncclWaitSignalDesc_t *d = &c->waits[i];
    TT_TRY(check_target(c, d->peer, d->sigIdx, d->ctx));
    if (d->opCnt <= 0) {
      return tt_fail(ncclInvalidArgument, "%s on rank %d: opCnt of descriptor %d is %d; it must be above 0", c->what,
                     c->comm->rank, i, d->opCnt);
    }
  }
  return ncclSuccess;
}

// Enters for the call. On an error it has not entered.
static ncclResult_t enter_call(const tt_rma_call *c)
{
  ncclResult_t res = tt_comm_begin(c->comm, c->what, true);
  if (res != ncclSuccess) {
    tt_group_note(res);
  }
  return res;
}

// Launches the call if its checks went well, and leaves.
static ncclResult_t end_call(tt_rma_call *c, ncclResult_t checked)
{
  ncclResult_t res = checked == ncclSuccess ? tt_rma_add(c) : checked;
  if (res != ncclSuccess) {
    tt_group_note(res);
  }
  tt_comm_leave(c->comm);
  return res;
}

// The checks of a put or signal that has been entered.
static ncclResult_t check_signal(const tt_rma_call *c, unsigned flags)
{
  TT_TRY(check_target(c, c->peer, c->sig, c->ctx));
  TT_TRY(check_flags(c, flags));
  return check_begun(c);
}

TT_TWIN(ncclPutSignal);
TT_EXPORT ncclResult_t ncclPutSignal(const void *localbuff, size_t count, ncclDataType_t datatype, int peer,
                                     ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx,
                                     unsigned int flags, ncclComm_t comm, cudaStream_t stream)
{
  tt_rma_call c = {.what = "ncclPutSignal",
                   .comm = comm,
                   .stream = stream,
                   .from = localbuff,
                   .offset = peerWinOffset,
                   .peer = peer,
                   .sig = sigIdx,
                   .ctx = ctx};
  TT_TRY(enter_call(&c));
  ncclResult_t res = check_signal(&c, flags);
  return end_call(&c, res == ncclSuccess ? check_put(&c, count, datatype, peerWin) : res);
}

TT_TWIN(ncclSignal);
TT_EXPORT ncclResult_t ncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                                  cudaStream_t stream)
{
  tt_rma_call c = {.what = "ncclSignal", .comm = comm, .stream = stream, .peer = peer, .sig = sigIdx, .ctx = ctx};
  TT_TRY(enter_call(&c));
  return end_call(&c, check_signal(&c, flags));
}

TT_TWIN(ncclWaitSignal);
TT_EXPORT ncclResult_t ncclWaitSignal(int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm,
                                      cudaStream_t stream)
{
  tt_rma_call c = {.what = "ncclWaitSignal", .comm = comm, .stream = stream, .nwaits = nDesc, .waits = signalDescs};
  TT_TRY(enter_call(&c));
  ncclResult_t res = check_waits(&c);
  return end_call(&c, res == ncclSuccess ? check_begun(&c) : res);
}
