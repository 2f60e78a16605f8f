// source_priv.h: what the files that make a document of ports share. Private to topo/.
#pragma once
#include "topo/source.h"

// The element below which a port belongs that is made of several (nparts > 1). Parts of one PCI device: that device.
// Otherwise a made-up device of the first part's class, with the width of all their links, below what all parts stand
// below. Ports of different CPUs count as beside the first one. Without PCI devices: the first CPU. Errors: no memory.
ncclResult_t tt_source_virtual(const tt_source *in, tt_xml *xml, const tt_source_net *n, tt_xml_node **out);
