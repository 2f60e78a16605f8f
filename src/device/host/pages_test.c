// Huge pages under buffers: from which use on, how many at a time, and what else may lie there.
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/host/pages.h"
#include "os/map.h"

enum { PAGES = 4 };

static size_t huge;

// So many huge pages' worth of small ones, at a multiple of a huge page's size, written; what is beside them is no
// memory, so that the kernel joins them with nothing else. The caller unmaps them.
static unsigned char *map_pages(int n)
{
  unsigned char *p = mmap(NULL, (size_t)(n + 2) * huge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  assert_true(p != MAP_FAILED);
  p += huge - (uintptr_t)p % huge;
  assert_int_equal(mprotect(p, (size_t)n * huge, PROT_READ | PROT_WRITE), 0);
  madvise(p, (size_t)n * huge, MADV_NOHUGEPAGE); // whatever the machine does by itself
  for (size_t i = 0; i < (size_t)n * huge; i++) {
    p[i] = (unsigned char)(i * 7 + i / 4096);
  }
  madvise(p, (size_t)n * huge, MADV_HUGEPAGE);
  return p;
}

static void check_content(const unsigned char *p, int n)
{
  for (size_t i = 0; i < (size_t)n * huge; i++) {
    if (p[i] != (unsigned char)(i * 7 + i / 4096)) {
      fail_msg("byte %zu has changed", i);
    }
  }
}

// Huge pages in the mappings of [p, p + n huge pages).
static int huge_pages(const unsigned char *p, int n)
{
  char line[512];
  unsigned long from, to, kib, all = 0;
  bool here = false;
  FILE *f = fopen("/proc/self/smaps", "r");
  assert_non_null(f);
  while (fgets(line, sizeof line, f) != NULL) {
    if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
      here = from < (uintptr_t)p + (size_t)n * huge && to > (uintptr_t)p;
    } else if (here && sscanf(line, "AnonHugePages: %lu kB", &kib) == 1) {
      all += kib;
    }
  }
  fclose(f);
  return (int)((size_t)all * 1024 / huge);
}

// Does the kernel do it at all? Not before Linux 6.1, and not where it has been switched off.
static void need_huge_pages(void)
{
  int error = ENOSYS;
  for (int i = 0; i < 10 && huge > 0 && error != 0; i++) {
    unsigned char *p = map_pages(1);
    error = tt_map_huge(p, huge);
    munmap(p, huge);
  }
  if (error != 0) {
    print_message("the kernel makes no huge pages: %s\n", strerror(error));
    skip();
  }
}

static void use(tt_pages *t, const void *p, size_t bytes, int times)
{
  for (int i = 0; i < times; i++) {
    tt_pages_use(t, &(tt_buffer_use){.in = p, .in_bytes = bytes});
  }
}

// Until all are huge, or the kernel has refused for long: somebody may hold a page for a moment, or take what is free.
static void use_until(tt_pages *t, unsigned char *p, int n)
{
  for (int i = 0; i < 20000 && huge_pages(p, n) < n; i++) {
    use(t, p, (size_t)n * huge, 1);
  }
  assert_int_equal(huge_pages(p, n), n);
}

static int setup(void **state)
{
  (void)state;
  huge = tt_map_huge_size();
  return 0;
}

