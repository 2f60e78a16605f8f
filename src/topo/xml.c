// xml.c: the tree and its memory.
#include "topo/xml.h"

#include <stdio.h>

#include "base/util.h"
#include "topo/xml_priv.h"

static ncclResult_t xml_no_memory(const tt_xml *xml)
{
  return tt_fail(ncclSystemError, "%s: no memory for the document after %d elements", xml->name, xml->nnodes);
}

ncclResult_t tt_xml_empty(const char *name, tt_xml **out)
{
  tt_xml *xml = tt_calloc(1, sizeof(*xml));
  if (xml != NULL) {
    xml->name = tt_arena_text(&xml->arena, name, strnlen(name, TT_XML_MAX_VALUE));
  }
  if (xml == NULL || xml->name == NULL) {
    tt_xml_destroy(xml);
    return tt_fail(ncclSystemError, "%s: no memory for the document", name);
  }
  *out = xml;
  return ncclSuccess;
}

ncclResult_t tt_xml_new(const char *name, const char *tag, tt_xml **out)
{
  tt_xml *xml = NULL;
  ncclResult_t res;
  TT_TRY(tt_xml_empty(name, &xml));
  TT_TRY_GOTO(tt_xml_add(xml, NULL, tag, &xml->root), res);
  *out = xml;
  return ncclSuccess;
fail:
  tt_xml_destroy(xml);
  return res;
}

void tt_xml_destroy(tt_xml *xml)
{
  if (xml == NULL) {
    return;
  }
  tt_arena_clear(&xml->arena);
  tt_free(xml);
}

// The first of `node` and its siblings behind it that is called `tag`.
static tt_xml_node *xml_first(tt_xml_node *node, const char *tag)
{
  while (node != NULL && tag != NULL && strcmp(node->tag, tag) != 0) {
    node = node->next;
  }
  return node;
}

tt_xml_node *tt_xml_child(const tt_xml_node *node, const char *tag)
{
  return xml_first(node->child, tag);
}

tt_xml_node *tt_xml_sibling(const tt_xml_node *node, const char *tag)
{
  return xml_first(node->next, tag);
}

tt_xml_node *tt_xml_walk(const tt_xml_node *top, const tt_xml_node *node)
{
  if (node->child != NULL) {
    return node->child;
  }
  while (node != top && node->next == NULL) {
    node = node->parent;
  }
  return node == top ? NULL : node->next;
}

// Links a node into the tree, behind the child `before` of its parent; NULL: as the first child.
static void xml_link(tt_xml_node *parent, tt_xml_node *before, tt_xml_node *node)
{
  tt_xml_node **at = before != NULL ? &before->next : &parent->child;
  node->parent = parent;
  node->depth = parent->depth + 1;
  node->next = *at;
  *at = node;
  parent->last_child = node->next == NULL ? node : parent->last_child;
}

// Names of elements and attributes that XML allows: enough of the rule that what is written can be read.
static bool xml_good_name(const char *name)
{
  const char *bad = " \t\r\n<>&\"'=/!?";
  size_t n = strnlen(name, TT_XML_MAX_VALUE + 1);
  return n > 0 && n <= TT_XML_MAX_VALUE && name[strcspn(name, bad)] == 0 && strchr("0123456789-.", name[0]) == NULL;
}

ncclResult_t tt_xml_insert(tt_xml *xml, tt_xml_node *parent, tt_xml_node *before, const char *tag, tt_xml_node **out)
{
  if (xml->nnodes >= TT_XML_MAX_NODES) {
    return tt_fail(ncclInvalidArgument, "%s: more than %d elements", xml->name, TT_XML_MAX_NODES);
  }
  if (!xml_good_name(tag)) {
    return tt_fail(ncclInvalidArgument, "%s: '%.64s' cannot be the name of an element", xml->name, tag);
  }
  if (parent != NULL && parent->depth >= TT_XML_MAX_DEPTH) {
    return tt_xml_fail(parent, "elements inside elements more than %d deep", TT_XML_MAX_DEPTH);
  }
  tt_xml_node *node = tt_arena_get(&xml->arena, 1, sizeof(*node));
  const char *kept = tt_arena_text(&xml->arena, tag, strlen(tag));
  if (node == NULL || kept == NULL) {
    return xml_no_memory(xml);
  }
  node->tag = kept;
  node->file = xml->name;
  node->depth = 1;
  xml->nnodes++;
  if (parent != NULL) {
    xml_link(parent, before, node);
  }
  *out = node;
  return ncclSuccess;
}

ncclResult_t tt_xml_add(tt_xml *xml, tt_xml_node *parent, const char *tag, tt_xml_node **out)
{
  return tt_xml_insert(xml, parent, parent != NULL ? parent->last_child : NULL, tag, out);
}

static ncclResult_t xml_copy_one(tt_xml *xml, tt_xml_node *parent, const tt_xml_node *from, tt_xml_node **out)
{
  TT_TRY(tt_xml_add(xml, parent, from->tag, out));
  const char *file = parent != NULL && strcmp(parent->file, from->file) == 0 ? parent->file : NULL;
  (*out)->file = file != NULL ? file : tt_arena_text(&xml->arena, from->file, strlen(from->file));
  (*out)->line = from->line;
  if ((*out)->file == NULL) {
    return xml_no_memory(xml);
  }
  for (const tt_xml_attr *a = from->attrs; a != NULL; a = a->next) {
    TT_TRY(tt_xml_set(xml, *out, a->name, a->value));
  }
  return ncclSuccess;
}

