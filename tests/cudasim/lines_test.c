// lines_test.c: messages in lines (LL128), by the PTX that ships: what comes out, also while lines come at any moment,
// of another call, or not at all.
//
//   cudasim_lines_test [FOLDER]    FOLDER has modules NAME.ptx to take in place of those in the program
#include "kernels_rig.h"

enum { FLAG_NUMBER = 7 };
static const uint64_t line_flag = (uint64_t)0xabcd1235 << 32 | FLAG_NUMBER;
static const tt_cuda_call line_call = {.sig = 77, .count = 12};

static tt_cuda_operand in_lines(int i)
{
  return (tt_cuda_operand){.at = case_at(walk.lines[i]), .lines = line_flag};
}

// An item of a kernel for `count` elements, which have `size` bytes.
static tt_cuda_item lines_item(int i, uint32_t nsrc, uint32_t ndst, size_t count, size_t size)
{
  tt_cuda_item item = {.step = case_base(&rig)};
  item.step.call = line_call;
  item.step.operands = case_at(walk.operands[i]);
  item.step.combine = (tt_cuda_combine){
      .count = count,
      .nsrc = nsrc,
      .ndst = ndst,
      .mask = 0x7f,
      .one = 1,
      .lines = (uint32_t)((count * size + sizeof line_call + TT_CUDA_LINE_DATA - 1) / TT_CUDA_LINE_DATA)};
  return item;
}

static void lines_begin(unsigned modes)
{
  begin(modes, 3 * THREADS);
  memset(&walk, 0, sizeof walk);
  rig.fault = (tt_cuda_fault){.code = 0};
  for (int k = 0; k < 4; k++) {
    for (size_t i = 0; i < sizeof walk.data[k]; i++) {
      walk.data[k][i] = (char)case_below(&rig, 256);
    }
  }
}

typedef struct lines_kernel {
  const char *module, *name;
  size_t size; // of an element
} lines_kernel;

static const lines_kernel lines_kernels[] = {{"walk_step", "copy", 1},       {"walk_Float32", "combine", 4},
                                             {"walk_Int8", "combine", 1},    {"walk_Float16", "combine", 2},
                                             {"walk_Float64", "combine", 8}, {"walk_bits", "bitwise", 1},
                                             {"walk_bits", "logical1", 1},   {"walk_bits", "logical2", 2},
                                             {"walk_bits", "logical4", 4},   {"walk_bits", "logical8", 8}};

// One CTA sends data[0] in lines. The other one takes that, makes something of it and of data[1], and sends it in
// lines, and into data[2]. The first one takes those into data[3]. Elements begin anywhere.
static void lines_make(const lines_kernel *k, size_t count, size_t skip, bool turned)
{
  const size_t bytes = count * k->size;
  const bool copies = strcmp(k->name, "copy") == 0;
  walk.operands[0][0] = (tt_cuda_operand){.at = case_at(walk.data[0] + skip)};
  walk.operands[0][1] = in_lines(0);
  walk.operands[1][0] = in_lines(0);
  walk.operands[1][1] = (tt_cuda_operand){.at = case_at(walk.data[1])};
  walk.operands[1][copies ? 1 : 2] = in_lines(1);
  walk.operands[2][0] = in_lines(1);
  walk.operands[2][1] = (tt_cuda_operand){.at = case_at(walk.data[3] + skip)};
  walk.items[0] = lines_item(0, 1, 1, bytes, 1);
  walk.items[1] = lines_item(1, copies ? 1 : 2, 1, copies ? bytes : count, copies ? 1 : k->size);
  walk.items[2] = lines_item(2, 1, 1, bytes, 1);
  walk.items[0].copies = walk.items[2].copies = 1;
  walk.items[1].copies = copies;
  walk.items[0].next = case_at(&walk.items[2]);
  walk.first[turned] = case_at(&walk.items[0]);
  walk.first[!turned] = case_at(&walk.items[1]);
  walk_posts(&walk.items[2]);
  walk.post.plain = 1;
}

