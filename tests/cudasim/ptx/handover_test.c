// handover_test.c: random programs without races. Threads of several CTAs hand a few words of memory from one to the
// next, each time by another of the ways that PTX has to order accesses. The thread that has the words checks them and
// changes some. The last one gives them to the host, which looks on between the run's steps. Whatever the run's modes
// do, nobody may see anything old. Left unordered, the same programs must go wrong.
#include "ptx_rig.h"

#include <stdbool.h>

enum { STEPS = 24, CTAS = 3, LANES = 4, ACTORS = CTAS * LANES, BYTES = 16, WRITES = 4, PROGRAMS = 60, SEEDS = 10 };
enum { HOST = ACTORS, FLAGS = 256, FLAG = 128, ERRORS = FLAGS + FLAG * (STEPS + 1) }; // places behind the words

static const int lanes[LANES] = {0, 5, 33, 63}; // of a CTA of two warps: those that act

// How a step gets the words from the one before.
enum way { RELEASE_ACQUIRE, FENCES, ATOMICS, ATOMICS_FENCES, MEMBARS, WARP, WAYS };

typedef struct access {
  int at, bytes;
  uint64_t value;
  bool atomic; // a relaxed exchange
} access;

typedef struct step {
  int actor;
  enum way way;
  int nwrites;
  access writes[WRITES];
  uint8_t before[BYTES]; // what the words are when it gets them
} step;

static uint64_t draws;

static uint64_t draw(uint64_t n)
{
  draws ^= draws << 13;
  draws ^= draws >> 7;
  draws ^= draws << 17;
  return (draws * UINT64_C(0x2545F4914F6CDD1D) >> 33) % n;
}

static access draw_access(void)
{
  int bytes = 1 << draw(4);
  int at = (int)draw((uint64_t)(BYTES / bytes)) * bytes;
  uint64_t value = draw(UINT64_C(1) << 31) * UINT64_C(0x100000001);
  return (access){at, bytes, value, bytes >= 4 && draw(3) == 0};
}

static bool same_cta(const step *a, const step *b)
{
  return a->actor / LANES == b->actor / LANES;
}

static bool same_warp(const step *a, const step *b)
{
  return same_cta(a, b) && a->actor != b->actor && lanes[a->actor % LANES] / 32 == lanes[b->actor % LANES] / 32;
}

// The least scope with both, or one that is wider.
static const char *scope_of(const step *from, const step *to, bool membar)
{
  if (same_cta(from, to))
    return "cta";
  return to->actor == HOST || to->nwrites & 1 ? "sys" : membar ? "gl" : "gpu";
}

static void draw_program(step program[STEPS + 1])
{
  memset(program[0].before, 0, BYTES);
  for (int i = 0; i <= STEPS; i++) {
    step *s = &program[i];
    s->actor = i == STEPS ? HOST : (int)draw(ACTORS);
    s->way = (enum way)draw(i > 0 && same_warp(s - 1, s) ? WAYS : WARP);
    s->nwrites = (int)draw(WRITES + 1);
    for (int k = 0; k < s->nwrites; k++)
      s->writes[k] = draw_access();
    if (i == STEPS)
      return;
    memcpy(s[1].before, s->before, BYTES);
    for (int k = 0; k < s->nwrites; k++)
      memcpy(s[1].before + s->writes[k].at, &s->writes[k].value, (size_t)s->writes[k].bytes);
  }
}

typedef struct script {
  char text[1 << 17];
  size_t length;
} script;

__attribute__((format(printf, 2, 3))) static void put(script *s, const char *format, ...)
{
  va_list list;
  va_start(list, format);
  s->length += (size_t)vsnprintf(s->text + s->length, sizeof s->text - s->length, format, list);
  va_end(list);
  assert_true(s->length < sizeof s->text);
}

// Reads something and counts, in %r5, whether it is not what it must be.
static void put_check(script *s, const uint8_t words[BYTES])
{
  access a = draw_access();
  uint64_t value = 0;
  memcpy(&value, words + a.at, (size_t)a.bytes);
  put(s, "ld.global.u%d %%rd4, [%%rd0+%d]; setp.ne.u64 %%p3, %%rd4, %llu; @%%p3 add.u32 %%r5, %%r5, 1;\n", 8 * a.bytes,
      a.at, (unsigned long long)value);
}

