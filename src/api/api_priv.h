// api_priv.h: how an exported function is defined. For src/api/ alone.
#pragma once
#include "nccl.h"

// Head of an exported function with its twin: TT_API(ncclResult_t, ncclFoo, int a) { ... } defines ncclFoo and makes pncclFoo another
// name for the same code. The twin stays the library's own when a tool puts its own ncclFoo in front. All else in the library is hidden
// (-fvisibility=hidden). Functions without arguments: TT_API(ncclResult_t, ncclFoo, void).
#define TT_API(ret, name, ...)                                                                   \
  __attribute__((visibility("default"))) ret p##name(__VA_ARGS__) __attribute__((alias(#name))); \
  __attribute__((visibility("default"))) ret name(__VA_ARGS__)
