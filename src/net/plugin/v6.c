// v6.c: version 6 of the network plugins' interface.
#define TT_PNET_V 6
#include "net/plugin/version.inc"
