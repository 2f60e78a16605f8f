// tuner.h: a tuner plugin for tests, of version VERSION (defined before). It writes what it is given into the file that
// TEST_TUNER_RECORD names, a line each, and answers as told:
//   TEST_TUNER_INIT=fail        init fails
//   TEST_TUNER_ANSWER=A,P,C     cheapest is algorithm A with protocol P, C channels
//   TEST_TUNER_ANSWER=differ    the second, fourth … instance of the process wants the tree, the others the ring
//   TEST_TUNER_ANSWER=error     getCollInfo fails; touch: a cost for all that cannot be had; nan: no cost is a number;
//                               none: everything is out
//   TEST_TUNER_CHUNK=BYTES      size of chunks
//   TEST_TUNER_CONSTANTS=1      rings begin late
#pragma once
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/tuner.h"

#ifndef VERSION
#define VERSION 6
#endif
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

typedef struct instance {
  int number;
  ncclDebugLogger_t log;
} instance;

static int instances;

// One line per write: ranks are threads.
static void record(const char *line)
{
  const char *name = getenv("TEST_TUNER_RECORD");
  FILE *f = name != NULL ? fopen(name, "a") : NULL;
  if (f != NULL) {
    fputs(line, f);
    fclose(f);
  }
}

static ncclResult_t begin(size_t nranks, size_t nnodes, ncclDebugLogger_t log, void **context)
{
  char line[256];
  const char *how = getenv("TEST_TUNER_INIT");
  snprintf(line, sizeof line, "init v%d ranks %zu nodes %zu\n", VERSION, nranks, nnodes);
  record(line);
  if (how != NULL && strcmp(how, "fail") == 0) {
    return ncclSystemError;
  }
  instance *i = calloc(1, sizeof *i);
  if (i == NULL) {
    return ncclSystemError;
  }
  i->number = __atomic_fetch_add(&instances, 1, __ATOMIC_RELAXED);
  i->log = log;
  log(NCCL_LOG_INFO, NCCL_TUNING, __FILE__, __LINE__, "test tuner v%d begins", VERSION);
  *context = i;
  return ncclSuccess;
}

static ncclResult_t end(void *context)
{
  char line[64];
  snprintf(line, sizeof line, "end v%d\n", VERSION);
  record(line);
  free(context);
  return ncclSuccess;
}

// What the variable says: algorithm, protocol, channels; false: nothing of that kind.
static inline int answer_of(const instance *i, int out[3])
{
  const char *text = getenv("TEST_TUNER_ANSWER");
  if (text != NULL && strcmp(text, "differ") == 0) {
    out[0] = i->number % 2 == 0 ? NCCL_ALGO_RING : NCCL_ALGO_TREE;
    out[1] = NCCL_PROTO_SIMPLE;
    out[2] = 0;
    return 1;
  }
  return text != NULL && sscanf(text, "%d,%d,%d", &out[0], &out[1], &out[2]) == 3;
}

