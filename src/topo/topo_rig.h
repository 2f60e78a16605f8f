// topo_rig.h: what the tests of this folder share: documents from text, machines from documents, the machines of
// tests/topologies.
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "topo/paths.h"

#define RIG static __attribute__((unused))
#define RIG_MACHINES "tests/topologies"

RIG tt_xml *rig_xml(const char *text)
{
  tt_xml *xml = NULL;
  assert_int_equal(tt_xml_parse("machine.xml", text, strlen(text), &xml), ncclSuccess);
  return xml;
}

RIG tt_xml *rig_read(const char *path)
{
  tt_xml *xml = NULL;
  if (tt_xml_read(path, &xml) != ncclSuccess) {
    fail_msg("%s", tt_last_error());
  }
  return xml;
}

// Takes a node with all that is in it out of the tree (not the root).
RIG void rig_xml_remove(tt_xml_node *node)
{
  tt_xml_node *parent = node->parent, *before = NULL;
  for (tt_xml_node *c = parent->child; c != node; c = c->next) {
    before = c;
  }
  *(before != NULL ? &before->next : &parent->child) = node->next;
  if (parent->last_child == node) {
    parent->last_child = before;
  }
}

// Two hosts of one NVLink domain: the machine twice.
RIG void rig_double_hosts(tt_xml *xml, const char *path)
{
  tt_xml *other = rig_read(path);
  int ranks = 0, rank;
  for (tt_xml_node *n = xml->root; n != NULL; n = tt_xml_walk(xml->root, n)) {
    ranks += tt_xml_get(n, "rank") != NULL;
  }
  for (tt_xml_node *n = other->root; n != NULL; n = tt_xml_walk(other->root, n)) {
    if (tt_xml_get(n, "rank") != NULL) {
      assert_int_equal(tt_xml_int(n, "rank", (tt_xml_range){0, ranks}, &rank), ncclSuccess);
      assert_int_equal(tt_xml_set_int(other, n, "rank", rank + ranks), ncclSuccess);
    }
  }
  assert_int_equal(tt_topo_set_host(xml, 1), ncclSuccess);
  assert_int_equal(tt_topo_set_host(other, 2), ncclSuccess);
  assert_int_equal(tt_topo_fuse(xml, other), ncclSuccess);
  tt_xml_destroy(other);
}

// Counts notes instead of logging them.
RIG void rig_count(void *arg, const tt_xml_node *at, const char *text)
{
  assert_non_null(at->file);
  assert_non_null(strstr(text, ": "));
  ++*(int *)arg;
}

// The machine of a document, which is freed. Notes are counted in *notes.
RIG tt_topo *rig_build(tt_xml *xml, int *notes)
{
  tt_topo *topo = NULL;
  int count = 0;
  if (tt_topo_build(xml, rig_count, notes != NULL ? notes : &count, &topo) != ncclSuccess) {
    fail_msg("%s", tt_last_error());
  }
  tt_xml_destroy(xml);
  assert_int_equal(tt_topo_check(topo), ncclSuccess);
  return topo;
}

RIG tt_paths *rig_paths(const tt_topo *topo, const tt_topo_rules *rules)
{
  tt_topo_rules def = tt_topo_rules_default();
  tt_paths *paths = NULL;
  if (tt_paths_build(topo, rules != NULL ? rules : &def, &paths) != ncclSuccess) {
    fail_msg("%s", tt_last_error());
  }
  assert_int_equal(tt_paths_check(topo, paths), ncclSuccess);
  return paths;
}

// The last error must have both texts in it.
RIG void rig_error(ncclResult_t res, const char *place, const char *what)
{
  assert_int_not_equal(res, ncclSuccess);
  if (strstr(tt_last_error(), place) == NULL || strstr(tt_last_error(), what) == NULL) {
    fail_msg("'%s' and '%s' expected in: %s", place, what, tt_last_error());
  }
}

// The link of a type from a to b; NULL: none.
RIG const tt_topo_link *rig_link(const tt_topo *t, int a, int b, int type)
{
  const tt_topo_node *n = &t->nodes[a];
  for (int l = n->first_link; l < n->first_link + n->nlinks; l++) {
    if (t->links[l].to == b && t->links[l].type == type) {
      return &t->links[l];
    }
  }
  return NULL;
}

RIG void rig_same(float a, float b)
{
  assert_true(a > b - 0.001f && a < b + 0.001f);
}

RIG void rig_same_net(const tt_topo_node *a, const tt_topo_node *b)
{
  const int x[] = {a->net.dev, a->net.port, a->net.gdr, a->net.coll, a->net.maxconn, a->net.rail, a->net.plane};
  const int y[] = {b->net.dev, b->net.port, b->net.gdr, b->net.coll, b->net.maxconn, b->net.rail, b->net.plane};
  assert_memory_equal(x, y, sizeof(x));
  rig_same(a->net.latency, b->net.latency);
  rig_same(a->net.bw, b->net.bw);
  assert_int_equal(a->net.guid, b->net.guid);
  assert_int_equal(a->net.card, b->net.card);
}

