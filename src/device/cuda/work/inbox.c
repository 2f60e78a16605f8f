// inbox.c: see inbox.h.
#include "device/cuda/work/inbox.h"

#include <pthread.h>

#include "base/log.h"
#include "device/cuda/memory.h"
#include "device/cuda/work/ipc.h"
#include "device/cuda/work/pool.h"
#include "device/cuda/work/walk.h"
#include "os/proc.h"

// The messages from one rank to another one. An inbox with a rank of another process is the port's, and in no list.
struct gpu_inbox {
  struct gpu_inbox *next;
  uint64_t hash;           // the communicator's
  int from, to;            // ranks
  int device;              // the receiver's
  bool far;                // one of the two is in another process
  void *memory;            // NULL: that process has made it, and tt_gpu_port.inbox_out says where it is
  size_t at[TT_NFIFOS];    // where the messages of each FIFO begin,
  size_t bytes[TT_NFIFOS]; // and bytes of each; 0: they are in slots
  size_t size;             // of all
  bool left[2];            // the receiver's port is closed, the sender's
};

// The lists, and what is in them, under the lock.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpu_inbox *all_inboxes;
static tt_gpu_port *ports; // that can have inboxes

static bool has_lines(const tt_gpu_port *p, int kind)
{
  return p->port->ll128 && (kind == TT_LL || kind == TT_TINY);
}

// With peers in other processes of the machine plans do not use buffers of peers, but for this.
static bool has_payloads(const tt_gpu_port *p, int kind)
{
  return p->port->gpu_access && kind == TT_SIMPLE && tt_gpu_walk_fifos_only(p);
}

ncclResult_t tt_gpu_inbox_open(tt_gpu_port *p)
{
  if (!gpu_walks(p) || (!has_lines(p, TT_LL) && !has_payloads(p, TT_SIMPLE))) {
    return ncclSuccess;
  }
  TT_TRY(TT_NEW(p->inboxes, p->nranks, "GPU %d: no memory for connections", p->device));
  TT_TRY(TT_NEW(p->inbox_out, p->nranks, "GPU %d: no memory for connections", p->device));
  pthread_mutex_lock(&lock);
  p->inbox_next = ports;
  ports = p;
  pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

static void inbox_free(struct gpu_inbox *l)
{
  for (struct gpu_inbox *next; l != NULL; l = next) {
    next = l->next;
    tt_gpu_pool_give(l->device, l->memory);
    tt_free(l);
  }
}

static void inbox_free_far(const tt_gpu_port *p, struct gpu_inbox *l)
{
  if (l == NULL || !l->far) {
    return;
  }
  if (l->memory != NULL) {
    tt_gpu_ipc_drop(p, l->memory);
  }
  tt_free(l);
}

void tt_gpu_inbox_close(tt_gpu_port *p)
{
  struct gpu_inbox *over = NULL;
  for (int i = 0; p->inboxes != NULL && i < p->nranks; i++) { // before the others are freed
    inbox_free_far(p, p->inboxes[i][0]);
    inbox_free_far(p, p->inboxes[i][1]);
  }
  pthread_mutex_lock(&lock);
  tt_gpu_port **here = &ports;
  while (*here != NULL && *here != p) {
    here = &(*here)->inbox_next;
  }
  if (*here != NULL) {
    *here = p->inbox_next;
  }
  for (struct gpu_inbox **at = &all_inboxes, *l = *at; l != NULL; l = *at) {
    if (l->hash == p->port->hash) {
      l->left[0] |= l->to == p->port->rank;
      l->left[1] |= l->from == p->port->rank;
    }
    if (!l->left[0] || !l->left[1]) {
      at = &l->next;
      continue;
    }
    *at = l->next;
    l->next = over;
    over = l;
  }
  pthread_mutex_unlock(&lock);
  inbox_free(over); // without the lock: the pool's may be held up
  tt_free(p->inboxes);
  tt_free((void *)p->inbox_out);
  p->inboxes = NULL;
  p->inbox_out = NULL;
}

// ---- Connecting ----

// The lock is held in this part.

static struct gpu_inbox *inbox_find(uint64_t hash, int from, int to)
{
  struct gpu_inbox *l = all_inboxes;
  while (l != NULL && (l->hash != hash || l->from != from || l->to != to)) {
    l = l->next;
  }
  return l;
}

// The peer's port, if it is in this process, and can have inboxes.
static const tt_gpu_port *inbox_peer(const tt_gpu_port *p, int peer)
{
  const tt_gpu_port *q = ports;
  while (q != NULL && (q->port->hash != p->port->hash || q->port->rank != peer)) {
    q = q->inbox_next;
  }
  return q;
}

static bool inbox_has(const tt_gpu_port *p)
{
  const tt_gpu_port *q = ports;
  while (q != NULL && q != p) {
    q = q->inbox_next;
  }
  return q != NULL;
}

// ---- Making ----

static void inbox_log(const tt_gpu_port *p, int peer, const char *whose)
{
  if (p->port->ll128) {
    tt_info(TT_INIT, "rank %d: LL messages %s rank %d are LL128: lines in memory of the receiver's GPU", p->port->rank,
            whose, peer);
  }
  if (has_payloads(p, TT_SIMPLE)) {
    tt_info(TT_INIT, "rank %d: large messages %s rank %d are in memory of the receiver's GPU", p->port->rank, whose,
            peer);
  }
}

// All flags are 0, which is none.
static ncclResult_t lines_clear(const struct gpu_inbox *l, size_t bytes)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUstream stream = NULL;
  TT_CUDA(cu, cu->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), "GPU %d: cannot create a stream",
          l->device);
  CUresult error = cu->MemsetD8Async(gpu_address(l->memory), 0, bytes, stream);
  error = error == CUDA_SUCCESS ? cu->StreamSynchronize(stream) : error;
  cu->StreamDestroy(stream);
  TT_CUDA(cu, error, "GPU %d: cannot clear %zu bytes of its memory", l->device, bytes);
  return ncclSuccess;
}