static void put_write(script *s, const access *w)
{
  put(s, "mov.u64 %%rd5, %llu;", (unsigned long long)w->value);
  if (w->atomic && w->bytes == 4)
    put(s, " cvt.u32.u64 %%r6, %%rd5; atom.global.exch.b32 %%r7, [%%rd0+%d], %%r6;\n", w->at);
  else if (w->atomic)
    put(s, " atom.global.exch.b64 %%rd6, [%%rd0+%d], %%rd5;\n", w->at);
  else
    put(s, " st.global.u%d [%%rd0+%d], %%rd5;\n", 8 * w->bytes, w->at);
}

static unsigned warp_mask(const step *a, const step *b)
{
  return 1u << lanes[a->actor % LANES] % 32 | 1u << lanes[b->actor % LANES] % 32;
}

// Gives the words to the next step. Unordered, a relaxed store takes the place of every way.
static void put_give(script *s, const step *from, int number, bool ordered)
{
  const step *to = from + 1;
  const char *scope = scope_of(from, to, to->way == MEMBARS);
  int flag = FLAGS + FLAG * number;
  switch (ordered ? to->way : WAYS) {
  case RELEASE_ACQUIRE: put(s, "st.release.%s.global.u32 [%%rd0+%d], 1;\n", scope, flag); break;
  case FENCES: put(s, "fence.acq_rel.%s; st.relaxed.%s.global.u32 [%%rd0+%d], 1;\n", scope, scope, flag); break;
  case ATOMICS: put(s, "red.release.%s.global.add.u32 [%%rd0+%d], 1;\n", scope, flag); break;
  case ATOMICS_FENCES:
    put(s, "fence.acq_rel.%s; red.relaxed.%s.global.add.u32 [%%rd0+%d], 1;\n", scope, scope, flag);
    break;
  case MEMBARS: put(s, "membar.%s; st.volatile.global.u32 [%%rd0+%d], 1;\n", scope, flag); break;
  case WARP: put(s, "bar.warp.sync %u;\n", warp_mask(from, to)); break;
  case WAYS: put(s, "st.relaxed.gpu.global.u32 [%%rd0+%d], 1;\n", flag); break;
  }
}

static void put_take(script *s, const step *to, int number, bool ordered)
{
  const step *from = to - 1;
  const char *scope = scope_of(from, to, to->way == MEMBARS);
  int flag = FLAGS + FLAG * number;
  if (ordered && to->way == WARP) {
    put(s, "bar.warp.sync %u;\n", warp_mask(from, to));
    return;
  }
  put(s, "TAKE%d: ", number);
  switch (ordered ? to->way : WAYS) {
  case RELEASE_ACQUIRE: put(s, "ld.acquire.%s.global.u32 %%r4, [%%rd0+%d];", scope, flag); break;
  case FENCES: put(s, "ld.relaxed.%s.global.u32 %%r4, [%%rd0+%d]; fence.acq_rel.%s;", scope, flag, scope); break;
  case ATOMICS: put(s, "atom.acquire.%s.global.or.b32 %%r4, [%%rd0+%d], 0;", scope, flag); break;
  case ATOMICS_FENCES:
    put(s, "atom.relaxed.%s.global.or.b32 %%r4, [%%rd0+%d], 0; fence.acq_rel.%s;", scope, flag, scope);
    break;
  case MEMBARS: put(s, "ld.volatile.global.u32 %%r4, [%%rd0+%d]; membar.%s;", flag, scope); break;
  case WARP:
  case WAYS: put(s, "ld.relaxed.gpu.global.u32 %%r4, [%%rd0+%d];", flag); break;
  }
  put(s, " setp.eq.u32 %%p2, %%r4, 0; @%%p2 bra TAKE%d;\n", number);
}

