// modules.c: see modules.h. The texts come from files that the build makes (cmake/tutti_cuda.cmake).
#include "device/cuda/kernels/modules.h"

#include <stddef.h>
#include <string.h>

#include "base/util.h"

extern const char tt_ptx_step[], tt_ptx_one_sided[], tt_ptx_bits[], tt_ptx_walk_step[], tt_ptx_walk_bits[];
#define T(id, ...) extern const char tt_ptx_##id[], tt_ptx_walk_##id[];
#include "base/types.def"

static const struct {
  const char *name, *text;
} ptx_modules[] = {
    {"step", tt_ptx_step},           {"one_sided", tt_ptx_one_sided}, {"bits", tt_ptx_bits},
    {"walk_step", tt_ptx_walk_step}, {"walk_bits", tt_ptx_walk_bits},
#define T(id, ...) {#id, tt_ptx_##id}, {"walk_" #id, tt_ptx_walk_##id},
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

const char *tt_ptx_name(int i)
{
  return i >= 0 && (size_t)i < TT_COUNT(ptx_modules) ? ptx_modules[i].name : NULL;
}
