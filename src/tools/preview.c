// preview.c: see preview.h. The part of a communicator that choices follow from; nothing is connected.
#include "tools/preview.h"

#include <math.h>

#include "base/result.h"
#include "comm/comm.h"
#include "comm/topology.h"
#include "comm/tuning_priv.h"

#define SENT_HEADS (1538.0 / 1448) // what Ethernet carries for each byte of a long message, with heads and gaps
#define SOCKET_HOLDS 4e6           // bytes that a TCP connection has under way at most, as Linux sets its buffers

// TCP on one machine takes such parts of what the library's table says, found with runs of two ranks
// (docs/prediction.md).
#define LOCAL_WAY 0.62
#define LOCAL_WORK 0.9
#define LOCAL_BYTE 0.18 // of the network itself

struct tt_preview {
  struct ncclComm comm;
  tt_cost *cost; // of the network as the user describes it
  int cores;
  tt_preview_link link;
  tt_preview_memory memory;
};

static int preview_ranks(const tt_preview_env *env)
{
  return env->nranks * TT_MAX(env->nodes, 1);
}

static void fill_peers(const tt_preview_env *env, tt_peer *peers)
{
  for (int i = 0; i < preview_ranks(env); i++) {
    peers[i] = (tt_peer){
        .at.rank = i, .cpus = env->cores, .figures = env->figures, .geometry = tt_geometry_default(), .numa = -1};
    peers[i].net_delay = (uint64_t)(fmax(env->link.ms, 0) * 1e3 + fmax(env->link.way, 0));
    peers[i].at.proc.pid = env->one_process ? 1 : i + 1;
  }
}

static ncclResult_t fill_layout(const tt_preview_env *env, struct ncclComm *c)
{
  int *names = NULL;
  TT_TRY(TT_NEW(names, (size_t)c->nranks, "no memory for a preview of %d ranks", c->nranks));
  for (int i = 0; i < c->nranks; i++) {
    names[i] = i / env->nranks;
  }
  ncclResult_t res = tt_layout_create(c->nranks, names, &c->layout);
  tt_free(names);
  return res;
}

static ncclResult_t fill(const tt_preview_env *env, struct ncclComm *c)
{
  c->nranks = preview_ranks(env);
  c->network.needed = c->nranks > env->nranks;
  c->network.mbits = (int64_t)(fmin(env->link.gbit, 1e6) * 1e3);
  c->machine.can_read = !c->network.needed;
  c->machine.all_local = env->one_process && !c->network.needed;
  c->machine.crowded = env->nranks > env->cores;
  c->machine.shares = env->nranks > 1;
  c->machine.local_ranks = env->nranks;
  TT_TRY(TT_NEW(c->peers, (size_t)c->nranks, "no memory for a preview of %d ranks", c->nranks));
  TT_TRY(fill_layout(env, c));
  fill_peers(env, c->peers);
  TT_TRY(tt_tuning_limits(&env->figures, &c->peers[0].limits));
  TT_TRY(tt_topology_create(c, &c->topology));
  TT_TRY(tt_topology_give(c->topology, c->layout));
  return tt_tuning_create(c, &c->tuning);
}

// Costs of shared memory with the library's own figures, found with runs of two ranks (docs/prediction.md). The
// library's table, which serves to compare algorithms, has times that are two to five times as long.
static const tt_preview_memory usual_memory = {
    .way = 0.085, .work = 0.0165, .kib = 0.082, .call = 0.08, .call_kib = 0.075, .step = 0.0024, .own = 0.018};

static double named_or(double named, double usual, double now, double before)
{
  return named > 0 ? named : usual * now / before;
}

// `env` is as the figures have it. A message of protocol Simple is two cache lines, its head and its data.
static void set_memory(tt_cost_env *env, const tt_preview_memory *m)
{
  const tt_cost_env own = tt_cost_env_default(env->cores);
  const tt_cost_hop *now = &env->hop[TT_HOP_MEMORY][TT_LL], *before = &own.hop[TT_HOP_MEMORY][TT_LL];
  double way = m->way > 0 ? m->way : usual_memory.way + now->latency - before->latency;
  double kib = named_or(m->kib, usual_memory.kib, now->byte, before->byte);
  for (int i = 0; i < TT_COST_FIFOS; i++) {
    env->hop[TT_HOP_MEMORY][i] = (tt_cost_hop){.latency = fmax(way, 0.01) * (i == TT_SIMPLE ? 1.5 : 1),
                                               .work = m->work > 0 ? m->work : usual_memory.work,
                                               .byte = i == TT_TOK ? 0 : kib / 1024};
  }
  env->direct.byte = named_or(m->call_kib, usual_memory.call_kib, env->direct.byte, own.direct.byte) / 1024;
  env->direct.work = named_or(m->call, usual_memory.call, env->direct.work, own.direct.work);
  env->byte = named_or(m->own, usual_memory.own, env->byte, own.byte) / 1024;
  env->step = m->step > 0 ? m->step : usual_memory.step;
}

