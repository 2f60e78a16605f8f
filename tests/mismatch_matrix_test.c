// mismatch_matrix_test.c: every collective with every kind of mistake on one rank: is it named on every rank, with its
// class and its place, and is its right twin silent? No case may hang.
//
// A case is an operation and what one rank does otherwise; a variant is a case with 2 or 4 ranks, in a group, in a
// split's child, or with non-blocking communicators. Each variant makes the right calls first, then the wrong ones,
// then a sum, in which the ranks that needed nothing of the others learn of the mistake.
//   MISMATCH_ALL=1 build/tests/tests_mismatch_matrix_test   all variants; else MISMATCH_RUNS of them, 40 by default
//   MISMATCH_FIRST=123 MISMATCH_RUNS=1                      one, by the number that a failure prints
//   MISMATCH_WORD=GatherV                                   of the collectives with that in their names; other numbers
//   MISMATCH_JOBS=6                                         so many at a time; they mostly wait
//   NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1                   over the network
#include <sys/stat.h>

#include "harness.h"

enum { SMALL = 100, LARGE = 300000, MOST_RANKS = 4, TEXT = 640, BYTES = 8 * MOST_RANKS * (LARGE + 8) };

// Those with a V have blocks with lengths of their own (tutti.h).
typedef enum {
  BROADCAST,
  REDUCE,
  GATHER,
  SCATTER,
  GATHER_V,
  SCATTER_V,
  REDUCE_SCATTER,
  ALL_REDUCE,
  ALL_GATHER,
  ALL_TO_ALL,
  ALL_GATHER_V,
  REDUCE_SCATTER_V,
  ALL_TO_ALL_V,
  MESSAGES
} act;
#define COLLECTIVES MESSAGES

static const char *const act_names[] = {"Broadcast",  "Reduce",         "Gather",    "Scatter",   "GatherV",
                                        "ScatterV",   "ReduceScatter",  "AllReduce", "AllGather", "AlltoAll",
                                        "AllGatherV", "ReduceScatterV", "AlltoAllV", "Send/Recv"};

// What one rank does otherwise. From FAR_ORDER on, the ranks end up waiting for each other or for nobody's call.
typedef enum {
  COUNT,     // of a V: of one block
  FAR_COUNT, // of another size class
  ZERO,
  TYPE,
  WIDE_TYPE,
  MAX,
  PROD,
  AVG,
  ROOT,
  FUNCTION,
  ORDER, // of two calls
  SKIP,
  TWICE,
  MESSAGE, // where the others make a collective call
  LESS,    // of a message: it sends fewer bytes
  MORE,
  CLASS,        // of another size class
  COMMUNICATOR, // it calls in another one
  TWO,          // two communicators in opposite order
  TO,           // it sends to another rank
  FROM,
  NO_SEND,
  NO_RECEIVE,
  COLLECTIVE, // where the others exchange messages
  MISTAKES
} mistake;

static const char *const mistake_names[] = {"count",
                                            "far count",
                                            "zero count",
                                            "type",
                                            "wide type",
                                            "max",
                                            "prod",
                                            "avg",
                                            "root",
                                            "function",
                                            "order",
                                            "skip",
                                            "twice",
                                            "message",
                                            "fewer bytes",
                                            "more bytes",
                                            "far bytes",
                                            "communicator",
                                            "two communicators",
                                            "to",
                                            "from",
                                            "no send",
                                            "no receive",
                                            "collective"};

// The word for the class, of which one must be there.
static const char *const classes[MISTAKES][4] = {
    [COUNT] = {"by count"},
    [FAR_COUNT] = {"by count"},
    [ZERO] = {"different calls"},
    [TYPE] = {"by type"},
    [WIDE_TYPE] = {"by type"},
    [MAX] = {"by op"},
    [PROD] = {"by op"},
    [AVG] = {"by op"},
    [ROOT] = {"by root"},
    [FUNCTION] = {"by function"},
    [ORDER] = {"by function"},
    [SKIP] = {"different calls"},
    [TWICE] = {"different calls"},
    [MESSAGE] = {"different calls", "deadlock", "wait for each other"},
    [LESS] = {"by size"},
    [MORE] = {"by size"},
    [CLASS] = {"by size"},
    [COMMUNICATOR] = {"has queued its call behind", "has not called it", "different calls"},
    [TWO] = {"opposite order", "different calls"},
    [TO] = {"deadlock", "wait for each other", "different calls"},
    [FROM] = {"deadlock", "wait for each other", "different calls"},
    [NO_SEND] = {"deadlock", "wait for each other", "different calls"},
    [NO_RECEIVE] = {"deadlock", "wait for each other", "different calls"},
    [COLLECTIVE] = {"deadlock", "wait for each other", "different calls"},
};

