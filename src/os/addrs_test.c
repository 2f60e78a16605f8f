// addrs_test.c: lists of addresses: what has no room is counted, said, and travels with the list; bytes that are no
// list are refused.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "os/addrs.h"

static tt_addr v4(uint8_t last)
{
  return (tt_addr){.family = AF_INET, .port = 4711, .ip = {10, 0, 0, last}};
}

static tt_addr v6(uint8_t last, uint32_t scope)
{
  return (tt_addr){.family = AF_INET6, .port = 4711, .scope = scope, .ip = {0xfe, 0x80, [15] = last}};
}

static tt_addrs list_of(int fours, int sixes, int scoped)
{
  tt_addrs list = {.n = 0};
  for (int i = 0; i < fours + sixes + scoped; i++) {
    tt_addr a = i < fours ? v4((uint8_t)(i + 1)) : v6((uint8_t)(i + 1), i < fours + sixes ? 0 : 7);
    tt_addrs_add(&list, &a);
  }
  return list;
}

static void test_text(void **state)
{
  (void)state;
  char text[TT_ADDRS_TEXT], widest[TT_ADDRS_TEXT];
  tt_addrs list = list_of(TT_ADDRS_MAX, 0, 0);
  assert_null(strchr(tt_addrs_text(&list, text), '('));
  tt_addr a = v4(99);
  tt_addrs_add(&list, &a);
  assert_non_null(strstr(tt_addrs_text(&list, text), "10.0.0.8:4711 (1 more address was left out)"));
  tt_addrs_add(&list, &list.a[0]); // there already
  a = v4(100);
  tt_addrs_add(&list, &a);
  assert_non_null(strstr(tt_addrs_text(&list, text), "10.0.0.8:4711 (2 more addresses were left out)"));
  memset(&list, 0xff, sizeof(list));
  for (int i = 0; i < TT_ADDRS_MAX; i++) {
    list.a[i].family = AF_INET6;
  }
  tt_addrs_text(&list, widest);
  assert_non_null(strstr(widest, "(4294967295 more addresses were left out)"));
}

static void test_ip_text(void **state)
{
  (void)state;
  char text[TT_ADDR_TEXT];
  tt_addr four = v4(1), six = v6(1, 0), scoped = v6(1, 3), none = {.port = 5};
  assert_string_equal(tt_addr_ip_text(&four, text), "10.0.0.1");
  assert_string_equal(tt_addr_ip_text(&six, text), "fe80::1");
  assert_string_equal(tt_addr_ip_text(&scoped, text), "fe80::1%3");
  assert_string_equal(tt_addr_ip_text(&none, text), "(no address)");
  assert_string_equal(tt_addr_text(&four, text), "10.0.0.1:4711");
  assert_string_equal(tt_addr_text(&scoped, text), "[fe80::1%3]:4711");
  assert_string_equal(tt_addr_text(&none, text), "(no address)");
}

static void test_pack(void **state)
{
  (void)state;
  static const struct {
    int fours, sixes, scoped;
    uint32_t n; // how many have room
  } cases[] = {{0, 0, 0, 0}, {1, 0, 0, 1}, {8, 0, 0, 8}, {0, 4, 0, 4}, {0, 5, 0, 4},
               {0, 0, 4, 4}, {0, 0, 5, 4}, {2, 3, 1, 5}, {5, 2, 1, 7}, {7, 1, 1, 8}};
  for (size_t i = 0; i < TT_COUNT(cases); i++) {
    uint8_t bytes[TT_ADDRS_PACKED];
    tt_addrs list = list_of(cases[i].fours, cases[i].sixes, cases[i].scoped), back;
    uint8_t more = tt_addrs_pack(&list, bytes);
    assert_int_equal(more, cases[i].fours + cases[i].sixes + cases[i].scoped - (int)cases[i].n);
    assert_true(tt_addrs_unpack(bytes, more, &back));
    assert_int_equal(back.n, cases[i].n);
    assert_int_equal(back.more, more);
    assert_memory_equal(back.a, list.a, cases[i].n * sizeof(back.a[0]));
  }
  tt_addrs list = list_of(1, 0, 0);
  uint8_t bytes[TT_ADDRS_PACKED];
  list.more = 1000;
  assert_int_equal(tt_addrs_pack(&list, bytes), 255);
}

static void test_refused(void **state)
{
  (void)state;
  uint8_t good[TT_ADDRS_PACKED], bad[TT_ADDRS_PACKED];
  tt_addrs list = list_of(2, 1, 0), back;
  assert_int_equal(tt_addrs_pack(&list, good), 0);
  static const struct {
    int at;
    uint8_t value;
  } changes[] = {{0, 1}, {0, 7}, {14, 5}, {TT_ADDRS_PACKED - 1, 1}};
  for (size_t i = 0; i < TT_COUNT(changes); i++) {
    memcpy(bad, good, sizeof(bad));
    bad[changes[i].at] = changes[i].value;
    assert_false(tt_addrs_unpack(bad, 0, &back));
  }
  memcpy(bad, good, sizeof(bad));
  bad[1] = bad[2] = 0; // port 0
  assert_false(tt_addrs_unpack(bad, 0, &back));
  memset(bad, 4, sizeof(bad)); // more than a list holds
  assert_false(tt_addrs_unpack(bad, 0, &back));
  assert_true(tt_addrs_unpack(good, 0, &back));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_text),
      cmocka_unit_test(test_ip_text),
      cmocka_unit_test(test_pack),
      cmocka_unit_test(test_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
