#include "system.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

uint64_t perf_now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

const char *perf_env(const char *name)
{
  return getenv(name);
}

void perf_host_name(char *buf, size_t size)
{
  if (gethostname(buf, size) != 0) {
    snprintf(buf, size, "localhost");
  }
  buf[size - 1] = '\0';
  buf[strcspn(buf, ".")] = '\0';
}

char *perf_read_file(const char *path)
{
  FILE *f = fopen(path, "r");
  if (!f) {
    return NULL;
  }
  enum { BLOCK = 1 << 16, MOST = 1 << 26 };
  char *text = NULL;
  size_t len = 0, got = BLOCK;
  while (got == BLOCK && len < MOST) {
    char *more = realloc(text, len + BLOCK + 1);
    if (!more) {
      break;
    }
    text = more;
    got = fread(text + len, 1, BLOCK, f);
    len += got;
    text[len] = '\0';
  }
  int bad = ferror(f) || len >= MOST;
  fclose(f);
  if (bad || !text) {
    free(text);
    return NULL;
  }
  return text;
}

// The text behind "key" and a colon in a file of "key : value" lines; false when absent.
static int find_value(const char *path, const char *key, char *buf, size_t size)
{
  FILE *f = fopen(path, "r");
  if (!f) {
    return 0;
  }
  char line[512];
  int found = 0;
  while (!found && fgets(line, sizeof(line), f)) {
    char *colon = strchr(line, ':');
    if (colon && strncmp(line, key, strlen(key)) == 0) {
      colon += 1 + strspn(colon + 1, " \t");
      colon[strcspn(colon, "\n")] = '\0';
      snprintf(buf, size, "%s", colon);
      found = 1;
    }
  }
  fclose(f);
  return found;
}

void perf_cpu_name(char *buf, size_t size)
{
  if (!find_value("/proc/cpuinfo", "model name", buf, size)) {
    snprintf(buf, size, "unknown processor");
  }
}

// Number in a file that holds one; `none` when the file is absent or holds something else ("max").
static size_t number_in(const char *path, size_t none)
{
  FILE *f = fopen(path, "r");
  if (!f) {
    return none;
  }
  size_t v;
  int n = fscanf(f, "%zu", &v);
  fclose(f);
  return n == 1 ? v : none;
}

size_t perf_memory_available(void)
{
  char text[64];
  size_t available = SIZE_MAX;
  if (find_value("/proc/meminfo", "MemAvailable", text, sizeof(text))) {
    available = strtoull(text, NULL, 10) * 1024;
  }
  size_t limit = number_in("/sys/fs/cgroup/memory.max", SIZE_MAX);
  size_t used = number_in("/sys/fs/cgroup/memory.current", 0);
  size_t left = limit == SIZE_MAX ? limit : limit > used ? limit - used : 0;
  return left < available ? left : available;
}

int64_t perf_memory_resident(void)
{
  char text[64];
  return find_value("/proc/self/status", "VmRSS", text, sizeof(text)) ? strtoll(text, NULL, 10) * 1024 : 0;
}

void perf_timestamp(char *buf, size_t size)
{
  time_t now = time(NULL);
  struct tm t;
  if (strftime(buf, size, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &t)) == 0) {
    buf[0] = '\0';
  }
}
