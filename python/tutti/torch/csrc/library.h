// library.h: the functions of Tutti's library, found at run time.
//
// The library is opened by its path: PyTorch for GPUs brings NVIDIA's libnccl.so.2, which has the same name, and the
// linker would take whichever of both is loaded first.
#pragma once

#include <string>

#define TUTTI_NO_CUDA_HEADERS 1
#include "nccl.h"
#include "tutti.h"

// As nccl_device/core.h has it, which the package does not bring.
extern "C" ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void **outPtr);

// What the back end calls, one X(function) for each.
// clang-format off
#define TUTTI_TORCH_FUNCTIONS(X)                                                                                  \
  X(ncclGetErrorString) X(ncclGetLastError) X(ncclGetUniqueId) X(ncclCommInitRankConfig) X(ncclCommDestroy)       \
  X(ncclCommAbort) X(ncclCommRevoke) X(ncclCommShrink) X(ncclCommGetAsyncError) X(ncclAllReduce) X(ncclBroadcast) \
  X(ncclReduce) X(ncclAllGather) X(ncclReduceScatter) X(ncclAlltoAll) X(ncclGather) X(ncclScatter) X(ncclSend)    \
  X(ncclRecv) X(ncclGroupStart) X(ncclGroupEnd) X(ncclRedOpCreatePreMulSum) X(ncclRedOpDestroy)                   \
  X(tuttiStreamCreate) X(tuttiStreamDestroy) X(tuttiStreamSynchronizeFor) X(tuttiStreamQuery)                     \
  X(tuttiStreamWaitEvent) X(tuttiLaunchHostFunc) X(tuttiEventCreateWithFlags) X(tuttiEventDestroy)                \
  X(tuttiEventRecord) X(tuttiEventQuery) X(tuttiEventSynchronizeFor) X(tuttiCommDiagnose) X(tuttiCommFlightRecorder) \
  X(ncclMemAlloc) X(ncclMemFree) X(ncclCommSuspend) X(ncclCommResume) X(ncclCommMemStats) X(ncclGroupSimulateEnd)    \
  X(ncclCommGetUniqueId) X(ncclCommGrow) X(ncclCommWindowRegister) X(ncclCommWindowDeregister) X(ncclPutSignal)      \
  X(ncclSignal) X(ncclWaitSignal) X(ncclGetPeerDevicePointer) X(tuttiMemcpyAsync) X(tuttiPointerGetAttributes)   \
  X(tuttiGetDevice)
// clang-format on

namespace tutti {

struct Library {
#define TUTTI_TORCH_MEMBER(name) decltype(&::name) name;
  TUTTI_TORCH_FUNCTIONS(TUTTI_TORCH_MEMBER)
#undef TUTTI_TORCH_MEMBER
};

// Opens the library at `path`, once per process. Throws when it cannot be opened or is not Tutti's.
void open_library(const std::string &path);

// The functions. Throws when open_library has not been called. From any thread.
const Library &lib();

// Throws c10::DistBackendError with what was tried, the code's name and the library's own text, when `result` is an
// error. `comm` may be NULL.
void check(ncclResult_t result, const std::string &what, ncclComm_t comm = nullptr);

// The text that check() throws.
std::string describe(ncclResult_t result, const std::string &what, ncclComm_t comm);

} // namespace tutti
