// init.c: creating a communicator: a table of steps, each with its undo.
#include "comm/init.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/advice.h"
#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/text.h"
#include "bootstrap/crypt.h"
#include "comm/collnet.h"
#include "comm/comm.h"
#include "comm/flight.h"
#include "comm/ranks.h"
#include "comm/ras.h"
#include "comm/topology.h"
#include "comm/tuning.h"
#include "net/plugin/plugin.h"
#include "os/clock.h"
#include "plugin/env.h"

// What a rank reports to all others.
typedef struct report {
  uint16_t can_copy;  // it can read its neighbour's memory
  uint16_t writes;    // tt_comm_machine.can_write
  uint16_t eager;     // it connects now (NCCL_RUNTIME_CONNECT=0), which can fail
  uint8_t fifos_only; // it uses no memory of peers (tt_device_ops.fifos_only)
  uint8_t early;      // it connects with the ranks of its machine now (tt_device_ops.connects_early)
  uint64_t tuner;     // its tuner plugin; 0: none
  uint64_t collnet;   // it wants the network to reduce
} report;

typedef struct init {
  struct ncclComm *comm;
  const tt_init_args *args;
  bool eager;      // some rank connects now
  bool fifos_only; // some rank uses no memory of peers
  bool early;      // some rank connects now with those of its machine
  bool collnet;    // all ranks want the network to reduce
} init;

typedef struct init_step {
  const char *name;
  ncclResult_t (*run)(init *in);
  void (*undo)(struct ncclComm *comm); // frees what the step made; accepts a step that did not finish
} init_step;

static ncclResult_t bootstrap_step(init *in)
{
  struct ncclComm *c = in->comm;
  if (c->boot == NULL) { // a split has made its own
    bool many = in->args->nids > 1;
    TT_TRY(tt_bootstrap_init(many ? in->args->ids : &in->args->id, many ? in->args->nids : 1, c->nranks, c->rank,
                             &c->port.abort_flag, &c->boot));
  }
  c->hash = tt_hash(tt_bootstrap_secret(c->boot), 8, 3); // not the secret itself
  return ncclSuccess;
}

static uint64_t init_hash_text(const char *s)
{
  return s == NULL ? 0 : tt_hash(s, strlen(s), 4);
}

static void describe_self(const struct ncclComm *c, tt_peer *me)
{
  const tt_params *p = tt_params_get();
  *me = (tt_peer){.at.rank = c->rank,
                  .at.device = c->device,
                  .at.host = tt_proc_host_hash(),
                  .machine = tt_proc_machine_hash(),
                  .at.proc = tt_proc_self(),
                  .net_space = tt_proc_net_space(),
                  .pid_space = tt_proc_pid_space(),
                  .cores = tt_proc_core_set(),
                  .cpus = tt_proc_cpus(),
                  .version = NCCL_VERSION_CODE,
                  .algo = init_hash_text(p->algo),
                  .proto = init_hash_text(p->proto),
                  .reproducible = p->reproducible,
                  .direct_threshold = p->host_direct_threshold,
                  .net_chunk = p->p2p_net_chunksize,
                  .net_delay = tt_tuning_delay(c->boot),
                  .rma_contexts = (uint16_t)TT_MIN(c->config.rma_contexts, UINT16_MAX),
                  .rma_signals = (uint16_t)TT_MIN(c->config.rma_signals, UINT16_MAX),
                  .at.p2p_disable = tt_transport_p2p_off(),
                  .at.shm_disable = p->shm_disable != 0,
                  .geometry = tt_geometry_default(),
                  .figures = tt_figures_own()->figures};
  c->port.row->identify(c->device, &me->where);
  snprintf(me->host, sizeof me->host, "%s", tt_proc_host_name());
  tt_topology_describe(c, me);
  me->probe = c->port.row->probe();
}

// Ranks on the host and on GPUs work together by messages.
static ncclResult_t compare_devices(const struct ncclComm *c)
{
  const tt_device_id *a = &c->peers[0].where;
  for (int i = 1; i < c->nranks; i++) {
    const tt_device_id *b = &c->peers[i].where;
    if (strncmp(a->kind, b->kind, sizeof a->kind) != 0 && !(tt_device_mixes(a) && tt_device_mixes(b))) {
      return tt_fail(ncclInvalidUsage,
                     "rank 0 is on a device of kind '%.8s', rank %d on one of kind '%.8s': ranks of such kinds cannot "
                     "work together",
                     a->kind, i, b->kind);
    }
  }
  return ncclSuccess;
}

