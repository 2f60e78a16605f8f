// table.c: the table of algorithms (algorithms.def).

#include "base/text.h"
#include "base/util.h"
#include "coll/coll_priv.h"

#define F(name) (1u << TT_FUNC_##name)

static const tt_algorithm table[TT_NALGOS] = {
#define A(id, name, write, funcs, needs, follows, in_network, doc) \
  {name, #id, doc, funcs, needs, follows, write, in_network},
#include "coll/algorithms.def"
};

const tt_algorithm *tt_algorithms(int *count)
{
  if (count != NULL) {
    *count = TT_NALGOS;
  }
  return table;
}

int tt_algorithm_find(const char *name)
{
  for (int i = 0; i < TT_NALGOS; i++) {
    if (tt_casecmp(table[i].name, name) == 0) {
      return i;
    }
  }
  return -1;
}

int tt_algorithm_channels(const tt_algorithm *a, const tt_layout *layout)
{
  const void *orders = NULL;
  if (layout && a->follows != TT_FOLLOWS_NODES) {
    orders = a->follows == TT_FOLLOWS_RING ? layout->channels.rings : layout->channels.ups;
  }
  return orders ? layout->channels.count : 0;
}

void tt_schedule_free(tt_schedule *s)
{
  if (s) {
    tt_free(s->strands);
    tt_free(s->steps);
    tt_free(s->refs);
    tt_free(s);
  }
}

const char *const tt_func_names[TT_NFUNCS] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce",
                                              "AlltoAll",  "Gather", "Scatter",   "Send",          "Recv"};
