// tuner_versions.c: an adapter for each version of the tuner's interface.
#include <stddef.h>

#include "base/util.h"
#include "plugin/tuner_priv.h"

// One version: its table's last member (the one that ends a context), the arguments of init, and those of getCollInfo
// (NULL: see tuner_query_v2).
#define TUNER(n, last, ...)                                                                                     \
  static const tt_plugin_member members_v##n[] = {TT_PLUGIN_MEMBER(ncclTuner_v##n##_t, init),                   \
                                                  TT_PLUGIN_MEMBER(ncclTuner_v##n##_t, getCollInfo),            \
                                                  TT_PLUGIN_MEMBER(ncclTuner_v##n##_t, last)};                  \
  static ncclResult_t init_v##n(const void *table, const tt_tuner_world *w, ncclTunerConstants_v5_t *constants, \
                                void **context)                                                                 \
  {                                                                                                             \
    ncclNvlDomainInfo_v5_t domains = domains_of(w);                                                             \
    (void)constants, (void)domains;                                                                             \
    return ((const ncclTuner_v##n##_t *)table)->init(__VA_ARGS__);                                              \
  }                                                                                                             \
  static ncclResult_t end_v##n(const void *table, void *context)                                                \
  {                                                                                                             \
    return ((const ncclTuner_v##n##_t *)table)->last(context);                                                  \
  }

// Versions from 3 on fill a table of costs.
#define TUNER_QUERY(n, ...)                                                                                        \
  static ncclResult_t tuner_query_v##n(const void *table, void *context, const tt_tuner_question *q,               \
                                       tt_tuner_costs costs, int rows, int *channels)                              \
  {                                                                                                                \
    return ((const ncclTuner_v##n##_t *)table)                                                                     \
        ->getCollInfo(context, q->func, q->bytes, q->ops, (float **)costs, rows, NCCL_NUM_PROTOCOLS, __VA_ARGS__); \
  }

#define ROW(n, chunk)                                                                  \
  {                                                                                    \
    members_v##n, TT_COUNT(members_v##n), init_v##n, tuner_query_v##n, chunk, end_v##n \
  }

static ncclNvlDomainInfo_v5_t domains_of(const tt_tuner_world *w)
{
  return (ncclNvlDomainInfo_v5_t){
      .nNvlDomains = (int)w->nnodes, .minRanksPerNvlDomain = w->min_local, .maxRanksPerNvlDomain = w->max_local};
}

TUNER(2, destroy, w->nranks, w->nnodes, tt_plugin_log, context)
TUNER(3, destroy, w->nranks, w->nnodes, tt_plugin_log, context)
TUNER(4, destroy, w->nranks, w->nnodes, tt_plugin_log, context)
TUNER(5, finalize, context, w->comm_id, w->nranks, w->nnodes, tt_plugin_log, &domains, constants)
TUNER(6, finalize, context, w->comm_id, w->nranks, w->nnodes, tt_plugin_log, &domains, constants)
TUNER_QUERY(3, channels)
TUNER_QUERY(4, q->registered, channels)
TUNER_QUERY(5, q->registered, channels)
TUNER_QUERY(6, q->registered, channels)

// Version 2 names an algorithm and a protocol: they become the cheapest entry. A name that cannot be had, or half of
// one, shows as an entry that is touched and should not be.
static ncclResult_t tuner_query_v2(const void *table, void *context, const tt_tuner_question *q, tt_tuner_costs costs,
                                   int rows, int *channels)
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

static bool chunk_v6(const void *table, void *context, const tt_tuner_question *q, const tt_tuner_answer *choice,
                     size_t *chunk)
{
  const ncclTuner_v6_t *t = table;
  return t->getChunkSize != NULL && t->getChunkSize(context, q->func, q->bytes, choice->algo, choice->proto,
                                                    choice->channels, chunk) == ncclSuccess;
}

const tt_tuner_version *tt_tuner_version_find(int version)
{
  static const tt_tuner_version versions[] = {
      [2] = ROW(2, NULL), [3] = ROW(3, NULL), [4] = ROW(4, NULL), [5] = ROW(5, NULL), [6] = ROW(6, chunk_v6)};
  return version >= 2 && version < (int)TT_COUNT(versions) ? &versions[version] : NULL;
}
