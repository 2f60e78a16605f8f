// table.c: the table of algorithms (algorithms.def).

#include "base/result.h"
#include "base/text.h"
#include "base/util.h"
#include "coll/build.h"
#include "coll/coll_priv.h"
#include "device/fifo.h"

#define F(name) (1u << TT_FUNC_##name)

static const tt_algorithm table[TT_NALGOS] = {
#define A(id, name, write, funcs, needs, follows, in_network, doc) \
  {name, #id, doc, funcs, needs, follows, write, in_network, {[TT_SIMPLE] = #id "_SIMPLE", [TT_LL] = #id "_LL"}},
#include "coll/algorithms.def"
};

const tt_algorithm *tt_algorithms(int *count)
{
  if (count != NULL) {
    *count = TT_NALGOS;
  }
  return table;
}

int tt_algorithm_find(const char *name)
{
  for (int i = 0; i < TT_NALGOS; i++) {
    if (tt_casecmp(table[i].name, name) == 0) {
      return i;
    }
  }
  return -1;
}

int tt_algorithm_channels(const tt_algorithm *a, const tt_layout *layout)
{
  const void *orders = NULL;
  if (layout && a->follows == TT_FOLLOWS_PACKED && layout->channels.packed) {
    return layout->channels.npacked;
  }
  if (layout && a->follows != TT_FOLLOWS_NODES) {
    orders = a->follows == TT_FOLLOWS_RING ? layout->channels.rings : layout->channels.ups;
  }
  return orders ? layout->channels.count : 0;
}

static bool has_root(tt_func f)
{
  return f != TT_FUNC_ALLGATHER && f != TT_FUNC_REDUCESCATTER && f != TT_FUNC_ALLREDUCE && f != TT_FUNC_ALLTOALL;
}

// ncclInvalidArgument unless rank, root and nranks fit together and the algorithm knows the function.
static ncclResult_t check_call_shape(const tt_algorithm *a, const tt_shape *shape)
{
  if ((unsigned)shape->func >= TT_NFUNCS || !(a->funcs >> shape->func & 1)) {
    return tt_fail(ncclInvalidArgument, "algorithm %s does not know the function %s", a->name,
                   tt_func_name(shape->func));
  }
  if (shape->nranks < 1 || shape->rank < 0 || shape->rank >= shape->nranks) {
    return tt_fail(ncclInvalidArgument, "algorithm %s: rank %d of %d ranks", a->name, shape->rank, shape->nranks);
  }
  if (has_root(shape->func) && (shape->root < 0 || shape->root >= shape->nranks)) {
    return tt_fail(ncclInvalidArgument, "algorithm %s, %s: root or peer %d is not one of %d ranks", a->name,
                   tt_func_name(shape->func), shape->root, shape->nranks);
  }
  if (shape->layout && (shape->order || shape->layout->nranks != shape->nranks)) {
    return tt_fail(ncclInvalidArgument, "algorithm %s: %d ranks, but a layout of %d%s", a->name, shape->nranks,
                   shape->layout->nranks, shape->order ? " and a ring order beside it" : "");
  }
  int channels = tt_algorithm_channels(a, shape->layout);
  channels = channels > 0 ? channels : shape->layout ? shape->layout->channels.count : 1;
  if (shape->channel < 0 || shape->channel >= channels) {
    return tt_fail(ncclInvalidArgument, "algorithm %s: channel %d of %d", a->name, shape->channel, channels);
  }
  return ncclSuccess;
}

// The schedule of a communicator of one rank: IN -> OUT, with the reduction's scaling and division where the function
// reduces.
static ncclResult_t write_alone(const tt_shape *shape, tt_schedule **out)
{
  tt_build b;
  tt_build_begin(&b, shape, 1);
  tt_build_strand(&b);
  tt_build_step(&b, tt_func_reduces(shape->func) ? TT_STEP_REDUCE | TT_STEP_FINAL : 0, 0);
  tt_build_from(&b, tt_ref_in(0));
  tt_build_to(&b, tt_ref_out(0));
  return tt_build_end(&b, out);
}

ncclResult_t tt_algorithm_write(const tt_algorithm *a, const tt_shape *shape, tt_schedule **out)
{
  TT_TRY(check_call_shape(a, shape));
  return shape->nranks == 1 && !tt_func_is_message(shape->func) ? write_alone(shape, out) : a->write(shape, out);
}

void tt_schedule_free(tt_schedule *s)
{
  if (s) {
    tt_free(s->strands);
    tt_free(s->steps);
    tt_free(s->refs);
    tt_free(s);
  }
}

const char *const tt_func_names[TT_NCALLS] = {
    "Broadcast", "Reduce", "AllGather",  "ReduceScatter",  "AllReduce", "AlltoAll", "Gather",   "Scatter",
    "Send",      "Recv",   "AllGatherV", "ReduceScatterV", "GatherV",   "ScatterV", "AlltoAllV"};
