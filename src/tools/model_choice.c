// model_choice.c: what NCCL's model takes for an operation, and its answers as text.
#include "tools/model_choice.h"

#include <float.h>

#include "base/result.h"
#include "base/util.h"

static int direct_channels(const tt_model *m, size_t bytes, int threads, size_t threshold)
{
  int n = m->nchannels;
  bool less = true;
  for (int stop = 16; stop >= 1 && less; stop /= 2) {
    while ((less = bytes < (size_t)n * (size_t)threads * (size_t)m->direct_heads * threshold) && n > stop) {
      threshold = n == stop + stop / 2 ? threshold / 2 : threshold;
      n--;
    }
  }
  return n;
}

void tt_model_size(const tt_model *m, const tt_model_op *op, tt_model_choice *c)
{
  int n = m->nchannels, threads = m->threads[c->algo][c->proto];
  size_t threshold = (size_t)m->threshold[c->algo][c->proto];
  if (c->algo == TT_MODEL_COLLNET_DIRECT) {
    n = direct_channels(m, op->bytes, threads, threshold);
  } else if (tt_model_is_nvls(c->algo)) {
    n = m->nnodes > 1 && c->algo == TT_MODEL_NVLS ? TT_MIN(m->nvls_channels, n) : m->nvls_channels;
  } else {
    while (n > 1 && op->bytes < (size_t)n * (size_t)threads * threshold) {
      n--;
    }
    while (threads > 0 && threads % 128 == 0 && op->bytes < (size_t)n * (size_t)threads * threshold) {
      threads /= 2;
    }
  }
  // One more warp, to synchronise.
  threads += c->algo == TT_MODEL_RING && c->proto == TT_MODEL_SIMPLE ? TT_MODEL_WARP : 0;
  threads = TT_MAX(threads, 3 * TT_MODEL_WARP);
  c->channels = n;
  c->threads = c->algo == TT_MODEL_TREE || c->algo == TT_MODEL_PAT ? TT_MODEL_MAX_THREADS : threads;
}

ncclResult_t tt_model_choose(const tt_model *m, const tt_model_op *op, tt_model_choice *out)
{
  tt_model_choice best = {.us = FLT_MAX};
  for (int i = 0; i < TT_MODEL_ALGOS * TT_MODEL_PROTOS; i++) {
    tt_model_algo a = i / TT_MODEL_PROTOS;
    tt_model_proto p = i % TT_MODEL_PROTOS;
    float us = tt_model_time(m, op, a, p);
    if (us >= 0 && us < best.us) {
      best = (tt_model_choice){.algo = a, .proto = p, .us = us};
    }
  }
  if (best.us == FLT_MAX) {
    return tt_fail(m->by_variable ? ncclInvalidUsage : ncclInternalError,
                   "no algorithm is left for %s on %d ranks and %d nodes%s", tt_model_func_name(op->func), m->nranks,
                   m->nnodes, m->by_variable ? ": NCCL_ALGO or NCCL_PROTO allow none that can do it" : "");
  }
  tt_model_size(m, op, &best);
  *out = best;
  return ncclSuccess;
}

const char *tt_model_bound_text(tt_model_bound bound)
{
  static const char *const texts[TT_BOUND_KINDS] = {
      "nothing",
      "the links between the node's GPUs",
      "the network cards and the way to them",
      "what GPUs of that generation do per channel",
      "what protocol LL reaches with that GPU, or CPU between nodes",
  };
  return texts[bound];
}

const char *tt_model_off_text(tt_model_off off)
{
  static const char *const texts[TT_OFF_REASONS] = {
      "can be had",
      "the function has no such algorithm or protocol",
      "the search found too few channels for it",
      "there is only one node",
      "the network does not reduce",
      "the node has no NVSwitch",
      "not every GPU speaks to the network by itself",
      "it takes one rank per node",
      "LL128 would cross links that may tear its lines",
      "NVLink cannot reduce this",
      "a node has too many ranks",
      "this reduction is not done so",
      "NCCL_ALGO leaves it out",
      "NCCL_PROTO leaves it out",
      "a GPU is older than sm 90",
      "NCCL_NVLS_ENABLE switches it off",
      "NCCL_COLLNET_ENABLE does not let the network reduce",
      "NCCL_COLLNET_NODE_THRESHOLD wants more nodes before the network reduces",
  };
  return texts[off];
}

const char *tt_model_off_variable(tt_model_off off)
{
  switch (off) {
  case TT_OFF_ALGO_VAR: return "NCCL_ALGO";
  case TT_OFF_PROTO_VAR: return "NCCL_PROTO";
  case TT_OFF_NVLS_ENABLE: return "NCCL_NVLS_ENABLE";
  case TT_OFF_COLLNET_ENABLE: return "NCCL_COLLNET_ENABLE";
  case TT_OFF_COLLNET_NODES: return "NCCL_COLLNET_NODE_THRESHOLD";
  default: return NULL;
  }
}
