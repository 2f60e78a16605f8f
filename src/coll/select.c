// select.c: NCCL_ALGO and NCCL_PROTO as masks.
#include "coll/select.h"

#include "base/name_list.h"
#include "base/result.h"
#include "base/util.h"

// The table's names, then NCCL's that have no row here. Returns how many.
static int algorithm_names(tt_name_bits *names, uint32_t *all)
{
  static const char *const absent[] = {"NVLS", "NVLSTree"};
  int count;
  const tt_algorithm *table = tt_algorithms(&count);
  for (int i = 0; i < count; i++) {
    names[i] = (tt_name_bits){table[i].name, 1u << i, 1u << i};
    *all |= 1u << i & ~TT_ALGOS_ASKED;
  }
  for (int i = 0; i < (int)TT_COUNT(absent); i++) {
    names[count++] = (tt_name_bits){absent[i], 0, 0};
  }
  return count;
}

// A row that does not know a function is not available for it, whatever the user says.
static void keep_capable(uint32_t *masks)
{
  int count;
  const tt_algorithm *table = tt_algorithms(&count);
  for (int f = 0; f < TT_NFUNCS; f++) {
    for (int i = 0; i < count; i++) {
      masks[f] &= table[i].funcs >> f & 1 ? ~0u : ~(1u << i);
    }
  }
}

// Everything is allowed of what the list does not name.
static ncclResult_t parse_masks(tt_name_list l, uint32_t *masks)
{
  const char *funcs[TT_NFUNCS];
  for (int f = 0; f < TT_NFUNCS; f++) {
    funcs[f] = tt_func_name((tt_func)f);
    masks[f] = l.all;
  }
  l.funcs = funcs;
  l.nfuncs = TT_NFUNCS;
  l.ncommon = TT_FUNC_ALLREDUCE + 1;
  return tt_name_list_parse(&l, masks);
}

// The list names LL128 for some function.
static ncclResult_t parse_ll128(tt_name_list l, bool *named)
{
  static const tt_name_bits protos[] = {{"LL", 0, 0}, {"LL128", 1, 1}, {"Simple", 0, 0}};
  uint32_t masks[TT_NFUNCS];
  l.names = protos;
  l.all = 0;
  TT_TRY(parse_masks(l, masks));
  *named = false;
  for (int f = 0; f < TT_NFUNCS; f++) {
    *named |= masks[f] != 0;
  }
  return ncclSuccess;
}

ncclResult_t tt_algo_filter_parse(const char *algo, const char *proto, tt_algo_filter *out)
{
  static const tt_name_bits protos[] = {
      {"LL", TT_PROTO_LL, TT_PROTO_LL},
      {"LL128", TT_PROTO_LL, 0},
      {"Simple", TT_PROTO_SIMPLE, TT_PROTO_SIMPLE},
  };
  tt_name_bits algos[32 + 2];
  tt_algo_filter filter;
  tt_name_list a = {.variable = "NCCL_ALGO", .value = algo, .names = algos};
  tt_name_list p = {.variable = "NCCL_PROTO", .value = proto, .names = protos, .nnames = (int)TT_COUNT(protos)};
  a.nnames = algorithm_names(algos, &a.all);
  p.all = TT_PROTO_ALL;
  TT_TRY(parse_masks(a, filter.algos));
  TT_TRY(parse_masks(p, filter.protos));
  keep_capable(filter.algos);
  TT_TRY(parse_ll128(p, &filter.ll128));
  *out = filter;
  return ncclSuccess;
}
