// driver_stream.c: the driver's functions for streams, events and stream memory operations.
#include "driver_priv.h"

// ---- Streams ----

CU_IS(cuStreamCreate, (cudaStream_t * stream, unsigned flags), cudaStreamCreateWithFlags(stream, flags))
CU_IS(cuStreamCreateWithPriority, (cudaStream_t * stream, unsigned flags, int priority),
      cudaStreamCreateWithPriority(stream, flags, priority))
CU_IS(cuStreamDestroy_v2, (cudaStream_t stream), cudaStreamDestroy(stream))
CU_STREAM(cuStreamQuery, (cudaStream_t stream), cudaStreamQuery(stream))
CU_STREAM(cuStreamSynchronize, (cudaStream_t stream), cudaStreamSynchronize(stream))
CU_STREAM(cuStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned flags),
          cudaStreamWaitEvent(stream, event, flags))
CU_STREAM(cuStreamGetFlags, (cudaStream_t stream, unsigned *flags), cudaStreamGetFlags(stream, flags))
CU_STREAM(cuStreamGetPriority, (cudaStream_t stream, int *priority), cudaStreamGetPriority(stream, priority))
CU_STREAM(cuStreamGetId, (cudaStream_t stream, unsigned long long *id), cudaStreamGetId(stream, id))
CU_STREAM(cuLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t fn, void *data), cudaLaunchHostFunc(stream, fn, data))
CU_STREAM(cuStreamAddCallback, (cudaStream_t stream, cudaStreamCallback_t fn, void *data, unsigned flags),
          cudaStreamAddCallback(stream, fn, data, flags))

// The context of its device.
CU_API(cuStreamGetCtx, (cudaStream_t stream, CUcontext *context))
{
  int device = 0;
  if (context == NULL) {
    return INVALID_VALUE;
  }
  cudaError_t before = cudaPeekAtLastError();
  CUresult e = (CUresult)cudaStreamGetDevice(stream, &device);
  hc_restore(before);
  if (e == SUCCESS) {
    *context = context_of(device);
  }
  return e;
}
CU_TWIN(cuStreamGetCtx, _ptsz, (cudaStream_t stream, CUcontext *context), (hc_own(stream), context))

CU_STREAM(cuStreamGetDevice, (cudaStream_t stream, CUdevice *device), cudaStreamGetDevice(stream, device))

// ---- Events ----

CU_IS(cuEventCreate, (cudaEvent_t * event, unsigned flags), cudaEventCreateWithFlags(event, flags))
CU_IS(cuEventDestroy_v2, (cudaEvent_t event), cudaEventDestroy(event))
CU_IS(cuEventQuery, (cudaEvent_t event), cudaEventQuery(event))
CU_IS(cuEventSynchronize, (cudaEvent_t event), cudaEventSynchronize(event))
CU_IS(cuEventElapsedTime, (float *ms, cudaEvent_t start, cudaEvent_t end), cudaEventElapsedTime(ms, start, end))
CU_TWIN(cuEventElapsedTime, _v2, (float *ms, cudaEvent_t start, cudaEvent_t end), (ms, start, end))
CU_STREAM(cuEventRecord, (cudaEvent_t event, cudaStream_t stream), cudaEventRecord(event, stream))
CU_STREAM(cuEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned flags),
          cudaEventRecordWithFlags(event, stream, flags))
CU_IS(cuIpcGetEventHandle, (cudaIpcEventHandle_t * handle, cudaEvent_t event), cudaIpcGetEventHandle(handle, event))
CU_IS(cuIpcOpenEventHandle, (cudaEvent_t * event, cudaIpcEventHandle_t handle), cudaIpcOpenEventHandle(event, handle))

// ---- Stream memory operations ----

enum { WAIT_FLUSH = 1 << 30, WRITE_NO_BARRIER = 1, BATCH_MOST = 256 };
enum { WAIT_32 = 1, WRITE_32 = 2, FLUSH = 3, WAIT_64 = 4, WRITE_64 = 5, BARRIER = 6 }; // CUstreamBatchMemOpType

// One operation, as cuStreamBatchMemOp has it.
typedef union operation {
  int type;
  struct {
    int type;
    CUdeviceptr at;
    uint64_t value; // the lower half, for 32 bits
    unsigned flags;
    CUdeviceptr alias;
  } value;
  uint64_t words[6];
} operation;
_Static_assert(sizeof(operation) == 48, "CUstreamBatchMemOpParams");

// Where the driver's manual says that flushes and barriers are needed, streams of the host have them anyway.
static bool is_operation(const operation *o)
{
  switch (o->type) {
  case WAIT_32:
  case WAIT_64: return (o->value.flags & ~(unsigned)WAIT_FLUSH) <= tuttiValueNor;
  case WRITE_32:
  case WRITE_64: return o->value.flags <= WRITE_NO_BARRIER;
  default: return o->type == FLUSH || o->type == BARRIER;
  }
}

static ncclResult_t queue(cudaStream_t stream, const operation *o)
{
  void *p = at(o->value.at);
  tuttiValueCondition_t condition = (tuttiValueCondition_t)(o->value.flags & ~(unsigned)WAIT_FLUSH);
  switch (o->type) {
  case WAIT_32: return tuttiStreamWaitValue32(stream, p, (uint32_t)o->value.value, condition);
  case WAIT_64: return tuttiStreamWaitValue64(stream, p, o->value.value, condition);
  case WRITE_32: return tuttiStreamWriteValue32(stream, p, (uint32_t)o->value.value);
  case WRITE_64: return tuttiStreamWriteValue64(stream, p, o->value.value);
  default: return ncclSuccess;
  }
}

