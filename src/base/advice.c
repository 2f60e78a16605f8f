#include "base/advice.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "base/text.h"

// EMPTY -> WRITING: a thread took the place; -> KEPT: the text is whole; -> SAID: it is written out.
enum { EMPTY, WRITING, KEPT, SAID };

typedef struct advice {
  int state; // atomic
  char text[TT_ADVICE_BYTES];
} advice;

static advice kept[TT_ADVICE_LINES];
static bool speaks; // atomic

static int state_of(const advice *a)
{
  return __atomic_load_n(&a->state, __ATOMIC_SEQ_CST);
}

static bool advance(advice *a, int from, int to)
{
  return __atomic_compare_exchange_n(&a->state, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

// A keeper stores KEPT and then looks at `speaks`; tt_advice_speak stores `speaks` and then looks at the states. One of the two sees the
// other, and the change to SAID lets one of them write.
static void say_if_due(advice *a)
{
  if (__atomic_load_n(&speaks, __ATOMIC_SEQ_CST) && advance(a, KEPT, SAID)) {
    tt_log_stderr(a->text, strlen(a->text));
  }
}

// Keeps a text that no place has yet. Two threads with the same text may both find a place: it is said twice then.
static void keep(const char *text)
{
  for (int i = 0; i < TT_ADVICE_LINES; i++) {
    advice *a = &kept[i];
    if (state_of(a) >= KEPT && strcmp(a->text, text) == 0) {
      return;
    }
    if (advance(a, EMPTY, WRITING)) {
      strcpy(a->text, text);
      __atomic_store_n(&a->state, KEPT, __ATOMIC_SEQ_CST);
      say_if_due(a);
      return;
    }
  }
}

void tt_advise_v(const char *file, int line, const char *fmt, va_list args)
{
  int saved = errno;
  va_list copy;
  va_copy(copy, args);
  tt_log_line_v(TT_LOG_WARN, TT_ALL, file, line, fmt, copy);
  va_end(copy);
  if (tt_param_now("NCCL_DEBUG") == NULL) {
    char text[TT_ADVICE_BYTES] = "NCCL WARN ";
    const size_t used = strlen(text);
    errno = saved;
    tt_vformat(text + used, sizeof text - used - 1, fmt, args);
    strcat(text, "\n");
    keep(text);
  }
  errno = saved;
}

void tt_advise_at(const char *file, int line, const char *fmt, ...)
{
  va_list args;
  va_start(args, fmt);
  tt_advise_v(file, line, fmt, args);
  va_end(args);
}

void tt_advice_speak(void)
{
  tt_params_get(); // reading them may find faults
  __atomic_store_n(&speaks, true, __ATOMIC_SEQ_CST);
  for (int i = 0; i < TT_ADVICE_LINES; i++) {
    say_if_due(&kept[i]);
  }
}
