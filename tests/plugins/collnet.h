// collnet.h: a collective network of any version, for tests, beside the network of net_tcp.h. A file that includes it
// says which version:
//
//   #define NET_VERSION 12
//   #include "collnet.h"
//
// COLL_TABLE makes the table. It really reduces: rank 0 of a group takes what the others send over TCP, adds it to its
// own in the order of ranks, and sends the result to all. connect waits for the others, as plugins' do. It is strict:
// memory must be registered with the connection, no more requests than 8, the same call on all ranks.
//
//   TEST_COLL_FAIL=FUNCTION:N:CODE[:RANK]  the N-th call of it fails with the code (on that rank of the group alone)
//   TEST_COLL_ONLY=TYPE:OP                 reduces nothing else
//   TEST_COLL_REFUSE=N                     every N-th iallreduce is "not now"
//   TEST_COLL_STALL=1                      connect never returns; 2: nor does any reduction end
#pragma once
#include <math.h>
#include <stdint.h>

#include "net_tcp.h"

enum { COLL_REQUESTS = 8, COLL_RANKS = 64, COLL_MAGIC = 0x5e6d };

#if NET_VERSION >= 9
typedef size_t coll_count_t;
#else
typedef int coll_count_t;
#endif

static _Atomic int coll_open, coll_contexts, coll_calls;

typedef struct coll_head {
  uint32_t magic, number, type, op;
  uint64_t count;
} coll_head;

typedef struct coll_comm coll_comm;

typedef struct coll_request {
  coll_comm *of;
  bool used, ready, flush; // ready: the result is there
  uint32_t number;
  coll_head head;
  size_t bytes;
  const char *in;
  char *out;
  char *parts[COLL_RANKS]; // root: what came from each
  int nparts;
} coll_request;

// One connection of the star.
typedef struct coll_line {
  int fd;
  coll_head head;           // being received
  uint32_t receives, sends; // number of the request that is being received, sent
  size_t received, sent;    // bytes of it, header included
} coll_line;

struct coll_comm {
  int nranks, rank, calls;
  uint32_t posted, summed;
  coll_line line[COLL_RANKS]; // root: by rank; others: [0]
  coll_request requests[COLL_REQUESTS];
};

typedef struct coll_listener {
  int fd;
} coll_listener;

typedef struct coll_handle {
  uint16_t port;
  uint16_t dev;
} coll_handle;

static ncclResult_t coll_misuse(const char *what)
{
  tcp_log(NCCL_LOG_WARN, NCCL_NET, __FILE__, __LINE__, "collective test plugin: the caller is wrong: %s", what);
  return ncclInternalError;
}

// Shall this call fail? rank -1: not known yet.
static ncclResult_t coll_fault(const char *function, int rank)
{
  static _Atomic int count;
  const char *text = getenv("TEST_COLL_FAIL");
  size_t n = strlen(function);
  int number = 0, code = 0, who = -1;
  if (text == NULL || strncmp(text, function, n) != 0 || text[n] != ':' ||
      sscanf(text + n, ":%d:%d:%d", &number, &code, &who) < 2) {
    return ncclSuccess;
  }
  if ((who >= 0 && who != rank) || atomic_fetch_add(&count, 1) + 1 != number) {
    return ncclSuccess;
  }
  return (ncclResult_t)code;
}

#define COLL_FAULT(function, rank)                    \
  do {                                                \
    ncclResult_t fault_ = coll_fault(function, rank); \
    if (fault_ != ncclSuccess) {                      \
      return fault_;                                  \
    }                                                 \
  } while (0)

static int coll_setting(const char *name)
{
  const char *text = getenv(name);
  return text != NULL ? atoi(text) : 0;
}

// ---- arithmetic

static double coll_pow2(int e)
{
  return ldexp(1, e);
}

