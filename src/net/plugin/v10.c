// v10.c: version 10 of the network plugins' interface.
#define TT_PNET_V 10
#include "net/plugin/version.inc"
