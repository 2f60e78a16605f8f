// topology.c: see topology.h.
#include "comm/topology.h"

#include <stdio.h>

#include "base/alike.h"
#include "base/log.h"
#include "base/param.h"
#include "base/util.h"
#include "comm/comm.h"
#include "comm/machine.h"
#include "comm/topology_priv.h"

enum { NOTE_TEXT = 484 };

// ---- Telling each other ----

// What every rank says of its work before the work itself travels.
typedef struct note {
  int32_t status; // ncclResult_t
  uint32_t size;  // of what it has
} note;
_Static_assert(sizeof(note) == 8, "bootstrap message layout");

// Why a rank has failed; told when some rank has.
typedef struct reason {
  char text[NOTE_TEXT];
} reason;
_Static_assert(sizeof(reason) == NOTE_TEXT, "bootstrap message layout");

// What all ranks have told.
typedef struct gathered {
  note *notes;
  reason *reasons; // NULL: no rank has failed
  char *data;      // block bytes each
  size_t block;
} gathered;

static void gathered_clear(gathered *g)
{
  tt_free(g->notes);
  tt_free(g->reasons);
  tt_free(g->data);
  *g = (gathered){0};
}

// Where some rank has failed all ranks tell why: those that have not have nothing to say.
static ncclResult_t gather_reasons(const struct ncclComm *c, gathered *g)
{
  bool failed = false;
  for (int i = 0; i < c->nranks; i++) {
    failed |= g->notes[i].status != ncclSuccess;
  }
  if (!failed) {
    return ncclSuccess;
  }
  reason own = {.text = ""};
  if (g->notes[c->rank].status != ncclSuccess) {
    snprintf(own.text, NOTE_TEXT, "%s", tt_last_error());
  }
  return tt_comm_exchange(c, &own, sizeof own, &g->reasons);
}

// Fails on all ranks when one has failed, with its text.
static ncclResult_t topology_judge(const struct ncclComm *c, gathered *g)
{
  for (int i = 0; i < c->nranks; i++) {
    const note *n = &g->notes[i];
    if (n->size > TT_XML_MAX_BYTES || n->status < ncclSuccess || n->status >= ncclNumResults) {
      return tt_fail(ncclInternalError, "rank %d has sent a wrong description of its machine: %u bytes, status %d", i,
                     n->size, (int)n->status);
    }
    if (n->status != ncclSuccess && i == c->rank) {
      return (ncclResult_t)n->status; // said already
    }
    if (n->status != ncclSuccess) {
      g->reasons[i].text[NOTE_TEXT - 1] = 0;
      return tt_fail((ncclResult_t)n->status, "%s (said by rank %d)", g->reasons[i].text, i);
    }
    g->block = TT_MAX(g->block, n->size);
  }
  return ncclSuccess;
}

// All ranks come here, also those that failed (`mine`) or have nothing to say (size 0).
static ncclResult_t topology_gather(const struct ncclComm *c, ncclResult_t mine, const char *bytes, size_t size,
                                    gathered *out)
{
  gathered g = {.notes = NULL};
  ncclResult_t res = ncclSuccess;
  if (mine == ncclSuccess && size > TT_XML_MAX_BYTES) {
    mine = tt_fail(ncclSystemError, "rank %d: its machine takes %zu bytes to tell, more than %d", c->rank, size,
                   TT_XML_MAX_BYTES);
    size = 0;
  }
  const note own = {.status = mine, .size = (uint32_t)size};
  TT_TRY(tt_comm_exchange(c, &own, sizeof own, &g.notes));
  TT_TRY_GOTO(gather_reasons(c, &g), res);
  TT_TRY_GOTO(topology_judge(c, &g), res);
  TT_TRY_GOTO(TT_NEW(g.data, (size_t)c->nranks * TT_MAX(g.block, 1),
                     "rank %d: no memory for what %d ranks tell of their machines", c->rank, c->nranks),
              res);
  if (size > 0) {
    memcpy(g.data + (size_t)c->rank * g.block, bytes, size);
  }
  TT_TRY_GOTO(c->nranks > 1 && g.block > 0 ? tt_bootstrap_allgather(c->boot, g.data, g.block) : ncclSuccess, res);
  *out = g;
  return ncclSuccess;
fail:
  gathered_clear(&g);
  return res;
}

