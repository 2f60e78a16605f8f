// selection.c: see selection.h. A set of names is a word: two bits for each row of the table (LL, Simple), and one for
// names of NCCL that have no row here.
#include "coll/selection.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/util.h"

enum { SELECTION_BYTES = 512, ABSENT_BIT = 63 };

static const char *const selection_absent[] = {"NVLS_SIMPLE", "NVLSTREE_SIMPLE", "SYMK_"};

static uint64_t selection_bit(int row, bool simple)
{
  return 1ull << (2 * row + simple);
}

// May messages of the row use LL?
static bool selection_ll(const tt_algorithm *a)
{
  return a->needs == 0 && !a->in_network;
}

// Does `name`, with `_` and `suffix` behind it, begin with `word`?
static bool selection_begins(const char *name, const char *suffix, const char *word)
{
  char full[64];
  snprintf(full, sizeof full, "%s_%s", name, suffix);
  return tt_ncasecmp(full, word, strlen(word)) == 0;
}

// The names that begin with the word. `except`: the set is to be taken away; LL128 takes nothing. *known: there are
// any.
static uint64_t selection_names(const char *word, bool except, bool *known)
{
  uint64_t set = 0;
  const tt_algorithm *table = tt_algorithms(NULL);
  *known = false;
  for (int i = 0; i < TT_NALGOS; i++) {
    bool ll = selection_ll(&table[i]) && selection_begins(table[i].id, "LL", word);
    bool ll128 = selection_ll(&table[i]) && selection_begins(table[i].id, "LL128", word);
    bool simple = selection_begins(table[i].id, "SIMPLE", word);
    set |= (ll || (ll128 && !except) ? selection_bit(i, false) : 0) | (simple ? selection_bit(i, true) : 0);
    *known |= ll || ll128 || simple;
  }
  for (size_t i = 0; i < TT_COUNT(selection_absent); i++) {
    const char *name = selection_absent[i];
    size_t most = name[strlen(name) - 1] == '_' ? strlen(name) : strlen(word); // any kernel of SYMK_
    if (tt_ncasecmp(name, word, TT_MIN(strlen(word), most)) == 0) {
      set |= 1ull << ABSENT_BIT;
      *known = true;
    }
  }
  return set;
}

// Cuts `text` at the next `separator`, and moves *rest behind it. NULL: there is no further part.
static char *selection_cut(char **rest, char separator)
{
  char *part = *rest;
  if (part != NULL) {
    char *end = strchr(part, separator);
    *rest = end == NULL ? NULL : end + 1;
    if (end != NULL) {
      *end = 0;
    }
  }
  return part;
}

static bool selection_factor(const char *factor, uint64_t *set, char *why, size_t size)
{
  bool known, except = *factor == '^';
  const char *word = factor + except;
  if (*word == 0) {
    snprintf(why, size, "%s", except ? "nothing follows ^" : "a word is missing");
    return false;
  }
  uint64_t named = selection_names(word, except, &known);
  if (!known) {
    snprintf(why, size, "\"%s\" is not the beginning of a name such as RING_LL or TREE_SIMPLE", word);
    return false;
  }
  *set &= except ? ~named : named;
  return true;
}

// The rows that are allowed by name only.
static uint64_t selection_asked(void)
{
  uint64_t set = 0;
  for (int i = 0; i < TT_NALGOS; i++) {
    set |= (TT_ALGOS_ASKED >> i & 1) != 0 ? selection_bit(i, false) | selection_bit(i, true) : 0;
  }
  return set;
}

// Adds what the term selects.
static bool selection_term(char *term, uint64_t *sum, char *why, size_t size)
{
  uint64_t set = UINT64_MAX;
  bool names = false; // some factor says what is wanted
  for (char *factor = selection_cut(&term, '+'); factor != NULL; factor = selection_cut(&term, '+')) {
    if (!selection_factor(factor, &set, why, size)) {
      return false;
    }
    names |= *factor != '^';
  }
  set &= names ? UINT64_MAX : ~selection_asked();
  if (set == 0) {
    snprintf(why, size, "a term contradicts itself: no name fits all words that + joins");
    return false;
  }
  *sum |= set;
  return true;
}

// What the table has for the function. As in NCCL, only the five with names of algorithms have any.
static uint64_t selection_for(tt_func func)
{
  uint64_t set = 0;
  const tt_algorithm *table = tt_algorithms(NULL);
  for (int i = 0; i < TT_NALGOS && func <= TT_FUNC_ALLREDUCE; i++) {
    if ((table[i].funcs >> func & 1) != 0) {
      set |= selection_bit(i, true) | (selection_ll(&table[i]) ? selection_bit(i, false) : 0);
    }
  }
  return set;
}

// Without blanks. False: it is too long.
static bool selection_copy(const char *text, char copy[SELECTION_BYTES])
{
  size_t n = 0;
  for (; *text != 0 && n < SELECTION_BYTES - 1; text++) {
    if (strchr(" \t\n", *text) == NULL) {
      copy[n++] = *text;
    }
  }
  copy[n] = 0;
  return *text == 0;
}

bool tt_selection_parse(const char *text, tt_func func, tt_selection *out, char *why, size_t size)
{
  char copy[SELECTION_BYTES], *rest = copy;
  uint64_t set = 0;
  if (!selection_copy(text, copy)) {
    snprintf(why, size, "it has more than %d characters", SELECTION_BYTES - 1);
    return false;
  }
  for (char *term = selection_cut(&rest, ','); term != NULL; term = selection_cut(&rest, ',')) {
    if (!selection_term(term, &set, why, size)) {
      return false;
    }
  }
  set &= selection_for(func);
  if (set == 0) {
    snprintf(why, size, "it leaves no algorithm for %s", tt_func_name(func));
    return false;
  }
  tt_selection s = {0, 0};
  for (int i = 0; i < TT_NALGOS; i++) {
    s.ll |= (set & selection_bit(i, false)) != 0 ? 1u << i : 0;
    s.simple |= (set & selection_bit(i, true)) != 0 ? 1u << i : 0;
  }
  *out = s;
  return true;
}
