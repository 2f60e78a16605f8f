// random.c: see random.h.
#include "os/random.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "os/retry.h"
#include "os/shm.h"

void tt_random(void *data, size_t size)
{
  int device = -1; // for sandboxes that forbid the system call but have it
  for (size_t done = 0; done < size;) {
    char *at = (char *)data + done;
    bool from_device = device >= 0;
    ssize_t n;
    TT_RETRY(n, from_device ? read(device, at, size - done) : getrandom(at, size - done, 0));
    if (n <= 0 && (from_device || (device = open("/dev/urandom", O_RDONLY | O_CLOEXEC)) < 0)) {
      abort();
    }
    done += n > 0 ? (size_t)n : 0;
  }
  tt_fd_close(device);
}
