// coll_config.c: the eight collectives with settings of one call (ncclCollConfig_t).
#include "api/api_priv.h"
#include "api/coll_priv.h"
#include "base/log.h"
#include "base/result.h"
#include "comm/comm.h"
#include "comm/group.h"
#include "topo/graph.h"
#include "tutti.h"

enum { EXT_MOST = 256, VENDOR_END = 1 << 24 };

// Where the structure of this version ends. A newer one is longer; what it has more is not read.
static size_t config_bytes(const ncclCollConfig_t *c)
{
  size_t end = c->version < NCCL_VERSION(2, 32, 0) ? offsetof(ncclCollConfig_t, launchCompletionEvent) : sizeof *c;
  return TT_MIN(c->size, end);
}

// Copies what a structure of any version has over the defaults in *out.
static ncclResult_t copy_config(const char *what, const ncclCollConfig_t *c, ncclCollConfig_t *out)
{
  const size_t from = offsetof(ncclCollConfig_t, ext);
  if (c->magic != NCCL_API_MAGIC || c->size < offsetof(ncclCollConfig_t, launchCompletionEvent)) {
    return tt_fail(ncclInvalidArgument,
                   "%s: the ncclCollConfig_t at %p was not initialised with NCCL_COLLCONFIG_INITIALIZER (magic 0x%x, "
                   "size %zu)",
                   what, (const void *)c, c->magic, c->size);
  }
  memcpy((char *)out + from, (const char *)c + from, config_bytes(c) - from);
  if (out->forceAlgSelection != 0 && out->forceAlgSelection != 1) {
    return tt_fail(ncclInvalidArgument, "%s: ncclCollConfig_t.forceAlgSelection is %d; it must be 0 or 1", what,
                   out->forceAlgSelection);
  }
  if (out->CTAPolicy != NCCL_CONFIG_UNDEF_INT &&
      (out->CTAPolicy < 0 || out->CTAPolicy > (NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO))) {
    return tt_fail(ncclInvalidArgument, "%s: ncclCollConfig_t.CTAPolicy is %d; it must lie between 0 and 3", what,
                   out->CTAPolicy);
  }
  return ncclSuccess;
}

// A number of CTAs, 0 where it is not set or cannot be.
static int take_ctas(const char *what, const char *name, int value)
{
  if (value == NCCL_CONFIG_UNDEF_INT) {
    return 0;
  }
  if (value < 1 || value > TT_GRAPH_MAX_CHANNELS) {
    tt_info(TT_COLL, "%s: ncclCollConfig_t.%s is %d, which is ignored: it must lie between 1 and %d", what, name, value,
            TT_GRAPH_MAX_CHANNELS);
    return 0;
  }
  return value;
}

static ncclResult_t take_own_option(const char *what, const ncclConfigExt_t *e, tt_call_wish *w)
{
  int value = e->val.i;
  if (e->key.optionId == TUTTI_OPTION_STALL_ERROR_MS && value >= 0) {
    w->options.stall_error_ms = value == 0 ? -1 : value;
    return ncclSuccess;
  }
  if (e->key.optionId == TUTTI_OPTION_RANK_ORDER && (value == 0 || value == 1)) {
    w->rank_order = value == 1;
    return ncclSuccess;
  }
  bool named = e->key.optionId == TUTTI_OPTION_STALL_ERROR_MS || e->key.optionId == TUTTI_OPTION_RANK_ORDER;
  return named ? tt_fail(ncclInvalidArgument, "%s: the option %d of TUTTI_VENDOR_ID cannot be %d (tutti.h)", what,
                         e->key.optionId, value)
               : tt_fail(ncclInvalidArgument, "%s: TUTTI_VENDOR_ID has no option %d (tutti.h)", what, e->key.optionId);
}

// Does an earlier element of the list have the key of `e`?
static bool is_repeated(const ncclConfigExt_t *list, const ncclConfigExt_t *e)
{
  while (list != e && (list->key.vendorId != e->key.vendorId || list->key.optionId != e->key.optionId)) {
    list = list->next;
  }
  return list != e;
}

// Takes this library's options; those of others are checked and passed over.
static ncclResult_t take_options(const char *what, const ncclConfigExt_t *list, tt_call_wish *w)
{
  int n = 0;
  for (const ncclConfigExt_t *e = list; e != NULL; e = e->next) {
    if (e->key.vendorId <= 0 || e->key.vendorId >= VENDOR_END) {
      return tt_fail(ncclInvalidArgument,
                     "%s: option %d of ncclCollConfig_t.ext: vendorId is %d; it must lie between 1 "
                     "and %d",
                     what, n, e->key.vendorId, VENDOR_END - 1);
    }
    if (++n > EXT_MOST) {
      return tt_fail(ncclInvalidArgument, "%s: ncclCollConfig_t.ext has more than %d options, or runs in a circle",
                     what, EXT_MOST);
    }
    if (is_repeated(list, e)) {
      return tt_fail(ncclInvalidArgument, "%s: ncclCollConfig_t.ext has option %d of vendor 0x%x twice", what,
                     e->key.optionId, e->key.vendorId);
    }
    if (e->key.vendorId == TUTTI_VENDOR_ID) {
      TT_TRY(take_own_option(what, e, w));
    }
  }
  return ncclSuccess;
}

