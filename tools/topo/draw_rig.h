// draw_rig.h: what the tests of drawing, lint and diff share: files made of text, output caught in memory, a machine
// with channels.
#pragma once
#include "topo/topo_rig.h"

#include <unistd.h>

#include "base/util.h"
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

// A machine, its paths and channels, and names for its ports.
typedef struct rig {
  tt_topo *topo;
  tt_paths *paths;
  tt_graphs graphs;
  const char **ports;
  xp_drawing d;
} rig;

RIG void set_up(rig *r, tt_xml *xml, bool inter)
{
  tt_topo_rules rules = tt_topo_rules_default();
  tt_search_options options = {.inter = inter, .cross_nic = 2, .nvls = true, .max_steps = 3000}; // any channels will do
  memset(r, 0, sizeof(*r));
  r->topo = rig_build(xml, NULL);
  r->paths = rig_paths(r->topo, NULL);
  bool found = tt_graphs_search(r->topo, r->paths, &rules, &options, &r->graphs) == ncclSuccess;
  r->ports = tt_calloc((size_t)r->topo->nnodes + 1, sizeof(*r->ports));
  for (int i = r->topo->first[TT_NODE_NET]; i < r->topo->first[TT_NODE_NET + 1]; i++) {
    r->ports[i] = i % 5 == 4 ? NULL : i % 2 ? "</script><!--<script>\"&" : "eth\xc3\xa9";
  }
  r->d = (xp_drawing){"a machine", r->topo, r->paths, found ? &r->graphs : NULL, r->ports, NULL, 1};
}

RIG void tear_down(rig *r)
{
  tt_free(r->ports);
  tt_graphs_clear(&r->graphs);
  tt_paths_destroy(r->paths);
  tt_topo_destroy(r->topo);
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
