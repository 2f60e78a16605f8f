// comm.c: checks handles, reads configurations, flushes.
#include "comm/comm.h"

#include <sched.h>
#include <stdio.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "os/clock.h"
#include "topo/graph.h"
#include "topo/nvml.h"
#include "topo/system.h"

#define DROP_TRIES 1000  // looks at the streams before plans that have not begun are left to them
#define EXPEL_YIELDS 100 // looks at a call that another thread is in, before sleeping in between
#define EXPEL_SLEEP_NS 50000ull
#define END_LOOK_NS 200000ull // between two looks whether another thread has stopped a communicator

ncclResult_t tt_comm_check(const struct ncclComm *comm, const char *what, bool usable)
{
  if (comm == NULL) {
    return tt_fail(ncclInvalidArgument, "%s: the communicator is NULL", what);
  }
  if (((uintptr_t)comm & (TT_CACHE_LINE - 1)) != 0 ||
      atomic_load(&comm->magic) != TT_COMM_MAGIC) { // not before what tt_comm_look has stored
    return tt_fail(ncclInvalidArgument, "%s: %p is not a communicator, or has been destroyed", what,
                   (const void *)comm);
  }
  if (TT_UNLIKELY(comm->generation != tt_proc_generation)) {
    return tt_fail(ncclInvalidUsage,
                   "%s: communicator %p belongs to the parent process; a forked child must create its own", what,
                   (const void *)comm);
  }
  if (!usable) {
    return ncclSuccess;
  }
  int async = atomic_load_explicit(&comm->async, memory_order_acquire),
      state = atomic_load_explicit(&comm->state, memory_order_acquire);
  if (TT_UNLIKELY(async == ncclInProgress)) {
    return tt_fail(
        ncclInvalidArgument,
        "%s on rank %d: the communicator's previous call is still in progress: wait until ncclCommGetAsyncError "
        "says ncclSuccess",
        what, __atomic_load_n(&comm->rank, __ATOMIC_RELAXED));
  }
  ncclResult_t status = tt_port_status(&comm->port);
  if (TT_UNLIKELY(status != ncclSuccess && atomic_load(&comm->revoked))) {
    return tt_fail(ncclInvalidUsage, "%s on rank %d: the communicator was revoked by ncclCommRevoke", what, comm->rank);
  }
  if (TT_UNLIKELY(status != ncclSuccess)) {
    return tt_fail(status, "%s on rank %d: the communicator has failed before: %s", what, comm->rank,
                   tt_port_error(&comm->port));
  }
  if (TT_UNLIKELY(state != TT_COMM_READY)) {
    return tt_fail(ncclInvalidUsage, "%s on rank %d: the communicator %s", what, comm->rank,
                   state == TT_COMM_FINALIZED   ? "has been finalized"
                   : state == TT_COMM_SUSPENDED ? "is suspended: call ncclCommResume first"
                                                : "was never initialised");
  }
  return ncclSuccess;
}

const char *tt_comm_error(const struct ncclComm *comm)
{
  if (tt_port_status(&comm->port) != ncclSuccess) {
    return tt_port_error(&comm->port);
  }
  int async = atomic_load_explicit(&comm->async, memory_order_acquire);
  bool failed = async != ncclSuccess && async != ncclInProgress;
  return failed && comm->job_error[0] != '\0' ? comm->job_error : NULL;
}

ncclResult_t tt_comm_dead(const struct ncclComm *comm, const char *what)
{
  ncclResult_t res = tt_comm_check(comm, what, false);
  return res != ncclSuccess
             ? res
             : tt_fail(ncclInvalidArgument, "%s: communicator %p has just been destroyed", what, (const void *)comm);
}

