// segment_test.c: how windows are laid out, and how the ranks of a machine come to share them.
#define _GNU_SOURCE
#include "transport/child_rig.h"

#include <pthread.h>
#include <sys/resource.h>

#include "base/util.h"
#include "device/rma_link.h"
#include "os/fdbox.h"
#include "os/shm.h"
#include "transport/segment.h"

enum { PAGE = 4096 };

// ---- Layout of a window ----

typedef struct piece {
  size_t from, to;
  char name[40];
} piece;

static piece pieces[2000];
static int npieces;

static void add_piece(const char *base, const void *at, size_t size, const char *name, int i)
{
  piece *p = &pieces[npieces++];
  p->from = (size_t)((const char *)at - base);
  p->to = p->from + size;
  snprintf(p->name, sizeof p->name, "%s %d", name, i);
}

static int by_start(const void *a, const void *b)
{
  size_t x = ((const piece *)a)->from, y = ((const piece *)b)->from;
  return (x > y) - (x < y);
}

static void check_pieces(size_t size)
{
  qsort(pieces, (size_t)npieces, sizeof *pieces, by_start);
  for (int i = 0; i < npieces; i++) {
    assert_true(pieces[i].to <= size);
    if (i > 0 && pieces[i - 1].to > pieces[i].from) {
      fail_msg("%s [%zu, %zu) overlaps %s [%zu, %zu)", pieces[i - 1].name, pieces[i - 1].from, pieces[i - 1].to,
               pieces[i].name, pieces[i].from, pieces[i].to);
    }
  }
}

// Heads, headers and payloads of all FIFOs: nothing overlaps, everything lies where the hardware likes it.
static void check_window(const tt_geometry *g, bool network)
{
  static const char *const names[] = {"SIMPLE", "LL", "TOKEN", "TINY"};
  char *base = (char *)(uintptr_t)(1 << 20); // an address to calculate with
  tt_fifo f[TT_NFIFOS];
  size_t size = network ? tt_net_window_bytes(g) : tt_window_bytes(g);
  assert_true(network || size % PAGE == 0);
  (network ? tt_net_window_view : tt_window_view)(g, base, f);
  npieces = 0;
  add_piece(base, tt_window_wants(base), TT_CACHE_LINE, "what the receiver wants", 0);
  for (int k = 0; k < TT_NFIFOS; k++) {
    assert_int_equal((uintptr_t)f[k].head % TT_CACHE_LINE, 0);
    assert_int_equal((f[k].mask + 1) & f[k].mask, 0);
    add_piece(base, (char *)f[k].head, TT_CACHE_LINE, names[k], -1); // a line of its own
    if (k == TT_TINY && network) {
      assert_null(f[k].slots);
      continue;
    }
    for (f[k].next = 0; f[k].next <= f[k].mask; f[k].next++) {
      char *slot = (char *)tt_fifo_slot(&f[k]), *data = tt_fifo_data(&f[k]);
      assert_int_equal((uintptr_t)slot % TT_CACHE_LINE, 0);
      assert_int_equal((uintptr_t)data % 8, 0);
      if (k == TT_SIMPLE) {
        assert_int_equal((uintptr_t)data % (network ? TT_CACHE_LINE : PAGE), 0);
        assert_true(!network || data == slot + sizeof(tt_slot)); // one piece, one message
        add_piece(base, slot, sizeof(tt_slot), names[k], (int)f[k].next);
        add_piece(base, data, f[k].capacity, names[k], 1000 + (int)f[k].next);
      } else { // the data begins inside the header and may go on behind it
        assert_ptr_equal(data, ((tt_slot *)slot)->data);
        add_piece(base, slot, TT_MAX(sizeof(tt_slot), offsetof(tt_slot, data) + f[k].capacity), names[k],
                  (int)f[k].next);
      }
    }
  }
  assert_int_equal(f[TT_SIMPLE].capacity, network ? g->net_slot_bytes : g->simple_slot_bytes);
  assert_int_equal(f[TT_LL].capacity, g->ll_slot_bytes - offsetof(tt_slot, data));
  assert_true(network || f[TT_TINY].capacity == TT_TINY_BYTES);
  assert_int_equal(f[TT_SIMPLE].mask + 1, g->simple_slots);
  assert_int_equal(f[TT_LL].mask + 1, g->ll_slots);
  check_pieces(size);
}