// Where the messages of each FIFO are: lines, then payloads.
static void inbox_divide(const tt_gpu_port *p, struct gpu_inbox *l, const tt_fifo fifos[TT_NFIFOS])
{
  l->size = 0;
  for (int k = TT_NFIFOS; k-- > 0;) {
    const bool lines = has_lines(p, k);
    l->at[k] = l->size;
    if ((lines || has_payloads(p, k)) && fifos[k].slots != NULL) {
      l->bytes[k] = lines ? (size_t)gpu_lines_of(fifos[k].capacity) * TT_CUDA_LINE
                          : TT_ROUND_UP((size_t)fifos[k].capacity, (size_t)TT_CUDA_LINE);
      l->size += (fifos[k].mask + (size_t)1) * l->bytes[k];
    }
  }
}

static ncclResult_t inbox_fill(const tt_gpu_port *p, struct gpu_inbox *l, const tt_fifo fifos[TT_NFIFOS])
{
  inbox_divide(p, l, fifos);
  TT_TRY(l->far ? tt_gpu_alloc_lasting(l->device, l->size, &l->memory)
                : tt_gpu_pool_take(l->device, l->size, &l->memory));
  TT_TRY(tt_gpu_enter(l->device));
  const size_t lines = l->at[TT_SIMPLE];
  const ncclResult_t res = lines > 0 ? lines_clear(l, lines) : ncclSuccess;
  tt_gpu_leave();
  return res;
}

// Makes the inbox of one rank for the other one's messages, which nobody knows of yet.
static ncclResult_t inbox_new(const tt_gpu_port *p, int from, int to, int device, const tt_fifo fifos[TT_NFIFOS],
                              struct gpu_inbox **made)
{
  struct gpu_inbox *l;
  TT_TRY(TT_NEW(l, 1, "GPU %d: no memory for a connection", device));
  *l = (struct gpu_inbox){.hash = p->port->hash, .from = from, .to = to, .device = device, .next = *made};
  *made = l; // the caller frees it if this fails
  return inbox_fill(p, l, fifos);
}

// What this port has made becomes the pair's, unless the peer has been faster, or has gone. Returns what is not used.
static struct gpu_inbox *inbox_publish(const tt_gpu_port *p, int peer, struct gpu_inbox *made)
{
  const int rank = p->port->rank;
  pthread_mutex_lock(&lock);
  if (inbox_find(p->port->hash, rank, peer) == NULL && inbox_peer(p, peer) != NULL) {
    made->next->next = all_inboxes; // both directions
    all_inboxes = made;
    made = NULL;
  }
  pthread_mutex_unlock(&lock);
  return made;
}

static ncclResult_t inbox_make(const tt_gpu_port *p, const tt_link *link, int device)
{
  struct gpu_inbox *made = NULL;
  const int rank = p->port->rank;
  ncclResult_t res = inbox_new(p, link->peer, rank, p->device, link->recv, &made);
  res = res == ncclSuccess ? inbox_new(p, rank, link->peer, device, link->send, &made) : res;
  inbox_free(res == ncclSuccess ? inbox_publish(p, link->peer, made) : made);
  return res;
}

// Takes what the pair has. False: it has none.
static bool inbox_come(tt_gpu_port *p, const tt_link *link, int *device)
{
  const int rank = p->port->rank, peer = link->peer;
  pthread_mutex_lock(&lock);
  const tt_gpu_port *other = inbox_has(p) ? inbox_peer(p, peer) : NULL;
  *device = other != NULL ? other->device : -1;
  struct gpu_inbox *in = inbox_find(p->port->hash, peer, rank), *out = inbox_find(p->port->hash, rank, peer);
  p->inboxes[peer][0] = in;
  p->inboxes[peer][1] = out;
  pthread_mutex_unlock(&lock);
  return in != NULL;
}

