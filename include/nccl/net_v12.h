// nccl/net_v12.h: tables of network plugins, version 12: the newest. This file explains the members; those of older
// versions mean the same where they are there.
//
// Threads: init, devices, getProperties, makeVDevice and finalize are called one at a time in a process. listen,
// connect, accept and closeListen are called by one thread per communicator, everything else on a connection by one
// thread at a time, not always the same one; different connections and communicators are independent. Nothing may wait
// for the peer: connect and accept give NULL, isend and irecv no request, test no done, and are called again.
//
// Errors: any code but ncclSuccess ends the communicator; the error's text has the plugin's name, the function and the
// code. An error from init or devices, or from getProperties at the beginning, means that this plugin cannot be used.
// Then the next network is tried.
#ifndef TUTTI_NCCL_NET_V12_H
#define TUTTI_NCCL_NET_V12_H

#include "net_common.h"

// The devices that a (virtual) device consists of; a physical one: itself.
typedef struct {
  int ndevs;
  int devs[NCCL_NET_MAX_DEVS_PER_NIC_V12];
} ncclNetVDeviceProps_v12_t;

// From ncclConfig_t. Valid during the call.
typedef struct {
  int trafficClass; // the plugin's own number for a class of service; NCCL_NET_TRAFFIC_CLASS_UNDEF: not set
} ncclNetCommConfig_v12_t;

// One device. Texts are the plugin's, and are copied when the plugin is initialised.
typedef struct {
  char *name;                      // for the log
  char *pciPath;                   // of the PCI device in /sys; NULL: none
  uint64_t guid;                   // of the adapter: equal for all functions of one
  int ptrSupport;                  // NCCL_PTR_…, bits
  int regIsGlobal;                 // a registration is good for all connections
  int forceFlush;                  // flush after every receive
  int speed;                       // Mbit/s
  int port;                        // number of the port
  float latency;                   // us
  int maxComms;                    // connections that it can have
  int maxRecvs;                    // buffers that one irecv can take
  ncclNetDeviceType netDeviceType; // NCCL_NET_DEVICE_HOST, or the device is not used here
  int netDeviceVersion;
  ncclNetVDeviceProps_v12_t vProps; // what it consists of
  size_t maxP2pBytes;               // of one message; 0: no limit
  size_t maxCollBytes;              // the same for a collective network
  int maxMultiRequestSize;          // requests in one
  int16_t railId;                   // network of several that it belongs to; NCCL_NET_ID_UNDEF: none
  int16_t planeId;                  // the same for planes
} ncclNetProperties_v12_t;

// How many peers a communicator talks to at a time, and over how many connections each. NCCL_NET_ATTR_UNDEF: not told.
typedef struct {
  int32_t maxConcurrentPeers;
  int32_t minConcurrentPeers;
  int32_t maxFlowsPerPeer;
  int32_t minFlowsPerPeer;
} ncclNetCommAttr_v12_t;

// Hints. Functions, algorithms and protocols are bits; NCCL_NET_ATTR_UNDEF: any.
typedef struct {
  ncclNetCommAttr_v12_t sendCommAttr;
  ncclNetCommAttr_v12_t recvCommAttr;
  uint32_t op;
  uint32_t algo;
  uint32_t proto;
} ncclNetAttr_v12_t;

