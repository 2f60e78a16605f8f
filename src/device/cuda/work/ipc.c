// ipc.c: see ipc.h.
#include "device/cuda/work/ipc.h"

#include <pthread.h>
#include <string.h>

#include "base/log.h"
#include "device/cuda/memory.h"
#include "device/cuda/work/inbox.h"
#include "device/cuda/work/mail.h"
#include "device/cuda/work/pool.h"
#include "device/cuda/work/port_priv.h"
#include "device/lane.h"
#include "os/proc.h"
#include "os/shm.h"
#include "os/thread.h"

enum {
  MAPS = 1024,        // of a peer, with the last one, which is none
  TRIAL_BYTES = 4096, // of the memory that is opened as a trial
  SLEEP_NS = 1000 * 1000 * 1000
};
#define NO_HANDLE UINT32_MAX // of a place in a list that is free again

typedef enum { MAIL_OPEN = 1, MAIL_PIECE, MAIL_FORGET, MAIL_FIFO, MAIL_INBOX } mail_what;
enum { MAIL_NO, MAIL_YES, MAIL_DIFFERS, MAIL_MORE }; // answers; MAIL_MORE: a piece is wanted

// A captured operation's FIFO. What is new goes to the mailbox, which is for this request alone.
typedef struct ipc_fifo {
  char mailbox[TT_FDBOX_NAME];
  tt_fifo_shape shape;
  uint32_t kind, number;
  uint32_t sends; // the asking rank
} ipc_fifo;

// What is asked. Part of shared memory: fixed layout.
typedef struct ipc_request {
  uint64_t base;         // the allocation's address in the asking process,
  uint32_t handle, what; // mail_what
  union {
    tt_gpu_share share;
    // Bytes of a piece, whose descriptor goes to the mailbox that the answer to MAIL_OPEN names. Or those of an inbox.
    uint64_t piece;
    ipc_fifo fifo;
  };
} ipc_request;
_Static_assert(sizeof(ipc_request) <= sizeof(((tt_mail *)NULL)->body), "fits into a mail");
_Static_assert(TT_FDBOX_NAME <= sizeof(((tt_mail *)NULL)->reply), "fits into a mail");

// What comes back of a FIFO. Part of shared memory: fixed layout.
typedef struct ipc_place {
  tt_fifo_shape shape; // as the first one reckoned
  uint32_t chunk;      // its memory
  uint64_t offset;
} ipc_place;
_Static_assert(sizeof(ipc_place) == 24 && sizeof(ipc_place) <= sizeof(((tt_mail *)NULL)->reply), "fits into a mail");

// An allocation of this process, and what has become of it, by peer.
typedef enum { IPC_UNKNOWN, IPC_OPEN, IPC_REFUSED } ipc_state;
typedef struct ipc_shared {
  uint32_t handle;
  uint8_t *state;
} ipc_shared;

// An allocation that lacks pieces, and the mailbox for them.
typedef struct ipc_half {
  tt_cuda_map map; // number 0: there is none
  int mailbox;
} ipc_half;

typedef struct tt_gpu_ipc {
  tt_thread thread;
  _Atomic bool closing;
  tt_cuda_map *maps; // MAPS for each rank; written by the thread
  ipc_half *halves;  // of each rank: the thread's
  ipc_shared *shared;
  int nshared, room;
  void *trial; // memory
} tt_gpu_ipc;

// What is open and was freed by its owner, or is not used any more.
typedef struct ipc_stale {
  struct ipc_stale *next;
  int device;
  uint32_t epoch;
  bool freed;        // by its owner
  void *base;        // an allocation; NULL: none,
  gpu_shared shared; // but this
} ipc_stale;

static pthread_mutex_t stale_lock = PTHREAD_MUTEX_INITIALIZER;
static ipc_stale *_Atomic stale; // written under the lock

// NULL: no memory.
static ipc_stale *stale_new(const tt_gpu_port *p)
{
  ipc_stale *s;
  if (TT_NEW(s, 1, "no memory to close a peer's memory") != ncclSuccess) {
    return NULL;
  }
  *s = (ipc_stale){.device = p->device, .epoch = p->epoch};
  return s;
}

