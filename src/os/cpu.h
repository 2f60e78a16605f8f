// cpu.h: what kind of machine this is, and a thread's place on it.
#pragma once
#include <stdbool.h>
#include <stddef.h>

// The processor's name as it gives it itself (x86-64: CPUID), else as /proc/cpuinfo has it, "unknown" where neither says. Writes at most `size` bytes, one
// blank between words. Any thread.
void tt_cpu_name(char *out, size_t size);
// The kernel's release, as uname -r prints it. Any thread.
void tt_cpu_kernel(char *out, size_t size);
// Cores of the machine that are switched on, whichever of them this process may use. Any thread.
int tt_cpu_count(void);
// Bytes of a core's second-level cache; 0: the system does not say. Any thread.
size_t tt_cpu_l2(void);
// Binds the calling thread to one of the cores that it may use: number `nth`, counted from 0. False: there are not so many, or it may not. The caller's own
// thread only: the binding stays.
bool tt_cpu_pin(int nth);
