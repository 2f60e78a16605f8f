// clock.h: the one clock of logs, profilers, traces and deadlines.
#pragma once
#include <stdint.h>

#define TT_NS_PER_MS 1000000ull
#define TT_NS_PER_S 1000000000ull

// Nanoseconds of CLOCK_MONOTONIC: comparable between the processes of one machine, never goes back. Any thread; never fails.
uint64_t tt_now_ns(void);
// Sleeps at least `ns` nanoseconds, whatever signals arrive. Any thread.
void tt_sleep_ns(uint64_t ns);
