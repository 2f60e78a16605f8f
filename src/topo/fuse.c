// fuse.c: several views of a machine become one document.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "topo/system.h"

// What makes two elements of a name the same: these attributes. No row: never the same, unless all of it is.
static const struct {
  const char *tag;
  const char *keys[2];
} kinds[] = {{"cpu", {"host_hash", "numaid"}},
             {"pci", {"busid"}},
             {"gpu", {"dev", "rank"}},
             {"net", {"name"}},
             {"nvlink", {"target"}},
             {"xgmi", {"target"}},
             {"pcilink", {"target"}},
             {"nic", {NULL}},
             {"c2c", {NULL}}};

// Bus ids, host hashes and numbers may be written in more than one way.
static bool same_value(const char *key, const char *a, const char *b)
{
  if (a == NULL || b == NULL) {
    // A view without a GPU's rank fits any rank. Without host hashes there is one host.
    return (a == NULL && b == NULL) || strcmp(key, "rank") == 0;
  }
  int64_t x, y;
  if ((strcmp(key, "busid") == 0 || strcmp(key, "target") == 0) && tt_bus_id(a, &x) && tt_bus_id(b, &y)) {
    return x == y;
  }
  if (strcmp(key, "host_hash") == 0) {
    return strtoull(a, NULL, 16) == strtoull(b, NULL, 16);
  }
  return strcmp(a, b) == 0;
}

static bool same_element(const tt_xml_node *a, const tt_xml_node *b)
{
  if (strcmp(a->tag, b->tag) != 0) {
    return false;
  }
  for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
    if (strcmp(a->tag, kinds[i].tag) != 0) {
      continue;
    }
    for (int k = 0; k < 2 && kinds[i].keys[k] != NULL; k++) {
      const char *key = kinds[i].keys[k];
      if (!same_value(key, tt_xml_get(a, key), tt_xml_get(b, key))) {
        return false;
      }
    }
    return true;
  }
  return tt_xml_same(a, b);
}

// What stands for `from` in `parent`. `hint` is where it would be if both views had the same order: then nothing is
// searched, and of several with the same key each finds its own.
static tt_xml_node *counterpart(const tt_xml_node *parent, tt_xml_node *hint, const tt_xml_node *from)
{
  if (hint != NULL && same_element(hint, from)) {
    return hint;
  }
  tt_xml_node *n = tt_xml_child(parent, from->tag);
  while (n != NULL && !same_element(n, from)) {
    n = tt_xml_sibling(n, from->tag);
  }
  return n;
}

static ncclResult_t fuse_attributes(tt_xml *xml, tt_xml_node *into, const tt_xml_node *from)
{
  for (const tt_xml_attr *a = from->attrs; a != NULL; a = a->next) {
    const char *have = tt_xml_get(into, a->name);
    if (have == NULL || have[0] == 0) {
      TT_TRY(tt_xml_set(xml, into, a->name, a->value));
    } else if (a->value[0] != 0 && !same_value(a->name, have, a->value)) {
      char text[512];
      snprintf(text, sizeof(text), "<%.64s>: %.64s=\"%.64s\" is \"%.64s\"", from->tag, a->name, a->value, have);
      tt_xml_plain(text);
      tt_info(TT_GRAPH, "%s:%d: %s at %s:%d, which is kept", from->file, from->line, text, into->file, into->line);
    }
  }
  return ncclSuccess;
}

// The depth of documents is limited, so is the recursion.
static ncclResult_t fuse_below(tt_xml *xml, tt_xml_node *into, const tt_xml_node *from)
{
  TT_TRY(fuse_attributes(xml, into, from));
  tt_xml_node *hint = into->child;
  for (const tt_xml_node *c = from->child; c != NULL; c = c->next) {
    tt_xml_node *same = counterpart(into, hint, c);
    if (same != NULL) {
      TT_TRY(fuse_below(xml, same, c));
    } else {
      TT_TRY(tt_xml_copy(xml, into, c, &same));
    }
    hint = same->next;
  }
  return ncclSuccess;
}

ncclResult_t tt_topo_fuse(tt_xml *into, const tt_xml *from)
{
  if (strcmp(from->root->tag, into->root->tag) != 0) {
    return tt_xml_fail(from->root, "cannot be joined with the <%.64s> of %s", into->root->tag, into->name);
  }
  return fuse_below(into, into->root, from->root);
}

ncclResult_t tt_topo_set_host(tt_xml *xml, uint64_t hash)
{
  char text[32];
  snprintf(text, sizeof(text), "0x%" PRIx64, hash);
  for (tt_xml_node *n = tt_xml_child(xml->root, "cpu"); n != NULL; n = tt_xml_sibling(n, "cpu")) {
    TT_TRY(tt_xml_set(xml, n, "host_hash", text));
  }
  return ncclSuccess;
}
