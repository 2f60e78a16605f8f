// cpu.c: see cpu.h.
#include "os/cpu.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/util.h"
#include "os/folder.h"

// Copies a name with one blank between its words and none around.
static void copy_single_spaced(const char *from, char *out, size_t size)
{
  size_t n = 0;
  for (; *from != 0 && n + 1 < size; from++) {
    bool blank = *from == ' ' || *from == '\t' || *from == '\n';
    if (!blank) {
      out[n++] = *from;
    } else if (n > 0 && out[n - 1] != ' ') {
      out[n++] = ' ';
    }
  }
  n -= n > 0 && out[n - 1] == ' ';
  out[n] = 0;
}

// x86-64: asked of the processor, which takes no system call.
static bool cpuid_name(char name[64])
{
#if defined(__x86_64__)
  unsigned regs[12];
  for (unsigned i = 0; i < 3; i++) {
    if (__get_cpuid(0x80000002u + i, &regs[4 * i], &regs[4 * i + 1], &regs[4 * i + 2], &regs[4 * i + 3]) == 0) {
      return false;
    }
  }
  memcpy(name, regs, sizeof regs);
  name[sizeof regs] = 0;
  return true;
#else
  (void)name;
  return false;
#endif
}

// The first line that says it: on many cores the whole file is long.
static bool cpuinfo_name(char *name, size_t size)
{
  char text[1024];
  const char *line = tt_file_text("/proc/cpuinfo", text, sizeof text) ? strstr(text, "model name") : NULL;
  const char *colon = line == NULL ? NULL : strchr(line, ':');
  if (colon != NULL) {
    snprintf(name, size, "%.*s", (int)strcspn(colon + 1, "\n"), colon + 1);
  }
  return colon != NULL;
}

void tt_cpu_name(char *out, size_t size)
{
  char raw[256];
  bool found = cpuid_name(raw) || cpuinfo_name(raw, sizeof raw);
  copy_single_spaced(found ? raw : "", out, size);
  if (out[0] == 0) {
    snprintf(out, size, "unknown");
  }
}

void tt_cpu_kernel(char *out, size_t size)
{
  struct utsname u;
  copy_single_spaced(uname(&u) == 0 ? u.release : "unknown", out, size);
}

int tt_cpu_count(void)
{
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int)n : 1;
}
