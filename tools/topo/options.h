// options.h: the command line of tutti-topo. Letters and long names with values as the perf programs take them; long
// names may be shortened.
//
// Beside the options of the table, each variable that matters for a machine is one: --cross-nic 1 is NCCL_CROSS_NIC=1.
#pragma once
#include <stdbool.h>
#include <stddef.h>

// The commands, as bits: each option knows those that it is for.
enum {
  XP_SHOW = 1,
  XP_PATHS = 2,
  XP_GRAPHS = 4,
  XP_CHANNELS = 8,
  XP_TUNING = 16,
  XP_EXPLAIN = 32,
  XP_SIMULATE = 64,
  XP_GATHER = 128,
  XP_LINT = 256,
  XP_DIFF = 512,
  XP_HOST = 1024,
  XP_CONNECT = XP_CHANNELS | XP_TUNING | XP_EXPLAIN | XP_SIMULATE, // need all nodes
  XP_FABRIC = XP_SIMULATE | XP_EXPLAIN,                            // ask what machines share
  XP_SEARCH = XP_SHOW | XP_GRAPHS | XP_CONNECT,                    // may need channels
  XP_MACHINE = XP_PATHS | XP_SEARCH,                               // have a machine
  XP_EVERY = 2047,
};

enum { XP_FILES = 2, XP_MAX_NODES = 1 << 20, XP_MAX_HOSTS = 256 };

typedef struct xp_options {
  const char *file[XP_FILES]; // NULL: not given
  int nfiles;
  const char *format, *output, *colour, *coll, *type, *op, *from, *to, *title;
  int nodes, hosts, ranks; // machines; of one NVLink domain each; host ranks of this computer, 0: chosen
  int rank, channel;       // -1: all, or the first
  int root, factor, width; // width 0: that of the terminal
  int leaf;                // machines below one leaf switch; 0: all
  double oversubscription; // of a leaf's uplinks; 0: not given
  size_t bytes, min_bytes, max_bytes, step;
  const char *workload;      // a file of tutti-trace workload
  const char *link, *memory; // of simulate --measured
  int iters;                 // operations one behind the other; 0: not given
  bool table, packed, matrix, ways, collnet, rails, measured, ascii, help;
} xp_options;

// Reads the arguments behind the command (argv[0] is not looked at) into *o, defaults first, and gives variables their
// values in the environment: call it before anything asks for one. False: `why` says what is wrong, with the nearest
// name for an unknown one.
bool xp_options_parse(int command, int argc, char *const *argv, xp_options *o, char why[256]);

// The options of a command, a line each, as text of at most `size` bytes.
void xp_options_help(int command, char *out, size_t size);

// Do they describe the switches between machines?
static inline bool xp_options_fabric(const xp_options *o)
{
  return o->rails || o->leaf > 0 || o->oversubscription > 0;
}

// The variables that matter for a machine, and may be given as options; NULL behind the last.
extern const char *const xp_variables[];

// The name nearest to `name`, when it is near enough to be meant; else NULL. names(arg, i) gives the i-th, NULL behind
// the last.
const char *xp_nearest(const char *name, const char *(*names)(void *arg, int i), void *arg);
