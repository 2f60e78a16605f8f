// topology_log.c: rings and trees in the log, as NCCL's users look for them.
#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"
#include "base/text.h"
#include "base/util.h"
#include "comm/topology.h"

enum { LINE_BYTES = 4000 };

__attribute__((format(printf, 3, 4))) static void topology_log_add(char line[LINE_BYTES], size_t *used, const char *fmt,
                                                                   ...)
{
  va_list ap;
  va_start(ap, fmt);
  int n = tt_vformat(line + *used, LINE_BYTES - *used, fmt, ap);
  va_end(ap);
  *used = TT_MIN(*used + (size_t)TT_MAX(n, 0), (size_t)LINE_BYTES - 1);
}

static void log_rings(const tt_connect *c)
{
  char line[LINE_BYTES];
  int width = snprintf(NULL, 0, "%d", c->nranks - 1);
  for (int ch = 0; ch < c->nchannels; ch++) {
    size_t used = 0;
    topology_log_add(line, &used, "Channel %02d/%02d :", ch, c->nchannels);
    for (int i = 0, rank = 0; i < c->nranks && used < LINE_BYTES - 1; i++) {
      topology_log_add(line, &used, " %*d", width, rank);
      rank = tt_connect_ring_step(c, ch, rank, 1);
    }
    tt_info(TT_INIT, "%s%s", line, used == LINE_BYTES - 1 ? "..." : "");
  }
}

static void log_trees(const tt_connect *c, int rank)
{
  char line[LINE_BYTES] = "";
  size_t used = 0;
  for (int ch = 0; ch < c->nchannels; ch++) {
    tt_tree_place t = tt_connect_tree(c, ch, rank);
    topology_log_add(line, &used, " [%d] %d/%d/%d->%d->%d", ch, t.down[0], t.down[1], t.down[2], rank, t.up);
    tt_info(TT_GRAPH, "Ring %02d : %d -> %d -> %d", ch, tt_connect_ring_step(c, ch, rank, -1), rank,
            tt_connect_ring_step(c, ch, rank, 1));
  }
  tt_info(TT_INIT, "Trees%s", line);
}

void tt_topology_log(const tt_topology *t, int rank)
{
  const tt_connect *c = t->connect;
  if (!tt_log_on(TT_LOG_INFO, TT_INIT | TT_GRAPH)) {
    return;
  }
  if (rank == 0) {
    log_rings(c);
  }
  log_trees(c, rank);
  tt_info(TT_INIT, "%d coll channels, %d collnet channels, %d nvls channels, %d p2p channels, %d p2p channels per peer",
          c->nchannels, c->collnet ? c->nchannels : 0, c->nvls_channels, t->p2p.channels, t->p2p.per_peer);
}
