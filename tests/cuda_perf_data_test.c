// cuda_perf_data_test.c: data that the perf programs make on a GPU are those that they make on the host, and what they
// find wrong there is what they find on the host: every type, aligned to its elements alone, with gaps and guards.
#include "cuda_gpu.h"

#include "device.h"
#include "options.h"
#include "types.h"

// Of a large case each thread of the kernels has several elements. Sanitizers, which make the driver's machine up to
// twenty times slower, have none, and fewer averages.
#if defined TT_TSAN || defined TT_ASAN
enum { COUNT = 300, LARGE = 0, ROOM = 4096, AVG_STEP = 3 };
#else
enum { COUNT = 1500, LARGE = 300000, ROOM = LARGE + 64, AVG_STEP = 1 };
#endif
enum { RANKS = 3, EXTENT = ROOM + 2 * PERF_GUARD };

// The middle third is nobody's, in the output; of the rest one part is reduced, one is copied from another rank.
static void put_input(const perf_case *c, perf_layout *l)
{
  perf_put_input(l, 0, c->send_count, c->rank, PERF_PERIOD - 100);
}

static void put_output(const perf_case *c, perf_layout *l)
{
  const size_t third = c->recv_count / 3;
  perf_put_reduced(l, 0, third, 2 * PERF_PERIOD - 7);
  perf_put_copy(l, 2 * third, third, 1, 3 * PERF_PERIOD - 40);
}

static const perf_coll coll = {.input = put_input, .output = put_output};

// Writes what the operation would have written.
static const perf_coll writes = {.input = put_output, .output = put_output};

// One rank's buffers on the device, and the same on the host.
typedef struct both {
  perf_rank r;
  perf_buffers host;
  char *device_memory, *host_memory, *image; // of one allocation with both buffers
} both;

static void open_both(both *b)
{
  perf_device_cuda.open();
  b->r = (perf_rank){.rank = 1, .nranks = RANKS};
  perf_device_cuda.set(0);
  perf_device_cuda.open_stream(&b->r);
  void *memory = NULL;
  perf_device_cuda.alloc(&b->r, 2 * EXTENT, &memory);
  b->device_memory = memory;
  b->host_memory = calloc(1, 2 * EXTENT);
  b->image = malloc(2 * EXTENT);
  assert_true(b->host_memory != NULL && b->image != NULL);
}

static void close_both(both *b)
{
  perf_device_cuda.free(&b->r, b->device_memory);
  perf_device_cuda.close_stream(&b->r);
  free(b->host_memory);
  free(b->image);
}

static perf_buffers buffers_at(char *memory, size_t skew)
{
  return (perf_buffers){.send = memory + PERF_GUARD + skew, .recv = memory + EXTENT + PERF_GUARD + skew, .size = ROOM};
}

// Both sides have the same bytes in both buffers and around them.
static void compare_memory(const both *b, const perf_case *c, const char *what)
{
  gpu_ok(cu->StreamSynchronize(b->r.stream), what);
  gpu_ok(cu->MemcpyDtoH(b->image, gpu_at(b->device_memory), 2 * EXTENT), what);
  for (size_t i = 0; i < 2 * EXTENT; i++) {
    if (b->image[i] != b->host_memory[i]) {
      fail_msg("%s, type %d, op %d: byte %zu is %02x on the GPU, %02x on the host", what, (int)c->type, c->op, i,
               (uint8_t)b->image[i], (uint8_t)b->host_memory[i]);
    }
  }
}

// Both sides find the same, which is `wrong` elements.
static void compare_findings(const both *b, const perf_case *c, size_t wrong, const char *what)
{
  perf_mismatch on_host = {0}, on_gpu = {0};
  const size_t host = perf_check(&coll, c, b->r.pattern, &b->host, 3, &on_host),
               gpu = perf_check(&coll, c, b->r.pattern, &b->r.buffers, 3, &on_gpu);
  if (gpu != host || host != wrong || on_gpu.element != on_host.element || on_gpu.got != on_host.got ||
      on_gpu.want != on_host.want || on_gpu.where != on_host.where) {
    fail_msg("%s, type %d, op %d: %zu wrong on the GPU, %zu on the host, not %zu; first element %zu, %zu", what,
             (int)c->type, c->op, gpu, host, wrong, on_gpu.element, on_host.element);
  }
}

