// wait_priv.h: what the files of waiting share: wait.c (waits and queries), spin.c (busy waiting), sleep.c (sleeping),
// worker.c (the worker).
#pragma once
#include "base/util.h"
#include "device/host/stream.h"
#include "device/stall_chain.h"

#define TT_WAIT_BYTES (8u << 20) // what a waiting thread moves before it looks around
// Looks between two at the streams of others, which mostly have waiting threads of their own.
#define TT_HELP_EVERY_CROWDED 4

// --- attending (tt_host_attend)

// A thread that begins to attend keeps the function, so that it takes back what it has counted in.
typedef void (*tt_attend_fn)(int delta);

// Calls fn(delta), if there is one.
static inline void tt_attend(tt_attend_fn fn, int delta)
{
  if (fn != NULL) {
    fn(delta);
  }
}

// --- spin.c

// How one thread passes the time between two looks until it should sleep. Zeroed but for `crowded`.
typedef struct tt_spin {
  uint64_t deadline; // when it should sleep; 0: clock not read yet
  uint64_t now;      // what the clock last said
  unsigned looks;
  unsigned least; // looks before it sleeps, whatever the clock says
  bool crowded;
  bool adapts; // sleeps when it was preempted: NCCL_HOST_SPIN_US does not rule
} tt_spin;

// Passes a moment of a wait for `s` (may be NULL): a pause, or a yield of the core. False: time to sleep.
bool tt_spin_pass(tt_spin *p, const tt_stream *s);

// Does the next look include the streams of others?
static inline bool tt_spin_helps(const tt_spin *p)
{
  return !p->crowded || p->looks % TT_HELP_EVERY_CROWDED == 0;
}

// Starts over, as after a sleep.
static inline void tt_spin_restart(tt_spin *p)
{
  p->deadline = 0;
  p->looks = 0;
}

// The same after the thread has moved something.
void tt_spin_moved(tt_spin *p);

// --- sleep.c

// The bells that a thread sleeps on: those of all streams that it answers for. Zeroed but for `answers` and `own`.
typedef struct tt_bell_set {
  bool (*answers)(const tt_stream *s, const tt_stream *own); // does the thread answer for the stream?
  tt_stream *own;                                            // the stream that the thread waits for, or NULL
  bool stale;                                                // a stream waits for a bell that is not among them
  int n;
  tt_bell *bells[TT_BELL_MAX];
  uint32_t tickets[TT_BELL_MAX];
} tt_bell_set;

// Announces the thread on the bell.
void tt_bell_set_add(tt_bell_set *n, tt_bell *bell);

// Announces the thread on the bells of the streams that it answers for.
void tt_bell_set_add_streams(tt_bell_set *n);

// Has a stream that the thread answers for begun to wait for a bell that is not in the set? Asked after the last look:
// another thread may have completed an entry between the announcement and that look (its bell rang before we listened),
// and the next one waits for another bell. From a "no" on, the bell of every entry that is completed is in the set.
bool tt_bell_set_is_stale(tt_bell_set *n);

// Sleeps on the bells, for `ns` at most. True: one was rung.
bool tt_bell_set_sleep(const tt_bell_set *n, uint64_t ns);

// Takes the announcements back.
void tt_bell_set_leave(const tt_bell_set *n);
// Has one of its bells had an alarm (tt_bell_alarm)? Then look after the peers at once.
bool tt_bell_set_alarmed(const tt_bell_set *n);

// Sleeps until something may have happened for a thread that waits for `s` (may be NULL): announces itself, looks
// again, sleeps for `ns` nanoseconds at most. False: its sleep was not ended by a bell, or by one with an alarm; it has
// looked after the peers.
bool tt_sleep_once(tt_stream *s, bool (*ready)(void *arg), void *arg, tt_attend_fn attending, uint64_t ns);

// Asks the current entry of each blocked stream to look whether its peers live.
void tt_peer_check_streams(void);

// The same, once tt_peer_check_ns have passed since the last time, or since the first call: `now` is the clock's
// (0: not read yet, nothing happens), *due is 0 at first. For a thread that waits without sleeping for so long.
static inline void tt_peer_check_due(uint64_t now, uint64_t *due)
{
  if (TT_UNLIKELY(now >= *due)) {
    bool first = *due == 0;
    *due = now == 0 ? 0 : now + tt_peer_check_ns();
    if (!first) {
      tt_peer_check_streams();
    }
  }
}
