// net.c: a network plugin: messages over TCP, one socket for each connection. Version 12 of the interface.
//
//   NCCL_NET_PLUGIN=/path/libnccl-net-example.so NCCL_NET=Example ./program
//
// What is worth knowing before one writes a plugin of one's own:
//  - Nothing may wait. connect and accept give NULL, isend and irecv no request, test "not done", as often as they
//  like: they are called again.
//  - The process calls init, devices, getProperties and finalize one at a time. A connection is used by one thread at a
//  time, not always the same one.
//    Connections are independent, so what they share (here: nothing) needs a lock.
//  - Messages of a connection arrive in the order of their sends. At most 32 requests are under way on it.
//  - A peer that has gone is an error, as soon as somebody notices: otherwise the job waits for ever.
//  - What has been sent must arrive, also when the sender closes at once. What was begun may be closed: then nobody may
//  touch its memory any more.
#define _GNU_SOURCE // accept4
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <nccl/net.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static ncclDebugLogger_t logger; // the same function for all contexts

#define FAIL(code, what) \
  (logger(NCCL_LOG_WARN, NCCL_NET, __FILE__, __LINE__, "example: %s: %s", what, strerror(errno)), code)

// What the listener tells the other side: at most NCCL_NET_HANDLE_MAXSIZE bytes, which the library carries. The
// connecting side gets its copy again with each call, so it can keep notes there: the socket that it has begun, plus 1
// (the library hands over zeroes).
typedef struct handle {
  struct sockaddr_in address;
  int begun;
} handle;

typedef struct connection connection;

typedef struct request {
  connection *of;
  char *data;
  size_t size;     // of the message; for receives first the room for it
  uint64_t header; // the message's size, which goes before it
  size_t moved;    // bytes of header and message
  int used;
} request;

// Requests in the order in which they were begun: `first` is the oldest that is not complete, `next` the place of the
// next one.
struct connection {
  int fd, sends;
  unsigned first, next;
  request ring[NCCL_NET_MAX_REQUESTS];
};

// ---- the plugin and its devices

static ncclResult_t init(void **ctx, uint64_t comm, ncclNetCommConfig_t *config, ncclDebugLogger_t log,
                         ncclProfilerCallback_t profile)
{
  (void)comm;
  (void)config;
  (void)profile; // tells profilers of events inside of the network
  logger = log;
  log(NCCL_LOG_INFO, NCCL_INIT | NCCL_NET, __FILE__, __LINE__, "the example network is here");
  *ctx = &logger; // one for each rank of each communicator; there is nothing to keep
  return ncclSuccess;
}

static ncclResult_t finalize(void *ctx)
{
  (void)ctx; // all is closed; a plugin's own threads have to end here: the library may be closed next
  return ncclSuccess;
}

static ncclResult_t devices(int *n)
{
  *n = 1;
  return ncclSuccess;
}

static ncclResult_t properties(int dev, ncclNetProperties_t *p)
{
  static char name[] = "example0";
  p->name = name;
  p->ptrSupport = NCCL_PTR_HOST; // a device without this bit is of no use on host memory
  p->regIsGlobal = 1;
  p->speed = 10000; // Mbit/s: the library reckons with it
  p->port = 1;
  p->latency = 10; // microseconds
  p->maxComms = 65536;
  p->maxRecvs = 1; // buffers in one irecv; more need tags to tell messages apart
  p->netDeviceType = NCCL_NET_DEVICE_HOST;
  p->netDeviceVersion = NCCL_NET_DEVICE_INVALID_VERSION;
  p->vProps.ndevs = 1; // a physical device consists of itself
  p->vProps.devs[0] = dev;
  p->maxP2pBytes = NCCL_MAX_NET_SIZE_BYTES;
  p->maxMultiRequestSize = 1;
  p->railId = p->planeId = NCCL_NET_ID_UNDEF;
  return ncclSuccess;
}

// ---- connections

