#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "net.h"

enum { MANY = 100, ALONE = 200, WARM = 3, CYCLES = 20, THREADS = 2, LARGE = 4 << 20, LEAK = 32 };

static const size_t sizes_of_all_kinds[] = {4096, 0, 1, 13, 8191, 4096, 65537, 0, LARGE, 1, 2, 1021, 4096, 12345};
static const net_plan kinds = {.sizes = sizes_of_all_kinds, .n = TT_COUNT(sizes_of_all_kinds)};
static const size_t three[] = {64, 4096, 1};
static const net_plan short_plan = {.sizes = three, .n = 3};

static void nap(long ms)
{
  nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

// A while in which each thread gets its turn. Not in one nap, which is over at once when a machine that stood still
// goes on.
static void linger(void)
{
  for (int i = 0; i < 100; i++) {
    nap(3);
  }
}

static bool open_one(net_side *s, net_conn *c, int number, size_t bytes)
{
  return net_connect(s, c, number, 1) && net_register(c, bytes);
}

static void finish(net_conn *c)
{
  net_close(c);
  net_free(c);
}

// A listener to which nobody comes.
static void alone(net_side *s)
{
  net_conn c;
  if (s->me == NET_SENDER || !net_listen(s, &c, 0)) {
    return;
  }
  for (int i = 0; i < ALONE; i++) {
    ncclResult_t res = NET_CALL(s, NET_ACCEPT, s->v->accept(s->job->table, c.listener, &c.comm));
    if (!NET_RULE(s, res == ncclSuccess,
                  "accept: returns %d while nobody has come; it gives no connection and ncclSuccess", (int)res) ||
        !NET_RULE(s, c.comm == NULL, "accept: gives a connection, and nobody has come")) {
      break;
    }
  }
  net_close_listener(s, &c);
}

static void all_sizes(net_side *s)
{
  net_conn c;
  if (!open_one(s, &c, 0, net_plan_bytes(&kinds))) {
    return;
  }
  if (net_flow(s, &c, 1, &kinds) && net_meet(s, 1)) {
    finish(&c);
  }
}

// As many requests as the version allows, beside each other.
static void many(net_side *s)
{
  size_t sizes[MANY];
  net_conn c;
  const net_plan plan = {.sizes = sizes, .n = MANY};
  for (int i = 0; i < MANY; i++) {
    sizes[i] = (size_t)(i * 7919 % 5000);
  }
  if (open_one(s, &c, 0, net_plan_bytes(&plan)) && net_flow(s, &c, 1, &plan) && net_meet(s, 1)) {
    finish(&c);
  }
}

// Plugins that want no flush are never asked for one, and some refuse.
static void flushed(net_side *s)
{
  net_conn c;
  net_plan plan = kinds;
  plan.depth = s->v->requests / 2;
  plan.flush = true;
  if (!s->props.force_flush) {
    return;
  }
  if (!NET_RULE(s, s->v->has(s->job->table, TT_PNET_CAN_FLUSH),
                "iflush: is not set, and the device asks for it (forceFlush)")) {
    return;
  }
  if (open_one(s, &c, 0, net_plan_bytes(&plan)) && net_flow(s, &c, 1, &plan) && net_meet(s, 1)) {
    finish(&c);
  }
}

static void tagged(net_side *s)
{
  net_conn c;
  if (open_one(s, &c, 0, 1 << 16) && net_tags(s, &c) && net_meet(s, 1) && net_flow(s, &c, 1, &short_plan) &&
      net_meet(s, 2)) {
    finish(&c);
  }
}

// Several connections, begun together and used in turn.
static void several(net_side *s)
{
  net_conn c[NET_CONNECTIONS];
  int n = TT_MIN(s->props.max_comms < 1 ? 1 : s->props.max_comms, 4);
  if (!net_connect(s, c, 0, n)) {
    return;
  }
  for (int i = 0; i < n; i++) {
    if (!net_register(&c[i], net_plan_bytes(&kinds))) {
      return;
    }
  }
  if (net_flow(s, c, n, &kinds) && net_meet(s, 1)) {
    for (int i = 0; i < n; i++) {
      finish(&c[i]);
    }
  }
}

// ---- the end

// A sender has nothing more to do when its sends are done: what is on its way arrives all the same.
static void sender_first(net_side *s)
{
  static const size_t sizes[] = {100, 70000, 5, 4096};
  const net_plan plan = {.sizes = sizes, .n = TT_COUNT(sizes)};
  net_conn c;
  if (!open_one(s, &c, 0, net_plan_bytes(&plan)) || !net_meet(s, 1)) {
    return;
  }
  if (s->me == NET_RECEIVER) {
    nap(20);
  }
  if (net_flow(s, &c, 1, &plan)) {
    finish(&c);
  }
}

static void receiver_first(net_side *s)
{
  net_conn c;
  if (!open_one(s, &c, 0, net_plan_bytes(&short_plan)) || !net_flow(s, &c, 1, &short_plan) || !net_meet(s, 1)) {
    return;
  }
  if (s->me == NET_RECEIVER) {
    finish(&c);
  }
  if (net_meet(s, 2) && s->me == NET_SENDER) {
    finish(&c);
  }
}

// Begins as much as can be: one large message after the other.
static void begin_large(net_side *s, net_conn *c)
{
  void *data = c->memory, *request = NULL;
  size_t size = LARGE;
  int tag = 0;
  uint64_t since = pc_clock_ns();
  for (unsigned i = 0; i < s->v->requests / 2 && net_patient(s, since); i++) {
    ncclResult_t res =
        s->me == NET_SENDER ? net_send(c, data, size, tag, &request) : net_receive(c, 1, &data, &size, &tag, &request);
    if (res != ncclSuccess) {
      return;
    }
  }
}

// Connections are closed while requests are under way. Then their memory is the user's: a plugin that touches it is
// ended by the system.
static void under_way(net_side *s)
{
  net_conn c;
  if (!open_one(s, &c, 0, LARGE)) {
    return;
  }
  if (s->me == NET_RECEIVER) { // it waits for what nobody sends
    net_conn other = c;
    begin_large(s, &other);
  }
  if (!net_meet(s, 1)) {
    return;
  }
  if (s->me == NET_RECEIVER) {
    net_close(&c);
    mprotect(c.memory, c.size, PROT_NONE);
  }
  if (!net_meet(s, 2)) {
    return;
  }
  if (s->me == NET_SENDER) {
    begin_large(s, &c); // to nobody
    net_close(&c);
    mprotect(c.memory, c.size, PROT_NONE);
  }
  linger();
  net_meet(s, 3);
}

// ---- a peer that dies

static void learns(net_side *s, int got)
{
  pc_rule(
      s->job, got != 0,
      "test: says nothing for %d s after the peer's process was killed; an error tells the job, silence makes it wait",
      s->job->patience);
  pc_rule(s->job, got <= 0, "test: says that a message has come whose sender was killed before");
}

static void sender_dies(net_side *s)
{
  net_conn c;
  if (!open_one(s, &c, 0, LARGE) || !net_flow(s, &c, 1, &short_plan) || !net_meet(s, 1)) {
    return;
  }
  if (s->me == NET_SENDER) {
    raise(SIGKILL);
  }
  void *data = c.memory, *request = NULL;
  size_t size = LARGE;
  int tag = 0, sizes[TT_PNET_GROUP];
  uint64_t since = pc_clock_ns();
  ncclResult_t code = ncclSuccess;
  while (request == NULL && code == ncclSuccess && net_patient(s, since)) {
    code = net_receive(&c, 1, &data, &size, &tag, &request);
  }
  int got = code != ncclSuccess ? -1 : request == NULL ? 0 : net_await(s, request, sizes, &code);
  learns(s, got);
  finish(&c);
}

// Sends until somebody says that nobody is there.
static void receiver_dies(net_side *s)
{
  net_conn c;
  if (!open_one(s, &c, 0, LARGE) || !net_flow(s, &c, 1, &short_plan) || !net_meet(s, 1)) {
    return;
  }
  if (s->me == NET_RECEIVER) {
    raise(SIGKILL);
  }
  int sizes[TT_PNET_GROUP];
  uint64_t since = pc_clock_ns();
  ncclResult_t code = ncclSuccess;
  int got = 0;
  while (got >= 0 && net_patient(s, since)) {
    void *request = NULL;
    code = net_send(&c, c.memory, LARGE, 0, &request);
    got = code != ncclSuccess ? -1 : request == NULL ? 0 : net_await(s, request, sizes, &code);
  }
  learns(s, got < 0 ? got : 0);
  finish(&c);
}

// ---- again and again

static bool cycle(net_side *s, int number)
{
  net_conn c;
  atomic_store(&s->board->handles, 0);
  if (!net_meet(s, 3 * number + 1) || !open_one(s, &c, 0, net_plan_bytes(&short_plan)) ||
      !net_flow(s, &c, 1, &short_plan) || !net_meet(s, 3 * number + 2)) {
    return false;
  }
  finish(&c);
  return net_meet(s, 3 * number + 3);
}

static void again(net_side *s)
{
  pc_holdings before = {0};
  for (int i = 0; i < WARM + CYCLES; i++) {
    if (i == WARM) { // what is made once has been
      before = pc_holdings_now();
    }
    if (!cycle(s, i)) {
      return;
    }
  }
  pc_holdings after = pc_holdings_settled(&before, 1);
  const char *what = s->me == NET_SENDER ? "closeSend" : "closeRecv";
  int fds = after.descriptors - before.descriptors, threads = after.threads - before.threads;
  size_t memory = after.memory > before.memory ? after.memory - before.memory : 0;
  pc_rule(s->job, fds < CYCLES / 2, "%s: %d connections, one after the other, leave %d descriptors open", what, CYCLES,
          fds);
  pc_rule(s->job, threads < CYCLES / 2, "%s: %d connections, one after the other, leave %d threads", what, CYCLES,
          threads);
  pc_rule(s->job, memory < (size_t)CYCLES * LEAK, "%s: each connection leaves about %zu bytes behind", what,
          memory / CYCLES);
}

// ---- two threads

static void *one_thread(void *arg)
{
  net_conn *c = arg;
  if (net_flow(c->side, c, 1, &kinds)) {
    net_close(c);
  }
  return NULL;
}

// Different connections are independent: a thread for each.
static void threads(net_side *s)
{
  net_conn c[THREADS];
  pthread_t ids[THREADS];
  int begun = 0;
  if (!net_connect(s, c, 0, THREADS)) {
    return;
  }
  for (int i = 0; i < THREADS; i++) {
    if (!net_register(&c[i], net_plan_bytes(&kinds))) {
      return;
    }
  }
  s->quiet = true;
  for (; begun < THREADS && pthread_create(&ids[begun], NULL, one_thread, &c[begun]) == 0; begun++) {
  }
  for (int i = 0; i < begun; i++) {
    pthread_join(ids[i], NULL);
  }
  s->quiet = false;
  net_meet(s, 1);
  for (int i = 0; i < THREADS; i++) {
    net_free(&c[i]);
  }
}

const net_scene net_scenes[] = {
    {"nobody connects", alone, -1},
    {"messages of many sizes", all_sizes, -1},
    {"many messages under way", many, -1},
    {"messages that are flushed", flushed, -1},
    {"several buffers in one receive", tagged, -1},
    {"several connections", several, -1},
    {"two threads", threads, -1},
    {"the sender ends first", sender_first, -1},
    {"the receiver ends first", receiver_first, -1},
    {"closed with requests under way", under_way, -1},
    {"the sender's process is killed", sender_dies, NET_SENDER},
    {"the receiver's process is killed", receiver_dies, NET_RECEIVER},
    {"connections come and go", again, -1},
};
const int net_nscenes = (int)TT_COUNT(net_scenes);
