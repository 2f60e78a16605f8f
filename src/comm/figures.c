// figures.c: the figures that all ranks of a communicator reckon with (figures/figures.h), and what follows from them.
#include <stdio.h>
#include <time.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "comm/comm.h"
#include "comm/tuning_priv.h"

// Rank 0's. The way over TCP was measured within its machine, which says nothing of a network between machines.
static tt_figures agreed_figures(const struct ncclComm *comm)
{
  tt_figures f = comm->peers[0].figures, own = tt_figures_default();
  for (int i = 1; i < comm->nranks; i++) {
    if (comm->peers[i].machine != comm->peers[0].machine) {
      f.value[TT_FIG_NET_WAY] = own.value[TT_FIG_NET_WAY];
    }
  }
  return f;
}

static const char *day_of(int64_t when, char out[32])
{
  struct tm tm;
  time_t t = (time_t)when;
  if (gmtime_r(&t, &tm) == NULL || strftime(out, 32, "%Y-%m-%d %H:%M UTC", &tm) == 0) {
    snprintf(out, 32, "at some time");
  }
  return out;
}

static void log_figures(const struct ncclComm *comm, const tt_tuning *t)
{
  char text[512], day[32];
  const tt_figures_source *mine = tt_figures_own();
  const tt_figures *f = &t->figures;
  if (f->measured != 0) {
    tt_info(TT_INIT | TT_TUNING, "rank %d: figures of rank 0's machine, measured %s: %s", comm->rank,
            day_of(f->when, day), tt_figures_text(f, text, sizeof text));
  } else {
    tt_info(TT_INIT | TT_TUNING,
            "rank %d: using built-in cost figures; run tutti-tune --machine to measure the machine of rank 0",
            comm->rank);
  }
  bool others = mine->figures.measured != 0 && !tt_figures_same(&mine->figures, &comm->peers[0].figures);
  tt_info(
      TT_TUNING,
      "rank %d: LL up to %zu bytes, direct access from %zu (%zu in one process) in chunks of %zu; figures here: %s%s",
      comm->rank, t->limits.ll, t->limits.direct_copy, t->limits.direct_local, t->limits.direct_chunk, mine->from,
      others ? ", others than rank 0's" : "");
}

static void set_thresholds(const struct ncclComm *comm, tt_tuning *t)
{
  int64_t wish = tt_params_get()->host_direct_threshold;
  size_t *at = t->thresholds, direct = comm->machine.all_local ? t->limits.direct_local : t->limits.direct_copy;
  for (int i = 0; i < TT_NTHRESHOLDS; i++) {
    at[i] = tt_thresholds[i].value;
  }
  at[TT_AT_LL] = t->limits.ll;
  at[TT_AT_DIRECT_CHUNK] = t->limits.direct_chunk;
  at[TT_AT_DIRECT_COPY] = t->limits.direct_copy;
  at[TT_AT_DIRECT_LOCAL] = t->limits.direct_local;
  at[TT_AT_DIRECT] = wish >= 0 ? (size_t)wish : direct;
  at[TT_AT_DIRECT_TWO] = wish >= 0 ? (size_t)wish : 2 * direct;
}

void tt_tuning_take_figures(const struct ncclComm *comm, tt_tuning *t)
{
  t->figures = agreed_figures(comm);
  t->limits = comm->peers[0].limits;
  set_thresholds(comm, t);
  log_figures(comm, t);
}
