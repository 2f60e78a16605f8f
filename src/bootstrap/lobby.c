// lobby.c: the thread and the listening sockets behind the unique ids of a process. A rank's hello names the id (tt_hello.tag); the first
// one turns an unused id, which is an entry in a list, into a root (root.c). All ids that listen on the same addresses share one lobby; an
// id of NCCL_COMM_ID, whose port is given, has its own. A lobby ends with its last id.
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
#include "os/thread.h"

#define LEAVE_NS (2 * TT_NS_PER_S) // for an earlier root to leave the port of NCCL_COMM_ID
enum { FIRST_ROOM = 8 };

// A unique id.
typedef struct {
  uint64_t name; // tt_key_name
  tt_key key;
  uint64_t end_ns;            // of an unused one; 0: none
  tt_root *root;              // NULL: unused
  const struct pollfd *lines; // of the root, where the last poll has listed them; NULL: there is nothing to be seen
} id_entry;

typedef struct {
  int n, room;
  id_entry *at;
} id_list;

typedef struct lobby {
  // Under `lobbies_lock`.
  struct lobby *next;
  bool opened; // it is listed, and the thread that opens it is done with it
  id_list unused;
  // Never changed.
  bool fixed;          // of NCCL_COMM_ID: no other id may use it
  tt_addrs where;      // what was to be listened on
  uint64_t space;      // in which network name space
  uint64_t timeout_ns; // of unused ids; 0: none
  uint64_t file_limit; // most descriptors of the process
  // Of the thread.
  tt_greeter door; // its addresses and listening sockets are there as long as the lobby is listed
  id_list begun;
  uint64_t spare_ns; // no unused id ends before; 0: at its time
  size_t fds_room;
  struct pollfd *fds;
} lobby;

// Really one per process. The lock is held across forks, and so for a short while only: nothing is logged, opened or started under it. A
// forked child, which has none of the threads, begins anew, and closes its copies of the listening sockets: when the parent ends, nothing
// shall listen any more.
static pthread_mutex_t lobbies_lock = PTHREAD_MUTEX_INITIALIZER;
static lobby *lobbies; // under the lock: those that listen
static bool opening;   // under the lock: a thread opens another one; one at a time, so that there is one for the same addresses
static int live_ids;   // atomic

static void forget_lobbies(void)
{
  for (lobby *l = lobbies; l != NULL; l = l->next) {
    for (uint32_t i = 0; i < l->door.addrs.n; i++) {
      tt_sock_close(&l->door.fds[i]);
    }
  }
  lobbies = NULL;
  opening = false;
  __atomic_store_n(&live_ids, 0, __ATOMIC_RELAXED);
}

__attribute__((constructor)) static void watch_forks(void)
{
  tt_proc_hold_at_fork(&lobbies_lock);
  tt_proc_on_fork(forget_lobbies);
}

int tt_lobby_count(void)
{
  return __atomic_load_n(&live_ids, __ATOMIC_ACQUIRE);
}

// ---- Lists of ids

// Room for one more; false without memory.
static bool reserve_entry(id_list *l)
{
  if (l->n < l->room) {
    return true;
  }
  int room = TT_MAX(FIRST_ROOM, 2 * l->room);
  id_entry *more = tt_calloc((size_t)room, sizeof(more[0]));
  if (more == NULL) {
    return false;
  }
  if (l->n > 0) {
    memcpy(more, l->at, (size_t)l->n * sizeof(more[0]));
  }
  tt_free(l->at);
  l->at = more;
  l->room = room;
  return true;
}

static id_entry *find_entry(const id_list *l, uint64_t name)
{
  for (int i = 0; i < l->n; i++) {
    if (l->at[i].name == name) {
      return &l->at[i];
    }
  }
  return NULL;
}

static void remove_entry(id_list *l, id_entry *e)
{
  *e = l->at[--l->n];
}

// The id of this name that a rank may still use, copied. False: there is none.
static bool find_id(lobby *l, uint64_t name, id_entry *out)
{
  const id_entry *e = find_entry(&l->begun, name);
  if (e != NULL) {
    *out = *e;
    return tt_root_is_open(e->root);
  }
  pthread_mutex_lock(&lobbies_lock);
  e = find_entry(&l->unused, name);
  if (e != NULL) {
    *out = *e;
  }
  pthread_mutex_unlock(&lobbies_lock);
  return e != NULL;
}

// ---- The thread