// Do all ranks run the same library with the same parameters? Compared with rank 0, so that every rank finds the same
// culprit.
static ncclResult_t compare_peers(const struct ncclComm *c)
{
  const tt_peer *a = &c->peers[0];
  bool sees = tt_topology_anything_to_see(c); // plain hosts have one channel, whatever the settings
  for (int i = 1; i < c->nranks; i++) {
    const tt_peer *b = &c->peers[i];
    if (a->version != b->version) {
      return tt_fail(ncclInvalidUsage, "rank 0 runs library version %d, rank %d runs %d: all ranks must use the same",
                     a->version, i, b->version);
    }
    const char *differs = a->algo != b->algo                           ? "NCCL_ALGO"
                          : a->proto != b->proto                       ? "NCCL_PROTO"
                          : a->reproducible != b->reproducible         ? "TUTTI_REPRODUCIBLE"
                          : a->direct_threshold != b->direct_threshold ? "NCCL_HOST_DIRECT_THRESHOLD"
                          : a->net_chunk != b->net_chunk               ? "NCCL_P2P_NET_CHUNKSIZE"
                          : a->at.p2p_disable != b->at.p2p_disable     ? "NCCL_P2P_DISABLE (or NCCL_P2P_LEVEL)"
                          : a->at.shm_disable != b->at.shm_disable     ? "NCCL_SHM_DISABLE"
                          : a->rma_contexts != b->rma_contexts         ? "ncclConfig_t.numRmaCtx"
                          : a->rma_signals != b->rma_signals           ? "ncclConfig_t.numRmaSig"
                          : sees                                       ? tt_topology_differs(c, i)
                                                                       : NULL;
    if (differs != NULL) {
      return tt_fail(ncclInvalidUsage, "%s has different values on rank 0 and rank %d: all ranks must use the same",
                     differs, i);
    }
  }
  TT_TRY(compare_devices(c));
  if (!tt_geometry_valid(&a->geometry)) {
    return tt_fail(ncclInvalidUsage, "rank 0 asks for buffers that this library cannot make: different builds?");
  }
  if (!tt_figures_good(&a->figures) || !tt_limits_good(&a->limits)) {
    return tt_fail(ncclInvalidUsage,
                   "rank 0 reckons with figures of version %u, rank %d with version %d, or they or what follows are "
                   "out of range: different builds?",
                   a->figures.version, c->rank, TT_FIGURES_VERSION);
  }
  return ncclSuccess;
}

static ncclResult_t peers_step(init *in)
{
  struct ncclComm *c = in->comm;
  tt_peer me;
  describe_self(c, &me);
  me.job_rank = c->recorder.inherits ? c->recorder.job_rank : tt_comm_flight_rank(c);
  if (c->rank == 0) {
    TT_TRY(tt_tuning_limits(&me.figures, &me.limits));
  }
  if (!me.at.shm_disable && c->nranks > 1) { // else no memory is shared between processes
    TT_TRY(tt_fdbox_open(me.mailbox));
  }
  tt_comm_ras_hold(c, &me);
  TT_TRY(tt_comm_exchange(c, &me, sizeof me, &c->peers));
  TT_TRY(c->nranks == 1 ? ncclSuccess : compare_peers(c));
  tt_comm_ras_join(c);
  return ncclSuccess;
}

// Processes that will share memory belong to one user, and find each other's mailboxes. Every rank finds the same
// culprits.
static ncclResult_t compare_neighbours(const struct ncclComm *c)
{
  for (int i = 1; i < c->nranks; i++) {
    int k = c->layout->order[c->layout->first[c->layout->node_of[i]]]; // the first one there
    const tt_peer *a = &c->peers[k], *b = &c->peers[i];
    if (a->at.proc.uid != b->at.proc.uid) {
      return tt_fail(ncclInvalidUsage,
                     "rank %d runs as user %u, rank %d on the same machine as user %u: only processes of one user "
                     "share memory. Run all as one "
                     "user, or set NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1 on all ranks: then they use the network",
                     k, a->at.proc.uid, i, b->at.proc.uid);
    }
    if (a->net_space != b->net_space && a->at.proc.cookie != b->at.proc.cookie) {
      return tt_fail(ncclInvalidUsage,
                     "NCCL_HOSTID says that ranks %d and %d are on one machine, but they are in different network "
                     "namespaces (containers) and "
                     "cannot share memory: give them different values",
                     k, i);
    }
  }
  return ncclSuccess;
}