#if VERSION == 2
static ncclResult_t choose(void *context, ncclFunc_t func, size_t bytes, int collnet, int nvls, int ops, int *algo,
                           int *proto, int *channels)
{
  char line[256];
  int a[3];
  snprintf(line, sizeof line, "ask v2 func %d bytes %zu collnet %d nvls %d ops %d in %d %d %d\n", (int)func, bytes,
           collnet, nvls, ops, *algo, *proto, *channels);
  record(line);
  if (answer_of(context, a)) {
    *algo = a[0];
    *proto = a[1];
    *channels = a[2];
  }
  const char *text = getenv("TEST_TUNER_ANSWER");
  return text != NULL && strcmp(text, "error") == 0 ? ncclInternalError : ncclSuccess;
}
#else
static ncclResult_t change(void *context, ncclFunc_t func, size_t bytes, int ops, float **costs, int nalgo, int nproto,
                           int registered, int *channels)
{
  char line[1024];
  const char *text = getenv("TEST_TUNER_ANSWER");
  float(*table)[NCCL_NUM_PROTOCOLS] = (float(*)[NCCL_NUM_PROTOCOLS])costs;
  int a[3], n = snprintf(line, sizeof line, "ask v%d func %d bytes %zu ops %d table %dx%d registered %d in %d costs",
                         VERSION, (int)func, bytes, ops, nalgo, nproto, registered, *channels);
  for (int i = 0; i < nalgo * nproto; i++) {
    float *x = &table[i / nproto][i % nproto];
    n += snprintf(line + n, sizeof line - (size_t)n, " %.3g", (double)*x);
    if (text != NULL && strcmp(text, "touch") == 0) {
      *x = *x < 0 ? 0 : *x;
    } else if (text != NULL && strcmp(text, "nan") == 0) {
      *x = (float)NAN;
    } else if (text != NULL && strcmp(text, "none") == 0) {
      *x = (float)NCCL_ALGO_PROTO_IGNORE;
    }
  }
  snprintf(line + n, sizeof line - (size_t)n, "\n");
  record(line);
  if (answer_of(context, a)) {
    table[a[0]][a[1]] = 0;
    *channels = a[2];
  }
  return text != NULL && strcmp(text, "error") == 0 ? ncclInternalError : ncclSuccess;
}
#endif

#if VERSION == 3
static ncclResult_t choose(void *context, ncclFunc_t func, size_t bytes, int ops, float **costs, int nalgo, int nproto,
                           int *channels)
{
  return change(context, func, bytes, ops, costs, nalgo, nproto, -1, channels);
}
#elif VERSION >= 4
#define choose change
#endif

#if VERSION >= 5
static ncclResult_t begin_with_constants(void **context, uint64_t id, size_t nranks, size_t nnodes,
                                         ncclDebugLogger_t log, ncclNvlDomainInfo_v5_t *domains,
                                         ncclTunerConstants_v5_t *constants)
{
  char line[256];
  const char *change_them = getenv("TEST_TUNER_CONSTANTS");
  snprintf(line, sizeof line, "world %s domains %d of %d to %d base %.1f hw %.2f ll %.1f\n",
           id != 0 ? "named" : "nameless", domains->nNvlDomains, domains->minRanksPerNvlDomain,
           domains->maxRanksPerNvlDomain, constants->baseLatencies[NCCL_ALGO_TREE][NCCL_PROTO_LL],
           constants->hwLatencies[NCCL_HW_NET][NCCL_ALGO_RING][NCCL_PROTO_SIMPLE],
           constants->llMaxBws[NCCL_HOPPER_COMPCAP_IDX][NCCL_TUNING_SCALE_1NODE]);
  record(line);
  for (int p = 0; change_them != NULL && p < NCCL_NUM_PROTOCOLS; p++) {
    constants->baseLatencies[NCCL_ALGO_RING][p] = 1e6;
  }
  return begin(nranks, nnodes, log, context);
}
#endif

#if VERSION == 6
static ncclResult_t chunk(void *context, ncclFunc_t func, size_t bytes, int algo, int proto, int channels, size_t *size)
{
  char line[256];
  const char *wanted = getenv("TEST_TUNER_CHUNK");
  (void)context;
  snprintf(line, sizeof line, "chunk func %d bytes %zu algo %d proto %d channels %d size %zu\n", (int)func, bytes, algo,
           proto, channels, *size);
  record(line);
  *size = wanted != NULL ? (size_t)strtoull(wanted, NULL, 10) : *size;
  return ncclSuccess;
}
#endif

const JOIN(JOIN(ncclTuner_v, VERSION), _t) JOIN(ncclTunerPlugin_v, VERSION) = {
    .name = "Test",
    .getCollInfo = choose,
#if VERSION >= 5
    .init = begin_with_constants,
    .finalize = end,
#else
    .init = begin,
    .destroy = end,
#endif
#if VERSION == 6
    .getChunkSize = chunk,
#endif
};
