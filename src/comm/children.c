// children.c: communicators made from others. See children.h.
#include "comm/children.h"

#include <stdio.h>

#include "base/result.h"
#include "base/util.h"
#include "comm/family.h"
#include "comm/ranks.h"
#include "os/clock.h"

const char *tt_child_call(tt_origin origin)
{
  static const char *const names[] = {[TT_BY_ID] = "creating the communicator",
                                      [TT_BY_SPLIT] = "ncclCommSplit",
                                      [TT_BY_SHRINK] = "ncclCommShrink",
                                      [TT_BY_GROW] = "ncclCommGrow"};
  return names[origin];
}

// While a child of a healthy parent is made: has a rank of the parent died? Its number, or -1.
static int parent_look(void *parent)
{
  struct ncclComm *c = parent;
  if (tt_port_status(&c->port) == ncclSuccess) {
    tt_port_watch(&c->port);
  }
  tt_culprit why =
      tt_port_status(&c->port) != ncclSuccess ? __atomic_load_n(&c->port.page->culprit, __ATOMIC_RELAXED) : 0;
  return tt_culprit_died(why) ? tt_culprit_rank(why) : -1;
}

// Has a rank of the parent died? Then the parent has lost it, too, and *rank is its number. False: nothing is seen yet.
static bool parent_judge(struct ncclComm *parent, int *rank)
{
  int cause = -1;
  for (int i = 0; i < parent->nranks && (*rank = parent_look(parent)) < 0; i += TT_PORT_LOOKS) {
  }
  tt_ring_end end = tt_bootstrap_look(parent->boot, &cause);
  if (*rank < 0 && (end == TT_RING_DIED || end == TT_RING_LOST) && cause != parent->rank) {
    tt_port_blame(&parent->port, tt_culprit_of(cause, end == TT_RING_DIED ? TT_RANK_KILLED : TT_RANK_LOST));
    *rank = parent_look(parent);
  }
  return *rank >= 0 || end == TT_RING_ENDED;
}

// A call that needs the parent's ranks has failed. Which rank of the parent has died? `may`: this rank may hear of it a
// moment later. -1: none.
static int await_cause(struct ncclComm *parent, bool may)
{
  int rank = -1;
  uint64_t end_ns = tt_now_ns() + TT_NEWS_NS;
  while (!parent_judge(parent, &rank) && may && tt_now_ns() < end_ns) {
    tt_sleep_ns(TT_NEWS_NAP_NS);
  }
  return rank;
}

// A child of a healthy parent was not made. Where a rank of the parent has died, that is why.
static ncclResult_t child_failed(struct ncclComm *parent, const tt_init_args *args, ncclResult_t res)
{
  // The id of a process that is gone looks like one that was used before.
  bool may = res == ncclRemoteError || (res == ncclInvalidUsage && args->origin == TT_BY_GROW);
  if (await_cause(parent, may) < 0) {
    return res;
  }
  char text[sizeof parent->port.error + 32];
  snprintf(text, sizeof text, "%s on %s", tt_child_call(args->origin), tt_port_error(&parent->port));
  tt_last_error_set(text);
  return ncclRemoteError;
}

// From here to heed_end, waits for the child of a healthy parent end when a rank of the parent dies.
static void heed_begin(struct ncclComm *parent)
{
  tt_bootstrap_care(parent->boot, parent_look, parent, true);
}

static void heed_end(struct ncclComm *parent, struct ncclComm *child)
{
  tt_bootstrap_care(parent->boot, NULL, NULL, false);
  if (child->boot != NULL) {
    tt_bootstrap_care(child->boot, NULL, NULL, false);
  }
}

static ncclResult_t split_child(struct ncclComm *c, const tt_init_args *args)
{
  struct ncclComm *parent = args->parent;
  int n = parent->nranks, me = parent->rank, place = 0, count = 0;
  const tt_split_choice mine = {.color = args->color, .key = args->key, .rank = me};
  tt_split_choice *all = NULL;
  int *members;
  ncclResult_t res = ncclSuccess;
  TT_TRY(TT_NEW(members, n, "ncclCommSplit on rank %d: no memory for %d ranks", me, n));
  tt_bootstrap_watch(parent->boot, &c->port.abort_flag, "ncclCommSplit");
  heed_begin(parent);
  TT_TRY_GOTO(tt_comm_exchange(parent, &mine, sizeof mine, &all), res);
  if (args->color != NCCL_SPLIT_NOCOLOR) {
    count = tt_ranks_members(all, n, me, members, &place);
  }
  // The ring of the child is made over the parent's, so ranks of no group take part too.
  TT_TRY_GOTO(tt_bootstrap_split(parent->boot, members, count, ++parent->splits.n, &c->port.abort_flag, &c->boot), res);
  if (count > 0) {
    tt_init_args child = {.nranks = count, .rank = place, .device = parent->device};
    res = tt_comm_init(c, &child);
  }
fail:
  tt_bootstrap_watch(parent->boot, NULL, NULL);
  heed_end(parent, c);
  tt_free(all);
  tt_free(members);
  return res == ncclSuccess || tt_aborted(&c->port.abort_flag) ? res : child_failed(parent, args, res);
}