static void stale_add(ipc_stale *s)
{
  pthread_mutex_lock(&stale_lock);
  s->next = stale;
  stale = s;
  pthread_mutex_unlock(&stale_lock);
}

static void stale_close(ipc_stale *s)
{
  if (s->freed) {
    tt_info(TT_P2P, "GPU %d: closes what a peer has freed, at %p", s->device, s->base);
  }
  if (s->base != NULL) {
    tt_gpu_close(s->device, s->epoch, s->base);
  } else {
    const bool there = tt_gpu_reenter(s->device, s->epoch) == ncclSuccess;
    tt_gpu_shared_close(&s->shared, there);
    if (there) {
      tt_gpu_leave();
    }
  }
  tt_free(s);
}

bool tt_gpu_ipc_has(const tt_gpu_port *p, int peer)
{
  if (p->port->neighbors == NULL || peer == p->port->rank) {
    return false;
  }
  const tt_neighbor *n = tt_gpu_neighbor(p, peer), *me = tt_gpu_neighbor(p, p->port->rank);
  return n->page != NULL && (n->number != me->number || n->cookie != me->cookie);
}

static tt_cuda_map *maps_of(const tt_gpu_port *p, int peer)
{
  return p->ipc->maps + (size_t)peer * MAPS;
}

uint64_t tt_gpu_ipc_maps(const tt_gpu_port *p, int peer)
{
  return p->ipc != NULL && tt_gpu_ipc_has(p, peer) ? gpu_address(maps_of(p, peer)) : 0;
}

char *tt_gpu_ipc_address(const tt_gpu_port *p, int peer, uint32_t handle, uint64_t address, uint64_t bytes)
{
  const tt_cuda_map *m = p->ipc != NULL ? maps_of(p, peer) : NULL;
  uint32_t its = 0;
  while (m != NULL && (its = __atomic_load_n(&m->handle, __ATOMIC_ACQUIRE)) != 0 && its != handle) {
    m++;
  }
  const uint64_t offset = its != 0 ? address - __atomic_load_n(&m->remote, __ATOMIC_RELAXED) : 0,
                 size = its != 0 ? __atomic_load_n(&m->bytes, __ATOMIC_RELAXED) : 0;
  return its != 0 && offset <= size && bytes <= size - offset
             ? (char *)(uintptr_t)(__atomic_load_n(&m->here, __ATOMIC_RELAXED) + offset)
             : NULL;
}

// ---- Answers: the thread ----

// The entry with this number, or a free one. NULL: there is none.
static tt_cuda_map *map_entry(tt_cuda_map *maps, uint32_t handle)
{
  tt_cuda_map *free = NULL;
  int i = 0;
  for (; i < MAPS - 1 && maps[i].handle != 0 && maps[i].handle != handle; i++) {
    free = free == NULL && maps[i].handle == NO_HANDLE ? &maps[i] : free;
  }
  return maps[i].handle == handle && handle != 0 ? &maps[i] : free != NULL || i == MAPS - 1 ? free : &maps[i];
}

// Kernels may be looking for other allocations in the list: the number comes last.
static void map_write(const tt_gpu_port *p, int peer, const tt_cuda_map *from)
{
  tt_cuda_map *m = map_entry(maps_of(p, peer), from->handle);
  __atomic_store_n(&m->remote, from->remote, __ATOMIC_RELAXED);
  __atomic_store_n(&m->bytes, from->bytes, __ATOMIC_RELAXED);
  __atomic_store_n(&m->here, from->here, __ATOMIC_RELAXED);
  __atomic_store_n(&m->handle, from->handle, __ATOMIC_RELEASE);
  tt_info(TT_P2P, "rank %d has opened allocation %u of rank %d: %llu bytes", p->port->rank, from->handle, peer,
          (unsigned long long)from->bytes);
}

static void half_end(ipc_half *half)
{
  if (half->map.handle != 0) {
    tt_fdbox_unlisten(half->mailbox);
    half->map.handle = 0;
  }
}

// What has got some of its pieces gets no more.
static void half_drop(const tt_gpu_port *p, int peer)
{
  ipc_half *half = &p->ipc->halves[peer];
  if (half->map.handle != 0) {
    tt_gpu_ipc_drop(p, (void *)(uintptr_t)half->map.here);
  }
  half_end(half);
}

