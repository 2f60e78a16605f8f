// words_test.c: what streams wait for and write.
#include "rig.h"

// Does a wait with these end before the word changes? One that should not is given a few milliseconds.
static bool ends(CUstream stream, _Atomic uint32_t *word, uint32_t now, uint32_t value, unsigned flags, bool should)
{
  CUevent event;
  CUresult result = CUDA_ERROR_NOT_READY;
  uint32_t release = flags == CU_STREAM_WAIT_VALUE_NOR ? 0 : value;
  OK(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
  atomic_store(word, now);
  OK(cu.StreamWaitValue32(stream, at(word), value, flags));
  OK(cu.EventRecord(event, stream));
  for (int i = 0; i < (should ? 20000 : 10) && result == CUDA_ERROR_NOT_READY; i++) {
    rig_sleep_ms(1);
    result = cu.EventQuery(event);
  }
  atomic_store(word, release);
  OK(cu.StreamSynchronize(stream));
  OK(cu.EventDestroy(event));
  return result == CUDA_SUCCESS;
}

static void conditions(void)
{
  rig_context(0);
  _Atomic uint32_t *word = rig_words(1);
  CUstream stream = rig_stream();
  static const struct {
    uint32_t now, value;
    unsigned flags;
    bool end;
  } cases[] = {
      {5, 5, CU_STREAM_WAIT_VALUE_GEQ, true},
      {4, 5, CU_STREAM_WAIT_VALUE_GEQ, false},
      {6, 5, CU_STREAM_WAIT_VALUE_GEQ, true},
      {2, 0xfffffffe, CU_STREAM_WAIT_VALUE_GEQ, true}, // the words go round
      {0xfffffffe, 2, CU_STREAM_WAIT_VALUE_GEQ, false},
      {0x80000004, 5, CU_STREAM_WAIT_VALUE_GEQ, true},
      {0x80000005, 5, CU_STREAM_WAIT_VALUE_GEQ, false},
      {6, 5, CU_STREAM_WAIT_VALUE_EQ, false},
      {5, 5, CU_STREAM_WAIT_VALUE_EQ, true},
      {6, 5, CU_STREAM_WAIT_VALUE_AND, true},
      {8, 5, CU_STREAM_WAIT_VALUE_AND, false},
      {0xfffffff0, 7, CU_STREAM_WAIT_VALUE_NOR, true},
      {0xfffffff8, 7, CU_STREAM_WAIT_VALUE_NOR, false},
      {5, 5, CU_STREAM_WAIT_VALUE_EQ | CU_STREAM_WAIT_VALUE_FLUSH, true},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    CHECK(ends(stream, word, cases[i].now, cases[i].value, cases[i].flags, cases[i].end) == cases[i].end);
  }
}

static void test_conditions(void **state)
{
  (void)state;
  rig_quiet("", 1, conditions);
}

static CUstreamBatchMemOpParams word_op(CUstreamBatchMemOpType type, CUdeviceptr where, uint64_t value, unsigned flags)
{
  CUstreamBatchMemOpParams op = {.waitValue = {.operation = type, .address = where}};
  op.waitValue.value64 = value;
  op.waitValue.flags = flags;
  return op;
}

// A batch goes on in its order, across streams, with 64-bit words, and device memory.
static void batches(void)
{
  uint64_t out[2];
  rig_context(0);
  _Atomic uint32_t *word = rig_words(8);
  CUdeviceptr device = rig_memory(16);
  CUstream a = rig_stream(), b = rig_stream();
  OK(cu.MemsetD32(device, 0, 4));
  OK(cu.CtxSynchronize());
  CUstreamBatchMemOpParams ping[] = {
      word_op(CU_STREAM_MEM_OP_WRITE_VALUE_32, at(word), 1, 0),
      word_op(CU_STREAM_MEM_OP_WAIT_VALUE_32, at(word + 1), 1, CU_STREAM_WAIT_VALUE_EQ),
      word_op(CU_STREAM_MEM_OP_WRITE_VALUE_64, device, 0x123456789abc, 0),
      word_op(CU_STREAM_MEM_OP_BARRIER, 0, 0, 0),
      word_op(CU_STREAM_MEM_OP_WAIT_VALUE_64, device + 8, (uint64_t)1 << 40, CU_STREAM_WAIT_VALUE_GEQ),
  };
  CUstreamBatchMemOpParams pong[] = {
      word_op(CU_STREAM_MEM_OP_WAIT_VALUE_32, at(word), 1, CU_STREAM_WAIT_VALUE_EQ),
      word_op(CU_STREAM_MEM_OP_WRITE_VALUE_32, at(word + 1), 1, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER),
      word_op(CU_STREAM_MEM_OP_WRITE_VALUE_64, device + 8, ((uint64_t)1 << 40) + 1, 0),
  };
  OK(cu.StreamBatchMemOp(a, 5, ping, 0));
  OK(cu.StreamBatchMemOp(b, 3, pong, 0));
  OK(cu.StreamSynchronize(a));
  OK(cu.StreamSynchronize(b));
  OK(cu.MemcpyDtoH(out, device, 16));
  CHECK(out[0] == 0x123456789abc && out[1] == ((uint64_t)1 << 40) + 1);
}

static void test_batches(void **state)
{
  (void)state;
  rig_quiet("", 1, batches);
  rig_quiet("order=random,seed=2", 1, batches);
}

static void wrong(void)
{
  uint32_t local = 0;
  rig_context(0);
  _Atomic uint32_t *word = rig_words(2);
  CUstream stream = rig_stream();
  CUstreamBatchMemOpParams op = word_op((CUstreamBatchMemOpType)9, at(word), 0, 0);
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.StreamBatchMemOp(stream, 1, &op, 0));
  op.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.StreamBatchMemOp(stream, 0, &op, 0));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.StreamBatchMemOp(stream, 1, &op, 1));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.StreamWaitValue32(stream, at(word) + 2, 0, 0));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.StreamWaitValue32(stream, at(word), 0, 4));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.StreamWriteValue32(stream, at(word), 0, 2));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.StreamWriteValue32(stream, (CUdeviceptr)(uintptr_t)&local, 0, 0));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.StreamWriteValue32(stream, at(word + 2), 0, 0));
  op = word_op(CU_STREAM_MEM_OP_WRITE_VALUE_64, at(word) + 4, 0, 0);
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.StreamBatchMemOp(stream, 1, &op, 0));
  OK(cu.StreamSynchronize(stream));
}

