// graph.c: captures of streams, and graphs. A handle of the runtime is that of the tutti… functions.
#include "graph.h"

static cudaError_t result(ncclResult_t r)
{
  return hc_result(r, cudaErrorInvalidResourceHandle);
}

// ---- Captures ----

bool hc_captured(cudaStream_t stream)
{
  tuttiCaptureInfo_t info;
  return tuttiStreamGetCaptureInfo(stream, &info) == ncclSuccess && info.status != tuttiCaptureNone;
}

HC_API cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
  HC_ENTER();
  HC_REFUSE((unsigned)mode > cudaStreamCaptureModeRelaxed, cudaErrorInvalidValue);
  return result(tuttiStreamBeginCapture(stream, (tuttiCaptureMode_t)mode));
}
HC_TWIN(cudaStreamBeginCapture, _ptsz, (cudaStream_t stream, enum cudaStreamCaptureMode mode), (hc_own(stream), mode))

HC_API cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                     const cudaGraphEdgeData *edges, size_t count, enum cudaStreamCaptureMode mode)
{
  HC_ENTER();
  HC_REFUSE(graph == NULL || (unsigned)mode > cudaStreamCaptureModeRelaxed, cudaErrorInvalidValue);
  HC_REFUSE(!hc_plain_edges(edges, count), cudaErrorNotSupported);
  return result(tuttiStreamBeginCaptureToGraph(stream, (tuttiGraph_t)graph, (const tuttiNode_t *)dependencies, count,
                                               (tuttiCaptureMode_t)mode));
}
HC_TWIN(cudaStreamBeginCaptureToGraph, _ptsz,
        (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *dependencies, const cudaGraphEdgeData *edges,
         size_t count, enum cudaStreamCaptureMode mode),
        (hc_own(stream), graph, dependencies, edges, count, mode))

HC_API cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
  HC_ENTER();
  HC_REFUSE(graph == NULL, cudaErrorInvalidValue);
  return result(tuttiStreamEndCapture(stream, (tuttiGraph_t *)graph));
}
HC_TWIN(cudaStreamEndCapture, _ptsz, (cudaStream_t stream, cudaGraph_t *graph), (hc_own(stream), graph))

cudaError_t hc_capture_info(cudaStream_t stream, const hc_capture_answer *out)
{
  tuttiCaptureInfo_t info;
  HC_ENTER();
  HC_REFUSE(out->status == NULL, cudaErrorInvalidValue);
  cudaError_t e = result(tuttiStreamGetCaptureInfo(stream, &info));
  if (e != cudaSuccess) {
    return e;
  }
  *out->status = (enum cudaStreamCaptureStatus)info.status;
  if (out->id != NULL) {
    *out->id = info.id;
  }
  if (out->graph != NULL) {
    *out->graph = (cudaGraph_t)info.graph;
  }
  if (out->dependencies != NULL) {
    *out->dependencies = (const cudaGraphNode_t *)info.dependencies;
  }
  if (out->edges != NULL) {
    *out->edges = NULL; // all are plain
  }
  if (out->count != NULL) {
    *out->count = info.dependencyCount;
  }
  return cudaSuccess;
}

HC_API cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
  return hc_capture_info(stream, &(hc_capture_answer){.status = status});
}
HC_TWIN(cudaStreamIsCapturing, _ptsz, (cudaStream_t stream, enum cudaStreamCaptureStatus *status),
        (hc_own(stream), status))

HC_API cudaStreamGetCaptureInfo_v2(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                   cudaGraph_t *graph, const cudaGraphNode_t **dependencies, size_t *count)
{
  return hc_capture_info(
      stream,
      &(hc_capture_answer){.status = status, .id = id, .graph = graph, .dependencies = dependencies, .count = count});
}
HC_TWIN(cudaStreamGetCaptureInfo_v2, _ptsz,
        (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph,
         const cudaGraphNode_t **dependencies, size_t *count),
        (hc_own(stream), status, id, graph, dependencies, count))

HC_API cudaStreamGetCaptureInfo_v3(HC_CAPTURE_INFO_V3)
{
  return hc_capture_info(stream, &(hc_capture_answer){status, id, graph, dependencies, edges, count});
}
HC_TWIN(cudaStreamGetCaptureInfo_v3, _ptsz, (HC_CAPTURE_INFO_V3),
        (hc_own(stream), status, id, graph, dependencies, edges, count))

