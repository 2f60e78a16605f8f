// nccl/net_ib_v1.h: `data` of a NetPlugin event of type NCCL_PROFILER_NET_TYPE_IB, version 1: a work request on a queue
// pair.
#ifndef TUTTI_NCCL_NET_IB_V1_H
#define TUTTI_NCCL_NET_IB_V1_H

#include "profiler_common.h"

#define NCCL_PROFILER_NET_IB_VER 1

enum { ncclProfileQp = 1 << 0 };

typedef struct {
  uint8_t type; // ncclProfileQp
  TUTTI_NCCL_UNNAMED union {
    struct {
      int device; // of the network
      uint64_t wr_id;
      int opcode; // the verbs'
      int qpNum;
      size_t length; // bytes
    } qp;
  };
} ncclProfilerNetIbDescr_v1_t;

#endif