static void check_window_layout(const tt_geometry *g)
{
  check_window(g, false);
  check_window(g, true);
}

static void test_windows_of_all_kinds(void **state)
{
  static const uint32_t ll[] = {128, 256, 1024, 2048, 65536}, simple[] = {4096, 65536, 524288, 64 << 20};
  (void)state;
  for (uint32_t s = 1; s <= 8; s *= 2) {
    for (uint32_t t = 1; t <= 64; t *= 4) {
      for (size_t i = 0; i < TT_COUNT(ll); i++) {
        for (size_t k = 0; k < TT_COUNT(simple); k++) {
          tt_geometry g = {.ll_slots = t, .ll_slot_bytes = ll[i], .simple_slots = s, .simple_slot_bytes = simple[k]};
          g.net_slot_bytes = simple[(k + i) % TT_COUNT(simple)];
          check_window_layout(&g);
        }
      }
    }
  }
}

// What a rank may be told by another.
static void test_geometries_of_others(void **state)
{
  (void)state;
  const tt_geometry good = {
      .ll_slots = 16, .ll_slot_bytes = 2048, .simple_slots = 8, .simple_slot_bytes = 65536, .net_slot_bytes = 4096};
  assert_true(tt_geometry_valid(&good));
  for (int i = 0; i < 8; i++) {
    tt_geometry g = good;
    uint32_t *field[] = {&g.ll_slots,       &g.ll_slot_bytes, &g.simple_slots,      &g.simple_slot_bytes,
                         &g.net_slot_bytes, &g.ll_slot_bytes, &g.simple_slot_bytes, &g.net_slot_bytes};
    *field[i] = i < 5 ? *field[i] + 1 : UINT32_MAX / 4096 * 4096;
    assert_false(tt_geometry_valid(&g));
    *field[i] = 0;
    assert_false(tt_geometry_valid(&g));
  }
}

// Sender and receiver see the same places.
static void test_a_message_passes(void **state)
{
  static _Alignas(4096) char memory[1 << 16];
  tt_geometry g = {.ll_slots = 4, .ll_slot_bytes = 128, .simple_slots = 2, .simple_slot_bytes = 4096};
  tt_fifo out[TT_NFIFOS], in[TT_NFIFOS];
  (void)state;
  assert_true(tt_window_bytes(&g) <= sizeof memory);
  tt_window_view(&g, memory, out);
  tt_window_view(&g, memory, in);
  for (uint32_t i = 0; i < 100; i++) {
    for (int k = 0; k < TT_NFIFOS; k++) {
      uint32_t bytes = k == TT_TOK ? 40 : out[k].capacity;
      assert_true(tt_fifo_room(&out[k]));
      assert_false(tt_fifo_arrived(&in[k]));
      memset(tt_fifo_data(&out[k]), (int)i + k, bytes);
      tt_fifo_publish(&out[k], bytes, i, i + 1);
      assert_true(tt_fifo_arrived(&in[k]));
      assert_int_equal(tt_fifo_slot(&in[k])->bytes, bytes);
      assert_int_equal(tt_fifo_slot(&in[k])->count, i + 1);
      for (uint32_t b = 0; b < bytes; b++) {
        assert_int_equal((unsigned char)tt_fifo_data(&in[k])[b], (i + (uint32_t)k) & 0xff);
      }
      assert_false(tt_fifo_drained(&out[k]));
      tt_fifo_release(&in[k]);
      assert_true(tt_fifo_drained(&out[k]));
    }
  }
}

