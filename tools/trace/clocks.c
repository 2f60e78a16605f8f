// clocks.c: all time lines on one clock. A message arrives after it was sent: each one bounds by how much two clocks
// differ, from above or from below.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace_tool.h"

enum {
  SEARCH = 40,  // steps of the search for a drift: to less than a billionth
  MOMENTS = 24, // of a job, at which rings are measured
  PASSES = 4    // to find out how far a message was from such a moment
};

#define DRIFT_MOST 200e-6 // two clocks run apart by so much at most

// One end of an arrow.
typedef struct end {
  const char *id;
  int clock;
  bool begins;
  double at;
} end;

// A message from one clock to another, with the time that each of them showed.
typedef struct hop {
  int from, to;
  double sent, came;
} hop;

typedef struct hops {
  hop *list;
  size_t n;
} hops;

// ---- which clocks there are

// Files of one machine have its clock, if they know by how much theirs is ahead of it; else the same text means the
// same clock.
static size_t name_length(const xt_trace *t)
{
  return t->knows_ahead ? strcspn(t->clock, " ") : strlen(t->clock);
}

double xt_job_shift(const xt_job *job, const xt_job *to)
{
  const xt_trace *a = &job->traces[0], *b = &to->traces[0];
  bool same = name_length(a) == name_length(b) && strncmp(a->clock, b->clock, name_length(a)) == 0;
  return same ? 0 : (a->skew + a->ahead) - (b->skew + b->ahead);
}

static int clock_of(const xt_job *job, const xt_trace *t)
{
  int i = 0;
  while (i < job->nclocks &&
         (job->clocks[i].length != name_length(t) || strncmp(job->clocks[i].name, t->clock, name_length(t)) != 0)) {
    i++;
  }
  return i;
}

static void name_clocks(xt_job *job)
{
  for (int i = 0; i < job->n; i++) {
    xt_trace *t = &job->traces[i];
    t->shift = -t->ahead; // 0 where it is not known
    t->at_clock = clock_of(job, t);
    if (t->at_clock == job->nclocks) {
      job->clocks[job->nclocks++] =
          (xt_clock){.name = t->clock,
                     .length = name_length(t),
                     .host = t->host,
                     .how = i == 0 ? XT_CLOCK_FIRST : XT_CLOCK_WALL,
                     .shift = (t->skew + t->ahead) - (job->traces[0].skew + job->traces[0].ahead)};
    }
  }
}

// ---- messages

static int by_id(const void *a, const void *b)
{
  const end *x = a, *y = b;
  int c = strcmp(x->id, y->id);
  return c != 0 ? c : (int)y->begins - (int)x->begins;
}

// Of the same sender's they are in order; moments of the job are taken from among those of one.
static int by_time(const void *a, const void *b)
{
  const hop *x = a, *y = b;
  int c = (x->from > y->from) - (x->from < y->from);
  return c != 0 ? c : (x->sent > y->sent) - (x->sent < y->sent);
}

static size_t collect_ends(const xt_job *job, end *out)
{
  size_t n = 0;
  for (int i = 0; i < job->n; i++) {
    const xt_trace *t = &job->traces[i];
    for (size_t k = 0; k < json_array_size(t->events); k++) {
      const json_t *e = json_array_get(t->events, k);
      bool begins = xt_is_phase(e, "s"), any = begins || xt_is_phase(e, "f");
      if (any && out != NULL) {
        double at = json_number_value(json_object_get(e, "ts")) + t->shift;
        out[n] = (end){json_string_value(json_object_get(e, "id")), t->at_clock, begins, at};
      }
      n += any;
    }
  }
  return n;
}

// Pairs the ends; what stays on one clock tells nothing.
static bool collect_hops(const xt_job *job, hops *out)
{
  size_t n = collect_ends(job, NULL);
  end *ends = malloc((n + 1) * sizeof *ends);
  *out = (hops){.list = malloc((n / 2 + 1) * sizeof *out->list)};
  if (ends == NULL || out->list == NULL) {
    free(ends);
    return false;
  }
  collect_ends(job, ends);
  qsort(ends, n, sizeof *ends, by_id);
  for (size_t i = 0; i + 1 < n; i++) {
    const end *s = &ends[i], *f = &ends[i + 1];
    if (s->begins && !f->begins && s->clock != f->clock && strcmp(s->id, f->id) == 0) {
      out->list[out->n++] = (hop){s->clock, f->clock, s->at, f->at};
    }
  }
  free(ends);
  qsort(out->list, out->n, sizeof *out->list, by_time);
  return true;
}

// ---- two clocks: the line between the bounds

// What the job's clock shows when this one shows `at`.
static double brought(const xt_clock *c, double at)
{
  return at + c->shift + c->drift * at;
}

