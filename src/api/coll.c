// coll.c: the nine collectives, send and receive.
#include "api/api_priv.h"
#include "api/coll_priv.h"
#include "base/result.h"
#include "comm/comm.h"
#include "comm/decide.h"
#include "comm/group.h"
#include "comm/redop.h"
#include "comm/task.h"

static ncclResult_t bad_pointer(const tt_task *t, const char *what, const char *name)
{
  return tt_fail(ncclInvalidArgument, "%s on rank %d: %s is NULL, but count is %zu", what, t->comm->rank, name,
                 t->count);
}

// Does this rank read `in`, write `out`?
static ncclResult_t check_buffers(const tt_task *t, const char *what)
{
  int me = t->comm->rank;
  tt_func f = t->func;
  bool reads = !(f == TT_FUNC_RECV || ((f == TT_FUNC_BROADCAST || f == TT_FUNC_SCATTER) && me != t->root));
  bool writes = !(f == TT_FUNC_SEND || ((f == TT_FUNC_REDUCE || f == TT_FUNC_GATHER) && me != t->root));
  if (t->count == 0) {
    return ncclSuccess;
  }
  if (reads && t->in == NULL) {
    return bad_pointer(t, what, "sendbuff");
  }
  return writes && t->out == NULL ? bad_pointer(t, what, "recvbuff") : ncclSuccess;
}

ncclResult_t tt_coll_check(tt_task *t, const char *what)
{
  TT_TRY(tt_comm_check(t->comm, what, true));
  const struct ncclComm *c = t->comm;
  size_t size = tt_type_size((int)t->type);
  if (TT_UNLIKELY(size == 0)) {
    return tt_fail(ncclInvalidArgument, "%s on rank %d: datatype %d is not an ncclDataType_t", what, c->rank,
                   (int)t->type);
  }
  if (TT_UNLIKELY(t->root < 0 || t->root >= c->nranks)) {
    const char *name = tt_func_is_message(t->func) ? "peer" : "root";
    return tt_fail(ncclInvalidArgument, "%s on rank %d: %s is %d; it must lie between 0 and %d", what, c->rank, name,
                   t->root, c->nranks - 1);
  }
  size_t bytes;
  if (TT_UNLIKELY(__builtin_mul_overflow(t->count, size * (size_t)c->nranks, &bytes) || bytes > SIZE_MAX / 2)) {
    return tt_fail(ncclInvalidArgument, "%s on rank %d: count %zu of %s does not fit into memory", what, c->rank,
                   t->count, tt_type_name((int)t->type));
  }
  if (tt_func_reduces(t->func)) {
    TT_TRY(tt_op_take(t, what));
  }
  return check_buffers(t, what);
}

// Checks, finds the options, records the event. Of a communicator that has been entered.
static ncclResult_t apply_wish(const char *what, tt_task *t, const tt_call_wish *wish, cudaEvent_t event)
{
  TT_TRY(tt_coll_check(t, what));
  if (t->count == 0) {
    return ncclSuccess;
  }
  TT_TRY(tt_comm_wish(t, what, wish));
  tt_comm_recall(t->comm, t);
  return event != NULL ? tt_group_record(t->comm, event, t->stream) : ncclSuccess;
}

ncclResult_t tt_coll_enqueue_config(const char *what, tt_task *t, const tt_coll_settings *settings)
{
  ncclResult_t res = tt_comm_begin(t->comm, what, true);
  if (res == ncclSuccess) {
    tt_coll_begin(t);
    t->user_tag = settings->user_tag;
    res = apply_wish(what, t, &settings->wish, settings->launched);
    res = res == ncclSuccess ? tt_task_add(t) : res;
    tt_comm_leave(t->comm);
  }
  if (res != ncclSuccess) {
    tt_group_note(res);
  }
  return res;
}

// Checks; an operation that does not commute wants what others may ask for as an option.
static ncclResult_t take_task(tt_task *t, const char *what)
{
  TT_TRY(tt_coll_check(t, what));
  return t->count > 0 && tt_kind_opcode(t->kind) == TT_OP_ORDERED
             ? tt_comm_wish(t, what, &(tt_call_wish){.forced = false})
             : ncclSuccess;
}

