// kernels_test.c: the PTX that ships, run by the PTX machine in its nastier modes, against the host's reductions.
//
//   cudasim_kernels_test [FOLDER FORM]    FOLDER has modules NAME.ptx to take in place of those in the program; then
//                                         tests of the order of accesses alone, of the FORM steps or walks
#include "kernels_rig.h"

static void test_types(void **state)
{
  (void)state;
  begin(all_modes, THREADS);
  for (int type = 0; type < ncclNumTypes; type++) {
    assert_true(case_type(&rig, (ncclDataType_t)type, 24, 200));
  }
}

// Conversions and roundings of the 8-bit types, whole.
static void test_pairs(void **state)
{
  (void)state;
  begin(0, TT_CUDA_THREADS);
  static const ncclRedOp_t ops[] = {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};
  for (size_t i = 0; i < TT_COUNT(ops); i++) {
    assert_true(case_pairs(&rig, ncclFloat8e4m3, ops[i]));
    assert_true(case_pairs(&rig, ncclFloat8e5m2, ops[i]));
  }
}

static void test_steps(void **state)
{
  (void)state;
  for (int i = 0; i < 40; i++) {
    begin(i == 0 ? 0 : all_modes, i % 2 == 0 ? THREADS : TT_CUDA_THREADS);
    assert_true(case_steps(&rig, &step));
  }
}

// ---- What a peer sees while a kernel runs ----

// A header that has its number has all that belongs to it.
static bool watch_posts_of(uint64_t sig, uint64_t count)
{
  bool good = __atomic_load_n(&step.head, __ATOMIC_ACQUIRE) == 6 || (step.head == 7 && step.taken == 0);
  for (uint32_t k = 0; k < STEP_PEERS; k++) {
    const tt_cuda_slot *o = &step.own[k];
    if (__atomic_load_n(&o->seq, __ATOMIC_ACQUIRE) == 5 + k) {
      good &= o->bytes == 100 + k && o->sig == sig && o->count == count;
    }
  }
  return good;
}

static bool watch_posts(void)
{
  return watch_posts_of(78, 12);
}

static void test_post(void **state)
{
  (void)state;
  for (int i = 0; i < 40; i++) {
    begin(all_modes, THREADS);
    step_make(&rig, &step);
    rig.go = 1;
    machine.watch = watch_posts;
    step_post(&rig, &step);
    assert_int_equal(step.head, 7);
    assert_int_equal(step.own[STEP_PEERS - 1].seq, 5 + STEP_PEERS - 1);
  }
}

static bool watch_tokens(void)
{
  bool good = true;
  for (uint32_t k = 0; k < STEP_PEERS; k++) {
    const tt_cuda_slot *o = &step.tokens[k];
    if (__atomic_load_n(&o->seq, __ATOMIC_ACQUIRE) == 5 + k) {
      good &= o->sig == 77 && o->count == STEP_COUNT && o->in == 0x1111 && o->out == 0x2222 && o->in_mem == 3 &&
              o->out_mem == 4 && o->freed == 6 && o->along == 0 && o->scalar != 0;
    }
  }
  return good;
}

static void test_arrive(void **state)
{
  (void)state;
  for (int i = 0; i < 20; i++) {
    begin(all_modes, THREADS);
    machine.watch = watch_tokens;
    assert_true(step_arrives(&rig, &step));
  }
}

static bool watch_fault(void)
{
  return __atomic_load_n(&rig.fault.code, __ATOMIC_ACQUIRE) == TT_CUDA_FINE ||
         (rig.fault.code == TT_CUDA_MISMATCH && rig.fault.peer == 2 && rig.fault.sig == 76 &&
          rig.fault.count == (STEP_COUNT | TT_CUDA_DECIDED));
}

static void test_fault(void **state)
{
  (void)state;
  for (int i = 0; i < 40; i++) {
    begin(all_modes, THREADS);
    step_make(&rig, &step);
    step.slots[1].sig = 76;
    machine.watch = watch_fault;
    step_resolve(&rig, &step);
    assert_int_equal(rig.fault.code, TT_CUDA_MISMATCH);
  }
}

