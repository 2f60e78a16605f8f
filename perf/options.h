// options.h: the command line of a perf program, as a pure function: no global state, no output, no exit.
//
// Names, letters and argument forms are those of nccl-tests 2.21; -P and -B are ours.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nccl.h"

enum {
  PERF_ALL = -1,   // -o all, -d all, -r all
  PERF_MULSUM = 5, // -o mulsum: an operation made with ncclRedOpCreatePreMulSum; the others are ncclRedOp_t values
  PERF_OPS = 6,    // number of operations that "all" means, NCCL's
  PERF_BITAND = PERF_OPS,             // tuttiBitAnd and the operations behind it: integer types only,
  PERF_LOGICALAND = PERF_BITAND + 3,  // tuttiLogicalAnd and the operations behind it: all types
  PERF_ALL_OPS = PERF_LOGICALAND + 3, // number of operations
  PERF_TYPES = ncclNumTypes,          // number of types; a type is its ncclDataType_t value
  PERF_MAX_RANKS = 4096,
};

typedef enum { PERF_RUN, PERF_HELP, PERF_BAD } perf_parse_result;

typedef struct perf_options {
  int procs, threads, gpus; // -P, -t, -g: processes, threads per process, ranks per thread
  int bind;                 // -B 0..1
  size_t min_bytes, max_bytes, step_bytes;
  int step_factor; // 1: steps are step_bytes
  int iters, agg_iters, warmup_iters;
  int cycles; // 0: for ever
  int parallel_init, check, op, type, root;
  int blocking; // -z 0..3
  int stream_null, timeout, graph, cputime, timestamps;
  int average;        // 0 rank 0, 1 average, 2 least, 3 greatest
  int local_register; // 0 none, 1 ncclCommRegister, 2 symmetric windows
  int cta_policy;     // -1: not given
  int device_impl, device_ctas, memory, unalign, per_iter, per_iter_skip, tuning;
  const char *output_file; // points into argv, or NULL
} perf_options;

// Text gathered while parsing: notes, or the one error. Always terminated; what does not fit is dropped.
typedef struct perf_text {
  size_t len;
  char buf[2048];
} perf_text;

// Appends to `t` as printf does.
void perf_text_add(perf_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Reads argv[1..argc-1] into *o (defaults first). PERF_RUN: *o is complete and consistent, `text` holds notes about
// options that mean nothing here ("" when there are none). PERF_HELP: -h was given. PERF_BAD: `text` is one line that
// names the option and its value. Pure: touches nothing but *o and *text.
perf_parse_result perf_options_parse(perf_options *o, int argc, char *const *argv, perf_text *text);

// A number that differs when an option other than a file name does. Pure.
uint64_t perf_options_hash(const perf_options *o);

// Writes the usage text for `program` into buf (size bytes, always terminated).
void perf_options_usage(const char *program, char *buf, size_t size);

// "123", "4K", "1.5M", "2g", "1MB" in bytes (binary units). Returns false when it is not a size or does not fit.
bool perf_parse_size(const char *s, size_t *out);

// Reads a whole number from 0 to `max`, digits alone. Pure.
bool perf_parse_count(const char *s, int max, int *out);

// Names as on the command line and in the table: "float", "sum". `type` and `op` are in range.
const char *perf_type_name(int type);
const char *perf_op_name(int op);

// The size after `size` in a scan, or 0 when the scan is over. Never wraps around, never stands still.
size_t perf_next_size(const perf_options *o, size_t size);

// Number of sizes in a scan.
size_t perf_size_count(const perf_options *o);
