// search_priv.h: what the parts of the search share: the machine as the search sees it, links' bandwidth, conditions.
#pragma once
#include "topo/graph.h"

// ---- search_flow.c: bandwidth that is left on every link ----

// Numbers from `first` to `end` - 1.
typedef struct tt_search_span {
  int first, end;
} tt_search_span;

// Amounts are MB/s in whole numbers, so that taking and giving back leave no trace.
typedef struct tt_flow {
  const tt_topo *topo;
  const tt_paths *paths;
  int *left;        // of every link
  int *port_left;   // of every network port: NETs of one port share one entry
  int *port;        // NET number → entry of port_left
  uint8_t *how;     // of every link: FLOW_…
  uint64_t *weight; // of every link and port, for the hash
  bool *wasteful;   // [gpu * ends + end]: the path from the GPU costs more on PCI links
  int ngpus;
  bool simple; // no link costs anything on its way back
  // Of all that is left: the same amounts have the same hash, whatever the order in which they were taken.
  uint64_t hash;
} tt_flow;

// Everything left; memory is of `arena`. Errors: ncclSystemError (no memory).
ncclResult_t tt_flow_create(const tt_topo *topo, const tt_paths *paths, tt_arena *arena, tt_flow *f);

// Takes bandwidth on the path between two ends; false when a link has too little: then nothing is taken.
bool tt_flow_take(tt_flow *f, int from, int to, int amount);
// Gives back what tt_flow_take took.
void tt_flow_give(tt_flow *f, int from, int to, int amount);

// The same with the port of a NET, which is what its card sends or receives however it is reached.
bool tt_flow_take_port(tt_flow *f, int net, int amount);
void tt_flow_give_port(tt_flow *f, int net, int amount);

static inline int tt_flow_amount(float bw)
{
  return (int)(bw * 1000.0f + 0.5f);
}

// A port's share counts whole GB/s, as NCCL counts it: ten ports of 2.4 GB/s are as good as ten of 2.
static inline int tt_flow_port_amount(float bw)
{
  return (int)bw * 1000;
}

// ---- search_ends.c: which ends are worth trying, in which order ----

// Fewest links, among paths of some types.
typedef struct tt_least {
  int intra, inter;     // types between GPUs, and between GPU and net
  int edge, ring, last; // of an edge between GPUs, of each GPU's shortest together, the longest of those
  int in, out;          // from a net, to a net
  int stuck;            // GPUs from which there is no edge
  bool unreached;       // there is no way from or to any net
  bool counted;
} tt_least;

typedef struct tt_ends {
  const tt_topo *topo;
  const tt_paths *paths;
  const tt_topo_rules *rules;
  int ngpus, nnets, first_net;
  bool nvs;
  unsigned intra_types, inter_types; // bit t: some pair of GPUs, or GPU and NET, has a path of type t
  int min_intra, max_intra, min_inter, max_inter;
  tt_least least; // for the types of the last tt_ends_count
  int *plain;     // 0, 1, 2, …
  int *next;      // [gpu][ngpus - 1]: the others, best first
  int *starts;    // [net number][ngpus]: GPUs for a channel that comes by that net, best first
  int *liked;     // [gpu][nnets + 1]: nets that are the GPU's by preference; the number of them first
  int *all_liked;
  int *nets; // [gpu][nnets + 1]: nets to try on the way back, for the type of the last tt_ends_select; their number
             // first
  int *all;  // [nnets + 1]: nets to begin with
} tt_ends;

// Finds the ends of ways through the machine that `e` names, with its paths and rules. Memory is of `arena`. Errors:
// ncclSystemError (no memory).
ncclResult_t tt_ends_create(tt_arena *arena, tt_ends *e);

// Fills nets and all for ways of up to that type.
void tt_ends_select(tt_ends *e, int type);

// Fills least for ways of up to those types: `intra` between GPUs, `inter` between GPU and net.
void tt_ends_count(tt_ends *e, int intra, int inter);

