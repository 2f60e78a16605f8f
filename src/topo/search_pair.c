// search_pair.c: rings and trees. Both are used with the same number of channels, and each would like another: few fast
// rings or many slow ones, and the trees that go with them.
#include "base/util.h"
#include "topo/search_priv.h"

static float total_of(const tt_graph *g)
{
  return (float)g->nchannels * (g->inter ? g->speedinter : g->speedintra);
}

#define MUCH 1.2f    // what trees have to win to be worth more channels
#define LITTLE 0.95f // what rings keep where trees win much

// More channels: one of both wins much, and the other loses nothing.
static bool more_is_better(const tt_graph *const had[2], const tt_graph *const other[2])
{
  const tt_graph *ring = had[0], *rings = other[0];
  bool types = rings->typeintra <= ring->typeintra && rings->typeinter <= ring->typeinter &&
               other[1]->typeintra <= had[1]->typeintra && other[1]->typeinter <= had[1]->typeinter;
  bool one_order = ring->samechannels && !rings->samechannels; // one ring has one order, too
  bool shorter = rings->nhops * ring->nchannels <= ring->nhops * rings->nchannels && !one_order;
  float rings_win = total_of(rings) / total_of(ring), trees_win = total_of(other[1]) / total_of(had[1]);
  bool slow = rings->speedintra <= ring->speedintra * TT_SEARCH_HALF;
  float much = slow && one_order ? TT_SEARCH_ORDERS : slow || one_order ? TT_SEARCH_MORE : 1.001f;
  return types && ((shorter && rings_win >= 0.999f && trees_win > MUCH) || (rings_win > much && trees_win >= 0.999f));
}

// Fewer channels: trees win, and rings lose nothing; or little, where trees win much, and more where trees win by
// nearly half. Trees that are as wide as rings win only by faster channels.
static bool fewer_is_better(const tt_graph *const had[2], const tt_graph *const other[2])
{
  if (total_of(had[1]) >= total_of(had[0]) && other[0]->speedintra <= had[0]->speedintra) {
    return false;
  }
  float lost = total_of(other[0]) / total_of(had[0]), won = total_of(other[1]) / total_of(had[1]);
  return won > 1.05f && (lost >= 0.999f || (won > MUCH && lost > LITTLE) || (won > 1.4f && lost > 0.85f));
}

static bool pair_is_better(const tt_graph *const had[2], const tt_graph *const other[2])
{
  int count = other[0]->nchannels;
  if (count == 0 || count != other[1]->nchannels) {
    return false;
  }
  return count < had[0]->nchannels ? fewer_is_better(had, other) : more_is_better(had, other);
}

static void search_trees(tt_search *s, int channels, tt_graph *out)
{
  tt_search_graph(s, TT_PATTERN_BALANCED_TREE, (tt_search_limits){channels, channels}, out, NULL);
}

// The channels that trees would have by themselves, within limits, and as many rings: exactly so many where there are
// more than `had`. True when both are better.
static bool search_other_pair(tt_search *s, tt_search_limits limits, tt_graph *const had[2], tt_graph *const other[2])
{
  tt_graph *ring = other[0], *tree = other[1];
  bool more = limits.least > had[0]->nchannels;
  tt_search_graph(s, TT_PATTERN_BALANCED_TREE, limits, tree, NULL);
  int count = TT_MAX(tree->nchannels, 1);
  tt_search_graph(s, TT_PATTERN_RING, (tt_search_limits){more ? count : 1, count}, ring, NULL);
  if (ring->nchannels != tree->nchannels && !more) {
    search_trees(s, ring->nchannels, tree);
  }
  return pair_is_better((const tt_graph *const[]){had[0], had[1]}, (const tt_graph *const[]){ring, tree});
}

static void take_pair(tt_graph *const had[2], tt_graph *const other[2])
{
  tt_graph_copy(had[0], other[0]);
  tt_graph_copy(had[1], other[1]);
}

// Rings within limits, and as many trees.
static bool search_by_rings(tt_search *s, tt_search_limits limits, tt_graph *const had[2], tt_graph *const other[2])
{
  tt_search_graph(s, TT_PATTERN_RING, limits, other[0], NULL);
  search_trees(s, TT_MAX(other[0]->nchannels, 1), other[1]);
  return pair_is_better((const tt_graph *const[]){had[0], had[1]}, (const tt_graph *const[]){other[0], other[1]});
}

