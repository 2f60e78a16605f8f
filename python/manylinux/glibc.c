// glibc.c: functions that glibc has had since a version later than 2.28, for the library and for what it contains of
// libsodium and expat. Nothing outside the library sees them.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// On x86-64 the kernel's struct stat is that of glibc. As functions these four are of 2.33.
int fstatat(int dir, const char *restrict path, struct stat *restrict out, int flags)
{
  return (int)syscall(SYS_newfstatat, dir, path, out, flags);
}

int stat(const char *restrict path, struct stat *restrict out)
{
  return fstatat(AT_FDCWD, path, out, 0);
}

int lstat(const char *restrict path, struct stat *restrict out)
{
  return fstatat(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}

int fstat(int fd, struct stat *out)
{
  return (int)syscall(SYS_fstat, fd, out);
}

// Of 2.36. Declared here, because older headers have no declaration.
void arc4random_buf(void *out, size_t bytes);

void arc4random_buf(void *out, size_t bytes)
{
  for (char *at = out, *end = at + bytes; at < end;) {
    ssize_t got = getrandom(at, (size_t)(end - at), 0);
    if (got > 0) {
      at += got;
    } else if (errno != EINTR) {
      abort(); // as glibc's does: there is no other answer
    }
  }
}
