// ipc.c: see ipc.h.
#include "device/host/ipc.h"

#include <pthread.h>
#include <sys/stat.h>

#include "base/result.h"
#include "base/spans.h"
#include "device/host/mem.h"
#include "os/shm.h"

#define MAGIC_MEMORY 0x746d656du // "tmem"
#define MAGIC_EVENT 0x74657674u  // "tevt"
#define SLOTS 256                // events per piece of shared memory

// What stands in a handle.
typedef struct handle {
  uint32_t magic;
  int32_t pid;
  uint64_t start; // of the process
  uint64_t space; // of process numbers (tt_proc_pid_space)
  uint64_t inode;
  uint64_t size;
  int32_t fd;
  int32_t device;
  uint32_t slot;
  uint32_t generation;
  uint64_t cookie; // of the process
} handle;
_Static_assert(sizeof(handle) == sizeof(tuttiIpcMemHandle_t) && sizeof(handle) == sizeof(tuttiIpcEventHandle_t),
               "64 bytes, as CUDA's");

// Another process's memory that is mapped here.
typedef struct import {
  struct import *before, *next;
  tt_span by_inode, by_base; // one number each
  void *base;
  size_t size;
  int refs;
} import;

// A piece of shared memory for this process's events, or one of another process.
typedef struct chunk {
  struct chunk *next, *next_free;
  tt_span by_inode, by_address;
  int fd; // -1: another process's
  tt_event_slot *slots;
  uint16_t free[SLOTS]; // of this process's own: numbers of the slots that nobody has
  int nfree;
} chunk;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of what follows
static import *imports;
static tt_span *imports_by_inode, *imports_by_base;
static chunk *chunks;      // never freed: threads may be about to sleep on a bell in them
static chunk *free_chunks; // those with free slots
static tt_span *chunks_by_inode, *chunks_by_address;

// What is looked for by a number.
static tt_span at_number(uint64_t number)
{
  return (tt_span){.start = (uintptr_t)number, .size = 1};
}

