// A network plugin of version 10.
#define NET_VERSION 10
#include "net_tcp.h"

const ncclNet_v10_t ncclNetPlugin_v10 = {NET_TABLE};
