// clock.c: see clock.h.
#include "os/clock.h"

#include <errno.h>

uint64_t tt_now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * TT_NS_PER_S + (uint64_t)t.tv_nsec;
}

void tt_sleep_ns(uint64_t ns)
{
  struct timespec t = tt_timespec(tt_now_ns() + ns);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
  }
}
