// diff.c: two documents by meaning. Elements have keys (bus id, name, …); what has no partner by key gets one by
// position.
#define _GNU_SOURCE // qsort_r
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "diff_priv.h"
#include "machine.h"
#include "draw.h"
#include "topo/system.h"

typedef struct entry {
  const tt_xml_node *x;
  uint64_t key;
  int order, depth, parent, mate; // parent: in this document; mate: in the other one; -1: none
} entry;

typedef struct side {
  entry *list;
  int *sorted;
  int count;
} side;

// ---- Telling ----

void xp_differ_tell(xp_differ *d, char mark, const char *fmt, ...)
{
  char text[2048];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof(text), fmt, ap);
  va_end(ap);
  tt_xml_plain(text);
  if (d->count++ < XP_MAX_DIFFERENCES) {
    fprintf(d->out, "%c %s\n", mark, text);
  }
}

static bool whole(const char *text, unsigned long long *out)
{
  char *end = NULL;
  bool hex = text[0] == '0' && (text[1] | 0x20) == 'x';
  errno = 0;
  *out = strtoull(text, &end, hex ? 16 : 10);
  return end != text && *end == 0 && errno == 0;
}

static bool decimal(const char *text, double *out)
{
  char *end = NULL;
  *out = strtod(text, &end);
  return end != text && *end == 0;
}

bool xp_same_value(const char *a, const char *b)
{
  unsigned long long x, y;
  double p, q;
  float s, t;
  int64_t i, j;
  if (strcmp(a, b) == 0) {
    return true;
  }
  if (whole(a, &x) && whole(b, &y)) {
    return x == y;
  }
  if (decimal(a, &p) && decimal(b, &q)) {
    return p == q;
  }
  if (tt_bus_id(a, &i) && tt_bus_id(b, &j)) {
    return i == j;
  }
  return tt_bw_pci(a, 16, &s) && tt_bw_pci(b, 16, &t) && s == t;
}

static int difference(char *buf, size_t size, const char *name, const char *a, const char *b)
{
  return snprintf(buf, size, "%s %.100s -> %.100s", name, a != NULL ? (a[0] != 0 ? a : "\"\"") : "(none)",
                  b != NULL ? (b[0] != 0 ? b : "\"\"") : "(none)");
}

int xp_differ_attributes(const tt_xml_node *a, const tt_xml_node *b, char *buf, size_t size)
{
  int count = 0;
  size_t n = 0;
  buf[0] = 0;
  for (int pass = 0; pass < 2; pass++) {
    const tt_xml_node *from = pass == 0 ? a : b, *to = pass == 0 ? b : a;
    for (const tt_xml_attr *i = from->attrs; i != NULL; i = i->next) {
      const char *other = tt_xml_get(to, i->name);
      if ((pass == 1 && other != NULL) || (other != NULL && xp_same_value(i->value, other))) {
        continue;
      }
      if (n + 300 < size) {
        n += (size_t)snprintf(buf + n, size - n, "%s", count > 0 ? ", " : "");
        char name[65];
        snprintf(name, sizeof(name), "%.64s", i->name);
        n += (size_t)difference(buf + n, size - n, name, pass == 0 ? i->value : NULL, pass == 0 ? other : i->value);
      }
      count++;
    }
  }
  return count;
}

// "pci 0000:12:00.0", "gpu 0000:13:00.0", "net mlx5_0", …
static void name_of(const tt_xml_node *x, char *buf, size_t size)
{
  static const char *const names[] = {"busid", "name", "numaid", "id"};
  for (size_t i = 0; i < TT_COUNT(names); i++) {
    const char *text = tt_xml_get(x, names[i]);
    if (text != NULL) {
      snprintf(buf, size, "%.64s %.100s", x->tag, text);
      return;
    }
  }
  const char *target = tt_xml_get(x, "target"), *bus = NULL;
  for (const tt_xml_node *up = x->parent; up != NULL && bus == NULL; up = up->parent) {
    bus = tt_xml_get(up, "busid");
  }
  snprintf(buf, size, "%.64s%s%.64s%s%.64s", x->tag, bus != NULL ? " " : "", bus != NULL ? bus : "",
           target != NULL ? " to " : "", target != NULL ? target : "");
}

// ---- Keys ----

static uint64_t text_key(const char *text, uint64_t seed)
{
  int64_t bus;
  unsigned long long number;
  if (tt_bus_id(text, &bus)) {
    return tt_hash(&bus, sizeof(bus), seed);
  }
  return whole(text, &number) ? tt_hash(&number, sizeof(number), seed) : tt_hash(text, strlen(text), seed);
}

typedef struct walker {
  side *s;
  const char *hosts[64]; // seen so far: another machine of the same sort has other hashes
  int nhosts;
  uint64_t host; // of the CPU that is open
} walker;