// A small float of so many bits of exponent and mantissa. e4m3 (4, 3) has no infinity.
static double coll_decode(unsigned x, int ebits, int mbits)
{
  int bias = (1 << (ebits - 1)) - 1, e = (int)(x >> mbits & ((1u << ebits) - 1));
  unsigned m = x & ((1u << mbits) - 1);
  double sign = x >> (ebits + mbits) & 1 ? -1 : 1;
  bool top = e == (1 << ebits) - 1, fn = ebits == 4;
  if (top && (fn ? m == (1u << mbits) - 1 : m != 0)) {
    return NAN;
  }
  if (top && !fn) {
    return sign * INFINITY;
  }
  return sign * (e == 0 ? m * coll_pow2(1 - bias - mbits) : (m + coll_pow2(mbits)) * coll_pow2(e - bias - mbits));
}

static unsigned coll_encode(double v, int ebits, int mbits)
{
  int bias = (1 << (ebits - 1)) - 1, e;
  unsigned sign = (signbit(v) ? 1u : 0u) << (ebits + mbits), top = ((1u << ebits) - 1) << mbits;
  bool fn = ebits == 4;
  if (isnan(v)) {
    return sign | top | (fn ? (1u << mbits) - 1 : 1u << (mbits - 1));
  }
  v = fabs(v);
  if (v == 0) {
    return sign;
  }
  frexp(v, &e);
  e = e - 1 < 1 - bias ? 1 - bias : isinf(v) ? bias + 2 : e - 1;
  double units = isinf(v) ? coll_pow2(mbits + 1) : nearbyint(ldexp(v, mbits - e)); // to even
  unsigned long long bits = (unsigned long long)((double)(e + bias - 1) * coll_pow2(mbits) + units);
  unsigned most = fn ? top | ((1u << mbits) - 2) : top;
  return sign | (bits > most ? (fn ? top | ((1u << mbits) - 1) : top) : (unsigned)bits);
}

static double coll_float(double a, double b, int op)
{
  return op == ncclSum ? a + b : op == ncclProd ? a * b : op == ncclMax ? fmax(a, b) : fmin(a, b);
}

static void coll_small(char *to, const char *from, uint64_t i, int op, const int format[3]) // bytes, ebits, mbits
{
  uint16_t a = 0, b = 0;
  memcpy(&a, to + i * (size_t)format[0], (size_t)format[0]);
  memcpy(&b, from + i * (size_t)format[0], (size_t)format[0]);
  float sum = (float)coll_float(coll_decode(a, format[1], format[2]), coll_decode(b, format[1], format[2]), op);
  a = (uint16_t)coll_encode(sum, format[1], format[2]);
  memcpy(to + i * (size_t)format[0], &a, (size_t)format[0]);
}

#define COLL_INTS(type)                                      \
  do {                                                       \
    type a, b;                                               \
    memcpy(&a, to + i * sizeof a, sizeof a);                 \
    memcpy(&b, from + i * sizeof b, sizeof b);               \
    a = op == ncclSum    ? (type)((uint64_t)a + (uint64_t)b) \
        : op == ncclProd ? (type)((uint64_t)a * (uint64_t)b) \
        : op == ncclMax  ? (a > b ? a : b)                   \
                         : (a < b ? a : b);                   \
    memcpy(to + i * sizeof a, &a, sizeof a);                 \
  } while (0)

#define COLL_FLOATS(type)                           \
  do {                                              \
    type a, b;                                      \
    memcpy(&a, to + i * sizeof a, sizeof a);        \
    memcpy(&b, from + i * sizeof b, sizeof b);      \
    a = (type)coll_float((double)a, (double)b, op); \
    memcpy(to + i * sizeof a, &a, sizeof a);        \
  } while (0)

static size_t coll_size(int type)
{
  static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[type];
}