ncclResult_t tt_comm_begin(struct ncclComm *comm, const char *what, bool usable)
{
  if (TT_UNLIKELY(!tt_comm_lives(comm))) {
    return tt_comm_dead(comm, what);
  }
  tt_comm_enter(comm);
  ncclResult_t res = tt_comm_check(comm, what, usable);
  if (res != ncclSuccess) {
    tt_comm_leave(comm);
  }
  return res;
}

static _Thread_local const struct ncclComm *looked_at; // by the calling thread; NULL: none

bool tt_comm_is_inside(const struct ncclComm *comm)
{
  return looked_at == comm || atomic_load(&comm->launcher) == (uintptr_t)__builtin_thread_pointer();
}

ncclResult_t tt_comm_look(struct ncclComm *comm, const char *what)
{
  if (TT_UNLIKELY(!tt_comm_lives(comm))) {
    return tt_comm_dead(comm, what);
  }
  looked_at = comm;
  atomic_fetch_add(&comm->lookers, 1);
  ncclResult_t res = tt_comm_check(comm, what, false); // those that free it make the handle a dead one first
  if (TT_UNLIKELY(res != ncclSuccess)) {
    tt_comm_look_away(comm);
  }
  return res;
}

void tt_comm_look_away(struct ncclComm *comm)
{
  atomic_fetch_sub(&comm->lookers, 1);
  looked_at = NULL;
}

bool tt_comm_take_end(struct ncclComm *comm, int how)
{
  int now = TT_ENDING_NOT;
  looked_at = how == TT_ENDING_STOP ? comm : looked_at; // first: a signal handler must not wait for this thread
  while (!atomic_compare_exchange_strong(&comm->ending, &now, how)) {
    if (now == TT_ENDING_FREE) {
      looked_at = NULL;
      return false;
    }
    now = TT_ENDING_NOT;
    tt_sleep_ns(END_LOOK_NS);
  }
  return true;
}

void tt_comm_give_end(struct ncclComm *comm)
{
  atomic_store(&comm->ending, TT_ENDING_NOT);
  looked_at = NULL;
}

void tt_comm_watch(struct ncclComm *comm)
{
  uint64_t every_ns = (uint64_t)TT_CLAMP(tt_params_get()->peer_check_ms, 1, 3600000) * TT_NS_PER_MS;
  if (atomic_load(&comm->async) == ncclSuccess && tt_comm_stands(atomic_load(&comm->state)) &&
      tt_port_status(&comm->port) == ncclSuccess) {
    tt_port_watch_idle(&comm->port, every_ns);
  }
}

void tt_comm_await_lookers(struct ncclComm *comm)
{
  while (atomic_load(&comm->lookers) != 0) {
    sched_yield();
  }
}

void tt_comm_expel(struct ncclComm *comm)
{
  tt_comm_await_lookers(comm);
  tt_barrier_rare();
  comm->port.row->wake(); // threads inside that wait for plans look again
  for (int i = 0; atomic_load_explicit(&comm->launcher, memory_order_acquire) != 0; i++) {
    if (i < EXPEL_YIELDS) {
      sched_yield();
    } else {
      tt_sleep_ns(EXPEL_SLEEP_NS);
    }
  }
}

// Where the structure of this NCCL version ends. What follows, up to its size, is padding.
static size_t config_end(unsigned version)
{
  static const struct {
    unsigned before; // the first version that has more
    size_t end;
  } rows[] = {
      {NCCL_VERSION(2, 14, 0), offsetof(ncclConfig_t, blocking)},
      {NCCL_VERSION(2, 17, 0), offsetof(ncclConfig_t, cgaClusterSize)},
      {NCCL_VERSION(2, 18, 0), offsetof(ncclConfig_t, splitShare)},
      {NCCL_VERSION(2, 26, 0), offsetof(ncclConfig_t, trafficClass)},
      {NCCL_VERSION(2, 27, 0), offsetof(ncclConfig_t, commName)},
      {NCCL_VERSION(2, 28, 0), offsetof(ncclConfig_t, nChannelsPerNetPeer)},
      {NCCL_VERSION(2, 29, 0), offsetof(ncclConfig_t, graphUsageMode)},
      {NCCL_VERSION(2, 30, 0), offsetof(ncclConfig_t, maxP2pPeers)},
      {NCCL_VERSION(2, 30, 5), offsetof(ncclConfig_t, graphStreamOrdering)},
      {NCCL_VERSION(2, 31, 0), offsetof(ncclConfig_t, launchOrderImplicit)},
      {NCCL_VERSION(2, 32, 0), offsetof(ncclConfig_t, nvlsHostMode)},
  };
  for (size_t i = 0; i < TT_COUNT(rows); i++) {
    if (version < rows[i].before) {
      return rows[i].end;
    }
  }
  return sizeof(ncclConfig_t);
}

