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

#define BEGINNING "NCCL WARN " // of a line on standard error; a newline ends it
enum { TEXT_BYTES = TT_ADVICE_BYTES - (int)sizeof BEGINNING, USER_BYTES = 2048 };

typedef struct advice {
  int state; // atomic
  char text[TEXT_BYTES];
} advice;

static advice kept[TT_ADVICE_LINES];
static bool speaks; // atomic

static int state_of(const advice *a)
{
  return __atomic_load_n(&a->state, __ATOMIC_SEQ_CST);
}

static bool advance_advice(advice *a, int from, int to)
{
  return __atomic_compare_exchange_n(&a->state, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

// Standard error gets it where the log shows no warnings because NCCL_DEBUG is not set.
static void write_out(const advice *a)
{
  if (tt_param_now("NCCL_DEBUG") != NULL) {
    tt_warn("%s", a->text);
    return;
  }
  char line[TT_ADVICE_BYTES];
  int size = snprintf(line, sizeof line, BEGINNING "%s\n", a->text);
  tt_log_stderr(line, (size_t)size);
}

// A keeper stores KEPT and then looks at `speaks`; tt_advice_speak stores `speaks` and then looks at the states. One of
// the two sees the other, and the change to SAID lets one of them write.
static void say_if_due(advice *a)
{
  if (__atomic_load_n(&speaks, __ATOMIC_SEQ_CST) && advance_advice(a, KEPT, SAID)) {
    write_out(a);
  }
}

// Keeps a text that no place has yet. Two threads with the same text may both find a place: it is said twice then.
static void keep_advice(const char *text)
{
  for (int i = 0; i < TT_ADVICE_LINES; i++) {
    advice *a = &kept[i];
    if (state_of(a) >= KEPT && strcmp(a->text, text) == 0) {
      return;
    }
    if (advance_advice(a, EMPTY, WRITING)) {
      strcpy(a->text, text);
      __atomic_store_n(&a->state, KEPT, __ATOMIC_SEQ_CST);
      say_if_due(a);
      return;
    }
  }
}

static void __attribute__((format(printf, 1, 0))) keep_v(const char *fmt, va_list args)
{
  int saved = errno;
  char text[TEXT_BYTES];
  tt_vformat(text, sizeof text, fmt, args);
  keep_advice(text);
  errno = saved;
}

void tt_advise_v(const char *file, int line, const char *fmt, va_list args)
{
  if (tt_param_now("NCCL_DEBUG") == NULL) {
    keep_v(fmt, args);
  } else {
    tt_log_line_v(TT_LOG_WARN, TT_ALL, file, line, fmt, args);
  }
}

void tt_advise_at(const char *file, int line, const char *fmt, ...)
{
  va_list args;
  va_start(args, fmt);
  tt_advise_v(file, line, fmt, args);
  va_end(args);
}

void tt_warn_user_at(const char *file, int line, const char *fmt, ...)
{
  char text[USER_BYTES];
  int saved = errno;
  va_list args;
  va_start(args, fmt);
  tt_vformat(text, sizeof text - 1, fmt, args);
  va_end(args);
  if (tt_param_now("NCCL_DEBUG") != NULL) {
    tt_log_line(TT_LOG_WARN, TT_ALL, file, line, "%s", text);
  } else {
    char all[USER_BYTES + sizeof BEGINNING];
    int size = snprintf(all, sizeof all, BEGINNING "%s\n", text);
    tt_log_stderr(all, (size_t)size);
  }
  errno = saved;
}

void tt_advise_job(const char *fmt, ...)
{
  va_list args;
  va_start(args, fmt);
  keep_v(fmt, args);
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