static void coll_add(char *to, const char *from, uint64_t count, int type, int op)
{
  static const int half[] = {2, 5, 10}, bfloat[] = {2, 8, 7}, e4m3[] = {1, 4, 3}, e5m2[] = {1, 5, 2};
  for (uint64_t i = 0; i < count; i++) {
    switch (type) {
    case ncclInt8: COLL_INTS(int8_t); break;
    case ncclUint8: COLL_INTS(uint8_t); break;
    case ncclInt32: COLL_INTS(int32_t); break;
    case ncclUint32: COLL_INTS(uint32_t); break;
    case ncclInt64: COLL_INTS(int64_t); break;
    case ncclUint64: COLL_INTS(uint64_t); break;
    case ncclFloat32: COLL_FLOATS(float); break;
    case ncclFloat64: COLL_FLOATS(double); break;
    case ncclFloat16: coll_small(to, from, i, op, half); break;
    case ncclBfloat16: coll_small(to, from, i, op, bfloat); break;
    case ncclFloat8e4m3: coll_small(to, from, i, op, e4m3); break;
    default: coll_small(to, from, i, op, e5m2); break;
    }
  }
}

// ---- context and devices

#if NET_VERSION >= 11
UNUSED static ncclResult_t coll_init(void **ctx, uint64_t comm, ncclDebugLogger_t log)
{
  (void)comm;
  COLL_FAULT("init", -1);
  tcp_log = log;
  *ctx = malloc(1);
  atomic_fetch_add(&coll_contexts, 1);
  return *ctx != NULL ? ncclSuccess : ncclSystemError;
}

UNUSED static ncclResult_t coll_finalize(void *ctx)
{
  int left = atomic_load(&coll_open), contexts = atomic_fetch_sub(&coll_contexts, 1) - 1;
  if (contexts == 0 && left != 0) {
    tcp_log(NCCL_LOG_WARN, NCCL_NET, __FILE__, __LINE__,
            "collective test plugin: LEAK: %d objects are open after the last finalize", left);
  }
  tcp_log(NCCL_LOG_INFO, NCCL_INIT, __FILE__, __LINE__, "collective test plugin: %d reductions in this process",
          atomic_load(&coll_calls));
  free(ctx);
  return ncclSuccess;
}
#else
UNUSED static ncclResult_t coll_init(ncclDebugLogger_t log)
{
  COLL_FAULT("init", -1);
  tcp_log = log;
  return atomic_fetch_add(&coll_contexts, 1) == 0 ? ncclSuccess : coll_misuse("a second init");
}
#endif

UNUSED static ncclResult_t coll_devices(int *n)
{
  COLL_FAULT("devices", -1);
  return tcp_devices(n); // the network's list, with what it has made of several
}

UNUSED static ncclResult_t coll_properties(int dev, TYPED(ncclNetProperties) * p)
{
  ncclResult_t res = tcp_properties(dev, p);
#if NET_VERSION >= 9
  p->maxCollBytes = 1u << 20;
#endif
  return res;
}

UNUSED static ncclResult_t coll_support(ncclDataType_t type, ncclRedOp_t op, int *supported)
{
  const char *only = getenv("TEST_COLL_ONLY");
  int t = 0, o = 0;
  *supported = only == NULL || (sscanf(only, "%d:%d", &t, &o) == 2 && t == (int)type && o == (int)op);
  return ncclSuccess;
}

// ---- the group

static ncclResult_t coll_listen_any(int dev, void *handle, void **out)
{
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof at;
  COLL_FAULT("listen", -1);
  coll_listener *l = calloc(1, sizeof *l);
  if (l == NULL || dev < 0 || dev >= tcp_devices_now || tcp_all[dev].n > 1) {
    free(l);
    return coll_misuse("listen on a device that there is not, or on one made of several");
  }
  l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(l->fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(l->fd, COLL_RANKS) != 0 ||
      getsockname(l->fd, (struct sockaddr *)&at, &size) != 0) {
    close(l->fd);
    free(l);
    return tcp_fail("cannot listen");
  }
  coll_handle h = {.port = ntohs(at.sin_port), .dev = (uint16_t)dev};
  memcpy(handle, &h, sizeof h);
  atomic_fetch_add(&coll_open, 1);
  *out = l;
  return ncclSuccess;
}

