// simulate.c: how long a communicator's operations would take, without running them (ncclGroupSimulateEnd).
#include <math.h>

#include "base/result.h"
#include "comm/blocks.h"
#include "comm/comm.h"
#include "comm/launch.h"
#include "comm/task.h"
#include "comm/tuning.h"

// What the messages of a group cost this rank: its core's work, and the longest way of one of them.
typedef struct messages {
  double core, latency;
} messages;

static tt_hop_kind hop_to(const struct ncclComm *comm, int peer)
{
  if (peer == comm->rank) {
    return TT_HOP_SELF;
  }
  return tt_transport_needs_net(&comm->peers[comm->rank].at, &comm->peers[peer].at) ? TT_HOP_NETWORK : TT_HOP_MEMORY;
}

// Adds one send or receive. With direct access a token comes first, then the data in one go; else they come in chunks.
static ncclResult_t add_message(const struct ncclComm *comm, const tt_task *t, messages *m)
{
  tt_cost_env env = tt_tuning_costs(comm);
  size_t bytes = tt_task_bytes(t);
  tt_choice c;
  TT_TRY(tt_tuning_choose(comm, t->func, bytes, t->root, false, &c));
  const tt_cost_hop *way = &env.hop[hop_to(comm, t->root)][c.direct ? TT_TOK : c.proto];
  double chunks = ceil((double)bytes / (double)c.chunk), b = (double)bytes;
  m->core += env.step + (c.direct ? way->work : chunks * way->work + b * (way->byte + env.byte));
  if (c.direct && t->func == TT_FUNC_RECV) {
    m->core += env.direct.work + b * env.direct.byte; // the receiver reads
  }
  m->core += c.networked ? b * env.net_byte : 0;
  m->latency = fmax(m->latency, way->latency);
  return ncclSuccess;
}

// Adds the parts of a collective whose blocks have lengths of their own: messages, or one sum after the other.
static ncclResult_t add_blocks_cost(struct ncclComm *comm, const tt_task *t, messages *m, double *sum)
{
  for (int i = 0; i < tt_blocks_parts(t); i++) {
    tt_task part;
    tt_choice c;
    double one;
    if (!tt_blocks_part(t, i, &part) || part.root < 0) {
      continue;
    }
    if (tt_func_is_message(part.func)) {
      TT_TRY(add_message(comm, &part, m));
      continue;
    }
    TT_TRY(tt_blocks_choose(&part, &c));
    TT_TRY(tt_tuning_estimate(comm, part.func, tt_task_bytes(&part), &c, &one));
    *sum += one;
  }
  return ncclSuccess;
}

ncclResult_t tt_comm_simulate(struct ncclComm *comm, const tt_task *tasks, size_t n, double *us)
{
  double sum = 0;
  messages m = {0};
  for (size_t i = 0; i < n; i++) {
    const tt_task *t = &tasks[i];
    bool captured; // which changes nothing: the call is to name a stream
    TT_TRY(comm->port.row->captured(t->stream, comm->device, &captured));
    if (t->blocks != NULL) {
      TT_TRY(add_blocks_cost(comm, t, &m, &sum));
      continue;
    }
    if (t->count == 0) {
      continue;
    }
    if (tt_func_is_message(t->func)) {
      TT_TRY(add_message(comm, t, &m));
      continue;
    }
    tt_choice c;
    double one;
    TT_TRY(tt_tuning_choose_task(comm, t, 1, &c));
    TT_TRY(tt_tuning_estimate(comm, t->func, tt_task_bytes(t), &c, &one));
    sum += one;
  }
  *us = sum + m.core + m.latency;
  return ncclSuccess;
}
