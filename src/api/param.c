// The ncclParam… functions: the registry of base/param.h under NCCL's names. A handle is a row of the registry.
#include <stdlib.h>
#include <string.h>

#include "api/api_priv.h"
#include "base/param.h"
#include "base/result.h"
#include "base/util.h"

// Texts that were handed out stay valid until the thread's next call of the same function. A text longer than this
// comes back cut; no value can be that long but one from the environment.
enum { TEXT_BYTES = 4096 };

static const tt_param_row *param_row_of(ncclParamHandle_t h)
{
  return (const tt_param_row *)(const void *)h;
}

// The row of a key, or an error that names it.
static ncclResult_t param_find(const char *key, const tt_param_row **out)
{
  if (key == NULL) {
    return tt_fail(ncclInvalidArgument, "parameter key is NULL");
  }
  const tt_param_row *row = tt_param_find(key);
  if (row == NULL) {
    const char *nearest = tt_param_nearest(key);
    return tt_fail(ncclInvalidArgument, "there is no parameter %s%s%s", key, nearest ? "; did you mean " : "",
                   nearest ? nearest : "");
  }
  *out = row;
  return ncclSuccess;
}

TT_TWIN(ncclParamBind);
TT_EXPORT ncclResult_t ncclParamBind(ncclParamHandle_t *out, const char *key)
{
  const tt_param_row *row = NULL;
  if (out == NULL) {
    return tt_fail(ncclInvalidArgument, "ncclParamBind: out is NULL");
  }
  TT_TRY(param_find(key, &row));
  *out = (ncclParamHandle_t)(uintptr_t)row;
  return ncclSuccess;
}

// The number behind a handle when it lies in min…max.
static ncclResult_t get_number(ncclParamHandle_t h, const void *out, int64_t min, int64_t max, int64_t *value)
{
  if (h == NULL || out == NULL) {
    return tt_fail(ncclInvalidArgument, "ncclParamGet: %s is NULL", h == NULL ? "the handle" : "out");
  }
  int64_t number;
  if (!tt_param_int(param_row_of(h), &number)) {
    return tt_fail(ncclInvalidArgument, "%s is a text: read it with ncclParamGetStr", param_row_of(h)->name);
  }
  if (number < min || number > max) {
    return tt_fail(ncclInvalidArgument, "%s = %lld does not fit: read it with ncclParamGetI64", param_row_of(h)->name,
                   (long long)number);
  }
  *value = number;
  return ncclSuccess;
}

#define GETTER(name, type, min, max)                          \
  TT_TWIN(name);                                              \
  TT_EXPORT ncclResult_t name(ncclParamHandle_t h, type *out) \
  {                                                           \
    int64_t value;                                            \
    TT_TRY(get_number(h, out, (min), (max), &value));         \
    *out = (type)value;                                       \
    return ncclSuccess;                                       \
  }

GETTER(ncclParamGetI8, int8_t, INT8_MIN, INT8_MAX)
GETTER(ncclParamGetI16, int16_t, INT16_MIN, INT16_MAX)
GETTER(ncclParamGetI32, int32_t, INT32_MIN, INT32_MAX)
GETTER(ncclParamGetI64, int64_t, INT64_MIN, INT64_MAX)
GETTER(ncclParamGetU8, uint8_t, 0, UINT8_MAX)
GETTER(ncclParamGetU16, uint16_t, 0, UINT16_MAX)
GETTER(ncclParamGetU32, uint32_t, 0, UINT32_MAX)
GETTER(ncclParamGetU64, uint64_t, 0, INT64_MAX)

TT_TWIN(ncclParamGetStr);
TT_EXPORT ncclResult_t ncclParamGetStr(ncclParamHandle_t h, const char **out)
{
  static __thread char text[TEXT_BYTES];
  if (h == NULL || out == NULL) {
    return tt_fail(ncclInvalidArgument, "ncclParamGetStr: %s is NULL", h == NULL ? "the handle" : "out");
  }
  tt_param_text(param_row_of(h), text, sizeof text);
  *out = text;
  return ncclSuccess;
}

TT_TWIN(ncclParamGet);
TT_EXPORT ncclResult_t ncclParamGet(ncclParamHandle_t h, void *out, int maxLen, int *len)
{
  char text[TEXT_BYTES];
  int64_t number;
  const void *bytes = text;
  size_t size;
  if (h == NULL || out == NULL || len == NULL) {
    return tt_fail(ncclInvalidArgument, "ncclParamGet: %s is NULL",
                   h == NULL     ? "the handle"
                   : out == NULL ? "out"
                                 : "len");
  }
  if (tt_param_int(param_row_of(h), &number)) {
    bytes = &number;
    size = sizeof number;
  } else {
    size = TT_MIN(tt_param_text(param_row_of(h), text, sizeof text), sizeof text - 1) + 1;
  }
  if (maxLen < 0 || (size_t)maxLen < size) {
    return tt_fail(ncclInvalidArgument, "ncclParamGet: %s has %zu bytes, the buffer %d", param_row_of(h)->name, size,
                   maxLen);
  }
  memcpy(out, bytes, size);
  *len = (int)size;
  return ncclSuccess;
}

TT_TWIN(ncclParamGetParameter);
TT_EXPORT ncclResult_t ncclParamGetParameter(const char *key, const char **value, int *valueLen)
{
  static __thread char text[TEXT_BYTES];
  const tt_param_row *row = NULL;
  if (value == NULL) {
    return tt_fail(ncclInvalidArgument, "ncclParamGetParameter: value is NULL");
  }
  TT_TRY(param_find(key, &row));
  tt_param_text(row, text, sizeof text);
  *value = text;
  if (valueLen != NULL) {
    *valueLen = (int)strlen(text);
  }
  return ncclSuccess;
}

// Fills `table` (may be NULL) with the keys to show. Returns their number.
static int list_keys(const char **table, bool all)
{
  int n = 0;
  for (size_t i = 0; i < tt_param_count(); i++) {
    const tt_param_row *row = tt_param_row_at(i);
    if (!all && (row->flags & TT_PARAM_HIDDEN)) {
      continue;
    }
    if (table != NULL) {
      table[n] = row->name;
    }
    n++;
  }
  return n;
}

TT_TWIN(ncclParamGetAllParameterKeys);
TT_EXPORT ncclResult_t ncclParamGetAllParameterKeys(const char ***table, int *tableLen)
{
  // The choice never changes in a process, so that one table serves all threads. Built at the first call; a thread that
  // loses the race to publish it throws its own away.
  static const char **keys;
  if (table == NULL || tableLen == NULL) {
    return tt_fail(ncclInvalidArgument, "ncclParamGetAllParameterKeys: %s is NULL",
                   table == NULL ? "table" : "tableLen");
  }
  bool all = tt_params_get()->param_dump_all != 0;
  const char **have = __atomic_load_n(&keys, __ATOMIC_ACQUIRE);
  if (have == NULL) {
    const char **made;
    TT_TRY(TT_NEW(made, tt_param_count(), "no memory for a table of %zu parameter keys", tt_param_count()));
    list_keys(made, all);
    if (__atomic_compare_exchange_n(&keys, &have, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
      have = made;
    } else {
      tt_free(made);
    }
  }
  *table = have;
  *tableLen = list_keys(NULL, all);
  return ncclSuccess;
}

TT_TWIN(ncclParamDumpAll);
TT_EXPORT void ncclParamDumpAll(void)
{
  tt_param_dump(tt_params_get()->param_dump_all != 0);
}
