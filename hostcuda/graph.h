// graph.h: what the files of graphs share.
#pragma once
#include "hostcuda.h"

// Where the versions of cudaStreamGetCaptureInfo put their answers; NULL but for `status`: is not asked for.
typedef struct hc_capture_answer {
  enum cudaStreamCaptureStatus *status;
  unsigned long long *id;
  cudaGraph_t *graph;
  const cudaGraphNode_t **dependencies;
  const cudaGraphEdgeData **edges;
  size_t *count;
} hc_capture_answer;
cudaError_t hc_capture_info(cudaStream_t stream, const hc_capture_answer *out);

#define HC_CAPTURE_INFO_V3                                                                               \
  cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph, \
      const cudaGraphNode_t **dependencies, const cudaGraphEdgeData **edges, size_t *count

#define HC_INSTANTIATE_FLAGS                                                                                          \
  (cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagUpload | cudaGraphInstantiateFlagDeviceLaunch | \
   cudaGraphInstantiateFlagUseNodePriority)

// Have the edges no data that mean anything, as all edges here? NULL is allowed.
bool hc_plain_edges(const cudaGraphEdgeData *edges, size_t count);
