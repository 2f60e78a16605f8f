// tuning_doc.c: prints docs/tuning.md, read from standard input, with its tables made anew from
// src/comm/tuning_table.c. Only what stands between the two marks changes. scripts/check_docs builds and runs it.
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "comm/tuning_table.h"

#define BEGIN "<!-- Made from src/comm/tuning_table.c: scripts/check_docs --fix -->"
#define END "<!-- End of what is made -->"

enum { LINE_ROOM = 4096 };

static const char *const algo_names[] = {
#define A(id, name, ...) name,
#include "coll/algorithms.def"
};

static const char *const func_names[TT_NFUNCS] = {"broadcast",  "reduce", "all-gather", "reduce-scatter", "all-reduce",
                                                  "all-to-all", "gather", "scatter",    "send",           "receive"};

static const char *const place_names[TT_NPLACES] = {"one process",
                                                    "several processes",
                                                    "two ranks",
                                                    "three or more ranks",
                                                    "", // two or more: said of direct access as a whole
                                                    "network",
                                                    "nodes of several ranks",
                                                    "more ranks than cores",
                                                    "more ranks than cores, no network",
                                                    "no turns", // explained below the table
                                                    "the walking model has chosen"};

static const char *const quantity_names[TT_NQUANTITIES] = {"",      "size",          "size ÷ ranks", "size × ranks",
                                                           "ranks", "ranks per core"};
static const char *const relation_names[] = {
    [TT_AT_MOST] = "≤", [TT_ABOVE] = ">", [TT_BELOW] = "<", [TT_AT_LEAST] = "≥"};
static const char *const proto_names[] = {
    [TT_SIMPLE] = "Simple", [TT_LL] = "LL", [TT_TINY] = "LL, in the FIFO with 64 slots"};

// Prints a list's next member, after a comma if it is not the first.
static void put_next(const char *text, bool *first)
{
  printf("%s%s", *first ? "" : ", ", text);
  *first = false;
}

static void put_functions(uint32_t funcs)
{
  bool first = true;
  if (funcs == (1u << TT_NFUNCS) - 1) {
    printf("all");
    return;
  }
  for (int f = 0; f < TT_NFUNCS; f++) {
    if (funcs >> f & 1) {
      put_next(func_names[f], &first);
    }
  }
}

static void put_places(uint32_t where)
{
  bool first = true;
  if ((where & TT_TURNS) == TT_TURNS) { // its two halves are one thing
    put_next("turns", &first);
    where &= ~(uint32_t)TT_TURNS;
  }
  for (int i = 0; i < TT_NPLACES; i++) {
    if ((where >> i & 1) && place_names[i][0] != '\0') {
      put_next(place_names[i], &first);
    }
  }
}

static void put_bounds(const tt_bound *bounds)
{
  bool first = true;
  for (int i = 0; i < TT_BOUNDS && bounds[i].quantity != TT_OF_NOTHING; i++) {
    char text[128];
    snprintf(text, sizeof text, "%s %s %s", quantity_names[bounds[i].quantity], relation_names[bounds[i].relation],
             tt_thresholds[bounds[i].threshold].name);
    put_next(text, &first);
  }
}

static void put_condition(const tt_condition *c)
{
  printf("| ");
  put_functions(c->funcs);
  printf(" | ");
  put_places(c->where);
  printf(" | ");
  put_bounds(c->bounds);
  printf(" | ");
}

static void put_algorithms(void)
{
  size_t count;
  const tt_algo_rule *r = tt_algo_rules(&count);
  printf("\n| function | where | size | algorithm |\n|---|---|---|---|\n");
  for (size_t i = 0; i < count; i++) {
    put_condition(&r[i].when);
    printf("%s", algo_names[r[i].algos[0]]);
    printf(r[i].algos[1] >= 0 ? ", else %s |\n" : " |\n", r[i].algos[1] >= 0 ? algo_names[r[i].algos[1]] : "");
  }
}

