#define NET_VERSION 12
#include "net_events.h"
