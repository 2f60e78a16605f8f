// module.c: modules of PTX, their functions and variables, launches.
#define _GNU_SOURCE

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

// ---- Loading ----

static const char *skip_space(const char *at)
{
  while (isspace((unsigned char)*at)) {
    at++;
  }
  return at;
}

// PTX begins with comments and ".version".
static bool is_ptx(const char *image)
{
  const char *at = skip_space(image);
  while (at[0] == '/' && at[1] == '/') {
    at += strcspn(at, "\n");
    at = skip_space(at);
  }
  return strncmp(at, ".version", 8) == 0;
}

// Makes known the variable whose declaration stands in the text from `at` to the end of the statement: devices may
// use it.
static void add_variable(struct sim_module *module, const char *at)
{
  char name[256];
  size_t end = 0, bytes = 0;
  while (at[end] != '\0' && strchr("[=;", at[end]) == NULL) {
    end++;
  }
  while (end > 0 && isspace((unsigned char)at[end - 1])) {
    end--;
  }
  size_t begin = end;
  while (begin > 0 && !isspace((unsigned char)at[begin - 1])) {
    begin--;
  }
  snprintf(name, sizeof name, "%.*s", (int)(end - begin), at + begin);
  void *storage = ptx_module_global(module->ptx, name, &bytes);
  struct sim_range other, range = {.base = (uint64_t)(uintptr_t)storage,
                                   .bytes = bytes,
                                   .kind = SIM_VARIABLE,
                                   .device = module->context->device->ordinal,
                                   .context = module->context,
                                   .id = ++sim.ids,
                                   .owner = module};
  if (storage != NULL && bytes > 0) {
    sim_range_file(storage, &range.file, &range.offset);
    sim_range_add(&range, &other);
  }
}

// The words .global and .const that are no part of an instruction begin a declaration.
static void add_variables(struct sim_module *module, const char *text)
{
  static const char *const words[] = {".global", ".const"};
  const char *end = text + strlen(text);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t n = strlen(words[i]);
    for (const char *at = text; (at = memmem(at, (size_t)(end - at), words[i], n)) != NULL; at += n) {
      if ((at == text || isspace((unsigned char)at[-1])) && isspace((unsigned char)at[n])) {
        add_variable(module, at + n);
      }
    }
  }
}

// The option's value, or NULL.
static void **option(unsigned count, const CUjit_option *options, void **values, CUjit_option wanted)
{
  for (unsigned i = 0; i < count; i++) {
    if (options[i] == wanted) {
      return &values[i];
    }
  }
  return NULL;
}