// ---- NCCL_BUFFSIZE ----

typedef struct setting {
  const char *simple, *ll;
  uint32_t simple_bytes, ll_bytes; // per slot; 0: the default
} setting;

static const setting settings[] = {
    {NULL, NULL, 0, 0},
    {"4194304", NULL, 524288, 0},
    {"4m", "64k", 524288, 4096},
    {"-1", "-2", 0, 0},
    {"-4096", "-99999999", 0, 0},
    {"0", "0", 0, 0},
    {"1", "1", 4096, 128},
    {"40000", "5000", 4096, 256}, // not a multiple of anything
    {"0x7fffffffffffffff", "0x7fffffffffffffff", 64 << 20, 64 << 10},
    {"99999999999999999999999", "nonsense", 0, 0},
};

static void try_setting(int i)
{
  const setting *s = &settings[i];
  if (s->simple != NULL) {
    setenv("NCCL_BUFFSIZE", s->simple, 1);
  }
  if (s->ll != NULL) {
    setenv("NCCL_LL_BUFFSIZE", s->ll, 1);
  }
  tt_geometry g = tt_geometry_default();
  check_window_layout(&g);
  bool simple = s->simple_bytes == 0 || g.simple_slot_bytes == s->simple_bytes,
       ll = s->ll_bytes == 0 || g.ll_slot_bytes == s->ll_bytes;
  if (!simple || !ll || g.simple_slot_bytes % PAGE != 0 || g.ll_slot_bytes % 128 != 0) {
    fprintf(stderr, "NCCL_BUFFSIZE %s, NCCL_LL_BUFFSIZE %s: slots %u x %u and %u x %u\n", s->simple, s->ll,
            g.simple_slots, g.simple_slot_bytes, g.ll_slots, g.ll_slot_bytes);
    _exit(1);
  }
}

static void test_buffer_sizes(void **state)
{
  (void)state;
  run_in_children((int)TT_COUNT(settings), try_setting);
}

// ---- Joining ----

enum { MOST = 8, LAST_RANK = 10 + 3 * (MOST - 1) };

// What all processes of a test see.
typedef struct board {
  _Atomic int arrived[8];
  tt_proc_id procs[MOST];
  char boxes[MOST][TT_FDBOX_NAME];
  tt_segment_note notes[LAST_RANK + 1];
  _Atomic bool pushes; // no process may open another one's descriptors
} board;

static board *shared;

typedef struct party {
  tt_local local;
  int ranks[MOST];
  const char *boxes[MOST];
  uint8_t secret[16];
} party;

// n local ranks, numbered 10, 13, 16, …; all in this process unless the board says otherwise.
static void make_party(party *p, int n, int me, int leader, int key)
{
  memset(p, 0, sizeof *p);
  memset(p->secret, key, sizeof p->secret);
  p->local = (tt_local){.geometry = tt_geometry_default(),
                        .n = n,
                        .me = me,
                        .leader = leader,
                        .one_process = true,
                        .pulls = !atomic_load(&shared->pushes),
                        .ranks = p->ranks,
                        .procs = shared->procs,
                        .mailboxes = p->boxes,
                        .secret = p->secret};
  for (int i = 0; i < n; i++) {
    p->ranks[i] = 10 + 3 * i;
    p->boxes[i] = shared->boxes[i];
    p->local.one_process &= shared->procs[i].cookie == shared->procs[0].cookie;
  }
}

// Says on the board that places [from, to) belong to this process.
static void sign_in(int from, int to)
{
  for (int i = from; i < to; i++) {
    shared->procs[i] = tt_proc_self();
    CHECK(tt_fdbox_open(shared->boxes[i]) == ncclSuccess);
  }
}

static const volatile uint32_t no_abort;

typedef struct joiner {
  party p;
  tt_segment *s;
  ncclResult_t res;
  const volatile uint32_t *abort_flag;
  uint64_t took;
  _Atomic bool back;
  pthread_t thread;
} joiner;

