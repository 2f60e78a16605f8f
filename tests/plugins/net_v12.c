// A network plugin of version 12.
#define NET_VERSION 12
#include "net_tcp.h"

const ncclNet_v12_t ncclNetPlugin_v12 = {NET_TABLE};
