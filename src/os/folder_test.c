// folder_test.c: hashes of files, and lists of numbers. The rest of folder.h is tested by topo/tree_test.c.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/folder.h"

enum { LONG = 10000 };

static void write_test_file(const char *name, const char *text, size_t size)
{
  FILE *f = fopen(name, "w");
  assert_non_null(f);
  assert_int_equal(fwrite(text, 1, size, f), size);
  fclose(f);
}

static char folder[32];

static int enter_folder(void **state)
{
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/folder_test.XXXXXX");
  return mkdtemp(folder) != NULL ? chdir(folder) : -1;
}

// Also after a failed assertion. What is not there any more, or not yet, does not matter.
static int leave_folder(void **state)
{
  (void)state;
  static const char *const names[] = {"a", "b", "empty", "link", "fifo"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    (void)unlink(names[i]);
  }
  return chdir("/") == 0 ? rmdir(folder) : -1;
}

static void file_hash(void **state)
{
  (void)state;
  static char text[LONG];
  uint64_t a = 1, b = 2, kept = 77;
  memset(text, 'x', sizeof text);
  write_test_file("a", text, LONG);
  write_test_file("b", text, LONG);
  write_test_file("empty", "", 0);
  assert_int_equal(symlink("a", "link"), 0);
  assert_int_equal(mkfifo("fifo", 0600), 0);
  assert_true(tt_file_hash("a", LONG, 5, &a));
  assert_true(tt_file_hash("b", LONG, 5, &b));
  assert_true(a == b);
  assert_true(tt_file_hash("link", LONG, 5, &b));
  assert_true(a == b);
  assert_true(tt_file_hash("a", LONG, 6, &b)); // another seed
  assert_true(a != b);
  text[LONG - 1] = 'y';
  write_test_file("b", text, LONG);
  assert_true(tt_file_hash("b", LONG, 5, &b)); // another end
  assert_true(a != b);
  assert_true(tt_file_hash("a", LONG - 1, 5, &a)); // which does not count
  assert_true(tt_file_hash("b", LONG - 1, 5, &b));
  assert_true(a == b);
  assert_true(tt_file_hash("empty", LONG, 5, &b));
  assert_true(b == 5);
  assert_false(tt_file_hash("fifo", LONG, 5, &kept)); // and nobody waits
  assert_false(tt_file_hash(".", LONG, 5, &kept));
  assert_false(tt_file_hash("nothing", LONG, 5, &kept));
  assert_false(tt_file_hash("/dev/zero", LONG, 5, &kept));
  assert_true(kept == 77);
}

static void test_ranges(void **state)
{
  (void)state;
  const char *at = "0-3,8,10-x";
  long first = -1, last = -1;
  assert_true(tt_file_range(&at, &first, &last) && first == 0 && last == 3);
  assert_true(tt_file_range(&at, &first, &last) && first == 8 && last == 8);
  assert_true(tt_file_range(&at, &first, &last) && first == 10 && last == 10);
  assert_false(tt_file_range(&at, &first, &last));
  assert_string_equal(at, "-x");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(file_hash, enter_folder, leave_folder),
      cmocka_unit_test(test_ranges),
  };
  return cmocka_run_group_tests_name("os/folder", tests, NULL, NULL);
}