static void key_of_hello(void *arg, const tt_hello *h, tt_key *key)
{
  id_entry e;
  if (find_id(arg, h->tag, &e)) {
    *key = e.key;
  }
}

// Turns an unused id into a root. NULL without memory.
static tt_root *begin_root(lobby *l, id_entry *e)
{
  e->root = reserve_entry(&l->begun) ? tt_root_new(&l->door, &e->key, e->end_ns, l->file_limit) : NULL;
  if (e->root != NULL) {
    l->begun.at[l->begun.n++] = *e;
    pthread_mutex_lock(&lobbies_lock);
    remove_entry(&l->unused, find_entry(&l->unused, e->name));
    pthread_mutex_unlock(&lobbies_lock);
  }
  return e->root;
}

static void let_ranks_in(lobby *l)
{
  tt_hello h;
  int fd = -1;
  while (tt_greeter_next(&l->door, &h, &fd)) {
    id_entry e;
    if (find_id(l, h.tag, &e) && (e.root != NULL || begin_root(l, &e) != NULL)) {
      tt_root_take(e.root, &h, fd);
    } else {
      tt_sock_close(&fd); // no memory: it will try again
    }
  }
}

// When the next unused id ends, if none is added; 0: none does. An id that is added later does not end before an idle time has passed.
static uint64_t first_end(lobby *l)
{
  uint64_t first = l->timeout_ns == 0 ? 0 : tt_now_ns() + l->timeout_ns;
  pthread_mutex_lock(&lobbies_lock);
  for (int i = 0; i < l->unused.n; i++) {
    tt_wake_by(&first, l->unused.at[i].end_ns);
  }
  pthread_mutex_unlock(&lobbies_lock);
  return TT_MAX(first, l->spare_ns);
}

static bool reserve_lobby_fds(lobby *l)
{
  size_t n = TT_GREET_POLL;
  for (int i = 0; i < l->begun.n; i++) {
    n += tt_root_poll_room(l->begun.at[i].root);
  }
  if (n > l->fds_room) {
    tt_free(l->fds);
    l->fds = tt_calloc(2 * n, sizeof(l->fds[0]));
    l->fds_room = l->fds == NULL ? 0 : 2 * n;
  }
  return l->fds != NULL;
}

// Lists what to wait for; returns how many.
static size_t list_lobby_fds(lobby *l, uint64_t *wake_ns)
{
  size_t n = tt_greeter_poll(&l->door, l->fds, wake_ns);
  for (int i = 0; i < l->begun.n; i++) {
    id_entry *e = &l->begun.at[i];
    e->lines = l->fds + n;
    n += tt_root_poll(e->root, l->fds + n, wake_ns);
  }
  tt_wake_by(wake_ns, first_end(l));
  return n;
}

// Somebody has lowered the limit below what is open, or the kernel has no memory at the moment. Neither shall become a busy loop.
static void no_poll(lobby *l, size_t n, int e)
{
  for (int i = 0; i < l->begun.n; i++) {
    l->begun.at[i].lines = NULL;
    if (e == -EINVAL) {
      tt_root_starve(l->begun.at[i].root, n);
    }
  }
  tt_sleep_ns(10 * TT_NS_PER_MS);
}

// Waits for the next thing to do, and returns the time at which that was due at the latest.
static uint64_t await_event(lobby *l)
{
  tt_until until = {.deadline_ns = 0};
  if (!reserve_lobby_fds(l)) {
    no_poll(l, 0, -ENOMEM);
    return tt_now_ns();
  }
  size_t n = list_lobby_fds(l, &until.deadline_ns);
  int e = tt_sock_poll(l->fds, n, &until);
  if (e < 0 && e != -ETIMEDOUT) {
    no_poll(l, n, e);
  }
  return until.deadline_ns;
}

// Removes the unused ids whose time is over; returns how many. A lobby that was held up has not heard who came meanwhile: then they stay
// a little longer, once.
static int end_unused(lobby *l, uint64_t wake_ns)
{
  uint64_t now = tt_now_ns();
  int ended = 0;
  if (now < l->spare_ns) {
    return 0;
  }
  bool spare = l->spare_ns == 0 && wake_ns != 0 && now > wake_ns && now - wake_ns >= TT_HELD_UP_NS;
  l->spare_ns = spare ? now + TT_MIN(now - wake_ns, TT_SPARE_NS) : 0;
  pthread_mutex_lock(&lobbies_lock);
  for (int i = l->unused.n - 1; i >= 0 && !spare; i--) {
    id_entry *e = &l->unused.at[i];
    if (e->end_ns != 0 && now >= e->end_ns) {
      remove_entry(&l->unused, e);
      ended++;
    }
  }
  pthread_mutex_unlock(&lobbies_lock);
  if (ended > 0) {
    tt_info(TT_BOOTSTRAP | TT_INIT, "bootstrap: no rank has used %d unique ids in time (TUTTI_ID_TIMEOUT): they end", ended);
  }
  return ended;
}

