// gpu_text.c: what is known of a GPU as a text, for captures; see gpu.h.
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "topo/nvml.h"

void tt_gpu_facts_add_link(tt_gpu_facts *gpu, const char *target, int count)
{
  char bus[16];
  if (!tt_bus_id_sysfs(target, bus)) {
    strcpy(bus, TT_NVML_HIDDEN);
  }
  for (int i = 0; i < gpu->nlinks; i++) {
    if (strcmp(gpu->links[i].target, bus) == 0) {
      gpu->links[i].count = TT_MIN(gpu->links[i].count + count, TT_GPU_MAX_LINKS);
      return;
    }
  }
  if (gpu->nlinks < TT_GPU_MAX_LINKS) {
    tt_gpu_link *l = &gpu->links[gpu->nlinks++];
    snprintf(l->target, sizeof(l->target), "%s", bus);
    l->count = count;
  }
}

bool tt_gpu_facts_print(const tt_gpu_facts *gpu, char *text, size_t size)
{
  int n = snprintf(text, size, "bus %s\nindex %d\nsm %d\ndevice %08x %08x\nslot %d %d\nc2c %d %d\n", gpu->bus_id,
                   gpu->index, gpu->sm, (unsigned)gpu->device_id, (unsigned)gpu->subsystem_id, gpu->generation,
                   gpu->width, gpu->c2c_count, gpu->c2c_bw);
  for (int i = 0; i < gpu->nlinks && n >= 0 && (size_t)n < size; i++) {
    n += snprintf(text + n, size - (size_t)n, "nvlink %s %d\n", gpu->links[i].target, gpu->links[i].count);
  }
  return n >= 0 && (size_t)n < size;
}

// The numbers behind a word, all within [0, max]. False: not this word, or not these numbers.
static bool numbers(const char *line, const char *word, int (*out)[2], int max)
{
  int a = -1, b = -1;
  size_t size = strlen(word);
  if (strncmp(line, word, size) != 0 || line[size] != ' ') {
    return true; // another line
  }
  int n = sscanf(line + size, "%9d %9d", &a, &b);
  if (n < 1 || a < 0 || a > max || (n == 2 && (b < 0 || b > TT_GPU_MAX_C2C_BW))) {
    return false;
  }
  (*out)[0] = a;
  (*out)[1] = n == 2 ? b : 0;
  return true;
}

typedef struct facts {
  int index[2], sm[2], slot[2], c2c[2];
} facts;

static bool parse_line(const char *line, facts *f, tt_gpu_facts *gpu)
{
  char word[40];
  int count = 0;
  unsigned device = 0, subsystem = 0;
  if (sscanf(line, "bus %31s", word) == 1) {
    return tt_bus_id_sysfs(word, gpu->bus_id);
  }
  if (sscanf(line, "device %8x %8x", &device, &subsystem) == 2) {
    gpu->device_id = (int)device;
    gpu->subsystem_id = (int)subsystem;
    return true;
  }
  if (sscanf(line, "nvlink %31s %4d", word, &count) == 2) {
    if (count < 1 || count > TT_GPU_MAX_LINKS) {
      return false;
    }
    tt_gpu_facts_add_link(gpu, word, count);
    return true;
  }
  return numbers(line, "index", &f->index, 65535) && numbers(line, "sm", &f->sm, 9999) &&
         numbers(line, "slot", &f->slot, 6) && numbers(line, "c2c", &f->c2c, TT_GPU_MAX_C2C);
}

bool tt_gpu_facts_parse(const char *text, tt_gpu_facts *out)
{
  tt_gpu_facts gpu = {0};
  facts f = {.index = {-1, 0}, .sm = {-1, 0}};
  for (const char *at = text; *at != 0;) {
    char line[80];
    size_t size = strcspn(at, "\n");
    snprintf(line, sizeof(line), "%.*s", (int)TT_MIN(size, sizeof(line) - 1), at);
    if (!parse_line(line, &f, &gpu)) {
      return false;
    }
    at += size + (at[size] != 0);
  }
  gpu.index = f.index[0];
  gpu.sm = f.sm[0];
  gpu.generation = f.slot[0];
  gpu.width = TT_MIN(f.slot[1], 32);
  gpu.c2c_count = f.c2c[0];
  gpu.c2c_bw = f.c2c[1];
  if (gpu.bus_id[0] == 0 || gpu.index < 0 || gpu.sm < 0 || (gpu.c2c_count > 0 && gpu.c2c_bw == 0)) {
    return false;
  }
  *out = gpu;
  return true;
}

// ---- For documents ----

bool tt_gpu_facts_read(const tt_sysfs *s, const char *bus_id, tt_gpu_facts *out)
{
  char path[64], text[4096], bus[16];
  if (s->nvml != NULL) {
    return tt_nvml_gpu_read(s->nvml, bus_id, out);
  }
  if (!tt_bus_id_sysfs(bus_id, bus)) {
    return false;
  }
  snprintf(path, sizeof(path), "/nvml/%s", bus);
  if (tt_tree_read(s->tree, path, text, sizeof(text)) <= 0) {
    return false;
  }
  if (!tt_gpu_facts_parse(text, out)) {
    tt_info(TT_GRAPH, "%s: %s is not a description of a GPU, ignored", tt_tree_name(s->tree), path);
    return false;
  }
  return true;
}