typedef struct mistaken {
  act what, other;
  mistake how;
  size_t count;
} mistaken;

typedef enum { GROUPED, CHILD, NON_BLOCKING, FORMS } form;
static const char *const form_names[] = {"grouped", "split child", "non-blocking"};

typedef struct variant {
  const mistaken *c;
  int n, odd, root;
  form how;
} variant;

enum { MOST_CASES = 800 };
static mistaken cases[MOST_CASES];
static int ncases;

// What became of a variant on a rank.
typedef struct outcome {
  _Atomic bool there;
  int code;
  char text[TEXT], twin[96]; // twin: what was wrong with the right calls
} outcome;

static outcome (*outcomes)[MOST_RANKS]; // of each variant; all processes share them

// --- The cases

static void add_case(act what, mistake how, act other, size_t count)
{
  const char *word = getenv("MISMATCH_WORD");
  if (word != NULL && strstr(act_names[what], word) == NULL && strstr(act_names[other], word) == NULL) {
    return;
  }
  assert_true(ncases < MOST_CASES);
  cases[ncases++] = (mistaken){what, other, how, count};
}

static void add_cases_of(act what, size_t count)
{
  bool small = count == SMALL;
  bool sums = what == REDUCE || what == REDUCE_SCATTER || what == ALL_REDUCE || what == REDUCE_SCATTER_V;
  for (mistake how = COUNT; how <= COMMUNICATOR; how++) {
    bool one_size = how == FAR_COUNT || how == WIDE_TYPE || how == ZERO || how >= SKIP;
    bool applies = how >= MAX && how <= AVG      ? sums
                   : how == ROOT                 ? what <= SCATTER_V
                   : how == FUNCTION             ? false
                   : how == ORDER                ? false
                   : how >= LESS && how <= CLASS ? false
                                                 : true;
    if (applies && (small || !one_size)) {
      add_case(what, how, what, count);
    }
  }
  for (act other = 0; other < COLLECTIVES; other++) {
    if (other != what) {
      add_case(what, FUNCTION, other, count);
    }
    if (other > what && small) {
      add_case(what, ORDER, other, count);
    }
  }
  if (small && what >= REDUCE_SCATTER) { // of the others, small ones come to an end
    add_case(what, TWO, what, count);
  }
}

static void make_cases(void)
{
  for (act what = 0; what < COLLECTIVES; what++) {
    add_cases_of(what, SMALL);
    add_cases_of(what, LARGE);
  }
  for (mistake how = LESS; how < MISTAKES; how++) {
    if (how != COMMUNICATOR && how != TWO) {
      add_case(MESSAGES, how, ALL_REDUCE, how == NO_RECEIVE ? LARGE : SMALL);
      if (how == LESS || how == MORE || how >= TO) {
        add_case(MESSAGES, how, ALL_REDUCE, LARGE);
      }
    }
  }
}

static variant variant_at(int i)
{
  variant v = {.c = &cases[i % ncases], .n = i / ncases % 2 ? 4 : 2, .how = (form)(i / ncases / 2)};
  v.odd = i % v.n;
  v.root = i / 3 % v.n;
  return v;
}

static int variants(void)
{
  return ncases * 2 * FORMS;
}

// --- The calls

// One rank in one variant.
typedef struct player {
  const variant *v;
  int rank;
  ncclComm_t comm[2];
  cudaStream_t stream;
  char *in, *out;
} player;

// A call and its arguments. Of messages: whom to, whom from, and how many to each.
typedef struct deed {
  act what;
  size_t count, sent;
  int block; // the one that has another number of elements, `wrong`; -1: none has
  size_t wrong;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root, to, from;
} deed;

