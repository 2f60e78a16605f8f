// matrix.h: how much each rank sends to each other one in alltoallv_perf and alltoall_v_perf.
//
// NCCL_TESTS_ALLTOALLV_MATRIX_FILE names a file with a square of numbers: row i, column j = bytes from rank i to rank
// j, times NCCL_TESTS_ALLTOALLV_MATRIX_SCALE. Without it the bytes grow with the distance from i to j;
// NCCL_TESTS_ALLTOALLV_SPREAD (0 to 1) blends that with equal shares. All amounts are rounded down to whole 16 bytes.
#pragma once
#include <stdbool.h>
#include <stddef.h>

// Reads the variables and the file. NULL, or a line that says what is wrong. Call once, before any thread.
const char *perf_matrix_prepare(size_t min_bytes, size_t max_bytes, int nranks);

// Is there a file (the sizes are then fixed)?
bool perf_matrix_given(void);

// Bytes from rank `from` to rank `to` when every rank sends `total` in all (unused with a file).
size_t perf_matrix_bytes(int from, int to, int nranks, size_t total);

// Bytes from rank `from` to all ranks before `to`: where the part for `to` starts in its send buffer.
size_t perf_matrix_before(int from, int to, int nranks, size_t total);

// The greatest number of bytes that one rank sends or receives.
size_t perf_matrix_most(bool receives, int nranks, size_t total);

// Prints the bandwidth of every rank when NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY is set.
void perf_matrix_summary(int nranks, size_t total, double seconds);

// Parses `text` into a new array of *dim * *dim scaled and rounded numbers (free it); NULL: *error says why. Pure.
size_t *perf_matrix_parse(const char *text, double scale, int *dim, const char **error);
