// collnet_v9.c: version 9 of the tables of collective networks.
#define TT_CNET_V 9
#include "net/plugin/collnet.inc"
