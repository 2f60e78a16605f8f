// figures.h: how fast this machine does what the library's choices depend on. Front door of src/figures.
//
// Times and speeds that differ from machine to machine stand in a file per user and kind of machine, which `tutti-tune
// --machine` writes; without one the library's own hold, for which its cost tables and thresholds were made
// (coll/cost.h, coll/crossing.h). All ranks of a communicator reckon with rank 0's.
//
// The file is text, "name = value" lines as in a configuration file: `version`, what the machine is (`cpu`, `cores`,
// `kernel`), `host` and `measured` (seconds since 1970), and every figure once.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nccl.h"

typedef enum tt_figure {
  TT_FIG_LINE, // ps: a cache line from a core to another
  TT_FIG_PASS, // MB/s: bytes written into common memory by one core, and read by another, in both directions at once
  TT_FIG_ADD,  // MB/s, read and written: c = a + b in a core's caches
  TT_FIG_CALL_START, // ns: the kernel copies a few bytes from another process
  TT_FIG_CALL,       // MB/s: the kernel copies what another process has just written, in both directions at once
  TT_FIG_SWITCH,     // ns: a core goes on with another thread
  TT_FIG_NET_WAY,    // ns: a few bytes from one thread to another over TCP on this machine
  TT_FIG_NET_CALL,   // ns: sending a few bytes over TCP, or receiving them
  TT_FIG_NET,        // MB/s: bytes sent and received by one core over TCP
  TT_FIG_L2,         // KiB: a core's second-level cache
  TT_FIGURES
} tt_figure;

enum { TT_FIGURES_VERSION = 1, TT_FIGURES_MAX_BYTES = 8192 };

// As it travels between ranks. Whole numbers: the same in every locale, and in every process.
typedef struct tt_figures {
  uint32_t version;  // TT_FIGURES_VERSION
  uint32_t measured; // 0: the library's own
  int64_t when;      // seconds since 1970; 0: the library's own
  uint32_t value[TT_FIGURES];
  uint32_t zero[2];
} tt_figures;
_Static_assert(sizeof(tt_figures) == 64, "bootstrap message layout, without gaps");

// What a figure is called in files and logs, in which unit, what the library takes without a measurement, and between
// what it may lie.
typedef struct tt_figure_row {
  const char *name, *unit, *what;
  uint32_t own, least, most;
} tt_figure_row;
const tt_figure_row *tt_figure_row_at(tt_figure f);

// What kind of machine this is: figures of one hold for all of its kind.
typedef struct tt_machine_kind {
  char cpu[64], kernel[64];
  int cores;
} tt_machine_kind;

// The library's own figures.
tt_figures tt_figures_default(void);
// Are they of this version, each within its limits? What came from another rank or out of a file is asked. Pure.
bool tt_figures_good(const tt_figures *f);
// How many times as much as the library's own. Of good figures: 1 for the library's own. Pure.
double tt_figures_ratio(const tt_figures *f, tt_figure which);
// The same values? When they were measured is of no account. Pure.
bool tt_figures_same(const tt_figures *a, const tt_figures *b);
// "line_ps 113000, pass_mbs 2900, ..." into `out`, which is returned. Pure.
const char *tt_figures_text(const tt_figures *f, char *out, size_t size);

#define TT_FIGURES_WHY 160

// Reads a file's text. `kind` NULL: of whatever machine. False, with the reason in `why`: not such a file, of another
// version or machine, or it lacks a figure. *out is written only on success. Pure.
bool tt_figures_parse(const char *text, size_t size, const tt_machine_kind *kind, tt_figures *out,
                      char why[TT_FIGURES_WHY]);
// This machine.
tt_machine_kind tt_machine_kind_get(void);

// Where this user's figures of this machine are: NCCL_HOST_FIGURES, else tutti/figures-<kind> in $XDG_CACHE_HOME or
// ~/.cache. False: nowhere (no home, or NCCL_HOST_FIGURES=none), with the reason in `why`. *named: by the user, for
// whatever machine.
bool tt_figures_place(char *out, size_t size, bool *named, char why[TT_FIGURES_WHY]);

// Where figures came from.
typedef struct tt_figures_source {
  tt_figures figures;
  char from[TT_FIGURES_WHY + 256]; // for people: the file, or why there is none
  bool bad;                        // there is a file, and it cannot be used
} tt_figures_source;

// Reads the figures of this user and machine, or gives the library's own. Any thread.
void tt_figures_find(tt_figures_source *out);
// The same, read at the first call and kept for the life of the process; what is wrong with a file is said then (WARN).
// Any thread.
const tt_figures_source *tt_figures_own(void);
