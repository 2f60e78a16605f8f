// net_tcp.h: a network plugin of any version, for tests: plain TCP over the loopback, one socket per connection. A file
// that includes it says which version:
//
//   #define NET_VERSION 12
//   #include "net_tcp.h"
//
// and gets the functions tcp_…; NET_TABLE makes the table of them. It is as strict as a plugin may be: memory must be
// registered with the connection that uses it, no more requests than the version allows, no context of somebody else's;
// and as unwilling: connections and requests take several calls. Nothing here is Tutti's: a plugin knows the headers in
// nccl/ only.
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "nccl/net.h"

#ifndef NET_VERSION
#define NET_VERSION 12
#endif

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define TYPED(name) PASTE(PASTE(name##_v, NET_VERSION), _t)

#if NET_VERSION >= 9
typedef size_t bytes_t;
#else
typedef int bytes_t;
#endif
#if NET_VERSION >= 8
typedef size_t reg_bytes_t;
#else
typedef int reg_bytes_t;
#endif
#if NET_VERSION <= 7
#define REQUESTS 8u
#else
#define REQUESTS 32u
#endif
#define UNUSED __attribute__((unused))

enum { DEVICES = 2, MOST_DEVICES = 16, GROUP = 8, TRIES = 3, MAGIC = 0x7e57 };

static ncclDebugLogger_t tcp_log;
static size_t tcp_piece = SIZE_MAX / 4;    // bytes that one call moves, at most
static _Atomic int tcp_contexts, tcp_open; // contexts; listeners, connections, registrations
static _Atomic bool tcp_grouped;           // a receive took several buffers
static _Atomic int tcp_devices_now;        // see net_tcp_devices.inc

typedef struct header {
  uint32_t magic, size;
  int32_t tag;
  uint32_t number; // of the message on its connection
} header;

// One piece of a group.
typedef struct part {
  char *data;
  size_t room, got;
  int tag;
  bool full;
} part;

typedef struct connection connection;

typedef struct tcp_request {
  connection *of;
  bool used, flush;
  uint64_t order;
  int n, flushes;
  part parts[GROUP];
  header head;
  size_t moved; // bytes of header and payload that are sent
  void *notes;  // of the plugin that wraps this one
} tcp_request;

struct connection {
  int fd;
  bool send;
  uint64_t order;
  uint32_t number;
  header head; // being received
  size_t moved;
  tcp_request *to; // whose part `at` is being filled
  int at;
  int refusals;
  void *notes; // of the plugin that wraps this one
  tcp_request requests[REQUESTS];
};

typedef struct listener {
  int fd;
  int waiting; // accepted, its cookie has not come
  uint64_t cookie;
} listener;

typedef struct tcp_handle {
  uint16_t port;
  int fd, tries; // the connecting side's notes; fd -1: not begun
  uint64_t cookie;
} tcp_handle;
_Static_assert(sizeof(tcp_handle) <= NCCL_NET_HANDLE_MAXSIZE, "has to fit");

typedef struct region {
  const connection *of;
  char *from, *to;
} region;

static ncclResult_t tcp_fail(const char *what)
{
  tcp_log(NCCL_LOG_WARN, NCCL_NET, __FILE__, __LINE__, "tcp test plugin: %s (errno %d)", what, errno);
  return ncclSystemError;
}

static ncclResult_t tcp_misuse(const char *what)
{
  tcp_log(NCCL_LOG_WARN, NCCL_NET, __FILE__, __LINE__, "tcp test plugin: the caller is wrong: %s", what);
  return ncclInternalError;
}

// ---- context and devices

static ncclResult_t tcp_init_any(ncclDebugLogger_t log)
{
  if (log == NULL) {
    return ncclInvalidArgument;
  }
  tcp_log = log;
  log(NCCL_LOG_INFO, NCCL_INIT, __FILE__, __LINE__, "tcp test plugin: init number %d",
      atomic_fetch_add(&tcp_contexts, 1) + 1);
  return ncclSuccess;
}

#if NET_VERSION >= 11
typedef struct context {
  uint64_t comm;
  int traffic_class, hints;
} context;

UNUSED static ncclResult_t tcp_init(void **ctx, uint64_t comm, TYPED(ncclNetCommConfig) * config, ncclDebugLogger_t log,
                                    ncclProfilerCallback_t profile)
{
  context *c = calloc(1, sizeof *c);
  if (c == NULL || profile == NULL) {
    free(c);
    return ncclInvalidArgument;
  }
  c->comm = comm;
  c->traffic_class = config->trafficClass;
  *ctx = c;
  ncclResult_t res = tcp_init_any(log);
  log(NCCL_LOG_INFO, NCCL_INIT, __FILE__, __LINE__, "tcp test plugin: communicator %llx traffic class %d",
      (unsigned long long)comm, config->trafficClass);
  return res;
}

UNUSED static ncclResult_t tcp_finalize(void *ctx)
{
  const context *c = ctx;
  int left = atomic_load(&tcp_open), contexts = atomic_fetch_sub(&tcp_contexts, 1) - 1;
  if (contexts == 0 && left != 0) {
    tcp_log(NCCL_LOG_WARN, NCCL_NET, __FILE__, __LINE__,
            "tcp test plugin: LEAK: %d objects are open after the last finalize", left);
  }
  if (c->hints > 1) {
    tcp_misuse("more than one setNetAttr before the first connection");
  }
  if (contexts == 0 && getenv("TEST_NET_FORGET") != NULL) {
    tcp_devices_now = 0; // virtual ones are gone
  }
  free(ctx);
  return ncclSuccess;
}

UNUSED static ncclResult_t tcp_set_attr(void *ctx, TYPED(ncclNetAttr) * a)
{
  context *c = ctx;
  c->hints++;
  return a->sendCommAttr.maxConcurrentPeers > 0 ? ncclSuccess : tcp_misuse("nobody to talk to");
}
#elif NET_VERSION == 10
UNUSED static ncclResult_t tcp_init(ncclDebugLogger_t log, ncclProfilerCallback_t profile)
{
  void *event = &event;
  if (profile == NULL || profile(&event, ncclProfilerNetEventStart, NULL, 1, NULL) != ncclSuccess) {
    return ncclInvalidArgument;
  }
  return tcp_init_any(log);
}
#else
UNUSED static ncclResult_t tcp_init(ncclDebugLogger_t log)
{
  return tcp_init_any(log);
}
#endif

#include "net_tcp_devices.inc"

// ---- connections

static void tcp_set_up(int fd)
{
  int one = 1;
  fcntl(fd, F_SETFL, O_NONBLOCK);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static ncclResult_t tcp_listen_any(int dev, void *handle, void **out)
{
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof at;
  tcp_handle h;
  listener *l = calloc(1, sizeof *l);
  if (l == NULL || dev < 0 || dev >= tcp_devices_now) {
    free(l);
    return ncclInvalidArgument;
  }
  tcp_log(NCCL_LOG_INFO, NCCL_NET, __FILE__, __LINE__, "tcp test plugin: listens on %s", tcp_all[dev].name);
  l->fd = socket(AF_INET, SOCK_STREAM, 0);
  l->waiting = -1;
  tcp_set_up(l->fd);
  if (bind(l->fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(l->fd, 8) != 0 ||
      getsockname(l->fd, (struct sockaddr *)&at, &size) != 0) {
    close(l->fd);
    free(l);
    return tcp_fail("cannot listen");
  }
  l->cookie = (uint64_t)(uintptr_t)l * 0x9e3779b97f4a7c15u ^ (uint64_t)getpid();
  memset(&h, 0, sizeof h);
  h.port = ntohs(at.sin_port);
  h.fd = -1;
  h.cookie = l->cookie;
  memcpy(handle, &h, sizeof h);
  atomic_fetch_add(&tcp_open, 1);
  *out = l;
  return ncclSuccess;
}

static connection *tcp_connection(int fd, bool send)
{
  connection *c = calloc(1, sizeof *c);
  if (c == NULL) {
    close(fd);
    return NULL;
  }
  c->fd = fd;
  c->send = send;
  for (unsigned i = 0; i < REQUESTS; i++) {
    c->requests[i].of = c;
  }
  atomic_fetch_add(&tcp_open, 1);
  return c;
}

// Some calls come to nothing, as with networks that need answers from afar.
static ncclResult_t tcp_connect_any(void *handle, void **out)
{
  tcp_handle h;
  memcpy(&h, handle, sizeof h);
  *out = NULL;
  if (h.fd < 0) {
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(h.port)};
    h.fd = socket(AF_INET, SOCK_STREAM, 0);
    tcp_set_up(h.fd);
    if (connect(h.fd, (struct sockaddr *)&at, sizeof at) != 0 && errno != EINPROGRESS) {
      close(h.fd);
      return tcp_fail("cannot connect");
    }
    memcpy(handle, &h, sizeof h);
    return ncclSuccess;
  }
  if (++h.tries < TRIES) {
    memcpy(handle, &h, sizeof h);
    return ncclSuccess;
  }
  ssize_t n = send(h.fd, &h.cookie, sizeof h.cookie, MSG_NOSIGNAL);
  if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) {
    return ncclSuccess;
  }
  if (n != sizeof h.cookie) {
    close(h.fd);
    return tcp_fail("cannot say hello");
  }
  *out = tcp_connection(h.fd, true);
  return *out != NULL ? ncclSuccess : ncclSystemError;
}

static ncclResult_t tcp_accept_any(void *any, void **out)
{
  listener *l = any;
  uint64_t cookie = 0;
  *out = NULL;
  if (l->waiting < 0) {
    l->waiting = accept(l->fd, NULL, NULL);
    if (l->waiting >= 0) {
      tcp_set_up(l->waiting);
    }
    return ncclSuccess;
  }
  ssize_t n = recv(l->waiting, &cookie, sizeof cookie, MSG_PEEK);
  if (n < 0 && errno == EAGAIN) {
    return ncclSuccess;
  }
  if (n == sizeof cookie && cookie == l->cookie && recv(l->waiting, &cookie, sizeof cookie, 0) == sizeof cookie) {
    *out = tcp_connection(l->waiting, false);
    l->waiting = -1;
    return *out != NULL ? ncclSuccess : ncclSystemError;
  }
  close(l->waiting); // a stranger
  l->waiting = -1;
  return ncclSuccess;
}

#if NET_VERSION >= 11
UNUSED static ncclResult_t tcp_listen(void *ctx, int dev, void *handle, void **out)
{
  return ctx == NULL ? tcp_misuse("listen without a context") : tcp_listen_any(dev, handle, out);
}

UNUSED static ncclResult_t tcp_connect(void *ctx, int dev, void *handle, void **out, TYPED(ncclNetDeviceHandle) * *gpu)
{
  (void)dev;
  return ctx == NULL || *gpu != NULL ? tcp_misuse("connect without a context, or for a GPU")
                                     : tcp_connect_any(handle, out);
}
#else
UNUSED static ncclResult_t tcp_listen(int dev, void *handle, void **out)
{
  return tcp_listen_any(dev, handle, out);
}
#if NET_VERSION == 10
UNUSED static ncclResult_t tcp_connect(int dev, ncclNetCommConfig_v10_t *config, void *handle, void **out,
                                       ncclNetDeviceHandle_v10_t **gpu)
{
  (void)dev;
  if (config != NULL && ((tcp_handle *)handle)->fd < 0) {
    tcp_log(NCCL_LOG_INFO, NCCL_INIT, __FILE__, __LINE__, "tcp test plugin: a connection of traffic class %d",
            config->trafficClass);
  }
  return config == NULL || *gpu != NULL ? tcp_misuse("connect without a configuration, or for a GPU")
                                        : tcp_connect_any(handle, out);
}
#elif NET_VERSION >= 7
UNUSED static ncclResult_t tcp_connect(int dev, void *handle, void **out, TYPED(ncclNetDeviceHandle) * *gpu)
{
  (void)dev;
  return *gpu != NULL ? tcp_misuse("connect for a GPU") : tcp_connect_any(handle, out);
}
#else
UNUSED static ncclResult_t tcp_connect(int dev, void *handle, void **out)
{
  (void)dev;
  return tcp_connect_any(handle, out);
}
#endif
#endif

#if NET_VERSION >= 7
UNUSED static ncclResult_t tcp_accept(void *any, void **out, TYPED(ncclNetDeviceHandle) * *gpu)
{
  return *gpu != NULL ? tcp_misuse("accept for a GPU") : tcp_accept_any(any, out);
}
#else
UNUSED static ncclResult_t tcp_accept(void *any, void **out)
{
  return tcp_accept_any(any, out);
}
#endif

UNUSED static ncclResult_t tcp_close(void *any)
{
  connection *c = any;
  close(c->fd);
  free(c);
  atomic_fetch_sub(&tcp_open, 1);
  return ncclSuccess;
}

UNUSED static ncclResult_t tcp_close_listen(void *any)
{
  listener *l = any;
  if (l->waiting >= 0) {
    close(l->waiting);
  }
  close(l->fd);
  free(l);
  atomic_fetch_sub(&tcp_open, 1);
  return ncclSuccess;
}

// ---- memory

UNUSED static ncclResult_t tcp_reg(void *any, void *data, reg_bytes_t size, int type, void **mhandle)
{
  region *r = malloc(sizeof *r);
  if (r == NULL || type != NCCL_PTR_HOST || size <= 0) {
    free(r);
    return tcp_misuse("registration of what is no host memory");
  }
  *r = (region){.of = any, .from = data, .to = (char *)data + size};
  atomic_fetch_add(&tcp_open, 1);
  *mhandle = r;
  return ncclSuccess;
}

// The library has host memory only, which has no descriptor, so nobody should come here but tests, which say so
// (TEST_NET_DMABUF). The descriptor must show the same memory as the address.
UNUSED static ncclResult_t tcp_reg_dmabuf(void *any, void *data, size_t size, int type, uint64_t offset, int fd,
                                          void **mhandle)
{
  if (getenv("TEST_NET_DMABUF") == NULL || type != NCCL_PTR_CUDA) {
    return tcp_misuse("a dma-buf of host memory");
  }
  char *all = mmap(NULL, offset + size, PROT_READ, MAP_SHARED, fd, 0);
  if (all == MAP_FAILED) {
    return tcp_fail("cannot map the dma-buf");
  }
  bool same = memcmp(all + offset, data, size) == 0;
  munmap(all, offset + size);
  return same ? tcp_reg(any, data, (reg_bytes_t)size, NCCL_PTR_HOST, mhandle) : tcp_misuse("a dma-buf of other memory");
}

UNUSED static ncclResult_t tcp_dereg(void *any, void *mhandle)
{
  region *r = mhandle;
  if (r == NULL || r->of != any) {
    return tcp_misuse("deregistration with another connection");
  }
  free(r);
  atomic_fetch_sub(&tcp_open, 1);
  return ncclSuccess;
}

static bool tcp_is_registered(const connection *c, const char *data, size_t size, const void *mhandle)
{
  const region *r = mhandle;
  return r != NULL && r->of == c && data >= r->from && size <= (size_t)(r->to - data);
}

// ---- messages

// Every fifth call that could begin a message does not.
static bool tcp_is_unwilling(connection *c)
{
  return ++c->refusals % 5 == 0;
}

static tcp_request *tcp_request_new(connection *c, int n)
{
  for (unsigned i = 0; i < REQUESTS; i++) {
    tcp_request *r = &c->requests[i];
    if (!r->used) {
      *r = (tcp_request){.of = c, .used = true, .n = n, .order = c->order++};
      return r;
    }
  }
  return NULL;
}

// The oldest request with something to do.
static tcp_request *tcp_oldest(connection *c, bool (*busy)(const tcp_request *r))
{
  tcp_request *found = NULL;
  for (unsigned i = 0; i < REQUESTS; i++) {
    tcp_request *r = &c->requests[i];
    if (r->used && !r->flush && busy(r) && (found == NULL || r->order < found->order)) {
      found = r;
    }
  }
  return found;
}

static bool tcp_is_unsent(const tcp_request *r)
{
  return r->moved < sizeof r->head + r->head.size;
}

static ncclResult_t tcp_drive_send(connection *c)
{
  for (tcp_request *r; (r = tcp_oldest(c, tcp_is_unsent)) != NULL;) {
    size_t head = r->moved < sizeof r->head ? sizeof r->head - r->moved : 0;
    size_t at = r->moved - (sizeof r->head - head);
    size_t rest = r->head.size - at;
    struct iovec v[2] = {{(char *)&r->head + (sizeof r->head - head), head},
                         {r->parts[0].data + at, rest < tcp_piece ? rest : tcp_piece}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
    ssize_t n = sendmsg(c->fd, &m, MSG_NOSIGNAL);
    if (n < 0) {
      return errno == EAGAIN ? ncclSuccess : ncclRemoteError;
    }
    r->moved += (size_t)n;
    if (rest > tcp_piece) {
      break;
    }
  }
  return ncclSuccess;
}

static bool tcp_is_unfilled(const tcp_request *r)
{
  for (int i = 0; i < r->n; i++) {
    if (!r->parts[i].full) {
      return true;
    }
  }
  return false;
}

// The part that the message goes into: the first of its tag in the oldest request. False: none is posted yet.
static ncclResult_t tcp_place(connection *c, bool *there)
{
  tcp_request *r = tcp_oldest(c, tcp_is_unfilled);
  *there = false;
  for (int i = 0; r != NULL && i < r->n && !*there; i++) {
    if (!r->parts[i].full && r->parts[i].tag == c->head.tag) {
      c->to = r;
      c->at = i;
      *there = true;
    }
  }
  if (r == NULL || *there) {
    return *there && c->head.size > r->parts[c->at].room ? ncclInvalidUsage : ncclSuccess;
  }
  return tcp_misuse("nobody wants a message of this tag");
}

static ncclResult_t tcp_read(connection *c, void *to, size_t size, bool *complete)
{
  ssize_t n = size == 0 ? 0 : recv(c->fd, to, size < tcp_piece ? size : tcp_piece, 0);
  if (n < 0 && errno != EAGAIN) {
    return ncclRemoteError;
  }
  if (n == 0 && size > 0) {
    return ncclRemoteError;
  }
  c->moved += n > 0 ? (size_t)n : 0;
  *complete = n >= 0 && (size_t)n == size;
  return ncclSuccess;
}

static ncclResult_t tcp_drive_recv(connection *c)
{
  for (bool complete = true; complete;) {
    ncclResult_t res = ncclSuccess;
    if (c->moved < sizeof c->head) {
      if (tcp_oldest(c, tcp_is_unfilled) == NULL) {
        return ncclSuccess;
      }
      res = tcp_read(c, (char *)&c->head + c->moved, sizeof c->head - c->moved, &complete);
      if (res == ncclSuccess && complete && (c->head.magic != MAGIC || c->head.number != c->number++)) {
        return ncclInternalError;
      }
      if (res != ncclSuccess || !complete) {
        return res;
      }
    }
    if (c->to == NULL) {
      res = tcp_place(c, &complete);
      if (res != ncclSuccess || !complete) {
        return res;
      }
    }
    size_t at = c->moved - sizeof c->head;
    part *p = &c->to->parts[c->at];
    res = tcp_read(c, p->data + at, c->head.size - at, &complete);
    if (res != ncclSuccess) {
      return res;
    }
    if (complete) {
      p->full = true;
      p->got = c->head.size;
      c->to = NULL;
      c->moved = 0;
    }
  }
  return ncclSuccess;
}

static ncclResult_t tcp_isend_any(void *any, void *data, size_t size, int tag, const void *mhandle, void **request)
{
  connection *c = any;
  *request = NULL;
  if (!c->send || !tcp_is_registered(c, data, size, mhandle)) {
    return tcp_misuse("a message from memory that is not registered");
  }
  if (tcp_is_unwilling(c)) {
    return ncclSuccess;
  }
  tcp_request *r = tcp_request_new(c, 1);
  if (r == NULL) {
    return tcp_misuse("more requests than a connection has room for");
  }
  r->parts[0] = (part){.data = data, .room = size, .tag = tag};
  r->head = (header){.magic = MAGIC, .size = (uint32_t)size, .tag = tag, .number = c->number++};
  *request = r;
  return tcp_drive_send(c);
}

static ncclResult_t tcp_irecv_any(void *any, int n, void **data, const bytes_t *sizes, const int *tags, void **mhandles,
                                  void **request)
{
  connection *c = any;
  *request = NULL;
  if (c->send || n < 1 || n > GROUP) {
    return tcp_misuse("a receive of no or too many buffers");
  }
  if (tcp_is_unwilling(c)) {
    return ncclSuccess;
  }
  tcp_request *r = tcp_request_new(c, n);
  if (r == NULL) {
    return tcp_misuse("more requests than a connection has room for");
  }
  for (int i = 0; i < n; i++) {
    if (!tcp_is_registered(c, data[i], (size_t)sizes[i], mhandles[i])) {
      return tcp_misuse("a receive into memory that is not registered");
    }
    r->parts[i] = (part){.data = data[i], .room = (size_t)sizes[i], .tag = tags[i]};
  }
  if (n > 1 && !atomic_exchange(&tcp_grouped, true)) {
    tcp_log(NCCL_LOG_INFO, NCCL_NET, __FILE__, __LINE__, "tcp test plugin: a receive of %d buffers", n);
  }
  *request = r;
  return ncclSuccess;
}

#if NET_VERSION >= 10
UNUSED static ncclResult_t tcp_isend(void *any, void *data, size_t size, int tag, void *mhandle, void *phandle,
                                     void **request)
{
  (void)phandle;
  return tcp_isend_any(any, data, size, tag, mhandle, request);
}

UNUSED static ncclResult_t tcp_irecv(void *any, int n, void **data, size_t *sizes, int *tags, void **mhandles,
                                     void **phandles, void **request)
{
  return phandles == NULL ? tcp_misuse("no phandles") : tcp_irecv_any(any, n, data, sizes, tags, mhandles, request);
}
#else
UNUSED static ncclResult_t tcp_isend(void *any, void *data, bytes_t size, int tag, void *mhandle, void **request)
{
  return tcp_isend_any(any, data, (size_t)size, tag, mhandle, request);
}

UNUSED static ncclResult_t tcp_irecv(void *any, int n, void **data, bytes_t *sizes, int *tags, void **mhandles,
                                     void **request)
{
  return tcp_irecv_any(any, n, data, sizes, tags, mhandles, request);
}
#endif

UNUSED static ncclResult_t tcp_flush(void *any, int n, void **data, int *sizes, void **mhandles, void **request)
{
  connection *c = any;
  *request = NULL;
  for (int i = 0; i < n; i++) {
    if (!tcp_is_registered(c, data[i], (size_t)sizes[i], mhandles[i])) {
      return tcp_misuse("a flush of memory that is not registered");
    }
  }
  tcp_request *r = tcp_request_new(c, 0);
  if (r == NULL) {
    return tcp_misuse("more requests than a connection has room for");
  }
  r->flush = true;
  *request = r;
  return ncclSuccess;
}

UNUSED static ncclResult_t tcp_test(void *any, int *done, int *sizes)
{
  tcp_request *r = any;
  connection *c = r->of;
  *done = 0;
  if (!r->used) {
    return tcp_misuse("test of a request that is done");
  }
  ncclResult_t res = c->send ? tcp_drive_send(c) : tcp_drive_recv(c);
  bool over = r->flush ? r->flushes++ > 0 : c->send ? !tcp_is_unsent(r) : !tcp_is_unfilled(r);
  if (!over) {
    return res;
  }
  for (int i = 0; i < r->n && sizes != NULL; i++) {
    sizes[i] = (int)(c->send ? r->parts[i].room : r->parts[i].got);
  }
  r->used = false;
  *done = 1;
  return ncclSuccess;
}

// ---- the table

#if NET_VERSION >= 9
#define NET_TABLE_9 .makeVDevice = tcp_make_device,
#else
#define NET_TABLE_9
#endif
#if NET_VERSION >= 11
#define NET_TABLE_11 .finalize = tcp_finalize, .setNetAttr = tcp_set_attr,
#else
#define NET_TABLE_11
#endif
#define NET_TABLE                                                                                                      \
  .name = "TestTcp", .init = tcp_init, .devices = tcp_devices, .getProperties = tcp_properties, .listen = tcp_listen,  \
  .connect = tcp_connect, .accept = tcp_accept, .regMr = tcp_reg, .regMrDmaBuf = tcp_reg_dmabuf, .deregMr = tcp_dereg, \
  .isend = tcp_isend, .irecv = tcp_irecv, .iflush = tcp_flush, .test = tcp_test, .closeSend = tcp_close,               \
  .closeRecv = tcp_close, .closeListen = tcp_close_listen, NET_TABLE_9 NET_TABLE_11
