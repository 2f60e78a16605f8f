// net.h: a network plugin put to the test: scenes, each played by two processes of its own over the plugin, the sender
// (side 0) and the receiver (side 1).
//
// net.c        the job: what can be said without a peer, the scenes one after the other, what is said of calls at last
// net_side.c   one side: calls that are watched, connections
// net_flow.c   messages on connections
// net_scene.c  what is played
#pragma once
#include <stdatomic.h>

#include "net/plugin/plugin_priv.h"
#include "nccl/net.h"
#include "watch.h"

// Functions of the table.
typedef enum {
  NET_NOTHING,
  NET_INIT,
  NET_DEVICES,
  NET_PROPERTIES,
  NET_SET_ATTR,
  NET_LISTEN,
  NET_CONNECT,
  NET_ACCEPT,
  NET_REG,
  NET_DEREG,
  NET_ISEND,
  NET_IRECV,
  NET_IFLUSH,
  NET_TEST,
  NET_CLOSE_SEND,
  NET_CLOSE_RECV,
  NET_CLOSE_LISTEN,
  NET_FINALIZE,
  NET_FUNCTIONS
} net_function;

extern const char *const net_names[NET_FUNCTIONS];

enum { NET_CONNECTIONS = 8, NET_GUARD = 128, NET_SENDER = 0, NET_RECEIVER = 1, NET_PHANDLES = 4 };

// What the processes of a job share.
typedef struct net_board {
  _Atomic int now[2];                      // net_function that a side is in
  _Atomic uint64_t blocked[NET_FUNCTIONS]; // the longest, in nanoseconds
  _Atomic int odd[NET_FUNCTIONS];          // something that is no result code
  _Atomic bool called[NET_FUNCTIONS];
  _Atomic int foreign; // calls of the profiler's callback with what nobody gave to the plugin
  _Atomic bool untold; // sizes of messages
  _Atomic bool over;   // one side has given up
  _Atomic int step[2]; // how far each side is
  _Atomic int handles; // that are there
  char handle[NET_CONNECTIONS][NCCL_NET_HANDLE_MAXSIZE + NET_GUARD];
} net_board;

// One side.
typedef struct net_side {
  const pc_job *job;
  const tt_pnet_version *v;
  net_board *board;
  const char *scene;
  int me;
  bool quiet; // one of several threads: how long calls take is not looked at
  void *ctx;
  tt_pnet_setup setup;
  tt_net_props props; // of device 0
} net_side;

// A call of the plugin: NET_CALL(side, NET_TEST, side->v->test(...)) is its result.
#define NET_CALL(side, function, call) (net_enter(side, function), net_leave(side, function, call))
void net_enter(net_side *s, net_function f);
ncclResult_t net_leave(net_side *s, net_function f, ncclResult_t res);

// A rule of the scene. When it is broken the scene is over, and what the other side finds then is a consequence that
// nobody is told of. It counts as one of the rules only when it is broken. Its value is `holds`.
#define NET_RULE(side, holds, ...) ((holds) || (net_give_up(side) && pc_rule((side)->job, false, __VA_ARGS__)))
// Is this the side that gives up first?
bool net_give_up(net_side *s);

// Somebody waits: lets others run. False: nothing has come for as long as patience goes, or the scene is over. `since`:
// clock when something last came.
bool net_patient(const net_side *s, uint64_t since);

// Tells the other side how far this one is, waits until it is as far. False: the scene is over.
bool net_meet(net_side *s, int step);

// init; then what device 0 is, and the hints of setNetAttr. False: told.
bool net_init(net_side *s);
bool net_begin(net_side *s);
void net_end(net_side *s);

// A connection, with memory that is registered with it.
typedef struct net_conn {
  net_side *side;
  int number;
  void *listener, *comm, *mhandle;
  char *memory;
  size_t size;
} net_conn;

// Makes connections `first` … `first + n - 1` of the board, side by side. False: told, or the other side has.
bool net_connect(net_side *s, net_conn *conns, int first, int n);
bool net_listen(net_side *s, net_conn *c, int number);
void net_close_listener(net_side *s, net_conn *c);
// Takes memory and registers it.
bool net_register(net_conn *c, size_t size);
// Unregisters and closes, as the library does at the end of a communicator. The memory stays.
void net_close(net_conn *c);
void net_free(net_conn *c);

// ---- messages

// A plan: message k of connection c has sizes[k] bytes.
typedef struct net_plan {
  const size_t *sizes;
  int n;
  unsigned depth; // requests under way, at most; 0: as many as the version allows
  bool flush;
} net_plan;

// Sends or receives all of it on all connections, and looks at every byte. False: told, or the other side has.
bool net_flow(net_side *s, net_conn *conns, int n, const net_plan *plan);
// Bytes of memory that a plan takes.
size_t net_plan_bytes(const net_plan *plan);

// One call that begins a message, or tests it. *request NULL: not now.
ncclResult_t net_send(net_conn *c, void *data, size_t size, int tag, void **request);
ncclResult_t net_receive(net_conn *c, int n, void **data, const size_t *sizes, const int *tags, void **request);
// Asks until something comes: 1 done, 0 not within patience, -1 an error, which *code is.
int net_await(net_side *s, void *request, int *sizes, ncclResult_t *code);

// A group of messages with tags, in one receive, sent in another order.
bool net_tags(net_side *s, net_conn *c);

// What test leaves in sizes when it says nothing.
enum { NET_UNTOLD = -0x7e57 };

// ---- scenes

typedef struct net_scene {
  const char *name;
  void (*play)(net_side *s);
  int dies; // side that is to die, with SIGKILL; -1: none
} net_scene;

extern const net_scene net_scenes[];
extern const int net_nscenes;