static void put_log(unsigned count, const CUjit_option *options, void **values, const char *why)
{
  void **buffer = option(count, options, values, CU_JIT_ERROR_LOG_BUFFER);
  void **size = option(count, options, values, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
  if (buffer != NULL && size != NULL && (uintptr_t)*size > 0) {
    snprintf(*buffer, (size_t)(uintptr_t)*size, "%s", why);
  }
}

static CUresult load(CUmodule *out, const char *image, unsigned count, const CUjit_option *options, void **values)
{
  CUresult error;
  char why[PTX_TEXT] = "";
  struct sim_context *context = sim_current(&error);
  error = context == NULL ? error : sim_capture_unsafe();
  if (error != CUDA_SUCCESS) {
    return error;
  }
  if (image == NULL || !is_ptx(image)) {
    return sim_misuse(CUDA_ERROR_INVALID_IMAGE, "the image is not PTX, which is all that is taken here");
  }
  struct sim_module *module = calloc(1, sizeof *module);
  if (module == NULL) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  module->context = context;
  module->ptx = ptx_module_create(image, why);
  put_log(count, options, values, why);
  if (module->ptx == NULL) {
    free(module);
    return sim_misuse(CUDA_ERROR_INVALID_PTX, "%s", why);
  }
  add_variables(module, image);
  module->handle = sim_handle_new(SIM_MODULE, module);
  *out = module->handle;
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options, void **values)
{
  SIM_CALL("cuModuleLoadDataEx", load(module, image, count, options, values));
}

// Waits for the work of its context, which may use it. Graphs that have its kernels fail when they are launched.
static CUresult unload(CUmodule handle)
{
  struct sim_module *module = sim_object(SIM_MODULE, handle);
  if (module == NULL) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  CUresult error = sim_capture_unsafe();
  if (error == CUDA_SUCCESS && module->context->failed == CUDA_SUCCESS) {
    error = sim_context_drain(module->context);
  }
  sim_quiesce();
  for (struct sim_function *function = module->functions; function != NULL; function = function->next) {
    sim_handle_end(function->handle);
  }
  sim_range_remove_owner(module);
  sim_handle_end(handle);
  module->ended = true;
  if (!sim_context_busy(module->context)) { // else a kernel that failed may still stand there
    ptx_module_destroy(module->ptx);
  }
  module->ptx = NULL;
  return error;
}

CUresult cuModuleUnload(CUmodule module)
{
  SIM_CALL("cuModuleUnload", unload(module));
}

static CUresult get_function(CUfunction *out, CUmodule handle, const char *name)
{
  struct sim_module *module = sim_object(SIM_MODULE, handle);
  if (module == NULL) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  for (struct sim_function *known = module->functions; known != NULL; known = known->next) {
    if (strcmp(known->name, name) == 0) {
      *out = known->handle;
      return CUDA_SUCCESS;
    }
  }
  const struct ptx_kernel *kernel = ptx_module_kernel(module->ptx, name);
  struct sim_function *function = kernel != NULL ? calloc(1, sizeof *function) : NULL;
  if (function == NULL) {
    return kernel == NULL ? sim_misuse(CUDA_ERROR_NOT_FOUND, "the module has no kernel %s", name)
                          : CUDA_ERROR_OUT_OF_MEMORY;
  }
  *function = (struct sim_function){.next = module->functions, .module = module, .kernel = kernel};
  snprintf(function->name, sizeof function->name, "%s", name);
  ptx_kernel_info(kernel, &function->info);
  function->dynamic_max = 48 << 10;
  function->handle = sim_handle_new(SIM_FUNCTION, function);
  module->functions = function;
  *out = function->handle;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
  SIM_CALL("cuModuleGetFunction", get_function(function, module, name));
}

static CUresult get_global(CUdeviceptr *ptr, size_t *bytes, CUmodule handle, const char *name)
{
  const struct sim_module *module = sim_object(SIM_MODULE, handle);
  size_t size = 0;
  void *storage = module != NULL ? ptx_module_global(module->ptx, name, &size) : NULL;
  if (storage == NULL) {
    return module == NULL ? CUDA_ERROR_INVALID_HANDLE
                          : sim_misuse(CUDA_ERROR_NOT_FOUND, "the module has no variable %s", name);
  }
  if (ptr != NULL) {
    *ptr = (CUdeviceptr)(uintptr_t)storage;
  }
  if (bytes != NULL) {
    *bytes = size;
  }
  return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal(CUdeviceptr *ptr, size_t *bytes, CUmodule module, const char *name)
{
  SIM_CALL("cuModuleGetGlobal", get_global(ptr, bytes, module, name));
}

static CUresult get_attribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
  const struct sim_function *function = sim_object(SIM_FUNCTION, handle);
  if (function == NULL) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  switch ((int)attribute) {
  case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = function->info.max_threads; break;
  case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = (int)function->info.shared_bytes; break;
  case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
  case CU_FUNC_ATTRIBUTE_PTX_VERSION: *value = 63; break;
  case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = 70; break;
  case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = function->dynamic_max; break;
  case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
  case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = 0; break;
  default: return sim_misuse(CUDA_ERROR_INVALID_VALUE, "attribute %d", (int)attribute);
  }
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
  SIM_CALL("cuFuncGetAttribute", get_attribute(value, attribute, function));
}

static CUresult set_attribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
  struct sim_function *function = sim_object(SIM_FUNCTION, handle);
  if (function == NULL) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    if (value < 0 || (size_t)value + function->info.shared_bytes > 227 << 10) {
      return sim_misuse(CUDA_ERROR_INVALID_VALUE, "%d bytes of shared memory", value);
    }
    function->dynamic_max = value;
    return CUDA_SUCCESS;
  }
  return attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
             ? CUDA_SUCCESS
             : sim_misuse(CUDA_ERROR_INVALID_VALUE, "attribute %d", (int)attribute);
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
  SIM_CALL("cuFuncSetAttribute", set_attribute(function, attribute, value));
}

