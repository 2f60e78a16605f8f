#include "matrix.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "system.h"

// One process runs one matrix: written by perf_matrix_prepare, read-only afterwards.
static struct {
  size_t *bytes; // NULL: generated
  int dim;
  double scale, spread;
  bool summary;
  char error[512];
} matrix = {.spread = 1};

enum { MAX_DIM = 4096 };

// Numbers of one line appended to `values`; -1 when something is not a non-negative number.
static int parse_line(const char **at, double scale, size_t *values, int room)
{
  int n = 0;
  const char *s = *at;
  for (;;) {
    s += strspn(s, " \t\r\v\f");
    if (*s == '\n' || *s == '\0') {
      break;
    }
    char *end;
    double v = strtod(s, &end) * scale;
    if (end == s || (*end && !isspace((unsigned char)*end)) || !(v >= 0 && v < (double)((size_t)1 << 50)) ||
        n == room) {
      return -1;
    }
    values[n++] = (size_t)v & ~(size_t)15;
    s = end;
  }
  *at = *s ? s + 1 : s;
  return n;
}

static const char *parse_square(const char *text, double scale, size_t *line, size_t **values, int *dim)
{
  int rows = 0, cols = 0;
  while (*text) {
    int n = parse_line(&text, scale, line, MAX_DIM);
    if (n == 0) {
      continue;
    }
    if (n < 0) {
      return "has a value that is not a number of bytes";
    }
    if (rows == 0) {
      cols = n;
      *values = calloc((size_t)n * (size_t)n, sizeof(**values));
    }
    if (!*values) {
      return "does not fit into memory";
    }
    if (n != cols || rows == cols) {
      return "is not square";
    }
    memcpy(*values + (size_t)rows++ * (size_t)cols, line, (size_t)cols * sizeof(*line));
  }
  *dim = rows;
  return rows == 0 ? "is empty" : rows != cols ? "is not square" : NULL;
}

size_t *perf_matrix_parse(const char *text, double scale, int *dim, const char **error)
{
  size_t *values = NULL;
  size_t *line = calloc(MAX_DIM, sizeof(*line));
  *error = line ? parse_square(text, scale, line, &values, dim) : "does not fit into memory";
  free(line);
  if (*error) {
    free(values);
    return NULL;
  }
  return values;
}

static const char *failed(const char *file, const char *why)
{
  snprintf(matrix.error, sizeof(matrix.error), "alltoallv traffic matrix file %.300s %s", file, why);
  return matrix.error;
}

static const char *load(const char *file, int nranks)
{
  char *text = perf_read_file(file);
  if (!text) {
    return failed(file, "cannot be read");
  }
  const char *why;
  matrix.bytes = perf_matrix_parse(text, matrix.scale, &matrix.dim, &why);
  free(text);
  if (!matrix.bytes) {
    return failed(file, why);
  }
  if (matrix.dim < nranks) {
    char line[96];
    snprintf(line, sizeof(line), "has %d rows; there are %d ranks", matrix.dim, nranks);
    return failed(file, line);
  }
  return NULL;
}

static double env_number(const char *name, double fallback, double most)
{
  const char *s = perf_env(name);
  char *end;
  double v = s ? strtod(s, &end) : 0;
  if (!s || end == s || *end || v != v) {
    return fallback;
  }
  return v < 0 ? 0 : v > most ? most : v;
}

const char *perf_matrix_prepare(size_t min_bytes, size_t max_bytes, int nranks)
{
  matrix.spread = env_number("NCCL_TESTS_ALLTOALLV_SPREAD", 1, 1);
  matrix.scale = env_number("NCCL_TESTS_ALLTOALLV_MATRIX_SCALE", 1, 1e18);
  matrix.summary = env_number("NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY", 0, 1) != 0;
  const char *file = perf_env("NCCL_TESTS_ALLTOALLV_MATRIX_FILE");
  if (!file) {
    return NULL;
  }
  const char *error = load(file, nranks);
  if (error) {
    return error;
  }
  if (min_bytes != max_bytes) {
    return "-b and -e must be equal (such as -b 32M -e 32M) with NCCL_TESTS_ALLTOALLV_MATRIX_FILE: the sizes come from "
           "the file";
  }
  size_t sent = perf_matrix_most(false, nranks, 0), received = perf_matrix_most(true, nranks, 0);
  size_t need = sent > received ? sent : received;
  if (max_bytes < need) {
    snprintf(matrix.error, sizeof(matrix.error),
             "maxBytes (-e) must be at least %zu bytes as required by traffic matrix file %.300s (got %zu)", need, file,
             max_bytes);
    return matrix.error;
  }
  return NULL;
}

bool perf_matrix_given(void)
{
  return matrix.bytes != NULL;
}

size_t perf_matrix_bytes(int from, int to, int nranks, size_t total)
{
  if (matrix.bytes) {
    return matrix.bytes[(size_t)from * (size_t)matrix.dim + (size_t)to];
  }
  if (nranks == 1) {
    return total & ~(size_t)15;
  }
  int distance = (to - from + nranks) % nranks;
  double equal = (double)total / nranks;
  double far = (double)distance * (double)total / ((double)nranks * (nranks - 1) / 2);
  return (size_t)((1 - matrix.spread) * equal + matrix.spread * far) & ~(size_t)15;
}

size_t perf_matrix_before(int from, int to, int nranks, size_t total)
{
  size_t sum = 0;
  for (int r = 0; r < to; r++) {
    sum += perf_matrix_bytes(from, r, nranks, total);
  }
  return sum;
}

static size_t sum_of(int rank, bool receives, int nranks, size_t total)
{
  size_t sum = 0;
  for (int peer = 0; peer < nranks; peer++) {
    sum += receives ? perf_matrix_bytes(peer, rank, nranks, total) : perf_matrix_bytes(rank, peer, nranks, total);
  }
  return sum;
}

size_t perf_matrix_most(bool receives, int nranks, size_t total)
{
  size_t most = sum_of(0, receives, nranks, total);
  for (int rank = 1; matrix.bytes && rank < nranks; rank++) { // without a file all ranks are alike
    size_t sum = sum_of(rank, receives, nranks, total);
    most = sum > most ? sum : most;
  }
  return most;
}

void perf_matrix_summary(int nranks, size_t total, double seconds)
{
  if (!matrix.summary) {
    return;
  }
  if (matrix.bytes) {
    printf("# NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY: mode=matrix nranks=%d matrix_dim=%d scale=%.3f time_usec=%.2f\n",
           nranks, matrix.dim, matrix.scale, seconds * 1e6);
  } else {
    printf(
        "# NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY: mode=generated nranks=%d total_bytes=%zu spread=%.3f time_usec=%.2f\n",
        nranks, total, matrix.spread, seconds * 1e6);
  }
  for (int rank = 0; rank < nranks; rank++) {
    size_t sent = sum_of(rank, false, nranks, total), received = sum_of(rank, true, nranks, total);
    double bw = (double)(sent > received ? sent : received) / 1e9 / seconds;
    printf("#   rank=%d send_bytes=%zu recv_bytes=%zu alg_bw=%.2f bus_bw=%.2f\n", rank, sent, received, bw,
           bw * (nranks - 1) / nranks);
  }
}
