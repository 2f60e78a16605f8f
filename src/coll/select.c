// select.c: the parser behind NCCL_ALGO and NCCL_PROTO.
#include "coll/select.h"

#include <stdbool.h>
#include <string.h>

#include "base/result.h"
#include "base/text.h"
#include "base/util.h"

// A name the variable may hold and the bits it stands for, in a list of what is allowed and in a list of what is not.
typedef struct word {
  const char *name;
  uint32_t bits, except;
} word;

// One variable being parsed.
typedef struct variable {
  const char *name, *value;
  const word *words;
  int nwords;
  uint32_t all;
} variable;

// A piece of the value.
typedef struct piece {
  const char *at;
  size_t length;
} piece;

// Cuts the piece up to the next `separator` off *rest. False at the end.
static bool select_cut(piece *rest, char separator, piece *first)
{
  if (!rest->at) {
    return false;
  }
  const char *end = memchr(rest->at, separator, rest->length);
  *first = (piece){rest->at, end ? (size_t)(end - rest->at) : rest->length};
  *rest = end ? (piece){end + 1, rest->length - first->length - 1} : (piece){NULL, 0};
  return true;
}

static piece trimmed(piece p)
{
  while (p.length > 0 && (*p.at == ' ' || *p.at == '\t')) {
    p = (piece){p.at + 1, p.length - 1};
  }
  while (p.length > 0 && (p.at[p.length - 1] == ' ' || p.at[p.length - 1] == '\t')) {
    p.length--;
  }
  return p;
}

static bool select_same(piece p, const char *name)
{
  return strlen(name) == p.length && tt_ncasecmp(p.at, name, p.length) == 0;
}

static ncclResult_t unknown_word(const variable *v, piece p)
{
  char names[512] = "";
  for (int i = 0; i < v->nwords; i++) {
    tt_list_add(names, sizeof names, "%s", v->words[i].name);
  }
  return tt_fail(ncclInvalidUsage, "%s=\"%s\": \"%.*s\" is not known; use names out of: %s", v->name, v->value,
                 (int)p.length, p.at, names);
}

static ncclResult_t unknown_function(const variable *v, piece p)
{
  char names[256] = "";
  for (int f = 0; f < TT_NFUNCS; f++) {
    tt_list_add(names, sizeof names, "%s", tt_func_name((tt_func)f));
  }
  return tt_fail(ncclInvalidUsage, "%s=\"%s\": \"%.*s\" is not a function; use one of: %s", v->name, v->value,
                 (int)p.length, p.at, names);
}

static ncclResult_t find_word(const variable *v, piece p, bool except, uint32_t *bits)
{
  for (int i = 0; i < v->nwords; i++) {
    if (select_same(p, v->words[i].name)) {
      *bits |= except ? v->words[i].except : v->words[i].bits;
      return ncclSuccess;
    }
  }
  return unknown_word(v, p);
}

// "[^]name,name": the bits allowed. Empty names are passed over.
static ncclResult_t select_parse_list(const variable *v, piece list, uint32_t *mask)
{
  uint32_t named = 0;
  piece p;
  list = trimmed(list);
  bool except = list.length > 0 && *list.at == '^';
  if (except) {
    list = (piece){list.at + 1, list.length - 1};
  }
  while (select_cut(&list, ',', &p)) {
    p = trimmed(p);
    if (p.length > 0) {
      TT_TRY(find_word(v, p, except, &named));
    }
  }
  *mask = except ? v->all & ~named : named;
  return ncclSuccess;
}

static int find_function(piece p)
{
  for (int f = 0; f < TT_NFUNCS; f++) {
    if (select_same(p, tt_func_name((tt_func)f))) {
      return f;
    }
  }
  return -1;
}

// "[function:]list".
static ncclResult_t parse_entry(const variable *v, piece entry, bool first, uint32_t *masks)
{
  piece before, list = entry;
  bool prefixed = memchr(entry.at, ':', entry.length) != NULL;
  uint32_t mask;
  if (!prefixed && !first) {
    return tt_fail(ncclInvalidUsage, "%s=\"%s\": \"%.*s\" names no function; only the first entry may do so", v->name,
                   v->value, (int)entry.length, entry.at);
  }
  if (prefixed) {
    select_cut(&list, ':', &before);
    before = trimmed(before);
  }
  TT_TRY(select_parse_list(v, list, &mask));
  if (!prefixed) {
    for (int f = TT_FUNC_BROADCAST; f <= TT_FUNC_ALLREDUCE; f++) {
      masks[f] = mask;
    }
    return ncclSuccess;
  }
  int f = find_function(before);
  if (f < 0) {
    return unknown_function(v, before);
  }
  masks[f] = mask;
  return ncclSuccess;
}

static ncclResult_t parse_variable(const variable *v, uint32_t *masks)
{
  for (int f = 0; f < TT_NFUNCS; f++) {
    masks[f] = v->all;
  }
  piece rest = {v->value, v->value ? strlen(v->value) : 0}, entry;
  bool first = true;
  while (select_cut(&rest, ';', &entry)) {
    entry = trimmed(entry);
    if (entry.length > 0) {
      TT_TRY(parse_entry(v, entry, first, masks));
      first = false;
    }
  }
  return ncclSuccess;
}

// The table's names, then NCCL's that have no row here. Returns how many.
static int algorithm_words(word *words, uint32_t *all)
{
  static const char *const absent[] = {"NVLS", "NVLSTree"};
  int count;
  const tt_algorithm *table = tt_algorithms(&count);
  for (int i = 0; i < count; i++) {
    words[i] = (word){table[i].name, 1u << i, 1u << i};
    *all |= 1u << i;
  }
  for (int i = 0; i < (int)TT_COUNT(absent); i++) {
    words[count++] = (word){absent[i], 0, 0};
  }
  return count;
}

// A row that does not know a function is not available for it, whatever the user says.
static void keep_capable(uint32_t *masks)
{
  int count;
  const tt_algorithm *table = tt_algorithms(&count);
  for (int f = 0; f < TT_NFUNCS; f++) {
    for (int i = 0; i < count; i++) {
      masks[f] &= table[i].funcs >> f & 1 ? ~0u : ~(1u << i);
    }
  }
}

ncclResult_t tt_algo_filter_parse(const char *algo, const char *proto, tt_algo_filter *out)
{
  static const word protos[] = {
      {"LL", TT_PROTO_LL, TT_PROTO_LL},
      {"LL128", TT_PROTO_LL, 0},
      {"Simple", TT_PROTO_SIMPLE, TT_PROTO_SIMPLE},
  };
  word algos[32 + 2];
  tt_algo_filter filter;
  variable a = {.name = "NCCL_ALGO", .value = algo, .words = algos};
  variable p = {
      .name = "NCCL_PROTO", .value = proto, .words = protos, .nwords = (int)TT_COUNT(protos), .all = TT_PROTO_ALL};
  a.nwords = algorithm_words(algos, &a.all);
  TT_TRY(parse_variable(&a, filter.algos));
  TT_TRY(parse_variable(&p, filter.protos));
  keep_capable(filter.algos);
  *out = filter;
  return ncclSuccess;
}