#if NET_VERSION >= 11
UNUSED static ncclResult_t coll_listen(void *ctx, int dev, void *handle, void **out)
{
  return ctx == NULL ? coll_misuse("listen without a context") : coll_listen_any(dev, handle, out);
}
#else
UNUSED static ncclResult_t coll_listen(int dev, void *handle, void **out)
{
  return coll_listen_any(dev, handle, out);
}
#endif

UNUSED static ncclResult_t coll_close_listen(void *any)
{
  coll_listener *l = any;
  close(l->fd);
  free(l);
  atomic_fetch_sub(&coll_open, 1);
  return ncclSuccess;
}

static int coll_dial(const coll_handle *h, uint32_t rank)
{
  struct sockaddr_in at = {
      .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(h->port)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, (struct sockaddr *)&at, sizeof at) != 0 ||
      send(fd, &rank, sizeof rank, MSG_NOSIGNAL) != sizeof rank) {
    close(fd);
    return -1;
  }
  return fd;
}

static bool coll_let_in(coll_comm *c, int door)
{
  for (int i = 1; i < c->nranks; i++) {
    uint32_t rank = 0;
    int fd = accept(door, NULL, NULL);
    if (fd < 0 || recv(fd, &rank, sizeof rank, MSG_WAITALL) != sizeof rank || rank == 0 ||
        rank >= (uint32_t)c->nranks || c->line[rank].fd >= 0) {
      close(fd);
      return false;
    }
    c->line[rank].fd = fd;
  }
  return true;
}

static void coll_free(coll_comm *c)
{
  for (int i = 0; i < COLL_RANKS; i++) {
    if (c->line[i].fd >= 0) {
      close(c->line[i].fd);
    }
  }
  for (int k = 0; k < COLL_REQUESTS; k++) {
    for (int i = 0; i < COLL_RANKS; i++) {
      free(c->requests[k].parts[i]);
    }
  }
  free(c);
  atomic_fetch_sub(&coll_open, 1);
}

// The listener goes when it fails: nobody closes it then.
UNUSED static ncclResult_t coll_connect(void *handles[], int nranks, int rank, void *door, void **out)
{
  coll_handle root;
  ncclResult_t fault = coll_fault("connect", rank);
  while (coll_setting("TEST_COLL_STALL") == 1) {
    pause();
  }
  coll_comm *c = fault == ncclSuccess ? calloc(1, sizeof *c) : NULL;
  if (c == NULL || nranks > COLL_RANKS || rank < 0 || rank >= nranks) {
    free(c);
    coll_close_listen(door);
    return fault != ncclSuccess ? fault : ncclInvalidArgument;
  }
  c->nranks = nranks;
  c->rank = rank;
  for (int i = 0; i < COLL_RANKS; i++) {
    c->line[i].fd = -1;
  }
  atomic_fetch_add(&coll_open, 1);
  memcpy(&root, handles[0], sizeof root);
  bool good =
      rank == 0 ? coll_let_in(c, ((coll_listener *)door)->fd) : (c->line[0].fd = coll_dial(&root, (uint32_t)rank)) >= 0;
  if (!good) {
    coll_free(c);
    coll_close_listen(door);
    return tcp_fail("cannot connect the group");
  }
  for (int i = 0; i < nranks; i++) {
    if (c->line[i].fd >= 0) {
      tcp_set_up(c->line[i].fd);
    }
  }
  *out = c;
  return ncclSuccess;
}

UNUSED static ncclResult_t coll_close(void *any)
{
  coll_free(any);
  return ncclSuccess;
}

// ---- memory

UNUSED static ncclResult_t coll_reg(void *any, void *data, reg_bytes_t size, int type, void **mhandle)
{
  COLL_FAULT("regMr", ((coll_comm *)any)->rank);
  region *r = malloc(sizeof *r);
  if (r == NULL || type != NCCL_PTR_HOST || size <= 0) {
    free(r);
    return coll_misuse("registration of what is no host memory");
  }
  *r = (region){.of = any, .from = data, .to = (char *)data + size};
  atomic_fetch_add(&coll_open, 1);
  *mhandle = r;
  return ncclSuccess;
}