static ncclResult_t open_share(joiner *j)
{
  return tt_segment_open(&j->p.local, &j->s, &shared->notes[j->p.ranks[j->p.local.me]]);
}

static void *join_main(void *arg)
{
  joiner *j = arg;
  uint64_t start = tt_now_ns();
  j->res = tt_segment_join(j->s, &j->p.local, shared->notes, j->abort_flag != NULL ? j->abort_flag : &no_abort);
  j->took = tt_now_ns() - start;
  atomic_store(&j->back, true);
  return NULL;
}

static void segment_join_all(joiner *j, int n)
{
  for (int i = 0; i < n; i++) {
    CHECK(pthread_create(&j[i].thread, NULL, join_main, &j[i]) == 0);
  }
  for (int i = 0; i < n; i++) {
    pthread_join(j[i].thread, NULL);
  }
}

// Each page and each window is this pair's alone.
static void use_segment(tt_segment *s, int n, bool puts)
{
  tt_geometry g = tt_geometry_default();
  for (int i = 0; i < n; i++) {
    CHECK(tt_segment_place(s, 10 + 3 * i) == i);
    atomic_store(&tt_segment_page(s, i)->shown[0].count, 1000 + (unsigned)i);
    for (int k = 0; k < n; k++) {
      memset(tt_segment_window(s, i, k), i * 16 + k, tt_window_bytes(&g));
      memset(tt_segment_mail(s, i, k), i * 16 + k, sizeof(tt_mail));
      if (puts) {
        memset(tt_segment_puts(s, i, k), i * 16 + k, tt_rma_fifo_bytes());
      }
    }
  }
  CHECK(tt_segment_place(s, 11) == -1);
  size_t bytes, before = (size_t)((char *)tt_segment_messages(s, n - 1, n - 1, &bytes) - (char *)tt_segment_page(s, 0));
  CHECK(TT_SEGMENT_PAGES + before + bytes == tt_segment_bytes(&g, n, false));
  if (puts) {
    before = (size_t)(tt_segment_puts(s, n - 1, n - 1) - (char *)tt_segment_page(s, 0));
    CHECK(TT_SEGMENT_PAGES + before + tt_rma_fifo_bytes() == tt_segment_bytes(&g, n, true));
  }
  size_t last = tt_window_bytes(&g) - 1, last_put = tt_rma_fifo_bytes() - 1;
  for (int i = 0; i < n; i++) {
    CHECK(atomic_load(&tt_segment_page(s, i)->shown[0].count) == 1000 + (unsigned)i);
    CHECK((uintptr_t)tt_segment_page(s, i) % TT_CACHE_LINE == 0);
    for (int k = 0; k < n; k++) {
      CHECK(tt_segment_window(s, i, k)[0] == i * 16 + k && tt_segment_window(s, i, k)[last] == i * 16 + k);
      CHECK((uintptr_t)tt_segment_window(s, i, k) % PAGE == 0);
      CHECK(tt_segment_mail(s, i, k)->answer == (uint32_t)(i * 16 + k) * 0x01010101u);
      CHECK((uintptr_t)tt_segment_mail(s, i, k) % TT_CACHE_LINE == 0);
      CHECK(!puts || (tt_segment_puts(s, i, k)[0] == i * 16 + k && tt_segment_puts(s, i, k)[last_put] == i * 16 + k));
    }
  }
}