enum { WHOLES = 80 };

static case_call whole;

// The data of a step is there before a peer hears of it.
static bool watch_whole(void)
{
  return watch_posts_of(77, STEP_COUNT) && watch_tokens() &&
         (__atomic_load_n(&step.head, __ATOMIC_ACQUIRE) == 6 || case_same(&rig, &whole));
}

static void test_whole(void **state)
{
  (void)state;
  for (int i = 0; i < WHOLES; i++) {
    const int form = i % (int)TT_COUNT(case_wholes);
    begin(all_modes, THREADS);
    whole = step_call_of(case_wholes[form].red, case_wholes[form].nsrc);
    machine.watch = watch_whole;
    assert_true(step_runs_whole(&rig, &step, form));
  }
}

// A fault is told once, whatever else the step would have done.
static void test_whole_fault(void **state)
{
  (void)state;
  for (int i = 0; i < WHOLES; i++) {
    const int form = i % (int)TT_COUNT(case_wholes);
    whole = step_call_of(case_wholes[form].red, case_wholes[form].nsrc);
    begin(all_modes, THREADS);
    step_make(&rig, &step);
    memcpy(rig.copy, rig.arena, CASE_ARENA);
    step.slots[1].sig = 76;
    machine.watch = watch_fault;
    step_whole(&rig, &step, &whole);
    assert_true(case_same(&rig, &whole) && step_is_quiet(&step) && step.head == 6);
    assert_int_equal(rig.fault.code, TT_CUDA_MISMATCH);
  }
}

// A peer ends at some instruction. If its memory is not in use then, it never is afterwards.
static bool unused;

static bool watch_end(void)
{
  tt_cuda_line *line = &step.lines[1];
  if (looks-- == 0) {
    __atomic_store_n(&line->ended, 1, __ATOMIC_SEQ_CST);
    unused = __atomic_load_n(&line->uses, __ATOMIC_SEQ_CST) == 0;
  }
  return true;
}

static void test_ended(void **state)
{
  (void)state;
  bool before = false, behind = false, ended = true;
  for (int i = 0; ended; i++) { // until the kernel ends first
    begin(all_modes, THREADS);
    step_make(&rig, &step);
    machine.watch = watch_end;
    looks = i / 8;
    unused = false;
    step_resolve(&rig, &step);
    ended = looks < 0;
    before |= ended && rig.go == 0;
    behind |= ended && rig.go == 1;
    if (unused) {
      assert_int_equal(rig.go, 0);
      assert_int_equal(rig.fault.code, TT_CUDA_ENDED);
    }
  }
  assert_true(before && behind);
}

// ---- One-sided operations ----

enum { PUT_BYTES = 201, PUT_NUMBER = 7 };

static char *far_window(char *arena)
{
  return arena + CASE_SLOT + 3;
}

static tt_cuda_put far_put(void)
{
  begin(all_modes, THREADS);
  memset(far_window(rig.arena), 0x5a, PUT_BYTES);
  memcpy(rig.copy, rig.arena, CASE_ARENA);
  rig.fault = (tt_cuda_fault){.code = 0};
  rig.operands[0] = (tt_cuda_operand){.at = case_at(rig.arena + 5)};
  rig.operands[1] = (tt_cuda_operand){.at = case_at(far_window(rig.arena))};
  far.open = PUT_NUMBER;
  far.writing = 0;
  tt_cuda_put put = {.port = case_base(&rig).port,
                     .operands = case_at(rig.operands),
                     .count = PUT_BYTES,
                     .open = case_at(&far.open),
                     .number = PUT_NUMBER,
                     .writing = case_at(&far.writing),
                     .peer = 1};
  put.port.go = 0;
  return put;
}

static bool counted; // the put has counted itself in