ncclResult_t tt_xml_copy(tt_xml *xml, tt_xml_node *parent, const tt_xml_node *from, tt_xml_node **out)
{
  tt_xml_node *top = NULL, *into = NULL;
  TT_TRY(xml_copy_one(xml, parent, from, &top));
  into = top;
  for (const tt_xml_node *n = from, *next; (next = tt_xml_walk(from, n)) != NULL; n = next) {
    // `into` is the copy of n: go up as far as the walk went up.
    for (const tt_xml_node *up = n; up != next->parent; up = up->parent) {
      into = into->parent;
    }
    TT_TRY(xml_copy_one(xml, into, next, &into));
  }
  *out = top;
  return ncclSuccess;
}

static bool xml_same_one(const tt_xml_node *a, const tt_xml_node *b)
{
  const tt_xml_attr *x = a->attrs, *y = b->attrs;
  while (x != NULL && y != NULL && strcmp(x->name, y->name) == 0 && strcmp(x->value, y->value) == 0) {
    x = x->next;
    y = y->next;
  }
  return x == NULL && y == NULL && strcmp(a->tag, b->tag) == 0 && (a->child == NULL) == (b->child == NULL);
}

bool tt_xml_same(const tt_xml_node *a, const tt_xml_node *b)
{
  const tt_xml_node *x = a, *y = b;
  while (x != NULL && y != NULL) {
    if (!xml_same_one(x, y) || (x != a && (x->next == NULL) != (y->next == NULL))) {
      return false;
    }
    x = tt_xml_walk(a, x);
    y = tt_xml_walk(b, y);
  }
  return x == NULL && y == NULL;
}

// ---- Attributes ----

// Where an attribute of that name stands, or the end of the list.
static tt_xml_attr **xml_find_attr(tt_xml_node *node, const char *name)
{
  tt_xml_attr **at = &node->attrs;
  while (*at != NULL && strcmp((*at)->name, name) != 0) {
    at = &(*at)->next;
  }
  return at;
}

const char *tt_xml_get(const tt_xml_node *node, const char *name)
{
  const tt_xml_attr *a = node->attrs;
  while (a != NULL && strcmp(a->name, name) != 0) {
    a = a->next;
  }
  return a != NULL ? a->value : NULL;
}

// Bytes of one UTF-8 character, 0 when it is none or one that XML does not allow.
static size_t xml_character(const unsigned char *p)
{
  if (p[0] < 0x80) {
    return p[0] >= 0x20 || p[0] == '\t' || p[0] == '\n' || p[0] == '\r';
  }
  size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
  unsigned value = p[0] & (0xff >> (n + 1));
  for (size_t i = 1; i < n; i++) {
    if ((p[i] & 0xc0) != 0x80) {
      return 0;
    }
    value = value << 6 | (p[i] & 0x3f);
  }
  static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
  bool bad = p[0] < 0xc2 || p[0] > 0xf4 || value < least[n] || value > 0x10ffff ||
             (value >= 0xd800 && value < 0xe000) || value == 0xfffe || value == 0xffff;
  return bad ? 0 : n;
}

static bool xml_good_value(const char *value)
{
  const unsigned char *p = (const unsigned char *)value;
  for (size_t n = 1; *p != 0; p += n) {
    n = xml_character(p);
    if (n == 0) {
      return false;
    }
  }
  return true;
}

static ncclResult_t xml_add_attr(tt_xml *xml, tt_xml_node *node, const char *name, tt_xml_attr **at)
{
  int count = 0;
  for (const tt_xml_attr *a = node->attrs; a != NULL; a = a->next) {
    count++;
  }
  if (count >= TT_XML_MAX_ATTRS) {
    return tt_xml_fail(node, "more than %d attributes", TT_XML_MAX_ATTRS);
  }
  if (!xml_good_name(name)) {
    return tt_xml_fail(node, "'%.64s' cannot be the name of an attribute", name);
  }
  tt_xml_attr *a = tt_arena_get(&xml->arena, 1, sizeof(*a));
  const char *kept = tt_arena_text(&xml->arena, name, strlen(name));
  if (a == NULL || kept == NULL) {
    return xml_no_memory(xml);
  }
  a->name = kept;
  *at = a;
  return ncclSuccess;
}

ncclResult_t tt_xml_set(tt_xml *xml, tt_xml_node *node, const char *name, const char *value)
{
  size_t size = strnlen(value, TT_XML_MAX_VALUE + 1);
  if (size > TT_XML_MAX_VALUE || strnlen(name, TT_XML_MAX_VALUE + 1) > TT_XML_MAX_VALUE) {
    return tt_xml_fail(node, "%.64s is longer than %d bytes", name, TT_XML_MAX_VALUE);
  }
  if (!xml_good_value(value)) {
    return tt_xml_fail(node, "%.64s: its value is not UTF-8 text", name);
  }
  const char *kept = tt_arena_text(&xml->arena, value, size);
  if (kept == NULL) {
    return xml_no_memory(xml);
  }
  tt_xml_attr **at = xml_find_attr(node, name);
  TT_TRY(*at == NULL ? xml_add_attr(xml, node, name, at) : ncclSuccess);
  (*at)->value = kept;
  return ncclSuccess;
}

ncclResult_t tt_xml_set_int(tt_xml *xml, tt_xml_node *node, const char *name, long long value)
{
  char text[32];
  snprintf(text, sizeof(text), "%lld", value);
  return tt_xml_set(xml, node, name, text);
}

void tt_xml_unset(tt_xml_node *node, const char *name)
{
  tt_xml_attr **at = xml_find_attr(node, name);
  *at = *at != NULL ? (*at)->next : NULL;
}