ncclResult_t tt_coll_enqueue(const char *what, tt_task *t)
{
  struct ncclComm *comm = t->comm;
  ncclResult_t res;
  if (TT_UNLIKELY(!tt_comm_lives(comm))) {
    res = tt_comm_dead(comm, what);
    tt_group_note(res);
    return res;
  }
  tt_comm_enter(comm);
  tt_coll_begin(t);
  bool buffers = (t->in != NULL || t->func == TT_FUNC_RECV) && (t->out != NULL || t->func == TT_FUNC_SEND);
  bool checked = tt_kind_opcode(t->kind) != TT_OP_SCALED; // user-defined operations come and go
  if (TT_LIKELY(tt_comm_usable(comm))) {                  // else an abort may be freeing the decisions
    tt_comm_recall(comm, t);
  }
  checked = checked && t->decision != NULL && t->decision->made && buffers;
  res = TT_LIKELY(checked) ? ncclSuccess : take_task(t, what); // an earlier call had the same arguments
  if (TT_LIKELY(res == ncclSuccess)) {
    res = tt_task_add(t);
  } else {
    tt_group_note(res);
  }
  tt_comm_leave(comm);
  return res;
}

TT_TWIN(ncclReduce);
TT_EXPORT ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                  ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
  TASK(t, TT_FUNC_REDUCE, sendbuff, recvbuff, count, op, root);
  return tt_coll_enqueue("ncclReduce", &t);
}

TT_TWIN(ncclBroadcast);
TT_EXPORT ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                     int root, ncclComm_t comm, cudaStream_t stream)
{
  TASK(t, TT_FUNC_BROADCAST, sendbuff, recvbuff, count, ncclSum, root);
  return tt_coll_enqueue("ncclBroadcast", &t);
}

TT_TWIN(ncclBcast);
TT_EXPORT ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                                 cudaStream_t stream)
{
  TASK(t, TT_FUNC_BROADCAST, buff, buff, count, ncclSum, root);
  return tt_coll_enqueue("ncclBcast", &t);
}

TT_TWIN(ncclAllReduce);
TT_EXPORT ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                     ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
  TASK(t, TT_FUNC_ALLREDUCE, sendbuff, recvbuff, count, op, 0);
  return tt_coll_enqueue("ncclAllReduce", &t);
}

TT_TWIN(ncclReduceScatter);
TT_EXPORT ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                         ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
  TASK(t, TT_FUNC_REDUCESCATTER, sendbuff, recvbuff, recvcount, op, 0);
  return tt_coll_enqueue("ncclReduceScatter", &t);
}

TT_TWIN(ncclAllGather);
TT_EXPORT ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                                     ncclComm_t comm, cudaStream_t stream)
{
  TASK(t, TT_FUNC_ALLGATHER, sendbuff, recvbuff, sendcount, ncclSum, 0);
  return tt_coll_enqueue("ncclAllGather", &t);
}

TT_TWIN(ncclAlltoAll);
TT_EXPORT ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                    ncclComm_t comm, cudaStream_t stream)
{
  TASK(t, TT_FUNC_ALLTOALL, sendbuff, recvbuff, count, ncclSum, 0);
  return tt_coll_enqueue("ncclAlltoAll", &t);
}

TT_TWIN(ncclGather);
TT_EXPORT ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                                  ncclComm_t comm, cudaStream_t stream)
{
  TASK(t, TT_FUNC_GATHER, sendbuff, recvbuff, count, ncclSum, root);
  return tt_coll_enqueue("ncclGather", &t);
}

TT_TWIN(ncclScatter);
TT_EXPORT ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                   int root, ncclComm_t comm, cudaStream_t stream)
{
  TASK(t, TT_FUNC_SCATTER, sendbuff, recvbuff, count, ncclSum, root);
  return tt_coll_enqueue("ncclScatter", &t);
}

TT_TWIN(ncclSend);
TT_EXPORT ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                                cudaStream_t stream)
{
  TASK(t, TT_FUNC_SEND, sendbuff, NULL, count, ncclSum, peer);
  return tt_coll_enqueue("ncclSend", &t);
}

TT_TWIN(ncclRecv);
TT_EXPORT ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                                cudaStream_t stream)
{
  TASK(t, TT_FUNC_RECV, NULL, recvbuff, count, ncclSum, peer);
  return tt_coll_enqueue("ncclRecv", &t);
}
