// folder.c: see folder.h.
#include "os/folder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/result.h"
#include "base/util.h"
#include "os/retry.h"
#include "os/shm.h"

ncclResult_t tt_folder_open(const char *path, int *out)
{
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    return tt_fail(ncclSystemError, "%s: cannot be opened as a folder: %s", path, strerror(errno));
  }
  *out = fd;
  return ncclSuccess;
}

void tt_folder_close(int folder)
{
  close(folder);
}

static const char *or_dot(const char *path)
{
  return path[0] != 0 ? path : ".";
}

tt_folder_kind tt_folder_look(int folder, const char *path, char *target, size_t size)
{
  struct stat st;
  if (fstatat(folder, or_dot(path), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    return TT_FOLDER_NONE;
  }
  if (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)) {
    return S_ISDIR(st.st_mode) ? TT_FOLDER_FOLDER : TT_FOLDER_FILE;
  }
  if (!S_ISLNK(st.st_mode)) {
    return TT_FOLDER_NONE;
  }
  if (target != NULL) {
    ssize_t n = readlinkat(folder, path, target, size);
    if (n <= 0 || (size_t)n >= size) { // too long is cut: as good as none
      return TT_FOLDER_NONE;
    }
    target[n] = 0;
  }
  return TT_FOLDER_LINK;
}

// Without waiting: a pipe would hold us until another process writes to it.
static int open_at(int folder, const char *path, int flags)
{
  int fd;
  TT_RETRY(fd, openat(folder, or_dot(path), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags));
  return fd;
}

bool tt_file_hash(const char *path, size_t max, uint64_t seed, uint64_t *out)
{
  char block[4096];
  struct stat st;
  ssize_t n = -1;
  size_t total = 0;
  bool regular = stat(path, &st) == 0 && S_ISREG(st.st_mode); // opening alone can have effects on what is not one
  int fd = regular ? open_at(AT_FDCWD, path, 0) : -1;
  if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
    while (total < max && (n = tt_file_read(fd, block, TT_MIN(sizeof block, max - total))) > 0) {
      seed = tt_hash(block, (size_t)n, seed);
      total += (size_t)n;
    }
  }
  tt_fd_close(fd);
  if (n >= 0) {
    *out = seed;
  }
  return n >= 0;
}

ssize_t tt_file_read(int fd, void *buf, size_t size)
{
  size_t have = 0;
  ssize_t n = 1;
  while (have < size && n > 0) {
    TT_RETRY(n, read(fd, (char *)buf + have, size - have));
    have += n > 0 ? (size_t)n : 0;
  }
  return n < 0 && have == 0 ? -1 : (ssize_t)have;
}

long tt_folder_read(int folder, const char *path, char *buf, size_t size)
{
  if (tt_folder_look(folder, path, NULL, 0) != TT_FOLDER_FILE) { // opening alone can have effects on what is not one
    return -1;
  }
  int fd = open_at(folder, path, O_NOFOLLOW);
  ssize_t n = fd < 0 ? -1 : tt_file_read(fd, buf, size - 1);
  tt_fd_close(fd);
  if (n >= 0) {
    buf[n] = 0;
  }
  return (long)n;
}

bool tt_file_text(const char *path, char *buf, size_t size)
{
  bool good = tt_folder_read(AT_FDCWD, path, buf, size) > 0;
  buf[0] = good ? buf[0] : '\0';
  return good;
}

bool tt_file_range(const char **at, long *first, long *last)
{
  char *end;
  if (!isdigit((unsigned char)**at)) {
    return false;
  }
  *first = *last = strtol(*at, &end, 10);
  if (*end == '-' && isdigit((unsigned char)end[1])) {
    *last = strtol(end + 1, &end, 10);
  }
  *at = *end == ',' ? end + 1 : end;
  return true;
}

int tt_folder_list(int folder, const char *path, int max, tt_folder_name_fn *fn, void *arg)
{
  int fd = open_at(folder, path, O_DIRECTORY | O_NOFOLLOW), count = 0;
  DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
  if (dir == NULL) {
    tt_fd_close(fd);
    return -1;
  }
  for (struct dirent *e = readdir(dir); e != NULL && count < max; e = readdir(dir)) {
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
      continue;
    }
    count++;
    if (!fn(arg, e->d_name)) {
      break;
    }
  }
  closedir(dir);
  return count;
}