// All of two nodes but for GPUs' `device`, which is a node's index.
RIG void rig_same_node(const tt_topo_node *a, const tt_topo_node *b)
{
  assert_int_equal(a->kind, b->kind);
  assert_int_equal(a->id, b->id);
  if (a->kind == TT_NODE_GPU) {
    assert_memory_equal(&a->gpu, &b->gpu, offsetof(tt_topo_node, gpu.device) - offsetof(tt_topo_node, gpu));
  } else if (a->kind == TT_NODE_CPU) {
    assert_memory_equal(&a->cpu, &b->cpu, sizeof(a->cpu));
  } else if (a->kind == TT_NODE_NET) {
    rig_same_net(a, b);
  } else if (a->kind == TT_NODE_PCI) {
    assert_int_equal(a->pci.device, b->pci.device);
  }
}

// Same nodes and links; where they stood in the document may differ.
RIG void rig_same_model(const tt_topo *a, const tt_topo *b)
{
  assert_int_equal(a->nnodes, b->nnodes);
  assert_int_equal(a->nlinks, b->nlinks);
  for (int i = 0; i < a->nnodes; i++) {
    rig_same_node(&a->nodes[i], &b->nodes[i]);
  }
  for (int i = 0; i < a->nlinks; i++) {
    assert_int_equal(a->links[i].from, b->links[i].from);
    assert_int_equal(a->links[i].to, b->links[i].to);
    assert_int_equal(a->links[i].type, b->links[i].type);
    rig_same(a->links[i].bw, b->links[i].bw);
  }
}

// The node of `b` that is `n`; -1: none.
RIG int rig_twin(const tt_topo *b, const tt_topo_node *n)
{
  for (int i = b->first[n->kind]; i < b->first[n->kind + 1]; i++) {
    const tt_topo_node *o = &b->nodes[i];
    if (o->id == n->id && o->host == n->host && (n->kind != TT_NODE_GPU || o->gpu.rank == n->gpu.rank)) {
      return i;
    }
  }
  return -1;
}

// The same, but nodes and links may be in another order, as they are where elements are.
RIG void rig_equal_model(const tt_topo *a, const tt_topo *b)
{
  assert_int_equal(a->nnodes, b->nnodes);
  assert_int_equal(a->nlinks, b->nlinks);
  for (int i = 0; i < a->nnodes; i++) {
    const int twin = rig_twin(b, &a->nodes[i]);
    assert_true(twin >= 0);
    rig_same_node(&a->nodes[i], &b->nodes[twin]);
    if (a->nodes[i].kind == TT_NODE_GPU) {
      assert_int_equal(rig_twin(b, &a->nodes[a->nodes[i].gpu.device]), b->nodes[twin].gpu.device);
    }
  }
  for (int i = 0; i < a->nlinks; i++) {
    const tt_topo_link *l = &a->links[i];
    const tt_topo_link *other = rig_link(b, rig_twin(b, &a->nodes[l->from]), rig_twin(b, &a->nodes[l->to]), l->type);
    assert_non_null(other);
    rig_same(l->bw, other->bw);
  }
}

RIG float rig_bw(const tt_topo *t, int a, int b, int type)
{
  const tt_topo_link *l = rig_link(t, a, b, type);
  assert_non_null(l);
  return l->bw;
}

// The node of a kind and id on host 0; -1: none.
RIG int rig_node(const tt_topo *t, int kind, int64_t id)
{
  for (int i = t->first[kind]; i < t->first[kind + 1]; i++) {
    if (t->nodes[i].id == id && t->nodes[i].host == 0) {
      return i;
    }
  }
  return -1;
}

// Calls fn with each file of a folder whose name ends so, or with each folder when `end` is "". Returns how many there
// were.
RIG int rig_each(const char *folder, const char *end, void (*fn)(const char *path))
{
  struct dirent **names = NULL;
  int n = scandir(folder, &names, NULL, alphasort), count = 0;
  assert_true(n > 0);
  for (int i = 0; i < n; i++) {
    char path[1024];
    size_t length = strlen(names[i]->d_name), tail = strlen(end);
    bool wanted = names[i]->d_name[0] != '.' && length >= tail && strcmp(names[i]->d_name + length - tail, end) == 0 &&
                  (tail > 0 || names[i]->d_type == DT_DIR);
    if (wanted) {
      snprintf(path, sizeof(path), "%s/%s", folder, names[i]->d_name);
      fn(path);
      count++;
    }
    free(names[i]);
  }
  free(names);
  return count;
}

static void (*rig_fn)(const char *path) __attribute__((unused));

RIG void rig_folder(const char *path)
{
  rig_each(path, ".xml", rig_fn);
}

// All documents of machines there are.
RIG int rig_each_machine(void (*fn)(const char *path))
{
  rig_fn = fn;
  return rig_each(RIG_MACHINES "/known", "", rig_folder) + rig_each(RIG_MACHINES "/amd", ".xml", fn) +
         rig_each(RIG_MACHINES "/more", ".xml", fn);
}