// Rings, and as many trees. Many slow rings may carry more than a few fast ones, but then trees must not suffer.
// Returns the number of channels with which they would; else 0.
static int search_first_pair(tt_search *s, tt_graph *const had[2], tt_graph *const other[2])
{
  tt_search_graph(s, TT_PATTERN_RING, (tt_search_limits){1, TT_GRAPH_MAX_RINGS}, had[0], other[0]);
  search_trees(s, had[0]->nchannels, had[1]);
  if (other[0]->nchannels == 0) {
    return 0;
  }
  search_trees(s, other[0]->nchannels, other[1]);
  if (total_of(other[1]) <= total_of(had[1]) * 1.001f) {
    return 0;
  }
  int many = had[0]->nchannels;
  take_pair(had, other);
  return many;
}

// Twice as many channels of half the speed cost rings nothing, and trees find more ways.
static bool search_twice(tt_search *s, int channels, tt_graph *const had[2], tt_graph *const other[2])
{
  int twice = 2 * channels;
  bool better =
      channels > 0 && twice <= TT_GRAPH_MAX_RINGS && search_by_rings(s, (tt_search_limits){twice, twice}, had, other);
  if (better) {
    take_pair(had, other);
  }
  return better;
}

// Other numbers of channels near `many`, with which trees suffer: up to twice as many, then fewer.
static bool search_near(tt_search *s, int many, tt_graph *const had[2], tt_graph *const other[2])
{
  int most = TT_MIN(2 * many - 1, TT_GRAPH_MAX_RINGS), least = many + 1;
  for (int i = 0; i < 3 && most >= least; i++) {
    if (search_by_rings(s, (tt_search_limits){least, most}, had, other)) {
      take_pair(had, other);
      return true;
    }
    most = i == 0 ? many - 1 : other[0]->nchannels - 1;
    least = had[0]->nchannels + 1;
  }
  return false;
}

enum { MORE_TIMES = 4 };

// More channels, until nothing better comes, so many times at most.
static bool search_more(tt_search *s, int times, tt_graph *const had[2], tt_graph *const other[2])
{
  bool found = false;
  for (int i = 0, most = TT_GRAPH_MAX_RINGS; i < times && most > had[0]->nchannels; i++) {
    if (search_other_pair(s, (tt_search_limits){had[0]->nchannels + 1, most}, had, other)) {
      take_pair(had, other);
      found = true;
      most = TT_GRAPH_MAX_RINGS; // what was not better than the pair before may be better than this one
    } else {
      most = other[1]->nchannels - 1;
    }
  }
  return found;
}

// Fewer channels, `most` at most. Trees like few fast ones, with which rings may lose much: then a number in between.
static bool search_fewer(tt_search *s, int most, tt_graph *const had[2], tt_graph *const other[2])
{
  if (search_other_pair(s, (tt_search_limits){1, most}, had, other)) {
    return true;
  }
  int least = other[1]->nchannels + 1;
  return least <= most && total_of(other[1]) > total_of(had[1]) * MUCH &&
         search_other_pair(s, (tt_search_limits){least, most}, had, other);
}

// Where rings found so many channels that trees suffer, fewer channels may be better for both; where they found few,
// more.
static void search_other_pairs(tt_search *s, tt_graph *const had[2], tt_graph *const other[2])
{
  int count = had[0]->nchannels;
  if (!had[0]->inter && search_twice(s, count, had, other)) {
    tt_search_limits more = {had[0]->nchannels + 1, TT_GRAPH_MAX_RINGS};
    if (!had[0]->samechannels && search_by_rings(s, more, had, other)) { // then still more may have no one order, too
      take_pair(had, other);
    }
    return;
  }
  if (count > 1 && search_fewer(s, count - 1, had, other)) {
    take_pair(had, other);
  } else if (had[1]->bound > total_of(had[1]) * MUCH) { // trees may want more channels than rings can have
    search_more(s, MORE_TIMES, had, other);
  }
}

ncclResult_t tt_search_pair(tt_search *s, tt_graphs *out)
{
  tt_graphs room = {0};
  ncclResult_t res = tt_graphs_room(s->topo, s->options->inter, &room);
  if (res == ncclSuccess) {
    tt_graph *had[2] = {&out->graph[TT_GRAPH_RING], &out->graph[TT_GRAPH_TREE]};
    tt_graph *other[2] = {&room.graph[TT_GRAPH_RING], &room.graph[TT_GRAPH_TREE]};
    long steps = s->max_steps;
    int many = search_first_pair(s, had, other);
    s->max_steps /= 4; // a second opinion, not as deep
    bool better = many > 0 && (search_twice(s, many, had, other) || search_near(s, many, had, other) ||
                               search_more(s, MORE_TIMES, had, other));
    if (!better &&
        (total_of(had[1]) < total_of(had[0]) * 0.95f || (!had[0]->inter && total_of(had[1]) < had[1]->bound * 0.75f))) {
      search_other_pairs(s, had, other);
    }
    s->max_steps = steps;
  }
  tt_graphs_clear(&room);
  return res;
}
