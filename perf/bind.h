// bind.h: cores of this machine, and a process that stays on some of them.
#pragma once
#include <stdbool.h>

// Cores that this process may use: hardware threads of one core count once.
int perf_cores(void);

// Binds the calling thread, and those that it makes, to `count` of these cores from number `first` on, with all their
// hardware threads. False: not possible, and nothing has changed.
bool perf_bind(int first, int count);