static ncclResult_t start_listening(void *ctx, int dev, void *out, void **comm)
{
  const char *address = getenv("EXAMPLE_NET_ADDRESS"); // of this machine, where there are several
  handle h = {.address = {.sin_family = AF_INET}};
  socklen_t size = sizeof h.address;
  (void)ctx;
  (void)dev;
  inet_pton(AF_INET, address != NULL ? address : "127.0.0.1", &h.address.sin_addr);
  int *fd = malloc(sizeof *fd); // a listener is a descriptor
  if (fd == NULL) {
    return ncclSystemError;
  }
  *fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (*fd < 0 || bind(*fd, (struct sockaddr *)&h.address, size) != 0 || listen(*fd, 128) != 0 ||
      getsockname(*fd, (struct sockaddr *)&h.address, &size) != 0) {
    if (*fd >= 0) {
      close(*fd);
    }
    free(fd);
    return FAIL(ncclSystemError, "cannot listen");
  }
  memcpy(out, &h, sizeof h);
  *comm = fd;
  return ncclSuccess;
}

static ncclResult_t make(int fd, int sends, void **comm)
{
  int one = 1;
  connection *c = calloc(1, sizeof *c);
  if (c == NULL) {
    close(fd);
    return ncclSystemError;
  }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  c->fd = fd;
  c->sends = sends;
  *comm = c;
  return ncclSuccess;
}

// Called again until *comm is set. The first call begins, the others look.
static ncclResult_t go_on_connecting(void *ctx, int dev, void *in, void **comm, ncclNetDeviceHandle_v12_t **gpu)
{
  handle h;
  int error = 0;
  socklen_t size = sizeof error;
  (void)ctx;
  (void)dev;
  (void)gpu;
  memcpy(&h, in, sizeof h);
  *comm = NULL;
  if (h.begun == 0) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || (connect(fd, (struct sockaddr *)&h.address, sizeof h.address) != 0 && errno != EINPROGRESS)) {
      error = errno;
      if (fd >= 0) {
        close(fd);
      }
      errno = error;
      return FAIL(ncclSystemError, "cannot connect");
    }
    h.begun = fd + 1;
    memcpy(in, &h, sizeof h);
    return ncclSuccess;
  }
  struct pollfd ready = {.fd = h.begun - 1, .events = POLLOUT};
  if (poll(&ready, 1, 0) <= 0) {
    return ncclSuccess; // not yet
  }
  if (getsockopt(ready.fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
    close(ready.fd);
    h.begun = 0;
    memcpy(in, &h, sizeof h);
    errno = error;
    return FAIL(ncclRemoteError, "cannot connect");
  }
  return make(ready.fd, 1, comm); // a plugin for production says here who it is: anybody may connect to the listener
}

static ncclResult_t go_on_accepting(void *listener, void **comm, ncclNetDeviceHandle_v12_t **gpu)
{
  (void)gpu;
  *comm = NULL;
  int fd = accept4(*(int *)listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    return errno == EAGAIN || errno == ECONNABORTED || errno == EINTR ? ncclSuccess
                                                                      : FAIL(ncclSystemError, "cannot accept");
  }
  return make(fd, 0, comm);
}

// Requests may be under way: they go with the connection.
static ncclResult_t close_connection(void *comm)
{
  connection *c = comm;
  close(c->fd); // what the kernel has taken is sent all the same
  free(c);
  return ncclSuccess;
}

static ncclResult_t close_listener(void *listener)
{
  close(*(int *)listener);
  free(listener);
  return ncclSuccess;
}

// ---- memory: TCP takes any

static ncclResult_t register_memory(void *comm, void *data, size_t size, int type, void **mhandle)
{
  (void)data;
  (void)size;
  *mhandle = comm;
  return type == NCCL_PTR_HOST ? ncclSuccess : ncclInvalidArgument;
}

static ncclResult_t forget_memory(void *comm, void *mhandle)
{
  (void)comm;
  (void)mhandle;
  return ncclSuccess;
}

