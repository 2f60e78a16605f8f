// cpu.h: what kind of machine this is.
#pragma once
#include <stdbool.h>
#include <stddef.h>

// The processor's name as it reports it itself (x86-64: CPUID), else as /proc/cpuinfo has it, "unknown" where
// neither says. Writes at most `size` bytes, one blank between words. Any thread.
void tt_cpu_name(char *out, size_t size);
// The kernel's release, as uname -r prints it. Any thread.
void tt_cpu_kernel(char *out, size_t size);
// Cores of the machine that are switched on, whichever of them this process may use. Any thread.
int tt_cpu_count(void);
