// diff_channels.c: the channels of two graphs: the same ones in another order are said so, others one by one.
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "diff_priv.h"

typedef struct channel {
  uint64_t key;
  const tt_xml_node *x;
} channel;

static bool is(const tt_xml_node *x, const char *tag)
{
  return strcmp(x->tag, tag) == 0;
}

// One GPU or port. Files of older versions have no rank.
static uint64_t end_of(const tt_xml_node *x)
{
  const char *rank = tt_xml_get(x, "rank"), *dev = tt_xml_get(x, "dev");
  uint64_t v = rank != NULL ? strtoull(rank, NULL, 10) : dev != NULL ? strtoull(dev, NULL, 16) : UINT64_MAX;
  return is(x, "net") ? tt_hash(&v, sizeof(v), 1) : v;
}

// A ring in one machine may begin anywhere: it is read from its least GPU on.
static const tt_xml_node *start_of(const tt_xml_node *c, bool ring)
{
  const tt_xml_node *best = c->child;
  for (const tt_xml_node *x = c->child; x != NULL && ring; x = x->next) {
    if (is(x, "net")) {
      return c->child;
    }
    best = end_of(x) < end_of(best) ? x : best;
  }
  return best;
}

static uint64_t key_of(const tt_xml_node *c, bool ring)
{
  uint64_t key = 1;
  const tt_xml_node *start = start_of(c, ring), *x = start;
  while (x != NULL) {
    uint64_t end = end_of(x);
    key = tt_hash(&end, sizeof(end), key);
    x = x->next != NULL ? x->next : c->child;
    if (x == start) {
      break;
    }
  }
  return key;
}

static void order_text(const tt_xml_node *c, char *buf, size_t size)
{
  size_t n = 0;
  buf[0] = 0;
  for (const tt_xml_node *x = c->child; x != NULL; x = x->next) {
    const char *rank = tt_xml_get(x, "rank"), *dev = tt_xml_get(x, "dev");
    if (n + 64 > size) {
      snprintf(buf + n, size - n, " ...");
      return;
    }
    n += (size_t)snprintf(buf + n, size - n, "%s%s%.20s", n > 0 ? " " : "", is(x, "net") ? "net " : "",
                          rank != NULL  ? rank
                          : dev != NULL ? dev
                                        : "?");
  }
}

static int compare_channels(const void *a, const void *b)
{
  const channel *x = a, *y = b;
  return (x->key > y->key) - (x->key < y->key);
}

static ncclResult_t list_channels(const tt_xml_node *graph, channel **out, int *count)
{
  int n = 0;
  const char *pattern = tt_xml_get(graph, "pattern");
  bool ring = pattern != NULL && strcmp(pattern, "4") == 0;
  for (const tt_xml_node *c = tt_xml_child(graph, "channel"); c != NULL; c = tt_xml_sibling(c, "channel")) {
    n++;
  }
  channel *list = tt_calloc(2 * (size_t)n + 1, sizeof(*list)); // as they stand; then sorted
  if (list == NULL) {
    return tt_fail(ncclSystemError, "no memory to compare %d channels", n);
  }
  int i = 0;
  for (const tt_xml_node *c = tt_xml_child(graph, "channel"); c != NULL; c = tt_xml_sibling(c, "channel")) {
    list[i++] = (channel){key_of(c, ring), c};
  }
  memcpy(list + n, list, (size_t)n * sizeof(*list));
  qsort(list + n, (size_t)n, sizeof(*list), compare_channels);
  *out = list;
  *count = n;
  return ncclSuccess;
}

// A channel that both have, in another order.
static void tell_changed(xp_differ *d, const char *id, int c, const tt_xml_node *a, const tt_xml_node *b)
{
  char was[700], now[700];
  order_text(a, was, sizeof(was));
  order_text(b, now, sizeof(now));
  xp_differ_tell(d, '~', "graph %.32s, channel %d (lines %d, %d): %s -> %s", id, c, a->line, b->line, was, now);
}

// One that only the first ('-') or the second ('+') has.
static void tell_alone(xp_differ *d, char sign, const char *id, int c, const tt_xml_node *x)
{
  char text[700];
  order_text(x, text, sizeof(text));
  xp_differ_tell(d, sign, "graph %.32s, channel %d (line %d): %s", id, c, x->line, text);
}

static void compare_lists(xp_differ *d, const char *id, const channel *a, const channel *b, const int count[2])
{
  bool same = count[0] == count[1], placed = same;
  for (int i = 0; i < count[0] && same; i++) {
    same = a[count[0] + i].key == b[count[1] + i].key;
    placed = placed && a[i].key == b[i].key;
  }
  if (same) {
    if (!placed) {
      xp_differ_tell(d, '~', "graph %.32s: the same channels, numbered otherwise", id);
    }
    return;
  }
  for (int i = 0; i < TT_MAX(count[0], count[1]); i++) {
    if (i >= count[0] || i >= count[1]) {
      tell_alone(d, i < count[0] ? '-' : '+', id, i, i < count[0] ? a[i].x : b[i].x);
    } else if (a[i].key != b[i].key) {
      tell_changed(d, id, i, a[i].x, b[i].x);
    }
  }
}

ncclResult_t xp_differ_channels(xp_differ *d, const tt_xml_node *a, const tt_xml_node *b)
{
  channel *x = NULL, *y = NULL;
  int count[2];
  const char *id = tt_xml_get(a, "id");
  TT_TRY(list_channels(a, &x, &count[0]));
  ncclResult_t res = list_channels(b, &y, &count[1]);
  if (res == ncclSuccess) {
    compare_lists(d, id != NULL ? id : "?", x, y, count);
  }
  tt_free(x);
  tt_free(y);
  return res;
}