// Opens it, or the addresses for its pieces.
static ncclResult_t map_open(tt_gpu_port *p, int peer, const ipc_request *r, tt_cuda_map *out, uint32_t *reply)
{
  const bool pieces = r->share.pieces > 0;
  ipc_half *half = &p->ipc->halves[peer];
  char mailbox[TT_FDBOX_NAME] = "";
  void *base = NULL;
  if (pieces) {
    TT_TRY(tt_fdbox_listen(mailbox, &half->mailbox));
  }
  const ncclResult_t res = tt_gpu_open(p->device, &r->share, &base);
  *out = (tt_cuda_map){.remote = r->base, .bytes = r->share.bytes, .here = gpu_address(base), .handle = r->handle};
  if (pieces && res == ncclSuccess) {
    half->map = *out;
    memcpy(reply, mailbox, sizeof mailbox);
  } else if (pieces) {
    tt_fdbox_unlisten(half->mailbox);
  }
  return res;
}

static uint32_t mail_open(tt_gpu_port *p, int peer, const ipc_request *r, uint32_t *reply)
{
  const tt_cuda_map *m = map_entry(maps_of(p, peer), r->handle);
  tt_cuda_map opened;
  half_drop(p, peer);
  if (m == NULL || r->handle == 0 || r->handle == NO_HANDLE) {
    tt_info(TT_P2P, "rank %d has %d allocations of rank %d open, and opens no more", p->port->rank, MAPS - 1, peer);
    return MAIL_NO;
  }
  if (m->handle == r->handle) {
    return MAIL_YES;
  }
  if (map_open(p, peer, r, &opened, reply) != ncclSuccess) {
    tt_info(TT_P2P, "rank %d does not reach an allocation of rank %d: %s", p->port->rank, peer, tt_last_error());
    return MAIL_NO;
  }
  if (r->share.pieces > 0) {
    return MAIL_MORE;
  }
  map_write(p, peer, &opened);
  return MAIL_YES;
}

static uint32_t mail_piece(tt_gpu_port *p, int peer, const ipc_request *r)
{
  ipc_half *half = &p->ipc->halves[peer];
  bool whole = false;
  int fd = -1;
  ncclResult_t res = half->map.handle == r->handle ? tt_fdbox_accept(half->mailbox, &fd)
                                                   : tt_fail(ncclInternalError, "a piece of another allocation");
  if (res == ncclSuccess) {
    res = tt_gpu_open_piece(p->device, (void *)(uintptr_t)half->map.here, r->piece, fd, &whole);
    tt_fd_close(fd);
  }
  if (res != ncclSuccess) {
    tt_info(TT_P2P, "rank %d does not reach an allocation of rank %d: %s", p->port->rank, peer, tt_last_error());
    half_drop(p, peer);
    return MAIL_NO;
  }
  if (!whole) {
    return MAIL_MORE;
  }
  map_write(p, peer, &half->map);
  half_end(half);
  return MAIL_YES;
}

// No kernel looks for it any more: the owner's tokens with this number have been given back. Or the owner cannot give
// all pieces.
static void mail_forget(tt_gpu_port *p, int peer, uint32_t handle)
{
  if (p->ipc->halves[peer].map.handle == handle) {
    half_drop(p, peer);
    return;
  }
  tt_cuda_map *m = map_entry(maps_of(p, peer), handle);
  ipc_stale *s = m != NULL && m->handle == handle ? stale_new(p) : NULL;
  if (s == NULL) {
    return; // closed with the port
  }
  s->base = (void *)(uintptr_t)m->here;
  s->freed = true;
  __atomic_store_n(&m->handle, NO_HANDLE, __ATOMIC_RELEASE);
  tt_info(TT_P2P, "rank %d: rank %d has freed its allocation %u", p->port->rank, peer, handle);
  stale_add(s);
}

