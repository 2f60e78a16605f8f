// api_priv.h: how an exported function is defined. For src/api/ alone.
#pragma once
#include "nccl.h"

// An exported function has a twin: TT_TWIN(ncclFoo); makes pncclFoo another name for the code of ncclFoo, which is
// defined as TT_EXPORT ncclResult_t ncclFoo(int a) { ... }. The twin stays the library's own when a tool puts its own
// ncclFoo in front. All else in the library is hidden (-fvisibility=hidden).
#define TT_EXPORT __attribute__((visibility("default")))
#define TT_TWIN(name) extern __typeof__(name) p##name __attribute__((visibility("default"), alias(#name)))

// The body of an exported function: enters the communicator, makes the call, leaves (comm/comm.h).
#define INSIDE(comm, what, usable, call)       \
  TT_TRY(tt_comm_begin((comm), what, usable)); \
  ncclResult_t inside_ = (call);               \
  tt_comm_leave(comm);                         \
  return inside_
