// draw.h: a machine as a picture, a page or data; what is wrong in a file; how two files differ.
#pragma once
#include <stdio.h>

#include "topo/graph.h"

// Predicted time over size: us[i] for xp_curve_size(i) bytes, which are 8, 16, … 8 GiB; 0 or less: not for that size.
// Names are constants.
enum { XP_CURVE_SIZES = 31 };
typedef struct xp_curve {
  const char *func, *algo, *proto; // "AllReduce", "Ring", "LL"; "": no protocol
  double us[XP_CURVE_SIZES];
} xp_curve;

typedef struct xp_curves {
  xp_curve *list;
  int count;
  const char *model; // whose prediction it is
} xp_curves;

// Bytes of size number i, from 0 to XP_CURVE_SIZES - 1.
size_t xp_curve_size(int i);

// What is drawn. `title` is any text; `graphs` may be NULL; `ports`, too: the names of network ports by node, NULL for
// what has none. All are read only and the caller's.
typedef struct xp_drawing {
  const char *title;
  const tt_topo *topo;
  const tt_paths *paths;
  const tt_graphs *graphs;
  const char *const *ports;
  const xp_curves *curves; // NULL: no chart
  int machines;            // such machines over the network, of which one is drawn; 0 counts as 1
} xp_drawing;

enum { XP_SUMMARY = 256 };

// "8 GPUs, 8 network ports, 2 CPUs, NVSwitch": what is in a machine. Returns out.
const char *xp_summary(const tt_topo *topo, char out[XP_SUMMARY]);

// What a link is: "MEM" where it leads to a rank in host memory, else the name of its type. The bandwidth of MEM is
// what the search counts with; nobody measured it.
const char *xp_link_kind(const tt_topo *topo, const tt_topo_link *link);

// Writes an SVG picture for a slide: every node a box, every link a line (colour: kind; thickness: bandwidth; number:
// GB/s in one direction), a legend; with graphs the ring of channel 0. A viewer shows names under the pointer. The same
// machine is always the same bytes. Errors: no memory, a write that failed.
ncclResult_t xp_draw_svg(const xp_drawing *d, FILE *out);

// Writes one HTML file that needs nothing else. It has the same picture, each channel of each graph to be switched on
// and off, details of whatever the pointer or the keyboard is on, the paths between two places, a search, a table of
// the graphs. Errors as above. Beyond XP_PAGE_ENDS ends the page is without paths, beyond XP_PAGE_EDGES edges without
// the lines of channels, and says so.
ncclResult_t xp_draw_html(const xp_drawing *d, FILE *out);

enum { XP_PAGE_ENDS = 256, XP_PAGE_EDGES = 20000 };

// Writes the same as JSON, one node, link, row of paths or graph per line: docs/topology.md has the form. Errors as
// above.
ncclResult_t xp_draw_json(const xp_drawing *d, FILE *out);

// Says what is wrong or suspicious in a topology or graph file (or "-", a capture, a folder: see xp_read), sorted by
// line: how bad, where, the value, why it matters, what to do. Returns an exit code: 0 nothing found, 1 something, 2
// the file cannot be read (a message goes to standard error), or `out` not be written.
int xp_lint(const char *file, FILE *out);

// Says in what two machines, or two files of graphs, differ by meaning: elements are matched by bus id or name, then by
// position; the order of elements and attributes and ways to write a number do not count. Returns 0 equal, 1 different,
// 2 as above.
int xp_diff(const char *a, const char *b, FILE *out);