static bool far_is_complete(void)
{
  return memcmp(rig.arena, rig.copy, CASE_ARENA) == 0;
}

// Who has counted itself out has written everything.
static bool watch_put(void)
{
  const uint64_t writing = __atomic_load_n(&far.writing, __ATOMIC_ACQUIRE);
  const bool over = counted && writing == 0;
  counted |= writing != 0;
  return !over || far_is_complete();
}

static void test_put(void **state)
{
  (void)state;
  case_fill(&rig, ncclInt8);
  for (int i = 0; i < 40; i++) {
    const tt_cuda_put put = far_put();
    memcpy(far_window(rig.copy), rig.copy + 5, PUT_BYTES);
    counted = false;
    machine.watch = watch_put;
    launch_any("one_sided", "put", 1, &put, sizeof put);
    assert_true(counted && far_is_complete());
    assert_int_equal(rig.fault.code, TT_CUDA_FINE);
  }
}

// The owner closes the window at some instruction.
static bool watch_shut(void)
{
  counted |= __atomic_load_n(&far.writing, __ATOMIC_ACQUIRE) != 0;
  if (looks-- == 0) {
    __atomic_store_n(&far.open, 0, __ATOMIC_SEQ_CST);
    unused = __atomic_load_n(&far.writing, __ATOMIC_SEQ_CST) == 0 && !counted;
  }
  return __atomic_load_n(&rig.fault.code, __ATOMIC_ACQUIRE) != TT_CUDA_SHUT ||
         (rig.fault.peer == 1 && rig.fault.sig == PUT_NUMBER);
}

// If no put is counted when it is closed, nothing is written into it any more.
static void test_shut(void **state)
{
  (void)state;
  bool before = false, behind = false, shut = true;
  case_fill(&rig, ncclInt8);
  for (int i = 0; shut; i++) { // until the kernel ends first
    tt_cuda_put put = far_put();
    put.count = 20; // how it begins and ends matters
    counted = unused = false;
    looks = i / 8;
    machine.watch = watch_shut;
    launch_any("one_sided", "put", 1, &put, sizeof put);
    shut = looks < 0;
    before |= shut && rig.fault.code == TT_CUDA_SHUT;
    behind |= shut && rig.fault.code == TT_CUDA_FINE;
    if (unused) {
      assert_true(far_is_complete()); // as it was
      assert_int_equal(rig.fault.code, TT_CUDA_SHUT);
    }
    assert_int_equal(far.writing, 0);
  }
  assert_true(before && behind);
}

// A payload that lies over another one comes behind it; those of a stopped port do not come.
static void test_take(void **state)
{
  (void)state;
  case_fill(&rig, ncclInt8);
  for (int i = 0; i < 40; i++) {
    tt_cuda_take take = {.port = far_put().port, .list = case_at(far.list)};
    for (size_t k = 0; k < 2; k++) {
      far.payloads[k] = (tt_cuda_payload){.operands = {{.at = case_at(rig.arena + (2 + k) * CASE_SLOT)},
                                                       {.at = case_at(far_window(rig.arena) + k * 50)}},
                                          .bytes = PUT_BYTES - k * 100};
    }
    far.list[0] = case_at(far.payloads);
    far.list[1] = 2;
    rig.stop = i % 4 == 0;
    for (size_t k = 0; k < 2 && rig.stop == 0; k++) {
      memcpy(far_window(rig.copy) + k * 50, rig.copy + (2 + k) * CASE_SLOT, PUT_BYTES - k * 100);
    }
    launch_any("one_sided", "take", 1, &take, sizeof take);
    assert_true(far_is_complete());
  }
}

// Whose turn has come sees the signals before.
static bool watch_signal(void)
{
  return __atomic_load_n(&far.turn, __ATOMIC_ACQUIRE) != 4 || far.count == 9;
}

