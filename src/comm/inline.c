// inline.c: programs of small calls (device/program.h), run inside the call, by the calling thread.
#include "comm/inline.h"

#include "base/result.h"
#include "comm/comm.h"
#include "comm/decide.h"
#include "comm/task.h"

#define TOGETHER 64 // tasks of a group

// Waiting inside a call where cores are short (run_yielding).
#define MANY_PER_CORE 4 // ranks; with fewer the one that is waited for is likely to be at work on another core, so
#define LOOKS_FEW 30    // looks come before each yield, which takes ten times as long; with more none
#define FAILED_MOST 6   // after so many failures in a row, 2 to the power of that many calls do not try

// Is nothing of the communicator or the stream under way?
static inline bool nothing_queued(struct ncclComm *comm, cudaStream_t stream)
{
  comm->attempts.now = comm->port.shortcut->free_at(stream, comm->device, tt_flight_on(&comm->port.flight));
  return comm->attempts.now != 0 && atomic_load_explicit(&comm->port.done, memory_order_acquire) == comm->plans.issued;
}

// May the collective be run now, before everything that is queued later? Asked after nothing_queued: between the two
// the communicator may be stopped.
static inline bool may_run_inline(const tt_task *t)
{
  // Profilers watch plans; an all-to-all in place is copied first; since the call was added to its group the
  // communicator may have been stopped.
  return t->events == NULL && (t->func != TT_FUNC_ALLTOALL || t->in != t->out) &&
         tt_port_status(&t->comm->port) == ncclSuccess;
}

// With more ranks than cores a call is rarely over before its peers have had the core. A thread that waits for the
// stream after each call, as far as was seen, can as well wait inside the call: that saves the plan. After a failure,
// because peers came much later or other work has the core, some calls do not try. Looks by ready(arg), and returns its
// last answer.
static __attribute__((noinline)) bool run_yielding(struct ncclComm *comm, cudaStream_t stream, bool (*ready)(void *arg),
                                                   void *arg)
{
  if (!comm->port.shortcut->take_synchronized(stream, comm->device)) {
    return false;
  }
  if (comm->attempts.skip > 0) {
    comm->attempts.skip--;
    return false;
  }
  bool over = comm->port.shortcut->spin(stream, comm->device, ready, arg);
  comm->attempts.failed = over ? 0 : TT_MIN(comm->attempts.failed + 1, FAILED_MOST);
  comm->attempts.skip = over ? 0 : 1u << comm->attempts.failed;
  return over;
}

static inline unsigned looks_per_yield(const struct ncclComm *comm)
{
  return comm->machine.per_core < MANY_PER_CORE ? LOOKS_FEW : 0;
}

// May a call wait inside? Not where one rank of this process sums for all: the thread that has the core runs the plans
// of the others, too. With few ranks per core that takes less time than one more turn of each thread.
static inline bool may_yield(const struct ncclComm *comm, tt_func func)
{
  return comm->machine.per_core > 0 &&
         (func != TT_FUNC_ALLREDUCE || !comm->machine.all_local || comm->machine.per_core >= MANY_PER_CORE);
}

// Runs what can be run of a task that has a program. Returns whether nothing is left. `message`: it is one; peers that
// sleep are told by the caller.
static inline __attribute__((always_inline)) bool run_program_of(tt_task *t, unsigned looks, bool message)
{
  struct ncclComm *comm = t->comm;
  tt_decision *d = t->decision;
  tt_program *p = d->program;
  uint32_t seq = message ? 0 : tt_comm_next(comm);
  uint64_t sig = p->sig | (uint64_t)seq << 32;
  tt_page_show_at(comm->port.page, message ? 0 : tt_shown_at_number(seq), sig, p->call.sig_count);
  p->call.buffers[TT_IN] = (char *)t->in;
  p->call.buffers[TT_OUT] = t->out;
  p->call.sig = sig;
  p->call.silent = message;
  t->begun = d->used = true;
  t->over = tt_program_run(&comm->port, p, &p->call, looks, &t->state);
  if (!t->over) {
    return false;
  }
  if (!message) {
    __atomic_store_n(&comm->counts.sequence, seq, __ATOMIC_RELAXED);
    tt_comm_count(&comm->counts.calls[t->func]);
  }
  tt_flight_add(&comm->port.flight, t->kind, t->count, t->stream, comm->counts.sequence, comm->attempts.now);
  return true;
}

