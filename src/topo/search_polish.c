// search_polish.c: what is searched again in what the other channels of a graph leave. Fewer hops: a channel at a time,
// or two that swap their cards; the order of channels that share one, by itself. More channels: three in place of two.
#include "base/util.h"
#include "topo/search_priv.h"

enum { ORDER_STEPS = 6000 }; // for the order that channels share: few are left to find once one fits

static void polish_hold(tt_search *s, const tt_graph *g, tt_search_span part, bool take)
{
  for (int c = 0; c < g->nchannels; c++) {
    int count = c >= part.first && c < part.end ? 0 : tt_graph_edges(g, c, s->edges);
    for (int i = 0; i < count; i++) {
      if (take) {
        // It did fit: the graph was found so.
        (void)tt_flow_take(&s->flow, s->edges[i].from, s->edges[i].to, s->edges[i].amount);
      } else {
        tt_flow_give(&s->flow, s->edges[i].from, s->edges[i].to, s->edges[i].amount);
      }
    }
    if (count > 0 && g->inter && take) {
      (void)tt_flow_take_port(&s->flow, g->nets[2 * c], tt_flow_port_amount(g->speedinter));
    } else if (count > 0 && g->inter) {
      tt_flow_give_port(&s->flow, g->nets[2 * c], tt_flow_port_amount(g->speedinter));
    }
  }
}

static int polish_hops_of(const tt_search *s, const tt_graph *g, tt_search_span part)
{
  int hops = 0;
  for (int c = part.first; c < part.end; c++) {
    int count = tt_graph_edges(g, c, s->edges);
    for (int i = 0; i < count; i++) {
      hops += tt_path_get(s->paths, s->edges[i].from, s->edges[i].to)->count;
    }
  }
  return hops;
}

// Searches channels part.first … part.end - 1 again. True when they got shorter.
static bool polish_part(tt_search *s, const tt_cond *c, tt_graph *g, tt_search_span part)
{
  int count = part.end - part.first, *gpus = &g->gpus[(size_t)part.first * (size_t)g->ngpus],
      *nets = &g->nets[2 * part.first];
  bool exhausted = true;
  tt_cond cond = *c;
  if (c->pattern == TT_PATTERN_RING && c->crossnic == 2 && count == 1) {
    cond.pin = nets; // its partner has the same cards
  }
  tt_graph view = *g;
  view.gpus = gpus;
  view.nets = nets;
  view.nchannels = cond.min = cond.max = count;
  view.nhops = polish_hops_of(s, g, part);
  tt_graph_copy(&s->part, &view);
  polish_hold(s, g, part, true);
  tt_search_run(s, &cond, &s->part, &exhausted);
  polish_hold(s, g, part, false);
  if (s->part.nhops >= view.nhops) {
    return false;
  }
  memcpy(gpus, s->part.gpus, (size_t)count * (size_t)g->ngpus * sizeof(int));
  memcpy(nets, s->part.nets, (size_t)count * 2 * sizeof(int));
  g->nhops -= view.nhops - s->part.nhops;
  return true;
}

// Searches a graph of one order from the begin, for an order with fewer links.
static void polish_order(tt_search *s, const tt_cond *c, tt_graph *g)
{
  bool exhausted = true;
  tt_cond cond = *c;
  cond.same = cond.only_same = true;
  cond.min = cond.max = g->nchannels;
  s->steps_left = TT_MIN(s->steps_left, ORDER_STEPS);
  tt_search_run(s, &cond, g, &exhausted);
}

void tt_search_polish(tt_search *s, tt_graph *g)
{
  tt_cond c = tt_search_cond(g);
  int most = g->pattern == TT_PATTERN_RING && g->crossnic == 2 ? 2 : 1;
  if (g->pattern > TT_PATTERN_RING || g->ngpus < 2) {
    return;
  }
  tt_ends_select(&s->ends, g->typeinter);
  g->nhops = polish_hops_of(s, g, (tt_search_span){0, g->nchannels});
  if (g->samechannels) {
    polish_order(s, &c, g);
    return;
  }
  bool shorter = true;
  for (int round = 0; round < 3 && shorter; round++) {
    shorter = false;
    for (int width = 1; width <= most; width++) {
      for (int at = 0; at < g->nchannels && s->steps_left > 0; at += width) {
        shorter |= polish_part(s, &c, g, (tt_search_span){at, TT_MIN(at + width, g->nchannels)});
      }
    }
  }
}