static void test_signal(void **state)
{
  (void)state;
  for (int i = 0; i < 40; i++) {
    const tt_cuda_signal signal = {
        .port = far_put().port, .count = case_at(&far.count), .value = 9, .turn = case_at(&far.turn), .over = 4};
    far.count = far.turn = 0;
    rig.stop = i % 4 == 0;
    machine.watch = watch_signal;
    launch_any("one_sided", "signal", 1, &signal, sizeof signal);
    assert_int_equal(far.count, rig.stop == 0 ? 9 : 0);
    assert_int_equal(far.turn, rig.stop == 0 ? 4 : 0);
  }
}

// ---- Walks ----

// An item that copies from one part of the data to the next one.
static tt_cuda_item walk_copy(int i, bool all)
{
  walk.operands[i][0] = (tt_cuda_operand){.at = case_at(walk.data[i])};
  walk.operands[i][1] = (tt_cuda_operand){.at = case_at(walk.data[i + 1])};
  tt_cuda_item item = {.step = case_base(&rig), .copies = 1, .meet = all ? case_at(walk.meet) : 0};
  item.step.operands = case_at(walk.operands[i]);
  item.step.combine = (tt_cuda_combine){.count = WALK_BYTES, .nsrc = 1, .ndst = 1};
  return item;
}

// The item waits for a word, which is the i-th of all waits, and for those before if it waits for them already.
static void walk_waits(tt_cuda_item *item, int i, const uint32_t *word, uint32_t value)
{
  walk.waits[i] = (tt_cuda_wait){.at = case_at(word), .value = value};
  item->waits = item->nwaits++ > 0 ? item->waits : case_at(&walk.waits[i]);
}

// The data comes at some instruction; who sees the last word sees all copies.
static bool watch_walk(void)
{
  if (looks-- == 0) {
    for (size_t i = 0; i < WALK_BYTES; i++) {
      walk.data[0][i] = (char)case_below(&rig, 256);
    }
    __atomic_store_n(&walk.come, 5, __ATOMIC_RELEASE);
  }
  return __atomic_load_n(&walk.over, __ATOMIC_ACQUIRE) != 9 || memcmp(walk.data[0], walk.data[3], WALK_BYTES) == 0;
}

// One CTA copies what is not there yet, then waits and copies again; all CTAs copy that; one copies that and says so.
static void walk_make(void)
{
  static const int parts[] = {0, 0, 1, 2};
  memset(&walk, 0, sizeof walk);
  rig.fault = (tt_cuda_fault){.code = 0};
  for (int k = 0; k < 4; k++) {
    walk.items[k] = walk_copy(parts[k], parts[k] == 1);
    walk.items[k].next = case_at(&walk.items[k + 1]);
  }
  walk_waits(&walk.items[1], 0, &walk.come, 5);
  walk.items[4] = (tt_cuda_item){.step = case_base(&rig)};
  walk_posts(&walk.items[4]);
  walk.first[0] = case_at(walk.items);
}

static void test_walk(void **state)
{
  static const char *const kernels[][2] = {
      {"walk_step", "copy"}, {"walk_Float32", "combine"}, {"walk_bits", "bitwise"}};
  (void)state;
  const int each = folder != NULL ? (int)TT_COUNT(kernels) : 1; // cuda_fences.sh changes the first one alone
  for (int i = 0; i < (folder != NULL ? 2800 : 60); i += each) {
    const char *const *k = kernels[i % (int)TT_COUNT(kernels)];
    begin(all_modes, 3 * THREADS);
    walk_make();
    machine.watch = watch_walk;
    looks = i % 700 * 5;
    launch_walk(k[0], k[1], 1, SMS);
    assert_int_equal(walk.over, 9);
    assert_true(watch_walk());
  }
}

