// range.c: which addresses a device may use. The scheduler keeps the list of a moment while it steps a kernel, so each
// change makes a new list.
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim.h"

struct sim_ranges *sim_ranges_take(void)
{
  if (sim.ranges == NULL) {
    sim.ranges = calloc(1, sizeof *sim.ranges);
    if (sim.ranges == NULL) {
      abort();
    }
    atomic_init(&sim.ranges->references, 1);
  }
  atomic_fetch_add(&sim.ranges->references, 1);
  return sim.ranges;
}

void sim_ranges_drop(struct sim_ranges *ranges)
{
  if (atomic_fetch_sub(&ranges->references, 1) == 1) {
    free(ranges);
  }
}

// A list of the same kind with room for one more; the caller fills it.
static struct sim_ranges *new_list(size_t count)
{
  struct sim_ranges *list = calloc(1, sizeof *list + count * sizeof list->range[0]);
  if (list == NULL) {
    abort();
  }
  atomic_init(&list->references, 1);
  return list;
}

static void use_list(struct sim_ranges *list)
{
  struct sim_ranges *old = sim.ranges;
  sim.ranges = list;
  if (old != NULL) {
    sim_ranges_drop(old);
  }
}

const struct sim_range *sim_range_find(const struct sim_ranges *ranges, uint64_t address)
{
  size_t low = 0, high = ranges != NULL ? ranges->count : 0;
  while (low < high) {
    size_t middle = (low + high) / 2;
    const struct sim_range *range = &ranges->range[middle];
    if (address < range->base) {
      high = middle;
    } else if (address - range->base >= range->bytes) {
      low = middle + 1;
    } else {
      return range;
    }
  }
  return NULL;
}

bool sim_range_add(const struct sim_range *range, struct sim_range *other)
{
  size_t count = sim.ranges != NULL ? sim.ranges->count : 0, before = 0;
  while (before < count && sim.ranges->range[before].base < range->base) {
    before++;
  }
  const struct sim_range *left = before > 0 ? &sim.ranges->range[before - 1] : NULL;
  const struct sim_range *right = before < count ? &sim.ranges->range[before] : NULL;
  if (left != NULL && left->base + left->bytes > range->base) {
    *other = *left;
    return false;
  }
  if (right != NULL && range->base + range->bytes > right->base) {
    *other = *right;
    return false;
  }
  struct sim_ranges *list = new_list(count + 1);
  if (count > 0) {
    memcpy(list->range, sim.ranges->range, before * sizeof *range);
    memcpy(list->range + before + 1, sim.ranges->range + before, (count - before) * sizeof *range);
  }
  list->range[before] = *range;
  list->count = count + 1;
  use_list(list);
  return true;
}

static void remove_where(uint64_t base, const void *owner)
{
  size_t count = sim.ranges != NULL ? sim.ranges->count : 0;
  struct sim_ranges *list = new_list(count);
  for (size_t i = 0; i < count; i++) {
    const struct sim_range *range = &sim.ranges->range[i];
    if (owner != NULL ? range->owner != owner : range->base != base) {
      list->range[list->count++] = *range;
    }
  }
  use_list(list);
}

void sim_range_remove(uint64_t base)
{
  remove_where(base, NULL);
}

void sim_range_remove_owner(const void *owner)
{
  remove_where(0, owner);
}

bool sim_range_access(uint64_t base, size_t bytes, uint64_t devices, bool write_too)
{
  size_t count = sim.ranges != NULL ? sim.ranges->count : 0, found = 0;
  struct sim_ranges *list = new_list(count);
  for (size_t i = 0; i < count; i++) {
    struct sim_range range = sim.ranges->range[i];
    if (range.kind == SIM_MAPPED && range.base >= base && range.base + range.bytes <= base + bytes) {
      range.access |= devices;
      range.read_only = !write_too;
      found += range.bytes;
    }
    list->range[list->count++] = range;
  }
  use_list(list);
  return found == bytes;
}

static const char *range_name(const struct sim_range *range)
{
  static const char *const names[] = {"device memory",          "pinned host memory",
                                      "registered host memory", "another process's memory",
                                      "mapped memory",          "a module's variable"};
  return names[range->kind];
}

