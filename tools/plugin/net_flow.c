#include <string.h>

#include "base/util.h"
#include "net.h"

enum { SLACK = 64, FLUSH_EVERY = 4 }; // bytes that a buffer is larger than its message

// One connection's way through the plan.
typedef struct way {
  net_conn *c;
  int begun, done;
  void *requests[NCCL_NET_MAX_REQUESTS];
  char *next, *oldest; // memory of the next message, and of the oldest under way
} way;

static size_t room(size_t size)
{
  return TT_ROUND_UP(size + SLACK, (size_t)64);
}

size_t net_plan_bytes(const net_plan *plan)
{
  size_t sum = 0;
  for (int i = 0; i < plan->n; i++) {
    sum += room(plan->sizes[i]);
  }
  return sum;
}

// What the bytes of a message begin from.
static size_t mark_of(const net_conn *c, int message)
{
  return (size_t)c->number * 17 + (size_t)message * 131;
}

static unsigned char byte_of(size_t mark, size_t at)
{
  return (unsigned char)(mark + at * 7 + (at >> 8) * 13);
}

static void fill(const net_conn *c, const net_plan *plan)
{
  char *p = c->memory;
  memset(p, 0, c->size);
  for (int k = 0; k < plan->n; k++) {
    size_t size = plan->sizes[k], mark = mark_of(c, k);
    for (size_t i = 0; i < size; i++) {
      p[i] = (char)byte_of(mark, i);
    }
    p += room(size);
  }
}

// The first byte that is wrong; the message's size: none is.
static size_t first_wrong(const net_conn *c, int message, const char *data, size_t size)
{
  size_t i = 0, mark = mark_of(c, message);
  while (i < size && (unsigned char)data[i] == byte_of(mark, i)) {
    i++;
  }
  return i;
}

ncclResult_t net_send(net_conn *c, void *data, size_t size, int tag, void **request)
{
  net_side *s = c->side;
  void *mhandle = c->mhandle, *phandle = NULL;
  const tt_pnet_message m = {
      .n = 1, .data = &data, .sizes = &size, .tags = &tag, .mhandles = &mhandle, .phandles = &phandle};
  *request = NULL;
  return NET_CALL(s, NET_ISEND, s->v->isend(s->job->table, c->comm, &m, request));
}

ncclResult_t net_receive(net_conn *c, int n, void **data, const size_t *sizes, const int *tags, void **request)
{
  net_side *s = c->side;
  void *mhandles[TT_PNET_GROUP], *phandles[TT_PNET_GROUP] = {NULL};
  for (int i = 0; i < n; i++) {
    mhandles[i] = c->mhandle;
  }
  const tt_pnet_message m = {
      .n = n, .data = data, .sizes = sizes, .tags = tags, .mhandles = mhandles, .phandles = phandles};
  *request = NULL;
  return NET_CALL(s, NET_IRECV, s->v->irecv(s->job->table, c->comm, &m, request));
}

int net_await(net_side *s, void *request, int *sizes, ncclResult_t *code)
{
  int done = 0;
  uint64_t since = pc_clock_ns();
  *code = ncclSuccess;
  while (!done && *code == ncclSuccess && net_patient(s, since)) {
    *code = NET_CALL(s, NET_TEST, s->v->test(s->job->table, request, &done, sizes));
  }
  return *code != ncclSuccess ? -1 : done != 0;
}

// ---- a plan

static bool begin_next(way *w, const net_plan *plan, bool *moved)
{
  net_side *s = w->c->side;
  void *data = w->next, *request = NULL;
  size_t size = plan->sizes[w->begun], space = size + (s->me == NET_RECEIVER && size % 2 == 0 ? SLACK / 2 : 0);
  int tag = 0;
  ncclResult_t res = s->me == NET_SENDER ? net_send(w->c, data, size, tag, &request)
                                         : net_receive(w->c, 1, &data, &space, &tag, &request);
  if (!NET_RULE(s, res == ncclSuccess, "%s: returns %d for message %d of %d (%zu bytes)",
                s->me == NET_SENDER ? "isend" : "irecv", (int)res, w->begun, plan->n, size)) {
    return false;
  }
  if (request != NULL) {
    w->requests[w->begun++ % NCCL_NET_MAX_REQUESTS] = request;
    w->next += room(size);
    *moved = true;
  }
  return true;
}

