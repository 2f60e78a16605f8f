// random.c: see random.h.
#include "os/random.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

// For sandboxes that forbid the system call but have the device.
static void read_device(char *at, size_t left)
{
  int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  while (left > 0) {
    ssize_t n = fd < 0 ? -1 : read(fd, at, left);
    if (n < 0 && fd >= 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      abort();
    }
    at += n;
    left -= (size_t)n;
  }
  close(fd);
}

void tt_random(void *data, size_t size)
{
  char *at = data;
  size_t left = size;
  while (left > 0) {
    ssize_t n = getrandom(at, left, 0);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      read_device(at, left);
      return;
    }
    at += n;
    left -= (size_t)n;
  }
}
