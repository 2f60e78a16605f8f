// segment.c: see segment.h.
#include "transport/segment.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/spans.h"
#include "device/rma_link.h"
#include "os/clock.h"
#include "os/fdbox.h"
#include "os/proc.h"
#include "os/shm.h"

#define OUTBOX_RANKS 8 // ranks of a machine up to which each pair has outboxes
#define NAME "tutti-comm"

typedef tt_segment_header seg_header;

struct tt_segment {
  int n, *ranks;
  char *base;
  size_t size, pages_at, boards_at, mails_at, windows_at, window_bytes, puts_at;
  bool puts; // there are FIFOs of puts
  tt_geometry geometry;
  int fd;   // of the memory; -1: private to the process. Kept, and the only one of this file: closing another would end
            // the lock (tt_proc_hold)
  int refs; // ranks of this process; under `lock`
  int ready;         // 0 not yet, 1 mapped, -1 failed; under `lock`
  tt_span by_secret; // of the process's; see segment_key
};

// Segments of this process, for ranks that share one. Everything under `lock`.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static tt_span *segments;

// Segments are found by their secrets, which are random, as a start and a size.
static tt_span segment_key(const uint8_t *secret)
{
  uint64_t words[2];
  memcpy(words, secret, sizeof words);
  return (tt_span){.start = (uintptr_t)words[0], .size = (size_t)words[1] | 1};
}

// For two chunks of the longest that one token offers, or of those of an all-reduce (comm/tuning.c), which has two
// under way.
uint32_t tt_outbox_bytes(int nranks)
{
  return nranks <= 4 ? 2u << 20 : nranks <= OUTBOX_RANKS ? 1u << 20 : 0;
}

static void segment_lay_out(tt_segment *s)
{
  s->pages_at = TT_SEGMENT_PAGES;
  s->boards_at = TT_ROUND_UP(s->pages_at + (size_t)s->n * sizeof(tt_rank_page), 4096);
  s->mails_at = TT_ROUND_UP(s->boards_at + (size_t)s->n * tt_board_bytes(s->n), 4096);
  s->windows_at = TT_ROUND_UP(s->mails_at + (size_t)s->n * (size_t)s->n * sizeof(tt_mail), 4096);
  s->window_bytes = tt_window_bytes(&s->geometry) + tt_outbox_bytes(s->n);
  s->puts_at = s->windows_at + (size_t)s->n * (size_t)s->n * s->window_bytes;
  s->size = s->puts_at + (s->puts ? (size_t)s->n * (size_t)s->n * tt_rma_fifo_bytes() : 0);
}

size_t tt_segment_bytes(const tt_geometry *g, int nranks, bool puts)
{
  tt_segment s = {.n = nranks, .puts = puts, .geometry = *g};
  segment_lay_out(&s);
  return s.size;
}

// Finds the process's entry for this communicator, or adds one; counts the caller in. NULL: no memory.
static tt_segment *segment_enter(const tt_local *who)
{
  pthread_mutex_lock(&lock);
  tt_span key = segment_key(who->secret), *found = tt_spans_same(segments, key.start, key.size);
  tt_segment *s = found == NULL ? NULL : TT_SPAN_OWNER(found, tt_segment, by_secret);
  if (s == NULL && (s = tt_calloc(1, sizeof *s)) != NULL) {
    s->ranks = tt_calloc((size_t)who->n, sizeof *s->ranks);
    if (s->ranks == NULL) {
      tt_free(s);
      s = NULL;
    } else {
      memcpy(s->ranks, who->ranks, (size_t)who->n * sizeof *s->ranks);
      s->n = who->n;
      s->puts = who->puts;
      s->fd = -1;
      s->by_secret = key;
      tt_spans_add(&segments, &s->by_secret);
    }
  }
  if (s != NULL) {
    s->refs++;
  }
  pthread_mutex_unlock(&lock);
  return s;
}

void tt_segment_leave(tt_segment *s)
{
  if (s == NULL) {
    return;
  }
  pthread_mutex_lock(&lock);
  bool last = --s->refs == 0;
  if (last) {
    tt_spans_remove(&segments, &s->by_secret);
  }
  pthread_mutex_unlock(&lock);
  if (last) {
    tt_shm_unmap(s->base, s->size);
    tt_fd_close(s->fd);
    tt_free(s->ranks);
    tt_free(s);
  }
}

static tt_fdkey segment_fdkey(const tt_local *who, int place)
{
  tt_fdkey key = {0};
  memcpy(key.bytes, who->secret, 16);
  memcpy(key.bytes + 16, &place, sizeof place);
  return key;
}

// Memory that other processes find.
static ncclResult_t segment_create_shared(tt_segment *s, tt_segment_note *note)
{
  struct stat st;
  TT_TRY(tt_shm_create(NAME, s->size, &s->fd));
  TT_TRY(tt_proc_hold(s->fd));
  if (fstat(s->fd, &st) != 0) {
    return tt_fail(ncclSystemError, "cannot ask for the inode number of the shared segment: fstat: %s",
                   strerror(errno));
  }
  note->fd = s->fd;
  note->inode = (uint64_t)st.st_ino;
  return ncclSuccess;
}

