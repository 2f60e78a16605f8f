// bandwidth.c: figures of NCCL 2.30 (NVIDIA) and RCCL (AMD) for one direction, in GB/s.
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/util.h"
#include "topo/system.h"

float tt_bw_nvlink(int sm)
{
  if (sm >= 100) {
    return 40.1f;
  }
  if (sm >= 90) {
    return 20.6f;
  }
  if (sm == 86) {
    return 12.0f;
  }
  return sm >= 60 && sm < 70 ? 18.0f : 20.0f;
}

float tt_bw_xgmi(int gcn)
{
  if (gcn >= 0x940) {
    return 48.0f;
  }
  return gcn == 0x90a ? 36.0f : 24.0f;
}

bool tt_bw_pci(const char *speed, int width, float *out)
{
  // What a lane carries, in tenths of Gbit/s. The first two generations send ten bits for eight.
  static const struct {
    float rate;
    int carries;
  } lanes[] = {{2.5f, 15}, {5, 30}, {8, 60}, {16, 120}, {32, 240}, {64, 480}};
  char *end = NULL;
  float rate = tt_strtof(speed, &end);
  int carries = 0;
  for (size_t i = 0; i < TT_COUNT(lanes) && end != speed && strncmp(end, " GT/s", 5) == 0; i++) {
    carries = lanes[i].rate == rate ? lanes[i].carries : carries;
  }
  *out = (float)((width == 0 ? 16 : width) * (carries == 0 ? 60 : carries) / 80.0);
  return carries != 0;
}

static float between_intel(int model)
{
  switch (model) {
  case TT_CPU_EMERALD: return 40.0f;
  case TT_CPU_SAPPHIRE: return 22.0f;
  case TT_CPU_SKYLAKE: return 10.0f;
  default: return 6.0f;
  }
}

float tt_bw_cpus(int arch, int vendor, int model)
{
  if (arch == TT_CPU_POWER) {
    return 32.0f;
  }
  if (arch == TT_CPU_X86 && vendor == TT_CPU_INTEL) {
    return between_intel(model);
  }
  if (arch == TT_CPU_X86 && vendor == TT_CPU_AMD) {
    return 16.0f;
  }
  if (arch == TT_CPU_X86 && vendor == TT_CPU_ZHAOXIN) {
    return model == TT_CPU_YONGFENG ? 9.0f : 6.0f;
  }
  return 6.0f; // ARM, and CPUs without a measurement, count as slow
}