static ncclResult_t parse_config(const char *what, const ncclCollConfig_t *config, tt_coll_settings *out)
{
  ncclCollConfig_t c = NCCL_COLLCONFIG_INITIALIZER;
  *out = (tt_coll_settings){.launched = NULL};
  if (config == NULL) {
    return ncclSuccess;
  }
  TT_TRY(copy_config(what, config, &c));
  TT_TRY(take_options(what, c.ext, &out->wish));
  take_ctas(what, "minCTAs", c.minCTAs);
  take_ctas(what, "nvlsCTAs", c.nvlsCTAs);
  out->wish.options.max_channels = take_ctas(what, "maxCTAs", c.maxCTAs);
  out->wish.selection = c.algSelection;
  out->wish.forced = c.forceAlgSelection == 1;
  out->user_tag = c.userProfilerTag;
  out->launched = c.launchCompletionEvent;
  return ncclSuccess;
}

static ncclResult_t enqueue_with(const char *what, tt_task *t, const ncclCollConfig_t *config)
{
  tt_coll_settings s;
  ncclResult_t res = parse_config(what, config, &s);
  if (res != ncclSuccess) {
    tt_group_note(res);
    return res;
  }
  return config == NULL ? tt_coll_enqueue(what, t) : tt_coll_enqueue_config(what, t, &s);
}

TT_TWIN(ncclAllReduceConfig);
TT_EXPORT ncclResult_t ncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                           const ncclCollConfig_t *config)
{
  TASK(t, TT_FUNC_ALLREDUCE, sendbuff, recvbuff, count, op, 0);
  return enqueue_with("ncclAllReduceConfig", &t, config);
}

TT_TWIN(ncclBroadcastConfig);
TT_EXPORT ncclResult_t ncclBroadcastConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                           int root, ncclComm_t comm, cudaStream_t stream,
                                           const ncclCollConfig_t *config)
{
  TASK(t, TT_FUNC_BROADCAST, sendbuff, recvbuff, count, ncclSum, root);
  return enqueue_with("ncclBroadcastConfig", &t, config);
}

TT_TWIN(ncclReduceConfig);
TT_EXPORT ncclResult_t ncclReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                                        const ncclCollConfig_t *config)
{
  TASK(t, TT_FUNC_REDUCE, sendbuff, recvbuff, count, op, root);
  return enqueue_with("ncclReduceConfig", &t, config);
}

TT_TWIN(ncclAllGatherConfig);
TT_EXPORT ncclResult_t ncclAllGatherConfig(const void *sendbuff, void *recvbuff, size_t sendcount,
                                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
                                           const ncclCollConfig_t *config)
{
  TASK(t, TT_FUNC_ALLGATHER, sendbuff, recvbuff, sendcount, ncclSum, 0);
  return enqueue_with("ncclAllGatherConfig", &t, config);
}

TT_TWIN(ncclReduceScatterConfig);
TT_EXPORT ncclResult_t ncclReduceScatterConfig(const void *sendbuff, void *recvbuff, size_t recvcount,
                                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                               cudaStream_t stream, const ncclCollConfig_t *config)
{
  TASK(t, TT_FUNC_REDUCESCATTER, sendbuff, recvbuff, recvcount, op, 0);
  return enqueue_with("ncclReduceScatterConfig", &t, config);
}

TT_TWIN(ncclAlltoAllConfig);
TT_EXPORT ncclResult_t ncclAlltoAllConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                          ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
  TASK(t, TT_FUNC_ALLTOALL, sendbuff, recvbuff, count, ncclSum, 0);
  return enqueue_with("ncclAlltoAllConfig", &t, config);
}

TT_TWIN(ncclGatherConfig);
TT_EXPORT ncclResult_t ncclGatherConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                        int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
  TASK(t, TT_FUNC_GATHER, sendbuff, recvbuff, count, ncclSum, root);
  return enqueue_with("ncclGatherConfig", &t, config);
}

TT_TWIN(ncclScatterConfig);
TT_EXPORT ncclResult_t ncclScatterConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                         int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
  TASK(t, TT_FUNC_SCATTER, sendbuff, recvbuff, count, ncclSum, root);
  return enqueue_with("ncclScatterConfig", &t, config);
}
