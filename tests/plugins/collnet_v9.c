// A network plugin of version 9 with a collective network.
#define NET_VERSION 9
#include "collnet.h"

const ncclNet_v9_t ncclNetPlugin_v9 = {NET_TABLE};
const ncclCollNet_v9_t ncclCollNetPlugin_v9 = {COLL_TABLE};
