// tuner_versions.c: an adapter for each version of the tuner's interface.
#include <stddef.h>

#include "base/util.h"
#include "plugin/tuner_priv.h"

// ---- Version 2: names an algorithm and a protocol ----

static ncclResult_t init_v2(const void *table, const tt_tuner_world *w, ncclTunerConstants_v5_t *constants, void **context)
{
  (void)constants;
  return ((const ncclTuner_v2_t *)table)->init(w->nranks, w->nnodes, tt_plugin_log, context);
}

// What it names becomes the cheapest entry. A name that cannot be had, or half of one, shows as an entry that is touched and should not be.
static ncclResult_t ask_v2(const void *table, void *context, const tt_tuner_question *q, tt_tuner_costs costs, int rows, int *channels)
{
  const ncclTuner_v2_t *t = table;
  int algo = NCCL_ALGO_UNDEF, proto = NCCL_PROTO_UNDEF;
  ncclResult_t res = t->getCollInfo(context, q->func, q->bytes, q->in_network, 0, q->ops, &algo, &proto, channels);
  if (res != ncclSuccess || (algo == NCCL_ALGO_UNDEF && proto == NCCL_PROTO_UNDEF)) {
    return res;
  }
  if (algo < 0 || algo >= rows || proto < 0 || proto >= NCCL_NUM_PROTOCOLS) {
    return ncclInvalidArgument;
  }
  costs[algo][proto] = 0;
  return ncclSuccess;
}

static ncclResult_t end_v2(const void *table, void *context)
{
  return ((const ncclTuner_v2_t *)table)->destroy(context);
}

// ---- Version 3: the table of costs ----

static ncclResult_t init_v3(const void *table, const tt_tuner_world *w, ncclTunerConstants_v5_t *constants, void **context)
{
  (void)constants;
  return ((const ncclTuner_v3_t *)table)->init(w->nranks, w->nnodes, tt_plugin_log, context);
}

static ncclResult_t ask_v3(const void *table, void *context, const tt_tuner_question *q, tt_tuner_costs costs, int rows, int *channels)
{
  const ncclTuner_v3_t *t = table;
  return t->getCollInfo(context, q->func, q->bytes, q->ops, (float **)costs, rows, NCCL_NUM_PROTOCOLS, channels);
}

static ncclResult_t end_v3(const void *table, void *context)
{
  return ((const ncclTuner_v3_t *)table)->destroy(context);
}

// ---- Version 4: registered buffers ----

static ncclResult_t init_v4(const void *table, const tt_tuner_world *w, ncclTunerConstants_v5_t *constants, void **context)
{
  (void)constants;
  return ((const ncclTuner_v4_t *)table)->init(w->nranks, w->nnodes, tt_plugin_log, context);
}

static ncclResult_t ask_v4(const void *table, void *context, const tt_tuner_question *q, tt_tuner_costs costs, int rows, int *channels)
{
  const ncclTuner_v4_t *t = table;
  return t->getCollInfo(context, q->func, q->bytes, q->ops, (float **)costs, rows, NCCL_NUM_PROTOCOLS, q->registered, channels);
}

static ncclResult_t end_v4(const void *table, void *context)
{
  return ((const ncclTuner_v4_t *)table)->destroy(context);
}

// ---- Version 5: the communicator, domains and constants ----

static ncclNvlDomainInfo_v5_t domains_of(const tt_tuner_world *w)
{
  return (ncclNvlDomainInfo_v5_t){
      .nNvlDomains = (int)w->nnodes, .minRanksPerNvlDomain = w->min_local, .maxRanksPerNvlDomain = w->max_local};
}

static ncclResult_t init_v5(const void *table, const tt_tuner_world *w, ncclTunerConstants_v5_t *constants, void **context)
{
  ncclNvlDomainInfo_v5_t domains = domains_of(w);
  return ((const ncclTuner_v5_t *)table)->init(context, w->comm_id, w->nranks, w->nnodes, tt_plugin_log, &domains, constants);
}

static ncclResult_t ask_v5(const void *table, void *context, const tt_tuner_question *q, tt_tuner_costs costs, int rows, int *channels)
{
  const ncclTuner_v5_t *t = table;
  return t->getCollInfo(context, q->func, q->bytes, q->ops, (float **)costs, rows, NCCL_NUM_PROTOCOLS, q->registered, channels);
}

static ncclResult_t end_v5(const void *table, void *context)
{
  return ((const ncclTuner_v5_t *)table)->finalize(context);
}

// ---- Version 6: chunks ----

static ncclResult_t init_v6(const void *table, const tt_tuner_world *w, ncclTunerConstants_v5_t *constants, void **context)
{
  ncclNvlDomainInfo_v6_t domains = domains_of(w);
  return ((const ncclTuner_v6_t *)table)->init(context, w->comm_id, w->nranks, w->nnodes, tt_plugin_log, &domains, constants);
}

static ncclResult_t ask_v6(const void *table, void *context, const tt_tuner_question *q, tt_tuner_costs costs, int rows, int *channels)
{
  const ncclTuner_v6_t *t = table;
  return t->getCollInfo(context, q->func, q->bytes, q->ops, (float **)costs, rows, NCCL_NUM_PROTOCOLS, q->registered, channels);
}

static bool chunk_v6(const void *table, void *context, const tt_tuner_question *q, const tt_tuner_answer *choice, size_t *chunk)
{
  const ncclTuner_v6_t *t = table;
  return t->getChunkSize != NULL &&
         t->getChunkSize(context, q->func, q->bytes, choice->algo, choice->proto, choice->channels, chunk) == ncclSuccess;
}

static ncclResult_t end_v6(const void *table, void *context)
{
  return ((const ncclTuner_v6_t *)table)->finalize(context);
}

// ---- All of them ----

#define MEMBERS(v, last)                                                                             \
  static const tt_plugin_member members_v##v[] = {TT_PLUGIN_MEMBER(ncclTuner_v##v##_t, init),        \
                                                  TT_PLUGIN_MEMBER(ncclTuner_v##v##_t, getCollInfo), \
                                                  TT_PLUGIN_MEMBER(ncclTuner_v##v##_t, last)}
MEMBERS(2, destroy);
MEMBERS(3, destroy);
MEMBERS(4, destroy);
MEMBERS(5, finalize);
MEMBERS(6, finalize);

static const tt_tuner_version versions[] = {
    [2] = {members_v2, TT_COUNT(members_v2), init_v2, ask_v2, NULL, end_v2},
    [3] = {members_v3, TT_COUNT(members_v3), init_v3, ask_v3, NULL, end_v3},
    [4] = {members_v4, TT_COUNT(members_v4), init_v4, ask_v4, NULL, end_v4},
    [5] = {members_v5, TT_COUNT(members_v5), init_v5, ask_v5, NULL, end_v5},
    [6] = {members_v6, TT_COUNT(members_v6), init_v6, ask_v6, chunk_v6, end_v6},
};

const tt_tuner_version *tt_tuner_version_find(int version)
{
  return version >= 2 && version < (int)TT_COUNT(versions) ? &versions[version] : NULL;
}