// The first local rank makes the segment.
static ncclResult_t segment_create(tt_segment *s, const tt_local *who, tt_segment_note *note)
{
  s->geometry = who->geometry;
  segment_lay_out(s);
  if (!who->one_process) {
    TT_TRY(segment_create_shared(s, note));
  }
  TT_TRY(tt_shm_map(s->fd, s->size, (void **)&s->base));
  seg_header *h = (seg_header *)s->base;
  *h = (seg_header){.magic = TT_SEGMENT_MAGIC,
                    .size = s->size,
                    .geometry = s->geometry,
                    .hash = who->hash,
                    .nranks = who->nranks,
                    .n = s->n};
  for (int i = 0; i < TT_MIN(s->n, TT_SEGMENT_RANKS); i++) {
    h->ranks[i] = (tt_segment_rank){.rank = who->ranks[i], .pid = who->procs[i].pid};
  }
  tt_info(TT_SHM, "shared segment of %zu bytes (sparse) for %d local ranks, slots %u x %u B + %u x %u B per pair",
          s->size, s->n, s->geometry.simple_slots, s->geometry.simple_slot_bytes, s->geometry.ll_slots,
          s->geometry.ll_slot_bytes);
  return ncclSuccess;
}

// Creation waits as long for the segment as for the ranks.
static uint64_t segment_timeout_ns(void)
{
  return tt_span_ns(tt_params_get()->bootstrap_timeout, TT_NS_PER_S);
}

// Opens the first local rank's descriptor.
static ncclResult_t segment_pull(tt_segment *s, const tt_local *who, const tt_segment_note *note)
{
  int pid = who->procs[0].pid, e = tt_proc_open_shm(pid, note->fd, NAME, note->inode, &s->fd);
  if (e == ENOENT) {
    return tt_fail(ncclRemoteError,
                   "rank %d (process %d) has ended before rank %d could open the memory that they share", who->ranks[0],
                   pid, who->ranks[who->me]);
  }
  return e == 0 ? ncclSuccess
                : tt_fail(ncclSystemError,
                          "rank %d cannot open the memory that it shares with rank %d: /proc/%d/fd/%d: %s",
                          who->ranks[who->me], who->ranks[0], pid, note->fd, strerror(e));
}

static ncclResult_t segment_receive(tt_segment *s, const tt_local *who, const tt_segment_note *notes,
                                    const volatile uint32_t *abort_flag)
{
  tt_fdkey key = segment_fdkey(who, who->me);
  if (notes[who->ranks[who->me]].pushed != 0) {
    TT_TRY(
        tt_fdbox_take(&key, (int)TT_MIN(segment_timeout_ns() / TT_NS_PER_MS, (uint64_t)INT_MAX), abort_flag, &s->fd));
  } else {
    TT_TRY(segment_pull(s, who, &notes[who->ranks[0]]));
  }
  size_t size = tt_shm_size(s->fd);
  void *p = NULL;
  if (size < 4096) {
    return tt_fail(ncclSystemError, "shared segment of local rank %d is too small (%zu bytes)", who->ranks[0], size);
  }
  TT_TRY(tt_proc_hold(s->fd));
  TT_TRY(tt_shm_map(s->fd, size, &p));
  const seg_header *h = p;
  s->geometry = h->geometry;
  segment_lay_out(s);
  if (h->magic != TT_SEGMENT_MAGIC || h->size != s->size || s->size > size) {
    tt_shm_unmap(p, size);
    return tt_fail(ncclSystemError,
                   "shared segment of local rank %d does not look like ours (%zu bytes, expected %zu): different "
                   "library versions?",
                   who->ranks[0], size, s->size);
  }
  s->base = p;
  return ncclSuccess;
}

// Waits until the process's first rank has mapped the segment.
static ncclResult_t segment_await(tt_segment *s, const volatile uint32_t *abort_flag)
{
  uint64_t end_ns = tt_now_ns() + segment_timeout_ns();
  pthread_mutex_lock(&lock);
  while (s->ready == 0 && tt_now_ns() < end_ns && !__atomic_load_n(abort_flag, __ATOMIC_RELAXED)) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += 100 * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&changed, &lock, &t);
  }
  int ready = s->ready;
  pthread_mutex_unlock(&lock);
  if (ready == 1) {
    return ncclSuccess;
  }
  return __atomic_load_n(abort_flag, __ATOMIC_RELAXED)
             ? ncclInternalError
             : tt_fail(ncclSystemError, "another rank of this process could not join the shared segment%s",
                       ready == 0 ? " in time (NCCL_BOOTSTRAP_TIMEOUT)" : "");
}

