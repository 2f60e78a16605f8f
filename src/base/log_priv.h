// log_priv.h: the pure functions behind log.h, for its tests and fuzz programs.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/log.h"

// Level of a name ("info", any case). False, *out untouched, when there is none of that name.
bool tt_log_parse_level(const char *text, tt_log_level *out);

// Bits 1 << level of this level and those that it includes.
unsigned tt_log_levels_to(tt_log_level level);

// Bits of a comma-separated list of subsystem names in any case; ^ in front of the list means all but these. Unknown
// names count nothing and the first of them is copied to `unknown` (size bytes, "" when there is none).
unsigned tt_log_parse_subsys(const char *text, char *unknown, size_t size);

// The same for levels: bit (1 << level).
unsigned tt_log_parse_levels(const char *text, char *unknown, size_t size);

// Replaces %h, %p and %% in the name of a log file. Never more than `size` bytes with the final 0; returns false when
// cut.
bool tt_log_expand(const char *pattern, const char *host, int pid, char *out, size_t size);

// Time stamp of second `sec` and nanosecond `nsec` in local time, as NCCL_DEBUG_TIMESTAMP_FORMAT has it. Returns its
// length; what does not fit gives the default format.
size_t tt_log_stamp(const char *format, long long sec, long nsec, char *out, size_t size);
