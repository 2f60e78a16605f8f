// lobby.c: the thread and the listening sockets behind the unique ids of a process. A rank's hello names the id
// (tt_hello.tag), whose root (root.c) takes the rank. All ids that listen on the same addresses share one lobby; an id
// of NCCL_COMM_ID, whose port is given, has its own. A lobby ends with its last id.
//
// A wake-up costs what there is to do: the thread goes to the ids whose connections are ready (an event set) or whose
// time has come (timers), and settles those alone.
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/util.h"
#include "bootstrap/bootstrap_priv.h"
#include "os/proc.h"
#include "os/random.h"
#include "os/shm.h"
#include "os/thread.h"

#define LEAVE_NS (2 * TT_NS_PER_S) // for an earlier root to leave the port of NCCL_COMM_ID

// A unique id. The thread alone removes it, and so may keep a pointer to it.
typedef struct id_entry {
  tt_span name, timer; // under `lobbies_lock`: in the lobby's sets; tt_key_name, and when something is due
  tt_key key;
  tt_root *root;
  bool is_closed; // no rank can join any more; counted out of lobby.nopen
} id_entry;

typedef struct lobby {
  // Under `lobbies_lock`.
  struct lobby *next;
  tt_span *names, *timers;
  int nopen; // ids that ranks can join
  // Never changed.
  bool fixed;          // of NCCL_COMM_ID: no other id may use it
  tt_addrs where;      // what was to be listened on
  uint64_t space;      // in which network name space
  uint64_t timeout_ns; // of unused ids; 0: none
  tt_root_shared shared;
  // Of the thread.
  tt_greeter door; // its addresses and listening sockets are there as long as the lobby is listed
  int ended;       // ids that are still counted in live_ids
  struct pollfd fds[1 + TT_GREET_POLL];
} lobby;

// One per process. The lock is held across forks, and so for a short while only: nothing is logged, opened or started
// under it. A forked child, which has none of the threads, begins anew, and closes its copies of the listening sockets
// and of the sets: when the parent ends, nothing shall listen any more.
static pthread_mutex_t lobbies_lock = PTHREAD_MUTEX_INITIALIZER;
static lobby *lobbies; // under the lock: those that listen
// Under the lock: a thread opens a shared one; one at a time, so that there is one for the same addresses.
static bool opening;
static int live_ids; // atomic

static void forget_lobbies(void)
{
  for (lobby *l = lobbies; l != NULL; l = l->next) {
    for (uint32_t i = 0; i < l->door.addrs.n; i++) {
      tt_sock_close(&l->door.fds[i]);
    }
    tt_fd_close(l->shared.events);
  }
  lobbies = NULL;
  opening = false;
  __atomic_store_n(&live_ids, 0, __ATOMIC_RELAXED);
}

__attribute__((constructor)) static void watch_lobby_forks(void)
{
  tt_proc_hold_at_fork(&lobbies_lock);
  static tt_fork_hook hook = {.fn = forget_lobbies};
  tt_proc_on_fork(&hook);
}

int tt_lobby_count(void)
{
  return __atomic_load_n(&live_ids, __ATOMIC_ACQUIRE);
}

static void list_lobby(lobby *l)
{
  pthread_mutex_lock(&lobbies_lock);
  l->next = lobbies;
  lobbies = l;
  pthread_mutex_unlock(&lobbies_lock);
}

// Under the lock.
static void unlist_lobby(lobby *l)
{
  lobby **p = &lobbies;
  while (*p != l) {
    p = &(*p)->next;
  }
  *p = l->next;
}

// ---- Ids

// The id of this name that a rank may still join; NULL: there is none. The thread.
static id_entry *find_id(lobby *l, uint64_t name)
{
  pthread_mutex_lock(&lobbies_lock);
  tt_span *s = tt_spans_same(l->names, name, 1);
  pthread_mutex_unlock(&lobbies_lock);
  id_entry *e = s == NULL ? NULL : TT_SPAN_OWNER(s, id_entry, name);
  return e == NULL || e->is_closed ? NULL : e;
}

