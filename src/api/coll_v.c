// coll_v.c: the five collectives whose blocks have lengths of their own.
#include <stdio.h>
#include <stdlib.h>

#include "api/api_priv.h"
#include "api/coll_priv.h"
#include "base/result.h"
#include "comm/blocks.h"
#include "comm/comm.h"
#include "comm/group.h"
#include "tutti.h"

// The blocks of one buffer as the program gives them: one of each rank, or one alone.
typedef struct block_list {
  const char *name; // of the counts
  const char *buffer_name;
  const void *buffer;
  const size_t *counts, *displs; // displs NULL: one behind the other
  bool alone;
} block_list;

enum { NAME_TEXT = 48 };

// "recvcounts[3]", "sendcount".
static const char *count_name(const block_list *l, int i, char text[NAME_TEXT])
{
  snprintf(text, NAME_TEXT, l->alone ? "%s" : "%s[%d]", l->name, i);
  return text;
}

// Does the block end where memory can be, and is there a buffer? An empty one lies nowhere.
static ncclResult_t check_block(const tt_task *t, const char *what, const block_list *l, int i, const tt_block *b)
{
  char name[NAME_TEXT];
  size_t end, bytes;
  if (b->count == 0) {
    return ncclSuccess;
  }
  if (__builtin_add_overflow(b->at, b->count, &end) ||
      __builtin_mul_overflow(end, tt_type_size((int)t->type), &bytes) || bytes > SIZE_MAX / 2) {
    return tt_fail(ncclInvalidArgument,
                   "%s on rank %d: %s is %zu, from element %zu on: that much %s does not fit into "
                   "memory",
                   what, t->comm->rank, count_name(l, i, name), b->count, b->at, tt_type_name((int)t->type));
  }
  if (l->buffer == NULL) {
    return tt_fail(ncclInvalidArgument, "%s on rank %d: %s is NULL, but %s is %zu", what, t->comm->rank, l->buffer_name,
                   count_name(l, i, name), b->count);
  }
  return ncclSuccess;
}

// Reads a list into blocks, one for each rank or one alone. The task counts the elements of the longest list.
static ncclResult_t read_blocks(tt_task *t, const char *what, const block_list *l, tt_block *out)
{
  size_t total = 0;
  if (l->counts == NULL) {
    return tt_fail(ncclInvalidArgument, "%s on rank %d: %s is NULL", what, t->comm->rank, l->name);
  }
  for (int i = 0; i < (l->alone ? 1 : t->comm->nranks); i++) {
    out[i] = (tt_block){.at = l->displs != NULL ? l->displs[i] : total, .count = l->counts[i]};
    TT_TRY(check_block(t, what, l, i, &out[i]));
    total += TT_MIN(l->counts[i], SIZE_MAX - total);
  }
  t->count = TT_MAX(t->count, total);
  return ncclSuccess;
}

// A block among others.
typedef struct placed_block {
  tt_block block;
  int rank;
} placed_block;

static int compare_placed(const void *a, const void *b)
{
  size_t x = ((const placed_block *)a)->block.at, y = ((const placed_block *)b)->block.at;
  return (x > y) - (x < y);
}

// Do the blocks lie one behind the other, in the order of the ranks? Nearly always they do. Empty ones lie nowhere.
static bool lie_in_order(const tt_block *b, int n)
{
  size_t end = 0;
  for (int i = 0; i < n; i++) {
    if (b[i].count > 0 && b[i].at < end) {
      return false;
    }
    end = b[i].count > 0 ? b[i].at + b[i].count : end;
  }
  return true;
}

// Sorts the blocks by place and looks at neighbours.
static ncclResult_t check_neighbours(const tt_task *t, const char *what, const block_list *l, const tt_block *b,
                                     placed_block *sorted)
{
  int n = 0;
  for (int i = 0; i < t->comm->nranks; i++) {
    if (b[i].count > 0) {
      sorted[n++] = (placed_block){b[i], i};
    }
  }
  qsort(sorted, (size_t)n, sizeof *sorted, compare_placed);
  for (int i = 1; i < n; i++) {
    const placed_block *x = &sorted[i - 1], *y = &sorted[i];
    if (y->block.at < x->block.at + x->block.count) {
      return tt_fail(ncclInvalidArgument,
                     "%s on rank %d: in %s the block of rank %d, elements %zu to %zu, and that of rank %d, elements "
                     "%zu to %zu, overlap",
                     what, t->comm->rank, l->buffer_name, x->rank, x->block.at, x->block.at + x->block.count - 1,
                     y->rank, y->block.at, y->block.at + y->block.count - 1);
    }
  }
  return ncclSuccess;
}

// Blocks that are written may not overlap: which of them wins would be chance. Those that are read may.
static ncclResult_t check_overlap(const tt_task *t, const char *what, const block_list *l, const tt_block *b)
{
  if (l->displs == NULL || lie_in_order(b, t->comm->nranks)) {
    return ncclSuccess;
  }
  placed_block *sorted;
  TT_TRY(TT_NEW(sorted, t->comm->nranks, "%s on rank %d: no memory to compare the blocks", what, t->comm->rank));
  ncclResult_t res = check_neighbours(t, what, l, b, sorted);
  tt_free(sorted);
  return res;
}

// A rank's own block has one length.
static ncclResult_t check_own(const tt_task *t, const char *what, const block_list *send, const block_list *recv)
{
  int me = t->comm->rank;
  char in[NAME_TEXT], out[NAME_TEXT];
  size_t sent = send->counts[send->alone ? 0 : me], received = recv->counts[recv->alone ? 0 : me];
  return sent == received ? ncclSuccess
                          : tt_fail(ncclInvalidArgument,
                                    "%s on rank %d: %s is %zu, but %s is %zu; both are the length of this rank's own "
                                    "block",
                                    what, me, count_name(send, me, in), sent, count_name(recv, me, out), received);
}

