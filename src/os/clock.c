// clock.c: see clock.h.
#include "os/clock.h"

#include <errno.h>

#include "base/util.h"

uint64_t tt_now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * TT_NS_PER_S + (uint64_t)t.tv_nsec;
}

tt_moment tt_moment_now(void)
{
  return (tt_moment){.ns = tt_now_ns(), .ticks = tt_ticks()};
}

uint64_t tt_ticks_ns(uint64_t ticks, tt_moment then, tt_moment now)
{
  if (ticks >= now.ticks || now.ticks <= then.ticks) {
    return now.ns;
  }
  double rate = (double)(now.ns - then.ns) / (double)(now.ticks - then.ticks), before = (double)(now.ticks - ticks);
  return now.ns - TT_MIN((uint64_t)(before * rate), now.ns);
}

void tt_sleep_ns(uint64_t ns)
{
  struct timespec t = tt_timespec(tt_now_ns() + ns);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
  }
}