static ncclResult_t layout_step(init *in)
{
  struct ncclComm *c = in->comm;
  TT_TRY(tt_ranks_layout(c->peers, c->nranks, &c->layout));
  return compare_neighbours(c);
}

// What follows from where the ranks are.
static ncclResult_t init_survey(struct ncclComm *c)
{
  TT_TRY(tt_ranks_pool_cores(c->peers, c->nranks, c->rank, &c->machine.ranks_on_cores, &c->machine.crowded));
  int cores = c->peers[c->rank].cpus;
  c->network.needed = c->layout->nnodes > 1;
  c->machine.local_ranks = tt_layout_size(c->layout, c->layout->node_of[c->rank]);
  c->machine.shares = c->layout->largest > 1;
  c->machine.gpus = tt_ranks_any_gpu(c->peers, c->nranks);
  c->machine.per_core = c->machine.ranks_on_cores > cores ? c->machine.ranks_on_cores / TT_MAX(cores, 1) : 0;
  c->machine.all_local = !tt_transport_p2p_off();
  for (int i = 1; i < c->nranks; i++) {
    c->machine.all_local &= tt_peers_share_process(&c->peers[i], &c->peers[0]);
  }
  c->machine.all_local = c->machine.all_local && tt_ranks_join(c->peers, c->nranks, c->port.row);
  c->machine.stream_bytes = tt_ranks_stream_bytes();
  c->reuse.cache = tt_proc_cache() / (size_t)c->machine.local_ranks;
  return ncclSuccess;
}

// Fills the arrays of `who`, which have room for every rank.
static void list_local(const struct ncclComm *c, tt_local *who, int *ranks, tt_proc_id *procs, const char **boxes)
{
  const tt_peer *me = &c->peers[c->rank];
  const int *node = c->layout->node_of;
  *who = (tt_local){.one_process = true,
                    .ranks = ranks,
                    .procs = procs,
                    .mailboxes = boxes,
                    .secret = tt_bootstrap_secret(c->boot),
                    .leader = -1,
                    .hash = c->hash,
                    .nranks = c->nranks,
                    .geometry = c->peers[0].geometry,
                    .puts = c->machine.gpus};
  for (int i = 0; i < c->nranks; i++) {
    const tt_peer *p = &c->peers[i];
    if (node[i] != node[c->rank]) {
      continue;
    }
    ranks[who->n] = i;
    procs[who->n] = p->at.proc;
    boxes[who->n] = p->mailbox;
    who->me = i == c->rank ? who->n : who->me;
    who->leader = who->leader < 0 && tt_peers_share_process(p, me) ? who->n : who->leader;
    who->one_process &= tt_peers_share_process(p, me);
    who->n++;
  }
  who->pulls = tt_proc_may_open(procs[0].pid, c->peers[ranks[0]].pid_space);
}

static bool any_pushed(const struct ncclComm *c, const tt_segment_note *notes)
{
  int i = 0;
  while (i < c->nranks && notes[i].pushed == 0) {
    i++;
  }
  return i < c->nranks;
}

// A rank is gone from which this one was to take memory. It may have left because another one has died: the ring tells
// that a moment later. Returns ncclRemoteError, or `res` as it was.
static ncclResult_t await_ring_news(struct ncclComm *c, ncclResult_t res)
{
  int cause = c->rank;
  tt_ring_end end = TT_RING_STANDS;
  uint64_t end_ns = tt_now_ns() + TT_NEWS_NS;
  while (res == ncclRemoteError &&
         ((end = tt_bootstrap_look(c->boot, &cause)) == TT_RING_STANDS || end == TT_RING_BUSY) &&
         tt_now_ns() < end_ns) {
    tt_sleep_ns(TT_NEWS_NAP_NS);
  }
  bool died = end == TT_RING_DIED || end == TT_RING_LOST || end == TT_RING_EXITED;
  return died && cause != c->rank
             ? tt_fail(ncclRemoteError, "rank %d has gone while rank %d was about to share memory with others", cause,
                       c->rank)
             : res;
}

