// fifos.c: see fifos.h.
#include "device/cuda/work/fifos.h"

#include <pthread.h>
#include <string.h>

#include "base/log.h"
#include "device/cuda/work/ipc.h"
#include "device/cuda/work/pool.h"
#include "os/proc.h"

enum { BUCKETS = 256 };

// What has become of a side of a FIFO.
typedef enum { SIDE_NEVER, SIDE_HERE, SIDE_LEFT } fifo_side;

// What both processes see of a FIFO, in front of its slots. Part of shared memory: fixed layout.
typedef struct fifo_top {
  _Alignas(TT_CACHE_LINE) tt_fifo_line line;
  // The rank that did not make the memory has detached its end: 1 + SIDE_NEVER or SIDE_LEFT. The maker takes it back.
  _Alignas(TT_CACHE_LINE) _Atomic uint32_t detached;
} fifo_top;
_Static_assert(sizeof(fifo_top) == 128, "shared memory layout");

struct gpu_fifo {
  gpu_fifo *next; // of the table's bucket
  gpu_fifo_key key;
  tt_fifo_shape shape;
  gpu_shared *from; // the maker: the port's memory; NULL: the pool's, both ranks are in this process
  gpu_part part;    // between processes
  char *memory;     // pinned: its top, headers, payloads
  uint8_t sides[2]; // fifo_side: receiver, sender
  bool retired[2];  // their communicators have ended
  bool foreign;     // another process made the memory: it is in no table
  // Over the network: it is in no table, and the other side is this mover's. `far` NULL: it is not, or no more.
  const tt_mover *mover;
  void *mover_self;
  struct tt_far_fifo *far;
};

static struct {
  pthread_mutex_t lock;
  gpu_fifo *first[BUCKETS];
} fifos = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t shape_top_bytes(const tt_fifo_shape *shape)
{
  return sizeof(fifo_top) + shape->slots * sizeof(tt_slot);
}

static size_t shape_bytes(const tt_fifo_shape *shape)
{
  return shape_top_bytes(shape) + shape->slots * TT_ROUND_UP((size_t)shape->bytes, (size_t)TT_CACHE_LINE);
}

static fifo_top *top_of(const gpu_fifo *f)
{
  return (fifo_top *)(void *)f->memory;
}

// The side of the rank that did not make the memory.
static int foreign_side(const gpu_fifo_key *key)
{
  return key->from > key->to;
}

// ---- The table ----

// The lock is held in this whole part.

static gpu_fifo **bucket_of(const gpu_fifo_key *key)
{
  return &fifos.first[(key->number * 31 + (uint32_t)key->from * 7 + (uint32_t)key->to) % BUCKETS];
}

static bool fifo_has_key(const gpu_fifo *f, const gpu_fifo_key *k, bool sends)
{
  return !f->retired[sends] && f->key.hash == k->hash && f->key.from == k->from && f->key.to == k->to &&
         f->key.kind == k->kind && f->key.number == k->number;
}

// What the other process says of its side.
static void fifo_update(gpu_fifo *f)
{
  if (f->from != NULL) {
    const uint32_t detached = atomic_exchange_explicit(&top_of(f)->detached, 0, memory_order_acquire);
    f->sides[foreign_side(&f->key)] = detached != 0 ? (uint8_t)(detached - 1) : f->sides[foreign_side(&f->key)];
  }
}

// Nobody has it, and nobody will look for it. What one side has left behind the other one may still come for.
static bool fifo_is_over(const gpu_fifo *f)
{
  const int own = !foreign_side(&f->key);
  return (f->sides[0] == f->sides[1] && f->sides[0] != SIDE_HERE) ||
         (f->from != NULL && f->retired[own] && f->sides[own] != SIDE_HERE);
}

// Takes it off the table if it is over: onto *over, for fifos_free.
static bool fifo_drop(gpu_fifo *f, gpu_fifo **over)
{
  gpu_fifo **at = bucket_of(&f->key);
  fifo_update(f);
  if (!fifo_is_over(f)) {
    return false;
  }
  while (*at != f) {
    at = &(*at)->next;
  }
  *at = f->next;
  if (f->from != NULL) {
    tt_gpu_shared_give(&f->part);
  }
  f->next = *over;
  *over = f;
  return true;
}

// The one that the side may come to; NULL: there is none.
static gpu_fifo *fifo_find(const gpu_fifo_key *key, bool sends, gpu_fifo **over)
{
  for (gpu_fifo *f = *bucket_of(key), *next; f != NULL; f = next) {
    next = f->next;
    if (fifo_has_key(f, key, sends) && !fifo_drop(f, over)) {
      return f;
    }
  }
  return NULL;
}