// ---- Machines that files describe ----

// A rank's work on its node.
typedef struct work {
  const struct ncclComm *comm;
  int node, leader;
  tt_source_rank *places;
  bool *seen;
  tt_xml **views;
  tt_machine machine;
} work;

static void work_clear(work *w)
{
  for (int i = 0; w->views != NULL && i < w->machine.nviews; i++) {
    tt_xml_destroy(w->views[i]);
  }
  tt_free(w->places);
  tt_free(w->seen);
  tt_free(w->views);
}

static ncclResult_t work_prepare(work *w)
{
  const struct ncclComm *c = w->comm;
  size_t n = (size_t)c->nranks;
  w->places = tt_calloc(n, sizeof(*w->places));
  w->seen = tt_calloc(n, sizeof(*w->seen));
  w->views = tt_calloc(n, sizeof(tt_xml *));
  if (w->places == NULL || w->seen == NULL || w->views == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for the places of %d ranks", c->rank, c->nranks);
  }
  int nlocal = tt_topology_places(c, w->node, w->places);
  for (int i = 0; i < nlocal; i++) {
    w->seen[i] = tt_topology_same_view(c, w->places[i].rank, w->leader);
  }
  w->machine = (tt_machine){.rank = c->rank,
                            .nranks = c->nranks,
                            .ranks = w->places,
                            .nlocal = nlocal,
                            .seen = w->seen,
                            .views = w->views,
                            .apart = !tt_topology_same_view(c, c->rank, w->leader),
                            .host = c->peers[w->leader].at.host,
                            .file = tt_params_get()->topo_file,
                            .plain = tt_topology_is_plain(c, w->node),
                            .needs_net = c->network.needed,
                            .net = c->network.ops};
  return ncclSuccess;
}

// What this rank sees. A rank that sees something else than the node's leader sees itself alone.
static ncclResult_t own_view(const work *w, char **text, size_t *size)
{
  tt_machine alone = w->machine;
  bool yes = true;
  tt_xml *xml = NULL;
  if (w->machine.apart) {
    alone.ranks += w->comm->layout->index_of[w->comm->rank];
    alone.nlocal = 1;
    alone.seen = &yes;
    alone.apart = false;
  }
  TT_TRY(tt_machine_document(&alone, &xml));
  ncclResult_t res = tt_xml_text(xml, text, size);
  tt_xml_destroy(xml);
  return res;
}

static ncclResult_t read_views(work *w, const gathered *g)
{
  for (int i = 0; i < w->machine.nlocal; i++) {
    int rank = w->places[i].rank;
    char name[32];
    if (g->notes[rank].size == 0 || (rank == w->leader && !w->machine.apart)) {
      continue; // nothing, or what this rank sees itself
    }
    snprintf(name, sizeof(name), "view of rank %d", rank);
    TT_TRY(tt_xml_parse(name, g->data + (size_t)rank * g->block, g->notes[rank].size, &w->views[w->machine.nviews]));
    w->machine.nviews++;
  }
  return ncclSuccess;
}

// The same answer on every rank.
static bool views_differ(const struct ncclComm *c)
{
  bool differ = false;
  for (int node = 0; node < c->layout->nnodes; node++) {
    differ |= tt_topology_views_differ(c, node);
  }
  return differ;
}

// On failure all ranks know.
static ncclResult_t exchange_views(const work *w, gathered *out)
{
  const struct ncclComm *c = w->comm;
  char *text = NULL;
  size_t size = 0;
  ncclResult_t res = tt_topology_tells_view(c, c->rank) ? own_view(w, &text, &size) : ncclSuccess;
  res = topology_gather(c, res, text, size, out);
  tt_free(text);
  return res;
}