static uint64_t host_number(walker *w, const tt_xml_node *cpu)
{
  const char *hash = tt_xml_get(cpu, "host_hash");
  if (hash == NULL) {
    return 0;
  }
  for (int i = 0; i < w->nhosts; i++) {
    if (strcmp(w->hosts[i], hash) == 0) {
      return (uint64_t)i + 1;
    }
  }
  if (w->nhosts == (int)TT_COUNT(w->hosts)) {
    return tt_hash(hash, strlen(hash), 3); // many hosts: by their hashes
  }
  w->hosts[w->nhosts++] = hash;
  return (uint64_t)w->nhosts;
}

// A PCI element is a GPU, a card or a switch: bus ids of other machines may be of other things.
static uint64_t role_of(const tt_xml_node *x)
{
  return tt_hash(x->tag, strlen(x->tag), tt_xml_child(x, "gpu") != NULL ? 1 : tt_xml_child(x, "nic") != NULL ? 2 : 3);
}

static uint64_t key_of(walker *w, const tt_xml_node *x, uint64_t parent)
{
  static const struct {
    const char *tag, *attr;
    bool by_host; // else by the parent
  } keys[] = {{"cpu", "numaid", true},     {"pci", "busid", true},    {"net", "name", true},
              {"nvlink", "target", false}, {"xgmi", "target", false}, {"pcilink", "target", false},
              {"graph", "id", false}};
  uint64_t tag = strcmp(x->tag, "pci") == 0 ? role_of(x) : tt_hash(x->tag, strlen(x->tag), 1);
  if (strcmp(x->tag, "cpu") == 0) {
    w->host = host_number(w, x);
  }
  for (size_t i = 0; i < TT_COUNT(keys); i++) {
    const char *text = strcmp(x->tag, keys[i].tag) == 0 ? tt_xml_get(x, keys[i].attr) : NULL;
    if (text != NULL) {
      return text_key(text, tag ^ (keys[i].by_host ? w->host * 0x9e3779b97f4a7c15ull : parent));
    }
  }
  return tt_hash(&parent, sizeof(parent), tag);
}

// The depth of documents is limited, so is the recursion. Channels are compared elsewhere.
static void collect(walker *w, const tt_xml_node *x, int parent, int depth)
{
  side *s = w->s;
  int own = s->count++;
  s->list[own] = (entry){.x = x, .order = own, .depth = depth, .parent = parent, .mate = -1};
  s->list[own].key = key_of(w, x, parent >= 0 ? s->list[parent].key : 0);
  for (const tt_xml_node *c = x->child; c != NULL; c = c->next) {
    if (strcmp(c->tag, "channel") != 0) {
      collect(w, c, own, depth + 1);
    }
  }
}

static ncclResult_t side_make(const tt_xml *xml, side *s)
{
  walker w = {.s = s};
  s->list = tt_calloc((size_t)xml->nnodes + 1, sizeof(entry));
  s->sorted = tt_calloc((size_t)xml->nnodes + 1, sizeof(int));
  if (s->list == NULL || s->sorted == NULL) {
    return tt_fail(ncclSystemError, "no memory to compare documents of %d elements", xml->nnodes);
  }
  collect(&w, xml->root, -1, 0);
  return ncclSuccess;
}

static void side_clear(side *s)
{
  tt_free(s->list);
  tt_free(s->sorted);
}

// ---- Mates ----

static int compare_entries(const void *a, const void *b, void *arg)
{
  const entry *list = arg, *x = &list[*(const int *)a], *y = &list[*(const int *)b];
  return x->key != y->key ? (x->key < y->key ? -1 : 1) : x->order - y->order;
}

// Sorts those at `depth` (-1: all) that have no mate. Returns their number.
static int sort_lonely(side *s, int depth)
{
  int n = 0;
  for (int i = 0; i < s->count; i++) {
    if (s->list[i].mate < 0 && (depth < 0 || s->list[i].depth == depth)) {
      s->sorted[n++] = i;
    }
  }
  qsort_r(s->sorted, (size_t)n, sizeof(int), compare_entries, s->list);
  return n;
}

static void match(side *a, side *b, int depth)
{
  int na = sort_lonely(a, depth), nb = sort_lonely(b, depth);
  for (int i = 0, j = 0; i < na && j < nb;) {
    entry *x = &a->list[a->sorted[i]], *y = &b->list[b->sorted[j]];
    if (x->key == y->key && strcmp(x->x->tag, y->x->tag) == 0) {
      x->mate = b->sorted[j++];
      y->mate = a->sorted[i++];
    } else if (x->key < y->key) {
      i++;
    } else {
      j++;
    }
  }
}

