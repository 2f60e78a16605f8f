// cuda_results.h: for tests of communicators on GPUs: what ranks have, and what a program would reckon comes out.
#pragma once
#include <stddef.h>

static int nranks; // of the communicator

static inline float value_of(int rank, size_t i)
{
  return (float)(rank + 1) * (float)(i % 31 + 1);
}

static inline float sum_at(size_t i)
{
  float sum = 0;
  for (int r = 0; r < nranks; r++) {
    sum += value_of(r, i);
  }
  return sum;
}

// What element i of a rank's output is to be; `n`: elements of a block.
typedef float outcome(int rank, size_t i, size_t n);

static inline float reduced(int rank, size_t i, size_t n)
{
  (void)rank;
  (void)n;
  return sum_at(i);
}

static inline float from_one(int rank, size_t i, size_t n)
{
  (void)rank;
  (void)n;
  return value_of(1 % nranks, i);
}

static inline float gathered(int rank, size_t i, size_t n)
{
  (void)rank;
  return value_of((int)(i / n), i % n);
}

static inline float scattered(int rank, size_t i, size_t n)
{
  return sum_at((size_t)rank * n + i);
}

static inline float from_before(int rank, size_t i, size_t n)
{
  (void)n;
  return value_of((rank + nranks - 1) % nranks, i);
}

// The others' outputs stay as they are.
static inline float reduced_at_one(int rank, size_t i, size_t n)
{
  return rank == 1 % nranks ? reduced(rank, i, n) : -1;
}

static inline float gathered_at_one(int rank, size_t i, size_t n)
{
  return rank == 1 % nranks ? gathered(rank, i, n) : -1;
}

static inline float scattered_by_one(int rank, size_t i, size_t n)
{
  return value_of(1 % nranks, (size_t)rank * n + i);
}

static inline float exchanged(int rank, size_t i, size_t n)
{
  return value_of((int)(i / n), (size_t)rank * n + i % n);
}
