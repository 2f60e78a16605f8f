// sysfs_priv.h: what the sources of a document share. Private to topo/.
#pragma once
#include "topo/sysfs.h"

enum { TT_SYSFS_TEXT = 2048 }; // longest value

// First line of the file folder/name when it is plain text, "" otherwise. What is no text is named at INFO.
void tt_sysfs_text(const tt_tree *tree, const char *folder, const char *name, char *out, size_t size);

// A whole number, decimal or 0x…, with nothing behind it; `def` when it is none or outside of [lo, hi].
int tt_sysfs_number(const char *text, int lo, int hi, int def);

// Gives an attribute a value unless it has one.
ncclResult_t tt_sysfs_init(tt_xml *xml, tt_xml_node *node, const char *name, const char *value);

// Adds an element in front of the first sibling with a bus id that comes after `bus_id` in the alphabet; behind all
// others without one.
ncclResult_t tt_sysfs_add_pci(tt_xml *xml, tt_xml_node *parent, const char *bus_id, tt_xml_node **out);

// The element of that name in the document whose attribute `key`, as a bus id, is `bus_id`. NULL: none.
tt_xml_node *tt_sysfs_find(const tt_xml *xml, const char *tag, const char *key, const char *bus_id);
