// draw_rig.h: what the tests of drawing, lint and diff share: files made of text, output caught in memory, a machine of H100s.
#pragma once
#include "topo/topo_rig.h"

#include <unistd.h>

#include "draw.h"

// Writes text into a file of its own. The caller removes it.
RIG void rig_file(char path[64], const char *text, size_t size)
{
  strcpy(path, "/tmp/tutti_topo_XXXXXX");
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, size), (long)size);
  close(fd);
}

typedef struct rig_out {
  FILE *f;
  char *text;
  size_t size;
} rig_out;

RIG void rig_open(rig_out *o)
{
  o->f = open_memstream(&o->text, &o->size);
  assert_non_null(o->f);
}

RIG void rig_close(rig_out *o)
{
  fclose(o->f);
  free(o->text);
}

// The whole of a file; free it.
RIG char *rig_slurp(const char *path, size_t *size)
{
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  char *text = calloc(1, 1 << 20);
  *size = fread(text, 1, (1 << 20) - 1, f);
  fclose(f);
  return text;
}

// Replaces the first `from` in a copy of text; free it.
RIG char *rig_replace(const char *text, const char *from, const char *to)
{
  const char *at = strstr(text, from);
  if (at == NULL) {
    fail_msg("'%s' is not in the text", from);
  }
  char *out = calloc(1, strlen(text) + strlen(to) + 1);
  memcpy(out, text, (size_t)(at - text));
  strcpy(out + (at - text), to);
  strcat(out, at + strlen(from));
  return out;
}

// Numbers that look random and are the same every time.
RIG unsigned rig_random(unsigned *state)
{
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

// Spoils some bytes of text.
RIG void rig_spoil(char *text, size_t size, unsigned *state)
{
  static const char bytes[] = "<>\"/=0123456789abcdefxz-. \0\xff";
  for (unsigned i = rig_random(state) % 6 + 1; i > 0; i--) {
    text[rig_random(state) % size] = bytes[rig_random(state) % (sizeof(bytes) - 1)];
  }
}
