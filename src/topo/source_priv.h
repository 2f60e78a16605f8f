// source_priv.h: what the files that make a document of ports share. Private to topo/.
#pragma once
#include "topo/source.h"

// The element below which a port that is made of several (nparts > 1) belongs: their PCI device; or else a made-up one beside them, of the class of the first,
// below what all of them stand below, with the width of all their links. Ports of different CPUs count as the first's. Without PCI devices: the first CPU.
// Errors: no memory.
ncclResult_t tt_source_virtual(const tt_source *in, tt_xml *xml, const tt_source_net *n, tt_xml_node **out);
