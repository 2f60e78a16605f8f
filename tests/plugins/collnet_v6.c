// A network plugin of version 6 with a collective network.
#define NET_VERSION 6
#include "collnet.h"

const ncclNet_v6_t ncclNetPlugin_v6 = {NET_TABLE};
const ncclCollNet_v6_t ncclCollNetPlugin_v6 = {COLL_TABLE};
