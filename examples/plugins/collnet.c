// collnet.c: a network that reduces, beside the network of net.c: sums of floats, formed by the first rank of each
// group. Version 12 of the interface.
//
//   NCCL_NET_PLUGIN=/path/libnccl-collnet-example.so NCCL_NET=Example NCCL_COLLNET_ENABLE=1 ./program
//
// What is worth knowing beside what net.c says:
//  - The library needs both tables: messages that are not reduced go over the network. Each has contexts of its own.
//  - The members of a group are nodes, not ranks: the first rank of each node has already summed its neighbours'
//  (CollNetChain), or a few of them share that.
//  - connect alone may wait for the others: it has a thread of its own. It is called once; after a failure the listener
//  is the plugin's to close.
//  - All members begin the same reductions in the same order, but each asks after them in any: what is sent must keep
//  that order all the same.
//  - All members must get the same bits: so one of them sums, in the order of the ranks.
//  - What reduceSupport does not promise goes by other algorithms, without a word.
#include "net.c"

#include <time.h>

enum { MEMBERS = 64, UNDER_WAY = 8, PATIENCE_MS = 20000 };

typedef struct group group;

typedef struct reduction {
  group *of;
  const float *in;
  float *out, *parts; // parts: the first rank's, what comes from each other member
  size_t count;
  int used, summed;
  request *receives[MEMBERS], *sends[MEMBERS]; // NULL: none, or complete
} reduction;

// Lines to the others: the first rank has one to each, the others one to it. Each is two connections, as those of net.c
// have one direction.
struct group {
  int rank, nlines;
  connection *to[MEMBERS], *from[MEMBERS];
  unsigned first, next; // reductions in the order in which they were begun
  reduction ring[UNDER_WAY];
};

// What a connection says first.
typedef struct hello {
  int rank, up; // up: it carries what goes to the first rank
} hello;

static ncclResult_t coll_init(void **ctx, uint64_t comm, ncclDebugLogger_t log)
{
  return init(ctx, comm, NULL, log, NULL);
}

static ncclResult_t coll_properties(int dev, ncclNetProperties_t *p)
{
  ncclResult_t res = properties(dev, p);
  p->maxCollBytes = NCCL_MAX_NET_SIZE_BYTES;
  return res;
}

static ncclResult_t support(ncclDataType_t type, ncclRedOp_t op, int *supported)
{
  *supported = type == ncclFloat32 && op == ncclSum;
  return ncclSuccess;
}

// ---- groups

static ncclResult_t close_group(void *any)
{
  group *g = any;
  for (int i = 0; i < MEMBERS; i++) {
    if (g->to[i] != NULL) {
      close_connection(g->to[i]);
    }
    if (g->from[i] != NULL) {
      close_connection(g->from[i]);
    }
  }
  for (int i = 0; i < UNDER_WAY; i++) {
    free(g->ring[i].parts);
  }
  free(g);
  return ncclSuccess;
}

// False: not within PATIENCE_MS. `tries` counts milliseconds.
static int patient(int *tries)
{
  nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  return ++*tries < PATIENCE_MS;
}

static ncclResult_t tired(void)
{
  errno = ETIMEDOUT;
  return FAIL(ncclRemoteError, "the members of a group do not come together");
}

// A plugin for production does not let a silent peer keep the others waiting, and demands proof of a peer's identity.
static ncclResult_t exchange_hello(connection *c, hello *h, int *tries)
{
  void *request = NULL;
  int done = 0;
  ncclResult_t res = begin(c, h, sizeof *h, &request);
  while (res == ncclSuccess && !done) {
    res = patient(tries) ? test(request, &done, NULL) : tired();
  }
  return res;
}

// One connection to the first rank.
static ncclResult_t dial(group *g, void *address, int up, connection **out)
{
  char copy[NCCL_NET_HANDLE_MAXSIZE]; // for the notes of this attempt
  hello h = {.rank = g->rank, .up = up};
  void *made = NULL;
  int tries = 0;
  ncclResult_t res = ncclSuccess;
  memcpy(copy, address, sizeof copy);
  while (res == ncclSuccess && made == NULL) {
    res = patient(&tries) ? go_on_connecting(NULL, 0, copy, &made, NULL) : tired();
  }
  *out = made; // close_group closes it, whatever happens next
  if (made == NULL) {
    handle notes;
    memcpy(&notes, copy, sizeof notes);
    if (notes.begun != 0) {
      close(notes.begun - 1);
    }
    return res;
  }
  res = exchange_hello(*out, &h, &tries);
  (*out)->sends = up;
  return res;
}

// The first rank: both connections of everybody else.
static ncclResult_t let_in(group *g, void *listener)
{
  int tries = 0;
  for (int missing = 2 * g->nlines; missing > 0;) {
    hello h = {.rank = 0};
    void *made = NULL;
    ncclResult_t res = go_on_accepting(listener, &made, NULL);
    if (res == ncclSuccess && made == NULL) {
      res = patient(&tries) ? ncclSuccess : tired();
    }
    if (res != ncclSuccess) {
      return res;
    }
    connection *c = made;
    if (c == NULL) {
      continue;
    }
    if (exchange_hello(c, &h, &tries) != ncclSuccess || h.rank < 1 || h.rank > g->nlines ||
        (h.up ? g->from : g->to)[h.rank - 1] != NULL) {
      close_connection(c); // a stranger
      continue;
    }
    c->sends = !h.up;
    (h.up ? g->from : g->to)[h.rank - 1] = c;
    missing--;
  }
  return ncclSuccess;
}

