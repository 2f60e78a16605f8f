// advice.h: faults in what the user set (variables, files, plugins; what plugins warn of). They are said also where
// NCCL_DEBUG is not set.
//
// Such a line is a warning in the log. Without NCCL_DEBUG the log shows no warnings; then standard error gets the line,
// as "NCCL WARN text". Each text goes there once, and only from the process that speaks for its job, so that a job of
// 64 ranks says it once. What is wrong with the log's own settings is said once in a job wherever it goes: it is the
// same for all processes, and hides nothing. NCCL_DEBUG=NONE or VERSION keeps both quiet.
#pragma once

#include <stdarg.h>

enum {
  TT_ADVICE_LINES = 8,   // more lines than this are left to the log
  TT_ADVICE_BYTES = 400, // of a line, with its end
};

// Says a fault: what is set, what was expected, what is used instead. Any thread. Leaves errno alone.
#define tt_advise(...) tt_advise_at(__FILE__, __LINE__, __VA_ARGS__)
void tt_advise_at(const char *file, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void tt_advise_v(const char *file, int line, const char *fmt, va_list args) __attribute__((format(printf, 3, 0)));

// Says what a user must see at once: a warning in the log; without NCCL_DEBUG, which hides warnings, a line "NCCL WARN
// text" on standard error. NCCL_DEBUG=NONE or VERSION keeps it quiet. Any thread.
#define tt_warn_user(...) tt_warn_user_at(__FILE__, __LINE__, __VA_ARGS__)
void tt_warn_user_at(const char *file, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

// Says a fault in the log's own settings: only the process that speaks for its job does, in its log or on standard
// error. The same rules.
void tt_advise_job(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// This process speaks for its job: it has rank 0 of a communicator. Writes the lines kept so far; later ones go out at
// once. Any thread.
void tt_advice_speak(void);
