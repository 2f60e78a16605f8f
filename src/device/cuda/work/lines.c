// lines.c: see lines.h.
#include "device/cuda/work/lines.h"

#include <pthread.h>

#include "base/log.h"
#include "device/cuda/memory.h"
#include "device/cuda/work/ipc.h"
#include "device/cuda/work/pool.h"
#include "device/cuda/work/walk.h"
#include "os/proc.h"

// The lines of the messages from one rank to another one. Those with a rank of another process are the port's, and in
// no list.
struct gpu_lines {
  struct gpu_lines *next;
  uint64_t hash;           // the communicator's
  int from, to;            // ranks
  int device;              // the receiver's
  bool far;                // one of the two is in another process
  void *memory;            // NULL: that process has made it, and tt_gpu_port.lines_out says where it is
  size_t at[TT_NFIFOS];    // where those of each FIFO begin,
  size_t bytes[TT_NFIFOS]; // and of each message of it; 0: its messages are in slots
  bool left[2];            // the receiver's port is closed, the sender's
};

// Everything under the lock.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpu_lines *all_lines;
static tt_gpu_port *ports; // that can have messages in lines

static bool has_lines(tt_proto kind)
{
  return kind == TT_LL || kind == TT_TINY;
}

ncclResult_t tt_gpu_lines_open(tt_gpu_port *p)
{
  if (!gpu_walks(p) || !p->port->ll128) {
    return ncclSuccess;
  }
  TT_TRY(TT_NEW(p->lines, p->nranks, "GPU %d: no memory for connections", p->device));
  TT_TRY(TT_NEW(p->lines_out, p->nranks, "GPU %d: no memory for connections", p->device));
  pthread_mutex_lock(&lock);
  p->lines_next = ports;
  ports = p;
  pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

static void lines_free(struct gpu_lines *l)
{
  for (struct gpu_lines *next; l != NULL; l = next) {
    next = l->next;
    tt_gpu_pool_give(l->device, l->memory);
    tt_free(l);
  }
}

static void lines_free_far(const tt_gpu_port *p, struct gpu_lines *l)
{
  if (l == NULL || !l->far) {
    return;
  }
  if (l->memory != NULL) {
    tt_gpu_ipc_drop(p, l->memory);
  }
  tt_free(l);
}

void tt_gpu_lines_close(tt_gpu_port *p)
{
  struct gpu_lines *over = NULL;
  pthread_mutex_lock(&lock);
  tt_gpu_port **here = &ports;
  while (*here != NULL && *here != p) {
    here = &(*here)->lines_next;
  }
  if (*here != NULL) {
    *here = p->lines_next;
  }
  for (struct gpu_lines **at = &all_lines, *l = *at; l != NULL; l = *at) {
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
  lines_free(over); // without the lock: the pool's may be held up
  for (int i = 0; p->lines != NULL && i < p->nranks; i++) {
    lines_free_far(p, p->lines[i][0]);
    lines_free_far(p, p->lines[i][1]);
  }
  tt_free(p->lines);
  tt_free((void *)p->lines_out);
  p->lines = NULL;
  p->lines_out = NULL;
}

// ---- Connecting ----

// The lock is held in this part.

static struct gpu_lines *lines_find(uint64_t hash, int from, int to)
{
  struct gpu_lines *l = all_lines;
  while (l != NULL && (l->hash != hash || l->from != from || l->to != to)) {
    l = l->next;
  }
  return l;
}

// The peer's port, if it is in this process, and can have messages in lines.
static const tt_gpu_port *lines_peer(const tt_gpu_port *p, int peer)
{
  const tt_gpu_port *q = ports;
  while (q != NULL && (q->port->hash != p->port->hash || q->port->rank != peer)) {
    q = q->lines_next;
  }
  return q;
}

static bool lines_has(const tt_gpu_port *p)
{
  const tt_gpu_port *q = ports;
  while (q != NULL && q != p) {
    q = q->lines_next;
  }
  return q != NULL;
}

// ---- Making ----

// All flags are 0, which is none.
static ncclResult_t lines_clear(const struct gpu_lines *l, size_t bytes)
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

// Where the messages of each FIFO are. Returns the bytes of all.
static size_t lines_divide(struct gpu_lines *l, const tt_fifo fifos[TT_NFIFOS])
{
  size_t bytes = 0;
  for (int k = 0; k < TT_NFIFOS; k++) {
    if (has_lines((tt_proto)k) && fifos[k].slots != NULL) {
      l->at[k] = bytes;
      l->bytes[k] = (size_t)gpu_lines_of(fifos[k].capacity) * TT_CUDA_LINE;
      bytes += (fifos[k].mask + (size_t)1) * l->bytes[k];
    }
  }
  return bytes;
}

static ncclResult_t lines_fill(struct gpu_lines *l, const tt_fifo fifos[TT_NFIFOS])
{
  const size_t bytes = lines_divide(l, fifos);
  TT_TRY(l->far ? tt_gpu_alloc_lasting(l->device, bytes, &l->memory) : tt_gpu_pool_take(l->device, bytes, &l->memory));
  TT_TRY(tt_gpu_enter(l->device));
  const ncclResult_t res = lines_clear(l, bytes);
  tt_gpu_leave();
  return res;
}

// Makes the lines from one rank to the other one, which nobody knows of yet.
static ncclResult_t lines_new(uint64_t hash, int from, int to, int device, const tt_fifo fifos[TT_NFIFOS],
                              struct gpu_lines **made)
{
  struct gpu_lines *l;
  TT_TRY(TT_NEW(l, 1, "GPU %d: no memory for a connection", device));
  *l = (struct gpu_lines){.hash = hash, .from = from, .to = to, .device = device, .next = *made};
  *made = l; // the caller frees it if this fails
  return lines_fill(l, fifos);
}

// What this port has made becomes the pair's, unless the peer has been faster, or has gone. Returns what is not used.
static struct gpu_lines *lines_publish(const tt_gpu_port *p, int peer, struct gpu_lines *made)
{
  const int rank = p->port->rank;
  pthread_mutex_lock(&lock);
  if (lines_find(p->port->hash, rank, peer) == NULL && lines_peer(p, peer) != NULL) {
    made->next->next = all_lines; // both directions
    all_lines = made;
    made = NULL;
  }
  pthread_mutex_unlock(&lock);
  return made;
}

static ncclResult_t lines_make(const tt_gpu_port *p, const tt_link *link, int device)
{
  struct gpu_lines *made = NULL;
  const int rank = p->port->rank;
  ncclResult_t res = lines_new(p->port->hash, link->peer, rank, p->device, link->recv, &made);
  res = res == ncclSuccess ? lines_new(p->port->hash, rank, link->peer, device, link->send, &made) : res;
  lines_free(res == ncclSuccess ? lines_publish(p, link->peer, made) : made);
  return res;
}

// Takes what the pair has. False: it has none.
static bool lines_come(tt_gpu_port *p, const tt_link *link, int *device)
{
  const int rank = p->port->rank, peer = link->peer;
  pthread_mutex_lock(&lock);
  const tt_gpu_port *other = lines_has(p) ? lines_peer(p, peer) : NULL;
  *device = other != NULL ? other->device : -1;
  struct gpu_lines *in = lines_find(p->port->hash, peer, rank), *out = lines_find(p->port->hash, rank, peer);
  p->lines[peer][0] = in;
  p->lines[peer][1] = out;
  pthread_mutex_unlock(&lock);
  return in != NULL;
}

// ---- Ranks of other processes ----

static ncclResult_t lines_new_far(const tt_gpu_port *p, struct gpu_lines **out)
{
  TT_TRY(TT_NEW(*out, 1, "GPU %d: no memory for a connection", p->device));
  **out = (struct gpu_lines){.far = true, .device = p->device};
  return ncclSuccess;
}

// Makes the lines of what this rank receives, and has the peer open them. Without them the messages are in slots.
static ncclResult_t lines_offer(tt_gpu_port *p, const tt_link *link)
{
  struct gpu_lines *l = NULL;
  bool taken = false;
  TT_TRY(lines_new_far(p, &l));
  ncclResult_t res = lines_fill(l, link->recv);
  if (l->memory != NULL) {
    res = res == ncclSuccess ? tt_gpu_ipc_offer_lines(p, link->peer, l->memory, lines_divide(l, link->recv), &taken)
                             : res;
  } else {
    tt_info(TT_INIT, "rank %d: messages of rank %d are not LL128: %s", p->port->rank, link->peer, tt_last_error());
    res = ncclSuccess;
  }
  if (!taken) {
    lines_free_far(p, l);
    return res;
  }
  p->lines[link->peer][0] = l;
  tt_info(TT_INIT, "rank %d: LL messages of rank %d are LL128: lines in memory of GPU %d", p->port->rank, link->peer,
          p->device);
  return res;
}

static ncclResult_t lines_connect_far(tt_gpu_port *p, const tt_link *link)
{
  struct gpu_lines **out = &p->lines[link->peer][1];
  if (!tt_gpu_ipc_takes_lines(p, link->peer)) {
    return ncclSuccess;
  }
  TT_TRY(lines_new_far(p, out));
  lines_divide(*out, link->send);
  return lines_offer(p, link);
}

bool tt_gpu_lines_take(tt_gpu_port *p, int peer, const char *lines)
{
  if (p->lines_out == NULL) {
    return false;
  }
  atomic_store_explicit(&p->lines_out[peer], gpu_address(lines), memory_order_release);
  return true;
}

ncclResult_t tt_gpu_lines_connect(tt_gpu_port *p, const tt_link *link)
{
  int device;
  if (p->lines == NULL || link->peer == p->port->rank) {
    return ncclSuccess;
  }
  if (tt_gpu_ipc_has(p, link->peer)) {
    return lines_connect_far(p, link);
  }
  bool come = lines_come(p, link, &device);
  if (!come && device >= 0 && tt_gpu_join(p->device, device) && tt_gpu_join(device, p->device)) {
    TT_TRY(lines_make(p, link, device));
    come = lines_come(p, link, &device);
  }
  if (come) {
    tt_info(TT_INIT, "rank %d: LL messages with rank %d are LL128: lines in memory of the receiver's GPU",
            p->port->rank, link->peer);
  }
  return ncclSuccess;
}

// ---- Messages ----

CUdeviceptr tt_gpu_lines_at(const tt_gpu_port *p, int peer, const tt_fifo *f)
{
  const tt_link *link = p->port->links[peer];
  const bool sends = f >= link->send && f < link->send + TT_NFIFOS;
  const ptrdiff_t kind = f - (sends ? link->send : link->recv);
  const struct gpu_lines *l = p->lines != NULL && peer < p->nranks ? p->lines[peer][sends] : NULL;
  const CUdeviceptr base = l == NULL           ? 0
                           : l->memory == NULL ? atomic_load_explicit(&p->lines_out[peer], memory_order_acquire)
                                               : gpu_address(l->memory);
  return base == 0 || l->bytes[kind] == 0 ? 0 : base + l->at[kind] + (f->next & f->mask) * l->bytes[kind];
}

uint64_t tt_gpu_lines_flag(const tt_fifo *f, const tt_call *call)
{
  const uint64_t parts[] = {call->sig, call->sig_count & ~TT_CUDA_DECIDED};
  return tt_hash(parts, sizeof parts, 5) << 32 | (uint64_t)1 << 32 | (uint32_t)(f->next + 1);
}

// A child of a fork cannot use its parent's GPUs, and another thread may have been here.
static void lines_in_child(void)
{
  all_lines = NULL;
  ports = NULL;
  pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void lines_at_start(void)
{
  static tt_fork_hook hook = {.fn = lines_in_child};
  tt_proc_on_fork(&hook);
}