// Two communicators at once, four ranks each, all in one process.
static void one_process(int unused)
{
  static joiner j[8];
  (void)unused;
  sign_in(0, 4);
  for (int i = 7; i >= 0; i--) { // the creator comes last
    make_party(&j[i].p, 4, i % 4, 0, 1 + i / 4);
    j[i].p.local.puts = i >= 4;
    CHECK(open_share(&j[i]) == ncclSuccess);
  }
  segment_join_all(j, 8);
  for (int i = 0; i < 8; i++) {
    CHECK(j[i].res == ncclSuccess && j[i].s == j[i / 4 * 4].s);
  }
  CHECK(j[0].s != j[4].s);
  use_segment(j[0].s, 4, false);
  use_segment(j[4].s, 4, true);
  CHECK(tt_segment_window(j[0].s, 3, 2)[0] == 3 * 16 + 2);
  tt_link link = {.rank = 13, .peer = 16};
  memset(tt_segment_page(j[0].s, 0), 0, 4 * sizeof(tt_rank_page));
  tt_link_env env;
  tt_segment_connect(j[0].s, &link, &env);
  CHECK(link.page == tt_segment_page(j[0].s, 2));
  CHECK((char *)link.send[TT_SIMPLE].head == tt_segment_window(j[0].s, 1, 2));
  CHECK((char *)link.recv[TT_SIMPLE].head == tt_segment_window(j[0].s, 2, 1));
  CHECK(env.wanted == tt_window_wants(tt_segment_window(j[0].s, 1, 2)) &&
        env.wants == tt_window_wants(tt_segment_window(j[0].s, 2, 1)));
  // Behind the windows, up to the next ones.
  CHECK(env.box_bytes > 0 && env.inbox + env.box_bytes == tt_segment_window(j[0].s, 2, 2));
  CHECK(env.outbox + env.box_bytes == tt_segment_window(j[0].s, 1, 3));
  for (int i = 0; i < 8; i++) {
    tt_segment_leave(j[i].s);
  }
  tt_segment_leave(NULL);
}

static void test_ranks_of_one_process(void **state)
{
  (void)state;
  run_in_child(one_process);
}

static void barrier(int i, int n)
{
  atomic_fetch_add(&shared->arrived[i], 1);
  CHECK(child_rig_reaches(&shared->arrived[i], n));
}

// Three processes with two ranks each.
static void process_of_three(int me)
{
  static joiner j[2];
  sign_in(2 * me, 2 * me + 2);
  barrier(0, 3);
  for (int i = 0; i < 2; i++) {
    make_party(&j[i].p, 6, 2 * me + i, 2 * me, 7);
    CHECK(!j[i].p.local.one_process);
    CHECK(open_share(&j[i]) == ncclSuccess);
  }
  barrier(1, 3);
  for (int i = 2 * me; i < 2 * me + 2; i++) {
    CHECK((shared->notes[10 + 3 * i].pushed != 0) == (i % 2 == 0 && i > 0 && atomic_load(&shared->pushes)));
  }
  CHECK(tt_segment_push(j[0].s, &j[0].p.local, shared->notes) == ncclSuccess);
  barrier(4, 3);
  segment_join_all(j, 2);
  CHECK(j[0].res == ncclSuccess && j[1].res == ncclSuccess && j[0].s == j[1].s);
  tt_segment *s = j[0].s;
  for (int i = 2 * me; i < 2 * me + 2; i++) {
    atomic_store(&tt_segment_page(s, i)->shown[0].count, 500 + (unsigned)i);
    for (int k = 0; k < 6; k++) {
      tt_segment_window(s, i, k)[5000] = (char)(i * 16 + k);
    }
  }
  barrier(2, 3);
  for (int i = 0; i < 6; i++) {
    CHECK(atomic_load(&tt_segment_page(s, i)->shown[0].count) == 500 + (unsigned)i);
    for (int k = 0; k < 6; k++) {
      CHECK(tt_segment_window(s, i, k)[5000] == (char)(i * 16 + k));
    }
  }
  barrier(3, 3);
  tt_segment_leave(s);
  atomic_store(&tt_segment_page(s, 0)->shown[0].count, 1); // the other rank of this process keeps it
  tt_segment_leave(s);
}

static void test_ranks_of_three_processes(void **state)
{
  (void)state;
  for (int pushes = 0; pushes < 2; pushes++) {
    memset(shared, 0, sizeof *shared);
    atomic_store(&shared->pushes, pushes != 0);
    run_in_children(3, process_of_three);
  }
}