// A rank that cannot open its share, or pass it on, leaves the ring, so that no rank waits for it. A rank that is alone
// on its machine waits with the others.
static ncclResult_t open_segment(struct ncclComm *c, const tt_local *who)
{
  bool alone = who->n == 1;
  tt_segment_note mine = {0}, *notes;
  ncclResult_t res;
  TT_TRY(alone ? ncclSuccess : tt_segment_open(who, &c->segment, &mine));
  TT_TRY(tt_comm_exchange(c, &mine, sizeof mine, &notes));
  if (any_pushed(c, notes)) {
    TT_TRY_GOTO(alone ? ncclSuccess : await_ring_news(c, tt_segment_push(c->segment, who, notes)), res);
    TT_TRY_GOTO(tt_bootstrap_barrier(c->boot), res);
  }
  res = alone ? ncclSuccess : await_ring_news(c, tt_segment_join(c->segment, who, notes, &c->port.abort_flag));
fail:
  tt_free(notes);
  return res;
}

static ncclResult_t segment_step(init *in)
{
  struct ncclComm *c = in->comm;
  TT_TRY(init_survey(c));
  if (!c->machine.shares) {
    return ncclSuccess;
  }
  size_t n = (size_t)c->nranks;
  int *ranks = tt_calloc(n, sizeof *ranks);
  tt_proc_id *procs = tt_calloc(n, sizeof *procs);
  const char **boxes = tt_calloc(n, sizeof *boxes);
  ncclResult_t res;
  if (ranks == NULL || procs == NULL || boxes == NULL) {
    res =
        tt_fail(ncclSystemError, "rank %d: no memory for the list of %d local ranks", c->rank, c->machine.local_ranks);
  } else {
    tt_local who;
    list_local(c, &who, ranks, procs, boxes);
    res = open_segment(c, &who);
  }
  tt_free(ranks);
  tt_free(procs);
  tt_free(boxes);
  return res;
}

// What transports must know of the ranks. NULL: no memory. The caller frees it.
static tt_endpoint *endpoints_of(const struct ncclComm *c)
{
  tt_endpoint *all = tt_calloc((size_t)c->nranks, sizeof *all);
  for (int i = 0; all != NULL && i < c->nranks; i++) {
    all[i] = c->peers[i].at;
  }
  return all;
}

static bool is_same_device(const tt_device_id *a, const tt_device_id *b)
{
  return strncmp(a->kind, b->kind, sizeof a->kind) == 0 && memcmp(a->uuid, b->uuid, sizeof a->uuid) == 0;
}

// All ranks. NULL: no memory. The caller frees it.
static tt_neighbor *neighbors_of(const struct ncclComm *c)
{
  tt_neighbor *all = tt_calloc((size_t)c->nranks, sizeof *all);
  const int me = c->segment != NULL ? tt_segment_place(c->segment, c->rank) : -1;
  for (int i = 0; all != NULL && i < c->nranks; i++) {
    tt_peer *peer = &c->peers[i];
    int place = c->segment != NULL ? tt_segment_place(c->segment, i) : -1;
    bool seen = place >= 0 && peer->pid_space != 0 && peer->pid_space == c->peers[c->rank].pid_space;
    peer->host[sizeof peer->host - 1] = '\0';
    all[i] =
        (tt_neighbor){.page = place >= 0 ? tt_segment_page(c->segment, place) : NULL,
                      .pid = seen ? peer->at.proc.pid : 0,
                      .number = peer->at.proc.pid,
                      .cookie = peer->at.proc.cookie,
                      .host = peer->host,
                      .alike = strncmp(c->peers[c->rank].where.kind, peer->where.kind, sizeof peer->where.kind) == 0,
                      .beside = i != c->rank && is_same_device(&c->peers[c->rank].where, &peer->where)};
    if (place >= 0) {
      all[i].to = tt_segment_mail(c->segment, me, place);
      all[i].from = tt_segment_mail(c->segment, place, me);
    }
  }
  return all;
}