static void test_wrong(void **state)
{
  (void)state;
  rig_says("", 1, wrong, "is not aligned to 4 bytes");
  assert_non_null(strstr(rig_err, "is not aligned to 8 bytes"));
  assert_non_null(strstr(rig_err, "is in no memory of a device nor pinned host memory"));
}

// The word's memory goes while a stream waits for it.
static void unmapped(void)
{
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle;
  CUdeviceptr ptr;
  rig_context(0);
  OK(cu.MemCreate(&handle, 2 << 20, &prop, 0));
  OK(cu.MemAddressReserve(&ptr, 2 << 20, 0, 0, 0));
  OK(cu.MemMap(ptr, 2 << 20, 0, handle, 0));
  OK(cu.MemSetAccess(ptr, 2 << 20, &access, 1));
  CUstream stream = rig_stream();
  OK(cu.StreamWaitValue32(stream, ptr, 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cu.MemUnmap(ptr, 2 << 20));
  GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cu.StreamSynchronize(stream));
  GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cu.MemAlloc(&ptr, 4)); // it stays so
}

static void test_unmapped(void **state)
{
  (void)state;
  rig_says("", 1, unmapped, "operation on a word: ");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_conditions),
      cmocka_unit_test(test_batches),
      cmocka_unit_test(test_wrong),
      cmocka_unit_test(test_unmapped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
