// slow_disk.h: a file system that can be made to hang: FUSE's protocol, spoken by a process of its own over a folder.
// Files of one folder, created, written, cut, looked at and removed; no reading. While *hold is not 0 nothing that is
// written is answered.
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // unshare
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SLOW_FILES = 32, SLOW_NAME = 128, SLOW_REQUEST = 1 << 18 };

typedef struct slow_disk {
  int fuse, folder; // descriptors: the kernel's requests; where the files really are
  const _Atomic uint64_t *hold;
  char names[SLOW_FILES][SLOW_NAME]; // of node number i + 2
} slow_disk;

typedef struct slow_answer {
  int error; // positive
  size_t size;

  union {
    struct fuse_init_out init;
    struct fuse_attr_out attr;
    struct fuse_write_out write;
    struct fuse_open_out open;

    struct {
      struct fuse_entry_out entry;
      struct fuse_open_out open;
    } create;
  } body;
} slow_answer;

// 0: there is none, and no room for it.
static inline uint64_t slow_node(slow_disk *d, const char *name, bool make)
{
  size_t n = strlen(name) + 1;
  if (n > SLOW_NAME) {
    return 0;
  }
  for (uint64_t i = 0; i < SLOW_FILES; i++) {
    if (strcmp(d->names[i], name) == 0) {
      return i + 2;
    }
    if (d->names[i][0] == '\0') {
      memcpy(d->names[i], name, make ? n : 0);
      return make ? i + 2 : 0;
    }
  }
  return 0;
}

static inline const char *slow_name(const slow_disk *d, uint64_t node)
{
  return node >= 2 && node < SLOW_FILES + 2 && d->names[node - 2][0] != '\0' ? d->names[node - 2] : ".";
}

static inline int slow_attr(const slow_disk *d, uint64_t node, struct fuse_attr *out)
{
  struct stat st;
  if (fstatat(d->folder, slow_name(d, node), &st, 0) != 0) {
    return errno;
  }
  *out = (struct fuse_attr){.ino = node, .size = (uint64_t)st.st_size, .mode = st.st_mode, .nlink = 1, .blksize = 4096};
  return 0;
}

