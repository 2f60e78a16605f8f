// A network plugin of version 12 with a collective network.
#define NET_VERSION 12
#include "collnet.h"

const ncclNet_v12_t ncclNetPlugin_v12 = {NET_TABLE};
const ncclCollNet_v12_t ncclCollNetPlugin_v12 = {COLL_TABLE};