// The peer has come to a FIFO of the table of this process. What this rank's other threads do is not waited for.
static uint32_t mail_fifo(const tt_gpu_port *p, int peer, const ipc_fifo *r, uint32_t *reply)
{
  const bool sends = r->sends != 0;
  const int rank = p->port->rank;
  const gpu_fifo_key key = {.hash = p->port->hash,
                            .from = sends ? peer : rank,
                            .to = sends ? rank : peer,
                            .kind = (int)r->kind,
                            .number = r->number};
  gpu_fifo_offer offer;
  ncclResult_t res = tt_gpu_fifo_offer(p, &key, &r->shape, sends, &offer);
  ipc_place place = {.shape = offer.shape};
  if (res == ncclSuccess) {
    place.chunk = offer.part.chunk->number;
    place.offset = offer.part.offset;
    res = tt_gpu_shared_push(offer.part.chunk, r->mailbox);
  }
  memcpy(reply, &place, sizeof place);
  return res == ncclSuccess ? MAIL_YES : res == ncclInvalidUsage ? MAIL_DIFFERS : MAIL_NO;
}

// Where the peer has messages of this rank, in an allocation that is open.
static uint32_t mail_inbox(tt_gpu_port *p, int peer, const ipc_request *r)
{
  const char *memory = tt_gpu_ipc_address(p, peer, r->handle, r->base, r->piece);
  return memory != NULL && tt_gpu_inbox_take(p, peer, memory) ? MAIL_YES : MAIL_NO;
}

// Answers what the peer has asked, if it has.
static bool mail_answer(tt_gpu_port *p, int peer)
{
  tt_mail *m = tt_gpu_neighbor(p, peer)->from;
  const uint32_t asked = atomic_load_explicit(&m->asked, memory_order_acquire);
  ipc_request r;
  if (asked == atomic_load_explicit(&m->answered, memory_order_relaxed)) {
    return false;
  }
  memcpy(&r, m->body, sizeof r);
  m->answer = MAIL_YES;
  switch (r.what) {
  case MAIL_OPEN: m->answer = mail_open(p, peer, &r, m->reply); break;
  case MAIL_PIECE: m->answer = mail_piece(p, peer, &r); break;
  case MAIL_INBOX: m->answer = mail_inbox(p, peer, &r); break;
  case MAIL_FIFO: m->answer = mail_fifo(p, peer, &r.fifo, m->reply); break;
  default: mail_forget(p, peer, r.handle); break;
  }
  atomic_store_explicit(&m->answered, asked, memory_order_release);
  return true;
}

static bool mail_answer_all(tt_gpu_port *p)
{
  bool any = false;
  for (int i = 0; i < p->port->nranks; i++) {
    any |= tt_gpu_ipc_has(p, i) && mail_answer(p, i);
  }
  return any;
}

static void mail_serve(const tt_gpu_port *p, uint32_t how)
{
  for (int i = 0; i < p->port->nranks; i++) {
    if (tt_gpu_ipc_has(p, i)) {
      atomic_store_explicit(&tt_gpu_neighbor(p, i)->from->served, how, memory_order_release);
    }
  }
}

static void *ipc_run(void *arg)
{
  tt_gpu_port *p = arg;
  tt_bell *bell = &p->port->page->bell;
  while (!atomic_load(&p->ipc->closing)) {
    const uint32_t ticket = tt_bell_announce(bell);
    if (!mail_answer_all(p) && !atomic_load(&p->ipc->closing)) {
      tt_bell_sleep(&bell, &ticket, 1, SLEEP_NS);
    }
    tt_bell_leave(bell);
  }
  mail_serve(p, TT_GPU_MAIL_LEFT);
  return NULL;
}

// ---- What is asked for ----

static ncclResult_t ipc_require(const tt_gpu_port *p, int peer, const ipc_request *r, uint32_t *answer)
{
  return tt_gpu_mail_require(p, peer, r, sizeof *r, answer);
}

static ncclResult_t ipc_describe(const tt_mappable *m, ipc_request *out)
{
  *out = (ipc_request){.base = m->from, .handle = m->handle, .what = MAIL_OPEN};
  return tt_gpu_export(m->handle, &out->share);
}

