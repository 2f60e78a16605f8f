// fuse_test.c: how far devices are apart, and which are named.
#include "net/plugin/fuse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"

#define ROOT "/sys/devices/no-such/pci0000:00/"

static tt_fuse_level fuse_between(const char *a, const char *b)
{
  tt_fuse_place x, y;
  tt_fuse_place_of(a, &x);
  tt_fuse_place_of(b, &y);
  tt_fuse_level level = tt_fuse_distance(&x, &y);
  assert_int_equal(tt_fuse_distance(&y, &x), level);
  return level;
}

static void distances(void **state)
{
  (void)state;
  // Root port, upstream and downstream port of a switch, device.
  static const char one[] = ROOT "0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0";
  static const struct {
    const char *other;
    tt_fuse_level level;
  } rows[] = {
      {one, TT_FUSE_PORT},
      {ROOT "0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.1", TT_FUSE_PORT},
      {ROOT "0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0", TT_FUSE_PIX},
      {ROOT "0000:00:01.0/0000:01:00.0/0000:02:02.0/0000:05:00.0/0000:06:00.0/0000:07:00.0",
       TT_FUSE_PXB}, // a switch below the switch
      {ROOT "0000:00:02.0/0000:08:00.0", TT_FUSE_PHB},
      {ROOT "0000:00:1f.6", TT_FUSE_PHB},
      {"/sys/devices/no-such/pci0000:80/0000:80:01.0/0000:81:00.0", TT_FUSE_PHB}, // no NUMA node is known
      {NULL, TT_FUSE_PHB},
      {"/sys/devices/virtual/net/tun0", TT_FUSE_PHB},
  };
  for (size_t i = 0; i < TT_COUNT(rows); i++) {
    assert_int_equal(fuse_between(one, rows[i].other), rows[i].level);
  }
  assert_int_equal(fuse_between(NULL, ""), TT_FUSE_PORT); // both on one virtual card
  assert_int_equal(fuse_between(ROOT "0000:00:02.0/0000:08:00.0", ROOT "0000:00:02.0/0000:08:00.1"), TT_FUSE_PORT);
  assert_int_equal(fuse_between(ROOT "0000:00:02.0/0000:08:00.0", ROOT "0000:00:02.0/0000:08:01.0"),
                   TT_FUSE_PHB); // the root port does not count
}

static void fuse_numa_nodes(void **state)
{
  (void)state;
  tt_fuse_place a = {.count = 1, .bus = {"0000:03:00.0"}, .numa = 0},
                b = {.count = 1, .bus = {"0000:83:00.0"}, .numa = 1};
  assert_int_equal(tt_fuse_distance(&a, &b), TT_FUSE_SYS);
  b.numa = 0;
  assert_int_equal(tt_fuse_distance(&a, &b), TT_FUSE_PHB);
}

static void odd_paths(void **state)
{
  (void)state;
  char deep[8192] = "/x";
  tt_fuse_place p;
  for (int i = 0; i < 300; i++) {
    strcat(deep, "/0000:0a:00.0");
  }
  tt_fuse_place_of(deep, &p);
  assert_int_equal(p.count, TT_FUSE_DEPTH);
  tt_fuse_place_of("////0000:03:00.0//", &p);
  assert_int_equal(p.count, 1);
  assert_string_equal(p.bus[0], "0000:03:00.0");
  static const char *const none[] = {"0000:03:00", "0000:03:00.0x", "0000.03:00.0", "x000:03:00.0", "/", "/proc/self"};
  for (size_t i = 0; i < TT_COUNT(none); i++) {
    tt_fuse_place_of(none[i], &p);
    assert_int_equal(p.count, 0);
  }
}

static void words(void **state)
{
  (void)state;
  tt_fuse_level level;
  assert_true(tt_fuse_level_of("PORT", &level) && level == TT_FUSE_PORT);
  assert_true(tt_fuse_level_of("SYS", &level) && level == TT_FUSE_SYS);
  assert_true(tt_fuse_level_of("PXN", &level) && level == TT_FUSE_PXB);
  assert_false(tt_fuse_level_of("near", &level));
  assert_int_equal(level, TT_FUSE_LOC);
}

static void names(void **state)
{
  (void)state;
  static const tt_net_props a = {.name = "mlx5_0", .port = 1}, b = {.name = "mlx5_0", .port = 2},
                            c = {.name = "mlx5_01", .port = 1};
  const tt_net_props *devs[] = {&a, &b, &c};
  static const struct {
    const char *group;
    int names, n, first;
  } rows[] = {{"mlx5_0", 1, 2, 0},      {"mlx5_0:2", 1, 1, 1},   {"mlx5_01,mlx5_0:1", 2, 2, 0},
              {"mlx5_", 1, 0, -1},      {"", 0, 0, -1},          {",,", 0, 0, -1},
              {"x,,mlx5_01,", 2, 1, 2}, {"a,b,c,d,e", 5, 0, -1}, {"a,b,c,d,e,f,g", 5, 0, -1}};
  for (size_t i = 0; i < TT_COUNT(rows); i++) {
    tt_fuse_found found;
    tt_fuse_match(rows[i].group, strlen(rows[i].group), devs, 3, 4, &found);
    assert_int_equal(found.names, rows[i].names);
    assert_int_equal(found.n, rows[i].n);
    assert_int_equal(found.n > 0 ? found.devs[0] : -1, rows[i].first);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(distances), cmocka_unit_test(fuse_numa_nodes),
                                     cmocka_unit_test(odd_paths), cmocka_unit_test(words), cmocka_unit_test(names)};
  return cmocka_run_group_tests_name("fuse", tests, NULL, NULL);
}
