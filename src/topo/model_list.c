// model_list.c: NCCL_ALGO and NCCL_PROTO as the model of GPUs reads them.
#include "topo/model.h"

#include "base/name_list.h"
#include "base/result.h"
#include "base/util.h"

static const char *const func_names[TT_MODEL_FUNCS] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter",
                                                       "AllReduce"};

ncclResult_t tt_model_allow(const char *variable, const char *text, const char *const *names, int nelems, int *allow)
{
  // Above the names' bits, which every entry clears: the list has no entry for this function.
  enum { MAX_NAMES = 16, UNTOUCHED = 1 << MAX_NAMES };
  tt_name_bits bits[MAX_NAMES];
  uint32_t masks[TT_MODEL_FUNCS];
  int n = TT_MIN(nelems, (int)MAX_NAMES);
  for (int i = 0; i < n; i++) {
    bits[i] = (tt_name_bits){names[i], 1u << i, 1u << i};
  }
  for (int f = 0; f < TT_MODEL_FUNCS; f++) {
    masks[f] = UNTOUCHED;
  }
  TT_TRY(tt_name_list_parse(
      &(tt_name_list){variable, text, bits, n, (1u << n) - 1, func_names, TT_MODEL_FUNCS, TT_MODEL_FUNCS}, masks));
  for (int i = 0; i < TT_MODEL_FUNCS * n; i++) {
    if (masks[i / n] != UNTOUCHED) {
      allow[i] = masks[i / n] >> i % n & 1;
    }
  }
  return ncclSuccess;
}

const char *tt_model_func_name(tt_model_func func)
{
  return func_names[func];
}
