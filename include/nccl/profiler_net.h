// nccl/profiler_net.h: what network plugins and profilers agree on. `id` of a NetPlugin event: the lower 16 bits are
// the version of what `data` points to, the next 16 the type of plugin.
#ifndef TUTTI_NCCL_PROFILER_NET_H
#define TUTTI_NCCL_PROFILER_NET_H

#include "net_ib_v1.h"
#include "net_socket_v1.h"

#define NCCL_PROFILER_NET_VER_BITS (16)
#define NCCL_PROFILER_NET_VER_MASK (~0U >> NCCL_PROFILER_NET_VER_BITS)
#define NCCL_PROFILER_NET_TYPE_MASK (~0U << NCCL_PROFILER_NET_VER_BITS)

typedef enum {
  NCCL_PROFILER_NET_TYPE_IB = 1U << NCCL_PROFILER_NET_VER_BITS,  // net_ib_v1.h
  NCCL_PROFILER_NET_TYPE_SOCK = 2U << NCCL_PROFILER_NET_VER_BITS // net_socket_v1.h
} ncclProfilerNetType;

#endif
