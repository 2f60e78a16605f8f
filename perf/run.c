// The measuring loop of one thread.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "fail.h"
#include "job.h"
#include "system.h"
#include "tuning.h"
#include "types.h"

// Times of one series of iterations, in seconds.
typedef struct timing {
  double issue, total;
} timing;

static const perf_options *options(const perf_thread *t)
{
  return &t->job->o;
}

static void barrier(perf_thread *t)
{
  perf_monitor_begin(t->job->monitor, t->index, "the other ranks");
  perf_team_barrier(t->job->team, t->index);
  perf_monitor_end(t->job->monitor, t->index);
}

static double reduce(perf_thread *t, double value, perf_how how)
{
  perf_monitor_begin(t->job->monitor, t->index, "the other ranks");
  double all = perf_team_reduce(t->job->team, t->index, value, how);
  perf_monitor_end(t->job->monitor, t->index);
  return all;
}

static double seconds_since(uint64_t start)
{
  return (double)(perf_now() - start) * 1e-9;
}

// Waits for the thread's streams. An error of the communicator ends the job here.
static void complete(perf_thread *t)
{
  perf_monitor_begin(t->job->monitor, t->index, "its stream");
  for (int i = 0; i < options(t)->gpus; i++) {
    perf_rank *r = &t->ranks[i];
    ncclResult_t state;
    PERF_NCCL(perf_devices()->wait(r));
    PERF_NCCL(ncclCommGetAsyncError(r->comm, &state));
    PERF_NCCL(state);
  }
  perf_monitor_end(t->job->monitor, t->index);
}

// Iteration `iter` works on another part of the buffers than the one before: no help from caches.
static size_t shift_of(const perf_thread *t, const perf_case *c, int iter)
{
  size_t bytes = (c->send_count > c->recv_count ? c->send_count : c->recv_count) * c->elt;
  size_t steps = bytes ? options(t)->max_bytes / bytes : 1;
  return steps > 1 ? bytes * ((size_t)iter % steps) : 0;
}

static void issue_one(const perf_thread *t, const perf_rank *r, int iter)
{
  const perf_case *c = &r->c;
  size_t shift = shift_of(t, c, iter);
  perf_call call = {.c = c,
                    .send = perf_send_at(c, &r->buffers) + shift,
                    .recv = perf_recv_at(c, &r->buffers) + shift,
                    .op = (ncclRedOp_t)(c->op < PERF_BITAND ? c->op : (int)tuttiBitAnd + c->op - PERF_BITAND),
                    .comm = r->comm,
                    .stream = r->stream,
                    .device = r->device};
  if (c->op == PERF_MULSUM) {
    uint64_t scalar = perf_mulsum_scalar(c->type, c->rank);
    PERF_NCCL(ncclRedOpCreatePreMulSum(&call.op, &scalar, c->type, ncclScalarHostImmediate, r->comm));
  }
  PERF_NCCL(t->job->coll->run(&call));
  if (c->op == PERF_MULSUM) {
    PERF_NCCL(ncclRedOpDestroy(call.op, r->comm));
  }
}

static void issue(perf_thread *t, int iter)
{
  const perf_options *o = options(t);
  bool group = o->gpus > 1 && !t->job->coll->no_group;
  perf_monitor_begin(t->job->monitor, t->index, "the library to accept the operation");
  if (group) {
    PERF_NCCL(ncclGroupStart());
  }
  for (int i = 0; i < o->gpus; i++) {
    issue_one(t, &t->ranks[i], iter);
  }
  if (group) {
    PERF_NCCL(ncclGroupEnd());
  }
  perf_monitor_end(t->job->monitor, t->index);
  if (o->blocking == 1 || o->blocking == 2) {
    complete(t);
  }
  if (o->blocking == 1) {
    barrier(t);
  }
}