// What the kernel makes without lines, into `out`.
static void lines_expect(const lines_kernel *k, size_t count, size_t skip, char *out)
{
  const size_t bytes = count * k->size;
  static char keep[WALK_BYTES + 17];
  memcpy(out, walk.data[0] + skip, bytes);
  if (strcmp(k->name, "copy") == 0 || count == 0) {
    return;
  }
  memcpy(keep, walk.data[2], sizeof keep);
  walk.operands[0][0] = (tt_cuda_operand){.at = case_at(walk.data[0] + skip)};
  walk.operands[0][1] = (tt_cuda_operand){.at = case_at(walk.data[1])};
  walk.operands[0][2] = (tt_cuda_operand){.at = case_at(walk.data[2])};
  walk.items[0] = lines_item(0, 2, 1, count, k->size);
  walk.items[0].step.combine.lines = 0;
  walk.first[0] = case_at(&walk.items[0]);
  launch_walk(k->module, k->name, 1, 1);
  memcpy(out, walk.data[2], bytes);
  memcpy(walk.data[2], keep, sizeof keep);
}

static size_t lines_count(int i, size_t size)
{
  static const size_t bytes[] = {0, 8, 104, 112, 120, 224, 232, 1000, LINE_BYTES};
  return i % 2 == 0 ? bytes[(size_t)i / 2 % TT_COUNT(bytes)] / size : case_below(&rig, LINE_BYTES / (uint32_t)size + 1);
}

// Runs one; are the results those without lines?
static bool lines_run(int i, unsigned modes)
{
  const lines_kernel *k = &lines_kernels[i % (int)TT_COUNT(lines_kernels)];
  static char expected[WALK_BYTES + 17], behind[WALK_BYTES + 17];
  lines_begin(modes);
  const size_t count = lines_count(i, k->size), bytes = count * k->size, skip = case_below(&rig, 17);
  lines_expect(k, count, skip, expected);
  memcpy(behind, walk.data[3], sizeof behind);
  memcpy(behind + skip, expected, bytes);
  lines_make(k, count, skip, i % 4 < 2);
  launch_walk(k->module, k->name, 2, 1);
  assert_int_equal(walk.over, 9);
  assert_int_equal(rig.fault.code, TT_CUDA_FINE);
  return memcmp(walk.data[3], behind, sizeof behind) == 0;
}

static void test_lines(void **state)
{
  (void)state;
  for (int i = 0; i < (folder != NULL ? 400 : 120); i++) {
    if (!lines_run(i, i < 20 ? PTX_WHOLE_LINES : all_modes | PTX_WHOLE_LINES)) {
      fail_msg("run %d: other results than without lines", i);
    }
  }
}

// Where lines do not stay whole, a flag says nothing: so the machine's mode is what the test above needs.
static void test_lines_torn(void **state)
{
  int torn = 0;
  (void)state;
  for (int i = 0; i < 60; i++) {
    torn += !lines_run(i, all_modes);
  }
  assert_true(torn > 0);
}

// Puts a message into lines, as a peer does; but for the last `missing` lines.
static void lines_put(int i, size_t bytes, uint32_t missing, uint64_t flag)
{
  static char text[LINES * TT_CUDA_LINE_DATA];
  const size_t n = (bytes + sizeof line_call + TT_CUDA_LINE_DATA - 1) / TT_CUDA_LINE_DATA - missing;
  memcpy(text, &line_call, sizeof line_call);
  memcpy(text + sizeof line_call, walk.data[0], bytes);
  for (size_t l = 0; l < n; l++) {
    memcpy(walk.lines[i][l], text + l * TT_CUDA_LINE_DATA, TT_CUDA_LINE_DATA);
    memcpy(walk.lines[i][l] + TT_CUDA_LINE_DATA, &flag, sizeof flag);
  }
}