// Copies what a user's structure of any version has over the defaults in *out.
static ncclResult_t take_config(const ncclConfig_t *c, ncclConfig_t *out)
{
  const size_t from = offsetof(ncclConfig_t, blocking);
  if (c->magic != NCCL_API_MAGIC || c->size < offsetof(ncclConfig_t, cgaClusterSize)) {
    return tt_fail(ncclInvalidArgument,
                   "ncclConfig_t at %p was not initialised with NCCL_CONFIG_INITIALIZER (magic 0x%x, size %zu)",
                   (const void *)c, c->magic, c->size);
  }
  memcpy((char *)out + from, (const char *)c + from, TT_MIN(c->size, config_end(c->version)) - from);
  return ncclSuccess;
}

// A number that the user has set, and what becomes of it.
typedef struct config_row {
  const char *name;
  int value, least, most; // value: NCCL_CONFIG_UNDEF_INT: not set
  int *out;               // NULL: it means nothing here, or nothing yet
} config_row;

static ncclResult_t config_number(const config_row *r)
{
  if (r->value == NCCL_CONFIG_UNDEF_INT) {
    return ncclSuccess;
  }
  if (r->value < r->least || r->value > r->most) {
    return tt_fail(ncclInvalidArgument, "%s is %d; it must lie between %d and %d", r->name, r->value, r->least,
                   r->most);
  }
  if (r->out != NULL) {
    *r->out = r->value;
  }
  return ncclSuccess;
}

// The name and value of a row: a variable that is set goes before.
#define CONFIG(member) "ncclConfig_t." #member, c->member
#define CONFIG_OR(member, param, variable)                     \
  tt_param_is_set(param) ? variable : "ncclConfig_t." #member, \
      tt_param_is_set(param) ? (int)TT_CLAMP(p->param, -INT_MAX, INT_MAX) : c->member