static ncclResult_t join_group(void *handles[], int nranks, int rank, void *listener, void **out)
{
  ncclResult_t res = ncclSystemError;
  errno = E2BIG;
  group *g = nranks <= MEMBERS ? calloc(1, sizeof *g) : NULL;
  if (g == NULL) {
    res = FAIL(ncclSystemError, "no group of so many members, or no memory for it");
  } else {
    g->rank = rank;
    g->nlines = rank == 0 ? nranks - 1 : 1;
    if (rank == 0) {
      res = let_in(g, listener);
    } else if ((res = dial(g, handles[0], 1, &g->to[0])) == ncclSuccess) {
      res = dial(g, handles[0], 0, &g->from[0]);
    }
  }
  if (res != ncclSuccess) {
    if (g != NULL) {
      close_group(g);
    }
    close_listener(listener);
    return res;
  }
  *out = g;
  return ncclSuccess;
}

// ---- reductions

// *over becomes 0 where one of these messages is not through.
static ncclResult_t look(request **messages, int n, size_t bytes, int *over)
{
  for (int i = 0; i < n; i++) {
    int done = 0, size = 0;
    if (messages[i] == NULL) {
      continue;
    }
    ncclResult_t res = test(messages[i], &done, &size);
    if (res != ncclSuccess) {
      return res;
    }
    if (done && (size_t)size != bytes) {
      errno = EMSGSIZE;
      return FAIL(ncclInvalidUsage, "the members reduce different counts");
    }
    if (done) {
      messages[i] = NULL;
    } else {
      *over = 0;
    }
  }
  return ncclSuccess;
}

static ncclResult_t send_all(const group *g, reduction *r, const float *data)
{
  ncclResult_t res = ncclSuccess;
  for (int i = 0; i < g->nlines && res == ncclSuccess; i++) {
    void *sent;
    res = begin(g->to[i], (void *)data, r->count * sizeof *data, &sent);
    r->sends[i] = sent;
  }
  return res;
}

static void sum(const group *g, reduction *r)
{
  for (size_t i = 0; i < r->count; i++) {
    float all = r->in[i];
    for (int m = 0; m < g->nlines; m++) {
      all += r->parts[(size_t)m * r->count + i];
    }
    r->out[i] = all;
  }
}

// In the order in which they were begun: what the first rank sends follows it.
static ncclResult_t drive_group(group *g)
{
  for (unsigned k = g->first; k != g->next; k++) {
    reduction *r = &g->ring[k % UNDER_WAY];
    size_t bytes = r->count * sizeof *r->in;
    int received = 1, sent = 1;
    if (!r->used) {
      continue;
    }
    ncclResult_t res = look(r->receives, g->nlines, bytes, &received);
    if (res != ncclSuccess || (g->rank == 0 && !received)) {
      return res;
    }
    if (g->rank == 0 && !r->summed) {
      sum(g, r);
      r->summed = 1;
      res = send_all(g, r, r->out);
    }
    res = res == ncclSuccess ? look(r->sends, g->nlines, bytes, &sent) : res;
    if (res != ncclSuccess) {
      return res;
    }
  }
  return ncclSuccess;
}

static int is_over(const reduction *r)
{
  int over = r->of->rank > 0 || r->summed;
  for (int i = 0; i < r->of->nlines; i++) {
    over &= r->receives[i] == NULL && r->sends[i] == NULL;
  }
  return over;
}

// A connection takes 32 requests, of which the 8 reductions need one each: so begin always has room. `in` may be `out`:
// the result comes when all is read.
static ncclResult_t reduce(void *any, void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           void *in_memory, void *out_memory, void **request)
{
  group *g = any;
  reduction *r = &g->ring[g->next % UNDER_WAY];
  ncclResult_t res = ncclSuccess;
  (void)in_memory;
  (void)out_memory;
  *request = NULL;
  if (type != ncclFloat32 || op != ncclSum) {
    errno = ENOTSUP;
    return FAIL(ncclInvalidArgument, "only sums of floats are reduced");
  }
  if (g->next - g->first == UNDER_WAY) {
    return ncclSuccess; // no room now
  }
  *r = (reduction){.of = g, .in = in, .out = out, .count = count, .used = 1};
  if (g->rank == 0 && g->nlines > 0 && (r->parts = malloc((size_t)g->nlines * count * sizeof *r->parts)) == NULL) {
    return FAIL(ncclSystemError, "no memory for what the members send");
  }
  g->next++;
  for (int i = 0; i < g->nlines && res == ncclSuccess; i++) {
    void *to = g->rank == 0 ? r->parts + (size_t)i * count : r->out, *receive;
    res = begin(g->from[i], to, count * sizeof *r->out, &receive);
    r->receives[i] = receive;
  }
  if (res == ncclSuccess && g->rank > 0) {
    res = send_all(g, r, r->in);
  }
  *request = r;
  return res;
}

static ncclResult_t test_reduction(void *any, int *done, int *size)
{
  reduction *r = any;
  group *g = r->of;
  ncclResult_t res = is_over(r) ? ncclSuccess : drive_group(g);
  *done = is_over(r);
  if (!*done) {
    return res;
  }
  if (size != NULL) {
    *size = (int)(r->count * sizeof *r->out);
  }
  free(r->parts);
  r->parts = NULL;
  for (r->used = 0; g->first != g->next && !g->ring[g->first % UNDER_WAY].used;) {
    g->first++;
  }
  return ncclSuccess;
}

const ncclCollNet_t ncclCollNetPlugin_v12 = {.name = "Example",
                                             .init = coll_init,
                                             .devices = devices,
                                             .getProperties = coll_properties,
                                             .listen = start_listening,
                                             .connect = join_group,
                                             .reduceSupport = support,
                                             .regMr = register_memory,
                                             .deregMr = forget_memory,
                                             .iallreduce = reduce,
                                             .test = test_reduction,
                                             .closeColl = close_group,
                                             .closeListen = close_listener,
                                             .finalize = finalize};
