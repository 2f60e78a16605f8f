// split.h: NCCL_TESTS_SPLIT and NCCL_TESTS_SPLIT_MASK: which ranks work together in one group.
#pragma once
#include <stdbool.h>

typedef enum { PERF_SPLIT_NONE, PERF_SPLIT_AND, PERF_SPLIT_OR, PERF_SPLIT_MOD, PERF_SPLIT_DIV } perf_split_kind;

typedef struct perf_split {
  perf_split_kind kind;
  int value;
} perf_split;

// Reads "AND 0x7", "&0b11", "MOD 2", "%2", "OR 1", "DIV 4" (`split`, may be NULL) or a hexadecimal mask (`mask`, may be
// NULL, goes first). False when the text is neither. Pure.
bool perf_split_parse(const char *split, const char *mask, perf_split *out);

// Group of unit number `unit`.
int perf_split_color(const perf_split *s, int unit);
