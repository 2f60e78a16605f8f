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

static void say(char why[TT_OWN_FILE_WHY], const char *what, int e)
{
  snprintf(why, TT_OWN_FILE_WHY, "%s%s", what, strerror(e));
}

static bool is_trusted(int fd, size_t size, char why[TT_OWN_FILE_WHY])
{
  struct stat st;
  if (fstat(fd, &st) != 0) {
    say(why, "", errno);
  } else if (!S_ISREG(st.st_mode)) {
    snprintf(why, TT_OWN_FILE_WHY, "it is no regular file");
  } else if ((size_t)st.st_size >= size) {
    snprintf(why, TT_OWN_FILE_WHY, "it is too long: %lld bytes, at most %zu", (long long)st.st_size, size - 1);
  } else {
    return tt_trust_contents(fd, false, why);
  }
  return false;
}

// Up to size - 1 bytes; -1: errno.
static long read_all(int fd, char *buf, size_t size)
{
  size_t at = 0;
  ssize_t n = 1;
  while (n != 0 && at + 1 < size) {
    n = read(fd, buf + at, size - 1 - at);
    if (n < 0 && errno != EINTR) {
      return -1;
    }
    at += n > 0 ? (size_t)n : 0;
    n = n < 0 ? 1 : n;
  }
  buf[at] = 0;
  return (long)at;
}

long tt_own_file_read(const char *path, char *buf, size_t size, bool *missing, char why[TT_OWN_FILE_WHY])
{
  int fd;
  do { // without waiting: a pipe would hold us until somebody writes to it
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  } while (fd < 0 && errno == EINTR);
  if (missing != NULL) {
    *missing = fd < 0 && (errno == ENOENT || errno == ENOTDIR);
  }
  if (fd < 0) {
    say(why, "", errno);
    return -1;
  }
  long n = -1;
  if (is_trusted(fd, size, why)) {
    n = read_all(fd, buf, size);
    if (n < 0) {
      say(why, "", errno);
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
