// nvml_test.c: opening the library, what it is asked (over tests/fakenvml), and facts as text. More of what it is asked
// is in source_test.c, over a library that is not there (nvml_rig.h).
#include "topo/nvml.h"
#include "topo/topo_rig.h"

static void test_no_library(void **state)
{
  (void)state;
  tt_nvml *n = (tt_nvml *)&n;
  assert_int_equal(tt_nvml_open("libthere-is-none.so.7", &n), ncclSuccess);
  assert_null(n);
  n = (tt_nvml *)&n;
  assert_int_equal(tt_nvml_open("libc.so.6", &n), ncclSuccess); // a library, but not this one
  assert_null(n);
  tt_nvml_close(NULL);
}

// With the driver there are GPUs with numbers, without it there is nothing: both are fine.
static void test_real_library(void **state)
{
  (void)state;
  static char bus[TT_NVML_MAX_GPUS][16];
  tt_nvml *n = NULL;
  assert_int_equal(tt_nvml_open("libnvidia-ml.so.1", &n), ncclSuccess);
  for (int i = 0, count = n != NULL ? tt_nvml_list(n, bus) : 0; i < count; i++) {
    tt_gpu_facts gpu;
    assert_true(tt_nvml_gpu_read(n, bus[i], &gpu));
    assert_true(gpu.sm >= 30);
    assert_int_equal(gpu.device_id & 0xffff, 0x10de);
  }
  tt_nvml_close(n);
}

// ---- The library for tests ----

#define KNOWN RIG_MACHINES "/known/"

static const char *fake_library(void)
{
  static char path[1024];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(path, sizeof(path), "%s/lib/fakenvml/libnvidia-ml.so.1", build != NULL ? build : "build");
  return path;
}

static tt_nvml *open_machine(const char *file)
{
  tt_nvml *n = NULL;
  setenv("FAKE_NVML", file, 1);
  assert_int_equal(tt_nvml_open(fake_library(), &n), ncclSuccess);
  assert_non_null(n);
  return n;
}

// A mesh of GPUs, GPUs at NVSwitches, and GPUs that are linked to their CPU, too.
static const struct {
  const char *file, *bus, *facts;
  int count;
} machines[] = {
    {KNOWN "dgx1v_8xV100_4nic/input.xml", "0000:13:00.0",
     "bus 0000:13:00.0\nindex 1\nsm 70\ndevice 20b010de 134f10de\nslot 3 16\nc2c 0 0\nnvlink 0000:12:00.0 1\n"
     "nvlink 0000:16:00.0 2\nnvlink 0000:17:00.0 1\nnvlink 0000:1b:00.0 2\n",
     8},
    {KNOWN "hgx_a100_8gpu_nvswitch_8nic/input.xml", "00000000:12:00.0",
     "bus 0000:12:00.0\nindex 0\nsm 80\ndevice 20b010de 134f10de\nslot 4 16\nc2c 0 0\nnvlink 0000:ff:00.0 12\n", 8},
    {KNOWN "hgx_h100_8gpu_nvswitch_8nic/input.xml", "0000:15:00.0",
     "bus 0000:15:00.0\nindex 1\nsm 90\ndevice 20b010de 134f10de\nslot 5 16\nc2c 0 0\nnvlink 0000:ff:00.0 18\n", 8},
    {KNOWN "mnnvl2_gb200_4gpu_nvswitch_4nic/input.xml", "0000:11:00.0",
     "bus 0000:11:00.0\nindex 0\nsm 100\ndevice 20b010de 134f10de\nslot 5 16\nc2c 10 44712\n"
     "nvlink 0000:ff:00.0 18\n",
     4},
    {KNOWN "seed_a100_sxm4_vm/input.xml", NULL, NULL, 4},
};

static void test_machines(void **state)
{
  (void)state;
  static char bus[TT_NVML_MAX_GPUS][16];
  for (size_t i = 0; i < TT_COUNT(machines); i++) {
    tt_nvml *n = open_machine(machines[i].file);
    tt_gpu_facts gpu;
    char text[4096];
    assert_int_equal(tt_nvml_list(n, bus), machines[i].count);
    if (machines[i].bus != NULL) {
      assert_true(tt_nvml_gpu_read(n, machines[i].bus, &gpu));
      assert_true(tt_gpu_facts_print(&gpu, text, sizeof(text)));
      assert_string_equal(text, machines[i].facts);
    }
    assert_false(tt_nvml_gpu_read(n, "00fe:00:00.0", &gpu));
    tt_nvml_close(n);
  }
}

static void test_library_errors(void **state)
{
  (void)state;
  static const char *const errors[] = {"9", "18", "999"};
  tt_nvml *n = (tt_nvml *)&n;
  for (size_t i = 0; i < TT_COUNT(errors); i++) {
    setenv("FAKE_NVML_ERROR", errors[i], 1);
    assert_int_equal(tt_nvml_open(fake_library(), &n), ncclSuccess);
    assert_null(n);
  }
  unsetenv("FAKE_NVML_ERROR");
  unsetenv("FAKE_NVML");
  assert_int_equal(tt_nvml_open(fake_library(), &n), ncclSuccess);
  assert_null(n);
}

