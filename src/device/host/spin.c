// spin.c: busy waiting on the host device: how long, whether the core is given to other threads meanwhile, and when a
// thread should sleep at once.
#define _GNU_SOURCE
#include <sched.h>

#include "base/param.h"
#include "device/host/preempt.h"
#include "device/host/wait_priv.h"
#include "os/clock.h"
#include "os/proc.h"
#include "os/relax.h"

#define SPIN_US_DEFAULT 50  // longest busy wait for what takes no time, when every rank has a core of its own
#define YIELD_US_CROWDED 20 // longest time of yielding to others before sleeping, when cores are short
#define PAUSES_CROWDED 2    // looks before the first yield, when cores are short: the peer probably has no core
#define YIELDS_CROWDED 8    // and the fewest yields: with many ranks one of them takes longer than all that time
#define CLOCK_EVERY 64      // looks between two readings of the clock

static _Atomic bool crowded; // some communicator has more ranks on this machine than there are cores
static _Atomic int per_core; // the most of them

void tt_host_load(int ranks, int cores)
{
  if (ranks > cores) {
    int each = ranks / TT_MAX(cores, 1);
    if (each > atomic_load_explicit(&per_core, memory_order_relaxed)) {
      atomic_store_explicit(&per_core, each, memory_order_relaxed);
    }
    atomic_store_explicit(&crowded, true, memory_order_relaxed);
  }
}

bool tt_host_crowded(void)
{
  return atomic_load_explicit(&crowded, memory_order_relaxed);
}

static _Thread_local tt_preemption preemption;

// When a waiting thread of this process last moved something on a core: a thread whose stream others ran, for long, was
// not preempted by strangers. Written by the thread on the core, relaxed: nothing is published by it. (A thread that is
// moved to another core meanwhile writes a wrong one, which costs a sleep or a yield.)
#define CORES 256 // more share what is noted
static struct {
  _Alignas(TT_CACHE_LINE) _Atomic uint64_t worked;
} cores[CORES];

static _Atomic uint64_t *spin_worked_here(void)
{
  return &cores[(unsigned)sched_getcpu() % CORES].worked;
}

void tt_spin_moved(tt_spin *p)
{
  if (p->crowded) {
    atomic_store_explicit(spin_worked_here(), tt_now_ns(), memory_order_relaxed);
  }
  tt_spin_restart(p);
}

static uint32_t spin_takes_us(const tt_stream *s)
{
  return s != NULL ? atomic_load_explicit(&s->takes_us, memory_order_relaxed) : 0;
}

// Gives the core to others. *now: the last reading of the clock, and the new one. Returns whether the thread was
// preempted.
static bool spin_yield(const tt_stream *s, uint64_t *now)
{
  uint64_t then = *now;
  sched_yield();
  *now = tt_now_ns();
  then = TT_MAX(then, atomic_load_explicit(spin_worked_here(), memory_order_relaxed));
  return tt_preemption_note(&preemption, then, *now, atomic_load_explicit(&per_core, memory_order_relaxed),
                            spin_takes_us(s));
}

// Microseconds of busy waiting for the stream's current entry. A thread that sleeps while a peer is at work wakes up
// late, so it waits for about as long as that work takes. Where cores are short, the peer may need this one.
static int64_t spin_us(const tt_stream *s, bool tight)
{
  int64_t us = tt_params_get()->host_spin_us;
  if (us >= 0 || tight) {
    return us >= 0 ? us : YIELD_US_CROWDED;
  }
  return SPIN_US_DEFAULT + (int64_t)spin_takes_us(s);
}

// Reads the clock for the first time. False: sleep at once, without yields.
static bool spin_begin(tt_spin *p, const tt_stream *s)
{
  p->now = tt_now_ns();
  int64_t us = spin_us(s, p->crowded);
  p->deadline = p->now + (us > 0 ? tt_span_ns(us, 1000) : 0);
  p->adapts = p->crowded && tt_params_get()->host_spin_us < 0;
  p->least = p->adapts ? PAUSES_CROWDED + YIELDS_CROWDED : 0;
  return !p->adapts || !tt_preemption_sleeps(&preemption, p->now, spin_takes_us(s));
}

bool tt_spin_pass(tt_spin *p, const tt_stream *s)
{
  p->looks++;
  bool first = p->deadline == 0, reads = first || p->looks % (p->crowded ? 4 : CLOCK_EVERY) == 0;
  if (p->crowded && p->looks > PAUSES_CROWDED) {
    if (spin_yield(s, &p->now) && p->adapts) {
      return false;
    }
  } else {
    tt_cpu_relax();
  }
  if (first && !spin_begin(p, s)) {
    return false;
  }
  if (reads && !first && !p->crowded) {
    p->now = tt_now_ns();
  }
  return !reads || p->now < p->deadline || p->looks < p->least;
}

bool tt_host_spin(const tt_stream *s, bool (*ready)(void *arg), void *arg)
{
  tt_spin p = {.crowded = true};
  bool over = ready(arg);
  while (!over && tt_spin_pass(&p, s)) {
    over = ready(arg);
  }
  return over;
}
