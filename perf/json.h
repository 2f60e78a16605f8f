// json.h: the results as a JSON file (-J), with the keys of nccl-tests' version 4.
#pragma once
#include "report.h"

typedef struct perf_json perf_json;

// Creates the file `path`, or path.0, path.1, ... when it exists, and starts the document with the command line and
// environment. `note` gets one line for standard output (which file, or why none). NULL when nothing will be written:
// not named .json, or not possible.
perf_json *perf_json_open(const char *path, int argc, char *const *argv, int library_version, char *note, size_t size);

// Options and devices.
void perf_json_config(perf_json *j, const perf_options *o, const perf_device *devices, int count);

// One line of results. procs: rows in result[].rows.
void perf_json_row(perf_json *j, const perf_options *o, const perf_row *row, int procs);

// The list of errors: one, or none when last_error is "".
void perf_json_errors(perf_json *j, const char *last_error);

// The footer.
void perf_json_footer(perf_json *j, long errors, double bus_bw, double min_bw);

// Writes the file, as far as the document got, and frees. NULL is allowed.
// False when the file could not be written.
bool perf_json_close(perf_json *j);

// All functions accept NULL for j and then do nothing. They may be called from several threads.