static ncclResult_t exchange(const deed *d, const player *p, ncclComm_t c)
{
  ncclResult_t res = ncclGroupStart();
  if (res == ncclSuccess && d->to >= 0) {
    res = ncclSend(p->in, d->sent, d->type, d->to, c, p->stream);
  }
  if (res == ncclSuccess && d->from >= 0) {
    res = ncclRecv(p->out, d->count, d->type, d->from, c, p->stream);
  }
  ncclResult_t end = ncclGroupEnd();
  return res != ncclSuccess ? res : end;
}

// The collectives whose blocks have lengths of their own.
static ncclResult_t act_out_blocks(const deed *d, const player *p, ncclComm_t c)
{
  size_t counts[MOST_RANKS], right[MOST_RANKS];
  for (int i = 0; i < MOST_RANKS; i++) {
    right[i] = d->count;
    counts[i] = i == d->block ? d->wrong : d->count;
  }
  const size_t own = counts[p->rank];
  switch (d->what) {
  case GATHER_V: return tuttiGatherV(p->in, own, p->out, counts, NULL, d->type, d->root, c, p->stream);
  case SCATTER_V: return tuttiScatterV(p->in, counts, NULL, p->out, own, d->type, d->root, c, p->stream);
  case ALL_GATHER_V: return tuttiAllGatherV(p->in, own, p->out, counts, NULL, d->type, c, p->stream);
  case REDUCE_SCATTER_V: return tuttiReduceScatterV(p->in, p->out, counts, d->type, d->op, c, p->stream);
  default: return tuttiAlltoAllV(p->in, right, NULL, p->out, counts, NULL, d->type, c, p->stream);
  }
}

static ncclResult_t act_out(const deed *d, const player *p, ncclComm_t c)
{
  const void *in = p->in;
  void *out = p->out;
  size_t n = d->count;
  switch (d->what) {
  case BROADCAST: return ncclBroadcast(in, out, n, d->type, d->root, c, p->stream);
  case REDUCE: return ncclReduce(in, out, n, d->type, d->op, d->root, c, p->stream);
  case GATHER: return ncclGather(in, out, n, d->type, d->root, c, p->stream);
  case SCATTER: return ncclScatter(in, out, n, d->type, d->root, c, p->stream);
  case REDUCE_SCATTER: return ncclReduceScatter(in, out, n, d->type, d->op, c, p->stream);
  case ALL_REDUCE: return ncclAllReduce(in, out, n, d->type, d->op, c, p->stream);
  case ALL_GATHER: return ncclAllGather(in, out, n, d->type, c, p->stream);
  case ALL_TO_ALL: return ncclAlltoAll(in, out, n, d->type, c, p->stream);
  case GATHER_V:
  case SCATTER_V:
  case ALL_GATHER_V:
  case REDUCE_SCATTER_V:
  case ALL_TO_ALL_V: return act_out_blocks(d, p, c);
  default: return exchange(d, p, c);
  }
}

// The call that is right.
static deed right_deed(const player *p)
{
  const variant *v = p->v;
  return (deed){.what = v->c->what,
                .count = v->c->count,
                .sent = v->c->count,
                .block = -1,
                .type = ncclFloat,
                .op = ncclSum,
                .root = v->root,
                .to = (p->rank + 1) % v->n,
                .from = (p->rank + v->n - 1) % v->n};
}

static bool has_blocks(act what)
{
  return what == GATHER_V || what == SCATTER_V || what == ALL_GATHER_V || what == REDUCE_SCATTER_V ||
         what == ALL_TO_ALL_V;
}

// Another number of elements. Where blocks have lengths of their own: of one block, which the odd rank shares with
// another one.
static void miscount(const player *p, size_t count, deed *d)
{
  bool rooted = d->what == GATHER_V || d->what == SCATTER_V;
  if (has_blocks(d->what)) {
    d->block = rooted && p->rank != d->root ? p->rank : (p->rank + 1) % p->v->n;
    d->wrong = count;
  } else {
    d->count = count;
  }
}