// One timed iteration: -m operations, in one group when there are several.
static void iterate(perf_thread *t, int iter)
{
  const perf_options *o = options(t);
  bool group = o->agg_iters > 1 && !t->job->coll->no_group;
  if (group) {
    PERF_NCCL(ncclGroupStart());
  }
  for (int i = 0; i < o->agg_iters; i++) {
    issue(t, iter * o->agg_iters + i);
  }
  if (group) {
    PERF_NCCL(ncclGroupEnd());
  }
}

// -I: with -z 3 every iteration has a mark before and one after it; otherwise the mark after one is the mark before the
// next.
static int event_count(const perf_options *o)
{
  return o->blocking == 3 ? 2 * o->iters : o->iters + 1;
}

static void make_events(perf_thread *t)
{
  for (int i = 0; i < options(t)->gpus; i++) {
    perf_rank *r = &t->ranks[i];
    int n = event_count(options(t));
    r->events = calloc((size_t)n, sizeof(*r->events));
    if (!r->events) {
      perf_die_saying(PERF_EXIT_INTERNAL, "-n %d: no memory for its events", options(t)->iters);
    }
    for (int e = 0; e < n; e++) {
      PERF_NCCL(perf_devices()->make_event(r, &r->events[e]));
    }
  }
}

static void destroy_events(perf_thread *t)
{
  for (int i = 0; i < options(t)->gpus; i++) {
    perf_rank *r = &t->ranks[i];
    for (int e = 0; e < event_count(options(t)); e++) {
      PERF_NCCL(perf_devices()->destroy_event(r, r->events[e]));
    }
    free(r->events);
    r->events = NULL;
  }
}

static void record(perf_thread *t, int event)
{
  for (int i = 0; options(t)->per_iter && i < options(t)->gpus; i++) {
    PERF_NCCL(perf_devices()->record(&t->ranks[i], t->ranks[i].events[event]));
  }
}

// -z 3: the barrier after each iteration is not part of the time.
static timing time_with_barriers(perf_thread *t)
{
  double sum = 0;
  for (int iter = 0; iter < options(t)->iters; iter++) {
    uint64_t start = perf_now();
    record(t, 2 * iter);
    iterate(t, iter);
    complete(t);
    record(t, 2 * iter + 1);
    sum += seconds_since(start);
    barrier(t);
  }
  complete(t);
  return (timing){sum, sum};
}

// -G: what is issued between the two is captured, in a graph for each rank.
static void begin_capture(const perf_thread *t)
{
  for (int i = 0; options(t)->graph && i < options(t)->gpus; i++) {
    PERF_NCCL(perf_devices()->begin_capture(&t->ranks[i]));
  }
}

static void end_capture(perf_thread *t)
{
  for (int i = 0; options(t)->graph && i < options(t)->gpus; i++) {
    PERF_NCCL(perf_devices()->end_capture(&t->ranks[i]));
  }
}

static void launch_graphs(perf_thread *t, int launches)
{
  for (int l = 0; options(t)->graph && l < launches; l++) {
    for (int i = 0; i < options(t)->gpus; i++) {
      PERF_NCCL(perf_devices()->launch(&t->ranks[i]));
    }
  }
}

static void destroy_graphs(perf_thread *t)
{
  for (int i = 0; options(t)->graph && i < options(t)->gpus; i++) {
    PERF_NCCL(perf_devices()->destroy_graph(&t->ranks[i]));
  }
}

static timing time_graph(perf_thread *t)
{
  timing out;
  begin_capture(t);
  for (int iter = 0; iter < options(t)->iters; iter++) {
    iterate(t, iter);
  }
  end_capture(t);
  barrier(t);
  uint64_t start = perf_now();
  launch_graphs(t, options(t)->graph);
  out.issue = seconds_since(start) / options(t)->graph;
  complete(t);
  out.total = seconds_since(start) / options(t)->graph;
  destroy_graphs(t);
  return out;
}