static bool run_again(void *arg)
{
  tt_task *t = arg;
  return run_program_of(t, looks_per_yield(t->comm), false);
}

bool tt_comm_run(tt_task *t, unsigned looks)
{
  struct ncclComm *comm = t->comm;
  if (tt_task_program(t) == NULL || !(t->begun || (nothing_queued(comm, t->stream) && may_run_inline(t)))) {
    return false;
  }
  return run_program_of(t, comm->machine.crowded ? 0 : looks, false) ||
         (TT_UNLIKELY(comm->machine.crowded) && looks > 0 && may_yield(comm, t->func) &&
          run_yielding(comm, t->stream, run_again, t));
}

// The task's program, which is decided if it is new. NULL: it has none; *res: or that has failed.
static __attribute__((noinline)) const tt_program *new_program(tt_task *t, ncclResult_t *res)
{
  if (t->count > 0 && !tt_task_is_decided(t)) {
    *res = tt_comm_decide(t->comm, t, 0);
  }
  return tt_task_program(t);
}

// Have they programs without asking a tuner, different communicators, and streams that do not order each other? *res:
// deciding one that is new has failed.
static bool are_apart(tt_task *tasks, size_t n, ncclResult_t *res)
{
  const void *queues[TOGETHER];
  for (size_t i = 0; i < n; i++) {
    tt_task *t = &tasks[i];
    if (t->func >= TT_FUNC_SEND || t->comm->tuned ||
        (TT_UNLIKELY(tt_task_program(t) == NULL) && new_program(t, res) == NULL)) {
      return false;
    }
    queues[i] = t->comm->port.shortcut->queue(t->stream, t->comm->device);
    if (queues[i] == NULL) {
      return false;
    }
    for (size_t k = 0; k < i; k++) {
      if (tasks[k].comm == t->comm || queues[k] == queues[i]) {
        return false;
      }
    }
  }
  return true;
}

ncclResult_t tt_comm_run_together(tt_task *tasks, size_t n, bool *all)
{
  ncclResult_t res = ncclSuccess;
  size_t left = n;
  bool moved = n <= TOGETHER && tasks->comm != tasks[n - 1].comm && are_apart(tasks, n, &res);
  while (moved && left > 0) {
    moved = false;
    for (tt_task *t = tasks; t < tasks + n; t++) {
      tt_program_state before = t->state;
      if (!t->over) {
        bool over = tt_comm_run(t, 0);
        left -= over;
        moved |= over || memcmp(&before, &t->state, sizeof before) != 0;
      }
    }
  }
  *all = left == 0;
  return res;
}

// What peers that sleep have still to be told: that messages of these calls were sent or taken. A fence waits until
// what was published has reached the caches, so the messages of a group share one. Bells ring before a message is left
// to a plan, at the end of the group's messages, after RINGS_MESSAGES, and after a message that takes longer than a
// fence. So a sleeper is late by the looks at that many messages at most, each a microsecond or two.
enum { RINGS_MESSAGES = 8, RINGS_BYTES = 4096 };

typedef struct pending_rings {
  const tt_program *programs[RINGS_MESSAGES]; // of messages in a row that are alike once
  int nprograms, messages;
} pending_rings;

static void ring_pending(struct ncclComm *comm, pending_rings *u)
{
  if (u->nprograms > 0) {
    tt_program_ring(&comm->port, u->programs, u->nprograms);
  }
  u->nprograms = u->messages = 0;
}

