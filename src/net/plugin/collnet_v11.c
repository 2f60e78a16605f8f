// collnet_v11.c: version 11 of the tables of collective networks.
#define TT_CNET_V 11
#include "net/plugin/collnet.inc"
