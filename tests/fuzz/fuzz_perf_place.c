// Variables of launchers: the input is an environment, one NAME=value per line.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "place.h"

static const char *environment; // lines that end with '\0', then an empty one

static const char *lookup(const char *name)
{
  size_t len = strlen(name);
  for (const char *line = environment; *line; line += strlen(line) + 1) {
    if (strncmp(line, name, len) == 0 && line[len] == '=') {
      return line + len + 1;
    }
  }
  return NULL;
}

static void require(int ok)
{
  if (!ok) {
    abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char *text = calloc(1, size + 2);
  if (!text) {
    return 0;
  }
  memcpy(text, data, size);
  for (size_t i = 0; i < size; i++) {
    text[i] = text[i] == '\n' ? '\0' : text[i];
  }
  environment = text;
  perf_place p;
  perf_text said;
  bool ok = perf_place_find(lookup, &p, &said);
  require(strlen(said.buf) == said.len);
  require(memchr(p.host, 0, sizeof(p.host)) && memchr(p.missing, 0, sizeof(p.missing)));
  if (!ok) {
    require(said.len > 0);
  } else if (p.by != PERF_BY_NOBODY && p.procs != 0) {
    require(p.proc >= 0 && p.proc < p.procs && p.procs <= PERF_MAX_RANKS);
    require(p.missing[0] || (p.host[0] && p.port > 0 && p.port < 65536));
  }
  free(text);
  return 0;
}
