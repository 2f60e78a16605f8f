// Command lines of the perf programs: the input is cut at newlines into arguments. First byte 'S': the rest is
// NCCL_TESTS_SPLIT; 'M': a traffic matrix.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "matrix.h"
#include "options.h"
#include "split.h"

enum { MAX_ARGS = 64 };

static void require(int ok)
{
  if (!ok) {
    abort();
  }
}

static void fuzz_options(char *line)
{
  char *argv[MAX_ARGS + 1] = {"perf"};
  int argc = 1;
  for (char *next; line && argc < MAX_ARGS; line = next) {
    next = strchr(line, '\n');
    if (next) {
      *next++ = '\0';
    }
    argv[argc++] = line;
  }
  perf_options o;
  perf_text text;
  perf_parse_result r = perf_options_parse(&o, argc, argv, &text);
  require(strlen(text.buf) == text.len);
  if (r == PERF_BAD) {
    require(text.len > 0);
  }
  if (r != PERF_RUN) {
    return;
  }
  require(o.min_bytes <= o.max_bytes && o.iters > 0 && o.per_iter_skip < o.iters &&
          o.procs * o.threads * o.gpus <= PERF_MAX_RANKS);
  size_t size = o.min_bytes;
  for (int i = 0; i < 100 && size; i++) {
    size_t next = perf_next_size(&o, size);
    require(next == 0 || (next > size && next <= o.max_bytes));
    size = next;
  }
  require(perf_size_count(&o) > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char *text = malloc(size + 1);
  if (!text) {
    return 0;
  }
  memcpy(text, data, size);
  text[size] = '\0';
  perf_split split;
  if (text[0] == 'S') {
    if (perf_split_parse(text + 1, NULL, &split)) {
      perf_split_color(&split, 12345);
    }
    perf_split_parse(NULL, text + 1, &split);
  } else if (text[0] == 'M') {
    int dim;
    const char *error;
    free(perf_matrix_parse(text + 1, 1.5, &dim, &error));
  } else {
    fuzz_options(text);
  }
  free(text);
  return 0;
}