// Of a clock: how much it is ahead of the job's, from above (messages that came to it) and from below.
typedef struct bound {
  double at, ahead;
  bool above;
} bound;

static bool is_known(const xt_clock *c)
{
  return c->how != XT_CLOCK_WALL;
}

// All bounds that messages between clock k and those that are known give. Returns how many; both[]: how many from below
// and above.
static size_t collect_bounds(const xt_job *job, const hops *h, int k, bound *out, size_t both[2])
{
  size_t n = 0;
  both[0] = both[1] = 0;
  for (size_t i = 0; i < h->n; i++) {
    const hop *m = &h->list[i];
    bool above = m->to == k;
    int other = above ? m->from : m->to;
    if ((above || m->from == k) && is_known(&job->clocks[other])) {
      double own = above ? m->came : m->sent, theirs = brought(&job->clocks[other], above ? m->sent : m->came);
      double error = job->clocks[other].error;
      out[n++] = (bound){own, own - theirs + (above ? error : -error), above};
      both[above]++;
    }
  }
  return n;
}

// Room between the bounds for a clock that drifts: 2 * error. *middle: how much it is ahead at time `zero`.
static double room(const bound *list, size_t n, double drift, double zero, double *middle)
{
  double above = INFINITY, below = -INFINITY;
  for (size_t i = 0; i < n; i++) {
    double ahead = list[i].ahead - drift * (list[i].at - zero);
    above = list[i].above ? fmin(above, ahead) : above;
    below = list[i].above ? below : fmax(below, ahead);
  }
  *middle = (above + below) / 2;
  return above - below;
}

// The drift that leaves most room; a drift has to gain such a share of what it moves the job's ends by, else it is
// taken for chance.
static double find_drift(const bound *list, size_t n, double zero, double share)
{
  double first = INFINITY, last = -INFINITY, middle, low = -DRIFT_MOST, high = DRIFT_MOST;
  for (size_t i = 0; i < n; i++) {
    first = fmin(first, list[i].at);
    last = fmax(last, list[i].at);
  }
  double price = (last - first) * share;
  for (int i = 0; i < SEARCH; i++) {
    double a = low + (high - low) / 3, b = high - (high - low) / 3;
    bool left = room(list, n, a, zero, &middle) - price * fabs(a) > room(list, n, b, zero, &middle) - price * fabs(b);
    *(left ? &high : &low) = left ? b : a;
  }
  double drift = (low + high) / 2;
  return room(list, n, drift, zero, &middle) - price * fabs(drift) > room(list, n, 0, zero, &middle) ? drift : 0;
}

// By how much the clock is ahead at `at`, at most (sign 1) or at least (-1), where it drifts so.
static double edge(const bound *list, size_t n, double drift, double at, int sign)
{
  double least = INFINITY;
  for (size_t i = 0; i < n; i++) {
    if (list[i].above == (sign > 0)) {
      least = fmin(least, sign * (list[i].ahead - drift * (list[i].at - at)));
    }
  }
  return sign * least;
}

// Where on the way from `good`, a drift that the bounds allow, to `limit` they begin to forbid it.
static double allowed(const bound *list, size_t n, double good, double limit)
{
  double zero = list[0].at, middle;
  if (room(list, n, limit, zero, &middle) >= 0) {
    return limit;
  }
  for (int i = 0; i < SEARCH; i++) {
    double half = (good + limit) / 2;
    *(room(list, n, half, zero, &middle) >= 0 ? &good : &limit) = half;
  }
  return limit;
}

// The same as edge, for all drifts from low to high.
static double reach(const bound *list, size_t n, double low, double high, double at, int sign)
{
  for (int i = 0; i < SEARCH; i++) {
    double a = low + (high - low) / 3, b = high - (high - low) / 3;
    bool left = sign * edge(list, n, a, at, sign) > sign * edge(list, n, b, at, sign);
    *(left ? &high : &low) = left ? b : a;
  }
  return edge(list, n, (low + high) / 2, at, sign);
}

