// draw_priv.h: what the drawing files share: where everything stands, and small writers.
#pragma once
#include "draw.h"

typedef struct xp_box {
  float x, y, w, h; // left, top
} xp_box;

// Where the nodes of a machine stand: CPUs above, PCI switches and network cards below them, then GPUs in one row,
// NVSwitches at the foot. Several hosts stand side by side in bands; where many cards make a machine too wide for a
// slide, they stand in tiers. Every node's way up is a straight line down to it from a box that is as wide as all that
// hangs on it, so that no line goes through a box and no box stands on another.
typedef struct xp_layout {
  const tt_topo *topo;
  float width, height; // of the whole, from 0
  xp_box *box;         // of each node; an NVSwitch has its `bars`. w is 0: not drawn
  float *hang;         // where the way up leaves it, from its left
  int *parent;         // the node that it hangs on in the tree of boxes; -1
  int *place;          // GPUs: how many stand left of it in its band
  int *band;           // of each node
  int far;             // the greatest distance, in places, of two GPUs that a line joins
  int nbands;
  xp_box *bars;   // of the NVSwitch: one below each band
  xp_box *panels; // of the hosts; w is 0 where there is only one
  float zone;     // height below the GPUs, for links between them and for channels
  float arch;     // height above the CPUs, for links between them
  float scale;    // of title and legend: a large picture is seen from further away
} xp_layout;

// Places everything, with room for the channels that are drawn: all of them in a page. The title's place is kept free
// above, the legend is the caller's. Free with xp_layout_clear. Errors: no memory.
ncclResult_t xp_layout_make(const xp_drawing *d, bool page, xp_layout *out);
void xp_layout_clear(xp_layout *layout);

// Where a number stands: which side of it is at x.
typedef struct xp_label {
  float x, y;
  const char *anchor; // start, middle, end
} xp_label;

// The line of link `l` as SVG path data, and where its number may stand. False when one end is not drawn.
bool xp_layout_link(const xp_layout *layout, int l, char *path, size_t size, xp_label *label);

// The line of an edge of channel number `channel` from node a to b.
bool xp_layout_edge(const xp_layout *layout, const int ends[2], int channel, char *path, size_t size);

// Edges of a channel, in the direction in which data goes first: pairs of nodes. Calls fn for each.
typedef void xp_edge_fn(void *arg, int from, int to);
void xp_graph_edges(const tt_topo *topo, const tt_graph *graph, int channel, xp_edge_fn *fn, void *arg);

// "ring", "tree", …: what a graph is for.
const char *xp_graph_name(int kind);

// "0000:0f:00.0" of a bus id.
const char *xp_bus_text(int64_t id, char *buf, size_t size);

// Writes text for XML and HTML, in and out of attributes: escaped; what is not UTF-8, or not allowed there, as U+FFFD.
// At most `most` characters, then "…".
void xp_escape(const char *text, size_t most, FILE *out);

// Bytes of the UTF-8 character at `s`, 0 when it is none or one that XML forbids.
int xp_utf8(const char *s);

// The picture without <?xml?>. `page`: for the HTML page, with what its script looks for, and all channels hidden
// instead of one shown.
ncclResult_t xp_svg_write(const xp_drawing *d, const xp_layout *layout, bool page, FILE *out);

// The title and what is in the machine, escaped.
void xp_title_write(const xp_drawing *d, FILE *out);

enum { XP_COLOURS = 15 }; // of channels, which take turns

// The colour of a channel of a graph, from 0 on.
int xp_colour_of(int kind, int channel);

// Colours of the picture, as style rules: 0 for a light background, 1 for a dark one. An edge has the class tt-gK for
// the dashes of graph K, tt-cC for colour C, and the marker tt-aC.
void xp_svg_colours(int dark, FILE *out);

// The picture's <style>, light, and its markers.
void xp_svg_style(FILE *out);

// The best path between both ends of an edge; NULL where none is known, or there is none.
const tt_path *xp_edge_path(const xp_drawing *d, int from, int to);

// GB/s that a channel has on an edge.
float xp_edge_bandwidth(const tt_topo *topo, const tt_graph *graph, int from, int to);

// Name of a network port, "mlx5_0"; "" where it has none, and for other nodes.
const char *xp_port_name(const xp_drawing *d, int node);

// Number of edges of all channels.
long xp_edge_count(const xp_drawing *d);

// The JSON document; `page`: without the title, and without paths where there are too many.
ncclResult_t xp_json_write(const xp_drawing *d, bool page, FILE *out);

// page.css and page.js: the page's rules and script, which makes elements and their text, never HTML from text.
extern const char xp_page_style[], xp_page_script[];

// chart.css and chart.js: those of its chart; the script stands behind the page's, and marks <html> as ready at its
// end.
extern const char xp_chart_style[], xp_chart_script[];

// ncclSuccess, or an error when something could not be written.
ncclResult_t xp_written(FILE *out);