static timing time_series(perf_thread *t)
{
  if (options(t)->blocking == 3) {
    return time_with_barriers(t);
  }
  if (options(t)->graph) {
    return time_graph(t);
  }
  timing out;
  uint64_t start = perf_now();
  for (int iter = 0; iter < options(t)->iters; iter++) {
    record(t, iter);
    iterate(t, iter);
  }
  record(t, options(t)->iters);
  out.issue = seconds_since(start);
  complete(t);
  out.total = seconds_since(start);
  return out;
}

static double event_seconds(const perf_options *o, const perf_rank *r, int iter)
{
  float ms;
  int first = o->blocking == 3 ? 2 * iter : iter;
  PERF_NCCL(perf_devices()->elapsed(r, &ms, r->events[first], r->events[first + 1]));
  return (double)ms * 1e-3 / o->agg_iters;
}

// Per-iteration times: the greatest over the ranks of the job.
static void iteration_times(perf_thread *t, perf_result *out)
{
  const perf_options *o = options(t);
  int procs = t->job->world.procs;
  out->times = calloc((size_t)o->iters, sizeof(double));
  out->rows = t->prints && procs > 1 ? calloc((size_t)o->iters * (size_t)procs, sizeof(double)) : NULL;
  bool ok = out->times && (out->rows || !(t->prints && procs > 1));
  for (int iter = 0; ok && iter < o->iters; iter++) {
    for (int i = 0; i < o->gpus; i++) {
      double s = event_seconds(o, &t->ranks[i], iter);
      out->times[iter] = s > out->times[iter] ? s : out->times[iter];
    }
  }
  destroy_events(t);
  if (ok) {
    perf_monitor_begin(t->job->monitor, t->index, "the other ranks");
    perf_team_greatest(t->job->team, t->index, out->times, o->iters, out->rows);
    perf_monitor_end(t->job->monitor, t->index);
    ok = perf_iter_statistics(out->times + o->per_iter_skip, o->iters - o->per_iter_skip, &out->stats);
  }
  if (!ok) {
    perf_die_saying(PERF_EXIT_INTERNAL, "-I: no memory for the times of %d iterations", o->iters);
  }
}

static void say_mismatch(const perf_thread *t, const perf_rank *r, const perf_mismatch *m)
{
  if (t->errors >= 8) {
    return;
  }
  const perf_case *c = &r->c;
  fprintf(stderr,
          "# rank %d of %d: %zu wrong (%s %s, count %zu, root %d, %s place): first at %s element %zd: got 0x%llx want "
          "0x%llx\n",
          c->rank, c->nranks, m->wrong, perf_type_name(c->type), perf_op_name(c->op), c->count, c->root,
          c->in_place ? "in" : "out of", m->where, (ssize_t)m->element, (unsigned long long)m->got,
          (unsigned long long)m->want);
}

static void fill(perf_thread *t, uint64_t rep)
{
  for (int i = 0; i < options(t)->gpus; i++) {
    const perf_rank *r = &t->ranks[i];
    perf_fill(t->job->coll, &r->c, r->pattern, &r->buffers, rep);
  }
}

static size_t check(perf_thread *t, uint64_t rep)
{
  size_t wrong = 0;
  for (int i = 0; i < options(t)->gpus; i++) {
    perf_rank *r = &t->ranks[i];
    perf_mismatch m;
    size_t n = perf_check(t->job->coll, &r->c, r->pattern, &r->buffers, rep, &m);
    if (n) {
      say_mismatch(t, r, &m);
    }
    wrong += n;
  }
  return wrong;
}

static int64_t check_repeatedly(perf_thread *t)
{
  int64_t all = 0;
  for (int i = 0; i < options(t)->check && all == 0; i++) {
    t->rep++;
    fill(t, t->rep);
    // No barrier: a peer that touches this rank's buffers before this rank has started is a bug to be found.
    begin_capture(t);
    issue(t, 0);
    end_capture(t);
    launch_graphs(t, 1);
    complete(t);
    destroy_graphs(t);
    size_t wrong = check(t, t->rep);
    t->errors += wrong != 0;
    all = (int64_t)reduce(t, (double)wrong, PERF_TOTAL);
  }
  return all;
}