bool tt_gpu_ipc_try(tt_gpu_port *p, int peer)
{
  ipc_request r;
  uint32_t answer, state;
  if (p->ipc == NULL ||
      (p->ipc->trial == NULL && tt_gpu_pool_take(p->device, TRIAL_BYTES, &p->ipc->trial) != ncclSuccess)) {
    return false;
  }
  const tt_mappable m = tt_gpu_find(p->ipc->trial, TRIAL_BYTES);
  return m.handle != 0 && ipc_describe(&m, &r) == ncclSuccess &&
         tt_gpu_mail_request(p, peer, &r, sizeof r, &answer, &state) && answer == MAIL_YES;
}

static ncclResult_t fifo_request(const gpu_fifo_key *key, const tt_fifo_shape *shape, bool sends, ipc_request *out,
                                 int *mailbox)
{
  *out = (ipc_request){.what = MAIL_FIFO};
  out->fifo = (ipc_fifo){.shape = *shape, .kind = (uint32_t)key->kind, .number = key->number, .sends = (uint32_t)sends};
  return tt_fdbox_listen(out->fifo.mailbox, mailbox);
}

// Asks for the FIFO, and finds what is offered.
static ncclResult_t fifo_require(const tt_gpu_port *p, int peer, const ipc_request *r, int mailbox, gpu_fifo_offer *out)
{
  ipc_place place;
  uint32_t answer = MAIL_NO;
  TT_TRY(ipc_require(p, peer, r, &answer));
  memcpy(&place, tt_gpu_neighbor(p, peer)->to->reply, sizeof place);
  *out = (gpu_fifo_offer){.shape = place.shape, .part.offset = place.offset};
  if (answer == MAIL_DIFFERS) {
    return ncclInvalidUsage;
  }
  const ncclResult_t res = answer == MAIL_YES
                               ? tt_gpu_shared_find(&p->shared[peer], place.chunk, mailbox, &out->part.chunk)
                               : ncclSystemError;
  return res == ncclSuccess
             ? ncclSuccess
             : tt_fail(ncclSystemError, "rank %d: rank %d has no memory for an operation that both capture",
                       p->port->rank, peer);
}

ncclResult_t tt_gpu_ipc_attach(const tt_gpu_port *p, int peer, const gpu_fifo_key *key, const tt_fifo_shape *shape,
                               bool sends, gpu_fifo_offer *out)
{
  ipc_request r;
  int mailbox;
  TT_TRY(fifo_request(key, shape, sends, &r, &mailbox));
  const ncclResult_t res = fifo_require(p, peer, &r, mailbox, out);
  tt_fdbox_unlisten(mailbox);
  return res;
}

bool tt_gpu_ipc_serves(const tt_gpu_port *p, int peer)
{
  return atomic_load_explicit(&tt_gpu_neighbor(p, peer)->to->served, memory_order_acquire) != 0;
}

bool tt_gpu_ipc_takes_inbox(const tt_gpu_port *p, int peer)
{
  return atomic_load_explicit(&tt_gpu_neighbor(p, peer)->to->served, memory_order_acquire) == TT_GPU_MAIL_INBOX;
}

// ---- What peers have opened ----

// Has the peer close it. One that has left in order has closed all.
static ncclResult_t shared_close(const tt_gpu_port *p, int peer, uint32_t handle)
{
  const ipc_request r = {.handle = handle, .what = MAIL_FORGET};
  uint32_t answer, state;
  return tt_gpu_mail_request(p, peer, &r, sizeof r, &answer, &state) || state == TT_RANK_GONE
             ? ncclSuccess
             : tt_gpu_mail_fail(p, peer, state);
}

// Has the peers close what the program has freed.
static ncclResult_t shared_forget(const tt_gpu_port *p)
{
  tt_gpu_ipc *ipc = p->ipc;
  tt_gpu_sweep();
  for (int i = 0; i < ipc->nshared;) {
    ipc_shared *s = &ipc->shared[i];
    if (tt_gpu_exists(s->handle)) {
      i++;
      continue;
    }
    for (int peer = 0; peer < p->port->nranks; peer++) {
      if (s->state[peer] == IPC_OPEN) {
        TT_TRY(shared_close(p, peer, s->handle));
        s->state[peer] = IPC_UNKNOWN;
      }
    }
    tt_free(s->state);
    *s = ipc->shared[--ipc->nshared];
  }
  return ncclSuccess;
}