// New keys for those without mate: what they are, and the mate of what they stand in.
static void key_by_position(side *s, int depth, bool is_a)
{
  for (int i = 0; i < s->count; i++) {
    entry *e = &s->list[i];
    if (e->mate >= 0 || e->depth != depth) {
      continue;
    }
    const entry *p = e->parent >= 0 ? &s->list[e->parent] : NULL;
    int in_a = p == NULL ? 0 : is_a ? e->parent : p->mate;
    const char *target = tt_xml_get(e->x, "target"); // a link is another one when it leads elsewhere
    bool able = p == NULL || p->mate >= 0;
    e->key = able ? tt_hash(&in_a, sizeof(in_a), target != NULL ? text_key(target, role_of(e->x)) : role_of(e->x))
                  : (uint64_t)i * 2 + !is_a;
  }
}

static void match_all(side *a, side *b)
{
  match(a, b, -1);
  for (int depth = 0; depth <= TT_XML_MAX_DEPTH; depth++) {
    key_by_position(a, depth, true);
    key_by_position(b, depth, false);
    match(a, b, depth);
  }
}

// ---- Differences ----

static int inside(const tt_xml_node *x)
{
  int n = -1;
  for (const tt_xml_node *i = x; i != NULL; i = tt_xml_walk(x, i)) {
    n++;
  }
  return n;
}

// One that is only here; what is in it is told by its number.
static void tell_lonely(xp_differ *d, const side *s, int i, char mark)
{
  const entry *e = &s->list[i];
  char name[256], more[48] = "";
  if (e->parent >= 0 && s->list[e->parent].mate < 0) {
    return;
  }
  name_of(e->x, name, sizeof(name));
  int n = inside(e->x);
  if (n > 0) {
    snprintf(more, sizeof(more), ", with %d element%s in it", n, n == 1 ? "" : "s");
  }
  xp_differ_tell(d, mark, "%s (line %d): only in %s%s", name, e->x->line, mark == '-' ? "A" : "B", more);
}

static ncclResult_t tell_pair(xp_differ *d, const side *a, const side *b, int i)
{
  const entry *x = &a->list[i], *y = &b->list[x->mate];
  char name[256], was[256], is[256], text[1400];
  name_of(x->x, name, sizeof(name));
  if (xp_differ_attributes(x->x, y->x, text, sizeof(text)) > 0) {
    xp_differ_tell(d, '~', "%s (lines %d, %d): %s", name, x->x->line, y->x->line, text);
  }
  if (x->parent >= 0 && y->parent >= 0 && a->list[x->parent].mate != y->parent) {
    name_of(x->x->parent, was, sizeof(was));
    name_of(y->x->parent, is, sizeof(is));
    xp_differ_tell(d, '~', "%s (lines %d, %d): hangs on %s -> %s", name, x->x->line, y->x->line, was, is);
  }
  return strcmp(x->x->tag, "graph") == 0 ? xp_differ_channels(d, x->x, y->x) : ncclSuccess;
}

static ncclResult_t compare(xp_differ *d)
{
  side a = {0}, b = {0};
  ncclResult_t res;
  TT_TRY_GOTO(side_make(d->a, &a), res);
  TT_TRY_GOTO(side_make(d->b, &b), res);
  match_all(&a, &b);
  for (int i = 0; i < a.count; i++) {
    if (a.list[i].mate < 0) {
      tell_lonely(d, &a, i, '-');
    } else {
      TT_TRY_GOTO(tell_pair(d, &a, &b, i), res);
    }
  }
  for (int i = 0; i < b.count; i++) {
    if (b.list[i].mate < 0) {
      tell_lonely(d, &b, i, '+');
    }
  }
fail:
  side_clear(&a);
  side_clear(&b);
  return res;
}

static int tell_all(xp_differ *d, const char *a, const char *b)
{
  if (strcmp(d->a->root->tag, d->b->root->tag) != 0) {
    xp_differ_tell(d, '~', "A (%s) is a <%.64s>, B (%s) a <%.64s>", a, d->a->root->tag, b, d->b->root->tag);
    return 1;
  }
  if (compare(d) != ncclSuccess) {
    fprintf(d->out, "%s\n", tt_last_error());
    return 2;
  }
  if (d->count > XP_MAX_DIFFERENCES) {
    fprintf(d->out, "%ld more, not shown\n", d->count - XP_MAX_DIFFERENCES);
  }
  if (d->count == 0) {
    fprintf(d->out, "no difference\n");
  } else {
    fprintf(d->out, "%ld difference%s from A (%s) to B (%s)\n", d->count, d->count == 1 ? "" : "s", a, b);
  }
  return d->count > 0;
}

int xp_diff(const char *a, const char *b, FILE *out)
{
  tt_xml *x = NULL, *y = NULL;
  int code = 2;
  bool made;
  if (xp_read(a, &made, &x) != ncclSuccess || xp_read(b, &made, &y) != ncclSuccess) {
    (void)xp_complain(code);
  } else {
    xp_differ d = {.out = out, .a = x, .b = y};
    code = tell_all(&d, x->name, y->name);
  }
  tt_xml_destroy(x);
  tt_xml_destroy(y);
  return fflush(out) != 0 || ferror(out) ? 2 : code;
}
