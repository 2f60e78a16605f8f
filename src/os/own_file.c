// own_file.c: see own_file.h.
#define _GNU_SOURCE
#include "os/own_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/folder.h"
#include "os/retry.h"

static void own_file_why(char why[TT_OWN_FILE_WHY], int e)
{
  snprintf(why, TT_OWN_FILE_WHY, "%s", strerror(e));
}

static bool is_trusted(int fd, size_t size, char why[TT_OWN_FILE_WHY])
{
  struct stat st;
  if (fstat(fd, &st) != 0) {
    own_file_why(why, errno);
  } else if (!S_ISREG(st.st_mode)) {
    snprintf(why, TT_OWN_FILE_WHY, "it is no regular file");
  } else if ((size_t)st.st_size >= size) {
    snprintf(why, TT_OWN_FILE_WHY, "it is too long: %lld bytes, at most %zu", (long long)st.st_size, size - 1);
  } else {
    return tt_trust_contents(fd, false, why);
  }
  return false;
}

long tt_own_file_read(const char *path, char *buf, size_t size, bool *missing, char why[TT_OWN_FILE_WHY])
{
  int fd; // without waiting: a pipe would hold us until another process writes to it
  TT_RETRY(fd, open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (missing != NULL) {
    *missing = fd < 0 && (errno == ENOENT || errno == ENOTDIR);
  }
  if (fd < 0) {
    own_file_why(why, errno);
    return -1;
  }
  long n = -1;
  if (is_trusted(fd, size, why)) {
    n = (long)tt_file_read(fd, buf, size - 1);
    if (n < 0) {
      own_file_why(why, errno);
    } else {
      buf[n] = 0;
    }
  }
  close(fd);
  return n;
}

bool tt_own_file_is_open(const char *path)
{
  struct stat st;
  return stat(path, &st) == 0 && (st.st_mode & S_IROTH) != 0;
}

bool tt_write_all(int fd, const char *text, size_t size)
{
  while (size > 0) {
    ssize_t n = write(fd, text, size);
    if (n < 0 && errno != EINTR) {
      return false;
    }
    text += n > 0 ? n : 0;
    size -= n > 0 ? (size_t)n : 0;
  }
  return true;
}