static deed wrong_deed(const player *p)
{
  const variant *v = p->v;
  deed d = right_deed(p);
  switch (v->c->how) {
  case COUNT: miscount(p, d.count + 1, &d); break;
  case FAR_COUNT: miscount(p, d.count * 1000, &d); break;
  case ZERO: miscount(p, 0, &d); break;
  case TYPE: d.type = ncclInt32; break;
  case WIDE_TYPE: d.type = ncclDouble; break;
  case MAX: d.op = ncclMax; break;
  case PROD: d.op = ncclProd; break;
  case AVG: d.op = ncclAvg; break;
  case ROOT: d.root = (d.root + 1) % v->n; break;
  case FUNCTION:
  case COLLECTIVE: d.what = v->c->other; break;
  case MESSAGE:
    d.what = MESSAGES;
    d.from = -1;
    break;
  case LESS: d.sent--; break;
  case MORE: d.sent++; break;
  case CLASS: d.sent *= 1000; break;
  case TO: d.to = (d.to + 1) % v->n; break;
  case FROM: d.from = (d.from + v->n - 1) % v->n; break;
  case NO_SEND: d.to = -1; break;
  case NO_RECEIVE: d.from = -1; break;
  default: break;
  }
  return d;
}

// The calls of a rank, right or wrong. Returns the first error of a call.
static ncclResult_t play_calls(const player *p, bool odd)
{
  const mistaken *c = p->v->c;
  deed d = odd ? wrong_deed(p) : right_deed(p), e = d;
  bool two = c->how == ORDER || c->how == TWO || (c->how == TWICE && odd);
  int first = (c->how == COMMUNICATOR || c->how == TWO) && odd;
  if (c->how == SKIP && odd) {
    return ncclSuccess;
  }
  d.what = c->how == ORDER && odd ? c->other : d.what;
  e.what = c->how == ORDER && !odd ? c->other : e.what;
  ncclResult_t res = act_out(&d, p, p->comm[first]);
  return res == ncclSuccess && two ? act_out(&e, p, p->comm[c->how == TWO ? !first : first]) : res;
}

// Runs the stream until the communicator reports an error, or nothing is left. ncclInProgress: not in so many seconds.
static ncclResult_t await_end(const player *p, double limit)
{
  ncclResult_t state = ncclSuccess;
  for (double end = seconds_now() + limit; seconds_now() < end; sleep_ms(0.5)) {
    ncclResult_t left = tuttiStreamQuery(p->stream);
    OK(ncclCommGetAsyncError(p->comm[0], &state));
    if ((state != ncclSuccess && state != ncclInProgress) || (left == ncclSuccess && state == ncclSuccess)) {
      return state;
    }
  }
  return ncclInProgress;
}

static void await_ready(ncclComm_t c)
{
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    OK(ncclCommGetAsyncError(c, &state));
    sleep_ms(0.2);
  }
  OK(state);
}

static void play_group(const player *p, bool odd)
{
  bool grouped = p->v->how == GROUPED;
  if (grouped) {
    OK(ncclGroupStart());
  }
  (void)play_calls(p, odd);
  if (grouped) {
    (void)ncclGroupEnd();
  }
}

static void open_player(player *p)
{
  const variant *v = p->v;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = v->how != NON_BLOCKING;
  if (p->rank == 0) {
    OK(ncclGetUniqueId(&the_board->ids[0]));
  }
  meet(v->n);
  OK(tuttiSetDevice(p->rank));
  ncclResult_t res = ncclCommInitRankConfig(&p->comm[0], v->n, the_board->ids[0], p->rank, &config);
  CHECK(res == ncclSuccess || res == ncclInProgress, "creation: %d", (int)res);
  await_ready(p->comm[0]);
  if (v->how == CHILD || v->c->how == TWO || v->c->how == COMMUNICATOR) {
    res = ncclCommSplit(p->comm[0], 0, p->rank, &p->comm[1], NULL);
    CHECK(res == ncclSuccess || res == ncclInProgress, "split: %d", (int)res);
    await_ready(p->comm[0]);
    await_ready(p->comm[1]);
  }
  if (v->how == CHILD) {
    ncclComm_t parent = p->comm[0];
    p->comm[0] = p->comm[1];
    p->comm[1] = parent;
  }
  OK(tuttiStreamCreate(&p->stream, TUTTI_STREAM_NON_BLOCKING));
}

static off_t said_so_far(void)
{
  struct stat s = {0};
  fflush(NULL);
  return fstat(STDERR_FILENO, &s) == 0 ? s.st_size : 0;
}

