// collnet.h: networks that reduce (NCCL's collective networks, ncclCollNetPlugin_v6 to _v12): they sum the data of
// several ranks, and each rank receives the sum. A plugin's library may have one beside its network.
//
// Some ranks of a communicator, one per node, form a group: each listens on a device, all learn the handles, each
// connects to all. Then all call the same reductions in the same order. Open and connect are called while a
// communicator is created; one thread at a time uses a connection. Errors name the rank, the plugin, the function and
// the code. A failed reduction is an error (tt_fail). If listen, connect or reg fails, the communicator does without:
// the log says so at INFO, and the last error stays as it is.
// Source: NCCL's ext-net documentation.
#pragma once
#include "net/net.h"

enum {
  TT_COLLNET_REQUESTS = 8, // reductions under way on one connection, at most
  TT_COLLNET_OPS = 4       // sum, product, maximum, minimum: other operations are made of these
};

typedef struct tt_collnet tt_collnet;           // one rank's
typedef struct tt_collnet_comm tt_collnet_comm; // a connection with the group

// Opens the collective network in the library of `net`, and initialises it for the rank. Devices without host memory
// and virtual devices do not count. *out NULL: there is none or it cannot be used, and the log has said so at INFO.
// Errors: ncclSystemError (no memory). Any thread.
ncclResult_t tt_collnet_open(const tt_net_ops *net, const tt_net_env *env, tt_collnet **out);
// Ends the caller's use; connections, and an attempt to connect that was given up, keep it. NULL is allowed.
void tt_collnet_close(tt_collnet *c);

// The plugin's name, valid as long as *c is; the number of its devices.
const char *tt_collnet_name(const tt_collnet *c);
int tt_collnet_devices(const tt_collnet *c);
// What the plugin reduces: bit type * TT_COLLNET_OPS + operation (ncclDataType_t; ncclSum, ncclProd, ncclMax, ncclMin).
uint64_t tt_collnet_support(const tt_collnet *c);
// The network's operation for one of the communicator, a tt_opcode: averages and the user's own are scaled before and
// divided after it. -1: no network has it. Pure.
int tt_collnet_op(int code);

// Listens on a device; `handle` (TT_NET_HANDLE bytes) goes to all others of the group. *listener goes with
// tt_collnet_connect or tt_collnet_close_listen.
ncclResult_t tt_collnet_listen(tt_collnet *c, int dev, void *handle, void **listener);
void tt_collnet_close_listen(tt_collnet *c, void *listener);

// The group, as one of its ranks sees it.
typedef struct tt_collnet_group {
  int dev, rank, nranks;
  const char *handles; // nranks times TT_NET_HANDLE bytes, by rank of the group
  void *listener;      // no longer the caller's, also after a failure
} tt_collnet_group;
// Connects with all of the group. A plugin may wait for the others here, and cannot be stopped, so a thread of its own
// calls it. That thread is left alone after `timeout_ns`, or when hopeless(arg), which is called meanwhile, returns
// true; a connection that it makes later is closed. Errors: those of the plugin; ncclRemoteError (time is over, or
// hopeless), ncclSystemError.
ncclResult_t tt_collnet_connect(tt_collnet *c, const tt_collnet_group *g, uint64_t timeout_ns,
                                bool (*hopeless)(void *arg), void *arg, tt_collnet_comm **out);
// Also with reductions under way, whose memory is the caller's afterwards. NULL is allowed.
void tt_collnet_disconnect(tt_collnet_comm *c);

// Registers `size` bytes for reductions of the connection, until tt_collnet_dereg. The caller keeps the memory until
// then.
ncclResult_t tt_collnet_reg(tt_collnet_comm *c, void *data, size_t size, void **mhandle);
void tt_collnet_dereg(tt_collnet_comm *c, void *mhandle);

// A reduction of `count` elements: both buffers lie in registered memory.
typedef struct tt_collnet_sum {
  const void *in;
  void *out;
  size_t count;
  int type, op; // ncclDataType_t; tt_collnet_op
  void *in_mr, *out_mr;
} tt_collnet_sum;
// The limit of one reduction in bytes.
size_t tt_collnet_longest(const tt_collnet_comm *c);
// Begins a reduction; `in` and `out` must stay until it is done. *request NULL: not now.
ncclResult_t tt_collnet_begin(tt_collnet_comm *c, const tt_collnet_sum *s, void **request);
// Is it done? Then it is gone, and the result can be read. Test the oldest first.
ncclResult_t tt_collnet_test(tt_collnet_comm *c, void *request, const tt_collnet_sum *s, bool *done);
