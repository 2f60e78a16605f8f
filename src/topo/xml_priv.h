// xml_priv.h: memory of a document.
#pragma once
#include "topo/xml.h"

// A block of a document's memory. What lies in it never moves.
typedef struct tt_xml_block {
  struct tt_xml_block *next;
  size_t used, size;
  _Alignas(16) char bytes[];
} tt_xml_block;

// Zeroed memory that lives as long as the document; NULL without memory.
void *tt_xml_alloc(tt_xml *xml, size_t size);

// A copy of `size` bytes of text, with a 0 behind; NULL without memory.
const char *tt_xml_keep(tt_xml *xml, const char *text, size_t size);

// A document without a root.
ncclResult_t tt_xml_empty(const char *name, tt_xml **out);
