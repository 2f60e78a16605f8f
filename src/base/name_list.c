#include "base/name_list.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/result.h"
#include "base/text.h"
#include "base/util.h"

// A piece of the value.
typedef struct piece {
  const char *at;
  size_t length;
} piece;

// Cuts the piece up to the next `separator` off *rest. False at the end.
static bool list_cut(piece *rest, char separator, piece *first)
{
  if (!rest->at) {
    return false;
  }
  const char *end = memchr(rest->at, separator, rest->length);
  *first = (piece){rest->at, end ? (size_t)(end - rest->at) : rest->length};
  *rest = end ? (piece){end + 1, rest->length - first->length - 1} : (piece){NULL, 0};
  return true;
}

static piece list_trimmed(piece p)
{
  while (p.length > 0 && (*p.at == ' ' || *p.at == '\t')) {
    p = (piece){p.at + 1, p.length - 1};
  }
  while (p.length > 0 && (p.at[p.length - 1] == ' ' || p.at[p.length - 1] == '\t')) {
    p.length--;
  }
  return p;
}

static bool list_same(piece p, const char *name)
{
  return strlen(name) == p.length && tt_ncasecmp(p.at, name, p.length) == 0;
}

static ncclResult_t list_unknown_name(const tt_name_list *l, piece p)
{
  char names[512] = "";
  for (int i = 0; i < l->nnames; i++) {
    tt_list_add(names, sizeof names, "%s", l->names[i].name);
  }
  return tt_fail(ncclInvalidUsage, "%s=\"%s\": \"%.*s\" is not known; use names out of: %s", l->variable, l->value,
                 (int)p.length, p.at, names);
}

static ncclResult_t list_unknown_function(const tt_name_list *l, piece p)
{
  char names[256] = "";
  for (int f = 0; f < l->nfuncs; f++) {
    tt_list_add(names, sizeof names, "%s", l->funcs[f]);
  }
  return tt_fail(ncclInvalidUsage, "%s=\"%s\": \"%.*s\" is not a function; use one of: %s", l->variable, l->value,
                 (int)p.length, p.at, names);
}

static ncclResult_t list_find_name(const tt_name_list *l, piece p, bool except, uint32_t *bits)
{
  for (int i = 0; i < l->nnames; i++) {
    if (list_same(p, l->names[i].name)) {
      *bits |= except ? l->names[i].except : l->names[i].bits;
      return ncclSuccess;
    }
  }
  return list_unknown_name(l, p);
}

// "[^]name,name": the bits allowed. Empty names are passed over.
static ncclResult_t list_parse_names(const tt_name_list *l, piece names, uint32_t *mask)
{
  uint32_t named = 0;
  piece p;
  names = list_trimmed(names);
  bool except = names.length > 0 && *names.at == '^';
  if (except) {
    names = (piece){names.at + 1, names.length - 1};
  }
  while (list_cut(&names, ',', &p)) {
    p = list_trimmed(p);
    if (p.length > 0) {
      TT_TRY(list_find_name(l, p, except, &named));
    }
  }
  *mask = except ? l->all & ~named : named;
  return ncclSuccess;
}

static int list_find_function(const tt_name_list *l, piece p)
{
  for (int f = 0; f < l->nfuncs; f++) {
    if (list_same(p, l->funcs[f])) {
      return f;
    }
  }
  return -1;
}

// "[function:]list".
static ncclResult_t list_parse_entry(const tt_name_list *l, piece entry, bool first, uint32_t *masks)
{
  piece before, names = entry;
  bool prefixed = memchr(entry.at, ':', entry.length) != NULL;
  uint32_t mask;
  if (!prefixed && !first) {
    return tt_fail(ncclInvalidUsage, "%s=\"%s\": \"%.*s\" names no function; only the first entry may do so",
                   l->variable, l->value, (int)entry.length, entry.at);
  }
  if (prefixed) {
    list_cut(&names, ':', &before);
    before = list_trimmed(before);
  }
  TT_TRY(list_parse_names(l, names, &mask));
  if (!prefixed) {
    for (int f = 0; f < l->ncommon; f++) {
      masks[f] = mask;
    }
    return ncclSuccess;
  }
  int f = list_find_function(l, before);
  if (f < 0) {
    return list_unknown_function(l, before);
  }
  masks[f] = mask;
  return ncclSuccess;
}

ncclResult_t tt_name_list_parse(const tt_name_list *l, uint32_t *masks)
{
  piece rest = {l->value, l->value ? strlen(l->value) : 0}, entry;
  bool first = true;
  while (list_cut(&rest, ';', &entry)) {
    entry = list_trimmed(entry);
    if (entry.length > 0) {
      TT_TRY(list_parse_entry(l, entry, first, masks));
      first = false;
    }
  }
  return ncclSuccess;
}