static void key_of_hello(void *arg, const tt_hello *h, tt_key *key)
{
  const id_entry *e = find_id(arg, h->tag);
  if (e != NULL) {
    *key = e->key;
  }
}

// Under the lock, or before the lobby is listed. False without memory.
static bool add_id(lobby *l, const tt_id *in)
{
  uint64_t end_ns = l->timeout_ns == 0 ? 0 : tt_now_ns() + l->timeout_ns;
  id_entry *e = tt_calloc(1, sizeof(*e));
  tt_root *root = e == NULL ? NULL : tt_root_new(&l->shared, &e->key, end_ns, e);
  if (root == NULL) {
    tt_free(e);
    return false;
  }
  e->key = in->key;
  e->root = root;
  e->name = (tt_span){.start = tt_key_name(&in->key), .size = 1};
  tt_spans_add(&l->names, &e->name);
  tt_timer_set(&l->timers, &e->timer, end_ns);
  l->nopen++;
  __atomic_add_fetch(&live_ids, 1, __ATOMIC_RELAXED);
  return true;
}

static void free_id(lobby *l, id_entry *e)
{
  pthread_mutex_lock(&lobbies_lock);
  tt_spans_remove(&l->names, &e->name);
  tt_timer_set(&l->timers, &e->timer, 0);
  pthread_mutex_unlock(&lobbies_lock);
  tt_root_destroy(e->root);
  tt_free(e);
}

// No rank can join `e` any more. With the last such id the lobby stops listening: before the ranks have their answers,
// so that the next root of NCCL_COMM_ID finds the port free, and no rank of its communicator finds this one.
static void close_id(lobby *l, id_entry *e)
{
  e->is_closed = true;
  pthread_mutex_lock(&lobbies_lock);
  bool last = --l->nopen == 0;
  if (last) {
    unlist_lobby(l);
  }
  pthread_mutex_unlock(&lobbies_lock);
  if (last) {
    tt_greeter_close(&l->door, true);
  }
  tt_root_answer(e->root);
}

// After something has happened to `e`: lets its root answer once it is complete or has failed, and frees it at its end.
static void settle_id(lobby *l, id_entry *e)
{
  if (!e->is_closed && !tt_root_is_open(e->root)) {
    close_id(l, e);
  }
  if (tt_root_has_ended(e->root)) {
    free_id(l, e);
    l->ended++;
    return;
  }
  pthread_mutex_lock(&lobbies_lock);
  tt_timer_set(&l->timers, &e->timer, tt_root_wake_ns(e->root));
  pthread_mutex_unlock(&lobbies_lock);
}

// ---- The thread

static void let_ranks_in(lobby *l)
{
  tt_hello h;
  int fd = -1;
  while (tt_greeter_next(&l->door, &h, &fd)) {
    id_entry *e = find_id(l, h.tag);
    if (e != NULL) {
      if (fd >= 0) {
        tt_root_take(e->root, &h, fd);
      } else if ((h.kind & TT_HELLO_DIFFERS) != 0) {
        tt_root_refuse(e->root, &h);
      } else {
        tt_root_miss(e->root, &h);
      }
      settle_id(l, e);
    } else {
      tt_sock_close(&fd);
    }
  }
}

// Waits for the next thing to do, and returns the time at which that was due at the latest. An id that is added
// meanwhile does not end before an idle time has passed.
static uint64_t await_event(lobby *l)
{
  uint64_t wake_ns = l->timeout_ns == 0 ? 0 : tt_now_ns() + l->timeout_ns;
  pthread_mutex_lock(&lobbies_lock);
  const tt_span *first = tt_timer_first(l->timers);
  tt_wake_by(&wake_ns, first == NULL ? 0 : first->start);
  pthread_mutex_unlock(&lobbies_lock);
  size_t n = 1 + tt_greeter_poll(&l->door, l->fds + 1, &wake_ns);
  l->fds[0] = (struct pollfd){.fd = l->shared.events, .events = POLLIN};
  int e = tt_sock_poll(l->fds, n, &(tt_until){.deadline_ns = wake_ns});
  if (e < 0 && e != -ETIMEDOUT) {
    // The limit of open files is below `n` by now, or the kernel has no memory: not a busy loop.
    tt_sleep_ns(10 * TT_NS_PER_MS);
  }
  return wake_ns;
}

