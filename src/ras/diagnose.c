// diagnose.c: see diagnose.h.
#include "ras/diagnose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/param.h"
#include "base/text.h"
#include "base/util.h"
#include "os/netif.h"
#include "os/proc.h"
#include "plugin/profiler/profiler.h"

enum { LINE_MOST = 400 };

// What a check says: false: something may be wrong, which the text explains.
typedef bool (*check_fn)(char *out, size_t size);

// First line of a file; false: there is none.
static bool diagnose_read_line(const char *path, char *out, size_t size)
{
  FILE *f = fopen(path, "re");
  bool good = f != NULL && fgets(out, (int)size, f) != NULL;
  if (good) {
    out[strcspn(out, "\n")] = '\0';
  }
  if (f != NULL) {
    fclose(f);
  }
  return good;
}

// Value of a row "Name:   123 kB" of such a file, in its unit; -1: there is none.
static long long read_row(const char *path, const char *name)
{
  char line[256];
  long long value = -1;
  size_t n = strlen(name);
  FILE *f = fopen(path, "re");
  while (f != NULL && value < 0 && fgets(line, sizeof line, f) != NULL) {
    value = strncmp(line, name, n) == 0 && line[n] == ':' ? strtoll(line + n + 1, NULL, 10) : -1;
  }
  if (f != NULL) {
    fclose(f);
  }
  return value;
}

static bool check_version(char *out, size_t size)
{
  snprintf(out, size, "library: NCCL interface %d.%d.%d on host memory", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
  return true;
}

static bool check_limit(int which, const char *name, rlim_t least, char *out, size_t size)
{
  struct rlimit l;
  if (getrlimit(which, &l) != 0) {
    snprintf(out, size, "%s: unknown", name);
    return true;
  }
  if (l.rlim_cur == RLIM_INFINITY) {
    snprintf(out, size, "%s: unlimited", name);
    return true;
  }
  snprintf(out, size, "%s: %llu", name, (unsigned long long)l.rlim_cur);
  return l.rlim_cur >= least;
}

static bool check_files(char *out, size_t size)
{
  return check_limit(RLIMIT_NOFILE, "limit of open files (RLIMIT_NOFILE)", 1024, out, size);
}

static bool check_memlock(char *out, size_t size)
{
  return check_limit(RLIMIT_MEMLOCK, "limit of locked memory (RLIMIT_MEMLOCK)", 0, out, size);
}

static bool check_memory(char *out, size_t size)
{
  long long total = read_row("/proc/meminfo", "MemTotal"), free_kb = read_row("/proc/meminfo", "MemAvailable");
  snprintf(out, size, "memory: %lld MiB, of which %lld MiB are available", total / 1024, free_kb / 1024);
  return total < 0 || free_kb * 20 >= total;
}

static bool check_huge_pages(char *out, size_t size)
{
  char enabled[128] = "unknown", shm[128] = "unknown";
  (void)diagnose_read_line("/sys/kernel/mm/transparent_hugepage/enabled", enabled, sizeof enabled);
  (void)diagnose_read_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", shm, sizeof shm);
  snprintf(out, size, "transparent huge pages: %s; of shared memory: %s", enabled, shm);
  return true;
}

static bool check_clock(char *out, size_t size)
{
  char source[64] = "unknown";
  (void)diagnose_read_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", source, sizeof source);
  snprintf(out, size, "clock source: %s", source);
  return strcmp(source, "hpet") != 0 && strcmp(source, "acpi_pm") != 0; // each look at them is a system call
}

static bool check_cma(char *out, size_t size)
{
  char scope[16] = "0";
  (void)diagnose_read_line("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof scope);
  bool good = strcmp(scope, "0") == 0 || strcmp(scope, "1") == 0;
  snprintf(out, size, "copies between processes (CMA): kernel.yama.ptrace_scope is %s%s", scope,
           good ? "" : ": processes cannot read each other's memory");
  return good;
}

static bool check_cores(char *out, size_t size)
{
  long all = sysconf(_SC_NPROCESSORS_ONLN);
  snprintf(out, size, "cores: %d of %ld may be used", tt_proc_cpus(), all);
  return true;
}

static bool check_cgroup(char *out, size_t size)
{
  char cpu[64] = "none", memory[64] = "none";
  (void)diagnose_read_line("/sys/fs/cgroup/cpu.max", cpu, sizeof cpu);
  (void)diagnose_read_line("/sys/fs/cgroup/memory.max", memory, sizeof memory);
  snprintf(out, size, "cgroup limits: cpu %s, memory %s", cpu, memory);
  return true;
}

static bool check_network(char *out, size_t size)
{
  tt_netif *all = NULL;
  int n = 0;
  char list[256] = "", ip[TT_ADDR_TEXT];
  if (tt_netif_list(&all, &n) != ncclSuccess) {
    n = 0;
  }
  for (int i = 0; i < n; i++) {
    tt_list_add(list, sizeof list, "%s %s", all[i].name, tt_addr_ip_text(&all[i].addr, ip));
  }
  tt_free(all);
  snprintf(out, size, "network interfaces: %s", n > 0 ? list : "none");
  return n > 0;
}

static bool check_variables(char *out, size_t size)
{
  char list[320] = "";
  for (size_t i = 0; i < tt_param_count(); i++) {
    const tt_param_row *row = tt_param_row_at(i);
    char value[128];
    if (tt_param_origin_of(row) != TT_PARAM_FROM_DEFAULT) {
      (void)tt_param_text(row, value, sizeof value);
      tt_list_add(list, sizeof list, "%s=%s", row->name, value);
    }
  }
  snprintf(out, size, "variables: %s", list[0] != '\0' ? list : "none is set");
  return true;
}

static const check_fn checks[] = {check_version, check_cores,   check_cgroup,     check_memory,
                                  check_files,   check_memlock, check_huge_pages, check_clock,
                                  check_cma,     check_network, check_variables};

size_t ras_diagnose_page(uint64_t *cursor, char *out, size_t room)
{
  size_t size = 0;
  while (*cursor < TT_COUNT(checks)) {
    char text[LINE_MOST], line[LINE_MOST + 128];
    bool good = checks[*cursor](text, sizeof text);
    int n = snprintf(line, sizeof line, "%s:%d NCCL DIAG [%s] %s\n", tt_proc_host_name(), (int)getpid(),
                     good ? "OK" : "INFO", text);
    size_t bytes = n < 0 ? 0 : TT_MIN((size_t)n, sizeof line - 1);
    if (size + bytes > room) {
      return size;
    }
    memcpy(out + size, line, bytes);
    size += bytes;
    ++*cursor;
  }
  *cursor = 0;
  return size;
}

void ras_profiler_mask(uint32_t mask)
{
  tt_profilers_mask(mask);
}