// Two groups, each of one CTA: one copies when the data has come; the other one copies that.
static void groups_make(bool turned)
{
  memset(&walk, 0, sizeof walk);
  rig.fault = (tt_cuda_fault){.code = 0};
  for (int k = 0; k < 2; k++) {
    walk.items[k] = walk_copy(k, false);
    walk.first[turned ? 1 - k : k] = case_at(&walk.items[k]);
  }
  walk_waits(&walk.items[0], 0, &walk.come, 5);
  walk.items[0].over = case_at(&walk.done);
  walk.items[0].number = 3;
  walk_posts(&walk.items[1]);
}

// Who sees the second one's word sees its copy.
static bool watch_groups(void)
{
  if (looks-- == 0) {
    memset(walk.data[0], 7, WALK_BYTES);
    __atomic_store_n(&walk.come, 5, __ATOMIC_RELEASE);
  }
  return __atomic_load_n(&walk.over, __ATOMIC_ACQUIRE) != 9 || memcmp(walk.data[0], walk.data[2], WALK_BYTES) == 0;
}

// A group waits for another one's item.
static void test_groups(void **state)
{
  (void)state;
  for (int i = 0; i < (folder != NULL ? 700 : 60); i++) {
    begin(all_modes, 3 * THREADS);
    groups_make(i % 2 != 0);
    walk_waits(&walk.items[1], 1, &walk.done, 3);
    machine.watch = watch_groups;
    looks = i * 5;
    launch_walk("walk_step", "copy", 2, 1);
    assert_true(walk.over == 9 && watch_groups());
  }
}

// The data comes when the other group is through.
static bool watch_apart(void)
{
  if (__atomic_load_n(&walk.over, __ATOMIC_ACQUIRE) == 9) {
    __atomic_store_n(&walk.come, 5, __ATOMIC_RELEASE);
  }
  return looks-- > 0;
}

// No group waits for another one if nothing says so.
static void test_groups_apart(void **state)
{
  (void)state;
  for (int i = 0; i < 20; i++) {
    begin(all_modes, 3 * THREADS);
    groups_make(i % 2 != 0);
    machine.watch = watch_apart;
    looks = 1000000;
    launch_walk("walk_step", "copy", 2, 1);
    assert_int_equal(walk.done, 3);
  }
}

// Faults that two groups find at the same time: one is reported, as a whole.
static bool watch_faults(void)
{
  const uint32_t code = __atomic_load_n(&rig.fault.code, __ATOMIC_ACQUIRE);
  return code == TT_CUDA_FINE || (code == TT_CUDA_MISMATCH && rig.fault.own_count == rig.fault.own_sig - 1000);
}

static void test_groups_fault(void **state)
{
  int seconds = 0;
  (void)state;
  for (int i = 0; i < (folder != NULL ? 700 : 60); i++) {
    begin(all_modes, THREADS);
    memset(&walk, 0, sizeof walk);
    step_make(&rig, &step);
    rig.fault = (tt_cuda_fault){.code = 0};
    for (uint64_t k = 0; k < 2; k++) { // both are in other calls than their peers
      walk.items[k] = (tt_cuda_item){.step = case_base(&rig)};
      walk.items[k].step.call = (tt_cuda_call){.sig = 1077 + k, .count = 77 + k};
      walk.items[k].step.resolve = case_resolve(&step);
      walk.first[k] = case_at(&walk.items[k]);
    }
    machine.watch = watch_faults;
    launch_walk("walk_step", "copy", 2, 1);
    assert_int_equal(rig.fault.code, TT_CUDA_MISMATCH);
    seconds += rig.fault.own_count == 78;
  }
  assert_true(seconds > 0);
}

static void test_walk_stops(void **state)
{
  (void)state;
  for (int i = 0; i < 100; i++) {
    begin(all_modes, THREADS);
    memset(&walk, 0, sizeof walk);
    memset(walk.data[0], 1, WALK_BYTES);
    rig.fault = (tt_cuda_fault){.code = 0};
    walk.items[0] = walk_copy(0, false);
    walk.items[0].next = case_at(&walk.items[1]);
    walk.items[1] = walk_copy(1, true);
    walk_waits(&walk.items[0], 0, i % 2 == 0 ? &walk.come : &walk.done, 5);
    walk_waits(&walk.items[0], 1, &walk.come, 5);
    walk.done = 5;
    walk.first[0] = case_at(walk.items);
    machine.watch = watch_stop;
    looks = 10 * i;
    launch_walk("walk_step", "copy", 1, SMS);
    assert_true(walk.data[1][0] == 0 && walk.data[2][0] == 0);
  }
}