static ncclResult_t port_step(init *in)
{
  struct ncclComm *c = in->comm;
  tt_port *p = &c->port;
  c->wiring = (tt_wiring){.rank = c->rank,
                          .nranks = c->nranks,
                          .ranks = endpoints_of(c),
                          .segment = c->segment,
                          .port = p,
                          .geometry = c->peers[0].geometry};
  p->rank = c->rank;
  p->nranks = c->nranks;
  p->hash = c->hash;
  p->device = c->device;
  p->crowded = c->machine.crowded;
  TT_TRY(tt_tuning_gpus(p));
  p->page = c->segment != NULL ? tt_segment_page(c->segment, tt_segment_place(c->segment, c->rank)) : &p->lone_page;
  p->life = c->segment != NULL ? tt_segment_life(c->segment) : -1;
  p->neighbors = c->nranks > 1 ? neighbors_of(c) : NULL;
  p->links = tt_calloc((size_t)c->nranks + TT_COLLNET_HEADS, sizeof *p->links);
  c->plans.flows = tt_calloc(2 * (size_t)c->nranks, sizeof *c->plans.flows);
  bool alone = c->nranks == 1;
  if ((!alone && p->neighbors == NULL) || p->links == NULL || c->plans.flows == NULL || c->wiring.ranks == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for the connections to %d ranks", c->rank, c->nranks);
  }
  const tt_port_env env = {.ranks = c->machine.ranks_on_cores,
                           .cores = c->peers[c->rank].cpus,
                           .reads = c->machine.local_ranks > 1 && !c->machine.all_local};
  TT_TRY(p->row->open(p, &env));
  atomic_store_explicit(&p->page->state, TT_RANK_RUNNING, memory_order_release);
  return ncclSuccess;
}

static ncclResult_t recorder_step(init *in)
{
  tt_comm_flight_open(in->comm);
  return ncclSuccess;
}

void tt_comm_announce_gone(struct ncclComm *c)
{
  uint32_t running = TT_RANK_RUNNING;
  if (c->port.page != NULL && atomic_compare_exchange_strong(&c->port.page->state, &running, TT_RANK_GONE)) {
    if (c->port.mover != NULL) {
      c->port.mover->state_changed(c->port.mover_self);
    }
    tt_port_ring_all(&c->port);
  }
}

static tt_key net_key(const struct ncclComm *c)
{
  tt_key key = tt_key_of(tt_bootstrap_secret(c->boot));
  key.is_public = tt_bootstrap_is_public(c->boot);
  return tt_key_derive(&key, "network", &c->nranks, sizeof c->nranks);
}

// NCCL_NET wins over the configuration's netName. A name that does not exist is an error where no pair of ranks needs
// the network, too; a plugin that is not there is said.
static ncclResult_t choice_step(init *in)
{
  struct ncclComm *c = in->comm;
  const char *name = tt_params_get()->net != NULL ? tt_params_get()->net : c->config.net_name;
  const tt_net_env env = {
      .rank = c->rank, .nranks = c->nranks, .comm_hash = c->hash, .traffic_class = c->config.traffic_class};
  if (!c->network.needed && name[0] == '\0') {
    return tt_net_look();
  }
  TT_TRY(tt_net_open(&env, name, &c->network.ops));
  if (!c->network.needed) {
    tt_net_close(c->network.ops);
    c->network.ops = NULL;
  } else if (tt_crypt_is_on() && !c->network.ops->encrypts) {
    tt_advise("ncclSetEncryption gave a key, but network %s does not encrypt: what it sends between machines can be "
              "read and changed on the way. Only NCCL_NET=Socket encrypts",
              c->network.ops->name);
  }
  return ncclSuccess;
}

// What a rank says of its network.
typedef struct meeting {
  tt_proxy_where where;
  char net[64];
} meeting;

// Ranks of different networks cannot connect. Numbers of devices may differ unless the user minds. Every rank finds the
// same culprit.
static ncclResult_t compare_networks(const struct ncclComm *c, const meeting *all)
{
  const meeting *a = &all[0];
  for (int i = 1; i < c->nranks; i++) {
    const meeting *b = &all[i];
    if (tt_ncasecmp(a->net, b->net, sizeof a->net) != 0) {
      return tt_fail(ncclInvalidUsage,
                     "rank 0 uses network %.63s, rank %d uses %.63s: all ranks must use the same. Check "
                     "NCCL_NET_PLUGIN and NCCL_NET; with NCCL_DEBUG=INFO a rank says why it does not use a plugin",
                     a->net, i, b->net);
    }
    if (a->where.ndevices != b->where.ndevices && !tt_params_get()->ignore_net_mismatch) {
      return tt_fail(
          ncclSystemError,
          "rank 0 has %d devices of network %.63s, rank %d has %d. NCCL_IGNORE_NET_MISMATCH=1 lets them go on",
          a->where.ndevices, a->net, i, b->where.ndevices);
    }
  }
  return ncclSuccess;
}

