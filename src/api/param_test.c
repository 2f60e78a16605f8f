#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "nccl.h"

static ncclParamHandle_t bind_key(const char *key)
{
  ncclParamHandle_t h = NULL;
  assert_int_equal(ncclParamBind(&h, key), ncclSuccess);
  assert_non_null(h);
  return h;
}

static void reads_numbers(void **unused)
{
  (void)unused;
  ncclParamHandle_t h = bind_key("NCCL_BUFFSIZE"); // 300 in the environment
  int8_t i8 = 5;
  uint8_t u8 = 5;
  int16_t i16 = 0;
  uint16_t u16 = 0;
  int32_t i32 = 0;
  uint32_t u32 = 0;
  int64_t i64 = 0;
  uint64_t u64 = 0;
  assert_int_equal(ncclParamGetI8(h, &i8), ncclInvalidArgument);
  assert_int_equal(ncclParamGetU8(h, &u8), ncclInvalidArgument);
  assert_int_equal(i8 + u8, 10);
  assert_int_equal(
      ncclParamGetI16(h, &i16) + ncclParamGetU16(h, &u16) + ncclParamGetI32(h, &i32) + ncclParamGetU32(h, &u32), 0);
  assert_int_equal(ncclParamGetI64(h, &i64) + ncclParamGetU64(h, &u64), 0);
  assert_true(i16 == 300 && u16 == 300 && i32 == 300 && u32 == 300 && i64 == 300 && u64 == 300);
  assert_int_equal(pncclParamGetI8(bind_key("NCCL_IB_TIMEOUT"), &i8), ncclSuccess);
  assert_int_equal(i8, 20);
  assert_int_equal(ncclParamGetU64(bind_key("NCCL_IB_SL"), &u64), ncclInvalidArgument); // -1
}

static void reads_texts(void **unused)
{
  (void)unused;
  const char *text = NULL;
  int32_t number = 0;
  int len = 0;
  assert_int_equal(ncclParamGetStr(bind_key("NCCL_RAS_ADDR"), &text), ncclSuccess);
  assert_string_equal(text, "localhost:28028");
  assert_int_equal(ncclParamGetI32(bind_key("NCCL_RAS_ADDR"), &number), ncclInvalidArgument);
  assert_int_equal(ncclParamGetParameter("NCCL_BUFFSIZE", &text, &len), ncclSuccess);
  assert_string_equal(text, "300");
  assert_int_equal(len, 3);
  assert_int_equal(ncclParamGetParameter("NCCL_NET", &text, NULL), ncclSuccess);
  assert_string_equal(text, "");
}

static void reads_bytes(void **unused)
{
  (void)unused;
  char bytes[16];
  int64_t number;
  int len = -1;
  assert_int_equal(ncclParamGet(bind_key("NCCL_RAS_ADDR"), bytes, 15, &len), ncclInvalidArgument);
  assert_int_equal(len, -1);
  assert_int_equal(ncclParamGet(bind_key("NCCL_RAS_ADDR"), bytes, 16, &len), ncclSuccess);
  assert_string_equal(bytes, "localhost:28028");
  assert_int_equal(len, 16);
  assert_int_equal(ncclParamGet(bind_key("NCCL_BUFFSIZE"), &number, sizeof number, &len), ncclSuccess);
  assert_int_equal(len, sizeof number);
  assert_true(number == 300);
}

static void lists_keys(void **unused)
{
  (void)unused;
  const char **table = NULL;
  int n = 0;
  int seen = 0;
  assert_int_equal(ncclParamGetAllParameterKeys(&table, &n), ncclSuccess);
  assert_true(n > 100);
  for (int i = 0; i < n; i++) {
    const char *value;
    assert_int_equal(ncclParamGetParameter(table[i], &value, NULL), ncclSuccess);
    assert_string_not_equal(table[i], "NCCL_HOSTID"); // hidden
    seen += strcmp(table[i], "NCCL_ALGO") == 0;
  }
  assert_int_equal(seen, 1);
}

static void refuses_nonsense(void **unused)
{
  (void)unused;
  ncclParamHandle_t h = NULL;
  const char *text = "untouched";
  int number = 0;
  char byte;
  assert_int_equal(ncclParamBind(&h, "NCCL_DEBG"), ncclInvalidArgument);
  assert_null(h);
  assert_int_equal(ncclParamBind(NULL, "NCCL_DEBUG"), ncclInvalidArgument);
  assert_int_equal(ncclParamBind(&h, NULL), ncclInvalidArgument);
  assert_int_equal(ncclParamGetI32(NULL, &number), ncclInvalidArgument);
  assert_int_equal(ncclParamGetI32(bind_key("NCCL_BUFFSIZE"), NULL), ncclInvalidArgument);
  assert_int_equal(ncclParamGetStr(NULL, &text), ncclInvalidArgument);
  assert_int_equal(ncclParamGet(bind_key("NCCL_BUFFSIZE"), &byte, -1, &number), ncclInvalidArgument);
  assert_int_equal(ncclParamGetParameter("nonsense", &text, &number), ncclInvalidArgument);
  assert_string_equal(text, "untouched");
  assert_int_equal(ncclParamGetAllParameterKeys(NULL, &number), ncclInvalidArgument);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_numbers), cmocka_unit_test(reads_texts),      cmocka_unit_test(reads_bytes),
      cmocka_unit_test(lists_keys),    cmocka_unit_test(refuses_nonsense),
  };
  setenv("NCCL_BUFFSIZE", "300", 1);
  unsetenv("NCCL_PARAM_DUMP_ALL");
  return cmocka_run_group_tests_name("api/param", tests, NULL, NULL);
}
