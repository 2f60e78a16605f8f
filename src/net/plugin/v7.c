// v7.c: version 7 of the network plugins' interface.
#define TT_PNET_V 7
#include "net/plugin/version.inc"
