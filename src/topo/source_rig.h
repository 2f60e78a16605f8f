// source_rig.h: machines made of files, for tests: each in memory (a capture) and as a folder.
#pragma once
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topo/source.h"
#include "tools/capture.h"
#include "tools/gather.h"
#include "topo/topo_rig.h"

typedef struct rig_machine {
  char text[1 << 18]; // the capture
  size_t size;
  char folder[64]; // "": not made yet
} rig_machine;

RIG void rig_begin(rig_machine *m)
{
  *m = (rig_machine){0};
  m->size = (size_t)sprintf(m->text, "tutti-machine 1\n");
}

__attribute__((format(printf, 2, 3))) RIG void rig_line(rig_machine *m, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(m->text + m->size, sizeof(m->text) - m->size, fmt, ap);
  va_end(ap);
  assert_true(n >= 0 && m->size + (size_t)n + 1 < sizeof(m->text));
  m->size += (size_t)n;
  m->text[m->size++] = '\n';
}

// A PCI device: `path` below /sys/devices; ids "class vendor device subsystem_vendor subsystem_device"; speed in GT/s,
// NULL: no files of links.
RIG void rig_pci(rig_machine *m, const char *path, const char *ids, const char *speed, int width, int numa)
{
  static const char *names[] = {"class", "vendor", "device", "subsystem_vendor", "subsystem_device"};
  char id[5][16];
  const char *bus = strrchr(path, '/') + 1;
  assert_int_equal(sscanf(ids, "%15s %15s %15s %15s %15s", id[0], id[1], id[2], id[3], id[4]), 5);
  rig_line(m, "l /sys/bus/pci/devices/%s ../../../devices/%s", bus, path);
  rig_line(m, "l /sys/devices/%s/subsystem ../../../../bus/pci", path);
  for (int i = 0; i < 5; i++) {
    rig_line(m, "f /sys/devices/%s/%s %s\\n", path, names[i], id[i]);
  }
  rig_line(m, "f /sys/devices/%s/numa_node %d\\n", path, numa);
  if (speed != NULL) {
    rig_line(m, "f /sys/devices/%s/max_link_speed %s GT/s PCIe\\n", path, speed);
    rig_line(m, "f /sys/devices/%s/max_link_width %d\\n", path, width);
  }
}

RIG void rig_intel(rig_machine *m, const char *map0, const char *map1)
{
  rig_line(m, "f /proc/cpuinfo processor\\t: 0\\nvendor_id\\t: GenuineIntel\\ncpu family\\t: 6\\nmodel\\t\\t: "
              "143\\nmodel name: X\\n\\nprocessor");
  rig_line(m, "f /sys/devices/system/node/node0/cpumap %s\\n", map0);
  if (map1 != NULL) {
    rig_line(m, "f /sys/devices/system/node/node1/cpumap %s\\n", map1);
  }
}

RIG tt_tree *rig_capture(const rig_machine *m)
{
  tt_tree *t = NULL;
  if (tt_capture_parse("machine.txt", m->text, m->size, &t) != ncclSuccess) {
    fail_msg("%s", tt_last_error());
  }
  return t;
}

RIG void rig_folders(char *path)
{
  for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    mkdir(path, 0700);
    *slash = '/';
  }
}

// What an escape stands for is needed for \n and \t alone.
RIG void rig_write(const char *path, const char *data)
{
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  for (; *data != 0; data++) {
    if (*data == '\\') {
      data++;
      fputc(*data == 'n' ? '\n' : '\t', f);
    } else {
      fputc(*data, f);
    }
  }
  fclose(f);
}

// The same as files in a folder of its own, for rig_remove.
RIG tt_tree *rig_folder_of(rig_machine *m)
{
  tt_tree *t = NULL;
  char *text = strdup(m->text), *rest = text;
  strcpy(m->folder, "/tmp/tutti-machine-XXXXXX");
  assert_non_null(mkdtemp(m->folder));
  strsep(&rest, "\n");
  for (char *line = strsep(&rest, "\n"); line != NULL && *line != 0; line = strsep(&rest, "\n")) {
    char path[1024], *data = strchr(line + 2, ' ');
    *data++ = 0;
    snprintf(path, sizeof(path), "%s%s", m->folder, line + 2);
    rig_folders(path);
    if (line[0] == 'l') {
      assert_int_equal(symlink(data, path), 0);
    } else {
      rig_write(path, data);
    }
  }
  free(text);
  if (tt_tree_open(m->folder, &t) != ncclSuccess) {
    fail_msg("%s", tt_last_error());
  }
  return t;
}

RIG void rig_remove_all(const char *path)
{
  struct dirent **names = NULL;
  int n = remove(path) == 0 ? 0 : scandir(path, &names, NULL, NULL);
  for (int i = 0; i < n; i++) {
    char inner[2048];
    snprintf(inner, sizeof(inner), "%s/%s", path, names[i]->d_name);
    if (strcmp(names[i]->d_name, ".") != 0 && strcmp(names[i]->d_name, "..") != 0) {
      rig_remove_all(inner);
    }
    free(names[i]);
  }
  free(names);
  if (n > 0) {
    assert_int_equal(remove(path), 0);
  }
}

RIG void rig_remove(rig_machine *m)
{
  rig_remove_all(m->folder);
  m->folder[0] = 0;
}

RIG char *rig_detect(const tt_source *in, const tt_tree *tree)
{
  tt_source s = *in;
  tt_xml *xml = NULL;
  char *text = NULL;
  size_t size;
  s.machine.tree = tree;
  s.machine.gpu = tt_gpu_element;
  if (tt_source_detect(&s, &xml) != ncclSuccess) {
    fail_msg("%s", tt_last_error());
  }
  assert_int_equal(tt_xml_text(xml, &text, &size), ncclSuccess);
  tt_xml_destroy(xml);
  return text;
}

// The document that is detected must be `expected`: from a capture, from a folder, and from a capture gathered from the
// folder. And there must be a model of it.
RIG void rig_expect(rig_machine *m, const tt_source *in, const char *expected)
{
  tt_tree *capture = rig_capture(m), *folder = rig_folder_of(m), *again = NULL;
  tt_sysfs machine = {.tree = folder, .nvml = in->machine.nvml};
  char *gathered = NULL;
  size_t size = 0;
  assert_int_equal(tt_gather(&machine, &gathered, &size), ncclSuccess);
  assert_int_equal(tt_capture_parse("gathered.txt", gathered, size, &again), ncclSuccess);
  tt_tree *trees[] = {capture, folder, again};
  for (int i = 0; i < 3; i++) {
    tt_source s = *in;
    s.machine.nvml = i == 2 ? NULL : s.machine.nvml; // what NVML says is in the capture
    char *text = rig_detect(&s, trees[i]);
    if (i < 2 || in->file == NULL) {
      assert_string_equal(text, expected);
    }
    tt_free(text);
    tt_tree_close(trees[i]);
  }
  tt_free(gathered);
  rig_remove(m);
  tt_topo_destroy(rig_build(rig_xml(expected), NULL));
}
