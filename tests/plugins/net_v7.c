// A network plugin of version 7.
#define NET_VERSION 7
#include "net_tcp.h"

const ncclNet_v7_t ncclNetPlugin_v7 = {NET_TABLE};
