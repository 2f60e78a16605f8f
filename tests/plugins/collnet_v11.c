// A network plugin of version 11 with a collective network.
#define NET_VERSION 11
#include "collnet.h"

const ncclNet_v11_t ncclNetPlugin_v11 = {NET_TABLE};
const ncclCollNet_v11_t ncclCollNetPlugin_v11 = {COLL_TABLE};
