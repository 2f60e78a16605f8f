// search_heads.c: NVLS and collnet direct: each channel has a head GPU that all others exchange data with; its card, if
// there is one, is the head's way out.
#include "base/util.h"
#include "topo/search_priv.h"

// Takes an edge of a channel, `type` at worst.
static bool heads_take(tt_search *s, int from, int to, int type, int amount)
{
  return tt_path_get(s->paths, from, to)->type <= type && tt_search_take(s, from, to, amount);
}

// Edge number i of a channel with that head: first all that lead away from it, then all that lead to it.
static tt_edge heads_edge(const tt_search *s, const tt_cond *c, int head, int i)
{
  int n = s->ends.ngpus, gpu = i % n, nvs = s->topo->first[TT_NODE_NVS];
  bool nvls = c->pattern == TT_PATTERN_NVLS, away = i < n;
  int far = nvls ? nvs : head; // what the GPU exchanges data with
  // Every GPU has the data of all heads once; the head has its own twice, as it passes the sum on.
  float speed = nvls ? c->speedintra * (gpu == head ? 2.0f : 1.0f) : c->speedintra / (float)TT_MAX(n - 1, 1);
  return (tt_edge){.from = away ? far : gpu, .to = away ? gpu : far, .amount = tt_flow_amount(speed)};
}

static void give_edges(tt_search *s, const tt_cond *c, int head, int count)
{
  for (int i = 0; i < count; i++) {
    tt_edge e = heads_edge(s, c, head, i);
    tt_search_give(s, e.from, e.to, e.amount);
  }
}

static bool take_edges(tt_search *s, const tt_cond *c, int head)
{
  for (int i = 0; i < 2 * s->ends.ngpus; i++) {
    tt_edge e = heads_edge(s, c, head, i);
    // As in NCCL, the type counts for edges of full bandwidth only: what collnet direct sends on each is a fraction.
    int type = c->pattern == TT_PATTERN_NVLS ? c->typeintra : TT_PATH_SYS;
    if (!heads_take(s, e.from, e.to, type, e.amount)) {
      give_edges(s, c, head, i);
      return false;
    }
  }
  return true;
}

static bool heads_is_head(const tt_search *s, int gpu)
{
  for (int c = 0; c < s->now.nchannels; c++) {
    if (s->now.gpus[(size_t)c * (size_t)s->now.ngpus] == gpu) {
      return true;
    }
  }
  return false;
}

static void set_channel(tt_search *s, int head, int in, int out)
{
  tt_graph *now = &s->now;
  int *gpus = &now->gpus[(size_t)now->nchannels * (size_t)now->ngpus];
  gpus[0] = head;
  for (int g = 0, at = 1; g < now->ngpus; g++) {
    if (g != head) {
      gpus[at++] = g;
    }
  }
  now->nets[2 * now->nchannels] = in;
  now->nets[2 * now->nchannels + 1] = out;
  now->nchannels++;
}

// Takes a card's way in and out and the edges of the head that uses it.
static bool add_from(tt_search *s, const tt_cond *c, int net, int head)
{
  int amount = tt_flow_amount(c->speedinter);
  const int *list = tt_ends_nets(&s->ends, s->ends.nets, head);
  if (!heads_take(s, net, head, c->typeinter, amount)) {
    return false;
  }
  for (int i = 1; i <= list[0]; i++) {
    if (!tt_search_nets_ok(s, c, net, list[i]) || !heads_take(s, head, list[i], c->typeinter, amount)) {
      continue;
    }
    if (take_edges(s, c, head)) {
      set_channel(s, head, net, list[i]);
      s->now.latencyinter = s->topo->nodes[net].net.latency;
      return true;
    }
    tt_search_give(s, head, list[i], amount);
  }
  tt_search_give(s, net, head, amount);
  return false;
}

static bool add_at_net(tt_search *s, const tt_cond *c, int net)
{
  int port = tt_flow_port_amount(c->speedinter);
  if ((s->collnet && s->topo->nodes[net].net.coll == 0) || !tt_flow_take_port(&s->flow, net, port)) {
    return false;
  }
  int head = s->paths->net_gpu[net - s->ends.first_net];
  if (head >= 0 && head < s->ends.ngpus && !heads_is_head(s, head) && add_from(s, c, net, head)) {
    return true;
  }
  tt_flow_give_port(&s->flow, net, port);
  return false;
}

// Adds a channel. Inside a machine every GPU is a head in turn; with cards the heads are the GPUs that use them.
static bool heads_add_channel(tt_search *s, const tt_cond *c)
{
  const int *all = s->ends.all;
  int count = s->now.nchannels;
  if (!s->now.inter) {
    bool ok = count < s->ends.ngpus && take_edges(s, c, count);
    if (ok) {
      set_channel(s, count, -1, -1);
    }
    return ok;
  }
  for (int i = 0; i < all[0] && count < all[0]; i++) {
    if (add_at_net(s, c, all[1 + (count + i) % all[0]])) {
      return true;
    }
  }
  return false;
}

static void drop_channel(tt_search *s, const tt_cond *c)
{
  tt_graph *now = &s->now;
  int at = --now->nchannels, head = now->gpus[(size_t)at * (size_t)now->ngpus];
  give_edges(s, c, head, 2 * s->ends.ngpus);
  if (now->inter) {
    int in = now->nets[2 * at], out = now->nets[2 * at + 1], amount = tt_flow_amount(c->speedinter);
    tt_search_give(s, in, head, amount);
    tt_search_give(s, head, out, amount);
    tt_flow_give_port(&s->flow, in, tt_flow_port_amount(c->speedinter));
  }
}

bool tt_search_heads(tt_search *s, const tt_cond *c, tt_graph *best)
{
  bool full = false;
  s->now.nchannels = s->now.nhops = 0;
  while (s->now.nchannels < c->max && heads_add_channel(s, c)) {
    full = tt_search_consider(s, c, best) && s->now.nchannels == c->max;
  }
  while (s->now.nchannels > 0) {
    drop_channel(s, c);
  }
  return full;
}
