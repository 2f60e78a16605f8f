// modules.c: see modules.h. The texts come from files that the build makes (cmake/tutti_cuda.cmake).
#include "device/cuda/kernels/modules.h"

#include <stddef.h>
#include <string.h>

#include "base/util.h"

extern const char tt_ptx_step[], tt_ptx_bits[];
#define T(id, ...) extern const char tt_ptx_##id[];
#include "base/types.def"

static const struct {
  const char *name, *text;
} ptx_modules[] = {
    {"step", tt_ptx_step},
    {"bits", tt_ptx_bits},
#define T(id, ...) {#id, tt_ptx_##id},
#include "base/types.def"
};

const char *tt_ptx_find(const char *name)
{
  for (size_t i = 0; i < TT_COUNT(ptx_modules); i++) {
    if (strcmp(ptx_modules[i].name, name) == 0) {
      return ptx_modules[i].text;
    }
  }
  return NULL;
}