// Makes the segment, and ends at once.
static void creator_of_two(int unused)
{
  static joiner j;
  (void)unused;
  sign_in(0, 1);
  shared->procs[1].pid = 1;
  make_party(&j.p, 2, 0, 0, 8);
  CHECK(open_share(&j) == ncclSuccess && shared->notes[10].fd >= 0 && shared->notes[10].inode != 0);
}

// Nobody waits for a creator that has ended, and nothing else is taken for its memory.
static void joiner_of_two(int unused)
{
  static joiner j;
  (void)unused;
  sign_in(1, 2);
  make_party(&j.p, 2, 1, 1, 8);
  CHECK(open_share(&j) == ncclSuccess);
  join_main(&j);
  CHECK(j.res == ncclRemoteError && strstr(tt_last_error(), "has ended") != NULL);
  shared->procs[0].pid = getpid(); // as another name space may have it
  join_main(&j);
  CHECK(j.res == ncclRemoteError);
  tt_segment_leave(j.s);
}

static void test_the_creator_ends(void **state)
{
  (void)state;
  memset(shared, 0, sizeof *shared);
  run_in_child(creator_of_two);
  run_in_child(joiner_of_two);
}

// ---- What goes wrong ----

// Waits for a creator who never comes: in another process (i = 0), or in this one (i = 1).
static void abort_while_waiting(int i)
{
  static joiner j;
  static volatile uint32_t flag;
  sign_in(0, 2);
  if (i == 0) {
    shared->procs[0].cookie++;
    atomic_store(&shared->pushes, true);
  }
  make_party(&j.p, 2, 1, i == 0 ? 1 : 0, 3);
  CHECK(open_share(&j) == ncclSuccess);
  j.abort_flag = &flag;
  CHECK(pthread_create(&j.thread, NULL, join_main, &j) == 0);
  tt_sleep_ns(100 * TT_NS_PER_MS);
  CHECK(!atomic_load(&j.back));
  __atomic_store_n(&flag, 1, __ATOMIC_RELAXED);
  pthread_join(j.thread, NULL);
  CHECK(j.res == ncclInternalError);
  tt_segment_leave(j.s);
}

static void abort_elsewhere(int unused)
{
  (void)unused;
  abort_while_waiting(0);
}

static void abort_here(int unused)
{
  (void)unused;
  abort_while_waiting(1);
}

static void test_abort_while_waiting(void **state)
{
  (void)state;
  run_in_child(abort_elsewhere);
  run_in_child(abort_here);
}