// Runs a message that has a program.
static inline bool run_message(tt_task *t, unsigned looks, pending_rings *u)
{
  const tt_program *q = t->decision->program;
  tt_program_state before = t->state;
  bool over = run_program_of(t, looks, true), moved = over || memcmp(&before, &t->state, sizeof before) != 0;
  if (moved && (u->nprograms == 0 || u->programs[u->nprograms - 1] != q)) {
    u->programs[u->nprograms++] = q;
  }
  if (!over || ++u->messages == RINGS_MESSAGES || tt_program_bytes(q) > RINGS_BYTES) {
    ring_pending(t->comm, u);
  }
  return over;
}

// Runs the group's messages of one direction as far as they can go at once, if they `may`: up to the first that cannot,
// because those of a pair keep their order. Returns how many are left.
static int run_direction(tt_task *tasks, size_t n, tt_func func, bool may, unsigned looks, pending_rings *u)
{
  int left = 0;
  for (tt_task *t = tasks; t < tasks + n; t++) {
    if (t->func == func && t->count > 0 && !t->over) {
      may = may && tt_task_program(t) != NULL && tt_port_status(&t->comm->port) == ncclSuccess &&
            run_message(t, looks, u);
      left += !may;
    }
  }
  return left;
}

// A group's messages, and how many of them are left.
typedef struct messages {
  tt_task *tasks;
  size_t n;
  unsigned directions; // 1 << TT_FUNC_SEND, 1 << TT_FUNC_RECV: there are such
  bool may;
  unsigned looks;
  int left;
} messages;

static bool run_messages(void *arg)
{
  messages *m = arg;
  pending_rings u;
  u.nprograms = u.messages = 0;
  m->left = 0;
  if (m->directions & 1u << TT_FUNC_SEND) { // first, because peers wait for them
    m->left += run_direction(m->tasks, m->n, TT_FUNC_SEND, m->may, m->looks, &u);
  }
  if (m->directions & 1u << TT_FUNC_RECV) {
    m->left += run_direction(m->tasks, m->n, TT_FUNC_RECV, m->may, m->looks, &u);
  }
  ring_pending(m->tasks->comm, &u);
  return m->left == 0;
}

ncclResult_t tt_comm_run_messages(tt_task *tasks, size_t n, unsigned looks, int *left)
{
  struct ncclComm *comm = tasks->comm;
  const tt_task *first = NULL;
  unsigned directions = 0;
  bool alike = true; // on one stream, and profilers watch none
  for (tt_task *t = tasks; t < tasks + n; t++) {
    if (tt_func_is_message(t->func) && t->count > 0) {
      first = first == NULL ? t : first;
      directions |= 1u << t->func;
      alike = alike && t->stream == first->stream && t->events == NULL;
      if (TT_UNLIKELY(!tt_task_is_decided(t))) {
        // Before any is run: a program that goes for another one's has no peer to be told of.
        TT_TRY(tt_comm_decide(comm, t, 0));
      }
    }
  }
  messages m = {.tasks = tasks, .n = n, .directions = directions, .looks = comm->machine.crowded ? 0 : looks};
  m.may = first != NULL && alike && comm->port.shortcut != NULL && nothing_queued(comm, first->stream);
  if (!run_messages(&m) && m.may && looks > 0 && may_yield(comm, TT_FUNC_SEND)) {
    m.looks = looks_per_yield(comm);
    run_yielding(comm, first->stream, run_messages, &m);
  }
  *left = m.left;
  return ncclSuccess;
}

ncclResult_t tt_comm_run_failed(struct ncclComm *comm, const tt_task *tasks, size_t n, ncclResult_t res)
{
  for (size_t i = 0; i < n; i++) {
    if (tasks[i].begun) {
      tt_port_stop(&comm->port, res);
    }
  }
  return res;
}