// The proxies learn of each other.
static ncclResult_t meet(struct ncclComm *c, meeting *mine)
{
  meeting *all;
  tt_proxy_where *wheres = NULL;
  ncclResult_t res;
  snprintf(mine->net, sizeof mine->net, "%s", c->network.ops->name);
  TT_TRY(tt_comm_exchange(c, mine, sizeof *mine, &all));
  TT_TRY_GOTO(compare_networks(c, all), res);
  TT_TRY_GOTO(TT_NEW(wheres, c->nranks, "rank %d: no memory for the addresses of %d ranks", c->rank, c->nranks), res);
  for (int i = 0; i < c->nranks; i++) {
    wheres[i] = all[i].where;
    c->network.mbits = i == 0 ? wheres[i].mbits : TT_MIN(c->network.mbits, wheres[i].mbits);
  }
  res = tt_proxy_meet(c->network.proxy, wheres);
fail:
  tt_free(wheres);
  tt_free(all);
  return res;
}

// Makes the proxy, and tells every other where it listens.
static ncclResult_t network_step(init *in)
{
  struct ncclComm *c = in->comm;
  if (!c->network.needed) {
    return ncclSuccess;
  }
  int *gpus;
  TT_TRY(TT_NEW(gpus, c->nranks, "rank %d: no memory for the devices of %d ranks", c->rank, c->nranks));
  for (int i = 0; i < c->nranks; i++) {
    gpus[i] = c->peers[i].at.device;
  }
  tt_proxy_env env = {.rank = c->rank,
                      .nranks = c->nranks,
                      .hash = c->hash,
                      .key = net_key(c),
                      .port = &c->port,
                      .ring = c->boot,
                      .net = c->network.ops,
                      .node = c->layout->node_of[c->rank],
                      .place = c->layout->index_of[c->rank],
                      .mailbox = c->peers[c->rank].mailbox,
                      .profilers = c->profiling.profilers,
                      .gpus = gpus};
  meeting mine = {.net = ""};
  ncclResult_t res = tt_proxy_create(&env, &c->network.proxy, &mine.where);
  tt_free(gpus);
  TT_TRY(res);
  TT_TRY(meet(c, &mine));
  c->wiring.proxy = c->network.proxy;
  c->port.mover_self = c->network.proxy;
  c->port.mover = &tt_proxy_mover;
  c->port.row->attend(tt_proxy_attend);
  return ncclSuccess;
}

static void network_undo(struct ncclComm *c)
{
  tt_comm_announce_gone(c);       // while there is still somebody who can tell the others
  if (c->network.proxy != NULL) { // else a device may still look at the port
    tt_proxy_destroy(c->network.proxy);
    c->port.mover = NULL;
    c->wiring.proxy = c->network.proxy = NULL;
  }
}

static void port_undo(struct ncclComm *c)
{
  tt_port *p = &c->port;
  tt_comm_announce_gone(c); // when a later step has failed here only
  if (p->page != NULL) {
    tt_transport_disconnect(&c->wiring);
    p->row->close(p);
  }
  tt_free((void *)(uintptr_t)p->neighbors);
  tt_free(p->links);
  tt_free(c->plans.flows);
  tt_free(c->wiring.ranks);
  c->wiring.ranks = NULL;
  p->neighbors = NULL;
  p->links = NULL;
  c->plans.flows = NULL;
  p->page = NULL;
}

// Ranks choose algorithms each for itself: with the same tuner plugin, or all without.
static bool same_tuner(const struct ncclComm *c, const report *all)
{
  for (int i = 1; i < c->nranks; i++) {
    if (all[i].tuner != all[0].tuner) {
      if (c->rank == 0 || c->rank == i) {
        tt_advise("no tuner plugin is used: rank 0 has %s, rank %d has %s; all ranks must load the same one and read "
                  "the same file of choices",
                  all[0].tuner == 0 ? "none" : "one", i,
                  all[i].tuner == 0   ? "none"
                  : all[0].tuner == 0 ? "one"
                                      : "another");
      }
      return false;
    }
  }
  return true;
}

