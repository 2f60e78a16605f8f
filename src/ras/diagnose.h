// diagnose.h: what a process says of itself and its machine (DIAGNOSTICS), and the mask of profilers.
#pragma once
#include <stddef.h>
#include <stdint.h>

// Writes whole lines, each with its end, from line *cursor on, as many as fit, and returns their bytes. *cursor becomes
// the next line's number; 0: there is none. Any thread.
size_t ras_diagnose_page(uint64_t *cursor, char *out, size_t room);

// Sets the mask of events of every profiler of this process. Any thread.
void ras_profiler_mask(uint32_t mask);
