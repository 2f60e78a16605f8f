// fifos.c: see fifos.h.
#include "device/cuda/work/fifos.h"

#include <pthread.h>
#include <string.h>

#include "base/log.h"
#include "device/cuda/work/pool.h"
#include "os/proc.h"

struct gpu_fifo {
  gpu_fifo *next;
  gpu_fifo_key key;
  gpu_fifo_shape shape;
  char *memory;          // pinned: the head's line, headers, payloads
  gpu_fifo_end *ends[2]; // receiver, sender; NULL: not attached
  bool retired;
};

static struct {
  pthread_mutex_t lock;
  gpu_fifo *first;
} fifos = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool fifo_has_key(const gpu_fifo *f, const gpu_fifo_key *k)
{
  return !f->retired && f->key.hash == k->hash && f->key.from == k->from && f->key.to == k->to &&
         f->key.kind == k->kind && f->key.number == k->number;
}

// The FIFO of the key, or a new one. The lock is held.
static ncclResult_t fifo_get(const gpu_fifo_key *key, const gpu_fifo_shape *shape, gpu_fifo **out)
{
  const size_t bytes = TT_CACHE_LINE + shape->slots * (sizeof(tt_slot) + TT_ROUND_UP((size_t)shape->bytes, 64));
  gpu_fifo *f = fifos.first;
  void *memory = NULL;
  while (f != NULL && !fifo_has_key(f, key)) {
    f = f->next;
  }
  if (f == NULL) {
    TT_TRY(TT_NEW(f, 1, "no memory for a captured operation"));
    *f = (gpu_fifo){.key = *key, .shape = *shape};
    ncclResult_t res = tt_gpu_pool_take(TT_GPU_PINNED, bytes, &memory);
    if (res != ncclSuccess) {
      tt_free(f);
      return res;
    }
    f->memory = memset(memory, 0, bytes);
    f->next = fifos.first;
    fifos.first = f;
  }
  *out = f;
  return ncclSuccess;
}

// Nobody has it any more. The lock is held.
static void fifo_drop(gpu_fifo *f)
{
  gpu_fifo **at = &fifos.first;
  while (*at != f) {
    at = &(*at)->next;
  }
  *at = f->next;
  tt_gpu_pool_give(TT_GPU_PINNED, f->memory);
  tt_free(f);
}

static ncclResult_t fifo_differs(const gpu_fifo *f, const gpu_fifo_key *key, const gpu_fifo_shape *shape, bool sends)
{
  const int rank = sends ? key->from : key->to, peer = sends ? key->to : key->from;
  const gpu_fifo_shape *its = &f->shape;
  if (f->ends[sends] != NULL) {
    return tt_fail(ncclInternalError, "rank %d has captured operation %u with rank %d already", rank, key->number,
                   peer);
  }
  return tt_fail(ncclInvalidUsage,
                 "ranks have captured different operations: number %u between ranks %d and %d is %u messages of up to "
                 "%u bytes for rank %d, and %u of up to %u for rank %d; all ranks must capture the same calls in the "
                 "same order",
                 key->number, rank, peer, shape->messages, shape->bytes, rank, its->messages, its->bytes, peer);
}

static void fifo_view(gpu_fifo *f, bool sends, gpu_fifo_end *end)
{
  char *memory = f->memory;
  *end = (gpu_fifo_end){.fifo = {.head = (_Atomic uint32_t *)(void *)memory,
                                 .slots = memory + TT_CACHE_LINE,
                                 .data = memory + TT_CACHE_LINE + f->shape.slots * sizeof(tt_slot),
                                 .stride = sizeof(tt_slot),
                                 .data_stride = TT_ROUND_UP(f->shape.bytes, 64u),
                                 .mask = f->shape.slots - 1,
                                 .capacity = f->shape.bytes},
                        .messages = f->shape.messages,
                        .sends = sends,
                        .shared = f};
}

ncclResult_t tt_gpu_fifo_attach(const gpu_fifo_key *key, const gpu_fifo_shape *shape, bool sends, gpu_fifo_end *end)
{
  gpu_fifo *f = NULL;
  pthread_mutex_lock(&fifos.lock);
  ncclResult_t res = fifo_get(key, shape, &f);
  if (res == ncclSuccess && (f->ends[sends] != NULL || memcmp(&f->shape, shape, sizeof *shape) != 0)) {
    res = fifo_differs(f, key, shape, sends);
  } else if (res == ncclSuccess) {
    fifo_view(f, sends, end);
    f->ends[sends] = end;
    if (sends) { // as if a replay had just ended. The receiver writes it when a message has come
      atomic_store(end->fifo.head, shape->messages);
    }
  }
  pthread_mutex_unlock(&fifos.lock);
  return res;
}

void tt_gpu_fifo_detach(gpu_fifo_end *end)
{
  gpu_fifo *f = end->shared;
  if (f == NULL) {
    return;
  }
  pthread_mutex_lock(&fifos.lock);
  f->ends[end->sends] = NULL;
  if (f->ends[!end->sends] == NULL) {
    fifo_drop(f);
  }
  pthread_mutex_unlock(&fifos.lock);
  end->shared = NULL;
}

void tt_gpu_fifo_retire(const gpu_fifo_end *end)
{
  pthread_mutex_lock(&fifos.lock);
  end->shared->retired = true;
  pthread_mutex_unlock(&fifos.lock);
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
  fifos.first = NULL;
  pthread_mutex_init(&fifos.lock, NULL);
}

__attribute__((constructor)) static void fifos_at_start(void)
{
  tt_proc_on_fork(fifos_in_child);
}