// Every rank learns that every other got this far, and what all of them can do.
static ncclResult_t report_step(init *in)
{
  struct ncclComm *c = in->comm;
  if (c->nranks == 1) {
    c->machine.can_read = c->machine.can_write = true;
    return ncclSuccess;
  }
  const report mine = {.can_copy = tt_ranks_reach(c->peers, c->layout, &c->port, c->machine.all_local),
                       .writes = c->machine.gpus && tt_ranks_write(c->peers, c->layout, &c->port),
                       .eager = !tt_params_get()->runtime_connect,
                       .fifos_only = c->port.row->fifos_only != NULL && c->port.row->fifos_only(&c->port),
                       .early = c->port.row->connects_early != NULL && c->port.row->connects_early(&c->port),
                       .tuner = tt_tuning_plugin(c),
                       .collnet = tt_comm_collnet_wanted(c)};
  report *all;
  TT_TRY(tt_comm_exchange(c, &mine, sizeof mine, &all));
  bool can_copy = true, same = same_tuner(c, all);
  in->collnet = c->machine.can_write = true;
  for (int i = 0; i < c->nranks; i++) {
    can_copy &= all[i].can_copy != 0;
    c->machine.can_write &= all[i].writes != 0;
    in->early |= all[i].early != 0;
    in->eager |= all[i].eager != 0 || in->early;
    in->fifos_only |= all[i].fifos_only != 0;
    in->collnet &= all[i].collnet != 0;
  }
  tt_free(all);
  c->wiring.can_copy = can_copy;
  c->machine.can_read = !c->network.needed && !in->fifos_only && (can_copy || c->machine.all_local);
  tt_tuning_keep_order(c);
  return tt_tuning_agree(c, same);
}

// The heads connect with a network that reduces; all ranks agree whether it is used.
static ncclResult_t collnet_step(init *in)
{
  if (!in->collnet && in->comm->config.collnet_enable == 1 && in->comm->nranks > 1) {
    tt_info(TT_INIT | TT_NET,
            "COLLNET: not used: not all ranks want it (NCCL_COLLNET_ENABLE, ncclConfig_t.collnetEnable)");
  }
  return in->collnet ? tt_comm_collnet_create(in->comm) : ncclSuccess;
}

// All connections now (NCCL_RUNTIME_CONNECT=0), or those of this machine; how, depends on what was reported.
static ncclResult_t init_connect(init *in)
{
  struct ncclComm *c = in->comm;
  for (int k = 1; k < c->nranks; k++) {
    const int peer = (c->rank + k) % c->nranks;
    if (!tt_params_get()->runtime_connect || (in->early && c->port.neighbors[peer].page != NULL)) {
      TT_TRY(tt_transport_connect(&c->wiring, peer));
    }
  }
  return c->network.proxy == NULL ? ncclSuccess
                                  : tt_proxy_await_links(c->network.proxy, tt_net_patience() * TT_NS_PER_S);
}

// A rank that could not connect has left the ring; then no rank comes through here.
static ncclResult_t agree_step(init *in)
{
  return in->eager ? tt_bootstrap_barrier(in->comm->boot) : ncclSuccess;
}

// Where the ranks sit, and the channels that follow.
static ncclResult_t topology_step(init *in)
{
  TT_TRY(tt_topology_create(in->comm, &in->comm->topology));
  return tt_topology_give(in->comm->topology, in->comm->layout);
}

// Opens the plugins' contexts of the communicator.
static ncclResult_t profilers_step(init *in)
{
  struct ncclComm *c = in->comm;
  const tt_plugin_fallback net = tt_net_plugin_fallback(c->network.ops);
  const tt_profilers_env env = {.name = c->config.name,
                                .hash = c->hash,
                                .nnodes = c->layout->nnodes,
                                .nranks = c->nranks,
                                .rank = c->rank,
                                .net = &net};
  c->profiling.counted = true; // whatever becomes of it
  return tt_profilers_open(&env, &c->profiling.profilers);
}

// A thread that still reports an event holds them until it has done so. A communicator that never came to the step, or
// has been undone before, uses no libraries: others may.
static void profilers_undo(struct ncclComm *c)
{
  if (c->profiling.counted) {
    tt_profilers_close(c->profiling.profilers);
  }
  c->profiling.profilers = NULL;
  c->profiling.counted = false;
}

static ncclResult_t tuning_step(init *in)
{
  return tt_tuning_create(in->comm, &in->comm->tuning);
}

// An undo that frees one member.
#define UNDO(name, destroy, member)    \
  static void name(struct ncclComm *c) \
  {                                    \
    destroy(c->member);                \
    c->member = NULL;                  \
  }
