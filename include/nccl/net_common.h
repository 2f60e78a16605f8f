// nccl/net_common.h: what network plugins of all versions share: limits, kinds of memory, and hints. Values are NCCL's
// (2.30.7).
#ifndef TUTTI_NCCL_NET_COMMON_H
#define TUTTI_NCCL_NET_COMMON_H

#include "common.h"
#include "net_device.h"

#define NCCL_NET_HANDLE_MAXSIZE 128 // bytes of a listener's handle, at most

// Kinds of memory; bits. Tutti registers NCCL_PTR_HOST only, so a device without that bit is of no use here.
#define NCCL_PTR_HOST 0x1
#define NCCL_PTR_CUDA 0x2
#define NCCL_PTR_DMABUF 0x4

// Requests under way on one connection, at most: 32, and 8 with tables of versions 6 and 7.
#define NCCL_NET_MAX_REQUESTS 32
#define NCCL_NET_MAX_REQUESTS_V6 8

// What a plugin may say of the greatest message, and what is assumed where its version cannot say it.
#define NCCL_MAX_NET_SIZE_BYTES (1 * 1024 * 1024 * 1024 * 1024L)
#define MAX_NET_SIZE (1024 * 1024 * 1024L)
#define MAX_COLLNET_SIZE (512 * 1024 * 1024L)

// Values that *request of irecv may have before the call: "need not be told when it is done", "is one of several".
// Never set here.
#define NCCL_NET_OPTIONAL_RECV_COMPLETION 0x1
#define NCCL_NET_MULTI_REQUEST 0x2

#define NCCL_NET_MR_FLAG_FORCE_SO (1 << 0)
#define NCCL_NET_MR_FLAG_SIGNAL_NEVER_RESET (1 << 1)
#define NCCL_NET_SIGNAL_OP_INC 0x1
#define NCCL_NET_SIGNAL_OP_ADD 0x2

#ifndef NCCL_NET_MAX_PLUGINS
#define NCCL_NET_MAX_PLUGINS 16 // items of NCCL_NET_PLUGIN that count
#endif

// Devices that one virtual device is made of, at most.
#define NCCL_NET_MAX_DEVS_PER_NIC_V9 4
#define NCCL_NET_MAX_DEVS_PER_NIC_V10 4
#define NCCL_NET_MAX_DEVS_PER_NIC_V11 4
#define NCCL_NET_MAX_DEVS_PER_NIC_V12 8
#define NCCL_NET_MAX_DEVS_PER_NIC NCCL_NET_MAX_DEVS_PER_NIC_V12

#define NCCL_NET_TRAFFIC_CLASS_UNDEF (-1) // ncclConfig_t.trafficClass is not set
#define NCCL_NET_ID_UNDEF (-1)            // railId, planeId: there is none

// "Not told" in ncclNetAttr_…_t, and all of it.
#define NCCL_NET_ATTR_UNDEF (-1)
#define NCCL_NET_ATTR_INIT                                                                           \
  {                                                                                                  \
    {NCCL_NET_ATTR_UNDEF, NCCL_NET_ATTR_UNDEF, NCCL_NET_ATTR_UNDEF, NCCL_NET_ATTR_UNDEF},            \
        {NCCL_NET_ATTR_UNDEF, NCCL_NET_ATTR_UNDEF, NCCL_NET_ATTR_UNDEF, NCCL_NET_ATTR_UNDEF},        \
        (uint32_t)NCCL_NET_ATTR_UNDEF, (uint32_t)NCCL_NET_ATTR_UNDEF, (uint32_t)NCCL_NET_ATTR_UNDEF, \
  }

#endif
