// v8.c: version 8 of the network plugins' interface.
#define TT_PNET_V 8
#include "net/plugin/version.inc"