HC_API cudaStreamUpdateCaptureDependencies_v2(cudaStream_t stream, cudaGraphNode_t *dependencies,
                                              const cudaGraphEdgeData *edges, size_t count, unsigned int flags)
{
  HC_ENTER();
  HC_REFUSE(flags > cudaStreamSetCaptureDependencies, cudaErrorInvalidValue);
  HC_REFUSE(!hc_plain_edges(edges, count), cudaErrorNotSupported);
  return result(tuttiStreamUpdateCaptureDependencies(stream, (const tuttiNode_t *)dependencies, count, (int)flags));
}
HC_TWIN(cudaStreamUpdateCaptureDependencies_v2, _ptsz,
        (cudaStream_t stream, cudaGraphNode_t *dependencies, const cudaGraphEdgeData *edges, size_t count,
         unsigned int flags),
        (hc_own(stream), dependencies, edges, count, flags))

HC_API cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
  HC_REFUSE(mode == NULL || (unsigned)*mode > cudaStreamCaptureModeRelaxed, cudaErrorInvalidValue);
  return hc_result(tuttiThreadExchangeCaptureMode((tuttiCaptureMode_t *)mode), cudaErrorInvalidValue);
}

// ---- Graphs ----

HC_API cudaGraphCreate(cudaGraph_t *graph, unsigned int flags)
{
  HC_ENTER();
  HC_REFUSE(graph == NULL || flags != 0, cudaErrorInvalidValue);
  return result(tuttiGraphCreate((tuttiGraph_t *)graph));
}

HC_API cudaGraphDestroy(cudaGraph_t graph)
{
  HC_ENTER();
  HC_REFUSE(graph == NULL, cudaErrorInvalidValue);
  return result(tuttiGraphDestroy((tuttiGraph_t)graph));
}

HC_API cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
  HC_ENTER();
  HC_REFUSE(exec == NULL || graph == NULL, cudaErrorInvalidValue);
  HC_REFUSE((flags & ~(unsigned long long)HC_INSTANTIATE_FLAGS) != 0, cudaErrorInvalidValue);
  HC_REFUSE((flags & cudaGraphInstantiateFlagDeviceLaunch) != 0, cudaErrorNotSupported);
  return result(tuttiGraphInstantiate((tuttiGraphExec_t *)exec, (tuttiGraph_t)graph));
}

HC_API cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
  return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

HC_API cudaGraphInstantiateWithParams(cudaGraphExec_t *exec, cudaGraph_t graph, cudaGraphInstantiateParams *params)
{
  HC_REFUSE(params == NULL, cudaErrorInvalidValue);
  cudaError_t e = cudaGraphInstantiateWithFlags(exec, graph, params->flags);
  params->errNode_out = NULL;
  params->result_out = e == cudaSuccess ? cudaGraphInstantiateSuccess : cudaGraphInstantiateError;
  return e;
}
HC_TWIN(cudaGraphInstantiateWithParams, _ptsz,
        (cudaGraphExec_t * exec, cudaGraph_t graph, cudaGraphInstantiateParams *params), (exec, graph, params))

HC_API cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
  HC_ENTER();
  HC_REFUSE(exec == NULL, cudaErrorInvalidValue);
  return hc_result(tuttiGraphLaunch((tuttiGraphExec_t)exec, stream), cudaErrorInvalidValue);
}
HC_TWIN(cudaGraphLaunch, _ptsz, (cudaGraphExec_t exec, cudaStream_t stream), (exec, hc_own(stream)))

// There is nothing to be brought to a device.
HC_API cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
  HC_ENTER();
  HC_REFUSE(exec == NULL, cudaErrorInvalidValue);
  return result(tuttiStreamGetInfo(stream, NULL, NULL, NULL));
}
HC_TWIN(cudaGraphUpload, _ptsz, (cudaGraphExec_t exec, cudaStream_t stream), (exec, hc_own(stream)))

HC_API cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info)
{
  tuttiNode_t changed = NULL;
  HC_ENTER();
  HC_REFUSE(exec == NULL || graph == NULL || info == NULL, cudaErrorInvalidValue);
  ncclResult_t r = tuttiGraphExecUpdate((tuttiGraphExec_t)exec, (tuttiGraph_t)graph, &changed);
  *info = (cudaGraphExecUpdateResultInfo){.result = r == ncclSuccess ? cudaGraphExecUpdateSuccess
                                                                     : cudaGraphExecUpdateErrorTopologyChanged,
                                          .errorNode = (cudaGraphNode_t)changed};
  return hc_result(r, cudaErrorGraphExecUpdateFailure);
}

HC_API cudaGraphExecDestroy(cudaGraphExec_t exec)
{
  HC_ENTER();
  HC_REFUSE(exec == NULL, cudaErrorInvalidValue);
  return result(tuttiGraphExecDestroy((tuttiGraphExec_t)exec));
}

HC_API cudaGraphExecGetFlags(cudaGraphExec_t exec, unsigned long long *flags)
{
  HC_ENTER();
  HC_REFUSE(exec == NULL || flags == NULL, cudaErrorInvalidValue);
  *flags = 0;
  return cudaSuccess;
}