static uint64_t inode_of(int fd)
{
  struct stat st;
  return fstat(fd, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

static handle handle_for(uint32_t magic, int fd, size_t size)
{
  tt_proc_id me = tt_proc_self();
  return (handle){.magic = magic,
                  .pid = me.pid,
                  .start = me.start,
                  .space = tt_proc_pid_space(),
                  .inode = inode_of(fd),
                  .size = size,
                  .fd = fd,
                  .cookie = me.cookie};
}

// Opens what a handle names.
static ncclResult_t open_handle(const handle *h, int *fd)
{
  tt_proc_id owner = {.pid = h->pid, .start = h->start};
  if (h->space != tt_proc_pid_space()) {
    return tt_fail(ncclSystemError,
                   "the handle of process %d comes from another pid name space (container): its memory is out of reach",
                   h->pid);
  }
  TT_TRY(tt_proc_open_fd(&owner, h->fd, h->inode, fd));
  if (tt_shm_size(*fd) < h->size) {
    tt_fd_close(*fd);
    return tt_fail(ncclInvalidArgument, "the handle says %llu bytes, the memory of process %d has %zu",
                   (unsigned long long)h->size, h->pid, tt_shm_size(*fd));
  }
  return ncclSuccess;
}

ncclResult_t tt_ipc_export(const void *ptr, tuttiIpcMemHandle_t *out)
{
  tt_block b;
  if (!tt_heap_find(ptr, &b) || b.kind != tuttiMemoryDevice || b.owner == TT_BLOCK_IMPORTED) {
    return tt_fail(ncclInvalidArgument, "%p is no device memory that was allocated by this process: it has no handle",
                   ptr);
  }
  TT_TRY(tt_heap_show(&b));
  handle h = handle_for(MAGIC_MEMORY, b.fd, b.size);
  h.device = b.device;
  memcpy(out, &h, sizeof h);
  return ncclSuccess;
}

// Maps memory that is not mapped yet. Caller holds `lock`.
static ncclResult_t import_new(const handle *h, import **out)
{
  int fd;
  import *m = tt_calloc(1, sizeof *m);
  if (m == NULL) {
    return tt_fail(ncclSystemError, "no memory to open a handle");
  }
  ncclResult_t res = open_handle(h, &fd);
  if (res == ncclSuccess) {
    m->size = h->size;
    res = tt_shm_map(fd, m->size, &m->base);
    tt_fd_close(fd);
  }
  if (res == ncclSuccess) {
    tt_block b = {.base = m->base,
                  .size = m->size,
                  .kind = tuttiMemoryDevice,
                  .owner = TT_BLOCK_IMPORTED,
                  .device = h->device,
                  .fd = -1};
    res = tt_heap_note(&b);
  }
  if (res != ncclSuccess) {
    tt_shm_unmap(m->base, m->size);
    tt_free(m);
    return res;
  }
  m->by_inode = at_number(h->inode);
  m->by_base = at_number((uintptr_t)m->base);
  m->next = imports;
  if (imports != NULL) {
    imports->before = m;
  }
  imports = m;
  tt_spans_add(&imports_by_inode, &m->by_inode);
  tt_spans_add(&imports_by_base, &m->by_base);
  *out = m;
  return ncclSuccess;
}

// Unmaps what nobody uses any more. Caller holds `lock`, and frees *m.
static void drop_import(import *m)
{
  *(m->before != NULL ? &m->before->next : &imports) = m->next;
  if (m->next != NULL) {
    m->next->before = m->before;
  }
  tt_spans_remove(&imports_by_inode, &m->by_inode);
  tt_spans_remove(&imports_by_base, &m->by_base);
  tt_heap_forget(m->base, TT_BLOCK_IMPORTED);
  tt_shm_unmap(m->base, m->size);
}

ncclResult_t tt_ipc_open(const tuttiIpcMemHandle_t *in, void **ptr)
{
  handle h;
  memcpy(&h, in, sizeof h);
  if (h.magic != MAGIC_MEMORY || h.size == 0) {
    return tt_fail(ncclInvalidArgument, "these 64 bytes are no handle of memory");
  }
  if (h.cookie == tt_proc_self().cookie) {
    return tt_fail(ncclInvalidUsage, "the handle was made by this process: use the pointer");
  }
  ncclResult_t res = ncclSuccess;
  pthread_mutex_lock(&lock);
  tt_span *known = tt_spans_same(imports_by_inode, (uintptr_t)h.inode, 1);
  import *m = known != NULL ? TT_SPAN_OWNER(known, import, by_inode) : NULL;
  if (m == NULL) {
    res = import_new(&h, &m);
  }
  if (res == ncclSuccess) {
    m->refs++;
    *ptr = m->base;
  }
  pthread_mutex_unlock(&lock);
  return res;
}

ncclResult_t tt_ipc_close(void *ptr)
{
  pthread_mutex_lock(&lock);
  tt_span *found = tt_spans_same(imports_by_base, (uintptr_t)ptr, 1);
  import *m = found != NULL ? TT_SPAN_OWNER(found, import, by_base) : NULL, *gone = NULL;
  if (m != NULL && --m->refs == 0) {
    gone = m;
    drop_import(m);
  }
  pthread_mutex_unlock(&lock);
  tt_free(gone);
  return found != NULL ? ncclSuccess
                       : tt_fail(ncclInvalidArgument, "%p was not opened by a handle, or has been closed", ptr);
}

// ---- Events ----

// A chunk over `fd`, which it keeps (own) or closes. Caller holds `lock`.
static ncclResult_t add_chunk(int fd, bool own, chunk **out)
{
  void *p = NULL;
  chunk *c = tt_calloc(1, sizeof *c);
  ncclResult_t res = c == NULL ? tt_fail(ncclSystemError, "no memory for events between processes")
                               : tt_shm_map(fd, SLOTS * sizeof(tt_event_slot), &p);
  if (res == ncclSuccess) {
    c->fd = own ? fd : -1;
    c->slots = p;
    c->by_inode = at_number(inode_of(fd));
    c->by_address = (tt_span){.start = (uintptr_t)p, .size = SLOTS * sizeof(tt_event_slot)};
    c->next = chunks;
    chunks = c;
    tt_spans_add(&chunks_by_inode, &c->by_inode);
    tt_spans_add(&chunks_by_address, &c->by_address);
    *out = c;
  } else {
    tt_free(c);
  }
  if (res != ncclSuccess || !own) {
    tt_fd_close(fd);
  }
  return res;
}

// A new chunk of the process's own, all of whose slots are free. Caller holds `lock`.
static ncclResult_t add_free_chunk(void)
{
  int fd;
  chunk *c;
  TT_TRY(tt_shm_create("tutti-events", SLOTS * sizeof(tt_event_slot), &fd));
  TT_TRY(add_chunk(fd, true, &c));
  for (int i = SLOTS; i-- > 0;) {
    c->free[c->nfree++] = (uint16_t)i;
  }
  c->next_free = free_chunks;
  free_chunks = c;
  return ncclSuccess;
}

// Takes a free slot, of which there is one. Caller holds `lock`.
static tt_event_slot *ipc_take_slot(void)
{
  chunk *c = free_chunks;
  tt_event_slot *s = &c->slots[c->free[--c->nfree]];
  if (c->nfree == 0) {
    free_chunks = c->next_free;
  }
  return s;
}

ncclResult_t tt_ipc_slot_new(tt_event_slot **out)
{
  pthread_mutex_lock(&lock);
  ncclResult_t res = free_chunks == NULL ? add_free_chunk() : ncclSuccess;
  *out = res == ncclSuccess ? ipc_take_slot() : NULL;
  pthread_mutex_unlock(&lock);
  return res;
}

// The chunk that holds a slot. Caller holds `lock`.
static chunk *chunk_of(const tt_event_slot *slot)
{
  tt_span *s = tt_spans_holder(chunks_by_address, (uintptr_t)slot, 1);
  return s != NULL ? TT_SPAN_OWNER(s, chunk, by_address) : NULL;
}

void tt_ipc_slot_free(tt_event_slot *slot)
{
  pthread_mutex_lock(&lock);
  chunk *c = chunk_of(slot);
  if (c != NULL && c->fd >= 0) {
    atomic_fetch_add(&slot->generation, 1);
    atomic_store(&slot->recorded, 0);
    atomic_store(&slot->reached, 0);
    atomic_store(&slot->pid, 0);
    if (c->nfree == 0) {
      c->next_free = free_chunks;
      free_chunks = c;
    }
    c->free[c->nfree++] = (uint16_t)(slot - c->slots);
  }
  pthread_mutex_unlock(&lock);
}

ncclResult_t tt_ipc_slot_export(const tt_event_slot *slot, tuttiIpcEventHandle_t *out)
{
  pthread_mutex_lock(&lock);
  const chunk *c = chunk_of(slot);
  pthread_mutex_unlock(&lock);
  if (c == NULL || c->fd < 0) {
    return tt_fail(ncclInvalidArgument, "the event comes from another process: only its owner can make a handle");
  }
  handle h = handle_for(MAGIC_EVENT, c->fd, SLOTS * sizeof *slot);
  h.slot = (uint32_t)(slot - c->slots);
  h.generation = atomic_load(&slot->generation);
  memcpy(out, &h, sizeof h);
  return ncclSuccess;
}

ncclResult_t tt_ipc_slot_open(const tuttiIpcEventHandle_t *in, tt_event_slot **out, uint32_t *generation)
{
  handle h;
  memcpy(&h, in, sizeof h);
  if (h.magic != MAGIC_EVENT || h.slot >= SLOTS || h.size != SLOTS * sizeof(tt_event_slot)) {
    return tt_fail(ncclInvalidArgument, "these 64 bytes are no handle of an event");
  }
  if (h.cookie == tt_proc_self().cookie) {
    return tt_fail(ncclInvalidUsage, "the handle was made by this process: use the event");
  }
  ncclResult_t res = ncclSuccess;
  pthread_mutex_lock(&lock);
  tt_span *known = tt_spans_same(chunks_by_inode, (uintptr_t)h.inode, 1);
  chunk *c = known != NULL ? TT_SPAN_OWNER(known, chunk, by_inode) : NULL;
  if (c == NULL) {
    int fd;
    res = open_handle(&h, &fd);
    res = res == ncclSuccess ? add_chunk(fd, false, &c) : res;
  }
  pthread_mutex_unlock(&lock);
  TT_TRY(res);
  if (atomic_load(&c->slots[h.slot].generation) != h.generation) {
    return tt_fail(ncclInvalidArgument, "process %d has destroyed the event", h.pid);
  }
  *out = &c->slots[h.slot];
  *generation = h.generation;
  return ncclSuccess;
}

// Another thread of the parent may have been changing the trees: they are made anew.
void tt_ipc_forked(void)
{
  pthread_mutex_init(&lock, NULL);
  free_chunks = NULL;
  imports_by_inode = imports_by_base = chunks_by_inode = chunks_by_address = NULL;
  for (import *m = imports; m != NULL; m = m->next) {
    tt_spans_add(&imports_by_inode, &m->by_inode);
    tt_spans_add(&imports_by_base, &m->by_base);
  }
  for (chunk *c = chunks; c != NULL; c = c->next) {
    tt_spans_add(&chunks_by_inode, &c->by_inode);
    tt_spans_add(&chunks_by_address, &c->by_address);
    c->fd = -1; // the descriptor itself stays open with the parent's number; it is closed on exec
  }
}