static void buffers_that_come_back(void **state)
{
  (void)state;
  need_huge_pages();
  tt_pages t = {.huge = huge};
  unsigned char *p = map_pages(PAGES);
  use(&t, p, PAGES * huge, TT_PAGES_USES);
  assert_int_equal(t.made, 0);
  use_until(&t, p, PAGES);
  for (int i = 0; i < 20000 && t.made < PAGES; i++) { // the kernel's own thread may have been first with some of them
    use(&t, p, PAGES * huge, 1);
  }
  assert_true(t.made >= PAGES);
  check_content(p, PAGES);
  // Freed and other memory at the same address by now: found after a rest.
  munmap(p, PAGES * huge);
  void *again = mmap(p, PAGES * huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  assert_ptr_equal(again, p);
  madvise(p, PAGES * huge, MADV_NOHUGEPAGE);
  memset(p, 1, PAGES * huge);
  madvise(p, PAGES * huge, MADV_HUGEPAGE);
  use_until(&t, p, PAGES);
  munmap(p, PAGES * huge);
}

// Only what lies wholly inside the buffer.
static void odd_ends(void **state)
{
  (void)state;
  need_huge_pages();
  tt_pages t = {.huge = huge};
  unsigned char *p = map_pages(PAGES);
  use(&t, p, huge - 1, 20);
  use(&t, p + 4096, huge, 20);
  use(&t, p, 0, 20);
  assert_int_equal(t.made, 0);
  for (int i = 0; i < 20000 && huge_pages(p, PAGES) < PAGES - 1; i++) {
    use(&t, p + 1, PAGES * huge - 1, 1);
  }
  int places = 0;
  for (int i = 0; i < TT_PAGES_SEEN; i++) {
    const tt_pages_buffer *b = &t.seen[i];
    places += b->from == (uintptr_t)p + huge && b->to == (uintptr_t)p + PAGES * huge;
    assert_true(b->from != (uintptr_t)p || b->to == b->from);
  }
  assert_int_equal(places, 1);
  check_content(p, PAGES);
  munmap(p, PAGES * huge);
}

// What the kernel refuses is asked for less and less often, and does no harm.
static void refusals(void **state)
{
  (void)state;
  need_huge_pages();
  tt_pages t = {.huge = huge};
  unsigned char *p = map_pages(1);
  madvise(p, huge, MADV_NOHUGEPAGE); // the owner does not want them
  use(&t, p, huge, 100);
  assert_int_equal(t.made, 0);
  check_content(p, 1);
  munmap(p, huge);
  use(&t, p, huge, 100000); // no memory at all
  int rests = 0;
  for (int i = 0; i < TT_PAGES_SEEN; i++) {
    rests += t.seen[i].rest == TT_PAGES_TIRED;
  }
  assert_int_equal(rests, 1);
  assert_int_equal(t.made, 0);
}

// Both buffers of a call, one after the other.
static void two_buffers(void **state)
{
  (void)state;
  need_huge_pages();
  tt_pages t = {.huge = huge};
  unsigned char *in = map_pages(PAGES), *out = map_pages(PAGES);
  for (int i = 0; i < 20000 && huge_pages(in, PAGES) + huge_pages(out, PAGES) < 2 * PAGES; i++) {
    tt_pages_use(&t, &(tt_buffer_use){.in = in, .in_bytes = PAGES * huge, .out = out, .out_bytes = PAGES * huge});
  }
  assert_int_equal(huge_pages(in, PAGES), PAGES);
  assert_int_equal(huge_pages(out, PAGES), PAGES);
  check_content(in, PAGES);
  check_content(out, PAGES);
  munmap(in, PAGES * huge);
  munmap(out, PAGES * huge);
}

// Pages that forked relatives share stay shared, on either side, until the process has them to itself; none is made of
// memory that nobody has touched.
static void shared_pages(void **state)
{
  (void)state;
  need_huge_pages();
  tt_pages t = {.huge = huge};
  unsigned char *p = map_pages(PAGES);
  int ends[2], status;
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    char word;
    close(ends[1]);
    use(&t, p, PAGES * huge, 1000);
    (void)!read(ends[0], &word, 1); // until the parent has tried, too
    _exit(t.made == 0 ? 0 : 1);
  }
  close(ends[0]);
  use(&t, p, PAGES * huge, 1000);
  assert_int_equal(t.made, 0);
  close(ends[1]);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  use_until(&t, p, PAGES);
  check_content(p, PAGES);
  munmap(p, PAGES * huge);
  p = mmap(NULL, (PAGES + 1) * huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(p != MAP_FAILED);
  t = (tt_pages){.huge = huge};
  use(&t, p, (PAGES + 1) * huge, 1000);
  assert_int_equal(t.made, 0);
  munmap(p, (PAGES + 1) * huge);
}

static void switched_off(void **state)
{
  (void)state;
  tt_pages t = {0};
  char some[100] = "";
  use(&t, some, sizeof some, 20);
  use(&t, NULL, SIZE_MAX, 20);
  t.huge = huge > 0 ? huge : (size_t)2 << 20;
  use(&t, (void *)(UINTPTR_MAX - 4096), t.huge * 3, 20); // beyond the end of all addresses
  use(&t, NULL, SIZE_MAX / 2, 20);
  assert_int_equal(t.made, 0);
  tt_pages_open(&t, false);
  assert_int_equal(t.huge, 0);
  assert_true(t.least == SIZE_MAX);
  use(&t, some, sizeof some, 20);
  assert_int_equal(t.made, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(buffers_that_come_back),
      cmocka_unit_test(odd_ends),
      cmocka_unit_test(refusals),
      cmocka_unit_test(two_buffers),
      cmocka_unit_test(shared_pages),
      cmocka_unit_test(switched_off),
  };
  return cmocka_run_group_tests_name("pages", tests, setup, NULL);
}