// Of a healthy parent, too: a rank of it that dies may keep others from calling.
static ncclResult_t shrink_child(struct ncclComm *c, const tt_init_args *args)
{
  struct ncclComm *parent = args->parent;
  tt_init_args child = {.nranks = args->nmembers, .device = parent->device};
  bool healthy = tt_port_status(&parent->port) == ncclSuccess;
  if (healthy) {
    heed_begin(parent);
  }
  ncclResult_t res = tt_bootstrap_shrink(parent->boot, args->members, args->nmembers, &c->port.abort_flag, &c->boot);
  while (args->members[child.rank] != parent->rank) {
    child.rank++;
  }
  res = res == ncclSuccess ? tt_comm_init(c, &child) : res;
  if (healthy) {
    heed_end(parent, c);
  }
  return res == ncclSuccess || !healthy || tt_aborted(&c->port.abort_flag) ? res : child_failed(parent, args, res);
}

// What existing ranks tell each other before they grow.
typedef struct grow_card {
  ncclUniqueId id; // zeros: this rank does not bring it
  int32_t nranks;
  int32_t has_id;
} grow_card;
_Static_assert(sizeof(grow_card) == 136, "bootstrap message layout");

// Every rank finds the same culprit, and *id where there is none.
static ncclResult_t check_growth(const struct ncclComm *parent, const grow_card *all, ncclUniqueId *id)
{
  int from = -1;
  for (int i = 0; i < parent->nranks; i++) {
    if (all[i].nranks != all[0].nranks) {
      return tt_fail(ncclInvalidArgument, "ncclCommGrow on rank %d: rank 0 grows to %d ranks, rank %d to %d",
                     parent->rank, all[0].nranks, i, all[i].nranks);
    }
    if (all[i].has_id && from >= 0 && memcmp(&all[i].id, &all[from].id, sizeof *id) != 0) {
      return tt_fail(ncclInvalidArgument,
                     "ncclCommGrow on rank %d: ranks %d and %d have different unique ids: one rank makes one, by "
                     "ncclCommGetUniqueId",
                     parent->rank, from, i);
    }
    from = all[i].has_id ? i : from;
  }
  if (from < 0) {
    return tt_fail(ncclInvalidArgument,
                   "ncclCommGrow on rank %d: no rank has a unique id: one makes it, by ncclCommGetUniqueId, once for "
                   "each growth",
                   parent->rank);
  }
  *id = all[from].id;
  return ncclSuccess;
}

// The ranks of the parent learn the id over its ring. A rank that has it, and cannot pass it on because one of them has
// died, joins all the same: that fails, and the new ranks hear why.
static ncclResult_t pass_id(struct ncclComm *c, const tt_init_args *args, ncclUniqueId *id)
{
  struct ncclComm *parent = args->parent;
  const grow_card mine = {.id = args->id, .nranks = args->nranks, .has_id = args->has_id};
  grow_card *all;
  tt_bootstrap_watch(parent->boot, &c->port.abort_flag, "ncclCommGrow");
  ncclResult_t res = tt_comm_exchange(parent, &mine, sizeof mine, &all);
  tt_bootstrap_watch(parent->boot, NULL, NULL);
  if (res != ncclSuccess) {
    *id = args->id;
    return args->has_id && await_cause(parent, res == ncclRemoteError) >= 0 ? ncclSuccess : res;
  }
  res = check_growth(parent, all, id);
  tt_free(all);
  return res;
}

// Then they meet the new ones as in any creation.
static ncclResult_t grow_child(struct ncclComm *c, const tt_init_args *args)
{
  struct ncclComm *parent = args->parent;
  tt_init_args child = {.nranks = args->nranks, .rank = parent->rank, .device = parent->device};
  heed_begin(parent);
  ncclResult_t res = pass_id(c, args, &child.id);
  res = res == ncclSuccess ? tt_bootstrap_grow(parent->boot, &child.id, args->nranks, &c->port.abort_flag, &c->boot)
                           : res;
  res = res == ncclSuccess ? tt_comm_init(c, &child) : res;
  heed_end(parent, c);
  return res == ncclSuccess || tt_aborted(&c->port.abort_flag) ? res : child_failed(parent, args, res);
}

// Does a child share with its parent? One that has failed or was revoked shares nothing.
static bool child_shares(const tt_init_args *args)
{
  const tt_config *config = &args->parent->config;
  bool asked = args->origin == TT_BY_SPLIT    ? config->split_share
               : args->origin == TT_BY_SHRINK ? config->shrink_share
                                              : false;
  return asked && tt_port_status(&args->parent->port) == ncclSuccess;
}

ncclResult_t tt_child_create(struct ncclComm *comm, const tt_init_args *args)
{
  comm->recorder.inherits = true;
  comm->recorder.job_rank = args->parent->recorder.job_rank;
  ncclResult_t res = args->origin == TT_BY_SPLIT    ? split_child(comm, args)
                     : args->origin == TT_BY_SHRINK ? shrink_child(comm, args)
                                                    : grow_child(comm, args);
  if (res == ncclSuccess && comm->nranks > 0 && child_shares(args)) {
    tt_family_join(args->parent, comm);
  }
  return res;
}

void tt_comm_stop(struct ncclComm *comm, ncclResult_t code, uint32_t how)
{
  __atomic_store_n(&comm->port.abort_flag, how, __ATOMIC_RELEASE);
  tt_turns_stop(&comm->splits.turns);
  tt_port_stop(&comm->port, code);
  tt_family_stop(comm);
  tt_port_await_writers(&comm->port);
  tt_comm_expel(comm);
  tt_comm_drop_plans(comm);
  __atomic_store_n(&comm->port.abort_flag, 0, __ATOMIC_RELEASE);
}