// Fills the task's blocks from what its rank sends and receives; NULL: nothing. A block alone goes to the root, or
// comes from it; that of an all-gather goes to all ranks.
static ncclResult_t fill_blocks(tt_task *t, const char *what, const block_list *send, const block_list *recv)
{
  tt_blocks *b = t->blocks;
  int n = t->comm->nranks, me = t->comm->rank;
  if (send != NULL) {
    TT_TRY(read_blocks(t, what, send, send->alone ? &b->in[t->root] : b->in));
  }
  if (t->func == TT_FUNC_REDUCESCATTERV) {
    b->out[me].count = b->in[me].count;
    return check_block(t, what, recv, me, &b->out[me]);
  }
  if (recv != NULL) {
    TT_TRY(read_blocks(t, what, recv, recv->alone ? &b->out[t->root] : b->out));
    TT_TRY(check_overlap(t, what, recv, b->out));
  }
  for (int i = 0; i < n && t->func == TT_FUNC_ALLGATHERV; i++) {
    b->in[i] = b->in[t->root];
  }
  return send != NULL && recv != NULL ? check_own(t, what, send, recv) : ncclSuccess;
}

// Checks a call and queues it, or adds it to the open group.
static ncclResult_t enqueue_blocks(const char *what, tt_task *t, const block_list *send, const block_list *recv)
{
  ncclResult_t res = tt_comm_begin(t->comm, what, true);
  if (res == ncclSuccess) {
    tt_coll_begin(t);
    res = tt_coll_check(t, what);
    bool root = t->comm->rank == t->root;
    if (res == ncclSuccess && (t->blocks = tt_blocks_new(t->comm->nranks)) == NULL) {
      res = tt_fail(ncclSystemError, "%s on rank %d: no memory for the blocks", what, t->comm->rank);
    }
    res = res != ncclSuccess ? res
                             : fill_blocks(t, what, t->func == TT_FUNC_SCATTERV && !root ? NULL : send,
                                           t->func == TT_FUNC_GATHERV && !root ? NULL : recv);
    res = res == ncclSuccess ? tt_task_add(t) : res;
    tt_blocks_drop(t->blocks);
    tt_comm_leave(t->comm);
  }
  if (res != ncclSuccess) {
    tt_group_note(res);
  }
  return res;
}

TT_EXPORT ncclResult_t tuttiAllGatherV(const void *sendbuff, size_t sendcount, void *recvbuff, const size_t *recvcounts,
                                       const size_t *displs, ncclDataType_t datatype, ncclComm_t comm,
                                       cudaStream_t stream)
{
  TASK(t, TT_FUNC_ALLGATHERV, sendbuff, recvbuff, 0, ncclSum, 0);
  const block_list send = {"sendcount", "sendbuff", sendbuff, &sendcount, NULL, true};
  const block_list recv = {"recvcounts", "recvbuff", recvbuff, recvcounts, displs, false};
  return enqueue_blocks("tuttiAllGatherV", &t, &send, &recv);
}

TT_EXPORT ncclResult_t tuttiReduceScatterV(const void *sendbuff, void *recvbuff, const size_t *recvcounts,
                                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                           cudaStream_t stream)
{
  TASK(t, TT_FUNC_REDUCESCATTERV, sendbuff, recvbuff, 0, op, 0);
  const block_list send = {"recvcounts", "sendbuff", sendbuff, recvcounts, NULL, false};
  const block_list recv = {"recvcounts", "recvbuff", recvbuff, recvcounts, NULL, false};
  return enqueue_blocks("tuttiReduceScatterV", &t, &send, &recv);
}

TT_EXPORT ncclResult_t tuttiGatherV(const void *sendbuff, size_t sendcount, void *recvbuff, const size_t *recvcounts,
                                    const size_t *displs, ncclDataType_t datatype, int root, ncclComm_t comm,
                                    cudaStream_t stream)
{
  TASK(t, TT_FUNC_GATHERV, sendbuff, recvbuff, 0, ncclSum, root);
  const block_list send = {"sendcount", "sendbuff", sendbuff, &sendcount, NULL, true};
  const block_list recv = {"recvcounts", "recvbuff", recvbuff, recvcounts, displs, false};
  return enqueue_blocks("tuttiGatherV", &t, &send, &recv);
}

TT_EXPORT ncclResult_t tuttiScatterV(const void *sendbuff, const size_t *sendcounts, const size_t *displs,
                                     void *recvbuff, size_t recvcount, ncclDataType_t datatype, int root,
                                     ncclComm_t comm, cudaStream_t stream)
{
  TASK(t, TT_FUNC_SCATTERV, sendbuff, recvbuff, 0, ncclSum, root);
  const block_list send = {"sendcounts", "sendbuff", sendbuff, sendcounts, displs, false};
  const block_list recv = {"recvcount", "recvbuff", recvbuff, &recvcount, NULL, true};
  return enqueue_blocks("tuttiScatterV", &t, &send, &recv);
}

TT_EXPORT ncclResult_t tuttiAlltoAllV(const void *sendbuff, const size_t *sendcounts, const size_t *sdispls,
                                      void *recvbuff, const size_t *recvcounts, const size_t *rdispls,
                                      ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
  TASK(t, TT_FUNC_ALLTOALLV, sendbuff, recvbuff, 0, ncclSum, 0);
  const block_list send = {"sendcounts", "sendbuff", sendbuff, sendcounts, sdispls, false};
  const block_list recv = {"recvcounts", "recvbuff", recvbuff, recvcounts, rdispls, false};
  return enqueue_blocks("tuttiAlltoAllV", &t, &send, &recv);
}