ncclResult_t tt_config_read(const ncclConfig_t *user, const struct ncclComm *parent, tt_config *out)
{
  const tt_params *p = tt_params_get();
  ncclConfig_t all = NCCL_CONFIG_INITIALIZER, *c = &all;
  tt_config r = {.blocking = 1,
                 .min_ctas = 1,
                 .max_ctas = TT_GRAPH_MAX_CHANNELS,
                 .traffic_class = TT_NET_ANY_CLASS,
                 .rma_contexts = 1,
                 .rma_signals = 1};
  if (user != NULL) {
    TT_TRY(take_config(user, c));
  }
  if (parent != NULL) {
    r = parent->config;
    r.split_share = r.shrink_share = 0;
  }
  const config_row rows[] = {
      {CONFIG_OR(minCTAs, min_ctas, "NCCL_MIN_CTAS"), 1, INT_MAX, &r.min_ctas},
      {CONFIG_OR(maxCTAs, max_ctas, "NCCL_MAX_CTAS"), 1, INT_MAX, &r.max_ctas},
      {CONFIG_OR(blocking, comm_blocking, "NCCL_COMM_BLOCKING"), 0, 1, &r.blocking},
      {CONFIG(splitShare), 0, 1, &r.split_share},
      {CONFIG(collnetEnable), 0, 1, &r.collnet_enable},
      {CONFIG(trafficClass), 0, INT_MAX, &r.traffic_class},
      {CONFIG(cgaClusterSize), 0, 8, NULL},
      {CONFIG(CTAPolicy), 0, NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO, NULL},
      {CONFIG(shrinkShare), 0, 1, &r.shrink_share},
      {CONFIG(nvlsCTAs), 1, INT_MAX, NULL},
      {CONFIG(nChannelsPerNetPeer), 1, TT_GRAPH_MAX_CHANNELS, NULL},
      {CONFIG(nvlinkCentricSched), 0, 1, NULL},
      {CONFIG(graphUsageMode), 0, 2, NULL},
      {CONFIG(numRmaCtx), 0, INT_MAX, &r.rma_contexts},
      {CONFIG(maxP2pPeers), 1, INT_MAX, NULL},
      {CONFIG(graphStreamOrdering), 0, 1, NULL},
      {CONFIG(launchOrderImplicit), 0, 1, NULL},
      {CONFIG(numRmaSig), 0, INT_MAX, &r.rma_signals},
      {CONFIG_OR(rmaEagerInit, rma_eager_init, "NCCL_RMA_EAGER_INIT"), 0, 1, &r.rma_eager},
      {CONFIG(hostCftMode), ncclHostCftEnable, ncclHostCftFallback, NULL},
      {CONFIG(nvlsHostMode), 0, ncclNvlsHostModeDisable, NULL},
  };
  for (size_t i = 0; i < TT_COUNT(rows); i++) {
    TT_TRY(config_number(&rows[i]));
  }
  bool both = rows[0].value != NCCL_CONFIG_UNDEF_INT && rows[1].value != NCCL_CONFIG_UNDEF_INT;
  if (both && r.min_ctas > r.max_ctas) {
    return tt_fail(ncclInvalidArgument, "%s is %d and %s is %d: the least is more than the most", rows[0].name,
                   r.min_ctas, rows[1].name, r.max_ctas);
  }
  if (tt_param_is_set(collnet_enable)) {
    r.collnet_enable = p->collnet_enable != 0;
  }
  r.max_ctas = TT_MIN(r.max_ctas, TT_GRAPH_MAX_CHANNELS);
  r.min_ctas = TT_MIN(r.min_ctas, TT_GRAPH_MAX_CHANNELS);
  if (rows[0].value == NCCL_CONFIG_UNDEF_INT) { // the one that is not set gives way
    r.min_ctas = TT_MIN(r.min_ctas, r.max_ctas);
  }
  r.max_ctas = TT_MAX(r.max_ctas, r.min_ctas);
  if (c->commName != NULL) {
    snprintf(r.name, sizeof r.name, "%s", c->commName);
  }
  if (c->netName != NULL) {
    snprintf(r.net_name, sizeof r.net_name, "%s", c->netName);
  }
  *out = r;
  return ncclSuccess;
}

void tt_comm_log_complete(const struct ncclComm *comm)
{
  const char *where = comm->peers[comm->rank].where.bus_id;
  int64_t bus = (int64_t)comm->device << 12; // of a device of the host
  int number = comm->device;
  tt_gpu_facts gpu;
  if (!tt_log_on(TT_LOG_INFO, TT_INIT)) {
    return;
  }
  if (tt_bus_id(where, &bus) && tt_nvml_get() != NULL && tt_nvml_gpu_read(tt_nvml_get(), where, &gpu)) {
    number = gpu.index;
  }
  tt_info(TT_INIT, "comm %p rank %d nranks %d cudaDev %d nvmlDev %d busId %llx commId 0x%llx - Init COMPLETE",
          (const void *)comm, comm->rank, comm->nranks, comm->device, number, (unsigned long long)bus,
          (unsigned long long)comm->hash);
}

