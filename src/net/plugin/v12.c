// v12.c: version 12 of the network plugins' interface.
#define TT_PNET_V 12
#include "net/plugin/version.inc"
