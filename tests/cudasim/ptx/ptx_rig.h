// ptx_rig.h: for tests of the PTX machine: kernels from a few lines, run to their end.
#ifndef TUTTI_TESTS_CUDASIM_PTX_RIG_H
#define TUTTI_TESTS_CUDASIM_PTX_RIG_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ptx.h"

#define RIG_HEAD ".version 6.3\n.target sm_70\n.address_size 64\n"
// A kernel k(.u64 out) with registers enough, whose %rd0 is `out`.
#define RIG_REGS                                                                                \
  ".reg .pred %p<9>; .reg .b16 %rs<9>; .reg .b32 %r<30>; .reg .b64 %rd<30>; .reg .f32 %f<9>;\n" \
  "ld.param.u64 %rd0, [out];\n"
#define RIG_KERNEL RIG_HEAD ".visible .entry k(.param .u64 out)\n{\n" RIG_REGS

typedef struct rig_job {
  const char *text; // of the module
  const void *params;
  struct ptx_launch launch; // sizes of 0 are 1
  uint64_t portion;         // instructions of a step; 0: many
  char report[4096];        // of the last run
  uint64_t instructions;
} rig_job;

static inline struct ptx_module *rig_parse(const char *text)
{
  char why[PTX_TEXT];
  struct ptx_module *m = ptx_module_create(text, why);
  if (!m) {
    fail_msg("%s", why);
  }
  return m;
}

// The text must be refused, with this in the reason.
static inline void rig_refused(const char *text, const char *expected)
{
  char why[PTX_TEXT];
  struct ptx_module *m = ptx_module_create(text, why);
  assert_null(m);
  if (!strstr(why, expected)) {
    fail_msg("'%s' expected in '%s'", expected, why);
  }
}

// Runs kernel k of the module until it is no longer just running.
static inline enum ptx_state rig_run_module(rig_job *job, struct ptx_module *m)
{
  char why[PTX_TEXT];
  for (int i = 0; i < 3; i++) {
    job->launch.grid[i] += job->launch.grid[i] == 0;
    job->launch.block[i] += job->launch.block[i] == 0;
  }
  job->launch.params = job->params;
  struct ptx_run *run = ptx_run_create(ptx_module_kernel(m, "k"), &job->launch, why);
  if (!run) {
    fail_msg("%s", why);
  }
  enum ptx_state state;
  uint64_t portion = job->portion ? job->portion : 1000000;
  while ((state = ptx_run_step(run, portion)) == PTX_RUNNING && ptx_run_instructions(run) < 20000000) {
  }
  snprintf(job->report, sizeof job->report, "%s", ptx_run_report(run));
  job->instructions = ptx_run_instructions(run);
  ptx_run_destroy(run);
  return state;
}

static inline enum ptx_state rig_run(rig_job *job)
{
  struct ptx_module *m = rig_parse(job->text);
  enum ptx_state state = rig_run_module(job, m);
  ptx_module_destroy(m);
  return state;
}

// Runs a kernel k(.u64 out) of so many threads to its end.
static inline void rig_fill(const char *text, unsigned ctas, unsigned threads, void *out)
{
  rig_job job = {.text = text, .params = &out, .launch = {.grid = {ctas}, .block = {threads}}};
  enum ptx_state state = rig_run(&job);
  if (state != PTX_DONE) {
    fail_msg("%s", job.report);
  }
}

// The kernel must fail, with this in the report.
static inline void rig_faults(rig_job *job, const char *expected)
{
  enum ptx_state state = rig_run(job);
  if (state != PTX_FAULT || !strstr(job->report, expected)) {
    fail_msg("state %d, '%s' expected in '%s'", (int)state, expected, job->report);
  }
}

#endif
