// A network plugin of version 8.
#define NET_VERSION 8
#include "net_tcp.h"

const ncclNet_v8_t ncclNetPlugin_v8 = {NET_TABLE};
