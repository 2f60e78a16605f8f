// xml.h: documents of elements and attributes, as topology and graph files are: no text, no namespaces, no entities.
//
// A document is a tree of tt_xml_node in one arena: nodes and texts stay where they are until tt_xml_destroy frees all
// of it. Every node has the file and line that it came from, for messages about its values. One thread at a time may
// use a document. What is written can be read again as the same tree, and the same tree is always written as the same
// bytes. Comments are not kept. Syntax by expat. Document type declarations, and with them all entities of one's own,
// are refused; the text must be UTF-8.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/arena.h"
#include "base/result.h"

enum {
  TT_XML_MAX_BYTES = 32 << 20, // longest file
  TT_XML_MAX_NODES = 250000,   // elements of one document
  TT_XML_MAX_DEPTH = 128,      // elements inside elements: what walks a tree may recurse
  TT_XML_MAX_ATTRS = 64,       // attributes of one element
  TT_XML_MAX_VALUE = 4096,     // bytes of one attribute's value, of a name, of a file's name
};

typedef struct tt_xml_attr {
  const char *name;
  const char *value; // UTF-8, as meant: no escapes
  struct tt_xml_attr *next;
} tt_xml_attr;

typedef struct tt_xml_node {
  const char *tag;
  tt_xml_attr *attrs; // in the order of the file
  struct tt_xml_node *parent, *child, *last_child, *next;
  const char *file; // where the element was read; for one that a program made, the document's name
  int line;         // from 1; 0 for one that a program made
  int depth;        // 1: the root
} tt_xml_node;

typedef struct tt_xml {
  tt_xml_node *root;
  const char *name; // of the file, for messages
  int nnodes;       // elements made so far, removed ones too
  int ignored_text; // line of the first text between elements that is not blank; 0: none
  tt_arena arena;   // of nodes and texts
} tt_xml;

// ---- Whole documents ----

// Reads the regular file `path`. Errors name the file, the line where there is one, and what is wrong: missing, empty,
// too long, syntax, a limit. The caller frees *out with tt_xml_destroy.
ncclResult_t tt_xml_read(const char *path, tt_xml **out);

// The same from `size` bytes in memory; `name` stands for the file in messages.
ncclResult_t tt_xml_parse(const char *name, const void *text, size_t size, tt_xml **out);

// A document of one element.
ncclResult_t tt_xml_new(const char *name, const char *tag, tt_xml **out);

// Frees the document, its nodes and texts. NULL is allowed.
void tt_xml_destroy(tt_xml *xml);

// The document as text, two spaces per level as NCCL's dumps. *text ends with a 0 that *size does not count; free it
// with tt_free.
ncclResult_t tt_xml_text(const tt_xml *xml, char **text, size_t *size);

// Writes that text to a file, which is replaced.
ncclResult_t tt_xml_write(const tt_xml *xml, const char *path);

// ---- The tree ----

// First child of `node` called `tag` (NULL: of any name); NULL when there is none.
tt_xml_node *tt_xml_child(const tt_xml_node *node, const char *tag);

// Next sibling of `node` called `tag` (NULL: of any name).
tt_xml_node *tt_xml_sibling(const tt_xml_node *node, const char *tag);

// Is it an element of that name?
static inline bool tt_xml_is(const tt_xml_node *node, const char *tag)
{
  return strcmp(node->tag, tag) == 0;
}

// The node after `node` in the order of the file, inside `top`; start with top itself. NULL after the last.
tt_xml_node *tt_xml_walk(const tt_xml_node *top, const tt_xml_node *node);

// Adds an element as the last child of `parent`; or behind the child `before`, NULL: as the first.
ncclResult_t tt_xml_add(tt_xml *xml, tt_xml_node *parent, const char *tag, tt_xml_node **out);
ncclResult_t tt_xml_insert(tt_xml *xml, tt_xml_node *parent, tt_xml_node *before, const char *tag, tt_xml_node **out);

// Adds a copy of `from` with all that is in it, of this or another document, as the last child of `parent`. The copy
// keeps file and line.
ncclResult_t tt_xml_copy(tt_xml *xml, tt_xml_node *parent, const tt_xml_node *from, tt_xml_node **out);

// Are both trees the same: tags, attributes in order, children in order? File and line do not count.
bool tt_xml_same(const tt_xml_node *a, const tt_xml_node *b);

// ---- Attributes ----

// Value of an attribute, NULL when the node has none of that name.
const char *tt_xml_get(const tt_xml_node *node, const char *name);

// Gives an attribute a value: where it stands, or behind the others.
ncclResult_t tt_xml_set(tt_xml *xml, tt_xml_node *node, const char *name, const char *value);

// The same with a number.
ncclResult_t tt_xml_set_int(tt_xml *xml, tt_xml_node *node, const char *name, long long value);

// Removes an attribute, if it is there.
void tt_xml_unset(tt_xml_node *node, const char *name);

// Value of an attribute that must be there.
ncclResult_t tt_xml_need(const tt_xml_node *node, const char *name, const char **out);

// The numbers that an attribute may have.
typedef struct tt_xml_range {
  int lo, hi;
} tt_xml_range;
#define TT_XML_INTS ((tt_xml_range){INT32_MIN, INT32_MAX})
#define TT_XML_COUNTS ((tt_xml_range){0, INT32_MAX})

// A whole number within the range, decimal or 0x…, that must be there; else an error that names file, line, value and
// range.
ncclResult_t tt_xml_int(const tt_xml_node *node, const char *name, tt_xml_range range, int *out);

// The same with a default for an attribute that is missing or empty.
ncclResult_t tt_xml_int_or(const tt_xml_node *node, const char *name, int def, tt_xml_range range, int *out);

// A finite number from 0 to `most`; `def` when the attribute is missing or empty.
ncclResult_t tt_xml_float_or(const tt_xml_node *node, const char *name, float def, float most, float *out);

// 64 bits in hexadecimal, 0x in front or not; `def` when missing or empty.
ncclResult_t tt_xml_hex_or(const tt_xml_node *node, const char *name, uint64_t def, uint64_t *out);

// Puts blanks in place of what a terminal would take for a command, line ends and their like: a message is one line,
// whatever a file says.
void tt_xml_plain(char *text);

// Calls tt_fail(ncclInvalidArgument, …) with "FILE:LINE: <tag>" in front. Returns its code.
#define tt_xml_fail(node, ...) tt_xml_fail_at((node), __FILE__, __LINE__, __VA_ARGS__)
ncclResult_t tt_xml_fail_at(const tt_xml_node *node, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));
