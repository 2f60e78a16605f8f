// events.c: from finished events to lines of the time line: tracks, operations, arrows. The plugin's thread alone.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "json.h"
#include "trace.h"

enum {
  LANES = 8,          // events of a track that run at the same time stand below each other
  TRACKS = 512,       // others share the last
  OPS = 1024,         // places for operations under way, at first
  OPS_MOST = 1 << 16, // and at most: a program may queue so many before the first one ends
  PROBES = 8,
  APART = 100000, // nanoseconds by which a time of the host's clock may lie outside of its event
  DRIFT = 5000,   // clocks run apart by a nanosecond in so many, at most
  SETTLED = 4,    // rounds after which no message of an operation is expected any more
  STRANGE = 200,  // rounds after which an operation that nobody has introduced is forgotten
  KIND_COLL = 1,
  KIND_P2P = 2,
  KIND_PROXY_OP = 3,
  KIND_PROXY_STEP = 4,
  KIND_KERNEL = 6,
  KIND_NET = 7,
  KIND_PHASE = 15
};

typedef enum {
  TRACK_CALLS = 1,
  TRACK_OPS,
  TRACK_CHANNEL,
  TRACK_PHASES,
  TRACK_PROXY,
  TRACK_MESSAGES,
  TRACK_NET
} track_kind;

typedef struct track {
  uint64_t key; // track_kind and two numbers
  uint64_t end[LANES];
  uint64_t arrived; // messages: when the last one came,
  uint64_t op;      // and its operation
  unsigned named;   // lanes that have a name in the file
} track;

struct tt_events {
  int ntracks, nops;
  int places, next; // of ops; the one that the next round looks at first
  uint64_t round;
  bool network;     // messages have been seen: operations may end after their channels
  bool foreign;     // channels have times of another clock, a GPU's,
  int64_t behind;   // which is so many nanoseconds behind the host's
  uint64_t learned; // as an event that was told then has shown; 0: none has
  track tracks[TRACKS];
  tt_op *ops;
};

struct tt_events *tt_events_create(void)
{
  struct tt_events *e = calloc(1, sizeof *e);
  if (e != NULL) {
    e->places = OPS;
    e->ops = calloc(OPS, sizeof *e->ops);
  }
  if (e != NULL && e->ops == NULL) {
    tt_events_destroy(e);
    return NULL;
  }
  return e;
}

void tt_events_destroy(struct tt_events *e)
{
  if (e != NULL) {
    free(e->ops);
    free(e);
  }
}

// ---- tracks

static track *track_of(struct tt_events *e, track_kind kind, uint32_t a, uint32_t b)
{
  uint64_t key = (uint64_t)kind << 56 | (uint64_t)(a & 0xffffff) << 32 | b;
  for (int i = 0; i < e->ntracks; i++) {
    if (e->tracks[i].key == key) {
      return &e->tracks[i];
    }
  }
  if (e->ntracks == TRACKS) {
    return &e->tracks[TRACKS - 1];
  }
  e->tracks[e->ntracks].key = key;
  return &e->tracks[e->ntracks++];
}

static void track_title(const track *t, int lane, char *out, size_t size)
{
  unsigned a = (unsigned)(t->key >> 32 & 0xffffff), b = (unsigned)t->key;
  int n = 0;
  switch ((track_kind)(t->key >> 56)) {
  case TRACK_CALLS: n = snprintf(out, size, "calls of thread %u", b); break;
  case TRACK_OPS: n = snprintf(out, size, "operations"); break;
  case TRACK_CHANNEL: n = snprintf(out, size, "channel %u", b); break;
  case TRACK_PHASES: n = snprintf(out, size, "phases of channel %u", b); break;
  case TRACK_PROXY: n = snprintf(out, size, "proxy: %s rank %u, channel %u", a & 1 ? "to" : "from", b, a >> 1); break;
  case TRACK_NET: n = snprintf(out, size, "network: %s rank %u, channel %u", a & 1 ? "to" : "from", b, a >> 1); break;
  case TRACK_MESSAGES:
    n = snprintf(out, size, "messages: %s rank %u, channel %u", a & 1 ? "to" : "from", b, a >> 1);
    break;
  }
  if (lane > 0 && n > 0 && (size_t)n < size) {
    snprintf(out + n, size - (size_t)n, " (%d)", lane + 1);
  }
}

