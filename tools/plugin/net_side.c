#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/util.h"
#include "net.h"

enum { PATTERN = 0xa5 };

const char *const net_names[NET_FUNCTIONS] = {[NET_NOTHING] = "no function",
                                              [NET_INIT] = "init",
                                              [NET_DEVICES] = "devices",
                                              [NET_PROPERTIES] = "getProperties",
                                              [NET_SET_ATTR] = "setNetAttr",
                                              [NET_LISTEN] = "listen",
                                              [NET_CONNECT] = "connect",
                                              [NET_ACCEPT] = "accept",
                                              [NET_REG] = "regMr",
                                              [NET_DEREG] = "deregMr",
                                              [NET_ISEND] = "isend",
                                              [NET_IRECV] = "irecv",
                                              [NET_IFLUSH] = "iflush",
                                              [NET_TEST] = "test",
                                              [NET_CLOSE_SEND] = "closeSend",
                                              [NET_CLOSE_RECV] = "closeRecv",
                                              [NET_CLOSE_LISTEN] = "closeListen",
                                              [NET_FINALIZE] = "finalize"};

static __thread pc_wait entered;

void net_enter(net_side *s, net_function f)
{
  if (!s->quiet) {
    atomic_store(&s->board->now[s->me], (int)f);
    entered = pc_wait_begin();
  }
  atomic_store_explicit(&s->board->called[f], true, memory_order_relaxed);
}

ncclResult_t net_leave(net_side *s, net_function f, ncclResult_t res)
{
  if (!s->quiet) {
    uint64_t took = pc_wait_end(&entered);
    if (took > atomic_load(&s->board->blocked[f])) {
      atomic_store(&s->board->blocked[f], took);
    }
    atomic_store(&s->board->now[s->me], NET_NOTHING);
  }
  if ((int)res < 0 || res >= ncclNumResults) {
    atomic_store(&s->board->odd[f], (int)res);
  }
  return res == ncclInProgress ? ncclSuccess : res;
}

bool net_give_up(net_side *s)
{
  return !atomic_exchange(&s->board->over, true);
}

bool net_patient(const net_side *s, uint64_t since)
{
  sched_yield();
  return !atomic_load(&s->board->over) && pc_clock_ns() - since < (uint64_t)s->job->patience * 1000000000u;
}

bool net_meet(net_side *s, int step)
{
  atomic_store(&s->board->step[s->me], step);
  while (atomic_load(&s->board->step[!s->me]) < step) {
    if (atomic_load(&s->board->over)) {
      return false;
    }
    sched_yield();
  }
  return !atomic_load(&s->board->over);
}

// ---- init

// Handles that sends and receives are given for events; the plugin may give back these, or NULL.
static char phandles[NET_PHANDLES];
static net_board *events_board;

static ncclResult_t event(void **handle, int type, void *phandle, int64_t id, void *data)
{
  const char *p = phandle;
  (void)id;
  (void)data;
  if (type == ncclProfilerNetEventStart && handle != NULL) {
    bool known = p == NULL || (p >= phandles && p < phandles + NET_PHANDLES);
    *handle = known ? &phandles[0] : NULL;
    atomic_fetch_add(&events_board->foreign, !known);
  } else if (handle != NULL) {
    atomic_fetch_add(&events_board->foreign, *handle != NULL && *handle != &phandles[0]);
  }
  return ncclSuccess;
}

bool net_init(net_side *s)
{
  events_board = s->board;
  s->setup = (tt_pnet_setup){
      .comm_hash = 0x7e57, .traffic_class = NCCL_NET_TRAFFIC_CLASS_UNDEF, .nranks = 2, .profile = event};
  ncclResult_t res = NET_CALL(s, NET_INIT, s->v->init(s->job->table, &s->setup, &s->ctx));
  return NET_RULE(s, res == ncclSuccess, "init: returns %d; so the plugin cannot be used on this machine, nor checked",
                  (int)res);
}

bool net_begin(net_side *s)
{
  int n = 0, type, vdevs[TT_NET_PARTS];
  if (!net_init(s)) {
    return false;
  }
  ncclResult_t res = NET_CALL(s, NET_DEVICES, s->v->devices(s->job->table, &n));
  if (res == ncclSuccess && n > 0) {
    res = NET_CALL(s, NET_PROPERTIES, s->v->properties(s->job->table, 0, &s->props, &type, vdevs));
  }
  if (!NET_RULE(s, res == ncclSuccess && n > 0,
                "devices: there are %d in a new process (code %d), and were more in the first", n, (int)res)) {
    return false;
  }
  if (s->v->hint != NULL) {
    net_enter(s, NET_SET_ATTR);
    s->v->hint(s->job->table, s->ctx, &s->setup);
    net_leave(s, NET_SET_ATTR, ncclSuccess); // its result does not matter
  }
  return true;
}

void net_end(net_side *s)
{
  if (s->v->finalize != NULL) {
    ncclResult_t res = NET_CALL(s, NET_FINALIZE, s->v->finalize(s->job->table, s->ctx));
    pc_rule(s->job, res == ncclSuccess, "finalize: returns %d; all is closed, it has to end the context", (int)res);
  }
}

// ---- connections

static bool is_untouched(const char *guard)
{
  for (int i = 0; i < NET_GUARD; i++) {
    if ((unsigned char)guard[i] != PATTERN) {
      return false;
    }
  }
  return true;
}