// The process has the one that TUTTI_NVML names.
static void test_of_process(void **state)
{
  (void)state;
  static char bus[TT_NVML_MAX_GPUS][16];
  setenv("FAKE_NVML", KNOWN "hgx_h100_8gpu_nvswitch_8nic/input.xml", 1);
  setenv("FAKE_NVML_GPUS", "82", 1);
  const tt_nvml *n = tt_nvml_get();
  assert_non_null(n);
  assert_ptr_equal(tt_nvml_get(), n);
  assert_int_equal(tt_nvml_list(n, bus), 2);
  unsetenv("FAKE_NVML_GPUS");
}

static int failing;
static int init(void)
{
  return failing;
}

static int shut(void)
{
  return 0;
}

static void test_no_driver(void **state)
{
  (void)state;
  static const int errors[] = {9, 18, 999, -1};
  tt_nvml_ops ops = {.init = init, .shutdown = shut};
  for (size_t i = 0; i < TT_COUNT(errors); i++) {
    tt_nvml *n = (tt_nvml *)&ops;
    failing = errors[i];
    assert_int_equal(tt_nvml_open_ops(&ops, &n), ncclSuccess);
    assert_null(n);
  }
}

static void test_text(void **state)
{
  (void)state;
  tt_gpu_facts gpu = {.bus_id = "0000:0f:00.0",
                      .index = 3,
                      .sm = 100,
                      .device_id = (int)0xf34310de,
                      .subsystem_id = 7,
                      .generation = 5,
                      .width = 16,
                      .nlinks = 2,
                      .c2c_count = 10,
                      .c2c_bw = 40000},
               back;
  char text[512];
  gpu.links[0] = (tt_gpu_link){"0000:c1:00.0", 18};
  gpu.links[1] = (tt_gpu_link){TT_NVML_HIDDEN, 1};
  assert_true(tt_gpu_facts_print(&gpu, text, sizeof(text)));
  assert_true(tt_gpu_facts_parse(text, &back));
  assert_memory_equal(&gpu, &back, sizeof(gpu));
  for (size_t size = 0; size <= strlen(text); size++) {
    char small[512];
    assert_false(tt_gpu_facts_print(&gpu, small, size));
  }
}

static void test_bad_text(void **state)
{
  (void)state;
  static const char *bad[] = {"",
                              "bus 0000:0f:00.0\nindex 1\n",
                              "index 1\nsm 80\n",
                              "bus x\nindex 1\nsm 80\n",
                              "bus 0000:0f:00.0\nindex -1\nsm 80\n",
                              "bus 0000:0f:00.0\nindex 1\nsm 99999999999\n",
                              "bus 0000:0f:00.0\nindex 1\nsm 80\nnvlink 0000:01:00.0 0\n",
                              "bus 0000:0f:00.0\nindex 1\nsm 80\nnvlink 0000:01:00.0 99\n",
                              "bus 0000:0f:00.0\nindex 1\nsm 80\nc2c -1 5\n",
                              "bus 0000:0f:00.0\nindex 1\nsm 80\nc2c 5 0\n",
                              "bus 0000:0f:00.0\nindex 1\nsm 80\nslot 7 16\n"};
  tt_gpu_facts gpu;
  for (size_t i = 0; i < TT_COUNT(bad); i++) {
    if (tt_gpu_facts_parse(bad[i], &gpu)) {
      fail_msg("accepted: %s", bad[i]);
    }
  }
  // More far ends than a GPU has links: the rest is left out.
  char many[8192] = "bus 0000:0f:00.0\nindex 1\nsm 80\n";
  for (int i = 0; i < 200; i++) {
    sprintf(many + strlen(many), "nvlink 0000:%02x:00.0 1\n", i);
  }
  assert_true(tt_gpu_facts_parse(many, &gpu));
  assert_int_equal(gpu.nlinks, TT_GPU_MAX_LINKS);
}

static void test_bus_ids(void **state)
{
  (void)state;
  static const struct {
    const char *text, *sysfs;
  } good[] = {{"0000:0F:00.0", "0000:0f:00.0"},
              {"00000000:0F:1f.7", "0000:0f:1f.7"},
              {"10000:e1:00.0", "10000:e1:00.0"},
              {"0:1:2.3", "0000:01:02.3"}};
  static const char *bad[] = {
      "",           "0000:0f:00",    "0000:0f:20.0",  "0000:0f:00.8", "0000:0f:00.00", "ffffffff:0f:00.0",
      "-1:0f:00.0", " 0000:0f:00.0", "0000:0f:00.0 ", "0x00:0f:00.0", TT_NVML_HIDDEN,  "pci0000:00"};
  char out[16];
  for (size_t i = 0; i < TT_COUNT(good); i++) {
    assert_true(tt_bus_id_sysfs(good[i].text, out));
    assert_string_equal(out, good[i].sysfs);
  }
  for (size_t i = 0; i < TT_COUNT(bad); i++) {
    if (tt_bus_id_sysfs(bad[i], out)) {
      fail_msg("accepted: %s", bad[i]);
    }
  }
}

int main(void)
{
  setenv("TUTTI_NVML", fake_library(), 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_no_library), cmocka_unit_test(test_real_library),   cmocka_unit_test(test_no_driver),
      cmocka_unit_test(test_machines),   cmocka_unit_test(test_library_errors), cmocka_unit_test(test_of_process),
      cmocka_unit_test(test_text),       cmocka_unit_test(test_bad_text),       cmocka_unit_test(test_bus_ids),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
