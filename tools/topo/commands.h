// commands.h: the commands, one file each. All return an exit code: 0 good, 1 failed or found something, 2 bad usage or
// unreadable input; where it is not 0 a message has been written to standard error.
#pragma once
#include "draw.h"
#include "machine.h"
#include "print.h"
#include "coll/coll.h"
#include "tools/model_choice.h"

int xp_show(const xp_options *o, xp_print *out);     // the machine as a tree, or in the form of --format
int xp_paths(const xp_options *o, xp_print *out);    // type, bandwidth and links of the path between any two ends
int xp_graphs(const xp_options *o, xp_print *out);   // the channels as NCCL_GRAPH_DUMP_FILE has them, or as a table
int xp_channels(const xp_options *o, xp_print *out); // rings and trees of every rank over all nodes
int xp_tuning(const xp_options *o, xp_print *out);   // the cost model, and the choice per size
int xp_explain(const xp_options *o, xp_print *out);  // one operation: what is chosen, and why
int xp_simulate(const xp_options *o, xp_print *out); // predicted table of a perf program
// The same for ranks on host memory (--measured), of a function that xp_func_of knows.
int xp_simulate_measured(const xp_options *o, int func, xp_print *out);
int xp_gather(const xp_options *o, xp_print *out); // a capture of this machine
int xp_host(const xp_options *o, xp_print *out);   // this machine's figures, and what the host device chooses with them

// What is wrong in a file; how two files differ. What they say of a file that cannot be read is in the output.
int xp_lint_file(const xp_options *o, xp_print *out);
int xp_diff_files(const xp_options *o, xp_print *out);

// ---- What several commands share ----

// The function that --coll names, a tt_model_func or XP_ALL_TO_ALL; -1, with a message: none.
enum { XP_ALL_TO_ALL = TT_MODEL_FUNCS };
int xp_func_of(const char *name);
// How long an operation takes. predict(arg, func, bytes, &us): microseconds of one of many of the same size, NAN where
// nobody knows; `func` as xp_func_of gives it, `bytes` of the larger buffer.
typedef struct xp_predict {
  ncclResult_t (*predict)(void *arg, int func, size_t bytes, double *us);
  void *arg;
  int nranks; // that take part
} xp_predict;
// A table of the collectives in a file of `tutti-trace workload`: how long they took, and would take. Returns an exit
// code.
int xp_write_workload(const char *path, const xp_predict *p, FILE *f);

// The library's own function for one that xp_func_of knows.
tt_func xp_host_func(int func);
// Is `coll`, which may be NULL, a collective of tutti.h whose blocks have lengths of their own? Then says of what parts
// it consists, as text or JSON.
bool xp_say_blocks(const char *coll, bool json, xp_print *out);

// "AllReduce" … "AllToAll".
const char *xp_func_name(int func);

// An operation of the options (without its size). False, with a message: unknown type or operation.
bool xp_op_of(const xp_options *o, tt_model_op *out);

// Names of type and operation for tables, and the size of an element.
const char *xp_type_of(const xp_options *o);
const char *xp_redop_of(const xp_options *o, tt_model_func func);
size_t xp_element_of(const xp_options *o);

// Size after `size` in the options' scan; 0: none.
size_t xp_next_size(const xp_options *o, size_t size);

// Bytes on the wire per byte of the operation's size, as the perf programs reckon bus bandwidth.
double xp_bus_factor(int func, int nranks);

// Why an algorithm is out, with the value of the variable that is to blame. Returns out.
const char *xp_off_text(tt_model_off off, char *out, size_t size);

// Trees packed by flow (topo/pack.h) on a machine: graphs --packed. Returns an exit code.
int xp_packed(const xp_options *o, const xp_machine *m, xp_print *out);
// Says, where rings and trees of one machine are more than 30 % below the bound of trees packed by flow, what packed
// trees reach; lines begin with `indent`. Returns an exit code.
int xp_packed_far(const xp_machine *m, const char *indent, const xp_print *out);

// Says, where collnet takes part, that communicators of this library have none.
void xp_say_collnet(const xp_print *out, const tt_model *m);

// Says, where ranks sit in host memory, which command has a model of that.
void xp_say_host(const xp_print *out, const tt_topo *topo, int func);

// ---- Links that machines share: ports, and uplinks of the switches that --rails, --leaf and --oversubscription
// describe ----

enum { XP_SHARED_NAME = 48 }; // bytes of a link's name

// Microseconds of an operation, of which the model made that choice, with root `root` (broadcast, reduce). Where a
// shared link bounds it, `link` is its name; else "-". Error: a rank has no port.
ncclResult_t xp_shared_time(const xp_machine *m, const tt_model_op *op, const tt_model_choice *choice, int root,
                            double *us, char link[XP_SHARED_NAME]);

// All-to-all: messages that leave each machine by one of its NETs (nodes) and come in by the other at each other
// machine, so many. Nothing without shared links.
void xp_shared_pair(const xp_machine *m, const int nets[2], double messages);

// Messages by GB/s of the shared link that has most of them, with its name; 0 and "": there are none.
double xp_shared_most(const xp_machine *m, char link[XP_SHARED_NAME]);

// What all-to-all puts on the links of a machine.
typedef struct xp_messages {
  int peers;
  double near, far;            // messages of a rank to its node, over the network; on average
  double *load;                // of each link, in messages
  double most;                 // of a link, in messages per GB/s
  int bound;                   // that link; -1: none, or one that machines share
  char shared[XP_SHARED_NAME]; // its name then
  bool reached;                // false: a rank has no card to reach other machines, and nothing else is known
} xp_messages;

// After xp_machine_connect; free with xp_messages_clear, also after an error.
ncclResult_t xp_messages_make(const xp_machine *m, xp_messages *out);

// An error unless other machines are reached.
ncclResult_t xp_messages_check(const xp_machine *m, const xp_messages *x);
void xp_messages_clear(xp_messages *x);

// Microseconds that the links need for buffers of so many bytes, at least. Latency is not in it.
double xp_messages_time(const xp_messages *x, size_t bytes);

// Name of its slowest link, such as "GPU0 NVL -> NVS", in `text` of 192 bytes.
const char *xp_messages_bound(const xp_machine *m, const xp_messages *x, const char *arrow, char text[192]);

// explain for all-to-all. Returns an exit code.
int xp_explain_messages(const xp_options *o, const xp_machine *m, bool json, xp_print *out);

// Predicted times for the chart of a page, after xp_machine_connect; none for one rank. `here`: ranks in host memory
// are processes of this computer. Free with xp_curves_clear, also after an error.
ncclResult_t xp_curves_make(const xp_machine *m, bool here, xp_curves *out);
void xp_curves_clear(xp_curves *x);

// Name of a node for people: a card that is no PCI device is "NIC". In `out`, or constant.
const char *xp_node_name(const tt_topo *t, int node, char *out, size_t size);

// What the tuner plugin of NCCL_TUNER_PLUGIN makes of an operation for which the model has chosen `own`.
void xp_write_tuner(const xp_machine *m, const tt_model_op *op, const tt_model_choice *own, xp_print *out);

// How much of each link's bandwidth the channels of a graph use: load[link] in GB/s, links as in the machine.
void xp_loads(const tt_topo *topo, const tt_paths *paths, const tt_graph *graph, float *load);
