// A network plugin of version 7 with a collective network.
#define NET_VERSION 7
#include "collnet.h"

const ncclNet_v7_t ncclNetPlugin_v7 = {NET_TABLE};
const ncclCollNet_v7_t ncclCollNetPlugin_v7 = {COLL_TABLE};