static bool flush(way *w, size_t size)
{
  net_side *s = w->c->side;
  void *data = w->oldest, *mhandle = w->c->mhandle, *request = NULL;
  ncclResult_t code;
  const tt_pnet_message m = {.n = 1, .data = &data, .sizes = &size, .mhandles = &mhandle};
  ncclResult_t res = NET_CALL(s, NET_IFLUSH, s->v->iflush(s->job->table, w->c->comm, &m, &request));
  if (!NET_RULE(s, res == ncclSuccess, "iflush: returns %d for a message of %zu bytes", (int)res, size)) {
    return false;
  }
  int got = request == NULL ? 1 : net_await(s, request, NULL, &code);
  return NET_RULE(s, got == 1 || atomic_load(&s->board->over), "test: a flush %s",
                  got < 0 ? "ends with an error" : "is never done") &&
         got == 1;
}

// The oldest message has come, or gone.
static bool look_at(way *w, const net_plan *plan, int seen)
{
  net_side *s = w->c->side;
  size_t size = plan->sizes[w->done];
  if (s->me == NET_SENDER) {
    return true;
  }
  if (seen == NET_UNTOLD) {
    atomic_store(&s->board->untold, true);
  } else if (!NET_RULE(s, seen >= 0 && (size_t)seen == size, "test: reports %d bytes for a message of %zu", seen,
                       size)) {
    return false;
  }
  if (plan->flush && w->done % FLUSH_EVERY == 0 && !flush(w, size)) {
    return false;
  }
  size_t wrong = first_wrong(w->c, w->done, w->oldest, size);
  bool old = wrong < size && w->done > 0 && first_wrong(w->c, w->done - 1, w->oldest, size) == size;
  return NET_RULE(
      s, wrong == size,
      "message %d of connection %d (%zu bytes) is wrong from byte %zu on%s; messages arrive whole, and in order",
      w->done, w->c->number, size, wrong, old ? ": it is the one before" : "");
}

static bool test_oldest(way *w, const net_plan *plan, bool *moved)
{
  net_side *s = w->c->side;
  int done = 0, sizes[TT_PNET_GROUP];
  for (int i = 0; i < TT_PNET_GROUP; i++) {
    sizes[i] = NET_UNTOLD;
  }
  ncclResult_t res =
      NET_CALL(s, NET_TEST, s->v->test(s->job->table, w->requests[w->done % NCCL_NET_MAX_REQUESTS], &done, sizes));
  if (!NET_RULE(s, res == ncclSuccess, "test: returns %d for message %d of %d (%zu bytes)", (int)res, w->done, plan->n,
                plan->sizes[w->done])) {
    return false;
  }
  if (!done) {
    return true;
  }
  if (!look_at(w, plan, sizes[0])) {
    return false;
  }
  w->oldest += room(plan->sizes[w->done++]);
  *moved = true;
  return true;
}

static bool advance(way *w, const net_plan *plan, bool *moved)
{
  unsigned most = plan->depth != 0 ? plan->depth : w->c->side->v->requests;
  bool good = true;
  if (w->begun < plan->n && (unsigned)(w->begun - w->done) < most) {
    good = begin_next(w, plan, moved);
  }
  return good && (w->done == w->begun || test_oldest(w, plan, moved));
}

// What no message covers is as it was.
static bool look_between(way *w, const net_plan *plan)
{
  const char *p = w->c->memory;
  for (int k = 0; k < plan->n; k++) {
    size_t size = plan->sizes[k], whole = room(size);
    for (size_t i = size + SLACK / 2; i < whole; i++) {
      if (p[i] != 0) {
        return NET_RULE(w->c->side, false, "message %d (%zu bytes): something is written %zu bytes behind its buffer",
                        k, size, i - size);
      }
    }
    p += whole;
  }
  return true;
}