// NCCL_TOPO_DUMP_FILE: the node's document, written by the rank that is asked to.
static bool dumps(const struct ncclComm *c)
{
  return tt_params_get()->topo_dump_file != NULL && tt_params_get()->topo_dump_file_rank == c->rank;
}

static ncclResult_t do_work(const work *w, char **bytes, size_t *size)
{
  const struct ncclComm *c = w->comm;
  const tt_params *p = tt_params_get();
  bool leads = w->leader == c->rank, needed = dumps(c) || tt_machine_needs_document(&w->machine);
  tt_node_shapes shapes = {0};
  tt_xml *xml = NULL;
  ncclResult_t res = ncclSuccess;
  if (!leads && !dumps(c)) {
    return ncclSuccess;
  }
  if (p->topo_file != NULL) {
    tt_info(TT_ENV, "NCCL_TOPO_FILE set by environment to %s", p->topo_file);
  }
  if (leads) {
    tt_topology_say_differences(c, w->node);
  }
  TT_TRY_GOTO(needed ? tt_machine_document(&w->machine, &xml) : ncclSuccess, res);
  if (dumps(c)) {
    tt_info(TT_ENV, "NCCL_TOPO_DUMP_FILE set by environment to %s", p->topo_dump_file);
    TT_TRY_GOTO(tt_xml_write(xml, p->topo_dump_file), res);
  }
  if (leads) {
    TT_TRY_GOTO(tt_machine_shapes(&w->machine, xml, &shapes), res);
    TT_TRY_GOTO(tt_node_shapes_write(&shapes, bytes, size), res);
  }
fail:
  tt_node_shapes_clear(&shapes);
  tt_xml_destroy(xml);
  return res;
}

// Every node's bytes come from its leader.
static ncclResult_t gather_nodes(const struct ncclComm *c, gathered *out)
{
  work w = {.comm = c, .node = c->layout->node_of[c->rank]};
  char *bytes = NULL;
  size_t size = 0;
  w.leader = tt_topology_leader(c->layout, w.node);
  ncclResult_t res = work_prepare(&w);
  if (res == ncclSuccess && views_differ(c)) {
    gathered views = {0};
    TT_TRY_GOTO(exchange_views(&w, &views), res);
    w.machine.apart |= tt_topology_tells_view(c, c->rank); // a leader that has told it needs not look again
    res = read_views(&w, &views);
    gathered_clear(&views);
  }
  res = res == ncclSuccess ? do_work(&w, &bytes, &size) : res;
  res = topology_gather(c, res, bytes, size, out);
fail:
  tt_free(bytes);
  work_clear(&w);
  return res;
}

// ---- From nodes to channels ----

// The graphs of a node, as bytes.
typedef struct node_bytes {
  const char *at;
  size_t size;
} node_bytes;

// Collects what tt_connect_create wants.
typedef struct joint {
  const struct ncclComm *comm;
  gathered got;      // empty when all nodes are plain
  node_bytes *bytes; // of each node of the layout: within `got`, or else ours
  tt_node_shapes *kinds;
  int nkinds;
  int *kind_of;     // of each node of the layout
  int *shape_first; // [kind]: number of its first group's shape
  int *node_of;     // of each rank: node in the sense of connect.h
  int *shape_of, *founder;
  tt_plan_shape *shapes;
  tt_plan_machine machine;
  int nnodes, nshapes, wanted;
} joint;

static void joint_clear(joint *j)
{
  for (int k = 0; k < j->nkinds; k++) {
    tt_node_shapes_clear(&j->kinds[k]);
  }
  for (int node = 0; node < j->comm->layout->nnodes && j->bytes != NULL && j->got.data == NULL; node++) {
    tt_free((char *)(uintptr_t)j->bytes[node].at);
  }
  gathered_clear(&j->got);
  tt_free(j->bytes);
  tt_free(j->kinds);
  tt_free(j->kind_of);
  tt_free(j->shape_first);
  tt_free(j->node_of);
  tt_free(j->shape_of);
  tt_free(j->founder);
  tt_free(j->shapes);
}

