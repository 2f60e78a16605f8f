// v9.c: version 9 of the network plugins' interface.
#define TT_PNET_V 9
#include "net/plugin/version.inc"
