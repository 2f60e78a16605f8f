// machine.h: what the commands work on: a document, the machine that it describes, its channels, and the connection of
// many such machines.
#pragma once
#include "options.h"
#include "tools/model_choice.h"
#include "topo/model.h"
#include "topo/nvml.h"
#include "topo/source.h"
#include "topo/xml.h"

enum { XP_NAME = 512 }; // bytes of a machine's name

// Ranks that reach each other without the network; mostly all of a machine.
typedef struct xp_group {
  tt_topo *topo;
  tt_paths *paths;
  tt_graphs graphs; // after xp_machine_search
  bool shared;      // topo and paths are the machine's
} xp_group;

typedef struct xp_machine {
  const char *name; // where it came from, for people
  const tt_xml *xml;
  tt_topo *topo;
  tt_paths *paths;
  tt_topo_rules rules;
  int nranks, ngroups;
  int *group_of; // of each rank; groups are numbered in the order of their first ranks
  xp_group *group;
  double search_ms;
  // After xp_machine_connect:
  int nodes; // machines
  tt_plan_shape *shapes;
  tt_connect *connect;
  tt_connect_options connect_options;
  tt_model_options model_options;
  tt_model model;
  tt_p2p_channels p2p;
  struct xp_shared *shared; // the links that machines share; NULL: not asked for
} xp_machine;

// Reads a document for the options: FILE (XML, a capture, a folder), "-" (standard input), NCCL_TOPO_FILE, or this
// computer; `name` says which, for people. Ranks are numbered from 0 and, where nobody has one, given to all GPUs. Free
// *out with tt_xml_destroy.
ncclResult_t xp_document(const xp_options *o, char name[XP_NAME], tt_xml **out);

// Numbers the ranks of a document from 0; where no GPU has a rank, all get one, and all ports take part. Errors: a rank
// that is no number, no memory.
ncclResult_t xp_number_ranks(tt_xml *xml);

// Reads what lint and diff look at, as it stands: a document of a machine or of channels ("-": standard input). What a
// capture or a folder with a copy of /sys shows becomes a document first, and *made is true: its lines are those that
// `show --format xml` writes. Free *out with tt_xml_destroy.
ncclResult_t xp_read(const char *file, bool *made, tt_xml **out);

// This computer's or a capture's document: ranks on all its GPUs, or host ranks; every port that it shows. `o->ranks`:
// 0 chooses.
ncclResult_t xp_detect(const tt_tree *tree, const tt_nvml *nvml, const xp_options *o, tt_xml **out);

// The machine of a document, which must live as long. Free what it has with xp_machine_clear, also after errors.
ncclResult_t xp_machine_make(const xp_options *o, const tt_params *params, const tt_xml *xml, xp_machine *out);

// Finds the channels of all groups.
ncclResult_t xp_machine_search(const xp_options *o, const tt_params *params, xp_machine *m);

// Connects o->nodes such machines and makes the model. After xp_machine_search.
ncclResult_t xp_machine_connect(const xp_options *o, const tt_params *params, xp_machine *m);

void xp_machine_clear(xp_machine *m);

// The links that machines share, as the options describe them; after xp_machine_connect. Errors: no memory.
ncclResult_t xp_shared_create(const xp_options *o, const xp_machine *m, struct xp_shared **out);
// NULL is allowed.
void xp_shared_destroy(struct xp_shared *x);

// All of that, as far as a command needs it: xml and machine. Returns an exit code; not 0: a message was written. Then
// as after success xp_release frees.
typedef struct xp_work {
  tt_xml *xml;
  xp_machine m;
  char name[XP_NAME];
} xp_work;

typedef enum { XP_TO_MACHINE, XP_TO_GRAPHS, XP_TO_MODEL } xp_depth;

int xp_prepare(const xp_options *o, xp_depth depth, xp_work *out);
void xp_release(xp_work *w);

// Writes the last error to standard error and returns `code`.
int xp_complain(int code);
// The exit code for an error: 2 where the input is to blame, else 1.
int xp_code_of(ncclResult_t res);
