// lint_priv.h: findings, and the checks that make them.
#pragma once
#include <stdio.h>

#include "topo/xml.h"

// NOTE: may be meant so. WARNING: probably slower or other than meant. ERROR: the file does not load, or a value does
// not count.
typedef enum { XP_NOTE, XP_WARNING, XP_ERROR, XP_LEVELS } xp_level;

// What all findings of one sort have in common.
typedef struct xp_reason {
  xp_level level;
  const char *why, *advice;
} xp_reason;

typedef struct xp_finding {
  int line, order;
  const xp_reason *reason;
  char *text;
} xp_finding;

enum { XP_MAX_FINDINGS = 2000 }; // more are counted; of these only errors are kept, in place of others

typedef struct xp_findings {
  xp_finding *list;
  int count, room;
  int order; // of the next one, among those of a line
  long counts[XP_LEVELS];
  bool no_memory;
} xp_findings;

// Adds what was found at an element: the text begins with what and where, "busid=…: …".
void xp_find(xp_findings *f, const tt_xml_node *at, const xp_reason *reason, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

// Is there an error at that line already?
bool xp_has_error(const xp_findings *f, int line);

// A whole number of an attribute, as the library reads them; `def` when it is missing or none.
long long xp_number(const tt_xml_node *x, const char *name, long long def);

// What is wrong with elements one by one: unknown names, wrong places, attributes that are missing or no such value.
void xp_lint_elements(xp_findings *f, const tt_xml *xml);

// What is odd in a machine as a whole.
void xp_lint_machine(xp_findings *f, const tt_xml *xml);

// Loads the machine as a communicator does, and adds what the model shows: GPUs that are far from cards, the loader's
// own error. The loader decides what an error is: where it takes the document, errors found before become warnings.
// Ranks are numbered in `xml`: call it last.
void xp_lint_model(xp_findings *f, tt_xml *xml);

// PCI slots and network cards: speeds, widths. Part of xp_lint_machine.
void xp_lint_slots(xp_findings *f, const tt_xml *xml);

// What is odd in a file of graphs as a whole.
void xp_lint_graphs(xp_findings *f, const tt_xml *xml);
