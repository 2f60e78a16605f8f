// collnet_v12.c: version 12 of the tables of collective networks.
#define TT_CNET_V 12
#include "net/plugin/collnet.inc"
