#define NET_VERSION 11
#include "net_events.h"