static void fifos_sweep(gpu_fifo **over)
{
  for (int i = 0; i < BUCKETS; i++) {
    for (gpu_fifo *f = fifos.first[i], *next; f != NULL; f = next) {
      next = f->next;
      fifo_drop(f, over);
    }
  }
}

static void fifo_add(gpu_fifo *f)
{
  gpu_fifo **at = bucket_of(&f->key);
  memset(f->memory, 0, shape_top_bytes(&f->shape));
  f->next = *at;
  *at = f;
}

// Without the lock: the pool's may be held up.
static void fifos_free(gpu_fifo *over)
{
  for (gpu_fifo *f = over, *next; f != NULL; f = next) {
    next = f->next;
    if (f->from == NULL) {
      tt_gpu_pool_give(TT_GPU_PINNED, f->memory);
    }
    tt_free(f);
  }
}

// ---- Coming ----

static ncclResult_t fifo_differs(const gpu_fifo_key *key, const tt_fifo_shape *shape, const tt_fifo_shape *its,
                                 bool sends)
{
  const int rank = sends ? key->from : key->to, peer = sends ? key->to : key->from;
  if (memcmp(shape, its, sizeof *its) == 0) {
    return tt_fail(ncclInternalError, "rank %d has captured operation %u with rank %d already", rank, key->number,
                   peer);
  }
  return tt_far_differs(rank, peer, key->number, shape, its);
}

static void fifo_view(gpu_fifo *f, bool sends, gpu_fifo_end *end)
{
  char *memory = f->memory;
  *end = (gpu_fifo_end){.fifo = {.head = &top_of(f)->line.head,
                                 .slots = memory + sizeof(fifo_top),
                                 .data = memory + shape_top_bytes(&f->shape),
                                 .stride = sizeof(tt_slot),
                                 .data_stride = TT_ROUND_UP(f->shape.bytes, (uint32_t)TT_CACHE_LINE),
                                 .mask = f->shape.slots - 1,
                                 .capacity = f->shape.bytes},
                        .messages = f->shape.messages,
                        .sends = sends,
                        .shared = f};
  if (sends || f->mover != NULL) { // as if a replay had just ended. The receiver writes it when a message has come
    atomic_store(end->fifo.head, f->shape.messages);
  }
}

// One side comes.
typedef struct fifo_visit {
  const gpu_fifo_key *key;
  const tt_fifo_shape *shape;
  bool sends;
  gpu_shared *from;  // memory of a new one; NULL: both ranks are in this process,
  gpu_fifo *made;    // which has made one
  gpu_fifo *found;   // that the side has come to; NULL: there is none
  tt_fifo_shape its; // which it has,
  gpu_part part;     // and its memory
} fifo_visit;

static ncclResult_t fifo_new(const fifo_visit *v, gpu_fifo **out)
{
  TT_TRY(TT_NEW(*out, 1, "no memory for a captured operation"));
  **out = (gpu_fifo){.key = *v->key, .shape = *v->shape, .from = v->from};
  return ncclSuccess;
}

// Without the lock: the pool's may be held up.
static ncclResult_t fifo_make_here(fifo_visit *v)
{
  void *memory = NULL;
  TT_TRY(fifo_new(v, &v->made));
  const ncclResult_t res = tt_gpu_pool_take(TT_GPU_PINNED, shape_bytes(v->shape), &memory);
  v->made->memory = memory;
  return res;
}

// With the lock: the memory is divided under it. Before there is more of it, what other processes have left is taken
// back.
static ncclResult_t fifo_make_shared(fifo_visit *v, gpu_fifo **over)
{
  gpu_fifo *f = NULL;
  TT_TRY(fifo_new(v, &f));
  if (!tt_gpu_shared_has(v->from, shape_bytes(v->shape))) {
    fifos_sweep(over);
  }
  const ncclResult_t res = tt_gpu_shared_take(v->from, shape_bytes(v->shape), &f->part);
  if (res != ncclSuccess) {
    tt_free(f);
    return res;
  }
  f->memory = f->part.chunk->base + f->part.offset;
  v->made = f;
  return ncclSuccess;
}