// All of them, or none where an argument is wrong.
static cudaError_t queue_all(cudaStream_t stream, const operation *o, unsigned count)
{
  HC_ENTER();
  HC_REFUSE(o == NULL || count == 0 || count > BATCH_MOST, cudaErrorInvalidValue);
  for (unsigned i = 0; i < count; i++) {
    uint64_t width = o[i].type == WAIT_64 || o[i].type == WRITE_64 ? 8 : 4;
    bool names_memory = o[i].type != FLUSH && o[i].type != BARRIER;
    HC_REFUSE(!is_operation(&o[i]), cudaErrorInvalidValue);
    HC_REFUSE(names_memory && (o[i].value.at == 0 || o[i].value.at % width != 0), cudaErrorInvalidValue);
  }
  ncclResult_t r = tuttiStreamGetInfo(stream, NULL, NULL, NULL);
  for (unsigned i = 0; r == ncclSuccess && i < count; i++) {
    r = queue(stream, &o[i]);
  }
  return hc_result(r, cudaErrorInvalidResourceHandle);
}

CU_STREAM(cuStreamBatchMemOp_v2, (cudaStream_t stream, unsigned count, const operation *operations, unsigned flags),
          flags != 0 ? cudaErrorInvalidValue : queue_all(stream, operations, count))

// The first form of each function, and the second, which differ on GPUs only.
#define VALUE_FORM(name, kind, number)                                                \
  CU_STREAM(name, (cudaStream_t stream, CUdeviceptr p, number value, unsigned flags), \
            queue_all(stream, &(operation){.value = {.type = (kind), .at = p, .value = value, .flags = flags}}, 1))
#define VALUE_FORMS(name, kind, number) VALUE_FORM(name, kind, number) VALUE_FORM(name##_v2, kind, number)
VALUE_FORMS(cuStreamWaitValue32, WAIT_32, uint32_t)
VALUE_FORMS(cuStreamWaitValue64, WAIT_64, uint64_t)
VALUE_FORMS(cuStreamWriteValue32, WRITE_32, uint32_t)
VALUE_FORMS(cuStreamWriteValue64, WRITE_64, uint64_t)

// ---- Captures and graphs ----

CU_IS(cuThreadExchangeStreamCaptureMode, (int *mode),
      cudaThreadExchangeStreamCaptureMode((enum cudaStreamCaptureMode *)mode))
CU_STREAM(cuStreamBeginCapture_v2, (cudaStream_t stream, int mode),
          cudaStreamBeginCapture(stream, (enum cudaStreamCaptureMode)mode))
CU_STREAM(cuStreamEndCapture, (cudaStream_t stream, cudaGraph_t *graph), cudaStreamEndCapture(stream, graph))
CU_STREAM(cuStreamIsCapturing, (cudaStream_t stream, int *status),
          cudaStreamIsCapturing(stream, (enum cudaStreamCaptureStatus *)status))
CU_IS(cuGraphCreate, (cudaGraph_t * graph, unsigned flags), cudaGraphCreate(graph, flags))
CU_IS(cuGraphDestroy, (cudaGraph_t graph), cudaGraphDestroy(graph))
CU_IS(cuGraphGetNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count),
      cudaGraphGetNodes(graph, nodes, count))
CU_IS(cuGraphGetRootNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count),
      cudaGraphGetRootNodes(graph, nodes, count))
CU_IS(cuGraphNodeGetType, (cudaGraphNode_t node, int *type), cudaGraphNodeGetType(node, (enum cudaGraphNodeType *)type))
CU_IS(cuGraphAddEmptyNode,
      (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count),
      cudaGraphAddEmptyNode(node, graph, dependencies, count))
CU_IS(cuGraphAddHostNode,
      (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count,
       const struct cudaHostNodeParams *params),
      cudaGraphAddHostNode(node, graph, dependencies, count, params))
CU_IS(cuGraphAddEventRecordNode,
      (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count, cudaEvent_t event),
      cudaGraphAddEventRecordNode(node, graph, dependencies, count, event))
CU_IS(cuGraphAddEventWaitNode,
      (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count, cudaEvent_t event),
      cudaGraphAddEventWaitNode(node, graph, dependencies, count, event))
CU_IS(cuGraphAddChildGraphNode,
      (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count, cudaGraph_t child),
      cudaGraphAddChildGraphNode(node, graph, dependencies, count, child))
CU_IS(cuGraphInstantiateWithFlags, (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
      cudaGraphInstantiateWithFlags(exec, graph, flags))
CU_STREAM(cuGraphUpload, (cudaGraphExec_t exec, cudaStream_t stream), cudaGraphUpload(exec, stream))
CU_STREAM(cuGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream), cudaGraphLaunch(exec, stream))
CU_IS(cuGraphExecUpdate_v2, (cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info),
      cudaGraphExecUpdate(exec, graph, info))
CU_IS(cuGraphExecDestroy, (cudaGraphExec_t exec), cudaGraphExecDestroy(exec))