// A GPU's list in `liked` or `nets`.
static inline int *tt_ends_nets(const tt_ends *e, int *lists, int gpu)
{
  return lists + gpu * (e->nnets + 1);
}

// ---- search_cuts.c: narrow places that GPUs share ----

typedef struct tt_cuts {
  int count;
  int *first; // cut i has links[first[i]] … links[first[i + 1] - 1]
  int *links; // that lead from one side to the other; the ways back are their `back`
} tt_cuts;

// Finds the cuts that bound what channels can carry; memory is of `arena`. Errors: ncclSystemError (no memory).
ncclResult_t tt_cuts_create(const tt_topo *topo, tt_arena *arena, tt_cuts *cuts);

// ---- search.c, search_run.c, search_heads.c ----

typedef struct tt_cond {
  int pattern, crossnic, typeintra, typeinter;
  float speedintra, speedinter;
  bool same;      // all channels have one order
  bool only_same; // and no others will be tried
  int min, max;   // channels
  float slower;   // the speed in proportion to the best graph's, when that speed was begun
  const int *pin; // the only nets to come by and to leave by; NULL: any
} tt_cond;

// Small, so that all of them stay in a core's cache.
typedef struct tt_memo_entry {
  uint32_t key;
  uint16_t age, hops;
} tt_memo_entry;

enum { TT_MEMO_SIZE = 1 << 15 };

// ---- search_flow.c: edges of a ring or tree ----

typedef struct tt_edge {
  int from, to; // nodes
  int amount;   // MB/s
  bool intra;
} tt_edge;

enum { TT_EDGES_MORE = 4 }; // edges of a channel beside one for each GPU

// Writes the edges of a channel to out (ngpus + TT_EDGES_MORE of them have room), returns how many.
int tt_graph_edges(const tt_graph *g, int channel, tt_edge *out);

// ---- The search ----

typedef struct tt_search {
  const tt_topo *topo;
  const tt_paths *paths;
  const tt_topo_rules *rules;
  const tt_search_options *options;
  tt_arena arena; // of all that follows, but for the graphs
  tt_flow flow;
  tt_ends ends;
  tt_cuts cuts;
  tt_memo_entry
      *memo;      // TT_MEMO_SIZE states that led nowhere better, each with the fewest hops that it was reached with
  uint16_t age;   // entries of other ages are of other conditions
  uint64_t *used; // [gpu]: bit c: in channel c
  bool *back;     // [channel][gpu]: the channel may end there
  tt_graph now;   // what the search stands at
  tt_graph part;  // a few channels of a graph, while they are searched again
  tt_edge *edges; // of one channel
  // Links of GPUs that edges of the condition's type take; GPU g's are first_lane[g] … first_lane[g + 1] - 1.
  int *lanes;
  int *first_lane;
  int *degrees;    // of each GPU: edges that may still leave it, and come to it, while room is counted
  long max_steps;  // of a graph
  long steps_left; // of this graph
  long steps;      // that it took
  int turn;        // 0: everything is tried in the best order; else in another one, shortly
  bool collnet;    // only NETs with in-network reduction
} tt_search;

// Searches under one condition; *best is replaced when something better was found. True when it has as many channels as
// there may be.
bool tt_search_run(tt_search *s, const tt_cond *c, tt_graph *best, bool *exhausted);

// The same for the patterns of heads: NVLS and collnet direct.
bool tt_search_heads(tt_search *s, const tt_cond *c, tt_graph *best);

// Is `now` better than `best`? Copies it when it is.
bool tt_search_consider(tt_search *s, const tt_cond *c, tt_graph *best);

// May a channel that came by NET node `in` leave by `out`?
bool tt_search_nets_ok(const tt_search *s, const tt_cond *c, int in, int out);

// The condition under which a graph was found.
tt_cond tt_search_cond(const tt_graph *g);

