// fuzz_figures.c: any bytes as a file of figures. What is accepted is good, and written again it is read as the same;
// what is refused has a reason.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figures.h"

static void check(int condition)
{
  if (!condition) {
    abort();
  }
}

static void parse(const char *text, size_t size, const tt_machine_kind *kind)
{
  char why[TT_FIGURES_WHY] = "", again[TT_FIGURES_MAX_BYTES];
  tt_figures f, back;
  if (!tt_figures_parse(text, size, kind, &f, why)) {
    check(why[0] != 0 && memchr(why, 0, sizeof why) != NULL);
    return;
  }
  check(tt_figures_good(&f) && f.measured == 1 && f.when > 0);
  const tt_machine_kind some = {.cpu = "cpu", .kernel = "kernel", .cores = 2};
  size_t n = tt_figures_write(&f, &some, "host", again);
  check(n > 0 && n < sizeof again && n == strlen(again));
  check(tt_figures_parse(again, n, &some, &back, why) && tt_figures_same(&f, &back) && f.when == back.when);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  const tt_machine_kind some = {.cpu = "cpu", .kernel = "kernel", .cores = 2};
  parse((const char *)data, size, NULL);
  parse((const char *)data, size, &some);
  return 0;
}
