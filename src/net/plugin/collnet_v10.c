// collnet_v10.c: version 10 of the tables of collective networks.
#define TT_CNET_V 10
#include "net/plugin/collnet.inc"
