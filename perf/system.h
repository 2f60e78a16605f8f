// system.h: what the perf programs ask of the machine.
#pragma once
#include <stddef.h>
#include <stdint.h>

// Monotonic time in nanoseconds.
uint64_t perf_now(void);

// Value of an environment variable or NULL. The only place in perf/ that reads the environment.
const char *perf_env(const char *name);

// Host name up to the first dot.
void perf_host_name(char *buf, size_t size);

// Model of the processor, or "unknown processor".
void perf_cpu_name(char *buf, size_t size);

// Bytes that may be allocated without swapping: MemAvailable, less where a control group allows less. SIZE_MAX when
// unknown.
size_t perf_memory_available(void);

// Bytes of memory that this process holds (VmRSS); 0 when unknown.
int64_t perf_memory_resident(void);

// The whole of a text file (up to 64 MiB) as a new string, or NULL. Free it.
char *perf_read_file(const char *path);

// "2025-01-31 10:20:30", local time.
void perf_timestamp(char *buf, size_t size);