// What is known of the allocation. A new one is the moment to look for those that were freed.
static ncclResult_t shared_find(const tt_gpu_port *p, uint32_t handle, ipc_shared **out)
{
  tt_gpu_ipc *ipc = p->ipc;
  for (int i = 0; i < ipc->nshared; i++) {
    if (ipc->shared[i].handle == handle) {
      *out = &ipc->shared[i];
      return ncclSuccess;
    }
  }
  TT_TRY(shared_forget(p));
  if (!tt_grow(&ipc->shared, ipc->nshared, 1, &ipc->room, sizeof *ipc->shared)) {
    return tt_fail(ncclSystemError, "rank %d: no memory for the memory that peers have opened", p->port->rank);
  }
  ipc_shared *s = &ipc->shared[ipc->nshared];
  TT_TRY(TT_NEW(s->state, p->port->nranks, "rank %d: no memory for the memory that peers have opened", p->port->rank));
  s->handle = handle;
  ipc->nshared++;
  *out = s;
  return ncclSuccess;
}

static ncclResult_t piece_push(const char *mailbox, uint32_t handle, uint64_t number, uint64_t *bytes)
{
  int fd = -1;
  TT_TRY(tt_gpu_export_piece(handle, number, bytes, &fd));
  const ncclResult_t res = tt_fdbox_push(mailbox, NULL, fd);
  tt_fd_close(fd);
  return res;
}

// Gives the peer the pieces of an allocation, as long as it wants more. Without one of them it is to close the others.
static ncclResult_t pieces_push(const tt_gpu_port *p, int peer, const ipc_request *opening, uint32_t *answer)
{
  char mailbox[TT_FDBOX_NAME];
  memcpy(mailbox, tt_gpu_neighbor(p, peer)->to->reply, sizeof mailbox);
  for (uint64_t i = 0; i < opening->share.pieces && *answer == MAIL_MORE; i++) {
    ipc_request r = {.handle = opening->handle, .what = MAIL_PIECE};
    if (piece_push(mailbox, r.handle, i, &r.piece) != ncclSuccess) {
      tt_info(TT_P2P, "%s", tt_last_error());
      *answer = MAIL_NO;
      TT_TRY(shared_close(p, peer, r.handle));
    } else {
      TT_TRY(ipc_require(p, peer, &r, answer));
    }
  }
  return ncclSuccess;
}

static ncclResult_t shared_open(const tt_gpu_port *p, int peer, const tt_mappable *memory, uint32_t *answer)
{
  ipc_request r;
  if (ipc_describe(memory, &r) != ncclSuccess) {
    tt_info(TT_P2P, "%s", tt_last_error());
    *answer = MAIL_NO;
    return ncclSuccess;
  }
  TT_TRY(ipc_require(p, peer, &r, answer));
  return *answer == MAIL_MORE ? pieces_push(p, peer, &r, answer) : ncclSuccess;
}

ncclResult_t tt_gpu_ipc_share(tt_gpu_port *p, int peer, const tt_mappable *memory, bool *shared)
{
  ipc_shared *s = NULL;
  uint32_t answer = MAIL_NO;
  TT_TRY(shared_find(p, memory->handle, &s));
  if (s->state[peer] == IPC_UNKNOWN) {
    TT_TRY(shared_open(p, peer, memory, &answer));
    s->state[peer] = answer == MAIL_YES ? IPC_OPEN : IPC_REFUSED;
  }
  *shared = s->state[peer] == IPC_OPEN;
  return ncclSuccess;
}

ncclResult_t tt_gpu_ipc_offer_inbox(tt_gpu_port *p, int peer, void *memory, size_t bytes, bool *taken)
{
  const tt_mappable m = tt_gpu_find(memory, bytes);
  const ipc_request r = {.base = gpu_address(memory), .handle = m.handle, .what = MAIL_INBOX, .piece = bytes};
  uint32_t answer = MAIL_NO;
  bool open = false;
  TT_TRY(m.handle != 0 ? tt_gpu_ipc_share(p, peer, &m, &open) : ncclSuccess);
  TT_TRY(open ? ipc_require(p, peer, &r, &answer) : ncclSuccess);
  *taken = answer == MAIL_YES;
  return ncclSuccess;
}