static ncclResult_t joint_room(joint *j)
{
  size_t n = (size_t)j->comm->nranks, nodes = (size_t)j->comm->layout->nnodes;
  j->bytes = tt_calloc(nodes, sizeof(*j->bytes));
  j->kinds = tt_calloc(nodes, sizeof(*j->kinds));
  j->kind_of = tt_calloc(nodes, sizeof(int));
  j->shape_first = tt_calloc(nodes, sizeof(int));
  j->node_of = tt_calloc(n, sizeof(int));
  j->shape_of = tt_calloc(n, sizeof(int));
  j->founder = tt_calloc(n, sizeof(int));
  bool all = j->bytes != NULL && j->kinds != NULL && j->kind_of != NULL && j->shape_first != NULL &&
             j->node_of != NULL && j->shape_of != NULL && j->founder != NULL;
  return all ? ncclSuccess
             : tt_fail(ncclSystemError, "rank %d: no memory for the channels of %d ranks", j->comm->rank,
                       j->comm->nranks);
}

// The bytes of a plain node, which every rank can write.
static ncclResult_t plain_node(const struct ncclComm *c, int node, node_bytes *out)
{
  tt_node_shapes s = {0};
  tt_source_rank *places;
  TT_TRY(
      TT_NEW(places, tt_layout_size(c->layout, node), "rank %d: no memory for the places of a node's ranks", c->rank));
  int n = tt_topology_places(c, node, places);
  ncclResult_t res = tt_node_shapes_plain(places, n, n < c->nranks, &s);
  char *bytes = NULL;
  res = res == ncclSuccess ? tt_node_shapes_write(&s, &bytes, &out->size) : res;
  out->at = bytes;
  tt_node_shapes_clear(&s);
  tt_free(places);
  return res;
}

static int by_bytes(const void *a, const void *b)
{
  const node_bytes *x = *(const node_bytes *const *)a, *y = *(const node_bytes *const *)b;
  return x->size != y->size ? (x->size > y->size) - (x->size < y->size) : memcmp(x->at, y->at, x->size);
}

// Nodes of the same bytes are of one kind. Kinds are numbered by their first nodes.
static ncclResult_t read_kinds(joint *j)
{
  const tt_layout *l = j->comm->layout;
  TT_TRY(tt_alike(j->bytes, sizeof(*j->bytes), l->nnodes, by_bytes, j->kind_of));
  for (int node = 0; node < l->nnodes; node++) {
    bool known = j->kind_of[node] < node;
    int k = known ? j->kind_of[j->kind_of[node]] : j->nkinds, n = tt_layout_size(l, node);
    j->kind_of[node] = k;
    if (!known) {
      TT_TRY(tt_node_shapes_read(j->bytes[node].at, j->bytes[node].size, &j->kinds[k]));
      j->nkinds++;
    }
    if (j->kinds[k].nranks != n) {
      return tt_fail(ncclInternalError, "the graphs of node %d are for %d ranks, it has %d", node, j->kinds[k].nranks,
                     n);
    }
  }
  return ncclSuccess;
}

static ncclResult_t find_kinds(joint *j)
{
  const struct ncclComm *c = j->comm;
  for (int node = 0; node < c->layout->nnodes; node++) {
    int leader = tt_topology_leader(c->layout, node);
    if (j->got.data == NULL) {
      TT_TRY(plain_node(c, node, &j->bytes[node]));
    } else {
      j->bytes[node] =
          (node_bytes){.at = j->got.data + (size_t)leader * j->got.block, .size = j->got.notes[leader].size};
    }
  }
  return read_kinds(j);
}

