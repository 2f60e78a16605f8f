// xml_priv.h: a document before it has elements.
#pragma once
#include "topo/xml.h"

// A document without a root.
ncclResult_t tt_xml_empty(const char *name, tt_xml **out);