// Does the context reach the range's device?
static bool reaches(const struct sim_context *context, const struct sim_range *range, char why[SIM_TEXT])
{
  int device = context->device->ordinal;
  if (range->kind == SIM_MAPPED) {
    if ((range->access >> device & 1) == 0) {
      snprintf(why, SIM_TEXT, "mapped memory that cuMemSetAccess has not given to device %d", device);
    }
    return (range->access >> device & 1) != 0;
  }
  if (range->device < 0 || range->device == device || (context->peers >> range->device & 1) != 0) {
    return true;
  }
  snprintf(why, SIM_TEXT, "memory of device %d, which the context of device %d has not enabled (cuCtxEnablePeerAccess)",
           range->device, device);
  return false;
}

// An address in no range: mostly one that is a little beyond an end.
static void say_unknown(const struct sim_ranges *ranges, uint64_t address, char why[SIM_TEXT])
{
  const struct sim_range *left = NULL;
  for (size_t i = 0; ranges != NULL && i < ranges->count && ranges->range[i].base <= address; i++) {
    left = &ranges->range[i];
  }
  uint64_t behind = left != NULL ? address - left->base - left->bytes : SIM_GRANULE;
  if (behind < SIM_GRANULE) {
    snprintf(why, SIM_TEXT, "0x%" PRIx64 " is %" PRIu64 " bytes behind the end of %s of %zu bytes at 0x%" PRIx64,
             address, behind, range_name(left), left->bytes, left->base);
  } else {
    snprintf(why, SIM_TEXT, "0x%" PRIx64 " is in no memory of a device nor pinned host memory (freed?)", address);
  }
}

bool sim_range_allows(const struct sim_ranges *ranges, const struct sim_context *context, uint64_t address,
                      size_t bytes, bool write, char why[SIM_TEXT])
{
  const struct sim_range *range = sim_range_find(ranges, address);
  if (range == NULL) {
    say_unknown(ranges, address, why);
    return false;
  }
  const uint64_t left = range->base + range->bytes - address;
  if (bytes > left && range->kind == SIM_MAPPED && reaches(context, range, why) && !(write && range->read_only) &&
      sim_range_find(ranges, address + left) != NULL) { // what is mapped behind it is as good
    return sim_range_allows(ranges, context, address + left, bytes - left, write, why);
  }
  if (bytes > left) {
    snprintf(why, SIM_TEXT, "%zu bytes at 0x%" PRIx64 " go beyond %s of %zu bytes at 0x%" PRIx64, bytes, address,
             range_name(range), range->bytes, range->base);
    return false;
  }
  if (write && range->read_only) {
    snprintf(why, SIM_TEXT, "0x%" PRIx64 " may only be read", address);
    return false;
  }
  if (range->kind == SIM_IMPORTED && atomic_load(&range->entry->serial) != range->serial) {
    snprintf(why, SIM_TEXT, "0x%" PRIx64 " is another process's memory, which that process has freed", address);
    return false;
  }
  return reaches(context, range, why);
}

void sim_range_file(const void *address, uint64_t *file, uint64_t *offset)
{
  char line[512];
  uint64_t at = (uint64_t)(uintptr_t)address, from = 0, to = 0, inode = 0, begin = 0;
  FILE *maps = fopen("/proc/self/maps", "re");
  *file = (uint64_t)1 << 32 | (uint64_t)sim.pid; // private memory: a place of this process alone
  *offset = at;
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %" SCNu64, &from, &to, &begin, &inode) == 4 &&
        at >= from && at < to && inode != 0) {
      *file = inode;
      *offset = begin + (at - from);
    }
  }
  if (maps != NULL) {
    fclose(maps);
  }
}

int sim_file_of(int pid, int fd, uint64_t file)
{
  char path[64];
  struct stat st;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
  int opened = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (opened >= 0 && (fstat(opened, &st) != 0 || st.st_ino != file)) {
    close(opened);
    opened = -1;
  }
  return opened;
}