// The lock is held.
static ncclResult_t fifo_come(fifo_visit *v, gpu_fifo *f)
{
  v->its = f->shape;
  if (f->sides[v->sends] != SIDE_NEVER || memcmp(&f->shape, v->shape, sizeof f->shape) != 0) {
    return ncclInvalidUsage;
  }
  f->sides[v->sends] = SIDE_HERE;
  v->found = f;
  v->part = f->part;
  return ncclSuccess;
}

// To the FIFO of the key in this process's table, or to the one that was made. Returns ncclInvalidUsage, without a
// line, where it is another one.
static ncclResult_t fifo_visit_table(fifo_visit *v)
{
  gpu_fifo *over = NULL;
  ncclResult_t res = ncclSuccess;
  pthread_mutex_lock(&fifos.lock);
  gpu_fifo *f = fifo_find(v->key, v->sends, &over);
  if (f == NULL && v->from != NULL) {
    res = fifo_make_shared(v, &over);
  }
  if (f == NULL && v->made != NULL) {
    f = v->made;
    v->made = NULL;
    fifo_add(f);
  }
  if (f != NULL) {
    res = fifo_come(v, f);
  }
  pthread_mutex_unlock(&fifos.lock);
  fifos_free(over);
  return res;
}

// Both ranks are in this process.
static ncclResult_t fifo_visit_here(fifo_visit *v)
{
  ncclResult_t res = fifo_visit_table(v);
  if (res != ncclSuccess || v->found != NULL) {
    return res;
  }
  res = fifo_make_here(v);
  res = res == ncclSuccess ? fifo_visit_table(v) : res;
  if (v->made != NULL) { // no memory, or the other side has come meanwhile
    fifos_free(v->made);
  }
  return res;
}

static ncclResult_t attach_here(fifo_visit *v, gpu_fifo_end *end)
{
  const ncclResult_t res = fifo_visit_here(v);
  if (res == ncclInvalidUsage) {
    return fifo_differs(v->key, v->shape, &v->its, v->sends);
  }
  if (res == ncclSuccess) {
    fifo_view(v->found, v->sends, end);
  }
  return res;
}

// This rank makes the memory that it shares with the peer.
static ncclResult_t attach_own(fifo_visit *v, gpu_fifo_end *end)
{
  ncclResult_t res = fifo_visit_table(v);
  if (res == ncclInvalidUsage) {
    return fifo_differs(v->key, v->shape, &v->its, v->sends);
  }
  TT_TRY(res);
  end->shared = v->found;
  end->sends = v->sends;
  res = tt_gpu_shared_pin(v->part.chunk);
  if (res == ncclSuccess) {
    fifo_view(v->found, v->sends, end);
  } else {
    tt_gpu_fifo_detach(end, true);
  }
  return res;
}

// The peer makes it.
static ncclResult_t attach_foreign(const tt_gpu_port *p, fifo_visit *v, gpu_fifo_end *end)
{
  gpu_fifo *f = NULL;
  gpu_fifo_offer offer;
  const int peer = v->sends ? v->key->to : v->key->from;
  TT_TRY(fifo_new(v, &f));
  ncclResult_t res = tt_gpu_ipc_attach(p, peer, v->key, v->shape, v->sends, &offer);
  if (res != ncclSuccess) {
    tt_free(f);
    return res == ncclInvalidUsage ? fifo_differs(v->key, v->shape, &offer.shape, v->sends) : res;
  }
  f->foreign = true;
  f->memory = offer.part.chunk->base + offer.part.offset;
  end->shared = f;
  end->sends = v->sends;
  res = tt_gpu_shared_pin(offer.part.chunk);
  if (res == ncclSuccess) {
    fifo_view(f, v->sends, end);
  } else {
    tt_gpu_fifo_detach(end, true);
  }
  return res;
}

// The peer is on another machine.
static ncclResult_t attach_far(const tt_gpu_port *p, const fifo_visit *v, gpu_fifo_end *end)
{
  gpu_fifo *f = NULL;
  void *memory = NULL;
  TT_TRY(fifo_new(v, &f));
  f->mover = p->port->mover;
  f->mover_self = p->port->mover_self;
  ncclResult_t res = tt_gpu_pool_take(TT_GPU_PINNED, shape_bytes(v->shape), &memory);
  f->memory = memory;
  if (res == ncclSuccess) {
    memset(memory, 0, shape_top_bytes(v->shape));
    fifo_view(f, v->sends, end);
    const tt_far_end far = {.peer = v->sends ? v->key->to : v->key->from,
                            .kind = (uint8_t)v->key->kind,
                            .sends = v->sends,
                            .number = v->key->number,
                            .fifo = end->fifo,
                            .shape = *v->shape};
    res = f->mover->attach(f->mover_self, &far, &f->far);
  }
  if (res != ncclSuccess) {
    end->shared = NULL;
    fifos_free(f);
  }
  return res;
}

