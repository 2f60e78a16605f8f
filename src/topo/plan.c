// plan.c: from a machine and its graphs to what connecting needs: GPUs by their number among the machine's ranks.
#include "topo/connect.h"

#include "base/util.h"

// How many of the machine's ranks are below that of a GPU node.
static int plan_number_of(const tt_topo *topo, int node)
{
  int n = 0;
  for (int g = topo->first[TT_NODE_GPU]; g < topo->first[TT_NODE_GPU + 1]; g++) {
    n += topo->nodes[g].gpu.rank < topo->nodes[node].gpu.rank;
  }
  return n;
}

static tt_plan_graph plan_graph(const tt_graph *g, const int *numbers, int first, int *to)
{
  tt_plan_graph p = {.pattern = g->pattern,
                     .nchannels = g->nchannels,
                     .cross_nic = g->crossnic,
                     .same_channels = g->samechannels,
                     .type_intra = g->typeintra,
                     .type_inter = g->typeinter,
                     .bw_intra = g->speedintra,
                     .bw_inter = g->speedinter,
                     .latency_inter = g->latencyinter};
  if (g->nchannels == 0) {
    return p;
  }
  for (int i = 0; i < g->nchannels * g->ngpus; i++) {
    to[i] = numbers[g->gpus[i] - first];
  }
  p.gpus = to;
  if (g->inter && g->nets != NULL) {
    p.nets = memcpy(to + g->nchannels * g->ngpus, g->nets, 2 * (size_t)g->nchannels * sizeof(int));
  }
  return p;
}

ncclResult_t tt_plan_shape_make(const tt_topo *topo, const tt_graphs *graphs, tt_plan_shape *out)
{
  int ngpus = tt_topo_count(topo, TT_NODE_GPU), first = topo->first[TT_NODE_GPU];
  size_t room = (size_t)ngpus;
  for (int k = 0; k < TT_GRAPH_KINDS; k++) {
    room += (size_t)graphs->graph[k].nchannels * (size_t)(ngpus + 2);
  }
  int *memory;
  TT_TRY(TT_NEW(memory, room, "no memory for the channels of %d GPUs", ngpus));
  for (int i = 0; i < ngpus; i++) {
    memory[i] = plan_number_of(topo, first + i);
  }
  *out = (tt_plan_shape){.ngpus = ngpus, .memory = memory};
  int *to = memory + ngpus;
  for (int k = 0; k < TT_GRAPH_KINDS; k++) {
    out->graph[k] = plan_graph(&graphs->graph[k], memory, first, to);
    to += graphs->graph[k].nchannels * (ngpus + 2);
  }
  return ncclSuccess;
}

int tt_plan_heads(const tt_plan_shape *s, tt_graph_kind graph)
{
  const tt_plan_graph *g = &s->graph[graph];
  int n = 0;
  for (int ch = 0; ch < g->nchannels; ch++) {
    int before = 0;
    while (g->gpus[(size_t)before * (size_t)s->ngpus] != g->gpus[(size_t)ch * (size_t)s->ngpus]) {
      before++;
    }
    n += before == ch;
  }
  return n;
}

void tt_plan_shape_clear(tt_plan_shape *shape)
{
  tt_free(shape->memory);
  *shape = (tt_plan_shape){0};
}

// The slowest way from a GPU to one of the cards that its channels use.
static float slowest_net(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, int gpu)
{
  int nets[TT_PATHS_MAX_NETS], count = tt_topo_gpu_nets(topo, paths, rules, gpu, nets);
  float least = count > 0 ? tt_path_get(paths, gpu, nets[0])->bw : 0;
  for (int i = 1; i < count; i++) {
    least = TT_MIN(least, tt_path_get(paths, gpu, nets[i])->bw);
  }
  return least;
}

tt_plan_machine tt_plan_look(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules)
{
  tt_plan_machine m = {.nvswitch = tt_topo_count(topo, TT_NODE_NVS) > 0};
  for (int g = topo->first[TT_NODE_GPU], i = 0; g < topo->first[TT_NODE_GPU + 1]; g++, i++) {
    int cc = topo->nodes[g].gpu.sm;
    float bw = slowest_net(topo, paths, rules, g);
    m.cc_min = i == 0 ? cc : TT_MIN(m.cc_min, cc);
    m.cc_max = i == 0 ? cc : TT_MAX(m.cc_max, cc);
    m.net_bw = i == 0 ? bw : TT_MIN(m.net_bw, bw);
  }
  if (tt_topo_count(topo, TT_NODE_CPU) > 0) {
    const tt_topo_node *cpu = &topo->nodes[topo->first[TT_NODE_CPU]];
    m.cpu_arch = cpu->cpu.arch;
    m.cpu_vendor = cpu->cpu.vendor;
  }
  return m;
}

tt_plan_machine tt_plan_join(const tt_plan_machine *a, const tt_plan_machine *b)
{
  return (tt_plan_machine){
      .cc_min = TT_MIN(a->cc_min, b->cc_min),
      .cc_max = TT_MAX(a->cc_max, b->cc_max),
      .cpu_arch = a->cpu_arch == b->cpu_arch ? a->cpu_arch : TT_CPU_MIXED,
      .cpu_vendor = a->cpu_vendor == b->cpu_vendor ? a->cpu_vendor : TT_CPU_MIXED,
      .nvswitch = a->nvswitch && b->nvswitch,
      .net_bw = TT_MIN(a->net_bw, b->net_bw),
  };
}
