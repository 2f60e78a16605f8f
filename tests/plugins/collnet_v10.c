// A network plugin of version 10 with a collective network.
#define NET_VERSION 10
#include "collnet.h"

const ncclNet_v10_t ncclNetPlugin_v10 = {NET_TABLE};
const ncclCollNet_v10_t ncclCollNetPlugin_v10 = {COLL_TABLE};