UNUSED static ncclResult_t coll_dereg(void *any, void *mhandle)
{
  region *r = mhandle;
  if (r == NULL || (void *)r->of != any) {
    return coll_misuse("deregistration with another connection");
  }
  free(r);
  atomic_fetch_sub(&coll_open, 1);
  return ncclSuccess;
}

// ---- reductions

static coll_request *coll_at(coll_comm *c, uint32_t number)
{
  coll_request *r = &c->requests[number % COLL_REQUESTS];
  return r->used && r->number == number ? r : NULL;
}

// Moves bytes of "header, then data" one way. *moved counts them. False: an error.
static bool coll_move(int fd, bool out, coll_head *head, char *data, size_t bytes, size_t *moved)
{
  for (;;) {
    bool in_head = *moved < sizeof *head;
    size_t rest = in_head ? sizeof *head - *moved : bytes - (*moved - sizeof *head);
    char *at = in_head ? (char *)head + *moved : data + (*moved - sizeof *head);
    if (rest == 0) {
      return true;
    }
    ssize_t n = out ? send(fd, at, rest, MSG_NOSIGNAL) : recv(fd, at, rest, 0);
    if (n <= 0) {
      return n < 0 && (errno == EAGAIN || errno == EINTR);
    }
    *moved += (size_t)n;
    if (!out && in_head && *moved == sizeof *head) {
      return true; // the caller looks at it first
    }
  }
}

static bool coll_same(const coll_head *a, const coll_head *b)
{
  return a->magic == b->magic && a->number == b->number && a->type == b->type && a->op == b->op && a->count == b->count;
}

// Receives from one end of the star as far as requests are posted.
static ncclResult_t coll_receive(coll_comm *c, int i)
{
  coll_line *l = &c->line[i];
  for (coll_request *r; (r = coll_at(c, l->receives)) != NULL;) {
    if (c->rank == 0 && r->parts[i] == NULL && (r->parts[i] = malloc(r->bytes)) == NULL) {
      return ncclSystemError;
    }
    size_t before = l->received;
    if (!coll_move(l->fd, false, &l->head, c->rank == 0 ? r->parts[i] : r->out, r->bytes, &l->received)) {
      return ncclRemoteError;
    }
    if (before < sizeof l->head && l->received == sizeof l->head && !coll_same(&l->head, &r->head)) {
      return coll_misuse("ranks of the group are in different reductions");
    }
    if (l->received == sizeof l->head + r->bytes) {
      r->nparts++;
      r->ready |= c->rank != 0;
      l->received = 0;
      l->receives++;
    } else if (l->received == before) {
      return ncclSuccess;
    }
  }
  return ncclSuccess;
}

// The root's sums, in the order of ranks.
static void coll_sum(coll_comm *c)
{
  for (coll_request *r; (r = coll_at(c, c->summed)) != NULL && r->nparts == c->nranks - 1; c->summed++) {
    char *sum = malloc(r->bytes); // in and out may be the same
    memcpy(sum, r->in, r->bytes);
    for (int i = 1; i < c->nranks; i++) {
      coll_add(sum, r->parts[i], r->head.count, (int)r->head.type, (int)r->head.op);
      free(r->parts[i]);
      r->parts[i] = NULL;
    }
    memcpy(r->out, sum, r->bytes);
    free(sum);
    r->ready = true;
  }
}

static ncclResult_t coll_send(coll_comm *c, int i)
{
  coll_line *l = &c->line[i];
  for (coll_request *r; (r = coll_at(c, l->sends)) != NULL && (c->rank != 0 || r->ready);) {
    char *data = c->rank == 0 ? r->out : (char *)(uintptr_t)r->in;
    if (!coll_move(l->fd, true, &r->head, data, r->bytes, &l->sent)) {
      return ncclRemoteError;
    }
    if (l->sent < sizeof r->head + r->bytes) {
      return ncclSuccess;
    }
    l->sent = 0;
    l->sends++;
  }
  return ncclSuccess;
}

