// shared.c: see shared.h.
#include "device/cuda/work/shared.h"

#include "device/cuda/driver.h"
#include "os/shm.h"

// The first chunk's bytes; each next one has twice as many, up to the most, or what is wanted. Parts are whole cache
// lines.
enum { CHUNK_LEAST = 256 << 10, CHUNK_DOUBLED = 6, PAGE_BYTES = 4096 };

struct gpu_area {
  gpu_area *next;
  size_t offset, bytes;
  bool taken;
};

// ---- Chunks ----

static ncclResult_t chunk_add(gpu_shared *s, int fd, size_t bytes, gpu_chunk **out)
{
  gpu_chunk *c = NULL;
  void *base = NULL;
  TT_TRY(TT_NEW(c, 1, "no memory for captured operations"));
  const ncclResult_t res = tt_shm_map(fd, bytes, &base);
  if (res != ncclSuccess) {
    tt_free(c);
    return res;
  }
  *c = (gpu_chunk){.next = s->chunks, .base = base, .bytes = bytes, .number = s->n++, .fd = fd};
  s->chunks = c;
  *out = c;
  return ncclSuccess;
}

static ncclResult_t chunk_make(gpu_shared *s, size_t least)
{
  const size_t bytes =
      TT_MAX(TT_ROUND_UP(least, (size_t)PAGE_BYTES), (size_t)CHUNK_LEAST << TT_MIN(s->n, (uint32_t)CHUNK_DOUBLED));
  gpu_area *area = NULL;
  gpu_chunk *c = NULL;
  int fd = -1;
  TT_TRY(TT_NEW(area, 1, "no memory for captured operations"));
  ncclResult_t res = tt_shm_create("tutti-captured", bytes, &fd);
  res = res == ncclSuccess ? chunk_add(s, fd, bytes, &c) : res;
  if (res != ncclSuccess) {
    tt_fd_close(fd);
    tt_free(area);
    return res;
  }
  area->bytes = bytes;
  c->areas = area;
  return ncclSuccess;
}

ncclResult_t tt_gpu_shared_push(gpu_chunk *c, const char *mailbox)
{
  if (c->fd >= 0) {
    TT_TRY(tt_fdbox_push(mailbox, NULL, c->fd));
    tt_fd_close(c->fd);
    c->fd = -1;
  }
  return ncclSuccess;
}

ncclResult_t tt_gpu_shared_find(gpu_shared *s, uint32_t number, int mailbox, gpu_chunk **out)
{
  gpu_chunk *c = s->chunks;
  int fd = -1;
  while (c != NULL && c->number != number) {
    c = c->next;
  }
  if (c == NULL) {
    TT_TRY(tt_fdbox_accept(mailbox, &fd));
    const ncclResult_t res = chunk_add(s, fd, tt_shm_size(fd), &c);
    tt_fd_close(fd);
    TT_TRY(res);
    c->fd = -1;
    c->number = number;
  }
  *out = c;
  return ncclSuccess;
}

ncclResult_t tt_gpu_shared_pin(gpu_chunk *c)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  if (!c->pinned) {
    TT_CUDA(cu, cu->MemHostRegister(c->base, c->bytes, CU_MEMHOSTREGISTER_PORTABLE),
            "cannot pin %zu bytes that captured operations of two ranks share (is there a limit on locked memory?)",
            c->bytes);
    c->pinned = true;
  }
  return ncclSuccess;
}

void tt_gpu_shared_close(gpu_shared *s, bool there)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  for (gpu_chunk *c = s->chunks, *next; c != NULL; c = next) {
    next = c->next;
    if (c->pinned && there) {
      cu->MemHostUnregister(c->base);
    }
    tt_shm_unmap(c->base, c->bytes);
    tt_fd_close(c->fd);
    for (gpu_area *a = c->areas, *after; a != NULL; a = after) {
      after = a->next;
      tt_free(a);
    }
    tt_free(c);
  }
  *s = (gpu_shared){.chunks = NULL};
}

// ---- Parts of them ----

// Cuts what is too much off the area.
static ncclResult_t area_cut(gpu_area *a, size_t bytes)
{
  gpu_area *rest;
  if (a->bytes > bytes) {
    TT_TRY(TT_NEW(rest, 1, "no memory for captured operations"));
    *rest = (gpu_area){.next = a->next, .offset = a->offset + bytes, .bytes = a->bytes - bytes};
    a->next = rest;
    a->bytes = bytes;
  }
  a->taken = true;
  return ncclSuccess;
}

// A free area with so many bytes; NULL: there is none.
static gpu_area *area_find(const gpu_shared *s, size_t bytes, gpu_chunk **chunk)
{
  const size_t size = TT_ROUND_UP(bytes, (size_t)TT_CACHE_LINE);
  for (*chunk = s->chunks; *chunk != NULL; *chunk = (*chunk)->next) {
    for (gpu_area *a = (*chunk)->areas; a != NULL; a = a->next) {
      if (!a->taken && a->bytes >= size) {
        return a;
      }
    }
  }
  return NULL;
}

bool tt_gpu_shared_has(const gpu_shared *s, size_t bytes)
{
  gpu_chunk *chunk;
  return area_find(s, bytes, &chunk) != NULL;
}

ncclResult_t tt_gpu_shared_take(gpu_shared *s, size_t bytes, gpu_part *out)
{
  const size_t size = TT_ROUND_UP(bytes, (size_t)TT_CACHE_LINE);
  gpu_chunk *chunk = NULL;
  gpu_area *a = area_find(s, size, &chunk);
  if (a == NULL) {
    TT_TRY(chunk_make(s, size));
    a = area_find(s, size, &chunk);
  }
  TT_TRY(area_cut(a, size));
  *out = (gpu_part){.chunk = chunk, .offset = a->offset};
  return ncclSuccess;
}

// Free areas beside each other become one.
static void areas_join(gpu_area *first)
{
  for (gpu_area *a = first; a != NULL; a = a->next) {
    while (!a->taken && a->next != NULL && !a->next->taken) {
      gpu_area *next = a->next;
      a->bytes += next->bytes;
      a->next = next->next;
      tt_free(next);
    }
  }
}

void tt_gpu_shared_give(const gpu_part *part)
{
  gpu_area *a = part->chunk->areas;
  while (a->offset != part->offset) {
    a = a->next;
  }
  a->taken = false;
  areas_join(part->chunk->areas);
}
