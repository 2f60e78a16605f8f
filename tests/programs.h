// programs.h: which calls of a communicator have programs (device/program.h).
#pragma once
#include "comm/comm.h"
#include "comm/decide.h"

// How many kinds of calls of `f` have programs.
static inline int programs_of(ncclComm_t comm, tt_func f)
{
  int n = 0;
  for (int i = 0; i < TT_DECISION_SETS * TT_DECISION_WAYS; i++) {
    const tt_decision *set = comm->decisions.sets[i / TT_DECISION_WAYS], *d = set + i % TT_DECISION_WAYS;
    n += set != NULL && d->made && (tt_func)(d->kind & UINT8_MAX) == f && d->program != NULL;
  }
  return n;
}