// One rank of one variant: the right calls, then the wrong ones.
static void play_variant(int number, int rank, char *memory)
{
  variant v = variant_at(number);
  player p = {.v = &v, .rank = rank, .in = memory, .out = memory + BYTES};
  outcome *o = &outcomes[number][rank];
  open_player(&p);
  meet(v.n);
  off_t before = said_so_far();
  play_group(&p, false);
  ncclResult_t twin = await_end(&p, GENEROUS(2));
  meet(v.n);
  if (twin != ncclSuccess) {
    snprintf(o->twin, sizeof o->twin, "error %d", (int)twin);
  } else {
    snprintf(o->twin, sizeof o->twin, "%s", said_so_far() != before ? "text" : "");
  }
  meet(v.n);
  play_group(&p, rank == v.odd);
  (void)ncclAllReduce(p.in, p.out, 7, ncclInt8, ncclMin, p.comm[0], p.stream);
  o->code = (int)await_end(&p, GENEROUS(1));
  if (o->code == ncclSuccess) {
    (void)ncclCommFinalize(p.comm[0]);
    o->code = (int)await_end(&p, GENEROUS(1));
  }
  snprintf(o->text, sizeof o->text, "%s", ncclGetLastError(p.comm[0]));
  atomic_store(&o->there, true);
  meet(v.n);
  for (int i = 0; i < 2; i++) {
    ncclResult_t res = p.comm[i] == NULL ? ncclSuccess : ncclCommAbort(p.comm[i]);
    CHECK(res == ncclSuccess || res == ncclInProgress, "abort: %d", (int)res);
  }
  OK(tuttiStreamDestroy(p.stream));
  meet(v.n);
}

// --- Runs

// Variants that one set of ranks plays, one after the other.
typedef struct series {
  int from, to, step, n;
  bool threads;
} series;

static void play_series(int rank, void *arg)
{
  const series *s = arg;
  char *memory = calloc(2, BYTES);
  CHECK(memory != NULL, "memory");
  for (int i = s->from; i < s->to; i += s->step) {
    if (variant_at(i).n == s->n) {
      play_variant(i, rank, memory);
    }
  }
  free(memory);
}

static void series_process(int process, void *arg)
{
  const series *s = arg;
  if (s->threads) {
    run_threads(s->n, play_series, arg);
  } else {
    play_series(process, arg);
  }
}

static bool is_over(int number)
{
  bool over = true;
  for (int i = 0; i < variant_at(number).n; i++) {
    over &= atomic_load(&outcomes[number][i].there);
  }
  return over;
}

// Plays the variants. Where a set of ranks ends early, the next one goes on behind.
static void play_all(series s)
{
  for (; s.from < s.to; s.from += s.step) {
    if (variant_at(s.from).n != s.n || is_over(s.from)) {
      continue;
    }
    ranks_set ranks;
    const char *const *env = ENV("NCCL_STALL_ERROR_MS=3500");
    run job = {.n = s.threads ? 1 : s.n, .seconds = 60, .fn = series_process, .arg = &s, .env = env};
    start_processes(&ranks, &job);
    (void)finish_processes(&ranks);
  }
}

// The values by which the calls differ, both of which must be named.
static void values_of(const variant *v, const char *words[3])
{
  static const char *const pairs[MISTAKES][2] = {[TYPE] = {"ncclFloat32", "ncclInt32"},
                                                 [WIDE_TYPE] = {"ncclFloat32", "ncclFloat64"},
                                                 [MAX] = {"op sum", "op max"},
                                                 [PROD] = {"op sum", "op prod"},
                                                 [AVG] = {"op sum", "op avg"}};
  const mistaken *c = v->c;
  words[0] = pairs[c->how][0];
  words[1] = pairs[c->how][1];
  if (c->how == COUNT || c->how == FAR_COUNT) {
    words[0] = c->count == SMALL ? "count 100" : "count 300000";
    words[1] = c->how == FAR_COUNT ? "count 100000" : c->count == SMALL ? "count 101" : "count 300001";
  } else if (c->how == FUNCTION || c->how == ORDER) {
    words[0] = act_names[c->what];
    words[1] = act_names[c->other];
  } else if (c->how >= LESS && c->how <= CLASS) {
    words[0] = words[1] = " bytes";
  }
}