static void bandwidths(perf_thread *t, double seconds, perf_result *out)
{
  const perf_coll *coll = t->job->coll;
  const perf_case *c = &t->ranks[0].c;
  size_t most = c->send_count > c->recv_count ? c->send_count : c->recv_count;
  out->alg_bw = (double)(most * c->elt) / 1e9 / seconds * (coll->alg_factor ? coll->alg_factor(c->nranks) : 1);
  out->bus_bw = out->alg_bw * (coll->bus_factor ? coll->bus_factor(c->nranks) : 1);
  if (t->index == 0) {
    t->job->bw_sum += out->bus_bw;
    t->job->bw_count++;
  }
  if (t->prints && coll->summary) {
    coll->summary(c, seconds);
  }
}

// In place, an operation without a defined result receives into what others still read: a race of the program, here as
// with NCCL's. A build that looks for races runs it out of place.
#if defined(__SANITIZE_THREAD__)
#define RACES_FORBIDDEN 1
#elif defined(__has_feature)
#define RACES_FORBIDDEN __has_feature(thread_sanitizer)
#else
#define RACES_FORBIDDEN 0
#endif

// The operation before the timed ones; with -U it shows how the library carries it out.
static void issue_untimed(perf_thread *t, perf_tuning *tuning)
{
  bool watch = tuning && t->prints && options(t)->tuning;
  if (watch) {
    perf_tuning_begin();
  }
  issue(t, 0);
  complete(t);
  if (watch) {
    perf_tuning_end(tuning);
  }
}

static void measure(perf_thread *t, bool in_place, perf_row *row)
{
  const perf_options *o = options(t);
  perf_result *out = &row->result[in_place];
  for (int i = 0; i < o->gpus; i++) {
    t->ranks[i].c.in_place = in_place && !(RACES_FORBIDDEN && t->job->coll->no_in_place);
  }
  if (o->check) {
    fill(t, 99);
  }
  issue_untimed(t, in_place ? NULL : &row->tuning);
  if (o->per_iter) {
    make_events(t);
  }
  barrier(t);
  timing time = time_series(t);
  if (o->per_iter) {
    iteration_times(t, out);
  }
  double operations = (double)o->iters * o->agg_iters;
  double seconds = reduce(t, time.total / operations, (perf_how)o->average);
  bandwidths(t, seconds, out);
  out->usec = (o->cputime ? time.issue / operations : seconds) * 1e6;
  barrier(t);
  out->wrong = check_repeatedly(t);
  out->checked = o->check && !(in_place && t->job->coll->no_in_place);
}

static void set_case(perf_thread *t, size_t size, const perf_case *like)
{
  for (int i = 0; i < options(t)->gpus; i++) {
    perf_rank *r = &t->ranks[i];
    r->c = *like;
    r->c.rank = r->rank;
    r->c.nranks = r->nranks;
    t->job->coll->counts(&r->c, size / like->elt);
  }
}

static void print_row(perf_thread *t, const perf_row *row)
{
  char line[1024], stamp[32];
  perf_job *j = t->job;
  perf_timestamp(stamp, sizeof(stamp));
  perf_report_row(&j->o, row, j->o.timestamps ? stamp : NULL, line, sizeof(line));
  perf_monitor_print(j->monitor, line);
  perf_json_row(j->json, &j->o, row, j->world.procs);
}

