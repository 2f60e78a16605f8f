// alltoall.c: all-to-all: a message from every rank to every other. NCCL has no cost model for messages, so nothing is
// chosen; what can be said is the least time that the links allow.
#include <stdio.h>

#include "base/param.h"
#include "base/util.h"
#include "commands.h"
#include "tools/cards.h"

// ---- What every link carries ----

static void add_path(const xp_machine *m, double *load, const int ends[2], double blocks)
{
  const tt_path *p = tt_path_get(m->paths, ends[0], ends[1]);
  for (int h = 0; h < p->count && p->type != TT_PATH_DIS; h++) {
    load[m->paths->hops[p->first + h]] += blocks;
  }
}

// A message from GPU node `ends[0]` to a rank elsewhere that sits on such a GPU as node `ends[1]`: out by the card that
// the sender takes, in by that of the receiver. Its parts go over several channels.
static bool add_remote(const xp_machine *m, double *load, const int ends[2], double blocks)
{
  const tt_params *params = tt_params_get();
  tt_p2p_rules rules = {.cross_nic = (int)TT_CLAMP(params->cross_nic, 0, 2),
                        .pxn = params->p2p_pxn_level < 0 ? 2 : (int)TT_MIN(params->p2p_pxn_level, 2)};
  int parts = TT_MAX(m->p2p.per_peer, 1);
  for (int c = 0; c < parts; c++) {
    tt_p2p_part part = {.gpu = ends[0], .peer_dev = m->topo->nodes[ends[1]].gpu.dev, .channel = c};
    tt_net_choice out = tt_p2p_net(m->topo, m->paths, &m->rules, rules, part);
    int in = tt_topo_gpu_net(m->topo, m->paths, &m->rules, ends[1], c);
    if (out.net < 0 || in < 0) {
      return false;
    }
    add_path(m, load, (int[]){ends[0], out.proxy}, blocks / parts);
    add_path(m, load, (int[]){out.proxy, out.net}, blocks / parts);
    add_path(m, load, (int[]){in, ends[1]}, blocks / parts);
    xp_shared_pair(m, (int[]){out.net, in}, 1.0 / parts);
  }
  return true;
}

// All messages between two ranks of this machine, and from the first to the second's twins elsewhere.
static bool add_pair(const xp_machine *m, const int ends[2], xp_messages *out)
{
  double remote = m->nodes - 1;
  if (ends[0] != ends[1]) {
    bool near = tt_path_get(m->paths, ends[0], ends[1])->type < TT_PATH_NET;
    add_path(m, out->load, ends, near ? 1 : 0);
    out->near += near;
    remote += !near;
  }
  out->far += remote;
  return remote == 0 || add_remote(m, out->load, ends, remote);
}

ncclResult_t xp_messages_make(const xp_machine *m, xp_messages *out)
{
  const tt_topo *t = m->topo;
  *out = (xp_messages){
      .peers = m->model.nranks - 1, .bound = -1, .load = tt_calloc((size_t)t->nlinks + 1, sizeof(double))};
  if (out->load == NULL) {
    return tt_fail(ncclSystemError, "no memory for %d links", t->nlinks);
  }
  out->reached = true;
  for (int i = 0; i < m->nranks * m->nranks && out->reached; i++) {
    out->reached = add_pair(m, (int[]){tt_topo_rank_node(t, i / m->nranks), tt_topo_rank_node(t, i % m->nranks)}, out);
  }
  out->near /= m->nranks;
  out->far /= m->nranks;
  for (int l = 0; l < t->nlinks; l++) {
    double each = out->load[l] / (double)t->links[l].bw;
    out->bound = each > out->most ? l : out->bound;
    out->most = TT_MAX(out->most, each);
  }
  double shared = xp_shared_most(m, out->shared);
  out->bound = shared > out->most ? -1 : out->bound;
  out->most = TT_MAX(out->most, shared);
  return ncclSuccess;
}

ncclResult_t xp_messages_check(const xp_machine *m, const xp_messages *x)
{
  return x->reached
             ? ncclSuccess
             : tt_fail(ncclInvalidArgument, "%s: ranks have no network port to reach other machines by", m->name);
}

void xp_messages_clear(xp_messages *x)
{
  tt_free(x->load);
  x->load = NULL;
}

double xp_messages_time(const xp_messages *x, size_t bytes)
{
  return x->most * (double)bytes / (x->peers + 1) / 1e3;
}

// ---- explain ----

enum { NAMED = 4 };

static const char *link_text(const xp_machine *m, int l, const char *arrow, char text[192])
{
  const tt_topo_link *link = &m->topo->links[l];
  char a[64], b[64];
  snprintf(text, 192, "%s %s %s %s", xp_node_name(m->topo, link->from, a, sizeof(a)), xp_link_kind(m->topo, link),
           arrow, xp_node_name(m->topo, link->to, b, sizeof(b)));
  return text;
}

const char *xp_messages_bound(const xp_machine *m, const xp_messages *x, const char *arrow, char text[192])
{
  if (x->bound < 0) {
    snprintf(text, 192, "%s", x->shared[0] != 0 ? x->shared : "nothing");
    return text;
  }
  return link_text(m, x->bound, arrow, text);
}

static bool is_fullest(const xp_machine *m, const xp_messages *x, int l)
{
  return x->load[l] / (double)m->topo->links[l].bw >= x->most * 0.999 && x->most > 0;
}