// The creator has no descriptor left. The other ranks of its process learn it at once.
static void creator_fails(int unused)
{
  static joiner j[2];
  struct rlimit old, few;
  (void)unused;
  sign_in(0, 3);
  shared->procs[2].cookie++;
  for (int i = 1; i >= 0; i--) {
    make_party(&j[i].p, 3, i, 0, 4);
    CHECK(!j[i].p.local.one_process);
  }
  CHECK(open_share(&j[1]) == ncclSuccess);
  getrlimit(RLIMIT_NOFILE, &old);
  few = (struct rlimit){.rlim_cur = 3, .rlim_max = old.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  ncclResult_t res = open_share(&j[0]);
  setrlimit(RLIMIT_NOFILE, &old);
  CHECK(res == ncclSystemError && j[0].s == NULL);
  join_main(&j[1]);
  CHECK(j[1].res == ncclSystemError && j[1].took < 30 * TT_NS_PER_S);
  tt_segment_leave(j[1].s);
}

static void creator_without_memory(int unused)
{
  static joiner j;
  (void)unused;
  sign_in(0, 2);
  make_party(&j.p, 2, 0, 0, 5);
  for (int k = 1; k <= 2; k++) {
    tt_alloc_fail_at(k);
    CHECK(open_share(&j) == ncclSystemError);
    tt_alloc_fail_at(0);
  }
  CHECK(open_share(&j) == ncclSuccess); // and then it works
  join_main(&j);
  CHECK(j.res == ncclSuccess);
  use_segment(j.s, 2, false);
  tt_segment_leave(j.s);
}

static void test_the_creator_fails(void **state)
{
  (void)state;
  run_in_child(creator_fails);
  run_in_child(creator_without_memory);
}

// As the start of segment.c's segment.
typedef struct header {
  uint64_t magic, size;
  tt_geometry geometry;
} header;

// A descriptor that is not a segment of ours, under the key of one.
static void push_wrong(const party *p, size_t size, const header *h)
{
  tt_fdkey key = {0};
  int fd, place = p->local.me;
  void *at;
  memcpy(key.bytes, p->secret, 16);
  memcpy(key.bytes + 16, &place, sizeof place);
  CHECK(tt_shm_create("wrong", size, &fd) == ncclSuccess);
  if (h != NULL) {
    CHECK(tt_shm_map(fd, size, &at) == ncclSuccess);
    memcpy(at, h, sizeof *h);
    tt_shm_unmap(at, size);
  }
  CHECK(tt_fdbox_push(shared->boxes[place], &key, fd) == ncclSuccess);
  tt_fd_close(fd);
}

static void wrong_segments(int unused)
{
  static joiner j;
  tt_geometry g = tt_geometry_default(), mad = {~0u, ~0u, ~0u, ~0u, ~0u};
  size_t right = 4096 + 4096 + 2 * tt_board_bytes(2) + 4096 +
                 4 * (tt_window_bytes(&g) + (2 << 20)); // pages, boards, mails, windows, outboxes of two ranks
  const header headers[] = {
      {0, 0, {0, 0, 0, 0, 0}},        {TT_SEGMENT_MAGIC + 1, right, g}, {TT_SEGMENT_MAGIC, right - 4096, g},
      {TT_SEGMENT_MAGIC, right, mad}, {TT_SEGMENT_MAGIC, right, g}, // but the memory is too short
  };
  (void)unused;
  sign_in(0, 2);
  shared->procs[0].cookie++;
  atomic_store(&shared->pushes, true);
  for (int i = -1; i < (int)TT_COUNT(headers); i++) {
    make_party(&j.p, 2, 1, 1, 20 + i);
    CHECK(open_share(&j) == ncclSuccess);
    push_wrong(&j.p, i < 0 ? 100 : i == (int)TT_COUNT(headers) - 1 ? right - 4096 : right, i < 0 ? NULL : &headers[i]);
    join_main(&j);
    CHECK(j.res == ncclSystemError && j.took < 30 * TT_NS_PER_S);
    CHECK(strstr(tt_last_error(), i < 0 ? "too small" : "does not look like ours") != NULL);
    tt_segment_leave(j.s);
  }
  make_party(&j.p, 2, 1, 1, 60); // and what the right one looks like
  CHECK(open_share(&j) == ncclSuccess);
  push_wrong(&j.p, right, &headers[TT_COUNT(headers) - 1]);
  join_main(&j);
  CHECK(j.res == ncclSuccess);
  use_segment(j.s, 2, false);
  tt_segment_leave(j.s);
}

static void test_wrong_segments_are_refused(void **state)
{
  (void)state;
  run_in_child(wrong_segments);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_windows_of_all_kinds), cmocka_unit_test(test_geometries_of_others),
      cmocka_unit_test(test_a_message_passes),     cmocka_unit_test(test_buffer_sizes),
      cmocka_unit_test(test_ranks_of_one_process), cmocka_unit_test(test_ranks_of_three_processes),
      cmocka_unit_test(test_abort_while_waiting),  cmocka_unit_test(test_the_creator_fails),
      cmocka_unit_test(test_the_creator_ends),     cmocka_unit_test(test_wrong_segments_are_refused),
  };
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return shared == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