// The library's table of costs, with memory and network as they are described.
static tt_cost_env env_of_link(const tt_preview *p)
{
  const tt_preview_link *l = &p->link;
  tt_cost_env env = tt_tuning_costs(&p->comm), near = tt_cost_env_of(&p->comm.tuning->figures, p->cores);
  set_memory(&env, &p->memory);
  env.cores = p->cores;
  for (int i = 0; i < TT_COST_FIFOS; i++) {
    tt_cost_hop *hop = &env.hop[TT_HOP_NETWORK][i];
    hop->latency = (l->way > 0 ? l->way : near.hop[TT_HOP_NETWORK][i].latency * LOCAL_WAY) + l->ms * 1e3;
    hop->work = l->work > 0 ? l->work : hop->work * LOCAL_WORK;
    hop->byte = l->kib > 0 ? l->kib / 1024 : hop->byte;
  }
  env.net_byte = l->gbit > 0 ? SENT_HEADS * 8e-3 / l->gbit : near.net_byte * LOCAL_BYTE;
  env.net_window = SOCKET_HOLDS;
  env.change = l->change > 0 ? l->change : env.change;
  env.rouse = l->rouse;
  env.fetch = l->fetch;
  env.each = l->each;
  env.byte = l->own > 0 ? l->own / 1024 : env.byte;
  env.sum = l->sum / 1024;
  env.slice = l->slice;
  env.idle = l->idle;
  env.wake = l->wake;
  env.one_machine = l->carry > 0 || l->carry_kib > 0;
  env.carry_work = l->carry;
  env.carry_byte = l->carry_kib / 1024;
  return env;
}

ncclResult_t tt_preview_create(const tt_preview_env *env, tt_preview **out)
{
  tt_preview *p = tt_calloc_line(sizeof *p);
  if (p == NULL) {
    return tt_fail(ncclSystemError, "no memory for a preview of %d ranks", env->nranks);
  }
  p->cores = env->cores;
  p->link = env->link;
  p->memory = env->memory;
  ncclResult_t res = fill(env, &p->comm);
  if (res != ncclSuccess) {
    tt_preview_destroy(p);
    return res;
  }
  *out = p;
  return ncclSuccess;
}

void tt_preview_destroy(tt_preview *p)
{
  if (p != NULL) {
    tt_cost_destroy(p->cost);
    tt_tuning_destroy(p->comm.tuning);
    tt_topology_destroy(p->comm.topology);
    tt_layout_destroy(p->comm.layout);
    tt_free(p->comm.peers);
  }
  tt_free(p);
}

ncclResult_t tt_preview_choose(tt_preview *p, tt_func func, size_t bytes, tt_choice *choice, double *us)
{
  TT_TRY(tt_tuning_choose(&p->comm, func, bytes, 0, false, choice));
  return tt_tuning_estimate(&p->comm, func, bytes, choice, us);
}

ncclResult_t tt_preview_time(tt_preview *p, tt_func func, size_t bytes, const tt_choice *choice, int times, double *us)
{
  if (p->cost == NULL) {
    tt_cost_env env = env_of_link(p);
    TT_TRY(tt_cost_create(&env, p->comm.nranks, p->comm.layout, &p->cost));
  }
  tt_cost_run run = {.func = func,
                     .algo = choice->algo,
                     .proto = choice->direct ? TT_TOK : choice->proto,
                     .bytes = bytes,
                     .chunk = choice->chunk,
                     .times = times};
  return tt_cost_of_run(p->cost, &run, us);
}

// Rules are made for what the options allow.
static void forget_rules(tt_tuning *t, tt_func func)
{
  for (int networked = 0; networked < 2; networked++) {
    tt_free(t->rules[func][networked]);
    t->rules[func][networked] = NULL;
  }
}

ncclResult_t tt_preview_offer(tt_preview *p, tt_func func, size_t bytes, int algo, tt_proto proto, tt_choice *out)
{
  tt_tuning *t = p->comm.tuning;
  tt_algo_filter all = t->filter;
  *out = (tt_choice){.algo = -1};
  t->filter.algos[func] &= 1u << algo;
  t->filter.protos[func] &= proto == TT_LL ? TT_PROTO_LL : TT_PROTO_SIMPLE;
  ncclResult_t res = ncclSuccess;
  if (tt_tuning_usable(&p->comm, func, algo, false) && t->filter.protos[func] != 0) {
    forget_rules(t, func);
    res = tt_tuning_choose(&p->comm, func, bytes, 0, false, out);
    forget_rules(t, func);
  }
  t->filter = all;
  return res;
}
