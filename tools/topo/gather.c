// gather.c: a capture of this machine: all that other commands, here or elsewhere, need to know of it.
#include <stdio.h>

#include "base/util.h"
#include "commands.h"
#include "tools/gather.h"

int xp_gather(const xp_options *o, xp_print *out)
{
  tt_tree *tree = NULL;
  tt_nvml *nvml = NULL;
  char *text = NULL;
  size_t size = 0;
  (void)o;
  ncclResult_t res = tt_tree_open("/", &tree);
  res = res == ncclSuccess ? tt_nvml_open(NULL, &nvml) : res;
  if (res == ncclSuccess) {
    tt_sysfs machine = {.tree = tree, .nvml = nvml};
    res = tt_gather(&machine, &text, &size);
  }
  if (res == ncclSuccess) {
    fwrite(text, 1, size, out->f);
  }
  tt_free(text);
  tt_nvml_close(nvml);
  tt_tree_close(tree);
  return res == ncclSuccess ? 0 : xp_complain(1);
}
