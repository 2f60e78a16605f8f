// A network plugin of version 8 with a collective network.
#define NET_VERSION 8
#include "collnet.h"

const ncclNet_v8_t ncclNetPlugin_v8 = {NET_TABLE};
const ncclCollNet_v8_t ncclCollNetPlugin_v8 = {COLL_TABLE};
