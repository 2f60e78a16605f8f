// Tuners that break rules, one per version: what tutti-plugin has to find.
#include <stdlib.h>

#include "nccl/tuner.h"

static int asked;

static ncclResult_t begin(size_t nranks, size_t nnodes, ncclDebugLogger_t log, void **context)
{
  (void)nranks;
  (void)nnodes;
  (void)log;
  *context = &asked;
  return ncclSuccess;
}

// Forgets what it has taken.
static ncclResult_t begin_and_forget(void **context, uint64_t id, size_t nranks, size_t nnodes, ncclDebugLogger_t log,
                                     ncclNvlDomainInfo_v5_t *domains, ncclTunerConstants_v5_t *constants)
{
  (void)id;
  (void)domains;
  (void)constants;
  (void)begin(nranks, nnodes, log, context);
  *context = calloc(1, 100);
  return ncclSuccess;
}

static ncclResult_t end(void *context)
{
  (void)context;
  return ncclSuccess;
}

// Writes behind the table, prices what cannot be had, answers differently each time.
static ncclResult_t choose(void *context, ncclFunc_t func, size_t bytes, int ops, float **costs, int nalgo, int nproto,
                           int registered, int *channels)
{
  float *table = (float *)costs;
  (void)context;
  (void)func;
  (void)bytes;
  (void)ops;
  (void)registered;
  table[nalgo * nproto] = 1;
  table[NCCL_ALGO_NVLS * nproto] = 1;
  table[NCCL_ALGO_RING * nproto + 2] = -7;
  *channels = ++asked;
  return ncclSuccess;
}

static ncclResult_t crash(void *context, ncclFunc_t func, size_t bytes, int ops, float **costs, int nalgo, int nproto,
                          int *channels)
{
  (void)context;
  (void)func;
  (void)bytes;
  (void)ops;
  (void)costs;
  (void)nalgo;
  (void)nproto;
  (void)channels;
  abort();
}

const ncclTuner_v2_t ncclTunerPlugin_v2 = {.name = "Empty"};
const ncclTuner_v3_t ncclTunerPlugin_v3 = {.name = "Crashes", .init = begin, .getCollInfo = crash, .destroy = end};
const ncclTuner_v5_t ncclTunerPlugin_v5 = {
    .name = "Bad", .init = begin_and_forget, .getCollInfo = choose, .finalize = end};
