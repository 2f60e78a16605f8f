// A network plugin of version 9.
#define NET_VERSION 9
#include "net_tcp.h"

const ncclNet_v9_t ncclNetPlugin_v9 = {NET_TABLE};