// Takes the middle of the room. What it may be wrong by is the most that any line between the bounds is away from it
// while the clock's traces last; lines are farthest apart at an end. False: the bounds contradict each other.
static bool measure(xt_clock *c, const bound *list, size_t n)
{
  double zero = list[0].at, middle, drift = find_drift(list, n, zero, 3.0 / 4), best = find_drift(list, n, zero, 0);
  c->tried = true;
  if (room(list, n, best, zero, &middle) < 0) {
    return false;
  }
  drift = room(list, n, drift, zero, &middle) < 0 ? best : drift;
  room(list, n, drift, zero, &middle);
  double low = allowed(list, n, best, -DRIFT_MOST), high = allowed(list, n, best, DRIFT_MOST),
         ends[2] = {c->first, c->last};
  c->error = 0;
  for (int i = 0; i < 2; i++) {
    double ahead = middle + drift * (ends[i] - zero);
    c->error = fmax(c->error, reach(list, n, low, high, ends[i], 1) - ahead);
    c->error = fmax(c->error, ahead - reach(list, n, low, high, ends[i], -1));
  }
  c->shift = -middle + drift * zero;
  c->drift = -drift;
  c->how = XT_CLOCK_MEASURED;
  return true;
}

// Of the clocks that exchange messages both ways with known ones, the one with most. False: there is none that was not
// tried.
static bool measure_next(xt_job *job, const hops *h, bound *list)
{
  int best = -1;
  size_t most = 0, both[2];
  for (int k = 0; k < job->nclocks; k++) {
    size_t n = is_known(&job->clocks[k]) || job->clocks[k].tried ? 0 : collect_bounds(job, h, k, list, both);
    if (n > most && both[0] > 0 && both[1] > 0) {
      most = n;
      best = k;
    }
  }
  if (best >= 0) {
    size_t n = collect_bounds(job, h, best, list, both);
    measure(&job->clocks[best], list, n);
  }
  return best >= 0;
}

// ---- rings: messages go one way only, but come back in the end

// At a moment of the job (`at`, of the first clock) clock k is ahead of i by no more than between[i * n + k]: known
// clocks have the job's time, and stand at clock 0. How far a message was from that moment is known within `unsure`: so
// long the clocks may have drifted apart, or else for `span`.
typedef struct moment {
  size_t n;
  double at, unsure, span;
  double *rough; // of a clock: what brings it to the job's time, about
  double *between;
  double *there, *back; // clock k is ahead of the first by at most there[k], and at least -back[k]
} moment;

static bool moment_open(moment *m, size_t n)
{
  *m = (moment){.n = n, .rough = calloc(n, sizeof *m->rough), .between = malloc(n * n * sizeof *m->between)};
  m->there = malloc(n * sizeof *m->there);
  m->back = malloc(n * sizeof *m->back);
  return m->rough != NULL && m->between != NULL && m->there != NULL && m->back != NULL;
}

static void moment_close(moment *m)
{
  free(m->rough);
  free(m->between);
  free(m->there);
  free(m->back);
}

static void bound_between(const xt_job *job, const hops *h, moment *m)
{
  for (size_t i = 0; i < m->n * m->n; i++) {
    m->between[i] = INFINITY;
  }
  for (size_t i = 0; i < h->n; i++) {
    const hop *p = &h->list[i];
    const xt_clock *a = &job->clocks[p->from], *b = &job->clocks[p->to];
    double sent = is_known(a) ? brought(a, p->sent) : p->sent, came = is_known(b) ? brought(b, p->came) : p->came;
    size_t from = is_known(a) ? 0 : (size_t)p->from, to = is_known(b) ? 0 : (size_t)p->to;
    double apart = fmin(fabs(sent + m->rough[from] - m->at) * (1 + 2 * DRIFT_MOST) + m->unsure, m->span);
    double most = came - sent + DRIFT_MOST * apart + (is_known(a) ? a->error : 0) + (is_known(b) ? b->error : 0);
    if (from != to) {
      m->between[from * m->n + to] = fmin(m->between[from * m->n + to], most);
    }
  }
}

// The shortest ways from clock 0 to all, or from all to it. False: there is none, as a ring of messages came back
// before it was sent.
static bool shortest(const moment *m, bool there, double *out)
{
  bool changed = true;
  for (size_t i = 0; i < m->n; i++) {
    out[i] = i == 0 ? 0 : INFINITY;
  }
  for (size_t round = 0; changed && round <= m->n; round++) {
    changed = false;
    for (size_t i = 0; i < m->n * m->n; i++) {
      size_t from = there ? i / m->n : i % m->n, to = there ? i % m->n : i / m->n;
      if (out[from] + m->between[i] < out[to]) {
        out[to] = out[from] + m->between[i];
        changed = true;
      }
    }
  }
  return !changed;
}

// Bounds all clocks at the moment, and knows better from them where messages stand. False: the messages contradict each
// other.
static bool bound_ways(const xt_job *job, const hops *h, moment *m)
{
  bound_between(job, h, m);
  if (!shortest(m, true, m->there) || !shortest(m, false, m->back)) {
    return false;
  }
  m->unsure = 0;
  for (size_t k = 1; k < m->n; k++) {
    if (isfinite(m->there[k]) && isfinite(m->back[k])) {
      m->rough[k] = (m->back[k] - m->there[k]) / 2;
      m->unsure = fmax(m->unsure, (m->there[k] + m->back[k]) / 2);
    }
  }
  return true;
}