static void unlist(lobby *l)
{
  for (lobby **p = &lobbies; *p != NULL; p = &(*p)->next) {
    if (*p == l) {
      *p = l->next;
      return;
    }
  }
}

// Stops to listen once nobody can join any more: before the ranks have their answers, so that the next root of NCCL_COMM_ID finds the port
// free, and no rank of its communicator finds this one.
static void shut_door(lobby *l)
{
  for (int i = 0; i < l->begun.n; i++) {
    if (tt_root_is_open(l->begun.at[i].root)) {
      return;
    }
  }
  pthread_mutex_lock(&lobbies_lock);
  bool idle = l->opened && l->unused.n == 0;
  if (idle) {
    unlist(l);
  }
  pthread_mutex_unlock(&lobbies_lock);
  if (idle) {
    tt_greeter_close(&l->door, true);
  }
}

// Answers the ranks of roots that are complete or have failed, and frees the roots that have ended. Returns how many.
static int end_roots(lobby *l)
{
  int ended = 0;
  for (int i = l->begun.n - 1; i >= 0; i--) {
    id_entry *e = &l->begun.at[i];
    if (!tt_root_is_open(e->root)) {
      tt_root_answer(e->root);
    }
    if (tt_root_has_ended(e->root)) {
      tt_root_destroy(e->root);
      remove_entry(&l->begun, e);
      ended++;
    }
  }
  return ended;
}

static void destroy_lobby(lobby *l)
{
  tt_greeter_close(&l->door, true);
  tt_free(l->unused.at);
  tt_free(l->begun.at);
  tt_free(l->fds);
  tt_free(l);
}

static void *attend(void *arg)
{
  lobby *l = arg;
  int ended = 0;
  do {
    __atomic_sub_fetch(&live_ids, ended, __ATOMIC_RELEASE);
    uint64_t wake_ns = await_event(l);
    for (int i = 0; i < l->begun.n; i++) {
      tt_root_step(l->begun.at[i].root, l->begun.at[i].lines, wake_ns);
    }
    let_ranks_in(l);
    ended = end_unused(l, wake_ns);
    if (l->door.addrs.n > 0) {
      shut_door(l);
    }
    ended += end_roots(l);
  } while (l->door.addrs.n > 0 || l->begun.n > 0);
  destroy_lobby(l);
  __atomic_sub_fetch(&live_ids, ended, __ATOMIC_RELEASE);
  return NULL;
}

// ---- Ids are added

// A root of the job's communicator before this one may be about to leave the port of NCCL_COMM_ID; one of this process may be late.
static int listen_patiently(lobby *l, const tt_id *in)
{
  tt_key nobodys = {.is_public = false};
  uint64_t give_up = tt_now_ns() + (tt_lobby_count() > 0 ? 5 * LEAVE_NS : LEAVE_NS);
  tt_random(nobodys.b, sizeof(nobodys.b));
  for (;;) {
    int e = tt_greeter_open(&l->door, &in->root, &nobodys, TT_HELLO_JOIN, -1);
    l->door.welcome.find = key_of_hello;
    l->door.welcome.arg = l;
    if (e != -EADDRINUSE || (in->flags & TT_ID_FIXED) == 0 || tt_now_ns() > give_up) {
      return e;
    }
    tt_sleep_ns(20 * TT_NS_PER_MS);
  }
}

static ncclResult_t listen_failed(const tt_id *in, int e)
{
  char at[TT_ADDRS_TEXT];
  return tt_fail(ncclSystemError, "the bootstrap root cannot listen on %s: %s%s", tt_addrs_text(&in->root, at), tt_sock_error_text(e),
                 (in->flags & TT_ID_FIXED) != 0 ? " (NCCL_COMM_ID must name a free port of the machine of rank 0)" : "");
}

