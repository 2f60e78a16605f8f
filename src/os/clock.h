// clock.h: the one clock of logs, profilers, traces and deadlines.
#pragma once
#include <stdint.h>
#include <time.h>

#define TT_NS_PER_MS 1000000ull
#define TT_NS_PER_S 1000000000ull

// The longest span that parameters mean: a century. The sum of two, and of one and the time, still fits.
#define TT_LONGEST_NS (100ull * 365 * 86400 * TT_NS_PER_S)

// `count` units of `unit_ns` nanoseconds, at least one and at most TT_LONGEST_NS, whatever a user has written. Pure.
static inline uint64_t tt_span_ns(int64_t count, uint64_t unit_ns)
{
  uint64_t most = TT_LONGEST_NS / unit_ns;
  return count < 1 ? unit_ns : ((uint64_t)count < most ? (uint64_t)count : most) * unit_ns;
}

// Nanoseconds as the kernel takes them. Pure.
static inline struct timespec tt_timespec(uint64_t ns)
{
  return (struct timespec){.tv_sec = (time_t)(ns / TT_NS_PER_S), .tv_nsec = (long)(ns % TT_NS_PER_S)};
}

// Nanoseconds of CLOCK_MONOTONIC: comparable between the processes of one machine, never goes back. Any thread; never
// fails.
uint64_t tt_now_ns(void);
// Ticks of the cheapest clock that there is: a few instructions, not in order with those around it. tt_ticks_ns makes
// times of them. Any thread; never fails.
static inline uint64_t tt_ticks(void)
{
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t ticks;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return tt_now_ns();
#endif
}
// Ticks within which reading the clock is a good part of what a call costs, one to two microseconds; 0: reading it is
// cheap.
#if defined(__x86_64__)
#define TT_TICKS_BURST 4096
#else
#define TT_TICKS_BURST 0
#endif
// A moment by both clocks. Any thread.
typedef struct tt_moment {
  uint64_t ns, ticks;
} tt_moment;
tt_moment tt_moment_now(void);
// Nanoseconds of CLOCK_MONOTONIC at `ticks`, by two moments, which are better far apart; never later than
// `now`. Pure.
uint64_t tt_ticks_ns(uint64_t ticks, tt_moment then, tt_moment now);
// Sleeps at least `ns` nanoseconds, whatever signals arrive. Any thread.
void tt_sleep_ns(uint64_t ns);
