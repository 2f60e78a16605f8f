// report.c: texts on what went wrong, and on where threads stand.
#include "ptx_priv.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPORT_LINES = 64 };

static void append(struct ptx_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void append(struct ptx_run *run, const char *format, ...)
{
  char text[2 * PTX_TEXT];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  size_t have = run->report ? strlen(run->report) : 0, n = strlen(text) + 1;
  char *more = realloc(run->report, have + n);
  if (more) {
    memcpy(more + have, text, n);
    run->report = more;
  }
}

static void clear(struct ptx_run *run)
{
  free(run->report);
  run->report = NULL;
}

// The instruction as the text has it, with single blanks.
static void instruction_text(const struct ptx_run *run, const struct ptx_ins *i, char out[128])
{
  const char *s = run->kernel->module->text + i->text;
  int n = 0;
  for (; *s && *s != ';' && *s != '}' && n < 126; s++) {
    bool blank = *s == ' ' || *s == '\t' || *s == '\n' || *s == '\r';
    if (!blank) {
      out[n++] = *s;
    } else if (n > 0 && out[n - 1] != ' ') {
      out[n++] = ' ';
    }
  }
  out[n] = 0;
}

bool ptx_fault(struct ptx_thread *t, const struct ptx_ins *i, const char *format, ...)
{
  struct ptx_run *run = t->cta->run;
  const uint32_t *c = t->cta->id;
  char text[PTX_TEXT], ins[128];
  va_list list;
  if (run->state == PTX_FAULT) {
    return false;
  }
  run->state = PTX_FAULT;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  instruction_text(run, i, ins);
  clear(run);
  append(run, "kernel %s, CTA (%u, %u, %u), thread (%u, %u, %u), line %u: %s: %s\n", run->kernel->name, c[0], c[1],
         c[2], t->tid[0], t->tid[1], t->tid[2], i->line, ins, text);
  for (int k = t->depth; k-- > 0;) {
    const struct ptx_ins *call = t->stack[k].pc - 1;
    append(run, "  in %s, called at line %u\n", k + 1 == t->depth ? t->fn->name : t->stack[k + 1].fn->name, call->line);
  }
  return false;
}

static const char *doing(const struct ptx_thread *t, const struct ptx_run *run)
{
  return t->wait == PTX_AT_BARRIER                          ? "wait at a barrier"
         : t->wait == PTX_AT_WARP || t->wait == PTX_AT_LINE ? "wait for threads of their warp"
         : run->stuck                                       ? "poll"
                                                            : "run";
}

static void report_cta(struct ptx_run *run, const struct ptx_cta *cta, int *lines)
{
  for (int i = 0; i < run->threads && *lines < REPORT_LINES;) {
    const struct ptx_thread *t = &cta->threads[i];
    int n = 1;
    while (i + n < run->threads && t->pc == t[n].pc && t->wait == t[n].wait) {
      n++;
    }
    if (t->wait != PTX_ENDED) {
      char ins[128];
      instruction_text(run, t->pc, ins);
      append(run, "  CTA (%u, %u, %u), threads %d to %d %s, line %u: %s\n", cta->id[0], cta->id[1], cta->id[2], i,
             i + n - 1, doing(t, run), t->pc->line, ins);
      ++*lines;
    }
    i += n;
  }
}

static void report_threads(struct ptx_run *run)
{
  int lines = 0;
  for (int i = 0; i < run->nlive; i++) {
    report_cta(run, run->live[i], &lines);
  }
  if (lines == REPORT_LINES) {
    append(run, "  and so on\n");
  }
  if (run->started < run->ctas) {
    append(run, "  %llu CTAs have not begun\n", (unsigned long long)(run->ctas - run->started));
  }
}

void ptx_fault_deadlock(struct ptx_run *run)
{
  run->state = PTX_FAULT;
  clear(run);
  append(run, "kernel %s: no thread can go on\n", run->kernel->name);
  report_threads(run);
}

const char *ptx_run_report(struct ptx_run *run)
{
  if (run->state == PTX_FAULT) {
    return run->report;
  }
  clear(run);
  append(run, "kernel %s: %s, %llu instructions\n", run->kernel->name,
         run->state == PTX_DONE      ? "done"
         : run->state == PTX_POLLING ? "polling"
                                     : "running",
         (unsigned long long)run->instructions);
  report_threads(run);
  return run->report ? run->report : "";
}