static void name_lane(tt_context *c, track *t, int lane, int tid)
{
  char title[64];
  track_title(t, lane, title, sizeof title);
  t->named |= 1u << lane;
  for (int sort = 0; sort < 2; sort++) {
    char *p = tt_file_line(&c->file);
    p = tt_put(p, sort ? "{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":"
                       : "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":");
    p = tt_put_i64(p, c->rank);
    p = tt_put(p, ",\"tid\":");
    p = tt_put_i64(p, tid);
    p = tt_put(p, sort ? ",\"args\":{\"sort_index\":" : ",\"args\":{\"name\":\"");
    p = sort ? tt_put_u64(p, (t->key >> 56) * 100000 + (t->key & 0xfff) * 16 + (uint64_t)lane) : tt_put_text(p, title);
    p = tt_put(p, sort ? "}}" : "\"}}");
    tt_file_line_end(&c->file, p, false);
  }
}

// The thread id in the file for an event of this track; calls nest, everything else is put side by side.
static int lane_of(tt_context *c, track *t, uint64_t start, uint64_t stop)
{
  int lane = 0;
  bool nests = t->key >> 56 == TRACK_CALLS;
  while (!nests && lane < LANES - 1 && t->end[lane] > start) {
    lane++;
  }
  t->end[lane] = stop > t->end[lane] ? stop : t->end[lane];
  int tid = (int)(t - c->events->tracks) * LANES + lane + 1;
  if ((t->named >> lane & 1) == 0) {
    name_lane(c, t, lane, tid);
  }
  return tid;
}

// ---- lines

static char *put_slice(char *p, const tt_context *c, int tid, uint64_t start, uint64_t stop)
{
  p = tt_put(p, "\",\"ph\":\"X\",\"pid\":");
  p = tt_put_i64(p, c->rank);
  p = tt_put(p, ",\"tid\":");
  p = tt_put_i64(p, tid);
  p = tt_put(p, ",\"ts\":");
  p = tt_put_us(p, start);
  p = tt_put(p, ",\"dur\":");
  return tt_put_us(p, stop > start ? stop - start : 0);
}

// An arrow's end: `begins` at the sender. Both ends have the same id: communicator, kind, sender, receiver, channel,
// number.
typedef struct arrow {
  char kind; // 'm' message of a connection, 'p' send or receive
  bool begins;
  int from, to;
  unsigned channel;
  uint64_t number;
} arrow;

static void write_arrow(tt_context *c, const arrow *a, int tid, uint64_t at)
{
  char *p = tt_file_line(&c->file);
  p = tt_put(p, a->begins ? "{\"name\":\"message\",\"cat\":\"arrow\",\"ph\":\"s\",\"id\":\""
                          : "{\"name\":\"message\",\"cat\":\"arrow\",\"ph\":\"f\",\"bp\":\"e\",\"id\":\"");
  *p++ = a->kind;
  p = tt_put_hex(p, c->comm);
  const uint64_t parts[] = {(uint64_t)a->from, (uint64_t)a->to, a->channel, a->number};
  for (int i = 0; i < 4; i++) {
    *p++ = '.';
    p = tt_put_u64(p, parts[i]);
  }
  p = tt_put(p, "\",\"pid\":");
  p = tt_put_i64(p, c->rank);
  p = tt_put(p, ",\"tid\":");
  p = tt_put_i64(p, tid);
  p = tt_put(p, ",\"ts\":");
  p = tt_put_us(p, at);
  *p++ = '}';
  tt_file_line_end(&c->file, p, false);
}

static void write_op(tt_context *c, const tt_op *op)
{
  int tid = lane_of(c, track_of(c->events, TRACK_OPS, 0, 0), op->start, op->stop);
  char *p = tt_file_line(&c->file);
  p = tt_put(p, "{\"name\":\"");
  p = tt_put_text(p, op->func);
  p = tt_put(p, "\",\"cat\":\"op");
  p = put_slice(p, c, tid, op->start, op->stop);
  p = tt_put(p, ",\"args\":{\"bytes\":");
  p = tt_put_u64(p, op->bytes);
  p = tt_put(p, ",\"seq\":");
  p = tt_put_u64(p, op->seq);
  p = tt_put(p, op->kind == KIND_P2P ? ",\"peer\":" : ",\"root\":");
  p = tt_put_i64(p, op->peer);
  p = tt_put(p, ",\"type\":\"");
  p = tt_put_text(p, op->datatype);
  if (op->algo != NULL) {
    p = tt_put(p, "\",\"algo\":\"");
    p = tt_put_text(p, op->algo);
    p = tt_put(p, "\",\"proto\":\"");
    p = tt_put_text(p, op->proto);
  }
  if (op->variant != NULL) {
    p = tt_put(p, "\",\"variant\":\"");
    p = tt_put_text(p, op->variant);
  }
  p = tt_put(p, "\",\"channels\":");
  p = tt_put_u64(p, op->nchannels);
  if (op->tag != 0) {
    p = tt_put(p, ",\"tag\":\""); // as a text: readers of JSON have no numbers of 64 bits
    p = tt_put_u64(p, op->tag);
    *p++ = '"';
  }
  p = tt_put(p, op->symmetric ? ",\"symmetric\":1" : "");
  p = tt_put(p, ",\"ended\":");
  p = tt_put_u64(p, op->ended);
  p = tt_put(p, ",\"queued_us\":");
  p = tt_put_us(p, op->start > op->queued ? op->start - op->queued : 0);
  p = tt_put(p, ",\"id\":");
  p = tt_put_name(p, op->number);
  p = tt_put(p, "}}");
  tt_file_line_end(&c->file, p, true);
  if (op->kind == KIND_P2P && (op->send || tt_trace_is_recv(op->func))) { // a one-sided operation has no other end
    arrow a = {'p', op->send, op->send ? c->rank : op->peer, op->send ? op->peer : c->rank, 0, op->seq};
    write_arrow(c, &a, tid, op->send ? op->start : op->stop);
  }
}

static const char *const kind_names[] = {"Group",    "queue ",    "queue ",  "messages", "message", "ProxyCtrl",
                                         "channel ", "NetPlugin", "group",   "nccl",     "nccl",    "launch",
                                         "CeColl",   "CeSync",    "CeBatch", ""};
static const char *const kind_cats[] = {"queue", "queue", "queue", "proxy", "message", "proxy", "channel", "net",
                                        "call",  "call",  "call",  "call",  "call",    "call",  "call",    "phase"};

static track *track_for(tt_context *c, const tt_record *r)
{
  uint32_t way = (uint32_t)r->channel << 1 | r->send;
  switch (r->kind) {
  case KIND_PROXY_OP: return track_of(c->events, TRACK_PROXY, way, (uint32_t)r->peer);
  case KIND_PROXY_STEP: return track_of(c->events, TRACK_MESSAGES, way, (uint32_t)r->peer);
  case KIND_KERNEL: return track_of(c->events, TRACK_CHANNEL, 0, r->channel);
  case KIND_PHASE: return track_of(c->events, TRACK_PHASES, 0, r->channel);
  case KIND_NET:
    return r->peer >= 0 ? track_of(c->events, TRACK_NET, way, (uint32_t)r->peer)
                        : track_of(c->events, TRACK_CALLS, 0, r->thread);
  default: return track_of(c->events, TRACK_CALLS, 0, (uint32_t)r->thread);
  }
}

static char *put_step(char *p, const tt_record *r)
{
  static const char *const names[2][3] = {{",\"posted_us\":", ",\"came_us\":", ",\"shown_us\":"},
                                          {",\"looked_us\":", ",\"filled_us\":", ",\"sent_us\":"}};
  p = tt_put(p, ",\"number\":");
  p = tt_put_u64(p, r->seq);
  for (int i = 0; i < 3; i++) {
    if (r->mark[i] >= r->start) {
      p = tt_put(p, names[r->send][i]);
      p = tt_put_us(p, r->mark[i] - r->start);
    }
  }
  return p;
}

static char *put_args(char *p, const tt_record *r)
{
  p = tt_put(p, ",\"args\":{\"id\":");
  p = tt_put_name(p, r->number);
  p = tt_put(p, ",\"parent\":");
  p = tt_put_name(p, r->parent);
  if (r->kind == KIND_PROXY_OP || r->kind == KIND_PROXY_STEP) {
    p = tt_put(p, ",\"peer\":");
    p = tt_put_i64(p, r->peer);
    p = tt_put(p, ",\"channel\":");
    p = tt_put_u64(p, r->channel);
    p = tt_put(p, ",\"send\":");
    *p++ = (char)('0' + r->send);
  }
  if (r->kind == KIND_PROXY_OP) {
    p = tt_put(p, ",\"steps\":");
    p = tt_put_u64(p, r->nchannels);
    p = tt_put(p, ",\"pid\":");
    p = tt_put_u64(p, r->pid);
  }
  p = r->kind == KIND_PROXY_STEP ? put_step(p, r) : p;
  if (r->bytes != 0) {
    p = tt_put(p, ",\"bytes\":");
    p = tt_put_u64(p, r->bytes);
  }
  return tt_put(p, "}}");
}

// Has the event times of its own?
static bool is_timed(const tt_record *r)
{
  return r->kind == KIND_KERNEL || r->kind == KIND_PHASE;
}

static uint64_t start_of(const tt_record *r)
{
  return is_timed(r) && r->mark[0] != 0 ? r->mark[0] : r->start;
}

static uint64_t stop_of(const tt_record *r)
{
  return is_timed(r) && r->mark[1] != 0 ? r->mark[1] : r->stop;
}

// ---- the channels' clock

// An event was told after it had happened, so the other clock is behind by no more than that. What is known grows old,
// since clocks run apart.
static void clock_learn(struct tt_events *e, const tt_record *r)
{
  const uint64_t since = r->stop > e->learned ? r->stop - e->learned : 0;
  int64_t behind = (int64_t)(r->start - r->mark[0]);
  if (r->mark[1] != 0 && (int64_t)(r->stop - r->mark[1]) < behind) {
    behind = (int64_t)(r->stop - r->mark[1]);
  }
  const int64_t known = e->behind + (int64_t)(since / DRIFT);
  e->behind = e->learned == 0 || behind < known ? behind : known;
  e->learned = r->stop;
}

// Are these times the host's, of an event that cannot have begun before `least`?
static bool clock_is_ours(const tt_record *r, uint64_t least)
{
  return r->mark[0] + APART >= least && r->mark[0] <= r->start + APART && r->mark[1] <= r->stop + APART;
}

// Times of a channel or phase become the host's. `op`: its operation, NULL: not known.
static void clock_align(tt_context *c, tt_record *r, const tt_op *op)
{
  struct tt_events *e = c->events;
  if (!is_timed(r) || r->mark[0] == 0) {
    return;
  }
  e->foreign |= !clock_is_ours(r, op != NULL && op->queued != 0 ? op->queued : c->began);
  if (e->foreign) {
    clock_learn(e, r);
    r->mark[0] += (uint64_t)e->behind;
    r->mark[1] += r->mark[1] != 0 ? (uint64_t)e->behind : 0;
  }
}

static void write_record(tt_context *c, const tt_record *r, const tt_op *op)
{
  int tid = lane_of(c, track_for(c, r), start_of(r), stop_of(r));
  bool texts = r->kind != KIND_PROXY_OP && r->kind != KIND_PROXY_STEP && r->kind != KIND_NET;
  tt_record named = *r;
  named.number = tt_trace_number(c, r->number);
  char *p = tt_file_line(&c->file);
  p = tt_put(p, "{\"name\":\"");
  p = tt_put(p, r->kind == KIND_KERNEL && op != NULL && op->func != NULL ? "" : kind_names[r->kind]);
  p = tt_put_text(p, texts && r->func != NULL ? r->func : r->kind == KIND_KERNEL && op != NULL ? op->func : NULL);
  p = tt_put(p, "\",\"cat\":\"");
  p = tt_put(p, kind_cats[r->kind]);
  p = put_slice(p, c, tid, start_of(r), stop_of(r));
  p = put_args(p, &named);
  tt_file_line_end(&c->file, p, true);
  if (r->kind == KIND_PROXY_STEP && r->peer >= 0 && r->channel < TT_TRACE_CHANNELS) {
    arrow a = {'m', r->send, r->send ? c->rank : r->peer, r->send ? r->peer : c->rank, r->channel, r->seq};
    uint64_t at = r->mark[1]; // before the network has got it; when it is there: clocks are measured with these times
    write_arrow(c, &a, tid, at != 0 ? at : r->send ? r->start : r->stop);
  }
}

// ---- operations

// All its channels together cannot wait for longer than they run.
static void end_waits(tt_context *c, tt_op *op, bool count)
{
  uint64_t ns[TT_TRACE_PEERS] = {0};
  double most = (double)(op->stop > op->start ? op->stop - op->start : 0) * (op->nchannels > 0 ? op->nchannels : 1);
  for (int i = 0; i < TT_TRACE_PEERS && op->waits[i].first > 0; i++) {
    const tt_wait *w = &op->waits[i];
    ns[i] = w->waited + (w->came > w->first * op->start ? w->came - w->first * op->start : 0);
    op->waited += ns[i];
  }
  double share = (double)op->waited > most ? most / (double)op->waited : 1;
  for (int i = 0; i < TT_TRACE_PEERS && count && ns[i] > 0; i++) {
    tt_stats_wait(c->stats, op->waits[i].peer, (uint64_t)((double)ns[i] * share));
  }
  op->waited = (uint64_t)((double)op->waited * share);
}

// An operation starts with its first channel. Its proxies begin when it is queued: they tell its start only where no
// channel does.
static void end_op(tt_context *c, tt_op *op, bool write, bool count)
{
  op->start = op->start != 0 ? op->start : op->proxied;
  c->dropped += count && op->func != NULL && op->start == 0; // nothing has told when it ran
  if (op->func != NULL && op->start != 0) {
    end_waits(c, op, count);
    if (write) {
      write_op(c, op);
    }
    if (count && op->ended >= op->nchannels) {
      tt_stats_op(c->stats, op);
    }
  }
  op->number = 0;
  c->events->nops--;
}

// The place of this operation, or one where it might be: a free one, or the one that nobody has spoken of for the
// longest time.
static tt_op *place_of(tt_op *ops, int places, uint64_t number)
{
  tt_op *place = NULL;
  for (uint64_t i = 0; i < PROBES; i++) {
    tt_op *op = &ops[(number + i) % (uint64_t)places];
    if (op->number == number) {
      return op;
    }
    if (place == NULL || (place->number != 0 && (op->number == 0 || op->age < place->age))) {
      place = op;
    }
  }
  return place;
}

// Twice as many places, or more, so that each operation finds one. False: there are enough already, or there is no
// memory.
static bool grow(struct tt_events *e)
{
  for (int places = e->places * 2; places <= OPS_MOST; places *= 2) {
    tt_op *ops = calloc((size_t)places, sizeof *ops);
    bool good = ops != NULL;
    for (int i = 0; good && i < e->places; i++) {
      tt_op *place = e->ops[i].number != 0 ? place_of(ops, places, e->ops[i].number) : NULL;
      good = place == NULL || place->number == 0;
      if (place != NULL && good) {
        *place = e->ops[i];
      }
    }
    if (good) {
      free(e->ops);
      e->ops = ops;
      e->places = places;
      return true;
    }
    free(ops);
  }
  return false;
}

// The operation of this name, made if there is none; the one that nobody has spoken of for the longest time goes when
// there is no room.
static tt_op *op_of(tt_context *c, uint64_t number, bool write, bool count)
{
  struct tt_events *e = c->events;
  tt_op *place = place_of(e->ops, e->places, number);
  if (place->number == number) {
    place->age = e->round;
    return place;
  }
  while (place->number != 0 && grow(e)) {
    place = place_of(e->ops, e->places, number);
  }
  if (place->number != 0) {
    end_op(c, place, write, count);
  }
  e->nops++;
  *place = (tt_op){.number = number, .age = e->round};
  return place;
}

static void span(tt_op *op, uint64_t start, uint64_t stop)
{
  op->start = op->start == 0 || start < op->start ? start : op->start;
  op->stop = stop > op->stop ? stop : op->stop;
}

static void introduce(tt_op *op, const tt_record *r)
{
  op->func = r->func;
  op->algo = r->algo;
  op->proto = r->proto;
  op->datatype = r->datatype;
  op->bytes = r->bytes;
  op->seq = r->seq;
  op->queued = r->start;
  op->peer = r->peer;
  op->nchannels = r->nchannels;
  op->kind = r->kind;
  op->send = r->send;
  op->tag = r->mark[0];
  op->variant = (const char *)(uintptr_t)r->mark[1];
  op->symmetric = r->mark[2] != 0;
}

// Where waiting for a peer is counted. With all places taken, a peer's `first` message takes that of the peer whose
// messages came earliest, which was waited for least. NULL: the peer has no place.
static tt_wait *wait_of(tt_op *op, int32_t peer, bool first)
{
  tt_wait *place = NULL;
  for (int i = 0; i < TT_TRACE_PEERS; i++) {
    tt_wait *w = &op->waits[i];
    if (w->first > 0 && w->peer == peer) {
      return w;
    }
    bool better =
        place == NULL || (place->first > 0 && (w->first == 0 || w->came / w->first < place->came / place->first));
    place = better ? w : place;
  }
  if (!first) {
    return NULL;
  }
  *place = (tt_wait){.peer = peer};
  return place;
}

// Slots are posted ahead, also before the operation runs: what counts is the time in which it ran and nothing came.
static void count_wait(tt_context *c, tt_op *op, const tt_record *r)
{
  track *t = track_for(c, r);
  bool first = t->op != op->number;
  tt_wait *w = wait_of(op, r->peer, first);
  uint64_t from = r->start > t->arrived ? r->start : t->arrived;
  if (first) {
    w->first++;
    w->came += r->mark[1];
  } else if (w != NULL && r->mark[1] > from) {
    w->waited += r->mark[1] - from;
  }
  t->op = op->number;
  t->arrived = r->mark[1] > t->arrived ? r->mark[1] : t->arrived;
}

// What the event says of its operation; NULL: it has none, or one of another process.
static tt_op *tell_op(tt_context *c, tt_record *r, bool write, bool count)
{
  uint64_t number = r->kind == KIND_COLL || r->kind == KIND_P2P ? tt_trace_number(c, r->number) : r->parent;
  bool foreign = r->kind == KIND_PROXY_OP && r->pid != (uint64_t)c->pid;
  number = r->kind == KIND_PROXY_STEP ? r->op : number;
  if (number == 0 || foreign || r->kind < KIND_COLL || r->kind > KIND_KERNEL || r->kind == 5) {
    return NULL;
  }
  tt_op *op = op_of(c, number, write, count);
  if (r->kind == KIND_COLL || r->kind == KIND_P2P) {
    introduce(op, r);
  } else if (r->kind == KIND_KERNEL) {
    clock_align(c, r, op);
    span(op, start_of(r), stop_of(r));
    op->ended++;
  } else if (r->kind == KIND_PROXY_OP) {
    c->events->network = true;
    op->proxied = op->proxied == 0 || r->start < op->proxied ? r->start : op->proxied;
    op->stop = r->stop > op->stop ? r->stop : op->stop;
  } else if (!r->send && r->mark[1] != 0) {
    count_wait(c, op, r);
  }
  return op;
}

// ---- front door

void tt_events_see(tt_context *c, const tt_record *told, bool write, bool count)
{
  tt_record record = *told, *r = &record;
  tt_op *op = tell_op(c, r, write, count);
  if (op == NULL) {
    clock_align(c, r, NULL);
  }
  if (write) {
    write_record(c, r, op);
  }
  if (op != NULL && !c->events->network && op->func != NULL && op->nchannels > 0 && op->ended >= op->nchannels) {
    end_op(c, op, write, count);
  }
}

void tt_events_round(tt_context *c, bool last, bool count)
{
  struct tt_events *e = c->events;
  bool write = c->file.fd >= 0;
  e->round++;
  for (int i = 0; e->nops > 0 && i < (last ? e->places : OPS); i++) { // of many a part each time
    tt_op *op = &e->ops[e->next];
    e->next = (e->next + 1) % e->places;
    uint64_t rounds = e->round - op->age;
    bool complete = op->func != NULL && op->ended >= op->nchannels && op->nchannels > 0 && rounds > SETTLED;
    bool strange = op->func == NULL && rounds > STRANGE;
    if (op->number != 0 && (last || complete || strange)) {
      end_op(c, op, write, count);
    }
  }
}

// How much the process's clock is ahead of the machine's: not 0 in a time namespace, which containers may have. The
// kernel tells it of the namespace of children, which is another in a process that has asked for a new one.
static bool clock_ahead(const char *space, int64_t *out)
{
  char children[64] = "";
  long long seconds = 0, nanoseconds = 0;
  ssize_t n = readlink("/proc/self/ns/time_for_children", children, sizeof children - 1);
  FILE *f = n > 0 && strcmp(space, children) == 0 ? fopen("/proc/self/timens_offsets", "re") : NULL;
  bool good = f != NULL && fscanf(f, "monotonic %lld %lld", &seconds, &nanoseconds) == 2;
  if (f != NULL) {
    fclose(f);
  }
  *out = good ? seconds * 1000000000 + nanoseconds : 0;
  return good;
}

// Which clock time stamps are of: the same text, the same clock.
static void clock_name(tt_context *c, char *out, size_t size)
{
  char boot[64] = "", space[64] = "";
  FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
  if (f != NULL) {
    if (fgets(boot, sizeof boot, f) == NULL) {
      boot[0] = '\0';
    }
    fclose(f);
  }
  boot[strcspn(boot, "\n")] = '\0';
  ssize_t n = readlink("/proc/self/ns/time", space, sizeof space - 1);
  space[n > 0 ? n : 0] = '\0';
  c->knows_ahead = boot[0] != '\0' && clock_ahead(space, &c->ahead);
  if (boot[0] == '\0') {
    snprintf(boot, sizeof boot, "%s", c->host);
  }
  snprintf(out, size, "%s %s", boot, space);
}

void tt_events_begin(tt_context *c)
{
  char title[384];
  clock_name(c, c->clock, sizeof c->clock);
  snprintf(title, sizeof title, "rank %d%s%s (%s, pid %d)", c->rank, c->name[0] != '\0' ? " of " : "", c->name, c->host,
           (int)c->pid);
  for (int sort = 0; sort < 2; sort++) {
    char *p = tt_file_line(&c->file);
    p = tt_put(p, sort ? "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":"
                       : "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":");
    p = tt_put_i64(p, c->rank);
    p = tt_put(p, sort ? ",\"args\":{\"sort_index\":" : ",\"args\":{\"name\":\"");
    p = sort ? tt_put_i64(p, c->rank) : tt_put_text(p, title);
    p = tt_put(p, sort ? "}}" : "\"}}");
    tt_file_line_end(&c->file, p, false);
  }
}

// When this process was made, in the kernel's ticks since it started: with the number, it names a process for ever. 0:
// not known.
static uint64_t process_start(void)
{
  char text[1024] = "";
  unsigned long long ticks = 0;
  int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
  const char *at = n > 0 ? strrchr(text, ')') : NULL; // the name may have anything in it
  for (int field = 2; at != NULL && field < 22; field++) {
    at = strchr(at + 1, ' ');
  }
  if (at != NULL) {
    (void)sscanf(at, "%llu", &ticks);
  }
  if (fd >= 0) {
    close(fd);
  }
  return ticks;
}

void tt_events_footer(void *context, char *out, size_t size)
{
  tt_context *c = context;
  char texts[3][160], ahead[64] = "", behind[64] = "";
  *tt_put_text(texts[0], c->name) = '\0';
  *tt_put_text(texts[1], c->host) = '\0';
  *tt_put_text(texts[2], c->clock) = '\0';
  if (c->knows_ahead) {
    snprintf(ahead, sizeof ahead, ",\"clock_ahead_ns\":%lld", (long long)c->ahead);
  }
  if (c->events->foreign) {
    snprintf(behind, sizeof behind, ",\"channels_clock_behind_ns\":%lld", (long long)c->events->behind);
  }
  snprintf(out, size,
           "\n],\"displayTimeUnit\":\"ns\",\"otherData\":{\"tutti_trace\":1,\"rank\":%d,\"ranks\":%d,\"nodes\":%d,"
           "\"comm\":\"0x%016llx\","
           "\"name\":\"%s\",\"host\":\"%s\",\"pid\":%d,\"process_start\":%llu,\"clock\":\"%s\"%s%s,\"realtime_minus_"
           "monotonic_ns\":%llu,\"began_us\":%llu,"
           "\"finished\":%d,\"written\":%20llu,\"lost_ring_full\":%20llu,\"lost_disk\":%20llu,\"lost_operations\":%"
           "20llu,\"overwritten\":%20llu}}\n",
           c->rank, c->nranks, c->nnodes, (unsigned long long)c->comm, texts[0], texts[1], (int)c->pid,
           (unsigned long long)process_start(), texts[2], ahead, behind, (unsigned long long)c->skew,
           (unsigned long long)(c->began / 1000), c->finished, (unsigned long long)c->file.written,
           (unsigned long long)atomic_load(&c->ring.lost), (unsigned long long)c->file.unwritten,
           (unsigned long long)c->dropped, (unsigned long long)atomic_load(&c->ring.overwritten));
}
