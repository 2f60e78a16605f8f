// kernels_rig.h: for tests of the PTX that ships: the PTX machine, which runs its kernels in its nastier modes, on the
// memory of a test.
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "device/cuda/kernels/cases_rig.h"
#include "device/cuda/kernels/modules.h"
#include "ptx/ptx.h"

enum {
  MODULES = 64,
  STEP = 4096,
  THREADS = 32,
  SMS = 2,
  WALK_BYTES = 5001,
  LINE_BYTES = 2000, // of a message in lines, at most
  LINES = (LINE_BYTES + 16 + TT_CUDA_LINE_DATA - 1) / TT_CUDA_LINE_DATA
};

static struct {
  char name[32];
  struct ptx_module *module;
} modules[MODULES];

static const char *folder; // of other modules

// What walks read and write.
static struct {
  tt_cuda_item items[5];
  tt_cuda_wait waits[2];
  tt_cuda_post post, sent[2];
  tt_cuda_operand operands[3][3];
  tt_cuda_ref refs[2];
  uint64_t first[2];            // tt_cuda_walk.first
  uint64_t meet[2];             // of a group
  uint32_t done;                // tt_cuda_item.over
  uint32_t come, over, went[2]; // words: the data has come; the walk is over; the messages that it has sent
  _Alignas(16) char data[4][WALK_BYTES + 17];
  _Alignas(TT_CUDA_LINE) char lines[2][LINES][TT_CUDA_LINE];
} walk;

// What one-sided kernels read and write, of a peer's.
static struct {
  uint64_t open, writing, count;
  uint32_t turn;
  tt_cuda_payload payloads[2];
  uint64_t list[2]; // tt_cuda_take.list
} far;

static struct {
  unsigned modes, threads;
  uint64_t seed;
  bool walks;          // steps are walks of one item
  bool (*watch)(void); // looked at between the instructions of a launch; false: something is wrong
} machine = {.threads = THREADS, .seed = 1};

static case_rig rig;
static case_step step;

static inline char *read_file(const char *path)
{
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  char *text = calloc(1, 1 << 20);
  assert_non_null(text);
  assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
  fclose(f);
  return text;
}

static inline struct ptx_module *parse(const char *name)
{
  char why[PTX_TEXT] = "", path[512];
  struct ptx_module *module;
  if (folder != NULL) {
    snprintf(path, sizeof path, "%s/%s.ptx", folder, name);
    char *text = read_file(path);
    module = ptx_module_create(text, why);
    free(text);
  } else {
    assert_non_null(tt_ptx_find(name));
    module = ptx_module_create(tt_ptx_find(name), why);
  }
  if (module == NULL) {
    fail_msg("%s: %s", name, why);
  }
  return module;
}

static inline struct ptx_module *module_of(const char *name)
{
  int i = 0;
  while (i < MODULES && modules[i].module != NULL && strcmp(modules[i].name, name) != 0) {
    i++;
  }
  assert_true(i < MODULES);
  if (modules[i].module == NULL) {
    snprintf(modules[i].name, sizeof modules[i].name, "%s", name);
    modules[i].module = parse(name);
  }
  return modules[i].module;
}

static inline bool within(uint64_t address, size_t bytes, const void *object, size_t size)
{
  const uint64_t from = case_at(object);
  return address >= from && address + bytes <= from + size;
}

static inline bool valid(void *arg, uint64_t address, size_t bytes, enum ptx_access access, char why[PTX_TEXT])
{
  (void)arg;
  const bool read = within(address, bytes, rig.copy, sizeof rig.copy); // the reference is none of the kernels'
  const bool good = !read && (within(address, bytes, &rig, sizeof rig) || within(address, bytes, &step, sizeof step) ||
                              within(address, bytes, &far, sizeof far) || within(address, bytes, &walk, sizeof walk));
  if (!good) {
    snprintf(why, PTX_TEXT, "%d bytes at %#llx (%d) belong to no case", (int)bytes, (unsigned long long)address,
             (int)access);
  }
  return good;
}

// Steps of few instructions where somebody watches.
static inline void run_to_end(struct ptx_run *run, const char *kernel)
{
  enum ptx_state state = PTX_RUNNING;
  while (state == PTX_RUNNING || state == PTX_POLLING) {
    state = ptx_run_step(run, machine.watch != NULL ? 1 + case_below(&rig, 8) : STEP);
    if (machine.watch != NULL && !machine.watch()) {
      fail_msg("%s: what is seen in between is wrong", kernel);
    }
  }
  if (state != PTX_DONE) {
    fail_msg("%s: %s", kernel, ptx_run_report(run));
  }
}

static inline void launch_any(const char *module, const char *kernel, unsigned ctas, const void *params, size_t bytes)
{
  char why[PTX_TEXT] = "";
  struct ptx_kernel_info info;
  const struct ptx_kernel *k = ptx_module_kernel(module_of(module), kernel);
  assert_non_null(k);
  ptx_kernel_info(k, &info);
  assert_int_equal(info.param_bytes, bytes);
  const struct ptx_launch l = {.grid = {ctas, 1, 1},
                               .block = {machine.threads, 1, 1},
                               .params = params,
                               .modes = machine.modes,
                               .seed = machine.seed++,
                               .sms = SMS,
                               .valid = valid};
  struct ptx_run *run = ptx_run_create(k, &l, why);
  if (run == NULL) {
    fail_msg("%s: %s", kernel, why);
  }
  run_to_end(run, kernel);
  ptx_run_destroy(run);
}

// A walk of so many groups.
static inline void launch_walk(const char *module, const char *kernel, unsigned groups, unsigned ctas)
{
  const tt_cuda_walk w = {.first = case_at(walk.first), .ctas = ctas};
  launch_any(module, kernel, groups * ctas, &w, sizeof w);
}

static inline void launch(void *arg, const char *module, const char *kernel, unsigned ctas, const tt_cuda_step *s)
{
  (void)arg;
  if (!machine.walks) {
    launch_any(module, kernel, ctas, s, sizeof *s);
    return;
  }
  char name[32];
  snprintf(name, sizeof name, "walk_%s", module);
  walk.meet[0] = 0;
  walk.items[0] = (tt_cuda_item){.step = *s, .meet = ctas > 1 ? case_at(walk.meet) : 0};
  walk.first[0] = case_at(walk.items);
  launch_walk(name, kernel, 1, TT_MIN(ctas, SMS)); // CTAs that meet are resident together
}

static inline void begin(unsigned modes, unsigned threads)
{
  rig.launch = launch;
  rig.seed = 88172645463325252ULL + machine.seed;
  rig.go = 1;
  rig.stop = 0;
  machine.modes = modes;
  machine.threads = threads;
  machine.watch = NULL;
}

static const unsigned all_modes = PTX_RANDOM_ORDER | PTX_STORE_BUFFERS | PTX_STALE_READS;

static int looks; // before something happens

// The item says that the walk is over.
static inline void walk_posts(tt_cuda_item *item)
{
  walk.post = (tt_cuda_post){.at = case_at(&walk.over), .seq = 9, .word = 1};
  item->step.post = (tt_cuda_posts){.posts = case_at(&walk.post), .nposts = 1};
}

// A walk whose data does not come ends when its port stops, and does nothing more, whichever word it waits for.
static inline bool watch_stop(void)
{
  if (looks-- == 0) {
    __atomic_store_n(&rig.stop, 1, __ATOMIC_RELEASE);
  }
  return true;
}

static inline void modules_free(void)
{
  for (int i = 0; i < MODULES; i++) {
    ptx_module_destroy(modules[i].module);
  }
}
