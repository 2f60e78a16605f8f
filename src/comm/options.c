// options.c: see options.h.
#include "comm/options.h"

#include <stdio.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "comm/collnet.h"
#include "comm/tuning_priv.h"

static bool selects(const tt_selection *s)
{
  return (s->ll | s->simple) != 0;
}

// What of the selection this communicator can use. The variables win: where they leave nothing of it, it is dropped.
static tt_selection restrict_selection(const tt_task *t, tt_selection s, bool in_network)
{
  tt_tuning_restrict(t->comm, t->func, in_network, &s);
  return s;
}

static bool environment_selects(void)
{
  return tt_params_get()->algo != NULL || tt_params_get()->proto != NULL;
}

// Why the selection cannot be used is in `why`.
static bool resolve_selection(const tt_task *t, const tt_call_wish *w, tt_selection *out, char *why, size_t size)
{
  if (!tt_selection_parse(w->selection, t->func, out, why, size)) {
    return false;
  }
  bool in_network = tt_comm_collnet_allows(t->comm, t->func, t->type, tt_kind_opcode(t->kind));
  tt_selection left = restrict_selection(t, *out, in_network);
  if (!selects(&left) && !environment_selects()) {
    snprintf(why, size, "this communicator can use none of it for %s%s", tt_func_name(t->func),
             tt_params_get()->reproducible && tt_func_reduces(t->func) ? " with TUTTI_REPRODUCIBLE=1" : "");
    return false;
  }
  return true;
}

static ncclResult_t take_selection(const tt_task *t, const char *what, const tt_call_wish *w, tt_selection *out)
{
  char why[160];
  tt_selection s;
  if (w->selection == NULL || w->selection[0] == 0) {
    return ncclSuccess;
  }
  if (resolve_selection(t, w, &s, why, sizeof why)) {
    *out = s;
    return ncclSuccess;
  }
  if (w->forced) {
    return tt_fail(ncclInvalidArgument, "%s on rank %d: algSelection \"%.200s\": %s", what, t->comm->rank, w->selection,
                   why);
  }
  tt_info(TT_TUNING, "%s on rank %d: algSelection \"%.200s\" is ignored: %s", what, t->comm->rank, w->selection, why);
  return ncclSuccess;
}

static bool is_ordered(const tt_task *t)
{
  return tt_kind_opcode(t->kind) == TT_OP_ORDERED;
}

// Why no algorithm is left that sums in the order of the ranks.
static ncclResult_t refuse_rank_order(const tt_task *t, const char *what, ncclResult_t res, const char *why)
{
  return tt_fail(
      res, "%s on rank %d: %s needs one of the algorithms Oneshot, Ordered, Direct and DirectWrite, which %s", what,
      t->comm->rank, is_ordered(t) ? "an operation that does not commute" : "TUTTI_OPTION_RANK_ORDER", why);
}

// Leaves of the call's selection what sums in the order of the ranks.
static ncclResult_t take_rank_order(const tt_task *t, const char *what, const tt_call_wish *w, tt_selection *s)
{
  const tt_selection ordered = {TT_ALGOS_IN_ORDER, TT_ALGOS_IN_ORDER};
  tt_selection both = {s->ll & ordered.ll, s->simple & ordered.simple}, left;
  if (selects(s) && !selects(&both) && w->forced) {
    char why[256];
    snprintf(why, sizeof why, "algSelection \"%.200s\" does not allow", w->selection);
    return refuse_rank_order(t, what, ncclInvalidArgument, why);
  }
  *s = selects(&both) ? both : ordered;
  left = restrict_selection(t, *s, false);
  return selects(&left) ? ncclSuccess
                        : refuse_rank_order(t, what, ncclInvalidUsage, "NCCL_ALGO or NCCL_PROTO do not allow here");
}

static bool same_options(const tt_call_options *a, const tt_call_options *b)
{
  return a->algos.ll == b->algos.ll && a->algos.simple == b->algos.simple && a->max_channels == b->max_channels &&
         a->stall_error_ms == b->stall_error_ms;
}

// The number of these options, counted from 1: the same for the same ones.
static ncclResult_t number_options(struct ncclComm *comm, const tt_call_options *o, unsigned *number)
{
  tt_comm_decisions *d = &comm->decisions;
  int i = 0;
  while (i < d->noptions && !same_options(&d->options[i], o)) {
    i++;
  }
  if (i == TT_KIND_OPTIONS_MOST) {
    return tt_fail(ncclInvalidUsage,
                   "rank %d: calls of this communicator have had %d different ncclCollConfig_t; more "
                   "are not remembered",
                   comm->rank, i);
  }
  if (i == d->noptions) {
    if (!tt_grow(&d->options, d->noptions, 1, &d->options_room, sizeof *d->options)) {
      return tt_fail(ncclSystemError, "rank %d: no memory for a call's ncclCollConfig_t", comm->rank);
    }
    d->options[d->noptions++] = *o;
  }
  *number = (unsigned)i + 1;
  return ncclSuccess;
}

ncclResult_t tt_comm_wish(tt_task *t, const char *what, const tt_call_wish *wish)
{
  tt_call_options o = wish->options;
  TT_TRY(take_selection(t, what, wish, &o.algos));
  if ((wish->rank_order || is_ordered(t)) && tt_func_reduces(t->func)) {
    TT_TRY(take_rank_order(t, what, wish, &o.algos));
  }
  o.max_channels = TT_MIN(o.max_channels, t->comm->config.max_ctas);
  unsigned number = 0;
  if (!same_options(&o, &(tt_call_options){.max_channels = 0})) {
    TT_TRY(number_options(t->comm, &o, &number));
  }
  t->kind = tt_kind_with_options(t->kind, number);
  return ncclSuccess;
}

static bool allows(const tt_selection *s, const tt_choice *c)
{
  uint32_t set = c->proto == TT_SIMPLE || c->proto == TT_TOK ? s->simple : s->ll;
  return (set >> c->algo & 1) != 0;
}

ncclResult_t tt_options_choose(const tt_task *t, const tt_call_options *o, bool in_network, tt_choice *choice)
{
  tt_selection s = restrict_selection(t, o->algos, in_network);
  if (selects(&o->algos) && !selects(&s) && !environment_selects()) {
    return tt_fail(ncclInvalidUsage,
                   "%s on rank %d: the network does not reduce this, and the call's algSelection allows "
                   "nothing else",
                   tt_func_name(t->func), t->comm->rank);
  }
  if (selects(&s) && !allows(&s, choice)) {
    TT_TRY(tt_tuning_select(t->comm, t->func, tt_task_bytes(t), &s, choice));
  }
  if (o->max_channels > 0) {
    choice->channels = TT_MIN(choice->channels, o->max_channels);
  }
  return ncclSuccess;
}
