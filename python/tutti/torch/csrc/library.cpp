#include "library.h"

#include <dlfcn.h>

#include <c10/util/Exception.h>
#include <mutex>

namespace tutti {

static Library functions;
static bool opened;
static std::mutex opening;

static void *find_function(void *handle, const std::string &path, const char *name)
{
  void *at = dlsym(handle, name);
  TORCH_CHECK(at != nullptr, "tutti: ", path, " has no function ", name,
              ": it is not Tutti's library, or an older one. Set TUTTI_LIBRARY to the path of Tutti's libnccl.so.2");
  return at;
}

void open_library(const std::string &path)
{
  const std::lock_guard<std::mutex> guard(opening);
  if (opened) {
    return;
  }
  void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  TORCH_CHECK(handle != nullptr, "tutti: the library cannot be opened: ", dlerror());
#define TUTTI_TORCH_FIND(name) \
  functions.name = reinterpret_cast<decltype(functions.name)>(find_function(handle, path, #name));
  TUTTI_TORCH_FUNCTIONS(TUTTI_TORCH_FIND)
#undef TUTTI_TORCH_FIND
  int device = 0;
  functions.tuttiGetDevice(&device); // tensors are host memory, also on a machine with GPUs
  opened = true;
}

const Library &lib()
{
  TORCH_CHECK(opened, "tutti: the library is not open; use tutti.torch, which opens it");
  return functions;
}

std::string describe(ncclResult_t result, const std::string &what, ncclComm_t comm)
{
  const char *text = lib().ncclGetLastError(comm);
  std::string all = "tutti: " + what + ": " + lib().ncclGetErrorString(result);
  return text != nullptr && text[0] != 0 ? all + ": " + text : all;
}

void check(ncclResult_t result, const std::string &what, ncclComm_t comm)
{
  if (result != ncclSuccess && result != ncclInProgress) {
    C10_THROW_ERROR(DistBackendError, describe(result, what, comm));
  }
}

} // namespace tutti