void tt_gpu_ipc_drop(const tt_gpu_port *p, void *base)
{
  ipc_stale *s = stale_new(p);
  if (s != NULL) {
    s->base = base;
    stale_add(s);
  }
}

// ---- Open and close ----

bool tt_gpu_ipc_stale(void)
{
  return stale != NULL;
}

void tt_gpu_ipc_close_stale(void)
{
  pthread_mutex_lock(&stale_lock);
  ipc_stale *all = stale;
  stale = NULL;
  pthread_mutex_unlock(&stale_lock);
  for (ipc_stale *s = all, *next; s != NULL; s = next) {
    next = s->next;
    stale_close(s);
  }
}

static ncclResult_t ipc_start(tt_gpu_port *p)
{
  const size_t bytes = (size_t)p->port->nranks * MAPS * sizeof(tt_cuda_map);
  void *maps = NULL;
  TT_TRY(tt_gpu_pool_take(TT_GPU_PINNED, bytes, &maps));
  p->ipc->maps = maps;
  memset(maps, 0, bytes);
  mail_serve(p, p->inbox_out != NULL ? TT_GPU_MAIL_INBOX : TT_GPU_MAIL_SERVED); // before peers can ask whether it does
  return tt_thread_start(&p->ipc->thread, "tutti ipc", ipc_run, p);
}

ncclResult_t tt_gpu_ipc_open(tt_gpu_port *p)
{
  bool any = false;
  for (int i = 0; i < p->port->nranks && !any; i++) {
    any = tt_gpu_ipc_has(p, i);
  }
  if (!any) {
    return ncclSuccess;
  }
  TT_TRY(TT_NEW(p->ipc, 1, "rank %d: no memory for its peers' memory", p->port->rank));
  ncclResult_t res = TT_NEW(p->ipc->halves, p->port->nranks, "rank %d: no memory for its peers' memory", p->port->rank);
  res = res == ncclSuccess ? ipc_start(p) : res;
  if (res != ncclSuccess) {
    tt_gpu_ipc_stop(p);
    tt_gpu_ipc_close(p);
  }
  return res;
}

static void maps_close(const tt_gpu_port *p)
{
  for (int i = 0; i < p->nranks; i++) {
    for (const tt_cuda_map *m = maps_of(p, i); m->handle != 0; m++) {
      if (m->handle != NO_HANDLE) {
        tt_gpu_ipc_drop(p, (void *)(uintptr_t)m->here);
      }
    }
  }
}

void tt_gpu_ipc_unshare(const tt_gpu_port *p, gpu_shared *shared)
{
  ipc_stale *s = shared->chunks != NULL ? stale_new(p) : NULL;
  if (s != NULL) {
    s->shared = *shared;
    stale_add(s);
  }
}

void tt_gpu_ipc_stop(tt_gpu_port *p)
{
  if (p->ipc != NULL) {
    atomic_store(&p->ipc->closing, true);
    tt_bell_wake(&p->port->page->bell);
    tt_thread_join(&p->ipc->thread);
  }
}

void tt_gpu_ipc_close(tt_gpu_port *p)
{
  tt_gpu_ipc *ipc = p->ipc;
  if (ipc == NULL) {
    return;
  }
  if (ipc->maps != NULL) {
    maps_close(p);
  }
  for (int i = 0; ipc->halves != NULL && i < p->nranks; i++) {
    half_drop(p, i);
  }
  tt_free(ipc->halves);
  for (int i = 0; i < ipc->nshared; i++) {
    tt_free(ipc->shared[i].state);
  }
  tt_free(ipc->shared);
  tt_gpu_pool_give(TT_GPU_PINNED, ipc->maps);
  tt_gpu_pool_give(p->device, ipc->trial);
  tt_free(ipc);
  p->ipc = NULL;
}

// A child of a fork cannot use its parent's GPUs, and another thread may have been here.
static void ipc_in_child(void)
{
  stale = NULL;
  pthread_mutex_init(&stale_lock, NULL);
}

__attribute__((constructor)) static void ipc_at_start(void)
{
  static tt_fork_hook hook = {.fn = ipc_in_child};
  tt_proc_on_fork(&hook);
}
