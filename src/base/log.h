// log.h: NCCL_DEBUG, NCCL_DEBUG_LEVELS, NCCL_DEBUG_SUBSYS, NCCL_DEBUG_FILE, NCCL_DEBUG_TIMESTAMP_FORMAT,
// NCCL_DEBUG_TIMESTAMP_LEVELS.
//
// INFO volume grows with the number of objects (communicators, connections), never with messages.
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

// The numbers are NCCL's. ATTN stands between WARN and INFO: what deserves attention, and is no error.
typedef enum {
  TT_LOG_NONE,
  TT_LOG_VERSION,
  TT_LOG_WARN,
  TT_LOG_INFO,
  TT_LOG_ABORT,
  TT_LOG_TRACE,
  TT_LOG_ATTN
} tt_log_level;

// Subsystem bits, the values of NCCL_DEBUG_SUBSYS: the names below without TT_.
enum {
  TT_INIT = 0x1,
  TT_COLL = 0x2,
  TT_P2P = 0x4,
  TT_SHM = 0x8,
  TT_NET = 0x10,
  TT_GRAPH = 0x20,
  TT_TUNING = 0x40,
  TT_ENV = 0x80,
  TT_ALLOC = 0x100,
  TT_CALL = 0x200,
  TT_PROXY = 0x400,
  TT_NVLS = 0x800,
  TT_BOOTSTRAP = 0x1000,
  TT_REG = 0x2000,
  TT_PROFILE = 0x4000,
  TT_RAS = 0x8000,
  TT_DESTROY = 0x10000,
  TT_ALLOC_HOST = 0x20000,
  TT_ALL = ~0
};

// Levels that are on and subsystem mask in one word: levels << 32 | mask; bit 1 << level. Written at first use and by
// tt_log_reset() only; read without a lock. All bits are set until the first line reads the environment.
extern TT_HIDDEN uint64_t tt_log_state;

// True when a line of this level and subsystem would be written. Cheap enough for any path.
static inline bool tt_log_on(tt_log_level level, unsigned subsys)
{
  uint64_t s = __atomic_load_n(&tt_log_state, __ATOMIC_RELAXED);
  return (s >> 32 >> level & 1) != 0 && (s & subsys) != 0;
}

// Writes one line "host:pid:tid [device] NCCL LEVEL text" where the level and subsystem are on. Use the macros below.
// Any thread, and the child of a fork; one write(2) per line, cut at 4096 bytes. Leaves errno alone.
void tt_log_line(tt_log_level level, unsigned subsys, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
void tt_log_line_v(tt_log_level level, unsigned subsys, const char *file, int line, const char *fmt, va_list args)
    __attribute__((format(printf, 5, 0)));

// Tells the log which device number stands in the calling thread's lines (-1: none; 0 at first).
void tt_log_device(int device);

// Makes the next line read the environment again (ncclResetDebugInit); NCCL_DEBUG_FILE is opened again when its name
// changed. Any thread. Needs no call at start: the first line reads the environment by itself.
void tt_log_reset(void);

// Makes the log's lock usable in a forked child; what it guards is whole at any moment.
void tt_log_forked(void);

// Writes "NCCL version 2.32.3 (Tutti ...)" once in the life of the process, at level VERSION or above. Any thread.
void tt_log_version(void);

// Writes `size` bytes to wherever the log goes, whatever NCCL_DEBUG says. Any thread.
void tt_log_raw(const char *text, size_t size);

// Writes `size` bytes to standard error, under the same rules as a line of the log: nothing holds up the program. Any
// thread.
void tt_log_stderr(const char *text, size_t size);

#define tt_warn(...) tt_log_line(TT_LOG_WARN, TT_ALL, __FILE__, __LINE__, __VA_ARGS__)
#define tt_attn(subsys, ...) tt_log_line(TT_LOG_ATTN, (subsys), __FILE__, __LINE__, __VA_ARGS__)
#define tt_info(subsys, ...)                                               \
  do {                                                                     \
    if (tt_log_on(TT_LOG_INFO, (subsys)))                                  \
      tt_log_line(TT_LOG_INFO, (subsys), __FILE__, __LINE__, __VA_ARGS__); \
  } while (0)
#define tt_trace(subsys, ...)                                               \
  do {                                                                      \
    if (tt_log_on(TT_LOG_TRACE, (subsys)))                                  \
      tt_log_line(TT_LOG_TRACE, (subsys), __FILE__, __LINE__, __VA_ARGS__); \
  } while (0)