// A peer gives a message back some time after it has come.
static bool watch_given(void)
{
  if (__atomic_load_n(&walk.went[1], __ATOMIC_ACQUIRE) == 1 && looks-- == 0) {
    __atomic_store_n(&walk.come, 5, __ATOMIC_RELEASE);
  }
  return __atomic_load_n(&walk.over, __ATOMIC_ACQUIRE) != 9 || looks < 0;
}

// In a replay: the second thread puts back what the peer has counted in the replay before; the first one, in the next
// step, waits for the peer to count so far again.
static void test_walk_puts_back(void **state)
{
  (void)state;
  for (int i = 0; i < 200; i++) {
    begin(all_modes, THREADS);
    walk_make();
    walk.come = 5;
    for (int k = 0; k < 2; k++) {
      walk.sent[k] = (tt_cuda_post){.at = case_at(&walk.went[k]), .seq = 1, .word = 1};
    }
    walk.sent[1].clear = case_at(&walk.come);
    walk.items[3] = (tt_cuda_item){.step = case_base(&rig), .next = case_at(&walk.items[4])};
    walk.items[3].step.post = (tt_cuda_posts){.posts = case_at(walk.sent), .nposts = 2};
    walk_waits(&walk.items[4], 0, &walk.come, 5);
    walk.first[0] = case_at(&walk.items[3]);
    machine.watch = watch_given;
    looks = i;
    launch_walk("walk_step", "copy", 1, 1);
    assert_int_equal(walk.over, 9);
  }
}

static int as_walks(void **state)
{
  (void)state;
  machine.walks = true;
  return 0;
}

int main(int argc, char **argv)
{
  folder = argc > 2 ? argv[1] : NULL;
  const char *form = argc > 2 ? argv[2] : "";
  const struct CMUnitTest arithmetic[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_pairs)};
  const struct CMUnitTest order[] = {
      cmocka_unit_test(test_steps), cmocka_unit_test(test_post),   cmocka_unit_test(test_arrive),
      cmocka_unit_test(test_fault), cmocka_unit_test(test_whole),  cmocka_unit_test(test_whole_fault),
      cmocka_unit_test(test_ended), cmocka_unit_test(test_put),    cmocka_unit_test(test_shut),
      cmocka_unit_test(test_take),  cmocka_unit_test(test_signal),
  };
  const struct CMUnitTest walks[] = {
      cmocka_unit_test(test_steps), cmocka_unit_test(test_post),  cmocka_unit_test(test_arrive),
      cmocka_unit_test(test_fault), cmocka_unit_test(test_whole), cmocka_unit_test(test_whole_fault),
      cmocka_unit_test(test_ended),
  };
  const struct CMUnitTest meetings[] = {cmocka_unit_test(test_walk_puts_back), cmocka_unit_test(test_groups),
                                        cmocka_unit_test(test_groups_apart),   cmocka_unit_test(test_groups_fault),
                                        cmocka_unit_test(test_walk_stops),     cmocka_unit_test(test_walk)};
  int failed = folder == NULL ? cmocka_run_group_tests(arithmetic, NULL, NULL) : 0;
  failed += folder == NULL || strcmp(form, "steps") == 0 ? cmocka_run_group_tests(order, NULL, NULL) : 0;
  failed += folder == NULL ? cmocka_run_group_tests(walks, as_walks, NULL) : 0;
  failed += folder == NULL || strcmp(form, "walks") == 0 ? cmocka_run_group_tests(meetings, NULL, NULL) : 0;
  modules_free();
  return failed;
}
