// tune.h: tutti-tune: measures algorithms on this machine, and writes the choices of the bundled tuner.
#pragma once
#include <stdbool.h>
#include <stdio.h>

#include "figures/figures.h"

enum { TN_FUNCS = 5, TN_SIZES = 12, TN_CONFIGS = 24, TN_MAX_RANKS = 64 };

// One way to run collectives. Number 0 is the library's own choice, without names.
typedef struct tn_config {
  const char *algo;  // as in NCCL_ALGO; NULL: the library chooses
  const char *proto; // as in NCCL_PROTO
  const char *name;  // as in the file: "ring,simple"
} tn_config;

extern const tn_config tn_configs[];
extern const int tn_nconfigs;
extern const char *const tn_funcs[TN_FUNCS]; // as in the file

// Times of one number of ranks. Shared with the processes that measure.
typedef struct tn_times {
  int ranks, nsizes;
  size_t bytes[TN_FUNCS][TN_SIZES];          // of the larger buffer
  double us[TN_CONFIGS][TN_FUNCS][TN_SIZES]; // 0: not measured, or cannot be done
} tn_times;

typedef struct tn_options {
  bool machine;    // only the machine's figures
  const char *out; // NULL: ~/.nccl/tuner.csv, or where the library looks for figures
  int ranks[8], nranks;
  double seconds;
  size_t max_bytes;
} tn_options;

// Sets ranks and sizes, from 64 bytes on in steps of four.
void tn_times_begin(tn_times *t, int ranks, size_t max_bytes);

// Measures every size of every function with configuration `config`, each for about `slot` seconds, until `end`
// (CLOCK_MONOTONIC seconds). `t` is shared memory. False: a process failed.
bool tn_measure(tn_times *t, int config, double slot, double end);

// Writes the lines for these times, where something is at least 5% faster than the library's own choice. Returns their
// number.
int tn_write_choices(FILE *f, const tn_times *t);

// Measures this machine's figures, in a tenth of a second, and within two seconds where much else runs. What is not
// possible here (the kernel does not let a process read another, no loopback) stays the library's own, and standard
// error says so. False: one core only, or too much else runs, and standard error says so; or no second process.
bool tn_measure_machine(tt_figures *f);

double tn_now(void);