// ---- More channels ----

static void swap_ints(int *a, int *b, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    int had = a[i];
    a[i] = b[i];
    b[i] = had;
  }
}

static void swap_channels(tt_graph *g, int a, int b)
{
  size_t n = (size_t)g->ngpus;
  swap_ints(&g->gpus[(size_t)a * n], &g->gpus[(size_t)b * n], n);
  swap_ints(&g->nets[2 * a], &g->nets[2 * b], 2);
}

static bool same_channel(const tt_graph *g, int a, int b)
{
  size_t n = (size_t)g->ngpus;
  return memcmp(&g->gpus[(size_t)a * n], &g->gpus[(size_t)b * n], n * sizeof(int)) == 0 &&
         memcmp(&g->nets[2 * a], &g->nets[2 * b], 2 * sizeof(int)) == 0;
}

// Searches three channels or more, so that there are `most` at most, where the last two are. True when they fit.
static bool widen_last(tt_search *s, const tt_cond *c, tt_graph *g, int most)
{
  int kept = g->nchannels - 2, *gpus = &g->gpus[(size_t)kept * (size_t)g->ngpus], *nets = &g->nets[2 * kept];
  bool exhausted = true;
  tt_cond cond = *c;
  tt_graph view = *g;
  view.gpus = gpus;
  view.nets = nets;
  view.nchannels = 2;
  cond.min = 3;
  cond.max = most - kept;
  tt_graph_copy(&s->part, &view);
  polish_hold(s, g, (tt_search_span){kept, g->nchannels}, true);
  tt_search_run(s, &cond, &s->part, &exhausted);
  polish_hold(s, g, (tt_search_span){kept, g->nchannels}, false);
  int count = s->part.nchannels;
  if (count < 3) {
    return false;
  }
  memcpy(gpus, s->part.gpus, (size_t)count * (size_t)g->ngpus * sizeof(int));
  memcpy(nets, s->part.nets, (size_t)count * 2 * sizeof(int));
  g->nchannels = kept + count;
  return true;
}

// Tries each two channels once; of those that are alike, the first.
static bool widen_once(tt_search *s, const tt_cond *c, tt_graph *g, int most)
{
  for (int a = 0; a < g->nchannels; a++) {
    for (int b = a + 1; b < g->nchannels && s->steps_left > 0; b++) {
      bool seen = false;
      for (int k = 0; k < b && !seen; k++) {
        seen = (k < a && same_channel(g, k, a)) || (k > a && same_channel(g, k, b));
      }
      if (seen) {
        continue;
      }
      int last = g->nchannels - 1;
      swap_channels(g, b, last);
      swap_channels(g, a, last - 1);
      bool wider = widen_last(s, c, g, most);
      if (wider) {
        return true;
      }
      swap_channels(g, a, last - 1);
      swap_channels(g, b, last);
    }
  }
  return false;
}

void tt_search_widen(tt_search *s, tt_graph *g, int most)
{
  tt_cond c = tt_search_cond(g);
  int turn = s->turn;
  if (g->pattern > TT_PATTERN_RING || g->samechannels || g->crossnic == 2) {
    return;
  }
  tt_ends_select(&s->ends, g->typeinter);
  s->turn = 1; // shortly
  bool wider = true;
  while (wider && g->nchannels > 1 && g->nchannels < most &&
         (float)(g->nchannels + 1) * g->speedintra <= g->bound * 1.001f) {
    wider = widen_once(s, &c, g, most);
  }
  s->turn = turn;
  g->nhops = polish_hops_of(s, g, (tt_search_span){0, g->nchannels});
}
