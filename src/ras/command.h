// command.h: reads what a client says: one line, one command. Pure.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { RAS_LINE_MAX = 1024 }; // bytes of a line with its end

typedef enum {
  RAS_UNKNOWN,  // also an empty line
  RAS_PROTOCOL, // CLIENT PROTOCOL n
  RAS_TIMEOUT,
  RAS_FORMAT,
  RAS_STATUS,
  RAS_MONITOR,
  RAS_DIAGNOSTICS,
  RAS_PROFILER_MASK,
  RAS_CONTROL,  // CONTROL with another word
  RAS_WHY,      // ours: which rank waits for which
  RAS_RECORDER, // ours: the flight recorders
} ras_verb;

enum { RAS_LIFECYCLE = 1, RAS_TRACE = 2 }; // groups of events

typedef struct ras_command {
  ras_verb verb;
  bool bad;        // the argument is not valid
  bool verbose;    // STATUS
  bool json;       // FORMAT
  double seconds;  // TIMEOUT
  unsigned groups; // MONITOR: RAS_…
  uint32_t mask;   // PROFILER_MASK: bits 0 to 14
  uint32_t most;   // RECORDER: operations of each communicator
  const char *arg; // what stands behind the command's words, in `line`
} ras_command;

// Reads a line without its end. The verbs, formats, groups and names are read in any case, words are separated by
// blanks. `line` lives as long as the result is used.
ras_command ras_command_read(const char *line);
