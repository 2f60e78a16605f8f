// machine_channels_test.c: the channels of 1, 2 and 4 of all known machines as schedules: their rings and trees are
// what a layout takes, and operations over several of them are right with one slot per connection.
#include "topo/plan_rig.h"

#include "coll/coll.h"
#include "tools/verify.h"

enum { RANKS = RIG_MAX_RANKS * 4, STAGES = 4 };

static const tt_schedule *all[RANKS * STAGES];

// The rings, and whom each rank hangs below, of some of the channels: the first, the last, and what lies between.
static tt_layout *layout_of(const known *k, int count)
{
  const tt_connect *c = k->c;
  size_t n = (size_t)c->nranks;
  int *rings = calloc(n * (size_t)count, sizeof(int)), *ups = calloc(n * (size_t)count, sizeof(int));
  for (int i = 0; i < count; i++) {
    int channel = count == 1 ? 0 : i * (c->nchannels - 1) / (count - 1);
    tt_connect_ring(c, channel, 0, rings + (size_t)i * n);
    for (int r = 0; r < c->nranks; r++) {
      ups[(size_t)i * n + (size_t)r] = tt_connect_tree(c, channel, r).up;
    }
  }
  tt_layout *l = NULL;
  assert_int_equal(tt_layout_create(c->nranks, c->node_of, &l), ncclSuccess);
  if (tt_layout_set_channels(l, &(tt_channels){.count = count, .rings = rings, .ups = ups}) != ncclSuccess) {
    print_message("%s, %d nodes: %s\n", k->name, k->nnodes_in_name, tt_last_error());
    tt_layout_destroy(l);
    l = NULL;
  }
  free(rings);
  free(ups);
  return l;
}

// All ranks over the first `stages` channels.
static bool is_right(const known *k, const tt_layout *l, const char *algo, tt_func f, int stages)
{
  int root = l->nranks / 2;
  tt_shape shape = {.func = f, .nranks = l->nranks, .root = root, .layout = l};
  for (int i = 0; i < stages * l->nranks; i++) {
    tt_schedule *s = NULL;
    shape.channel = i / l->nranks;
    shape.rank = i % l->nranks;
    assert_int_equal(tt_algorithm_write(&tt_algorithms(NULL)[tt_algorithm_find(algo)], &shape, &s), ncclSuccess);
    all[i] = s;
  }
  char why[700];
  tt_verify_options o = {.func = f, .root = root, .slots = 1, .loops = 1, .in_place = root % 2, .stages = stages};
  ncclResult_t res = tt_verify(all, &o, why, sizeof why);
  if (res != ncclSuccess) {
    print_message("%s, %d nodes, %s %s: %s\n", k->name, k->nnodes_in_name, algo, tt_func_name(f),
                  res == ncclInternalError ? why : "");
  }
  for (int i = 0; i < stages * l->nranks; i++) {
    tt_schedule_free((tt_schedule *)(uintptr_t)all[i]);
  }
  return res == ncclSuccess;
}

// Steps and clocks grow with the square and cube of the ranks: of large machines fewer channels, and nothing that goes
// round.
static bool same_as_promised(known *k)
{
  int n = k->c->nranks, stages = n <= 32 ? STAGES : n <= 64 ? 2 : 1;
  stages = stages < k->c->nchannels ? stages : k->c->nchannels;
  tt_layout *l = layout_of(k, stages);
  bool right = l != NULL && is_right(k, l, "Tree", TT_FUNC_ALLREDUCE, stages) &&
               is_right(k, l, "Tree", TT_FUNC_BROADCAST, stages) && is_right(k, l, "Ring", TT_FUNC_REDUCE, stages);
  if (right && n <= 32) {
    right = is_right(k, l, "Ring", TT_FUNC_ALLREDUCE, stages) && is_right(k, l, "Ring", TT_FUNC_ALLGATHER, stages);
  }
  tt_layout_destroy(l);
  return right;
}

static void test_known_machines(void **state)
{
  (void)state;
  assert_int_equal(known_each(same_as_promised, "schedules of channels"), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_known_machines)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
