// cuda_litmus_test.c: a number that is seen has all that was written before it: between kernels of two streams, the
// host and kernels, kernels and the host, and two processes. The payload lies in device memory or in pinned memory of
// the host. On the driver for tests in its nastier modes, with few rounds; on a real one (CUDA_TEST_DRIVER) with many.
//
// A round: the producer copies one of REGIONS regions of random words to a slot, and posts its number. The consumer has
// waited for the number, adds the slot's words to its sums, and gives the slot back. In the end each sum tells whether
// some word was that of another round.
#include "cuda_gpu.h"

#include <sys/mman.h>

#include "harness.h"

// Sanitizers make the driver's machine up to twenty times slower.
#if defined TT_TSAN || defined TT_ASAN
enum { SIM_ROUNDS = 12, SIM_WORDS = 60 };
#else
enum { SIM_ROUNDS = 60, SIM_WORDS = 300 };
#endif
enum { SLOTS = 4, REGIONS = 16, MOST_WORDS = 4096, MOST_ROUNDS = 20000 };

typedef enum { BY_KERNEL, BY_HOST } side;

// What both sides see: pinned, and shared where there are two processes.
typedef struct common {
  tt_cuda_slot header[SLOTS]; // whose number is the round's, plus 1
  _Atomic uint32_t head;      // rounds that the consumer has given back
  uint32_t stop, go;
  tt_cuda_fault fault;
  CUipcMemHandle handle; // of the slots, where these lie in device memory
  tt_cuda_operand produce[REGIONS][SLOTS][2], consume[SLOTS][3];
  tt_cuda_post posts[MOST_ROUNDS], backs[MOST_ROUNDS];
  uint32_t region[REGIONS][MOST_WORDS];
  uint32_t slot[SLOTS][MOST_WORDS]; // unless they lie in device memory
  uint32_t sums[MOST_WORDS], host_sums[MOST_WORDS];
} common;

static common *c;
static CUdeviceptr slots;
static CUstream producer, consumer;
static uint32_t rounds, words;

static void *map_shared(size_t bytes)
{
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(memory != MAP_FAILED);
  return memory;
}

static size_t common_bytes(void)
{
  return TT_ROUND_UP(sizeof(common), 4096);
}

// A step without parts.
static tt_cuda_step base(void)
{
  return (tt_cuda_step){.port = {.stop = gpu_at(&c->stop), .fault = gpu_at(&c->fault)}, .call = {.sig = 5, .count = 6}};
}

static CUdeviceptr slot_at(uint32_t s)
{
  return slots + (CUdeviceptr)s * MOST_WORDS * 4;
}

// ---- The lists that kernels read ----

static uint32_t region_of(uint32_t round)
{
  return round * 7 % REGIONS;
}

static void fill_common(void)
{
  uint64_t x = 88172645463325252ULL;
  for (uint32_t i = 0; i < REGIONS * MOST_WORDS; i++) {
    x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    (&c->region[0][0])[i] = (uint32_t)(x >> 32);
  }
  for (uint32_t i = 0; i < rounds; i++) {
    c->posts[i] = (tt_cuda_post){.at = gpu_at(&c->header[i % SLOTS]), .seq = i + 1, .bytes = i};
    c->backs[i] = (tt_cuda_post){.at = gpu_at(&c->head), .seq = i + 1, .word = 1};
  }
}

static void list_produced(void)
{
  for (uint32_t s = 0; s < SLOTS; s++) {
    for (uint32_t k = 0; k < REGIONS; k++) {
      c->produce[k][s][0].at = gpu_at(c->region[k]);
      c->produce[k][s][1].at = slot_at(s);
    }
  }
}

static void list_consumed(void)
{
  for (uint32_t s = 0; s < SLOTS; s++) {
    c->consume[s][0].at = slot_at(s);
    c->consume[s][1].at = c->consume[s][2].at = gpu_at(c->sums);
  }
}

static void make_common(void)
{
  rounds = real_driver() ? MOST_ROUNDS : SIM_ROUNDS;
  words = real_driver() ? MOST_WORDS : SIM_WORDS;
  c = map_shared(common_bytes());
  fill_common();
}

static void pin_common(void)
{
  DO(cu->MemHostRegister(c, common_bytes(), CU_MEMHOSTREGISTER_PORTABLE));
}

// ---- Rounds ----

static void post(CUstream stream, const tt_cuda_post *what)
{
  tt_cuda_step s = base();
  s.post = (tt_cuda_posts){.posts = gpu_at(what), .nposts = 1};
  gpu_launch(gpu_kernel("step", "copy"), 1, &s, stream);
}

