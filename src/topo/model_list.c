// model_list.c: NCCL_ALGO and NCCL_PROTO: lists of names, for all functions or for one.
#include "topo/model.h"

#include "base/text.h"
#include "base/util.h"

static const char *const func_names[TT_MODEL_FUNCS] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter",
                                                       "AllReduce"};

// A part of a text.
typedef struct piece {
  const char *at;
  size_t n;
} piece;

// Takes what stands before the next of `end` from `rest`, empty parts left out. False: nothing is left.
static bool names_take(piece *rest, char end, piece *out)
{
  while (rest->n > 0 && *rest->at == end) {
    rest->at++;
    rest->n--;
  }
  const char *stop = rest->n > 0 ? memchr(rest->at, end, rest->n) : NULL;
  *out = (piece){rest->at, stop != NULL ? (size_t)(stop - rest->at) : rest->n};
  rest->at += out->n;
  rest->n -= out->n;
  return out->n > 0;
}

static int names_find(const char *const *names, int n, piece p)
{
  for (int i = 0; i < n; i++) {
    if (strlen(names[i]) == p.n && tt_ncasecmp(names[i], p.at, p.n) == 0) {
      return i;
    }
  }
  return -1;
}

typedef struct list {
  const char *variable, *text;
  const char *const *names;
  int n;
} list;

static ncclResult_t names_unknown(const list *l, const char *what, piece p)
{
  char text[256] = "";
  const char *const *names = strcmp(what, "function") == 0 ? func_names : l->names;
  int n = strcmp(what, "function") == 0 ? TT_MODEL_FUNCS : l->n;
  for (int i = 0; i < n; i++) {
    tt_list_add(text, sizeof(text), "%s", names[i]);
  }
  return tt_fail(ncclInvalidUsage, "%s=%s: there is no %s '%.*s'; there are %s", l->variable, l->text, what,
                 (int)TT_MIN(p.n, 64), p.at, text);
}

// Sets one function's row from the names after the colon.
static ncclResult_t names_set_row(const list *l, piece names, int *row)
{
  bool all_but = names.n > 0 && *names.at == '^';
  names.at += all_but;
  names.n -= all_but;
  for (int i = 0; i < l->n; i++) {
    row[i] = all_but;
  }
  for (piece p; names_take(&names, ',', &p);) {
    int i = names_find(l->names, l->n, p);
    if (i < 0) {
      return names_unknown(l, "name", p);
    }
    row[i] = !all_but;
  }
  return ncclSuccess;
}

static ncclResult_t set_entry(const list *l, piece entry, bool first, int *allow)
{
  piece func, names, rest = entry;
  names_take(&rest, ':', &func);
  bool prefixed = names_take(&rest, ':', &names);
  int f = prefixed ? names_find(func_names, TT_MODEL_FUNCS, func) : 0;
  if (!prefixed && !first) {
    return tt_fail(ncclInvalidUsage, "%s=%s: all parts but the first need a function and a colon in front", l->variable,
                   l->text);
  }
  if (f < 0) {
    return names_unknown(l, "function", func);
  }
  for (int k = prefixed ? f : 0; k < (prefixed ? f + 1 : TT_MODEL_FUNCS); k++) {
    TT_TRY(names_set_row(l, prefixed ? names : func, allow + k * l->n));
  }
  return ncclSuccess;
}

ncclResult_t tt_model_allow(const char *variable, const char *text, const char *const *names, int nelems, int *allow)
{
  list l = {variable, text, names, nelems};
  piece rest = {text, strlen(text)};
  bool first = true;
  for (piece entry; names_take(&rest, ';', &entry); first = false) {
    TT_TRY(set_entry(&l, entry, first, allow));
  }
  return ncclSuccess;
}

const char *tt_model_func_name(tt_model_func func)
{
  return func_names[func];
}