static ncclResult_t coll_drive(coll_comm *c)
{
  for (int i = 0; i < c->nranks; i++) {
    ncclResult_t res = c->line[i].fd < 0 ? ncclSuccess : coll_receive(c, i);
    if (res != ncclSuccess) {
      return res;
    }
  }
  if (c->rank == 0) {
    coll_sum(c);
  }
  for (int i = 0; i < c->nranks; i++) {
    ncclResult_t res = c->line[i].fd < 0 ? ncclSuccess : coll_send(c, i);
    if (res != ncclSuccess) {
      return res;
    }
  }
  return ncclSuccess;
}

static bool coll_is_registered(const coll_comm *c, const char *data, size_t size, const void *mhandle)
{
  const region *r = mhandle;
  return r != NULL && (const void *)r->of == c && data >= r->from && size <= (size_t)(r->to - data);
}

UNUSED static ncclResult_t coll_allreduce(void *any, void *in, void *out, coll_count_t count, ncclDataType_t type,
                                          ncclRedOp_t op, void *in_mr, void *out_mr, void **request)
{
  coll_comm *c = any;
  size_t bytes = (size_t)count * coll_size((int)type);
  int supported = 0, refuse = coll_setting("TEST_COLL_REFUSE");
  *request = NULL;
  COLL_FAULT("iallreduce", c->rank);
  coll_support(type, op, &supported);
  if (!supported || (int)op > (int)ncclMin || count <= 0) {
    return coll_misuse("a reduction that is not supported, or of nothing");
  }
  if (!coll_is_registered(c, in, bytes, in_mr) || !coll_is_registered(c, out, bytes, out_mr)) {
    return coll_misuse("a reduction of memory that is not registered");
  }
  if (refuse > 0 && ++c->calls % refuse == 0) {
    return ncclSuccess;
  }
  coll_request *r = &c->requests[c->posted % COLL_REQUESTS];
  if (r->used) {
    return coll_misuse("more reductions than a connection has room for");
  }
  *r = (coll_request){.of = c, .used = true, .number = c->posted, .bytes = bytes, .in = in, .out = out};
  r->head = (coll_head){.magic = COLL_MAGIC, .number = c->posted++, .type = type, .op = op, .count = (uint64_t)count};
  atomic_fetch_add(&coll_calls, 1);
  *request = r;
  return coll_drive(c);
}

UNUSED static ncclResult_t coll_flush(void *any, void *data, int size, void *mhandle, void **request)
{
  *request = NULL;
  return coll_is_registered(any, data, (size_t)size, mhandle) ? ncclSuccess
                                                              : coll_misuse("a flush of memory that is not registered");
}

UNUSED static ncclResult_t coll_test(void *any, int *done, int *size)
{
  coll_request *r = any;
  coll_comm *c = r->of;
  *done = 0;
  COLL_FAULT("test", c->rank);
  if (!r->used) {
    return coll_misuse("test of a request that is done");
  }
  ncclResult_t res = coll_drive(c);
  bool sent = true; // the root has served everybody
  for (int i = 0; i < c->nranks; i++) {
    sent = sent && (c->line[i].fd < 0 || (int32_t)(c->line[i].sends - r->number) > 0);
  }
  if (res != ncclSuccess || !r->ready || !sent || coll_setting("TEST_COLL_STALL") == 2) {
    return res;
  }
  *size = (int)r->bytes;
  r->used = false;
  *done = 1;
  return ncclSuccess;
}

#if NET_VERSION >= 11
#define COLL_TABLE_11 .finalize = coll_finalize,
#else
#define COLL_TABLE_11
#endif
#define COLL_TABLE                                                                                  \
  .name = "TestColl", .init = coll_init, .devices = coll_devices, .getProperties = coll_properties, \
  .listen = coll_listen, .connect = coll_connect, .reduceSupport = coll_support, .regMr = coll_reg, \
  .deregMr = coll_dereg, .iallreduce = coll_allreduce, .iflush = coll_flush, .test = coll_test,     \
  .closeColl = coll_close, .closeListen = coll_close_listen, COLL_TABLE_11
