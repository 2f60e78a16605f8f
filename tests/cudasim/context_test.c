// context_test.c: devices, contexts, peers.
#include "rig.h"

static void devices(void)
{
  int count = 0, value = 0;
  char name[64], bus[32];
  CUuuid a, b;
  CUdevice found;
  size_t bytes;
  OK(cu.DeviceGetCount(&count));
  CHECK(count == 3);
  for (int i = 0; i < count; i++) {
    CUdevice device;
    OK(cu.DeviceGet(&device, i));
    OK(cu.DeviceGetName(name, sizeof name, device));
    OK(cu.DeviceGetPCIBusId(bus, sizeof bus, device));
    OK(cu.DeviceGetByPCIBusId(&found, bus));
    CHECK(found == device);
    OK(cu.DeviceTotalMem(&bytes, device));
    CHECK(bytes == (size_t)64 << 20);
  }
  OK(cu.DeviceGetUuid(&a, 0));
  OK(cu.DeviceGetUuid(&b, 1));
  CHECK(memcmp(&a, &b, sizeof a) != 0);
  OK(cu.DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 2));
  CHECK(value == 32);
  OK(cu.DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 2));
  CHECK(value == 5);
  GIVES(CUDA_ERROR_INVALID_DEVICE, cu.DeviceGet(&found, 3));
}

static void test_devices(void **state)
{
  (void)state;
  rig_says("devices=3,memory=64,sms=5", 1, devices, "there is no device 3 (CUDA_ERROR_INVALID_DEVICE)");
}

static void stack(void)
{
  CUcontext a, b, now;
  CUdevice device;
  CUdeviceptr ptr;
  unsigned long long ids[2];
  unsigned flags;
  int active;
  GIVES(CUDA_ERROR_INVALID_CONTEXT, cu.MemAlloc(&ptr, 4));
  OK(cu.DevicePrimaryCtxGetState(0, &flags, &active));
  CHECK(active == 0);
  OK(cu.DevicePrimaryCtxRetain(&a, 0));
  OK(cu.DevicePrimaryCtxRetain(&b, 1));
  OK(cu.CtxGetId(a, &ids[0]));
  OK(cu.CtxGetId(b, &ids[1]));
  CHECK(a != b && ids[0] != ids[1]);
  OK(cu.CtxPushCurrent(a));
  OK(cu.CtxPushCurrent(b));
  OK(cu.CtxGetDevice(&device));
  CHECK(device == 1);
  OK(cu.CtxPopCurrent(&now));
  CHECK(now == b);
  OK(cu.CtxGetCurrent(&now));
  CHECK(now == a);
  OK(cu.DevicePrimaryCtxRetain(&now, 0));
  CHECK(now == a);
  OK(cu.DevicePrimaryCtxRelease(0));
  OK(cu.MemAlloc(&ptr, 4));
  OK(cu.DevicePrimaryCtxRelease(0)); // the last
  GIVES(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu.MemAlloc(&ptr, 4));
  GIVES(CUDA_ERROR_INVALID_CONTEXT, cu.DevicePrimaryCtxRelease(0));
}

static void test_stack(void **state)
{
  (void)state;
  rig_says("devices=2", 1, stack, "a context that has been destroyed");
}

static void peers(void)
{
  int can;
  CUcontext a = rig_context(0), b = rig_context(1);
  CUdeviceptr there = rig_memory(4);
  OK(cu.DeviceCanAccessPeer(&can, 0, 1));
  CHECK(can == 1);
  OK(cu.DeviceCanAccessPeer(&can, 1, 1));
  CHECK(can == 0);
  OK(cu.CtxSetCurrent(a));
  GIVES(CUDA_ERROR_INVALID_DEVICE, cu.CtxEnablePeerAccess(a, 0));
  GIVES(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cu.CtxDisablePeerAccess(b));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemsetD32(there, 1, 1));
  OK(cu.CtxEnablePeerAccess(b, 0));
  GIVES(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cu.CtxEnablePeerAccess(b, 0));
  OK(cu.MemsetD32(there, 1, 1));
  OK(cu.CtxSynchronize());
  OK(cu.CtxDisablePeerAccess(b));
  OK(rig_launch(rig_kernel("put"), 1, 1, there, 2, NULL));
  GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cu.CtxSynchronize());
}

