// ranks.h: ranks that a backend starts itself, as processes or as threads, because its library has no launcher of its
// own.
#pragma once
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RANKS_AREA ((size_t)1 << 20)

// Calls run(rank) for every rank: each in a process of its own, or each in a thread of this one. Returns once all have
// returned: 0 when all returned 0. The first process that fails takes the others along; a thread that fails ends the
// process.
int ranks_run(int nranks, int threads, int (*run)(int rank));

// RANKS_AREA bytes that all ranks share, zeros at first. NULL outside ranks_run.
void *ranks_area(void);

// Until all ranks are here. Spins, and yields so that it ends soon when another rank has lost its core for a while.
// Returns 0.
int ranks_barrier(void);

#ifdef __cplusplus
}
#endif