static void put_step(script *s, const step *program, int number, bool ordered)
{
  const step *now = &program[number];
  uint8_t words[BYTES];
  if (number > 0)
    put_take(s, now, number, ordered);
  for (uint64_t reads = draw(6); reads > 0; reads--)
    put_check(s, now->before);
  memcpy(words, now->before, BYTES);
  for (int k = 0; k < now->nwrites; k++) {
    const access *w = &now->writes[k];
    put_write(s, w);
    memcpy(words + w->at, &w->value, (size_t)w->bytes);
    put_check(s, words);
  }
  put_give(s, now, number + 1, ordered);
}

static void put_program(script *s, const step *program, bool ordered)
{
  s->length = 0;
  put(s, "%smov.u32 %%r1, %%ctaid.x; mov.u32 %%r2, %%tid.x; mad.lo.u32 %%r3, %%r1, 64, %%r2; mov.u32 %%r5, 0;\n",
      RIG_KERNEL);
  for (int actor = 0; actor < ACTORS; actor++) {
    put(s, "setp.eq.u32 %%p1, %%r3, %d; @%%p1 bra ACTOR%d;\n", actor / LANES * 64 + lanes[actor % LANES], actor);
  }
  put(s, "ret;\n");
  for (int actor = 0; actor < ACTORS; actor++) {
    put(s, "ACTOR%d:\n", actor);
    for (int i = 0; i < STEPS; i++) {
      if (program[i].actor == actor)
        put_step(s, program, i, ordered);
    }
    put(s, "red.global.add.u32 [%%rd0+%d], %%r5; ret;\n", ERRORS);
  }
  put(s, "}\n");
}

// One run: how many old values were seen. The host sees one when the last flag is there and the words are not.
static unsigned count_in_run(const struct ptx_module *m, const struct ptx_launch *launch, const uint64_t *memory,
                             const uint8_t end[BYTES])
{
  char why[PTX_TEXT];
  struct ptx_run *run = ptx_run_create(ptx_module_kernel(m, "k"), launch, why);
  assert_non_null(run);
  bool given = false, old = false;
  enum ptx_state state;
  do {
    state = ptx_run_step(run, 1 + launch->seed * 7 % 40);
    if (!given && memory[(FLAGS + FLAG * STEPS) / 8]) {
      given = true;
      old = memcmp(memory, end, BYTES) != 0;
    }
  } while (state == PTX_RUNNING);
  if (state != PTX_DONE)
    fail_msg("%s", ptx_run_report(run));
  ptx_run_destroy(run);
  assert_true(given);
  return (unsigned)memory[ERRORS / 8] + old;
}

static unsigned count_old(const char *text, const uint8_t end[BYTES])
{
  struct ptx_module *m = rig_parse(text);
  unsigned old = 0;
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    static uint64_t memory[ERRORS / 8 + 1];
    memset(memory, 0, sizeof memory);
    void *out = memory;
    struct ptx_launch launch = {.grid = {CTAS, 1, 1}, .block = {64, 1, 1}, .params = &out, .seed = seed};
    launch.modes = PTX_RANDOM_ORDER | PTX_STORE_BUFFERS | PTX_STALE_READS | (seed & 1 ? PTX_DEVICE_BUFFER : 0);
    old += count_in_run(m, &launch, memory, end) + (memcmp(memory, end, BYTES) != 0);
  }
  ptx_module_destroy(m);
  return old;
}

static void words_are_handed_over(void **state)
{
  (void)state;
  static script ordered, unordered;
  static step program[STEPS + 1];
  unsigned old_without = 0;
  for (uint64_t i = 1; i <= PROGRAMS; i++) {
    draws = i * UINT64_C(0x9e3779b97f4a7c15);
    draw_program(program);
    put_program(&ordered, program, true);
    unsigned old = count_old(ordered.text, program[STEPS].before);
    if (old > 0)
      fail_msg("%u old values were seen in program %u:\n%s", old, (unsigned)i, ordered.text);
    put_program(&unordered, program, false);
    old_without += count_old(unordered.text, program[STEPS].before) > 0;
  }
  assert_int_equal(old_without, PROGRAMS);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(words_are_handed_over)};
  return cmocka_run_group_tests_name("cudasim handover", tests, NULL, NULL);
}