// Does the text name the class, the rank that differs, and the values?
static bool call_is_named(const variant *v, const char *text)
{
  char odd[16];
  const char *words[3] = {NULL, NULL, NULL};
  bool class = false;
  snprintf(odd, sizeof odd, "rank %d", v->odd);
  values_of(v, words);
  for (int i = 0; i < 4 && classes[v->c->how][i] != NULL; i++) {
    class |= strstr(text, classes[v->c->how][i]) != NULL;
  }
  return class && strstr(text, odd) != NULL && has_words(text, words);
}

// What is wrong with a rank's outcome; NULL: nothing. A rank that needs nothing of the others ends well.
static const char *fault_of(const variant *v, const outcome *o)
{
  return !atomic_load(&o->there)                                ? "has ended early"
         : o->twin[0] != '\0'                                   ? "does not like the right calls"
         : o->code == ncclInProgress                            ? "hangs"
         : o->code != ncclSuccess && !call_is_named(v, o->text) ? "does not name it"
                                                                : NULL;
}

// Says what is wrong with a variant's outcomes. Returns whether nothing is.
static bool judge_variant(int number, const char *where)
{
  variant v = variant_at(number);
  int named = 0, good = 0;
  for (int i = 0; i < v.n; i++) {
    named += outcomes[number][i].code != ncclSuccess;
  }
  for (int i = 0; i < v.n; i++) {
    const outcome *o = &outcomes[number][i];
    const char *wrong = fault_of(&v, o);
    wrong = wrong == NULL && named == 0 ? "does not notice it" : wrong;
    good += wrong == NULL;
    if (wrong != NULL) {
      print_error("MISMATCH_FIRST=%d %s: %s %s (%s, %zu), %d ranks, %s, odd rank %d: rank %d %s: %d '%s' %s\n", number,
                  where, act_names[v.c->what], mistake_names[v.c->how], act_names[v.c->other], v.c->count, v.n,
                  form_names[v.how], v.odd, i, wrong, o->code, o->text, o->twin);
    }
  }
  return good == v.n;
}

static int number_of(const char *name, int otherwise)
{
  const char *text = getenv(name);
  return text != NULL ? atoi(text) : otherwise;
}

// The variants of this run: all, or some that are far apart.
static series chosen(void)
{
  int all = variants(), first = number_of("MISMATCH_FIRST", 0);
  int runs = getenv("MISMATCH_ALL") != NULL ? all : number_of("MISMATCH_RUNS", SLOWER > 1 ? 12 : 40);
  int step = all / (runs < 1 ? 1 : runs);
  return (series){.from = first, .to = runs == 1 ? first + 1 : all, .step = step < 1 ? 1 : step | 1};
}

static void play_matrix(bool threads)
{
  assert_true(ncases > 0); // MISMATCH_WORD stands in one
  series s = chosen();
  int jobs = number_of("MISMATCH_JOBS", 2), wrong = 0, played = 0, status;
  size_t bytes = (size_t)variants() * sizeof *outcomes;
  outcomes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(outcomes != MAP_FAILED);
  s.threads = threads;
  for (int i = 0; i < jobs; i++) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (s.n = 2; s.n <= MOST_RANKS; s.n += 2) {
        series part = {s.from + i * s.step, s.to, jobs * s.step, s.n, threads};
        play_all(part);
      }
      _exit(0);
    }
  }
  for (int i = 0; i < jobs; i++) {
    assert_true(wait(&status) > 0);
    assert_int_equal(status, 0);
  }
  for (int i = s.from; i < s.to; i += s.step, played++) {
    wrong += !judge_variant(i, threads ? "threads" : "processes");
  }
  print_message("%d of %d variants of %d cases: %d not named rightly\n", played, variants(), ncases, wrong);
  munmap(outcomes, bytes);
  assert_int_equal(wrong, 0);
}

static void mistakes_of_processes(void **state)
{
  (void)state;
  play_matrix(false);
}

static void mistakes_of_threads(void **state)
{
  (void)state;
  play_matrix(true);
}

int main(int argc, char **argv)
{
  make_cases();
  const struct CMUnitTest tests[] = {cmocka_unit_test(mistakes_of_processes), cmocka_unit_test(mistakes_of_threads)};
  return RUN_TESTS("mismatch_matrix", tests, argc, argv);
}