static void test_peers(void **state)
{
  (void)state;
  rig_says("devices=2", 1, peers, "memory of device 1, which the context of device 0 has not enabled");
}

static void no_peers(void)
{
  int can;
  CUcontext b = rig_context(1);
  rig_context(0);
  OK(cu.DeviceCanAccessPeer(&can, 0, 1));
  CHECK(can == 0);
  GIVES(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cu.CtxEnablePeerAccess(b, 0));
}

static void test_no_peers(void **state)
{
  (void)state;
  rig_run("devices=2,peers=none", 1, no_peers);
}

static void forked(void)
{
  rig_context(0);
  CUdeviceptr ptr = rig_memory(8);
  OK(rig_launch(rig_kernel("busy"), 1, 1, ptr, 1, NULL)); // the scheduler has its lock most of the time
  for (int i = 0; i < 20; i++) {
    pid_t pid = fork();
    if (pid == 0) {
      GIVES(CUDA_ERROR_NOT_INITIALIZED, cu.MemAlloc(&ptr, 4));
      GIVES(CUDA_ERROR_NOT_INITIALIZED, cu.Init(0));
      _exit(0);
    }
    int status = 1;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
  }
  ptr = rig_memory(8); // the parent goes on
}

static void test_forked(void **state)
{
  (void)state;
  rig_says("step=10", 1, forked, "the child of a fork");
}

// The machine's devices in another order, and not all.
static void visible(void)
{
  CUuuid uuids[2];
  char bus[32];
  int count;
  CUdevice found;
  OK(cu.DeviceGetCount(&count));
  CHECK(count == 2);
  OK(cu.DeviceGetUuid(&uuids[0], 0));
  OK(cu.DeviceGetUuid(&uuids[1], 1));
  CHECK(uuids[0].bytes[15] == 3 && uuids[1].bytes[15] == 1);
  OK(cu.DeviceGetPCIBusId(bus, sizeof bus, 0));
  CHECK(strcmp(bus, "0000:04:00.0") == 0);
  OK(cu.DeviceGetByPCIBusId(&found, bus));
  CHECK(found == 0);
  GIVES(CUDA_ERROR_INVALID_DEVICE, cu.DeviceGetByPCIBusId(&found, "0000:01:00.0"));
}

static void test_visible(void **state)
{
  (void)state;
  int status;
  setenv("CUDA_VISIBLE_DEVICES", "3,1,9,2", 1); // there is no 9: the list ends before it
  rig_run("devices=4", 1, visible);
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  rig_run_some("devices=4", 1, visible, rig_err, sizeof rig_err, &status);
  unsetenv("CUDA_VISIBLE_DEVICES");
  assert_int_equal(WEXITSTATUS(status), 2);
  assert_non_null(strstr(rig_err, "finds no GPU"));
}

static void nothing(void) {}

// Modes that are not known end it, and no device is no driver.
static void test_modes(void **state)
{
  (void)state;
  static const char *const wrong[] = {"seed",   "seed=x",          "queues=0", "queues=65", "order=lucky", "nothing=1",
                                      "fail=0", "launches=3:some", "stores=1", "box=a/b",   "deadlock="};
  int status;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    rig_run_some(wrong[i], 1, nothing, rig_err, sizeof rig_err, &status);
    assert_int_equal(WEXITSTATUS(status), 2);
    assert_non_null(strstr(rig_err, "CUDASIM: "));
  }
  rig_run_some("devices=0", 1, nothing, rig_err, sizeof rig_err, &status);
  assert_int_equal(WEXITSTATUS(status), 2);
  assert_non_null(strstr(rig_err, "finds no GPU"));
  rig_quiet("seed=7,queues=random,order=turns,launches=64:all,slices,slices=3,stores,stale,blocking,fail=9999:700,"
            "deadlock=0,peers=all,memory=1,sms=1,step=1",
            1, nothing);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_devices),  cmocka_unit_test(test_stack),  cmocka_unit_test(test_peers),
      cmocka_unit_test(test_no_peers), cmocka_unit_test(test_forked), cmocka_unit_test(test_visible),
      cmocka_unit_test(test_modes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