void tt_comm_log_memory(const struct ncclComm *comm)
{
  const tt_geometry *g = &comm->peers[0].geometry;
  size_t n = (size_t)comm->nranks, local = (size_t)comm->machine.local_ranks, remote = n - local;
  size_t window = tt_window_bytes(g) + tt_outbox_bytes((int)local) + sizeof(tt_mail);
  size_t shared = local > 1 ? tt_segment_bytes(g, (int)local, comm->machine.gpus) : 0;
  size_t own = sizeof *comm +
               n * (sizeof *comm->peers + sizeof *comm->wiring.ranks + sizeof *comm->port.links +
                    2 * sizeof *comm->plans.flows) +
               TT_OPERANDS(n) * sizeof *comm->port.operands + (comm->port.bounce != NULL ? TT_BOUNCE_BYTES : 0);
  tt_info(TT_INIT,
          "rank %d: memory: at most %zu KiB for each direction of a connection on this machine, %zu KiB over the "
          "network; at most %zu KiB in all that "
          "%zu local ranks share, %zu KiB for connections with %zu ranks over the network; %zu KiB of its own before "
          "the first call",
          comm->rank, window / 1024, tt_net_window_bytes(g) / 1024, TT_DIV_UP(shared, 1024), local,
          TT_DIV_UP(2 * remote * tt_net_window_bytes(g), 1024), remote, TT_DIV_UP(own, 1024));
}

ncclResult_t tt_comm_exchange(const struct ncclComm *comm, const void *mine, size_t size, void *all)
{
  char *array = tt_calloc((size_t)comm->nranks, size);
  ncclResult_t res = ncclSuccess;
  if (array == NULL) {
    res = tt_fail(ncclSystemError, "rank %d: no memory for what %d ranks tell each other", comm->rank, comm->nranks);
  } else {
    memcpy(array + (size_t)comm->rank * size, mine, size);
    res = comm->nranks > 1 ? tt_bootstrap_allgather(comm->boot, array, size) : ncclSuccess;
  }
  if (res != ncclSuccess) {
    tt_free(array);
    array = NULL;
  }
  memcpy(all, &array, sizeof array);
  return res;
}

static bool replays(const struct ncclComm *c)
{
  return c->port.row->replays != NULL && c->port.row->replays(&c->port);
}

static bool quiet(void *arg)
{
  const struct ncclComm *c = arg;
  if (__atomic_load_n(&c->port.abort_flag, __ATOMIC_ACQUIRE) || tt_port_status(&c->port) != ncclSuccess) {
    return true;
  }
  const bool ended = tt_comm_outstanding(c) == 0 && !replays(c); // before the next look: these send until they end
  const bool sent = c->port.mover == NULL || c->port.mover->idle(c->port.mover_self);
  return ended && sent; // what others still need must have left this process
}

void tt_comm_drop_plans(struct ncclComm *comm)
{
  for (int i = 0; i < DROP_TRIES && tt_comm_outstanding(comm) != 0; i++) {
    comm->port.row->progress();
    sched_yield();
  }
  if (tt_comm_outstanding(comm) != 0 || replays(comm)) { // another thread may be in one
    comm->port.row->settle();
  }
}

ncclResult_t tt_comm_flush(struct ncclComm *comm)
{
  atomic_fetch_or(&comm->plans.recycled, TT_FLUSHING);
  comm->port.row->await(quiet, comm);
  atomic_fetch_and(&comm->plans.recycled, ~TT_FLUSHING);
  ncclResult_t status = tt_port_status(&comm->port);
  if (status != ncclSuccess) {
    tt_comm_drop_plans(comm);
  }
  // The port may not have been stopped yet.
  bool aborted = __atomic_load_n(&comm->port.abort_flag, __ATOMIC_ACQUIRE) != 0;
  return status == ncclSuccess && aborted
             ? tt_fail(ncclInternalError, "rank %d: the communicator is being aborted", comm->rank)
             : status;
}