static void produce_by_kernel(uint32_t i)
{
  if (i >= SLOTS) {
    DO(cu->StreamWaitValue32(producer, gpu_at(&c->head), i - SLOTS + 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  tt_cuda_step copy = base();
  copy.operands = gpu_at(c->produce[region_of(i)][i % SLOTS]);
  copy.combine = (tt_cuda_combine){.count = (uint64_t)words * 4, .nsrc = 1, .ndst = 1};
  gpu_launch(gpu_kernel("step", "copy"), 4, &copy, producer);
  post(producer, &c->posts[i]);
}

static void consume_by_kernel(uint32_t i)
{
  tt_redop op;
  tt_kernel sum;
  DO(cu->StreamWaitValue32(consumer, gpu_at(&c->header[i % SLOTS].seq), i + 1, CU_STREAM_WAIT_VALUE_GEQ));
  tt_redop_builtin(&op, ncclUint32, ncclSum, 2);
  tt_kernel_choose(&(tt_kernel_use){.op = &op, .nsrc = 2, .ndst = 1, .count = words}, &sum);
  tt_cuda_step s = base();
  s.operands = gpu_at(c->consume[i % SLOTS]);
  s.combine = sum.args;
  gpu_launch(gpu_kernel(sum.module, sum.name), 4, &s, consumer);
  post(consumer, &c->backs[i]);
}

static void produce_by_host(uint32_t i)
{
  while ((int32_t)(atomic_load_explicit(&c->head, memory_order_acquire) + SLOTS - i) <= 0) {
    sched_yield();
  }
  memcpy(c->slot[i % SLOTS], c->region[region_of(i)], words * sizeof(uint32_t));
  __atomic_store_n(&c->header[i % SLOTS].seq, i + 1, __ATOMIC_RELEASE);
}

static void consume_by_host(uint32_t i)
{
  const tt_cuda_slot *h = &c->header[i % SLOTS];
  while (__atomic_load_n(&h->seq, __ATOMIC_ACQUIRE) != i + 1) {
    sched_yield();
  }
  assert_true(h->bytes == i && h->sig == 5 && h->count == 6);
  for (uint32_t k = 0; k < words; k++) {
    c->host_sums[k] += c->slot[i % SLOTS][k];
  }
  atomic_store_explicit(&c->head, i + 1, memory_order_release);
}

// The kernel's side of a round is queued first: the other one may come at any moment.
static void run_rounds(side from, side to)
{
  for (uint32_t i = 0; i < rounds; i++) {
    if (from == BY_KERNEL) {
      produce_by_kernel(i);
    }
    if (to == BY_KERNEL) {
      consume_by_kernel(i);
    }
    if (from == BY_HOST) {
      produce_by_host(i);
    } else if (to == BY_HOST) {
      consume_by_host(i);
    }
  }
}

static void check_sums(const uint32_t *sums)
{
  for (uint32_t k = 0; k < words; k++) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < rounds; i++) {
      sum += c->region[region_of(i)][k];
    }
    if (sums[k] != sum) {
      fail_msg("word %u: some round saw another round's", k);
    }
  }
  assert_int_equal(c->fault.code, TT_CUDA_FINE);
}

// ---- In one process ----

static void try_sides(side from, side to, bool device)
{
  make_common();
  pin_common();
  slots = device ? gpu_memory(sizeof c->slot) : gpu_at(c->slot);
  list_produced();
  list_consumed();
  gpu_kernel("step", "copy"); // loaded before a stream waits
  gpu_kernel("Uint32", "combine");
  producer = gpu_stream();
  consumer = gpu_stream();
  run_rounds(from, to);
  DO(cu->StreamSynchronize(producer));
  DO(cu->StreamSynchronize(consumer));
  check_sums(to == BY_KERNEL ? c->sums : c->host_sums);
  DO(cu->StreamDestroy(producer));
  DO(cu->StreamDestroy(consumer));
  if (device) {
    DO(cu->MemFree(slots));
  }
  DO(cu->MemHostUnregister(c));
  munmap(c, common_bytes());
}

static void test_kernels(void **state)
{
  (void)state;
  gpu_open();
  try_sides(BY_KERNEL, BY_KERNEL, true);
  try_sides(BY_KERNEL, BY_KERNEL, false);
}

static void test_host_to_kernel(void **state)
{
  (void)state;
  gpu_open();
  try_sides(BY_HOST, BY_KERNEL, false);
}

static void test_kernel_to_host(void **state)
{
  (void)state;
  gpu_open();
  try_sides(BY_KERNEL, BY_HOST, false);
}

// ---- In two processes ----

static void process_body(int rank, void *arg)
{
  const bool device = *(const bool *)arg;
  gpu_open();
  pin_common();
  slots = gpu_at(c->slot);
  if (rank == 0 && device) {
    slots = gpu_memory(sizeof c->slot);
    DO(cu->IpcGetMemHandle(&c->handle, slots));
  }
  meet(2);
  if (rank == 1 && device) {
    DO(cu->IpcOpenMemHandle(&slots, c->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  }
  rank == 0 ? list_produced() : list_consumed();
  producer = consumer = gpu_stream();
  for (uint32_t i = 0; i < rounds; i++) {
    rank == 0 ? produce_by_kernel(i) : consume_by_kernel(i);
  }
  DO(cu->StreamSynchronize(producer));
  meet(2);
  if (rank == 1) {
    check_sums(c->sums);
  }
  meet(2); // the memory is there until then
}

static void test_processes(void **state)
{
  (void)state;
  for (int device = 0; device < 2; device++) {
    bool where = device;
    make_common();
    PROCESSES(2, 60, process_body, &where);
    munmap(c, common_bytes());
  }
}

static int in_mode(const char *modes, unsigned number)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_processes), // their parent has not opened the driver
                                     cmocka_unit_test(test_kernels), cmocka_unit_test(test_host_to_kernel),
                                     cmocka_unit_test(test_kernel_to_host)};
  (void)number;
  set_modes(modes, "litmus-test");
  return cmocka_run_group_tests_name(modes, tests, NULL, NULL);
}

// An argument chooses tests by name; CUDA_LITMUS_MODE one mode.
int main(int argc, char **argv)
{
  static const char *const modes[] = {"", "queues=1", "order=random,stores,stale,step=500,seed=5",
                                      "order=random,stores,stale,seed=8,slices"};
  use_driver();
  if (argc > 1) {
    cmocka_set_test_filter(argv[1]);
  }
  return for_each_mode(modes, TT_COUNT(modes), 1, getenv("CUDA_LITMUS_MODE"), in_mode) != 0;
}