static void put_protocols(void)
{
  size_t count;
  const tt_proto_rule *r = tt_proto_rules(&count);
  printf("\n| function | where | size | protocol |\n|---|---|---|---|\n");
  for (size_t i = 0; i < count; i++) {
    put_condition(&r[i].when);
    printf("%s |\n", proto_names[r[i].proto]);
  }
}

static void put_chunk(const tt_chunk_rule *r)
{
  const char *size = tt_thresholds[r->size].name;
  switch (r->kind) {
  case TT_CHUNK_FIXED: printf("%s |\n", size); break;
  case TT_CHUNK_EQUAL: printf("equal parts, each at most %s |\n", size); break;
  case TT_CHUNK_MESSAGE: printf("the message, at most %s and one slot |\n", size); break;
  case TT_CHUNK_MODEL: printf("the model's, in whole TCP segments where there are several passes |\n"); break;
  case TT_CHUNK_LONGEST:
    printf("as below, but one slot of the network where the model has found one of shared memory |\n");
    break;
  case TT_CHUNK_SHARE:
    printf(r->passes > 1 ? "1/%u of what a rank sends, " : "what a rank sends, ", r->passes);
    printf("at least %s, at most one slot |\n", size);
    break;
  }
}

static void put_chunks(void)
{
  size_t count;
  const tt_chunk_rule *r = tt_chunk_rules(&count);
  const uint32_t direct = 1u << TT_ALGO_DIRECT | 1u << TT_ALGO_DIRECTWRITE;
  printf("\n| algorithm | function | where | size | chunk |\n|---|---|---|---|---|\n");
  for (size_t i = 0; i < count; i++) {
    printf("| %s ", (r[i].algos & direct) == 0 ? "others" : algo_names[__builtin_ctz(r[i].algos)]);
    put_condition(&r[i].when);
    put_chunk(&r[i]);
  }
}

static void put_value(size_t value)
{
  static const char *const units[] = {"", " KiB", " MiB"};
  int unit = 0;
  while (unit < 2 && value >= 1024 && value % 1024 == 0) {
    value /= 1024;
    unit++;
  }
  printf(value != 0 ? "%zu%s" : "", value, units[unit]);
}

// A heading's anchor: small letters, digits, and a hyphen for each space.
static void put_anchor(const char *heading)
{
  for (; *heading != '\0'; heading++) {
    char c = *heading;
    if (c >= 'A' && c <= 'Z') {
      c = (char)(c - 'A' + 'a');
    }
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == ' ') {
      putchar(c == ' ' ? '-' : c);
    }
  }
}

static void put_thresholds(void)
{
  printf("\n| threshold | value | what | measured |\n|---|---|---|---|\n");
  for (int i = 0; i < TT_NTHRESHOLDS; i++) {
    const tt_threshold *t = &tt_thresholds[i];
    printf("| %s | ", t->name);
    put_value(t->value);
    printf(" | %s | [%s](notes/performance-log.md#", t->what, t->source);
    put_anchor(t->source);
    printf(") |\n");
  }
}

static void put_tables(void)
{
  printf(BEGIN "\n\n**Algorithm.**\n");
  put_algorithms();
  printf("\n**Protocol.** Direct access has tokens only. A network that reduces has Simple only.\n");
  put_protocols();
  printf("\n**Chunk.** *others*: algorithms that send through FIFOs.\n");
  put_chunks();
  printf("\n**Thresholds.** Bytes, where the text says nothing else. Those with * move with "
         "[figures](#figures-of-the-machine).\n");
  put_thresholds();
  printf("\n" END "\n");
}

int main(void)
{
  char line[LINE_ROOM];
  bool inside = false, made = false;
  while (fgets(line, sizeof line, stdin) != NULL) {
    if (strcmp(line, BEGIN "\n") == 0) {
      inside = made = true;
      put_tables();
    } else if (strcmp(line, END "\n") == 0) {
      inside = false;
    } else if (!inside) {
      fputs(line, stdout);
    }
  }
  if (!made || inside) {
    fprintf(stderr, "tuning_doc: the text has not both marks\n");
  }
  return made && !inside ? 0 : 1;
}
