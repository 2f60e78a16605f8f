// values_test.c: dicts and lists as JSON and as a pickle, byte by byte; texts that need care; no memory to speak of.
#include "base/values.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static void write_sample(tt_values *v, tt_values_format format)
{
  tt_values_open(v, format);
  tt_values_dict(v);
  tt_values_put_int(v, "a", 1);
  tt_values_key(v, "b");
  tt_values_list(v);
  tt_values_int(v, -2);
  tt_values_int(v, 1ll << 40);
  tt_values_float(v, 1.5);
  tt_values_null(v);
  tt_values_end(v);
  tt_values_put_bool(v, "c", true);
  tt_values_put_text(v, "d", "%s", "x\"y");
  tt_values_end(v);
}

static void as_json(void **state)
{
  (void)state;
  tt_values v;
  size_t n;
  write_sample(&v, TT_VALUES_JSON);
  char *text = tt_values_close(&v, &n);
  assert_string_equal(text, "{\"a\":1,\"b\":[-2,1099511627776,1.500000,null],\"c\":true,\"d\":\"x\\\"y\"}\n");
  assert_int_equal(n, strlen(text));
  free(text);
}

static void as_pickle(void **state)
{
  (void)state;
  static const char expected[] = "\x80\x02}(X\1\0\0\0aJ\1\0\0\0X\1\0\0\0b](J\xfe\xff\xff\xff\x8a\10\0\0\0\0\0\1\0\0"
                                 "G\x3f\xf8\0\0\0\0\0\0Neu";
  static const char rest[] = "X\1\0\0\0c\x88X\1\0\0\0dX\3\0\0\0x\"yu.";
  tt_values v;
  size_t n, head = sizeof expected - 2; // without the last mark, which stands behind the rest
  write_sample(&v, TT_VALUES_PICKLE);
  char *text = tt_values_close(&v, &n);
  assert_int_equal(n, head + sizeof rest - 1);
  assert_memory_equal(text, expected, head);
  assert_memory_equal(text + head, rest, sizeof rest - 1);
  free(text);
}

static void texts_are_cleaned(void **state)
{
  (void)state;
  tt_values v;
  size_t n;
  tt_values_open(&v, TT_VALUES_JSON);
  tt_values_text(&v, "%s", "a\xff\\\n\xc3\xa4\xc3");
  char *text = tt_values_close(&v, &n);
  assert_string_equal(text, "\"a?\\\\\\u000a\xc3\xa4?\"\n");
  free(text);
}

static void long_texts_and_deep_lists(void **state)
{
  (void)state;
  tt_values v;
  size_t n;
  tt_values_open(&v, TT_VALUES_JSON);
  tt_values_list(&v);
  for (int i = 0; i < 10000; i++) {
    tt_values_int(&v, i);
  }
  tt_values_end(&v);
  char *text = tt_values_close(&v, &n);
  assert_int_equal(n, 48892);
  free(text);
  tt_values_open(&v, TT_VALUES_PICKLE);
  for (int i = 0; i <= TT_VALUES_DEPTH; i++) {
    tt_values_list(&v);
  }
  assert_null(tt_values_close(&v, &n));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_json),
      cmocka_unit_test(as_pickle),
      cmocka_unit_test(texts_are_cleaned),
      cmocka_unit_test(long_texts_and_deep_lists),
  };
  return cmocka_run_group_tests_name("values", tests, NULL, NULL);
}