bool net_listen(net_side *s, net_conn *c, int number)
{
  char *handle = s->board->handle[number];
  *c = (net_conn){.side = s, .number = number};
  memset(handle, 0, NCCL_NET_HANDLE_MAXSIZE);
  memset(handle + NCCL_NET_HANDLE_MAXSIZE, PATTERN, NET_GUARD);
  ncclResult_t res = NET_CALL(s, NET_LISTEN, s->v->listen(s->job->table, s->ctx, 0, handle, &c->listener));
  return NET_RULE(s, res == ncclSuccess, "listen: returns %d on device 0", (int)res) &&
         NET_RULE(s, c->listener != NULL, "listen: gives no listener") &&
         NET_RULE(s, is_untouched(handle + NCCL_NET_HANDLE_MAXSIZE),
                  "listen: writes more than %d bytes into the handle; more do not travel", NCCL_NET_HANDLE_MAXSIZE);
}

void net_close_listener(net_side *s, net_conn *c)
{
  ncclResult_t res = NET_CALL(s, NET_CLOSE_LISTEN, s->v->close(s->job->table, c->listener, TT_PNET_LISTEN));
  pc_rule(s->job, res == ncclSuccess, "closeListen: returns %d", (int)res);
  c->listener = NULL;
}

// One more attempt for a connection that is not there yet. False: told.
static bool try_once(net_side *s, net_conn *c, char *handle)
{
  ncclResult_t res;
  if (c->comm != NULL) {
    return true;
  }
  if (s->me == NET_RECEIVER) {
    res = NET_CALL(s, NET_ACCEPT, s->v->accept(s->job->table, c->listener, &c->comm));
    return NET_RULE(s, res == ncclSuccess,
                    "accept: returns %d; while nobody has come it gives no connection and ncclSuccess", (int)res);
  }
  res = NET_CALL(s, NET_CONNECT, s->v->connect(s->job->table, s->ctx, &s->setup, 0, handle, &c->comm));
  return NET_RULE(s, res == ncclSuccess, "connect: returns %d; the peer listens, in a process of the same machine",
                  (int)res) &&
         NET_RULE(s, is_untouched(handle + NCCL_NET_HANDLE_MAXSIZE),
                  "connect: writes behind the %d bytes of the handle", NCCL_NET_HANDLE_MAXSIZE);
}

static int missing(const net_conn *conns, int n)
{
  int left = 0;
  for (int i = 0; i < n; i++) {
    left += conns[i].comm == NULL;
  }
  return left;
}

bool net_connect(net_side *s, net_conn *conns, int first, int n)
{
  static __thread _Alignas(16) char handles[NET_CONNECTIONS][NCCL_NET_HANDLE_MAXSIZE + NET_GUARD];
  for (int i = 0; i < n && s->me == NET_RECEIVER; i++) {
    if (!net_listen(s, &conns[i], first + i)) {
      return false;
    }
  }
  if (s->me == NET_RECEIVER) {
    atomic_store(&s->board->handles, first + n);
  }
  uint64_t since = pc_clock_ns();
  while (atomic_load(&s->board->handles) < first + n) {
    if (!net_patient(s, since)) {
      return false; // the other side tells
    }
  }
  for (int i = 0; i < n && s->me == NET_SENDER; i++) {
    conns[i] = (net_conn){.side = s, .number = first + i};
    memcpy(handles[i], s->board->handle[first + i], sizeof handles[i]);
  }
  since = pc_clock_ns();
  while (missing(conns, n) > 0) {
    if (!net_patient(s, since)) {
      return atomic_load(&s->board->over)
                 ? false
                 : NET_RULE(s, false, "%s: gives no connection within %d s, though both sides call",
                            s->me == NET_SENDER ? "connect" : "accept", s->job->patience);
    }
    for (int i = 0; i < n; i++) {
      if (!try_once(s, &conns[i], handles[i])) {
        return false;
      }
    }
  }
  for (int i = 0; i < n && s->me == NET_RECEIVER; i++) {
    net_close_listener(s, &conns[i]);
  }
  return true;
}

bool net_register(net_conn *c, size_t size)
{
  net_side *s = c->side;
  c->size = size;
  c->memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (c->memory == MAP_FAILED) {
    c->memory = NULL;
    return NET_RULE(s, false, "tutti-plugin has no memory for %zu bytes", size);
  }
  const tt_net_dmabuf m = {.data = c->memory, .size = size, .fd = -1};
  ncclResult_t res = NET_CALL(s, NET_REG, s->v->reg_mr(s->job->table, c->comm, &m, NCCL_PTR_HOST, &c->mhandle));
  return NET_RULE(s, res == ncclSuccess,
                  "regMr: returns %d for %zu bytes of host memory, which the device says it takes", (int)res, size);
}

void net_close(net_conn *c)
{
  net_side *s = c->side;
  net_function f = s->me == NET_SENDER ? NET_CLOSE_SEND : NET_CLOSE_RECV;
  if (c->memory != NULL) {
    ncclResult_t res = NET_CALL(s, NET_DEREG, s->v->dereg_mr(s->job->table, c->comm, c->mhandle));
    pc_rule(s->job, res == ncclSuccess, "deregMr: returns %d", (int)res);
  }
  ncclResult_t res =
      NET_CALL(s, f, s->v->close(s->job->table, c->comm, s->me == NET_SENDER ? TT_PNET_SEND : TT_PNET_RECV));
  pc_rule(s->job, res == ncclSuccess, "%s: returns %d (%s)", net_names[f], (int)res, s->scene);
  c->comm = NULL;
}

void net_free(net_conn *c)
{
  if (c->memory != NULL) {
    munmap(c->memory, c->size);
  }
  c->memory = NULL;
}