// What the operation would have written, on both sides.
static void write_outputs(both *b, const perf_case *c)
{
  perf_case in_place = *c;
  in_place.in_place = true;
  perf_buffers other = buffers_at(b->image, (size_t)(b->host.send - b->host_memory) - PERF_GUARD);
  perf_fill(&writes, &in_place, b->r.pattern, &other, 3);
  memcpy(b->host.recv, other.recv, c->recv_count * c->elt);
  DO(cu->MemcpyHtoD(gpu_at(b->device_memory), b->host_memory, 2 * EXTENT));
}

// Adds to the bits of an element on both sides.
static void change(both *b, const perf_case *c, char *at, unsigned by)
{
  perf_store(at, 0, c->elt, perf_load(at, 0, c->elt) + by);
  DO(cu->MemcpyHtoD(gpu_at(b->device_memory + (at - b->host_memory)), at, c->elt));
}

// One error after the other, the last place first, so that each is the first one when it is made.
static void plant_errors(both *b, const perf_case *c)
{
  const size_t elt = c->elt, third = c->recv_count / 3;
  const unsigned tolerance = b->r.pattern->tolerance;
  change(b, c, b->host.recv, tolerance);
  compare_findings(b, c, 0, "an element as far off as it may be");
  change(b, c, b->host.send + (c->send_count - 1) * elt, 1);
  compare_findings(b, c, 1, "the end of the input");
  b->host.recv[-1] ^= 1;
  DO(cu->MemcpyHtoD(gpu_at(b->device_memory + (b->host.recv - b->host_memory) - 1), b->host.recv - 1, 1));
  compare_findings(b, c, 2, "the byte in front of the output");
  change(b, c, b->host.recv + (3 * third - 1) * elt, 1);
  compare_findings(b, c, 3, "the end of what is copied");
  change(b, c, b->host.recv + (2 * third - 1) * elt, 1);
  compare_findings(b, c, 4, "the end of the gap");
  change(b, c, b->host.recv + (third - 1) * elt, 2 * tolerance + 1);
  change(b, c, b->host.recv + (third - 2) * elt, 2 * tolerance + 1);
  compare_findings(b, c, 6, "the end of what is reduced");
}

static void try_case(both *b, perf_patterns *set, int type, int op, size_t count)
{
  const perf_case c = {.rank = 1,
                       .nranks = RANKS,
                       .root = -1,
                       .type = (ncclDataType_t)type,
                       .elt = perf_type_info(type)->size,
                       .op = op,
                       .send_count = count,
                       .recv_count = count};
  b->r.pattern = perf_pattern_acquire(set, type, op, RANKS, 1);
  assert_non_null(b->r.pattern);
  perf_device_cuda.load(&b->r);
  b->host = buffers_at(b->host_memory, 3 * c.elt);
  b->r.buffers = buffers_at(b->device_memory, 3 * c.elt);
  b->r.buffers.reach = perf_device_cuda.reach;
  b->r.buffers.arg = &b->r;
  memset(b->host_memory, 0, 2 * EXTENT);
  DO(cu->MemsetD8(gpu_at(b->device_memory), 0, 2 * EXTENT));
  perf_fill(&coll, &c, b->r.pattern, &b->host, 3);
  perf_fill(&coll, &c, b->r.pattern, &b->r.buffers, 3);
  compare_memory(b, &c, "filled");
  write_outputs(b, &c);
  compare_findings(b, &c, 0, "all is right");
  plant_errors(b, &c);
  perf_device_cuda.unload(&b->r);
  perf_pattern_release(set, b->r.pattern);
}

static void test_types(void **state)
{
  (void)state;
  both b = {0};
  perf_patterns *set = perf_patterns_create();
  assert_non_null(set);
  gpu_open();
  open_both(&b);
  for (int type = 0; type < PERF_TYPES; type++) {
    try_case(&b, set, type, ncclSum, COUNT);
    if (type % AVG_STEP == 0) {
      try_case(&b, set, type, ncclAvg, COUNT);
    }
  }
  if (LARGE > 0) {
    try_case(&b, set, ncclInt8, ncclSum, LARGE);
  }
  close_both(&b);
  perf_patterns_destroy(set);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_types)};
  use_driver();
  set_modes("", "perf-data-test");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
