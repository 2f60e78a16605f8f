// collnet_v7.c: version 7 of the tables of collective networks.
#define TT_CNET_V 7
#include "net/plugin/collnet.inc"