static void measure_size(perf_thread *t, size_t size, const perf_case *like)
{
  perf_job *j = t->job;
  set_case(t, size, like);
  if (t->prints) {
    perf_monitor_progress(j->monitor, j->steps_done++, j->steps_total, size);
  }
  const perf_case *c = &t->ranks[0].c;
  size_t most = c->send_count > c->recv_count ? c->send_count : c->recv_count;
  perf_row row = {.bytes = most * c->elt,
                  .count = c->count,
                  .type = perf_type_name(c->type),
                  .op = j->coll->redop ? j->coll->redop : perf_op_name(c->op),
                  .root = c->root};
  measure(t, false, &row);
  measure(t, true, &row);
  if (t->prints) {
    print_row(t, &row);
  }
  for (int i = 0; i < 2; i++) {
    free(row.result[i].times);
    free(row.result[i].rows);
  }
}

static void warm_up(perf_thread *t, const perf_case *like)
{
  const perf_options *o = options(t);
  for (size_t size = o->min_bytes; size <= o->max_bytes; size = size ? 2 * size : 1) {
    set_case(t, size, like);
    for (int iter = 0; iter < o->warmup_iters; iter++) {
      issue(t, iter);
    }
    complete(t);
  }
}

static void take_patterns(perf_thread *t, const perf_case *like)
{
  for (int i = 0; i < options(t)->gpus; i++) {
    perf_rank *r = &t->ranks[i];
    r->pattern = perf_pattern_acquire(t->job->patterns, like->type, like->op, r->nranks, r->rank);
    if (!r->pattern) {
      perf_die_saying(PERF_EXIT_INTERNAL, "no memory for the reference data of %d ranks", r->nranks);
    }
    r->buffers.send = r->send_memory + PERF_GUARD + (size_t)options(t)->unalign * like->elt;
    r->buffers.recv = r->recv_memory + PERF_GUARD + (size_t)options(t)->unalign * like->elt;
    if (perf_devices()->load && options(t)->check) {
      perf_devices()->load(r);
    }
  }
}

static void give_patterns_back(perf_thread *t)
{
  for (int i = 0; i < options(t)->gpus; i++) {
    if (t->ranks[i].tables) {
      perf_devices()->unload(&t->ranks[i]);
    }
    perf_pattern_release(t->job->patterns, t->ranks[i].pattern);
    t->ranks[i].pattern = NULL;
  }
}

// All cycles and sizes of one type, operation and root.
static void run_case(perf_thread *t, int type, int op, int root)
{
  const perf_options *o = options(t);
  perf_case like = {.root = root, .type = (ncclDataType_t)type, .elt = perf_type_info(type)->size, .op = op};
  barrier(t);
  take_patterns(t, &like);
  barrier(t); // making the tables takes a while
  warm_up(t, &like);
  for (int cycle = 0; o->cycles == 0 || cycle < o->cycles; cycle++) {
    size_t size = o->min_bytes;
    do {
      measure_size(t, size, &like);
      size = perf_next_size(o, size);
    } while (size);
  }
  give_patterns_back(t);
}

typedef struct range {
  int first, last;
} range;

static range chosen(int option, int count)
{
  return option == PERF_ALL ? (range){0, count - 1} : (range){option, option};
}

void perf_run_thread(perf_thread *t)
{
  const perf_options *o = options(t);
  const perf_coll *coll = t->job->coll;
  range types = chosen(o->type, PERF_TYPES);
  range ops = coll->redop ? (range){0, 0} : chosen(o->op, PERF_OPS);
  range roots = coll->rooted ? chosen(o->root, t->ranks[0].nranks) : (range){-1, -1};
  size_t cases = (size_t)(types.last - types.first + 1) * (size_t)(ops.last - ops.first + 1) *
                 (size_t)(roots.last - roots.first + 1);
  if (t->prints) {
    t->job->steps_total = cases * perf_size_count(o) * (size_t)o->cycles;
  }
  PERF_NCCL(perf_devices()->set(t->ranks[0].device));
  for (int type = types.first; type <= types.last; type++) {
    for (int op = ops.first; op <= ops.last; op++) {
      for (int root = roots.first; root <= roots.last; root++) {
        run_case(t, type, op, root);
      }
    }
  }
}