// The next id whose time has come, without its timer; NULL: there is none.
static id_entry *next_due(lobby *l, uint64_t now)
{
  pthread_mutex_lock(&lobbies_lock);
  tt_span *s = tt_timer_first(l->timers);
  id_entry *e = s == NULL || s->start > now ? NULL : TT_SPAN_OWNER(s, id_entry, timer);
  if (e != NULL) {
    tt_timer_set(&l->timers, &e->timer, 0);
  }
  pthread_mutex_unlock(&lobbies_lock);
  return e;
}

static void step_due(lobby *l, uint64_t wake_ns)
{
  uint64_t now = tt_now_ns();
  for (id_entry *e; (e = next_due(l, now)) != NULL;) {
    tt_root_step(e->root, wake_ns);
    settle_id(l, e);
  }
}

// One connection at a time: what it says may end others.
static void hear_ranks(lobby *l)
{
  void *line;
  for (int i = 0; i < TT_EVENTS_AT_ONCE && tt_events_take(l->shared.events, &line, 1) == 1; i++) {
    settle_id(l, tt_root_hear(line));
  }
}

// With its ids: those of a lobby whose thread has not begun.
static void destroy_lobby(lobby *l)
{
  for (tt_span *s; (s = l->names) != NULL; l->ended++) {
    free_id(l, TT_SPAN_OWNER(s, id_entry, name));
  }
  tt_greeter_close(&l->door, true);
  tt_fd_close(l->shared.events);
  int ended = l->ended;
  tt_free(l);
  __atomic_sub_fetch(&live_ids, ended, __ATOMIC_RELEASE);
}

static void *lobby_main(void *arg)
{
  lobby *l = arg;
  while (l->door.addrs.n > 0 || l->names != NULL) { // without a door no id is added
    __atomic_sub_fetch(&live_ids, l->ended, __ATOMIC_RELEASE);
    l->ended = 0;
    uint64_t wake_ns = await_event(l);
    step_due(l, wake_ns);
    hear_ranks(l);
    let_ranks_in(l);
  }
  destroy_lobby(l);
  return NULL;
}

// ---- Ids are added

// A root of the job's communicator before this one may be about to leave the port of NCCL_COMM_ID; one of this process
// may be late.
static int listen_patiently(lobby *l, const tt_id *in)
{
  tt_key unknown_key = {.is_public = false};
  uint64_t give_up = tt_now_ns() + (tt_lobby_count() > 0 ? 5 * LEAVE_NS : LEAVE_NS);
  tt_random(unknown_key.b, sizeof(unknown_key.b));
  for (;;) {
    int e = tt_greeter_open(&l->door, &in->root, &unknown_key, TT_HELLO_JOIN, -1);
    l->door.welcome.find = key_of_hello;
    l->door.welcome.arg = l;
    l->door.tells = true;
    if (e != -EADDRINUSE || (in->flags & TT_ID_FIXED) == 0 || tt_now_ns() > give_up) {
      return e;
    }
    tt_sleep_ns(20 * TT_NS_PER_MS);
  }
}

static ncclResult_t listen_failed(const tt_id *in, int e)
{
  char at[TT_ADDRS_TEXT];
  return tt_fail(ncclSystemError, "the bootstrap root cannot listen on %s: %s%s", tt_addrs_text(&in->root, at),
                 tt_sock_error_text(e),
                 (in->flags & TT_ID_FIXED) != 0 ? " (NCCL_COMM_ID must name a free port of the machine of rank 0)"
                                                : "");
}

