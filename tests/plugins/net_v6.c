// A network plugin of version 6.
#define NET_VERSION 6
#include "net_tcp.h"

const ncclNet_v6_t ncclNetPlugin_v6 = {NET_TABLE};
