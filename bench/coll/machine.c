// machine.c: see machine.h.
#define _GNU_SOURCE
#include "machine.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

int machine_add(machine *m, const char *name, const char *value)
{
  if (m->n == MACHINE_ROWS) {
    return -1;
  }
  machine_row *row = &m->rows[m->n++];
  snprintf(row->name, sizeof row->name, "%s", name);
  snprintf(row->value, sizeof row->value, "%s", value);
  return 0;
}

const char *machine_get(const machine *m, const char *name)
{
  for (int i = 0; i < m->n; i++) {
    if (strcmp(m->rows[i].name, name) == 0) {
      return m->rows[i].value;
    }
  }
  return NULL;
}

int machine_same(const machine *a, const machine *b)
{
  for (int i = 0; i < a->n; i++) {
    const char *other = machine_get(b, a->rows[i].name);
    if (strcmp(a->rows[i].name, "load") != 0 && (other == NULL || strcmp(other, a->rows[i].value) != 0)) {
      return 0;
    }
  }
  return a->n == b->n;
}

void machine_print(const machine *m, FILE *out)
{
  for (int i = 0; i < m->n; i++) {
    fprintf(out, "%s%s %s", i == 0 ? "" : ", ", m->rows[i].name, m->rows[i].value);
  }
  fprintf(out, "\n");
}

static void json_text(const char *text, FILE *out)
{
  fputc('"', out);
  for (const char *c = text; *c != '\0'; c++) {
    if ((unsigned char)*c >= ' ') {
      fprintf(out, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    }
  }
  fputc('"', out);
}

void machine_json(const machine *m, FILE *out)
{
  fprintf(out, "{");
  for (int i = 0; i < m->n; i++) {
    fprintf(out, i == 0 ? "" : ", ");
    json_text(m->rows[i].name, out);
    fprintf(out, ": ");
    json_text(m->rows[i].value, out);
  }
  fprintf(out, "}");
}

// ---- Reading ----

// The first line of a file below root, or with a key the text behind "key : " of its line. 0: there is none.
static int line_of(const char *root, const char *path, const char *key, char *out, size_t size)
{
  char name[512], line[512];
  int found = 0;
  snprintf(name, sizeof name, "%s%s", root, path);
  FILE *f = fopen(name, "re");
  while (f != NULL && !found && fgets(line, sizeof line, f) != NULL) {
    size_t length = key == NULL ? 0 : strlen(key);
    const char *value = line;
    if (key != NULL) {
      value =
          strncmp(line, key, length) == 0 && (line[length] == '\t' || line[length] == ':') ? strchr(line, ':') : NULL;
      value = value == NULL ? NULL : value + 1 + strspn(value + 1, " \t");
    }
    found = value != NULL;
    if (found) {
      line[strcspn(line, "\n")] = '\0';
      size_t n = strnlen(value, size - 1);
      memcpy(out, value, n);
      out[n] = '\0';
    }
  }
  if (f != NULL) {
    fclose(f);
  }
  return found;
}

// Of "always [madvise] never" the word that holds.
static void chosen_word(char *text)
{
  char *open = strchr(text, '['), *close = open == NULL ? NULL : strchr(open, ']');
  if (close != NULL) {
    *close = '\0';
    memmove(text, open + 1, strlen(open + 1) + 1);
  }
}

// The cache of the highest level: "L3 32768K", and the processors that share it.
static void add_cache(machine *m, const char *root)
{
  char path[96], level[16], best[16] = "", size[32], shared[64], text[128];
  for (int i = 0; i < 8; i++) {
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", i);
    if (!line_of(root, path, NULL, level, sizeof level) || atoi(level) < atoi(best)) {
      continue;
    }
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
    if (!line_of(root, path, NULL, size, sizeof size)) {
      continue;
    }
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/shared_cpu_list", i);
    int known = line_of(root, path, NULL, shared, sizeof shared);
    snprintf(best, sizeof best, "%s", level);
    snprintf(text, sizeof text, "L%.8s %.24s%s%.48s%s", level, size, known ? " (cores " : "", known ? shared : "",
             known ? ")" : "");
  }
  if (best[0] != '\0') {
    machine_add(m, "last-level cache", text);
  }
}

static void add_number(machine *m, const char *name, long value)
{
  char text[32];
  snprintf(text, sizeof text, "%ld", value);
  machine_add(m, name, text);
}

static void add_cores(machine *m)
{
  cpu_set_t may;
  add_number(m, "cores", sysconf(_SC_NPROCESSORS_ONLN));
  if (sched_getaffinity(0, sizeof may, &may) == 0) {
    add_number(m, "cores to use", CPU_COUNT(&may));
  }
}

// May processes read each other's memory at all? A filter of system calls, as containers have, refuses that of the own
// process, too.
static void add_copies(machine *m)
{
  char from = 1, to = 0;
  struct iovec there = {&from, 1}, here = {&to, 1};
  machine_add(m, "process_vm_readv",
              process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 ? "works" : strerror(errno));
}

// Where a row's text comes from.
typedef struct source {
  const char *name, *path, *key;
  const char *absent; // what an absent file means; NULL: no row
} source;

static const source processor[] = {
    {"cpu", "/proc/cpuinfo", "model name", "unknown"}, {"vendor", "/proc/cpuinfo", "vendor_id", NULL},
    {"family", "/proc/cpuinfo", "cpu family", NULL},   {"model", "/proc/cpuinfo", "model", NULL},
    {"stepping", "/proc/cpuinfo", "stepping", NULL},
};
static const source settings[] = {
    {"huge pages", "/sys/kernel/mm/transparent_hugepage/enabled", NULL, "none"},
    {"huge shared pages", "/sys/kernel/mm/transparent_hugepage/shmem_enabled", NULL, "none"},
    {"huge pages reserved", "/proc/sys/vm/nr_hugepages", NULL, NULL},
    {"ptrace_scope", "/proc/sys/kernel/yama/ptrace_scope", NULL, "none"},
};

static void add_sources(machine *m, const char *root, const source *all, int n)
{
  for (const source *s = all; s < all + n; s++) {
    char text[128];
    if (line_of(root, s->path, s->key, text, sizeof text)) {
      chosen_word(text);
      machine_add(m, s->name, text);
    } else if (s->absent != NULL) {
      machine_add(m, s->name, s->absent);
    }
  }
}

void machine_read(machine *m, const char *root)
{
  struct utsname u;
  char load[64], kernel[120];
  *m = (machine){0};
  add_sources(m, root, processor, sizeof processor / sizeof *processor);
  add_cores(m);
  add_cache(m, root);
  if (uname(&u) == 0) {
    snprintf(kernel, sizeof kernel, "%.40s %.64s", u.sysname, u.release);
    machine_add(m, "kernel", kernel);
  }
  add_sources(m, root, settings, sizeof settings / sizeof *settings);
  add_copies(m);
  if (line_of(root, "/proc/loadavg", NULL, load, sizeof load)) {
    load[strcspn(load, " ")] = '\0';
    machine_add(m, "load", load);
  }
}

void machine_say(FILE *out)
{
  machine m;
  machine_read(&m, "");
  fprintf(out, "Machine: ");
  machine_print(&m, out);
}
