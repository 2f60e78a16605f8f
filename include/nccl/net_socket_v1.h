// nccl/net_socket_v1.h: `data` of a NetPlugin event of type NCCL_PROFILER_NET_TYPE_SOCK, version 1: a transfer over one
// socket.
#ifndef TUTTI_NCCL_NET_SOCKET_V1_H
#define TUTTI_NCCL_NET_SOCKET_V1_H

#include "profiler_common.h"

#define NCCL_PROFILER_NET_SOCKET_VER 1

enum { ncclProfileSocket = 1 << 0 };

typedef struct {
  uint8_t type; // ncclProfileSocket
  TUTTI_NCCL_UNNAMED union {
    struct {
      int fd;
      int op;        // 0 send, 1 receive
      size_t length; // bytes
    } sock;
  };
} ncclProfilerNetSockDescr_v1_t;

#endif