static bool add_entry(lobby *l, const tt_id *in)
{
  if (!reserve_entry(&l->unused)) {
    return false;
  }
  uint64_t end_ns = l->timeout_ns == 0 ? 0 : tt_now_ns() + l->timeout_ns;
  l->unused.at[l->unused.n++] = (id_entry){.name = tt_key_name(&in->key), .key = in->key, .end_ns = end_ns};
  __atomic_add_fetch(&live_ids, 1, __ATOMIC_RELAXED);
  return true;
}

static ncclResult_t no_memory(void)
{
  return tt_fail(ncclSystemError, "no memory for a unique id");
}

// A lobby for its first id, without its thread.
static ncclResult_t open_lobby(const tt_id *in, uint64_t space, lobby **out)
{
  lobby *l = tt_calloc(1, sizeof(*l));
  if (l == NULL) {
    return no_memory();
  }
  int64_t unused_s = tt_params_get()->id_timeout;
  l->timeout_ns = unused_s > 0 ? tt_span_ns(unused_s, TT_NS_PER_S) : 0;
  l->file_limit = tt_sock_raise_file_limit();
  l->where = in->root;
  l->space = space;
  l->fixed = (in->flags & TT_ID_FIXED) != 0;
  int e = listen_patiently(l, in);
  if (e == 0 && add_entry(l, in)) {
    *out = l;
    return ncclSuccess;
  }
  destroy_lobby(l);
  return e != 0 ? listen_failed(in, e) : no_memory();
}

// Under the lock: lets other threads find it, and its own one end it.
static void list_lobby(lobby *l)
{
  l->opened = true;
  l->next = lobbies;
  lobbies = l;
}

// The same with its thread, which frees it: of a fixed one, at any time; of another one, not before it is listed.
static ncclResult_t start_lobby(const tt_id *in, uint64_t space, tt_addrs *bound, lobby **out)
{
  TT_TRY(open_lobby(in, space, out));
  lobby *l = *out;
  *bound = l->door.addrs;
  if (l->fixed) {
    pthread_mutex_lock(&lobbies_lock);
    list_lobby(l);
    pthread_mutex_unlock(&lobbies_lock);
  }
  ncclResult_t res = tt_thread_start_detached("tutti root", attend, l);
  if (res != ncclSuccess) {
    pthread_mutex_lock(&lobbies_lock);
    unlist(l);
    pthread_mutex_unlock(&lobbies_lock);
    __atomic_sub_fetch(&live_ids, 1, __ATOMIC_RELAXED);
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

// Adds an id to the lobby that listens where it wants to; *added: with success. False: there is none; `opening` is set, and the caller's.
static bool join_lobby(const tt_id *in, uint64_t space, tt_addrs *bound, bool *added)
{
  lobby *l;
  pthread_mutex_lock(&lobbies_lock);
  while ((l = find_lobby(in, space)) == NULL && opening) {
    pthread_mutex_unlock(&lobbies_lock);
    tt_sleep_ns(TT_NS_PER_MS); // another thread opens one: a matter of a few system calls
    pthread_mutex_lock(&lobbies_lock);
  }
  if (l == NULL) {
    opening = true;
  } else {
    *bound = l->door.addrs;
    *added = add_entry(l, in);
  }
  pthread_mutex_unlock(&lobbies_lock);
  return l != NULL;
}

static ncclResult_t add_shared(const tt_id *in, tt_addrs *bound)
{
  uint64_t space = tt_proc_net_space();
  bool added = false;
  lobby *l = NULL;
  if (join_lobby(in, space, bound, &added)) {
    return added ? ncclSuccess : no_memory();
  }
  ncclResult_t res = start_lobby(in, space, bound, &l);
  pthread_mutex_lock(&lobbies_lock);
  opening = false;
  if (res == ncclSuccess) {
    list_lobby(l);
  }
  pthread_mutex_unlock(&lobbies_lock);
  return res;
}

ncclResult_t tt_lobby_add(const tt_id *in, tt_addrs *bound)
{
  char text[TT_ADDRS_TEXT];
  tt_addrs at; // not written to *bound, which may be in->root, while that is read
  lobby *own;
  TT_TRY((in->flags & TT_ID_FIXED) != 0 ? start_lobby(in, 0, &at, &own) : add_shared(in, &at));
  tt_info(TT_BOOTSTRAP, "bootstrap root listens on %s", tt_addrs_text(&at, text));
  *bound = at;
  return ncclSuccess;
}
