// plugin.c: a tuner that reads its choices from a file (choices.h), for Tutti and for NCCL. The file is the one that
// NCCL_TUNER_CONFIG_FILE names; without it nccl_tuner.conf in the working directory, and then ~/.nccl/tuner.csv, which
// tutti-tune writes.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "choices.h"

#define EXPORT __attribute__((visibility("default")))
#define NAME "CSV"

enum { TOLD_LINES = 20 };

typedef struct tuner {
  choices all;
  size_t nranks, nnodes;
  ncclDebugLogger_t log;
  const char *file;
  int wrong;
} tuner;

// Warnings are seen whatever NCCL_DEBUG_SUBSYS says, as the library's own are.
#define SAY(t, level, ...)                                                                                            \
  ((t)->log != NULL ? (t)->log(level, (level) == NCCL_LOG_WARN ? ~0ul : NCCL_TUNING, __FILE__, __LINE__, __VA_ARGS__) \
                    : (void)0)

static void complain(void *arg, int line, const char *what)
{
  tuner *t = arg;
  if (t->wrong++ < TOLD_LINES) {
    SAY(t, NCCL_LOG_WARN, "TUNER/" NAME ": %s:%d: %s; the line is skipped", t->file, line, what);
  }
}

// The first of the places that there is; the variable's always, and then it is the user's choice whose file it is.
static const char *find_file(char path[PATH_MAX], bool *named_by_user)
{
  const char *named = getenv("NCCL_TUNER_CONFIG_FILE"), *home = getenv("HOME");
  *named_by_user = named != NULL && named[0] != '\0';
  if (*named_by_user) {
    return named;
  }
  if (access("nccl_tuner.conf", R_OK) == 0) {
    return "nccl_tuner.conf";
  }
  return home != NULL && snprintf(path, PATH_MAX, "%s/.nccl/tuner.csv", home) < PATH_MAX ? path : "nccl_tuner.conf";
}

static ncclResult_t begin(size_t nranks, size_t nnodes, ncclDebugLogger_t log, void **context)
{
  char path[PATH_MAX], why[TT_TRUST_WHY];
  bool named = false;
  tuner *t = calloc(1, sizeof *t);
  if (t == NULL) {
    return ncclSystemError;
  }
  *t = (tuner){.nranks = nranks, .nnodes = nnodes, .log = log, .file = find_file(path, &named)};
  if (!choices_read(t->file, named, &t->all, complain, t, why)) {
    SAY(t, named ? NCCL_LOG_WARN : NCCL_LOG_INFO, "TUNER/" NAME ": %s cannot be read (%s): no choices", t->file, why);
  } else {
    SAY(t, NCCL_LOG_INFO, "TUNER/" NAME ": %zu choices in %s, %d lines are wrong", t->all.count, t->file, t->wrong);
  }
  t->file = NULL; // it may lie in this frame
  *context = t;
  return ncclSuccess;
}

static ncclResult_t begin_with_constants(void **context, uint64_t id, size_t nranks, size_t nnodes,
                                         ncclDebugLogger_t log, ncclNvlDomainInfo_v5_t *domains,
                                         ncclTunerConstants_v5_t *constants)
{
  (void)id;
  (void)domains;
  (void)constants;
  return begin(nranks, nnodes, log, context);
}

static ncclResult_t end(void *context)
{
  tuner *t = context;
  if (t != NULL) {
    free(t->all.list);
    free(t);
  }
  return ncclSuccess;
}

typedef struct question {
  ncclFunc_t func;
  size_t bytes;
  int ops, registered; // registered: -1 where the version does not tell
} question;

static bool fits(const tuner *t, const choice *c, const question *q)
{
  return c->func == q->func && q->bytes >= c->min && q->bytes <= c->max &&
         (c->nodes == -1 || (size_t)c->nodes == t->nnodes) && (c->ranks == -1 || (size_t)c->ranks == t->nranks) &&
         (c->ops == -1 || c->ops == q->ops) &&
         (c->registered == -1 || q->registered == -1 || c->registered == q->registered);
}

// The next choice from *at on that fits, NULL: none.
static const choice *next(const tuner *t, const question *q, size_t *at)
{
  while (*at < t->all.count) {
    const choice *c = &t->all.list[(*at)++];
    if (fits(t, c, q)) {
      return c;
    }
  }
  return NULL;
}

static ncclResult_t change(void *context, const question *q, float **costs, int nalgo, int nproto, int *channels)
{
  const tuner *t = context;
  float *table = (float *)costs;
  size_t at = 0;
  const choice *c;
  if (t == NULL) {
    return ncclInternalError;
  }
  while ((c = next(t, q, &at)) != NULL) {
    float *cost = c->algo < nalgo && c->proto < nproto ? &table[c->algo * nproto + c->proto] : NULL;
    if (cost != NULL && *cost != (float)NCCL_ALGO_PROTO_IGNORE) {
      *cost = 0;
      *channels = c->channels > 0 ? c->channels : *channels;
      return ncclSuccess;
    }
  }
  return ncclSuccess;
}

static ncclResult_t choose_v2(void *context, ncclFunc_t func, size_t bytes, int collnet, int nvls, int ops, int *algo,
                              int *proto, int *channels)
{
  const tuner *t = context;
  question q = {func, bytes, ops, -1};
  size_t at = 0;
  (void)collnet;
  (void)nvls;
  const choice *c = t != NULL ? next(t, &q, &at) : NULL;
  if (c != NULL && c->algo < NCCL_NUM_ALGORITHMS) {
    *algo = c->algo;
    *proto = c->proto;
    *channels = c->channels > 0 ? c->channels : *channels;
  }
  return t != NULL ? ncclSuccess : ncclInternalError;
}

static ncclResult_t choose_v3(void *context, ncclFunc_t func, size_t bytes, int ops, float **costs, int nalgo,
                              int nproto, int *channels)
{
  return change(context, &(question){func, bytes, ops, -1}, costs, nalgo, nproto, channels);
}

static ncclResult_t choose(void *context, ncclFunc_t func, size_t bytes, int ops, float **costs, int nalgo, int nproto,
                           int registered, int *channels)
{
  return change(context, &(question){func, bytes, ops, registered}, costs, nalgo, nproto, channels);
}

EXPORT extern const int tuttiTunerRows;
EXPORT extern const ncclTuner_v6_t ncclTunerPlugin_v6;
EXPORT extern const ncclTuner_v5_t ncclTunerPlugin_v5;
EXPORT extern const ncclTuner_v4_t ncclTunerPlugin_v4;
EXPORT extern const ncclTuner_v3_t ncclTunerPlugin_v3;
EXPORT extern const ncclTuner_v2_t ncclTunerPlugin_v2;

const int tuttiTunerRows = TUTTI_NUM_ALGORITHMS;
const ncclTuner_v6_t ncclTunerPlugin_v6 = {
    .name = NAME, .init = begin_with_constants, .getCollInfo = choose, .finalize = end};
const ncclTuner_v5_t ncclTunerPlugin_v5 = {
    .name = NAME, .init = begin_with_constants, .getCollInfo = choose, .finalize = end};
const ncclTuner_v4_t ncclTunerPlugin_v4 = {.name = NAME, .init = begin, .getCollInfo = choose, .destroy = end};
const ncclTuner_v3_t ncclTunerPlugin_v3 = {.name = NAME, .init = begin, .getCollInfo = choose_v3, .destroy = end};
const ncclTuner_v2_t ncclTunerPlugin_v2 = {.name = NAME, .init = begin, .getCollInfo = choose_v2, .destroy = end};
