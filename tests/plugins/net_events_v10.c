#define NET_VERSION 10
#include "net_events.h"
