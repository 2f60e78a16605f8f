// kernel.c: what programs with kernels call before main and when they launch one. They load; a launch fails as on a
// device that the program has no code for.
#include <string.h>

#include "hostcuda.h"

#define HC_VISIBLE __attribute__((visibility("default")))

// Where nvcc's code expects memory, some of it must be.
static void *nothing[1];

HC_VISIBLE void **__cudaRegisterFatBinary(void *code);
HC_VISIBLE void **__cudaRegisterFatBinary(void *code)
{
  (void)code;
  return nothing;
}

#define REGISTRATION(name, ...)      \
  HC_VISIBLE void name(__VA_ARGS__); \
  HC_VISIBLE void name(__VA_ARGS__) {}

#pragma GCC diagnostic ignored "-Wunused-parameter"
REGISTRATION(__cudaRegisterFatBinaryEnd, void **handle)
REGISTRATION(__cudaUnregisterFatBinary, void **handle)
REGISTRATION(__cudaRegisterFunction, void **handle)
REGISTRATION(__cudaRegisterVar, void **handle)
REGISTRATION(__cudaRegisterHostVar, void **handle)
REGISTRATION(__cudaRegisterUnifiedTable, void **handle)

// A managed variable is reached by the host through a pointer: it needs memory.
HC_VISIBLE void __cudaRegisterManagedVar(void **handle, void **pointer, char *address, const char *name, int external,
                                         size_t size);
HC_VISIBLE void __cudaRegisterManagedVar(void **handle, void **pointer, char *address, const char *name, int external,
                                         size_t size)
{
  tuttiMallocKind(pointer, size, tuttiMemoryManaged, cudaMemAttachGlobal);
}

HC_VISIBLE char __cudaInitModule(void **handle);
HC_VISIBLE char __cudaInitModule(void **handle)
{
  return 1;
}

// What stands between <<< and >>>: kept from the push until the pop, which are the thread's next two calls.
static _Thread_local struct {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
} configuration;

HC_VISIBLE unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream);
HC_VISIBLE unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream)
{
  configuration.grid = grid;
  configuration.block = block;
  configuration.shared = shared;
  configuration.stream = stream;
  return 0;
}

HC_API __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, cudaStream_t *stream);
HC_API __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, cudaStream_t *stream)
{
  *grid = configuration.grid;
  *block = configuration.block;
  *shared = configuration.shared;
  *stream = configuration.stream;
  return cudaSuccess;
}

// Newer compilers launch by a handle that they ask for once.
HC_API __cudaGetKernel(void **kernel, const void *func);
HC_API __cudaGetKernel(void **kernel, const void *func)
{
  *kernel = nothing;
  return cudaSuccess;
}

// Channel formats are plain numbers, also where there are no textures.
typedef struct channel_format {
  int x, y, z, w, kind;
} channel_format;

HC_VISIBLE channel_format cudaCreateChannelDesc(int x, int y, int z, int w, int kind);
HC_VISIBLE channel_format cudaCreateChannelDesc(int x, int y, int z, int w, int kind)
{
  return (channel_format){.x = x, .y = y, .z = z, .w = w, .kind = kind};
}