// Takes an edge of a channel; what was taken is counted in now.nhops.
static inline bool tt_search_take(tt_search *s, int from, int to, int amount)
{
  if (!tt_flow_take(&s->flow, from, to, amount)) {
    return false;
  }
  s->now.nhops += tt_path_get(s->paths, from, to)->count;
  return true;
}

// Gives back what tt_search_take took.
static inline void tt_search_give(tt_search *s, int from, int to, int amount)
{
  tt_flow_give(&s->flow, from, to, amount);
  s->now.nhops -= tt_path_get(s->paths, from, to)->count;
}

// ---- search_polish.c ----

// Searches each channel again while the others stay: fewer hops. Rings and trees only.
void tt_search_polish(tt_search *s, tt_graph *g);

// More channels of the same speed, `most` at most: three in place of two. Not for one order, nor for pairs over cards.
void tt_search_widen(tt_search *s, tt_graph *g, int most);

#define TT_SEARCH_HALF 0.49f  // channels of at most that share of the best ones' speed are slow
#define TT_SEARCH_MORE 1.05f  // what slow channels have to carry in proportion
#define TT_SEARCH_ORDERS 1.3f // the same where all channels had one order before

// The total bandwidth that a graph needs to be as good as the best. Channels of less than half the speed cost
// multiprocessors: they need 5% more, or 30% more if they give up that all channels have one order.
static inline float tt_search_bar(const tt_cond *c, const tt_graph *best)
{
  bool much = c->slower <= TT_SEARCH_HALF && best->speedintra != c->speedintra;
  bool one_order = c->pattern == TT_PATTERN_RING && best->samechannels && !c->same;
  return (float)best->nchannels * best->speedintra * (!much ? 1.0f : one_order ? TT_SEARCH_ORDERS : TT_SEARCH_MORE);
}

// Do fewer hops make a graph of the same bandwidth better? Rings of one order are kept: a broadcast along them is a
// pipeline, while along different ones each step waits for the one before.
static inline bool tt_search_comparable(const tt_cond *c, const tt_graph *best)
{
  bool one_order = c->pattern == TT_PATTERN_RING && best->samechannels && best->nchannels > 1 && !c->same;
  return c->pattern == best->pattern && c->crossnic == best->crossnic && !one_order;
}

// Fills lanes for edges between GPUs of up to that type.
void tt_search_lanes(tt_search *s, int type);

// Channels that may be added to what is left, at most `room`; lanes are of the condition's type.
int tt_search_room(const tt_search *s, const tt_cond *c, int room);

// The same as far as narrow places show: what is left on them has room for so many channels, at most `room`.
int tt_cuts_room(const tt_search *s, const tt_cond *c, int room);

// GB/s of all channels together that narrow places carry; `closed`: channels that come back, as rings inside a machine
// do.
float tt_cuts_bound(const tt_search *s, bool closed);

// Copies a graph without its arrays' memory: `to` has room.
void tt_graph_copy(tt_graph *to, const tt_graph *from);

// Graphs without channels, with room for all they may have. tt_graphs_clear frees it, also after an error.
ncclResult_t tt_graphs_room(const tt_topo *topo, bool inter, tt_graphs *out);

// ---- search.c: one graph, by the ladder of conditions ----

// How many channels a graph may have.
typedef struct tt_search_limits {
  int least, most;
} tt_search_limits;

// GB/s that a channel may have where the oldest GPU is of that capability, falling; 0 ends the list.
const float *tt_search_speeds(int sm, bool inter);

// Searches one graph within limits. *sooner, which may be NULL, becomes the graph that is best without slow channels,
// where that is another one; else it has no channels.
void tt_search_graph(tt_search *s, int pattern, tt_search_limits channels, tt_graph *best, tt_graph *sooner);

// ---- search_pair.c ----

// Searches rings and as many trees; both have room in *out. Errors: ncclSystemError (no memory).
ncclResult_t tt_search_pair(tt_search *s, tt_graphs *out);