static inline void slow_create(slow_disk *d, const char *name, slow_answer *a)
{
  int fd = openat(d->folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  uint64_t node = slow_node(d, name, true);
  a->error = fd < 0 || node == 0 ? EIO : 0;
  if (fd >= 0) {
    close(fd);
  }
  a->body.create.entry.nodeid = node;
  a->error = a->error != 0 ? a->error : slow_attr(d, node, &a->body.create.entry.attr);
  a->size = sizeof a->body.create;
}

static inline void slow_lookup(slow_disk *d, const char *name, slow_answer *a)
{
  uint64_t node = slow_node(d, name, false);
  a->body.create.entry.nodeid = node;
  a->error = node == 0 ? ENOENT : slow_attr(d, node, &a->body.create.entry.attr);
  a->size = sizeof a->body.create.entry;
}

static inline void slow_write(const slow_disk *d, uint64_t node, const struct fuse_write_in *in, slow_answer *a)
{
  const struct timespec nap = {.tv_nsec = 1000000};
  while (atomic_load(d->hold) != 0) {
    nanosleep(&nap, NULL);
  }
  int fd = openat(d->folder, slow_name(d, node), O_WRONLY | O_CLOEXEC);
  ssize_t n = fd >= 0 ? pwrite(fd, in + 1, in->size, (off_t)in->offset) : -1;
  a->error = n < 0 ? errno : 0;
  a->body.write.size = n > 0 ? (uint32_t)n : 0;
  a->size = sizeof a->body.write;
  if (fd >= 0) {
    close(fd);
  }
}

static inline void slow_set(const slow_disk *d, uint64_t node, const struct fuse_setattr_in *in, slow_answer *a)
{
  int fd = (in->valid & FATTR_SIZE) != 0 ? openat(d->folder, slow_name(d, node), O_WRONLY | O_CLOEXEC) : -1;
  a->error = fd >= 0 && ftruncate(fd, (off_t)in->size) != 0 ? errno : slow_attr(d, node, &a->body.attr.attr);
  a->size = sizeof a->body.attr;
  if (fd >= 0) {
    close(fd);
  }
}

// False: nothing is answered.
static inline bool slow_answer_to(slow_disk *d, const struct fuse_in_header *h, slow_answer *a)
{
  const void *in = h + 1;
  switch (h->opcode) {
  case FUSE_INIT:
    a->body.init = (struct fuse_init_out){.major = FUSE_KERNEL_VERSION,
                                          .minor = FUSE_KERNEL_MINOR_VERSION,
                                          .max_readahead = 4096,
                                          .max_write = SLOW_REQUEST / 2,
                                          .time_gran = 1};
    a->size = sizeof a->body.init;
    return true;
  case FUSE_LOOKUP: slow_lookup(d, in, a); return true;
  case FUSE_CREATE: slow_create(d, (const char *)in + sizeof(struct fuse_create_in), a); return true;
  case FUSE_WRITE: slow_write(d, h->nodeid, in, a); return true;
  case FUSE_SETATTR: slow_set(d, h->nodeid, in, a); return true;
  case FUSE_GETATTR:
    a->error = slow_attr(d, h->nodeid, &a->body.attr.attr);
    a->size = sizeof a->body.attr;
    return true;
  case FUSE_UNLINK: a->error = unlinkat(d->folder, in, 0) != 0 ? errno : 0; return true;
  case FUSE_OPEN: a->size = sizeof a->body.open; return true;
  case FUSE_FLUSH:
  case FUSE_RELEASE: return true;
  case FUSE_FORGET:
  case FUSE_BATCH_FORGET:
  case FUSE_INTERRUPT: return false;
  default: a->error = ENOSYS; return true;
  }
}

// Serves until the file system is no more mounted anywhere.
static inline void slow_serve(slow_disk *d)
{
  static _Alignas(16) char request[SLOW_REQUEST];
  ssize_t n;
  while ((n = read(d->fuse, request, sizeof request)) > 0 || errno == EINTR || errno == ENOENT) {
    const struct fuse_in_header *h = (const struct fuse_in_header *)request;
    slow_answer a;
    memset(&a, 0, sizeof a);
    if (n >= (ssize_t)sizeof *h && slow_answer_to(d, h, &a)) {
      struct {
        struct fuse_out_header head;
        char body[sizeof a.body];
      } out = {.head = {.len = (uint32_t)(sizeof out.head + (a.error != 0 ? 0 : a.size)),
                        .error = -a.error,
                        .unique = h->unique}};
      memcpy(out.body, &a.body, sizeof a.body);
      (void)!write(d->fuse, &out, out.head.len); // fails for what was given up meanwhile
    }
  }
}

static inline bool slow_put(const char *path, const char *text)
{
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
  if (fd >= 0) {
    close(fd);
  }
  return good;
}

// Mounts it at `path` for this process and its children alone, and begins to serve it from `folder`. False: there is no
// right to, or no FUSE.
static inline bool slow_mount(const char *path, const char *folder, const _Atomic uint64_t *hold)
{
  char options[96], map[32];
  uid_t uid = getuid();
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
      return false;
    }
    snprintf(map, sizeof map, "0 %u 1", (unsigned)uid);
    if (!slow_put("/proc/self/uid_map", map)) {
      return false;
    }
  }
  slow_disk d = {
      .fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC), .folder = open(folder, O_DIRECTORY | O_CLOEXEC), .hold = hold};
  snprintf(options, sizeof options, "fd=%d,rootmode=40755,user_id=0,group_id=0", d.fuse);
  bool good = d.fuse >= 0 && d.folder >= 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
              mount("slow", path, "fuse", MS_NOSUID | MS_NODEV, options) == 0;
  pid_t server = good ? fork() : -1;
  if (server == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); // it holds the mount that it serves: nothing else would end it
    slow_serve(&d);
    _exit(0);
  }
  close(d.fuse);
  close(d.folder);
  return server > 0;
}