// A multiprocessor holds one CTA here (sms=N).
static CUresult get_blocks(int *blocks, CUfunction handle, int threads, size_t shared_bytes)
{
  const struct sim_function *function = sim_object(SIM_FUNCTION, handle);
  if (function == NULL) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (blocks == NULL || threads < 1) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "blocks of %d threads", threads);
  }
  *blocks = threads <= function->info.max_threads && function->info.shared_bytes + shared_bytes <= 227 << 10;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t shared_bytes)
{
  SIM_CALL("cuOccupancyMaxActiveBlocksPerMultiprocessor", get_blocks(blocks, function, threads, shared_bytes));
}

// ---- Launching ----

static CUresult check_sizes(const struct sim_function *function, const unsigned grid[3], const unsigned block[3],
                            size_t shared)
{
  uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[0] > 0x7fffffff || grid[1] > 65535 || grid[2] > 65535 ||
      threads == 0 || block[0] > 1024 || block[1] > 1024 || block[2] > 64 || threads > 1024) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "kernel %s: grid %u %u %u, block %u %u %u", function->name, grid[0],
                      grid[1], grid[2], block[0], block[1], block[2]);
  }
  if (threads > (uint64_t)function->info.max_threads || shared > (size_t)function->dynamic_max) {
    return sim_misuse(threads > (uint64_t)function->info.max_threads ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
                                                                     : CUDA_ERROR_INVALID_VALUE,
                      "kernel %s: %u threads of %d, %zu bytes of shared memory of %d", function->name,
                      (unsigned)threads, function->info.max_threads, shared, function->dynamic_max);
  }
  return CUDA_SUCCESS;
}

// The block of parameters, from pointers to each, or from a buffer (extra).
static CUresult take_params(const struct sim_function *function, void **params, void **extra, void **out)
{
  const struct ptx_kernel_info *info = &function->info;
  const void *buffer = NULL;
  size_t bytes = 0;
  for (size_t i = 0; params == NULL && extra != NULL && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[i + 1];
    } else {
      bytes = *(const size_t *)extra[i + 1];
    }
  }
  if (info->params > 0 && params == NULL && (buffer == NULL || bytes > info->param_bytes)) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "kernel %s has %d parameters, of %zu bytes", function->name,
                      info->params, info->param_bytes);
  }
  char *block = calloc(1, info->param_bytes + 1);
  if (block == NULL) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  for (int i = 0; params != NULL && i < info->params; i++) {
    memcpy(block + info->param[i].offset, params[i], info->param[i].bytes);
  }
  if (buffer != NULL) {
    memcpy(block, buffer, bytes);
  }
  *out = block;
  return CUDA_SUCCESS;
}

CUresult sim_kernel_work(struct sim_work *work, CUfunction handle, const unsigned grid[3], const unsigned block[3],
                         size_t shared, void **params, void **extra)
{
  struct sim_function *function = sim_object(SIM_FUNCTION, handle);
  if (function == NULL) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  *work = (struct sim_work){.kind = SIM_KERNEL, .context = function->module->context};
  work->kernel.function = function;
  work->kernel.shared = shared;
  memcpy(work->kernel.grid, grid, sizeof work->kernel.grid);
  memcpy(work->kernel.block, block, sizeof work->kernel.block);
  CUresult error = check_sizes(function, grid, block, shared);
  return error != CUDA_SUCCESS ? error : take_params(function, params, extra, &work->kernel.params);
}

static CUresult launch(CUfunction function, const unsigned grid[3], const unsigned block[3], size_t shared,
                       CUstream handle, void **params, void **extra)
{
  CUresult error;
  struct sim_work work;
  struct sim_stream *stream = sim_stream_of(handle, &error);
  const struct sim_context *current = stream != NULL ? sim_current(&error) : NULL;
  if (current == NULL) {
    return error;
  }
  error = sim_kernel_work(&work, function, grid, block, shared, params, extra);
  if (error != CUDA_SUCCESS) {
    return error;
  }
  if (work.context != stream->context || current != stream->context) {
    sim_work_free(&work);
    return sim_misuse(CUDA_ERROR_INVALID_HANDLE, "function, stream and current context are of devices %d, %d and %d",
                      work.context->device->ordinal, stream->context->device->ordinal, current->device->ordinal);
  }
  return sim_submit(stream, &work);
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **params,
                        void **extra)
{
  const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
  SIM_CALL("cuLaunchKernel", launch(function, grid, block, shared_bytes, stream, params, extra));
}