// Tells the other ranks of this process how it went.
static void segment_announce(tt_segment *s, ncclResult_t res)
{
  pthread_mutex_lock(&lock);
  s->ready = res == ncclSuccess ? 1 : -1;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

ncclResult_t tt_segment_open(const tt_local *who, tt_segment **out, tt_segment_note *note)
{
  tt_segment *s = segment_enter(who);
  ncclResult_t res = ncclSuccess;
  if (s == NULL) {
    return tt_fail(ncclSystemError, "no memory for the shared segment of %d local ranks", who->n);
  }
  *note = (tt_segment_note){.fd = -1, .pushed = who->me == who->leader && who->me != 0 && !who->pulls};
  if (who->me == 0) {
    res = segment_create(s, who, note);
    segment_announce(s, res);
  }
  if (res != ncclSuccess) {
    tt_segment_leave(s);
    return res;
  }
  *out = s;
  return ncclSuccess;
}

ncclResult_t tt_segment_push(const tt_segment *s, const tt_local *who, const tt_segment_note *notes)
{
  for (int i = 1; i < who->n && who->me == 0; i++) {
    if (notes[who->ranks[i]].pushed != 0) {
      tt_fdkey key = segment_fdkey(who, i);
      TT_TRY(tt_fdbox_push(who->mailboxes[i], &key, s->fd));
    }
  }
  return ncclSuccess;
}

ncclResult_t tt_segment_join(tt_segment *s, const tt_local *who, const tt_segment_note *notes,
                             const volatile uint32_t *abort_flag)
{
  if (who->me != who->leader || who->me == 0) {
    return segment_await(s, abort_flag);
  }
  ncclResult_t res = segment_receive(s, who, notes, abort_flag);
  segment_announce(s, res);
  return res;
}

tt_rank_page *tt_segment_page(tt_segment *s, int place)
{
  return (tt_rank_page *)(s->base + s->pages_at) + place;
}

tt_mail *tt_segment_mail(tt_segment *s, int from, int to)
{
  return (tt_mail *)(s->base + s->mails_at) + (size_t)from * (size_t)s->n + (size_t)to;
}

char *tt_segment_window(tt_segment *s, int from, int to)
{
  return s->base + s->windows_at + ((size_t)from * (size_t)s->n + (size_t)to) * s->window_bytes;
}

char *tt_segment_puts(tt_segment *s, int from, int to)
{
  return s->base + s->puts_at + ((size_t)from * (size_t)s->n + (size_t)to) * tt_rma_fifo_bytes();
}

void *tt_segment_messages(tt_segment *s, int from, int to, size_t *size)
{
  const size_t first = 4096; // heads, tokens and the headers of SIMPLE
  *size = s->window_bytes - first;
  return tt_segment_window(s, from, to) + first;
}

tt_board *tt_segment_board(tt_segment *s, int place)
{
  return (tt_board *)(s->base + s->boards_at + (size_t)place * tt_board_bytes(s->n));
}

int tt_segment_life(const tt_segment *s)
{
  return s->fd;
}

int tt_segment_place(const tt_segment *s, int rank)
{
  for (int i = 0; i < s->n; i++) {
    if (s->ranks[i] == rank) {
      return i;
    }
  }
  return -1;
}

void tt_segment_connect(tt_segment *s, tt_link *link, tt_link_env *env)
{
  int me = tt_segment_place(s, link->rank), peer = tt_segment_place(s, link->peer);
  char *to = tt_segment_window(s, me, peer), *from = tt_segment_window(s, peer, me);
  size_t behind = tt_window_bytes(&s->geometry);
  tt_window_view(&s->geometry, to, link->send);
  tt_window_view(&s->geometry, from, link->recv);
  *env = (tt_link_env){.outbox = to + behind,
                       .inbox = from + behind,
                       .box_bytes = tt_outbox_bytes(s->n),
                       .wants = tt_window_wants(from),
                       .wanted = tt_window_wants(to),
                       .windows = {to, from},
                       .window_bytes = behind};
  link->page = tt_segment_page(s, peer);
  link->board = tt_segment_board(s, peer);
  link->out = &link->board->rows[me];
  link->in = &tt_segment_board(s, me)->rows[peer];
}

static void segment_close_inherited(const tt_span *tree)
{
  if (tree != NULL) {
    tt_segment *s = TT_SPAN_OWNER((uintptr_t)tree, tt_segment, by_secret);
    tt_fd_close(s->fd);
    s->fd = -1;
    segment_close_inherited(tree->less);
    segment_close_inherited(tree->more);
  }
}

// A condition counts who waits for it, and a child has none of these threads. The child has no use for its parent's
// segments but what it has mapped.
static void segment_in_child(void)
{
  segment_close_inherited(segments);
  pthread_cond_init(&changed, NULL);
}

__attribute__((constructor)) static void segment_at_start(void)
{
  tt_proc_hold_at_fork(&lock);
  static tt_fork_hook hook = {.fn = segment_in_child};
  tt_proc_on_fork(&hook);
}
