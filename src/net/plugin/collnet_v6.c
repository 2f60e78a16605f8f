// collnet_v6.c: version 6 of the tables of collective networks.
#define TT_CNET_V 6
#include "net/plugin/collnet.inc"