typedef struct {
  // What NCCL_NET compares with, without regard to case. Not NULL.
  const char *name;
  // Makes the context of one rank of the communicator that commId names. The two functions may be called from any
  // thread until finalize; neither is NULL.
  ncclResult_t (*init)(void **ctx, uint64_t commId, ncclNetCommConfig_v12_t *config, ncclDebugLogger_t logFunction,
                       ncclProfilerCallback_t profFunction);
  // How many devices there are. 0: the plugin is of no use here.
  ncclResult_t (*devices)(int *ndev);
  // The structure is zeroed before.
  ncclResult_t (*getProperties)(int dev, ncclNetProperties_v12_t *props);
  // Listens on a device. `handle` (NCCL_NET_HANDLE_MAXSIZE bytes, zeroed) travels to the peer, which connects to it.
  // One listener, one connection.
  ncclResult_t (*listen)(void *ctx, int dev, void *handle, void **listenComm);
  // Connects to a handle, whose bytes are the plugin's between calls. *sendComm NULL: not yet, call again; an attempt
  // that is given up is called a few times more, and closed if it comes up. *sendDevComm is NULL: nothing is done on a
  // GPU.
  ncclResult_t (*connect)(void *ctx, int dev, void *handle, void **sendComm, ncclNetDeviceHandle_v12_t **sendDevComm);
  // *recvComm NULL: not yet.
  ncclResult_t (*accept)(void *listenComm, void **recvComm, ncclNetDeviceHandle_v12_t **recvDevComm);
  // Registers memory with a connection of either direction. An error for memory of the user's means that messages are
  // copied.
  ncclResult_t (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
  // The same for memory that a descriptor names. May be NULL.
  ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle);
  ncclResult_t (*deregMr)(void *comm, void *mhandle);
  // Begins to send. *request NULL: not now, call again. `phandle`: for the profiler's callback; NULL: nobody listens.
  ncclResult_t (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request);
  // Takes n buffers for messages with these tags: 1, or 2 where maxRecvs allows. Messages arrive in the order of their
  // sends. Each of `phandles` may be NULL.
  ncclResult_t (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **phandles,
                        void **request);
  // Makes received data visible, where forceFlush asks for it. *request NULL: done already. May be NULL.
  ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles, void **request);
  // *done 1: the request is gone, and sizes[i] are the bytes received. `sizes` has room for all buffers of the request;
  // NULL for flushes.
  ncclResult_t (*test)(void *request, int *done, int *sizes);
  // Also while requests are under way: afterwards their memory is not touched any more.
  ncclResult_t (*closeSend)(void *sendComm);
  ncclResult_t (*closeRecv)(void *recvComm);
  ncclResult_t (*closeListen)(void *listenComm);
  // For GPUs; not called here. Both may be NULL.
  ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle);
  ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request);
  // Makes one device of several, after the first init; *d becomes its number, the next one. NCCL_NET_MERGE_LEVEL and
  // its relatives say of which. May be NULL.
  ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v12_t *props);
  // Ends a context; all its connections and listeners are closed.
  ncclResult_t (*finalize)(void *ctx);
  // Hints, before the context's first listen or connect. Its result does not matter. May be NULL.
  ncclResult_t (*setNetAttr)(void *ctx, ncclNetAttr_v12_t *netAttr);
} ncclNet_v12_t;

// A piece of memory of a collective network's.
typedef struct {
  void *mhandle;
  void *address;
  size_t size;
} ncclNetSGE_v12_t;

// A network that reduces (ncclCollNetPlugin_v12 in the same library). Used where NCCL_COLLNET_ENABLE=1 asks for it.
// What is not explained here is as above.
typedef struct {
  const char *name;
  ncclResult_t (*init)(void **ctx, uint64_t commId, ncclDebugLogger_t logFunction);
  ncclResult_t (*devices)(int *ndev);
  ncclResult_t (*getProperties)(int dev, ncclNetProperties_v12_t *props);
  ncclResult_t (*listen)(void *ctx, int dev, void *handle, void **listenComm);
  // Joins the group whose members' handles these are, of which `rank` is one's own. Called once, in a thread of its
  // own: it may wait for the others. On success closeListen follows; after a failure the listener is not touched any
  // more.
  ncclResult_t (*connect)(void *handles[], int nranks, int rank, void *listenComm, void **collComm);
  // *supported 1: the network reduces this type by this operation (ncclSum, ncclProd, ncclMax, ncclMin; others are made
  // of these). Asked while a communicator is created; an error means no.
  ncclResult_t (*reduceSupport)(ncclDataType_t dataType, ncclRedOp_t redOp, int *supported);
  ncclResult_t (*regMr)(void *collComm, void *data, size_t size, int type, void **mhandle);
  ncclResult_t (*regMrDmaBuf)(void *collComm, void *data, size_t size, int type, uint64_t offset, int fd,
                              void **mhandle);
  ncclResult_t (*deregMr)(void *collComm, void *mhandle);
  // Begins a reduction of `count` elements (never 0; at most maxCollBytes). All of the group call the same ones in the
  // same order, at most 8 at a time. *request NULL: not now, call again.
  ncclResult_t (*iallreduce)(void *collComm, void *sendData, void *recvData, size_t count, ncclDataType_t dataType,
                             ncclRedOp_t redOp, void *sendMhandle, void *recvMhandle, void **request);
  // Neither is called here; both may be NULL.
  ncclResult_t (*iallgather)(void *collComm, void *sendData, int nRecvParts, ncclNetSGE_v12_t *recvParts,
                             size_t bytesPerRank, size_t windowOffset, size_t windowBytes, void *sendMhandle,
                             void **request);
  ncclResult_t (*ireducescatter)(void *collComm, int nSendParts, ncclNetSGE_v12_t *sendParts, void *recvData,
                                 size_t bytesPerRank, size_t windowOffset, size_t windowBytes, ncclDataType_t dataType,
                                 ncclRedOp_t redOp, void *recvMhandle, void **request);
  ncclResult_t (*iflush)(void *collComm, void *data, int size, void *mhandle, void **request);
  ncclResult_t (*test)(void *request, int *done, int *size);
  // Also while reductions are under way.
  ncclResult_t (*closeColl)(void *collComm);
  ncclResult_t (*closeListen)(void *listenComm);
  // Not called here; may be NULL.
  ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v12_t *props);
  ncclResult_t (*finalize)(void *ctx);
} ncclCollNet_v12_t;

#endif
