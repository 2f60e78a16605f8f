// v11.c: version 11 of the network plugins' interface.
#define TT_PNET_V 11
#include "net/plugin/version.inc"