ncclResult_t tt_gpu_fifo_attach(const tt_gpu_port *p, const gpu_fifo_key *key, const tt_fifo_shape *shape, bool sends,
                                gpu_fifo_end *end)
{
  const int peer = sends ? key->to : key->from;
  fifo_visit v = {.key = key, .shape = shape, .sends = sends};
  if (p->port->links[peer]->networked) {
    return attach_far(p, &v, end);
  }
  if (!tt_gpu_ipc_has(p, peer)) {
    return attach_here(&v, end);
  }
  if (foreign_side(key) == sends) {
    return attach_foreign(p, &v, end);
  }
  v.from = &p->shared[peer];
  return attach_own(&v, end);
}

ncclResult_t tt_gpu_fifo_offer(const tt_gpu_port *p, const gpu_fifo_key *key, const tt_fifo_shape *shape, bool sends,
                               gpu_fifo_offer *out)
{
  fifo_visit v = {.key = key, .shape = shape, .sends = sends, .from = &p->shared[sends ? key->from : key->to]};
  const ncclResult_t res = fifo_visit_table(&v);
  *out = (gpu_fifo_offer){.part = v.part, .shape = v.its};
  return res;
}

// ---- Going ----

void tt_gpu_fifo_leave(const gpu_fifo_end *end)
{
  gpu_fifo *f = end->shared;
  if (f != NULL && f->far != NULL) {
    f->mover->detach(f->mover_self, f->far);
    f->far = NULL;
  }
}

void tt_gpu_fifo_detach(gpu_fifo_end *end, bool never)
{
  gpu_fifo *f = end->shared, *over = NULL;
  const fifo_side side = never ? SIDE_NEVER : SIDE_LEFT;
  if (f == NULL) {
    return;
  }
  if (f->mover != NULL) {
    tt_gpu_fifo_leave(end);
    end->shared = NULL;
    fifos_free(f);
    return;
  }
  end->shared = NULL;
  if (f->foreign) {
    atomic_store_explicit(&top_of(f)->detached, 1 + (uint32_t)side, memory_order_release);
    tt_free(f);
    return;
  }
  pthread_mutex_lock(&fifos.lock);
  f->sides[end->sends] = (uint8_t)side;
  fifo_drop(f, &over);
  pthread_mutex_unlock(&fifos.lock);
  fifos_free(over);
}

// The lock is held.
static void bucket_retire(gpu_fifo *first, const tt_port *port, gpu_fifo **over)
{
  for (gpu_fifo *f = first, *next; f != NULL; f = next) {
    next = f->next;
    const bool sends = f->key.from == port->rank;
    if (f->key.hash == port->hash && (sends || f->key.to == port->rank) && !f->retired[sends]) {
      f->retired[sends] = true;
      f->sides[sends] = f->sides[sends] == SIDE_NEVER ? SIDE_LEFT : f->sides[sends];
      fifo_drop(f, over);
    }
  }
}

void tt_gpu_fifos_retire(const tt_gpu_port *p)
{
  gpu_fifo *over = NULL;
  pthread_mutex_lock(&fifos.lock);
  for (int i = 0; i < BUCKETS; i++) {
    bucket_retire(fifos.first[i], p->port, &over);
  }
  pthread_mutex_unlock(&fifos.lock);
  fifos_free(over);
}

void tt_gpu_fifo_release(const gpu_fifo_end *end)
{
  const tt_fifo *f = &end->fifo;
  if (end->sends) {
    atomic_store_explicit(f->head, INT32_MAX, memory_order_release);
    return;
  }
  for (uint32_t i = 0; i <= f->mask; i++) {
    atomic_store_explicit(&((tt_slot *)(void *)(f->slots + (size_t)i * f->stride))->seq, INT32_MAX,
                          memory_order_release);
  }
}

// A child of a fork cannot use its parent's GPUs, and another thread may have been here.
static void fifos_in_child(void)
{
  memset(fifos.first, 0, sizeof fifos.first);
  pthread_mutex_init(&fifos.lock, NULL);
}

__attribute__((constructor)) static void fifos_at_start(void)
{
  static tt_fork_hook hook = {.fn = fifos_in_child};
  tt_proc_on_fork(&hook);
}