// ---- messages

// Moves bytes between the socket and one piece of memory. *moved: how many; 0: not now.
static ncclResult_t move(const connection *c, void *data, size_t size, size_t *moved)
{
  // No SIGPIPE: the process is not ours.
  ssize_t n = c->sends ? send(c->fd, data, size, MSG_NOSIGNAL) : recv(c->fd, data, size, 0);
  *moved = n > 0 ? (size_t)n : 0;
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
    return FAIL(ncclRemoteError, n == 0 ? "the peer has closed its end" : "the connection is lost");
  }
  return ncclSuccess;
}

// As much of one request as goes without waiting.
static ncclResult_t drive_one(connection *c, request *r)
{
  for (size_t moved = 1; moved > 0 && (r->moved < sizeof r->header || r->moved < sizeof r->header + r->header);) {
    int in_header = r->moved < sizeof r->header;
    char *data = in_header ? (char *)&r->header + r->moved : r->data + (r->moved - sizeof r->header);
    ncclResult_t res =
        move(c, data, in_header ? sizeof r->header - r->moved : sizeof r->header + r->header - r->moved, &moved);
    if (res != ncclSuccess) {
      return res;
    }
    r->moved += moved;
    if (r->moved >= sizeof r->header && r->header > r->size) {
      errno = EMSGSIZE;
      return FAIL(ncclInvalidUsage, "a message is larger than the buffer for it");
    }
  }
  return ncclSuccess;
}

static int is_complete(const request *r)
{
  return r->moved >= sizeof r->header && r->moved == sizeof r->header + r->header;
}

// The oldest first: that is what keeps the order.
static ncclResult_t drive(connection *c)
{
  while (c->first != c->next) {
    request *r = &c->ring[c->first % NCCL_NET_MAX_REQUESTS];
    ncclResult_t res = drive_one(c, r);
    if (res != ncclSuccess || !is_complete(r)) {
      return res;
    }
    c->first++;
  }
  return ncclSuccess;
}

static ncclResult_t begin(connection *c, void *data, size_t size, void **out)
{
  request *r = &c->ring[c->next % NCCL_NET_MAX_REQUESTS];
  *out = NULL;
  if (r->used) {
    return ncclSuccess; // no room now
  }
  *r = (request){.of = c, .data = data, .size = size, .header = c->sends ? size : 0, .used = 1};
  c->next++;
  *out = r;
  return drive(c);
}

static ncclResult_t begin_send(void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **out)
{
  (void)tag; // tells the buffers of one irecv apart: here there is only one
  (void)mhandle;
  (void)phandle;
  return begin(comm, data, size, out);
}

static ncclResult_t begin_receive(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
                                  void **phandles, void **out)
{
  (void)tags;
  (void)mhandles;
  (void)phandles;
  return n == 1 ? begin(comm, data[0], sizes[0], out) : ncclInvalidArgument;
}

static ncclResult_t test(void *any, int *done, int *sizes)
{
  request *r = any;
  // What has come has come, whatever became of the connection.
  ncclResult_t res = is_complete(r) ? ncclSuccess : drive(r->of);
  *done = is_complete(r);
  if (*done) {
    if (sizes != NULL) {
      sizes[0] = (int)r->header;
    }
    r->used = 0; // the library does not ask for it again
    return ncclSuccess;
  }
  return res;
}

const ncclNet_t ncclNetPlugin_v12 = {.name = "Example",
                                     .init = init,
                                     .devices = devices,
                                     .getProperties = properties,
                                     .listen = start_listening,
                                     .connect = go_on_connecting,
                                     .accept = go_on_accepting,
                                     .regMr = register_memory,
                                     .deregMr = forget_memory,
                                     .isend = begin_send,
                                     .irecv = begin_receive,
                                     .test = test,
                                     .closeSend = close_connection,
                                     .closeRecv = close_connection,
                                     .closeListen = close_listener,
                                     .finalize = finalize};
