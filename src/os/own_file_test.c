// own_file_test.c: whose files are believed (base/trust.h). What is written to whose files: log_test.c,
// plugins/profiler-trace/trace_test.c.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/trust.h"
#include "base/util.h"
#include "os/own_file.h"

enum { THEIRS = 12345, SHARED = 54321, USER = 23456 }; // a user, a group, another user

typedef struct deal {
  mode_t mode;
  uid_t owner;
  gid_t group;
  bool obeyed_by_root;
  bool obeyed_by_user; // that has named it
} deal;

static const deal deals[] = {
    {0600, 0, 0, true, true},
    {0644, 0, SHARED, true, true},
    {0664, 0, 0, true, true}, // the owner's private group
    {0664, 0, SHARED, false, false},
    {0646, 0, 0, false, false},
    {0644, THEIRS, THEIRS, false, true},
    {0664, THEIRS, THEIRS, false, true},
    {0664, THEIRS, 0, false, false}, // the process's own group is no exception
};

// Settings and the user's own files are judged alike. Root obeys no other user's file, also not one that is named.
static void test_trusted_contents(void **state)
{
  (void)state;
  char path[] = "/tmp/tutti-trust-XXXXXX", why[TT_TRUST_WHY], text[8];
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  if (geteuid() != 0) {
    unlink(path);
    skip(); // only root can give files away
  }
  for (size_t i = 0; i < TT_COUNT(deals); i++) {
    const deal *d = &deals[i];
    assert_int_equal(fchown(fd, d->owner, d->group), 0);
    assert_int_equal(fchmod(fd, d->mode), 0);
    bool good = tt_trust_contents(fd, true, why) == d->obeyed_by_root &&
                tt_trust_contents(fd, false, why) == d->obeyed_by_root &&
                (tt_own_file_read(path, text, sizeof text, NULL, why) == 0) == d->obeyed_by_root;
    assert_int_equal(seteuid(USER), 0);
    good &= tt_trust_contents(fd, true, why) == d->obeyed_by_user;
    good &= tt_trust_contents(fd, false, why) == (d->obeyed_by_user && d->owner == 0);
    assert_int_equal(seteuid(0), 0);
    if (!good) {
      fail_msg("mode %o, user %u, group %u: %s", (unsigned)d->mode, (unsigned)d->owner, (unsigned)d->group, why);
    }
  }
  close(fd);
  unlink(path);
}

static void is_open_file(void **state)
{
  (void)state;
  static const mode_t modes[] = {0600, 0640, 0604, 0644};
  char path[] = "/tmp/tutti-open-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  for (size_t i = 0; i < TT_COUNT(modes); i++) {
    assert_int_equal(fchmod(fd, modes[i]), 0);
    assert_int_equal(tt_own_file_is_open(path), i >= 2);
  }
  close(fd);
  unlink(path);
  assert_false(tt_own_file_is_open(path));
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_trusted_contents), cmocka_unit_test(is_open_file)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