static void write_fullest(const xp_machine *m, const xp_messages *x, size_t block, const xp_print *out)
{
  char text[192], size[32];
  int count = 0;
  xp_text line = {0};
  if (x->bound < 0 && x->shared[0] != 0) {
    xp_say(out, 4, "  the link that takes longest: %s, which machines share", x->shared);
    return;
  }
  for (int l = 0; l < m->topo->nlinks; l++) {
    if (is_fullest(m, x, l) && count++ < NAMED) {
      xp_add(&line, "%s%s (%s at %g GB/s)", count == 1 ? "  the links that take longest: " : ", ",
             link_text(m, l, xp_arrow(out), text), xp_bytes((size_t)(x->load[l] * (double)block), size, sizeof(size)),
             (double)m->topo->links[l].bw);
    }
  }
  if (count > NAMED) {
    xp_add(&line, " and %d more", count - NAMED);
  }
  xp_flow(out, 0, 4, line.buf);
}

static void explain_text(const xp_options *o, const xp_machine *m, const xp_messages *x, xp_print *out)
{
  char size[32], block[32], near[32], far[32];
  size_t each = o->bytes / (size_t)(x->peers + 1);
  double us = xp_messages_time(x, o->bytes), algbw = us > 0 ? (double)o->bytes / us / 1e3 : 0;
  xp_say(out, 2, "AllToAll of %s (%s) on %d ranks, %d node%s: %d message%s of %s from each rank",
         xp_bytes(o->bytes, size, sizeof(size)), xp_type_of(o), x->peers + 1, m->model.nnodes,
         m->model.nnodes == 1 ? "" : "s", x->peers, x->peers == 1 ? "" : "s", xp_bytes(each, block, sizeof(block)));
  xp_say(out, 2, "at least %.2f us: %.4g GB/s, bus bandwidth %.4g GB/s", us, algbw,
         algbw * xp_bus_factor(XP_ALL_TO_ALL, x->peers + 1));
  fprintf(out->f, "\n%sWhy%s\n", xp_ansi(out, XP_BOLD), xp_ansi(out, XP_PLAIN));
  xp_say(out, 4,
         "  no algorithm is chosen: all-to-all is messages, and NCCL has no cost model for them; the time is the least "
         "that the links "
         "allow, without latency");
  if (x->far > 0) {
    xp_say(out, 4, "  each rank sends %s inside its node, %s over the network",
           xp_bytes((size_t)(x->near * (double)each), near, sizeof(near)),
           xp_bytes((size_t)(x->far * (double)each), far, sizeof(far)));
  }
  write_fullest(m, x, each, out);
  xp_say_host(out, m->topo, XP_ALL_TO_ALL);
  xp_say(out, 4, "  channels: up to %d for each peer, of %d", m->p2p.per_peer, m->p2p.channels);
}

static void explain_json(const xp_options *o, const xp_machine *m, const xp_messages *x, xp_print *out)
{
  char text[192];
  int count = 0;
  double us = xp_messages_time(x, o->bytes), algbw = us > 0 ? (double)o->bytes / us / 1e3 : 0;
  fprintf(out->f, "{\n  \"machine\": ");
  xp_json_text(out->f, m->name);
  fprintf(out->f, ",\n  \"function\": \"AllToAll\", \"bytes\": %zu, \"type\": \"%s\", \"ranks\": %d, \"nodes\": %d,\n",
          o->bytes, xp_type_of(o), x->peers + 1, m->model.nnodes);
  fprintf(out->f,
          "  \"choice\": null,\n  \"messages\": {\"each\": %zu, \"near\": %g, \"far\": %g, \"channels\": %d, "
          "\"channels_per_peer\": %d},\n",
          o->bytes / (size_t)(x->peers + 1), x->near, x->far, m->p2p.channels, m->p2p.per_peer);
  fprintf(out->f, "  \"least\": {\"us\": %.4f, \"algbw\": %.4f, \"busbw\": %.4f},\n  \"links\": [", us, algbw,
          algbw * xp_bus_factor(XP_ALL_TO_ALL, x->peers + 1));
  for (int l = 0; l < m->topo->nlinks; l++) {
    if (is_fullest(m, x, l)) {
      fputs(count++ > 0 ? ", " : "", out->f);
      xp_json_text(out->f, link_text(m, l, "->", text));
    }
  }
  fputc(']', out->f);
  if (x->bound < 0 && x->shared[0] != 0) {
    fprintf(out->f, ",\n  \"shared\": \"%s\"", x->shared);
  }
  fprintf(out->f, "\n}\n");
}

int xp_explain_messages(const xp_options *o, const xp_machine *m, bool json, xp_print *out)
{
  xp_messages x;
  if (m->model.nranks == 1 && !json) {
    xp_say(out, 2, "AllToAll on 1 rank: one rank alone copies, nothing is sent");
    return 0;
  }
  ncclResult_t res = xp_messages_make(m, &x);
  res = res == ncclSuccess ? xp_messages_check(m, &x) : res;
  if (res == ncclSuccess) {
    (json ? explain_json : explain_text)(o, m, &x, out);
  }
  xp_messages_clear(&x);
  return res == ncclSuccess ? 0 : xp_complain(xp_code_of(res));
}