bool net_flow(net_side *s, net_conn *conns, int n, const net_plan *plan)
{
  way ways[NET_CONNECTIONS];
  for (int i = 0; i < n; i++) {
    ways[i] = (way){.c = &conns[i], .next = conns[i].memory, .oldest = conns[i].memory};
    if (s->me == NET_SENDER) {
      fill(&conns[i], plan);
    } else {
      memset(conns[i].memory, 0, conns[i].size);
    }
  }
  uint64_t since = pc_clock_ns();
  bool defers = plan->flush && s->me == NET_SENDER; // the receiver may be waiting for a flush, and is the one to tell
  for (int left = n; left > 0;) {
    bool moved = false;
    left = 0;
    for (int i = 0; i < n; i++) {
      if (!advance(&ways[i], plan, &moved)) {
        return false;
      }
      left += ways[i].done < plan->n;
    }
    since = moved ? pc_clock_ns() : since;
    if (!moved && !net_patient(s, since)) {
      if (defers) {
        defers = false;
        since = pc_clock_ns();
        continue;
      }
      return NET_RULE(s, false, "%s: nothing moves for %d s: %d of %d messages are begun, %d done",
                      s->me == NET_SENDER ? "isend" : "irecv", s->job->patience, ways[0].begun, plan->n, ways[0].done);
    }
  }
  for (int i = 0; i < n && s->me == NET_RECEIVER; i++) {
    if (!look_between(&ways[i], plan)) {
      return false;
    }
  }
  return true;
}

// ---- tags

enum { TAG = 100, PIECE = 1000 };

static size_t tagged_size(int i)
{
  return (size_t)(i * 37 % PIECE);
}

// The sender's part: the last tag first.
static bool send_tagged(net_conn *c, int n)
{
  net_side *s = c->side;
  void *requests[TT_PNET_GROUP];
  for (int i = 0; i < n; i++) {
    int which = n - 1 - i;
    char *data = c->memory + (size_t)which * PIECE;
    uint64_t since = pc_clock_ns();
    for (size_t k = 0; k < tagged_size(which + 1); k++) {
      data[k] = (char)byte_of(mark_of(c, which), k);
    }
    ncclResult_t res = ncclSuccess;
    for (requests[i] = NULL; requests[i] == NULL && res == ncclSuccess && net_patient(s, since);) {
      res = net_send(c, data, tagged_size(which + 1), TAG + which, &requests[i]);
    }
    if (!NET_RULE(s, res == ncclSuccess && requests[i] != NULL, "isend: %s for a message with tag %d",
                  res == ncclSuccess ? "gives no request" : "returns an error", TAG + which)) {
      return false;
    }
  }
  for (int i = 0; i < n; i++) {
    int sizes[TT_PNET_GROUP];
    ncclResult_t code;
    int got = net_await(s, requests[i], sizes, &code);
    if (atomic_load(&s->board->over) ||
        !NET_RULE(s, got == 1, "test: a send with tag %d %s", TAG + n - 1 - i, got < 0 ? "fails" : "is never done")) {
      return false;
    }
  }
  return true;
}

static bool receive_tagged(net_conn *c, int n)
{
  net_side *s = c->side;
  void *data[TT_PNET_GROUP], *request = NULL;
  size_t room_of[TT_PNET_GROUP];
  int tags[TT_PNET_GROUP], sizes[TT_PNET_GROUP];
  for (int i = 0; i < n; i++) {
    data[i] = c->memory + (size_t)i * PIECE;
    room_of[i] = PIECE;
    tags[i] = TAG + i;
    sizes[i] = NET_UNTOLD;
  }
  uint64_t since = pc_clock_ns();
  ncclResult_t res = ncclSuccess;
  while (request == NULL && res == ncclSuccess && net_patient(s, since)) {
    res = net_receive(c, n, data, room_of, tags, &request);
  }
  if (!NET_RULE(s, res == ncclSuccess && request != NULL, "irecv: returns %d and %s for %d buffers; maxRecvs says %d",
                (int)res, request == NULL ? "no request" : "a request", n, s->props.max_recvs)) {
    return false;
  }
  int got = net_await(s, request, sizes, &res);
  if (!NET_RULE(s, got == 1, "test: a receive of %d buffers %s", n, got < 0 ? "fails" : "is never done")) {
    return false;
  }
  for (int i = 0; i < n; i++) {
    size_t size = tagged_size(i + 1);
    if (!NET_RULE(s, sizes[i] == NET_UNTOLD || sizes[i] == (int)size,
                  "test: reports %d bytes for buffer %d of %d, for which %zu were sent", sizes[i], i, n, size) ||
        !NET_RULE(s, first_wrong(c, i, data[i], size) == size,
                  "irecv: buffer %d of %d has not what was sent with its tag", i, n)) {
      return false;
    }
  }
  return true;
}

bool net_tags(net_side *s, net_conn *c)
{
  int n = TT_CLAMP(s->props.max_recvs, 1, TT_PNET_GROUP);
  return s->me == NET_SENDER ? send_tagged(c, n) : receive_tagged(c, n);
}
