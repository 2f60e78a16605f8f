// selection_test.c: the syntax of algSelection, what it selects for each function, and what is refused.
#include "coll/selection.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#define ROW(name) (1u << TT_ALGO_##name)

static void selects(const char *text, tt_func func, uint32_t ll, uint32_t simple)
{
  tt_selection s = {0, 0};
  char why[256] = "";
  if (!tt_selection_parse(text, func, &s, why, sizeof why)) {
    fail_msg("\"%s\" for %s: %s", text, tt_func_name(func), why);
  }
  if (s.ll != ll || s.simple != simple) {
    fail_msg("\"%s\" for %s: LL %x, Simple %x in place of %x, %x", text, tt_func_name(func), s.ll, s.simple, ll,
             simple);
  }
}

static void refuses(const char *text, tt_func func, const char *part)
{
  tt_selection s = {7, 7};
  char why[256] = "";
  if (tt_selection_parse(text, func, &s, why, sizeof why)) {
    fail_msg("\"%s\" for %s selects LL %x, Simple %x", text, tt_func_name(func), s.ll, s.simple);
  }
  assert_int_equal(s.ll, 7);
  if (strstr(why, part) == NULL) {
    fail_msg("\"%s\": \"%s\" lacks \"%s\"", text, why, part);
  }
}

static void names_and_prefixes(void **state)
{
  (void)state;
  selects("RING_LL", TT_FUNC_ALLREDUCE, ROW(RING), 0);
  selects("ring_simple", TT_FUNC_ALLREDUCE, 0, ROW(RING));
  selects("Ring", TT_FUNC_BROADCAST, ROW(RING), ROW(RING));
  selects("RING_LL128", TT_FUNC_ALLREDUCE, ROW(RING), 0); // LL128 means LL
  selects("tree , R I N G _ L L", TT_FUNC_ALLREDUCE, ROW(TREE) | ROW(RING), ROW(TREE));
  selects("TREE,RING_SIMPLE", TT_FUNC_ALLGATHER, 0, ROW(RING)); // no trees there
  selects("DIRECT", TT_FUNC_ALLREDUCE, 0, ROW(DIRECT) | ROW(DIRECTWRITE));
  selects("COLLNET", TT_FUNC_ALLREDUCE, 0, ROW(COLLNET_CHAIN) | ROW(COLLNET_DIRECT));
}

static void operators(void **state)
{
  (void)state;
  selects("RING+^RING_LL", TT_FUNC_ALLREDUCE, 0, ROW(RING));
  selects("RING+^RING_LL128", TT_FUNC_ALLREDUCE, ROW(RING), ROW(RING)); // to exclude LL128 excludes nothing
  selects("^RING", TT_FUNC_BROADCAST, ROW(TREE) | ROW(ONESHOT),
          ROW(TREE) | ROW(ONESHOT) | ROW(DIRECT) | ROW(DIRECTWRITE));
  selects("^RING+^TREE+^ONE+^DIRECTW", TT_FUNC_BROADCAST, 0, ROW(DIRECT));
  selects("PACKED", TT_FUNC_BROADCAST, ROW(PACKED), ROW(PACKED)); // by its name alone
  selects("PACKED+^PACKED_LL", TT_FUNC_ALLREDUCE, 0, ROW(PACKED));
  selects("RING+RING_LL,TREE_SIMPLE", TT_FUNC_ALLREDUCE, ROW(RING), ROW(TREE));
  selects("NVLS,SYMK_AllReduce_x,TREE_LL", TT_FUNC_ALLREDUCE, ROW(TREE), 0);
}

static void refusals(void **state)
{
  (void)state;
  refuses("RINGS", TT_FUNC_ALLREDUCE, "RINGS");
  refuses("RING_LLX", TT_FUNC_ALLREDUCE, "RING_LLX");
  refuses("^", TT_FUNC_ALLREDUCE, "^");
  refuses("RING,^", TT_FUNC_ALLREDUCE, "^");
  refuses("^^RING", TT_FUNC_ALLREDUCE, "^RING");
  refuses("RING,,TREE", TT_FUNC_ALLREDUCE, "missing");
  refuses("RING,", TT_FUNC_ALLREDUCE, "missing");
  refuses("+RING", TT_FUNC_ALLREDUCE, "missing");
  refuses("RING+TREE", TT_FUNC_ALLREDUCE, "contradicts");
  refuses("RING,TREE+^TREE", TT_FUNC_ALLREDUCE, "contradicts");
  refuses("TREE", TT_FUNC_ALLGATHER, "AllGather");
  refuses("NVLS_SIMPLE", TT_FUNC_ALLREDUCE, "AllReduce");
  refuses("SYMK", TT_FUNC_ALLREDUCE, "AllReduce");
  refuses("(RING)", TT_FUNC_ALLREDUCE, "(RING)");
  refuses("DIRECT", TT_FUNC_ALLTOALL, "AlltoAll");
  refuses("^RING", TT_FUNC_GATHER, "Gather");
  char longer[600];
  memset(longer, 'R', sizeof longer - 1);
  longer[sizeof longer - 1] = 0;
  refuses(longer, TT_FUNC_ALLREDUCE, "characters");
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(names_and_prefixes), cmocka_unit_test(operators),
                                     cmocka_unit_test(refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
