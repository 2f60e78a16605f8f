// A network plugin of version 11.
#define NET_VERSION 11
#include "net_tcp.h"

const ncclNet_v11_t ncclNetPlugin_v11 = {NET_TABLE};