UNDO(bootstrap_undo, tt_bootstrap_destroy, boot)
UNDO(peers_undo, tt_free, peers)
UNDO(layout_undo, tt_layout_destroy, layout)
UNDO(segment_undo, tt_segment_leave, segment)
UNDO(choice_undo, tt_net_close, network.ops)
UNDO(topology_undo, tt_topology_destroy, topology)
UNDO(tuning_undo, tt_tuning_destroy, tuning)

// In order; undone in reverse. Nothing can fail on one rank alone after the last one.
static const init_step steps[] = {
    {"bootstrap", bootstrap_step, bootstrap_undo},
    {"peers", peers_step, peers_undo},
    {"layout", layout_step, layout_undo},
    {"segment", segment_step, segment_undo},
    {"port", port_step, port_undo},
    {"flight recorder", recorder_step, tt_comm_flight_close},
    {"choice of a network", choice_step, choice_undo},
    {"topology", topology_step, topology_undo},
    {"profilers", profilers_step, profilers_undo},
    {"network", network_step, network_undo},
    {"tuning", tuning_step, tuning_undo},
    {"report", report_step, NULL},
    {"collective network", collnet_step, tt_comm_collnet_destroy},
    {"connect", init_connect, NULL},
    {"agree", agree_step, NULL},
};

static void undo(struct ncclComm *comm, int from)
{
  tt_comm_ras_leave(comm); // it reads what the steps have made, and so may a thread of the device's
  if (comm->port.row->leave != NULL) {
    comm->port.row->leave(&comm->port);
  }
  for (int i = from; i >= 0; i--) {
    if (steps[i].undo != NULL) {
      steps[i].undo(comm);
    }
  }
}

void tt_comm_name(struct ncclComm *comm, const tt_init_args *args)
{
  comm->nranks = args->nranks;
  comm->device = args->device;
  comm->port.rank = args->rank;
  __atomic_store_n(&comm->rank, args->rank, __ATOMIC_RELAXED); // a call that comes too early may name it
}

// Init has failed because a rank is gone. Others of this machine may have come through, and would take this rank for
// the cause when it leaves: its page says which rank has died. A process that ends closes its connections before it is
// known to be dead.
static void show_death(struct ncclComm *c)
{
  uint64_t end_ns = tt_now_ns() + TT_NEWS_NS;
  bool stands = c->port.page != NULL;
  while (stands && tt_now_ns() < end_ns) {
    for (int i = 0; stands && i < c->nranks; i += TT_PORT_LOOKS) {
      stands = tt_port_watch(&c->port);
    }
    if (stands) {
      tt_sleep_ns(TT_NEWS_NAP_NS);
    }
  }
}

ncclResult_t tt_comm_init(struct ncclComm *comm, const tt_init_args *args)
{
  init in = {.comm = comm, .args = args};
  uint64_t start = tt_now_ns();
  bool sees = false;       // the port stands: pages of ranks of this machine can be read
  if (comm->nranks == 0) { // a split has just learnt its rank; others know it from the start
    tt_comm_name(comm, args);
  } else if (args->rank == 0) { // what a job says once, at whatever level
    tt_log_version();
    tt_advice_speak();
  }
  for (int i = 0; i < (int)TT_COUNT(steps); i++) {
    ncclResult_t res = steps[i].run(&in);
    if (res != ncclSuccess) {
      tt_info(TT_INIT, "rank %d: init failed in step '%s'", args->rank, steps[i].name);
      if (res == ncclRemoteError && sees) {
        show_death(comm);
      }
      undo(comm, i);
      return res;
    }
    sees |= steps[i].run == port_step;
  }
  tt_comm_log_complete(comm);
  tt_info(TT_INIT, "rank %d: %d nodes, %d ranks on this machine (%d cores%s), init %.1f ms", comm->rank,
          comm->layout->nnodes, comm->machine.local_ranks, comm->peers[comm->rank].cpus,
          comm->machine.crowded ? ", crowded" : "", (double)(tt_now_ns() - start) / 1e6);
  tt_comm_log_memory(comm);
  atomic_store(&comm->state, TT_COMM_READY);
  return ncclSuccess;
}

void tt_comm_take_down(struct ncclComm *comm)
{
  undo(comm, (int)TT_COUNT(steps) - 1);
}

__attribute__((constructor)) static void init_at_start(void)
{
  tt_param_set_opener(tt_env_plugin_open);
}