static ncclResult_t list_shapes(joint *j)
{
  int count = 0;
  for (int k = 0; k < j->nkinds; k++) {
    count += j->kinds[k].ngroups;
  }
  TT_TRY(TT_NEW(j->shapes, count, "rank %d: no memory for the graphs of %d groups of ranks", j->comm->rank, count));
  for (int k = 0; k < j->nkinds; k++) {
    j->shape_first[k] = j->nshapes;
    for (int g = 0; g < j->kinds[k].ngroups; g++) {
      const tt_node_group *group = &j->kinds[k].group[g];
      j->machine = j->nshapes == 0 ? group->machine : tt_plan_join(&j->machine, &group->machine);
      j->wanted = j->nshapes == 0 ? group->p2p_wanted : TT_MIN(j->wanted, group->p2p_wanted);
      j->shapes[j->nshapes++] = group->shape;
    }
  }
  return ncclSuccess;
}

// Writes the first rank of each rank's group into node_of. Uses `founder` for the first rank of each group of a node.
static void find_founders(joint *j)
{
  const tt_layout *l = j->comm->layout;
  for (int node = 0; node < l->nnodes; node++) {
    const tt_node_shapes *kind = &j->kinds[j->kind_of[node]];
    for (int g = 0; g < kind->ngroups; g++) {
      j->founder[g] = -1;
    }
    for (int i = 0; i < tt_layout_size(l, node); i++) {
      int rank = l->order[l->first[node] + i], *first = &j->founder[kind->group_of[i]];
      *first = *first < 0 ? rank : *first;
      j->node_of[rank] = *first;
    }
  }
}

// Nodes of the connection are the groups of the layout's nodes, in the order of their first ranks.
static void topology_number_nodes(joint *j)
{
  const tt_layout *l = j->comm->layout;
  find_founders(j);
  for (int r = 0; r < j->comm->nranks; r++) {
    int founder = j->node_of[r], kind = j->kind_of[l->node_of[r]];
    if (founder == r) {
      j->shape_of[j->nnodes] = j->shape_first[kind] + j->kinds[kind].group_of[l->index_of[r]];
      j->founder[r] = j->nnodes++;
    }
    j->node_of[r] = j->founder[founder];
  }
}

// NCCL's options with rank 0's configuration; a plain machine has one channel.
static tt_connect_options options_of(const struct ncclComm *c, bool plain)
{
  tt_connect_options o = tt_connect_options_from(tt_params_get());
  o.min_ctas = c->peers[0].min_ctas;
  o.max_ctas = c->peers[0].max_ctas;
  o.collnet = false; // no network here reduces
  if (plain) {       // nothing suggests a second way
    o.max_channels = 1;
    o.min_channels = -2;
    o.min_ctas = 1;
  }
  if (o.max_channels == -2 && tt_topology_is_one_gpu(c)) { // the model's bandwidth within a GPU has room for dozens
    o.max_channels = 1;
  }
  return o;
}

static ncclResult_t topology_connect(joint *j, tt_topology *t)
{
  const struct ncclComm *c = j->comm;
  tt_connect_options opt = options_of(c, t->plain);
  tt_model_options model = tt_model_options_from(tt_params_get());
  TT_TRY(list_shapes(j));
  topology_number_nodes(j);
  tt_connect_input in = {.nranks = c->nranks,
                         .nnodes = j->nnodes,
                         .nshapes = j->nshapes,
                         .node_of = j->node_of,
                         .shape_of = j->shape_of,
                         .shapes = j->shapes,
                         .machine = j->machine,
                         .opt = &opt};
  TT_TRY(tt_connect_create(&in, &t->connect));
  model.algo = model.proto = NULL;
  if (!t->plain) { // nobody asks how fast a plain host's GPUs would be
    TT_TRY(tt_model_make(&(tt_model_input){.connect = t->connect, .opt = &model}, &t->model));
  }
  t->p2p = tt_p2p_agree(t->connect, j->wanted);
  t->kinds = j->kinds; // the connection's arrays
  t->nkinds = j->nkinds;
  return ncclSuccess;
}

static bool all_plain(const struct ncclComm *c)
{
  bool plain = true;
  for (int node = 0; node < c->layout->nnodes; node++) {
    plain &= tt_topology_is_plain(c, node);
  }
  return plain;
}