// ---- Ranks of other processes ----

static ncclResult_t inbox_new_far(const tt_gpu_port *p, struct gpu_inbox **out)
{
  TT_TRY(TT_NEW(*out, 1, "GPU %d: no memory for a connection", p->device));
  **out = (struct gpu_inbox){.far = true, .device = p->device};
  return ncclSuccess;
}

// Makes the memory for what this rank receives, and has the peer open it. Without it the messages are in slots.
static ncclResult_t inbox_offer(tt_gpu_port *p, const tt_link *link)
{
  struct gpu_inbox *l = NULL;
  bool taken = false;
  TT_TRY(inbox_new_far(p, &l));
  ncclResult_t res = inbox_fill(p, l, link->recv);
  if (res == ncclSuccess) {
    res = tt_gpu_ipc_offer_inbox(p, link->peer, l->memory, l->size, &taken);
  } else if (l->memory == NULL) {
    res = ncclSuccess;
  }
  if (taken) {
    p->inboxes[link->peer][0] = l;
    inbox_log(p, link->peer, "of");
    return ncclSuccess;
  }
  inbox_free_far(p, l);
  TT_TRY(res);
  tt_info(TT_INIT, "rank %d: messages of rank %d go by way of the host", p->port->rank, link->peer);
  return ncclSuccess;
}

// Without access to the peer's GPU neither of the two offers anything: all ranks know of it.
static ncclResult_t inbox_connect_far(tt_gpu_port *p, const tt_link *link)
{
  struct gpu_inbox **out = &p->inboxes[link->peer][1];
  if (link->access == TT_ACCESS_NONE || !tt_gpu_ipc_takes_inbox(p, link->peer)) {
    return ncclSuccess;
  }
  TT_TRY(inbox_new_far(p, out));
  inbox_divide(p, *out, link->send);
  if (!tt_gpu_can_last(p->device)) {
    tt_info(TT_INIT,
            "rank %d: messages of rank %d go by way of the host: GPU %d has no memory that processes can share",
            p->port->rank, link->peer, p->device);
    return ncclSuccess;
  }
  return inbox_offer(p, link);
}

bool tt_gpu_inbox_take(tt_gpu_port *p, int peer, const char *memory)
{
  if (p->inbox_out == NULL) {
    return false;
  }
  atomic_store_explicit(&p->inbox_out[peer], gpu_address(memory), memory_order_release);
  return true;
}

ncclResult_t tt_gpu_inbox_connect(tt_gpu_port *p, const tt_link *link)
{
  int device;
  if (p->inboxes == NULL || link->peer == p->port->rank) {
    return ncclSuccess;
  }
  if (tt_gpu_ipc_has(p, link->peer)) {
    return inbox_connect_far(p, link);
  }
  bool come = inbox_come(p, link, &device);
  if (!come && device >= 0 && tt_gpu_join(p->device, device) && tt_gpu_join(device, p->device)) {
    TT_TRY(inbox_make(p, link, device));
    come = inbox_come(p, link, &device);
  }
  if (come) {
    inbox_log(p, link->peer, "with");
  }
  return ncclSuccess;
}

// ---- Messages ----

CUdeviceptr tt_gpu_inbox_at(const tt_gpu_port *p, int peer, const tt_fifo *f, bool *lines)
{
  const tt_link *link = p->port->links[peer];
  const bool sends = f >= link->send && f < link->send + TT_NFIFOS;
  const ptrdiff_t kind = f - (sends ? link->send : link->recv);
  const struct gpu_inbox *l = p->inboxes != NULL && peer < p->nranks ? p->inboxes[peer][sends] : NULL;
  const CUdeviceptr base = l == NULL           ? 0
                           : l->memory == NULL ? atomic_load_explicit(&p->inbox_out[peer], memory_order_acquire)
                                               : gpu_address(l->memory);
  *lines = has_lines(p, (int)kind);
  return base == 0 || l->bytes[kind] == 0 ? 0 : base + l->at[kind] + (f->next & f->mask) * l->bytes[kind];
}

uint64_t tt_gpu_lines_flag(const tt_fifo *f, const tt_call *call)
{
  const uint64_t parts[] = {call->sig, call->sig_count & ~TT_CUDA_DECIDED};
  return tt_hash(parts, sizeof parts, 5) << 32 | (uint64_t)1 << 32 | (uint32_t)(f->next + 1);
}

// A child of a fork cannot use its parent's GPUs, and another thread may have been here.
static void inbox_in_child(void)
{
  all_inboxes = NULL;
  ports = NULL;
  pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void inbox_at_start(void)
{
  static tt_fork_hook hook = {.fn = inbox_in_child};
  tt_proc_on_fork(&hook);
}