static ncclResult_t no_memory_for_id(void)
{
  return tt_fail(ncclSystemError, "no memory for a unique id");
}

// A lobby for its first id, without its thread.
static ncclResult_t open_lobby(const tt_id *in, uint64_t space, lobby **out)
{
  lobby *l = tt_calloc(1, sizeof(*l));
  if (l == NULL) {
    return no_memory_for_id();
  }
  int64_t unused_s = tt_params_get()->id_timeout;
  l->timeout_ns = unused_s > 0 ? tt_span_ns(unused_s, TT_NS_PER_S) : 0;
  l->shared = (tt_root_shared){.door = &l->door, .events = -1, .file_limit = tt_sock_raise_file_limit()};
  l->where = in->root;
  l->space = space;
  l->fixed = (in->flags & TT_ID_FIXED) != 0;
  int e = tt_events_open(&l->shared.events);
  e = e == 0 ? listen_patiently(l, in) : e;
  if (e == 0 && add_id(l, in)) {
    *out = l;
    return ncclSuccess;
  }
  destroy_lobby(l);
  return e != 0 ? listen_failed(in, e) : no_memory_for_id();
}

// The same with its thread, which frees it.
static ncclResult_t start_lobby(const tt_id *in, uint64_t space, tt_addrs *bound)
{
  lobby *l = NULL;
  TT_TRY(open_lobby(in, space, &l));
  *bound = l->door.addrs;
  list_lobby(l);
  ncclResult_t res = tt_thread_start_detached("tutti root", lobby_main, l);
  if (res != ncclSuccess) {
    pthread_mutex_lock(&lobbies_lock);
    unlist_lobby(l);
    pthread_mutex_unlock(&lobbies_lock);
    destroy_lobby(l);
  }
  return res;
}

static bool same_places(const tt_addrs *a, const tt_addrs *b)
{
  bool same = a->n == b->n;
  for (uint32_t i = 0; same && i < a->n; i++) {
    same = tt_addr_same_ip(&a->a[i], &b->a[i]);
  }
  return same;
}

// Under the lock: the lobby that listens where `in` wants it, or NULL.
static lobby *find_lobby(const tt_id *in, uint64_t space)
{
  lobby *l = lobbies;
  while (l != NULL && (l->fixed || l->space != space || !same_places(&l->where, &in->root))) {
    l = l->next;
  }
  return l;
}

// Adds an id to the lobby that listens where it wants to, or opens that.
static ncclResult_t add_shared(const tt_id *in, tt_addrs *bound)
{
  uint64_t space = tt_proc_net_space();
  pthread_mutex_lock(&lobbies_lock);
  while (opening) {
    pthread_mutex_unlock(&lobbies_lock);
    tt_sleep_ns(TT_NS_PER_MS); // another thread opens one: a matter of a few system calls
    pthread_mutex_lock(&lobbies_lock);
  }
  lobby *l = find_lobby(in, space);
  bool added = l != NULL && add_id(l, in);
  *bound = l != NULL ? l->door.addrs : *bound;
  opening = l == NULL;
  pthread_mutex_unlock(&lobbies_lock);
  if (l != NULL) {
    return added ? ncclSuccess : no_memory_for_id();
  }
  ncclResult_t res = start_lobby(in, space, bound);
  pthread_mutex_lock(&lobbies_lock);
  opening = false;
  pthread_mutex_unlock(&lobbies_lock);
  return res;
}

ncclResult_t tt_lobby_add(const tt_id *in, tt_addrs *bound)
{
  char text[TT_ADDRS_TEXT];
  tt_addrs at = {.n = 0}; // not written to *bound, which may be in->root, while that is read
  TT_TRY((in->flags & TT_ID_FIXED) != 0 ? start_lobby(in, 0, &at) : add_shared(in, &at));
  tt_info(TT_BOOTSTRAP, "bootstrap root listens on %s", tt_addrs_text(&at, text));
  *bound = at;
  return ncclSuccess;
}