// A walk takes a message in lines into data[3], and says so.
static void lines_take(size_t bytes)
{
  walk.items[0] = lines_item(0, 1, 1, bytes, 1);
  walk.items[0].copies = 1;
  walk.refs[0] = (tt_cuda_ref){.at = case_at(walk.lines[0]), .lines = line_flag, .peer = 4, .data = 1};
  walk.refs[1] = (tt_cuda_ref){.at = case_at(walk.data[3]), .data = 1};
  walk.items[0].step.resolve = (tt_cuda_resolve){.refs = case_at(walk.refs), .nrefs = 2};
  walk_posts(&walk.items[0]);
  walk.post.plain = 1;
  walk.first[0] = case_at(&walk.items[0]);
}

// The peer writes the next message over this one as soon as it is given back.
static bool watch_lines_given(void)
{
  if (__atomic_load_n(&walk.over, __ATOMIC_ACQUIRE) == 9) {
    memset(walk.lines[0], 0xee, sizeof walk.lines[0]);
  }
  return true;
}

static void test_lines_given(void **state)
{
  (void)state;
  for (int i = 0; i < 200; i++) {
    lines_begin(all_modes | PTX_WHOLE_LINES);
    lines_put(0, LINE_BYTES, 0, line_flag);
    lines_take(LINE_BYTES);
    machine.watch = watch_lines_given;
    launch_walk("walk_step", "copy", 1, 1);
    assert_int_equal(walk.over, 9);
    assert_memory_equal(walk.data[3], walk.data[0], LINE_BYTES);
  }
}

// A message comes at some instruction, also while the walk looks for it the first time.
static bool watch_lines_come(void)
{
  if (looks-- == 0) {
    lines_put(0, 500, 0, line_flag);
  }
  return true;
}

static void test_lines_come(void **state)
{
  (void)state;
  for (int i = 0; i < (folder != NULL ? 1500 : 200); i++) {
    lines_begin(all_modes | PTX_WHOLE_LINES);
    machine.threads = THREADS;
    lines_take(500);
    machine.watch = watch_lines_come;
    looks = (int)case_below(&rig, 1500);
    launch_walk("walk_step", "copy", 1, 1);
    assert_int_equal(walk.over, 9);
    assert_memory_equal(walk.data[3], walk.data[0], 500);
  }
}

// A message of another call, also one with fewer lines or more, is not taken, and is reported as its lines say.
static void test_lines_fault(void **state)
{
  (void)state;
  for (int i = 0; i < 100; i++) {
    const size_t bytes = lines_count(i, 1);
    static char before[WALK_BYTES + 17];
    lines_begin(all_modes | PTX_WHOLE_LINES);
    lines_put(0, i % 3 == 0 ? bytes : lines_count(5 * i + 3, 1), 0, line_flag ^ (uint64_t)2 << 32);
    lines_take(bytes);
    memcpy(before, walk.data[3], sizeof before);
    launch_walk("walk_step", "copy", 1, 1);
    assert_int_equal(walk.over, 0);
    assert_int_equal(rig.fault.code, TT_CUDA_MISMATCH);
    assert_int_equal(rig.fault.peer, 4);
    assert_int_equal(rig.fault.sig, line_call.sig);
    assert_int_equal(rig.fault.count, line_call.count);
    assert_memory_equal(walk.data[3], before, sizeof before);
  }
}

// Some lines come, others do not, and the port stops: nothing is given back, and nothing is wrong.
static void test_lines_stop(void **state)
{
  (void)state;
  for (int i = 0; i < 200; i++) {
    lines_begin(all_modes | PTX_WHOLE_LINES);
    lines_put(0, LINE_BYTES, 1 + (uint32_t)i % LINES, line_flag);
    lines_take(LINE_BYTES);
    machine.watch = watch_stop;
    looks = 20 * i;
    launch_walk("walk_step", "copy", 1, 1);
    assert_int_equal(walk.over, 0);
    assert_int_equal(rig.fault.code, TT_CUDA_FINE);
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_lines),       cmocka_unit_test(test_lines_torn),
                                     cmocka_unit_test(test_lines_given), cmocka_unit_test(test_lines_fault),
                                     cmocka_unit_test(test_lines_come),  cmocka_unit_test(test_lines_stop)};
  folder = argc > 1 ? argv[1] : NULL;
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  modules_free();
  return failed;
}
