// nccl/net.h: network plugins. The newest version under plain names, and all older ones; net_v12.h explains the
// members.
//
// A plugin is a shared library with a constant table, ncclNetPlugin_v12 for the newest version, found by
// NCCL_NET_PLUGIN or as libnccl-net.so. It may have tables of several versions: the newest that both sides know is
// taken. docs/plugins.md tells how it lives.
#ifndef TUTTI_NCCL_NET_H
#define TUTTI_NCCL_NET_H

#include "net_v10.h"
#include "net_v11.h"
#include "net_v12.h"
#include "net_v6.h"
#include "net_v7.h"
#include "net_v8.h"
#include "net_v9.h"

typedef ncclNet_v12_t ncclNet_t;
typedef ncclCollNet_v12_t ncclCollNet_t;
typedef ncclNetSGE_v12_t ncclNetSGE_t;
typedef ncclNetProperties_v12_t ncclNetProperties_t;
typedef ncclNetAttr_v12_t ncclNetAttr_t;
typedef ncclNetVDeviceProps_v12_t ncclNetVDeviceProps_t;
typedef ncclNetCommConfig_v12_t ncclNetCommConfig_t;

#define NCCL_NET_PLUGIN_SYMBOL ncclNetPlugin_v12
#define NCCL_COLLNET_PLUGIN_SYMBOL ncclCollNetPlugin_v12

#endif
