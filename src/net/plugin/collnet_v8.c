// collnet_v8.c: version 8 of the tables of collective networks.
#define TT_CNET_V 8
#include "net/plugin/collnet.inc"