// First what holds for the whole job, whatever the moment; from there nearer and nearer to it.
static bool bound_moment(const xt_job *job, const hops *h, size_t at_hop, moment *m)
{
  m->unsure = INFINITY;
  bool good = bound_ways(job, h, m);
  const hop *p = &h->list[at_hop];
  const xt_clock *c = &job->clocks[p->from];
  m->at = is_known(c) ? brought(c, p->sent) : p->sent + m->rough[p->from];
  for (int pass = 1; good && pass < PASSES; pass++) {
    good = bound_ways(job, h, m);
  }
  return good;
}

// No two events of the job are farther apart: all its traces overlap, as its ranks begin together.
static double longest_span(const xt_job *job)
{
  double span = 0;
  for (int k = 0; k < job->nclocks; k++) {
    span = fmax(span, job->clocks[k].last - job->clocks[k].first);
  }
  return 2 * span;
}

// The messages of one sender, which stand in order: of those moments are taken.
static size_t count_first(const hops *h)
{
  size_t n = 0;
  while (n < h->n && h->list[n].from == h->list[0].from) {
    n++;
  }
  return n;
}

// All clocks from which there is a way to clock 0 and back; messages that contradict each other leave the wall clocks.
// False: no memory.
static bool measure_rings(xt_job *job, const hops *h)
{
  size_t n = (size_t)job->nclocks, first = count_first(h), moments = first < MOMENTS ? first : MOMENTS;
  moment m;
  bound *list = malloc((n * moments * 2 + 1) * sizeof *list);
  bool room_for_all = moment_open(&m, n) && list != NULL, good = room_for_all && moments > 0;
  m.span = longest_span(job);
  for (size_t i = 0; good && i < moments; i++) {
    good = bound_moment(job, h, moments == 1 ? 0 : i * (first - 1) / (moments - 1), &m);
    for (size_t k = 0; good && k < n; k++) {
      double ahead = (m.there[k] - m.back[k]) / 2, error = (m.there[k] + m.back[k]) / 2 * (1 + DRIFT_MOST);
      list[(k * moments + i) * 2] = (bound){m.at + ahead, ahead + error, true};
      list[(k * moments + i) * 2 + 1] = (bound){m.at + ahead, ahead - error, false};
    }
  }
  for (size_t k = 0; good && k < n; k++) {
    if (!is_known(&job->clocks[k]) && isfinite(m.there[k]) && isfinite(m.back[k])) {
      measure(&job->clocks[k], &list[k * moments * 2], moments * 2);
    }
  }
  moment_close(&m);
  free(list);
  return room_for_all;
}

// From when to when the traces of a clock last, as it shows it.
static void find_spans(xt_job *job)
{
  for (int k = 0; k < job->nclocks; k++) {
    job->clocks[k].first = INFINITY;
    job->clocks[k].last = -INFINITY;
  }
  for (int i = 0; i < job->n; i++) {
    const xt_trace *t = &job->traces[i];
    xt_clock *c = &job->clocks[t->at_clock];
    for (size_t k = 0; k < json_array_size(t->events); k++) {
      const json_t *e = json_array_get(t->events, k), *ts = json_object_get(e, "ts");
      if (ts != NULL) {
        double at = json_number_value(ts) + t->shift;
        c->first = fmin(c->first, at);
        c->last = fmax(c->last, at + json_number_value(json_object_get(e, "dur")));
      }
    }
  }
}

static bool any_unknown(const xt_job *job)
{
  for (int k = 0; k < job->nclocks; k++) {
    if (!is_known(&job->clocks[k])) {
      return true;
    }
  }
  return false;
}

bool xt_set_clocks(xt_job *job)
{
  hops h = {0};
  bound *list = NULL;
  job->clocks = calloc((size_t)job->n, sizeof *job->clocks);
  if (job->clocks == NULL) {
    return false;
  }
  name_clocks(job);
  find_spans(job);
  bool good = !any_unknown(job) || (collect_hops(job, &h) && (list = malloc((h.n + 1) * sizeof *list)) != NULL);
  while (good && any_unknown(job) && measure_next(job, &h, list)) {
  }
  good = good && (!any_unknown(job) || measure_rings(job, &h));
  for (int i = 0; i < job->n; i++) {
    xt_trace *t = &job->traces[i];
    const xt_clock *c = &job->clocks[t->at_clock];
    t->drift = c->drift;
    t->shift += c->shift + c->drift * t->shift;
  }
  free(h.list);
  free(list);
  return good;
}
