// diff_priv.h: what the files of the comparison share.
#pragma once
#include <stdio.h>

#include "topo/xml.h"

typedef struct xp_differ {
  FILE *out;
  const tt_xml *a, *b;
  long count; // differences
} xp_differ;

enum { XP_MAX_DIFFERENCES = 5000 }; // more are counted, not told

// Tells one difference; `mark` is '-' only in A, '+' only in B, '~' in both.
void xp_differ_tell(xp_differ *d, char mark, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

// Are both values the same by meaning: numbers, bus ids, speeds, hexadecimal digits?
bool xp_same_value(const char *a, const char *b);

// Writes "name x -> y, …" for attributes that differ. Returns their number.
int xp_differ_attributes(const tt_xml_node *a, const tt_xml_node *b, char *buf, size_t size);

// Compares the channels of two graphs of the same id.
ncclResult_t xp_differ_channels(xp_differ *d, const tt_xml_node *a, const tt_xml_node *b);