ncclResult_t tt_topology_create(const struct ncclComm *comm, tt_topology **out)
{
  joint j = {.comm = comm};
  tt_topology *t = NULL;
  ncclResult_t res = ncclSuccess;
  if (tt_topology_anything_to_see(comm)) {
    TT_TRY(gather_nodes(comm, &j.got));
  }
  TT_TRY_GOTO(TT_NEW(t, 1, "rank %d: no memory for the channels", comm->rank), res);
  t->plain = all_plain(comm);
  TT_TRY_GOTO(joint_room(&j), res);
  TT_TRY_GOTO(find_kinds(&j), res);
  TT_TRY_GOTO(topology_connect(&j, t), res);
  j.kinds = NULL;
  j.nkinds = 0;
  tt_topology_log(t, comm->rank);
  *out = t;
  t = NULL;
fail:
  tt_topology_destroy(t);
  joint_clear(&j);
  return res;
}

void tt_topology_destroy(tt_topology *t)
{
  if (t == NULL) {
    return;
  }
  tt_connect_destroy(t->connect);
  for (int k = 0; k < t->nkinds; k++) {
    tt_node_shapes_clear(&t->kinds[k]);
  }
  tt_free(t->kinds);
  tt_free(t);
}

int tt_topology_channels(const tt_topology *t)
{
  return t->connect->nchannels;
}

ncclResult_t tt_topology_rings(const tt_topology *t, int *nchannels, int **out)
{
  int n = t->connect->nchannels, nranks = t->connect->nranks;
  int *orders;
  TT_TRY(TT_NEW(orders, n * (size_t)nranks, "no memory for the rings of %d channels of %d ranks", n, nranks));
  for (int ch = 0; ch < n; ch++) {
    tt_connect_ring(t->connect, ch, 0, orders + (size_t)ch * (size_t)nranks);
  }
  *nchannels = n;
  *out = orders;
  return ncclSuccess;
}

// Parents in every channel's tree.
static int *list_parents(const tt_topology *t)
{
  int n = t->connect->nranks;
  int *ups = tt_calloc((size_t)t->connect->nchannels * (size_t)n, sizeof(int));
  for (int i = 0; ups != NULL && i < t->connect->nchannels * n; i++) {
    ups[i] = tt_connect_tree(t->connect, i / n, i % n).up;
  }
  return ups;
}

ncclResult_t tt_topology_give(const tt_topology *t, tt_layout *layout)
{
  int count = 0, *rings = NULL;
  if (t->plain || t->connect->nranks == 1) {
    return ncclSuccess;
  }
  TT_TRY(tt_topology_rings(t, &count, &rings));
  int *ups = list_parents(t);
  const tt_node_group *all = &t->kinds[0].group[0]; // packed trees are for all ranks
  bool packed = all->npacked > 0 && all->shape.ngpus == t->connect->nranks;
  const tt_channels channels = {.count = count,
                                .rings = rings,
                                .ups = ups,
                                .npacked = packed ? all->npacked : 0,
                                .packed = packed ? all->packed : NULL};
  ncclResult_t res = ups != NULL ? tt_layout_set_channels(layout, &channels)
                                 : tt_fail(ncclSystemError, "no memory for the trees of %d channels", count);
  tt_free(ups);
  tt_free(rings);
  return res;
}

tt_model_algo tt_topology_algo(const tt_topology *t, const tt_model *model, tt_model_func func, size_t bytes)
{
  static const tt_model_algo known[] = {TT_MODEL_RING, TT_MODEL_TREE, TT_MODEL_PAT};
  tt_model_algo best = TT_MODEL_ALGOS;
  float least = -1;
  for (int i = 0; i < (int)TT_COUNT(known) * TT_MODEL_PROTOS && !t->plain; i++) {
    tt_model_op op = {.func = func, .bytes = bytes};
    float us = tt_model_time(model != NULL ? model : &t->model, &op, known[i / TT_MODEL_PROTOS],
                             (tt_model_proto)(i % TT_MODEL_PROTOS));
    if (us >= 0 && (least < 0 || us < least)) {
      least = us;
      best = known[i / TT_MODEL_PROTOS];
    }
  }
  return best;
}
