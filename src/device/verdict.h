// verdict.h: why a rank waits, for reports from outside of the wait (tt_device_ops.tell, view).
#pragma once
#include "device/lane.h"

enum { TT_VERDICT_TEXT = 1024 };

// Why the port's rank waits.
typedef struct tt_verdict {
  // "none": it does not wait for a rank, or not for long. Else what the cause does: "late": it has not called the
  // operation; "stuck": it has begun it and does not go on; "behind": its call stands behind other work of its stream;
  // "remote": it is on another machine; "network": it is a network that reduces. Or there is no single cause:
  // "deadlock", "circle" (over several machines).
  const char *class;
  int cause;                  // the rank; -1: none
  int pid;                    // its process; 0: not known
  uint64_t waited_ns;         // by the port's rank
  char text[TT_VERDICT_TEXT]; // as in the warning
} tt_verdict;

// What a rank shows.
typedef struct tt_rank_view {
  int pid;                 // 0: not known
  const char *state;       // in a word
  uint32_t number;         // of its last collective; 0: it was a message
  char call[TT_CALL_TEXT]; // its last call; "": none yet
  uint64_t sig, count;     // the same (tt_call_describe); 0: none yet
  bool waits;
  tt_wait wait; // where it waits
  uint64_t waited_ns;
} tt_rank_view;
