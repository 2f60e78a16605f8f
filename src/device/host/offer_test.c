// offer_test.c: what comes along with a token: copies in a ring that wraps, fills and begins anew, sums laid there at
// once, pages or addresses; which rank decides on that; what is measured for it.
#include "device/host/offer.h"
#include "device/host/rig.h"
#include "os/clock.h"

enum { LINES = RIG_BOX_BYTES / TT_CACHE_LINE, MOST = 4096 };

// One lane of a rank: a strand of steps that are written down one after the other.
typedef struct actor {
  int rank;
  rig_schedule sch;
  tt_call call;
  tt_lane lane;
} actor;

static rig *r;
static char in[MOST], out[MOST];
static actor sender, reader;

static void actor_step(actor *a, unsigned flags)
{
  tt_schedule *s = &a->sch.s;
  a->sch.steps[s->nsteps++] = (tt_step){.flags = (uint16_t)flags, .src = (uint32_t)s->nrefs, .dst = (uint32_t)s->nrefs};
  a->sch.strand.count++;
}

// Sources first.
static void actor_from(actor *a, int kind, int peer)
{
  tt_schedule *s = &a->sch.s;
  tt_step *last = &a->sch.steps[s->nsteps - 1];
  a->sch.refs[s->nrefs++] = (tt_ref){.kind = (uint8_t)kind, .peer = peer};
  last->nsrc++;
  last->dst++;
}

static void actor_to(actor *a, int kind, int peer, int offer)
{
  tt_schedule *s = &a->sch.s;
  a->sch.refs[s->nrefs++] = (tt_ref){.kind = (uint8_t)kind, .peer = peer, .offer = (uint8_t)offer};
  a->sch.steps[s->nsteps - 1].ndst++;
}

// A rank's part with other buffers than before; its steps follow.
static void actor_begin(actor *a, int rank, const char *input, char *output)
{
  *a = (actor){.rank = rank,
               .call = {.in = input, .out = output, .esize = 1, .op = {.type = ncclUint8, .kind = TT_RED_SUM}}};
  rig_write(&a->sch, 1, NULL, 0);
}

// The lane of the steps that were written, for `count` bytes in chunks of `chunk`.
static void actor_ready(actor *a, size_t count, size_t chunk)
{
  a->call.count = count;
  tt_lane_init(&a->lane, &a->sch.s, 0, &a->call, chunk, TT_TOK);
}

static tt_run actor_run(actor *a)
{
  return rig_run(r, a->rank, &a->lane);
}

// What a watcher of the lane is told of its step: is its first source ready? Is there room for what it sends?
static bool is_ready(actor *a)
{
  return tt_lane_source_ready(&r->ports[a->rank], &a->lane, &a->sch.refs[a->sch.steps[a->lane.pc].src]);
}

static bool may_send(actor *a)
{
  return tt_lane_lack_of(&r->ports[a->rank], &a->lane) != TT_LACKS_ROOM;
}

static tt_run actor_run_step(actor *a)
{
  size_t budget = 1;
  return tt_lane_run(&r->ports[a->rank], &a->lane, &budget);
}

// Rank 0 offers its input to rank 1, chunk by chunk, and stays until rank 1 needs it no longer.
static void offer_input(size_t count, size_t chunk)
{
  actor_begin(&sender, 0, in, NULL);
  actor_step(&sender, 0);
  actor_to(&sender, TT_TOKEN, 1, TT_OFFER_IN);
  actor_step(&sender, 0);
  actor_from(&sender, TT_DRAIN, 1);
  actor_ready(&sender, count, chunk);
}

// Rank 1 copies it to its output.
static void take_input(size_t count, size_t chunk)
{
  actor_begin(&reader, 1, NULL, out);
  actor_step(&reader, 0);
  actor_from(&reader, TT_TOKEN, 0);
  actor_from(&reader, TT_PEER_IN, 0);
  actor_to(&reader, TT_OUT, 1, 0);
  actor_ready(&reader, count, chunk);
}

static void fill_with(char *p, size_t bytes, unsigned seed)
{
  for (size_t i = 0; i < bytes; i++) {
    p[i] = (char)((seed + i) * 2654435761u >> 13);
  }
}

static bool is_filled(const char *p, size_t bytes, unsigned seed)
{
  char expected[MOST];
  fill_with(expected, bytes, seed);
  return memcmp(p, expected, bytes) == 0;
}

enum { ONE_WAY = 8 }; // offers in a row without one taken, from which on only the reader's word counts

// Nothing is measured, and what the reader wants is what the tests say: copies, unless they call want_pages().
static int offer_setup(void **state)
{
  (void)state;
  r = rig_open();
  rig_part(r, 0, 1);
  r->trials[0][1].off = r->trials[1][0].off = true;
  r->trials[0][1].sent[0] = ONE_WAY;
  fill_with(in, sizeof in, 0);
  memset(out, 0, sizeof out);
  return 0;
}

static int offer_teardown(void **state)
{
  (void)state;
  rig_close(r);
  return 0;
}

static tt_outbox *box(void)
{
  return &r->links[0][1].handover->outbox;
}

// The token of rank 0 that rank 1 takes next.
static tt_slot *next_token(void)
{
  assert_true(tt_fifo_arrived(&r->links[1][0].recv[TT_TOK]));
  return tt_fifo_slot(&r->links[1][0].recv[TT_TOK]);
}

// The sizes that the reader of rank `rank`'s offers wants as pages.
static void want_pages(int rank, uint32_t sizes)
{
  atomic_store(&r->windows[rank][1 - rank].wants, sizes);
}

// ---- Copies

// The sender is done before anybody has read, and may write its memory again.
static void test_copies_reach_the_reader(void **state)
{
  static const size_t sizes[] = {1, 63, 64, 65, 200, RIG_BOX_BYTES - 1, RIG_BOX_BYTES};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(sizes); i++) {
    fill_with(in, sizes[i], (unsigned)i);
    offer_input(sizes[i], MOST);
    assert_int_equal(actor_run(&sender), TT_RUN_DONE);
    assert_int_equal(next_token()->desc.along, 1 + TT_WAY_COPY);
    assert_int_equal(next_token()->desc.place, 0);
    assert_int_equal(next_token()->bytes, sizes[i]);
    memset(in, 0x55, sizes[i]);
    memset(out, 0, sizeof out);
    take_input(sizes[i], MOST);
    assert_int_equal(actor_run(&reader), TT_RUN_DONE);
    assert_true(is_filled(out, sizes[i], (unsigned)i));
    assert_int_equal(out[sizes[i] % MOST], 0);
  }
}

// A token waits where the ring has no room for its copy, and goes on when the reader has given back what lies there.
// What is cut off at the ring's end is not used.
static void test_a_full_ring_blocks(void **state)
{
  (void)state;
  offer_input(1200, 400);
  take_input(1200, 400);
  assert_int_equal(actor_run(&sender), TT_RUN_BLOCKED);
  assert_int_equal(sender.lane.waits_for, 1);
  assert_int_equal(sender.lane.pos, 800); // two lie in the ring; the third does not fit behind them
  assert_false(may_send(&sender));
  size_t budget = 1000;
  assert_int_equal(tt_lane_run(&r->ports[0], &sender.lane, &budget), TT_RUN_BLOCKED);
  assert_int_equal(budget, 1000);
  assert_int_equal(next_token()->desc.place, 0);
  assert_int_equal(actor_run_step(&reader), TT_RUN_MORE);
  assert_int_equal(next_token()->desc.place, 7);
  assert_true(may_send(&sender));
  assert_int_equal(actor_run(&sender), TT_RUN_DONE);
  memset(in, 0x55, sizeof in);
  assert_int_equal(actor_run_step(&reader), TT_RUN_MORE);
  assert_int_equal(next_token()->desc.place, 0); // at the ring's beginning again, behind what is left of its end
  assert_int_equal(actor_run(&reader), TT_RUN_DONE);
  assert_true(is_filled(out, 1200, 0));
}

// A copy as large as the ring waits until it is empty.
static void test_a_copy_that_fills_the_ring(void **state)
{
  (void)state;
  offer_input(100, MOST);
  take_input(100, MOST);
  assert_int_equal(actor_run(&sender), TT_RUN_DONE);
  offer_input(RIG_BOX_BYTES, MOST);
  assert_int_equal(actor_run(&sender), TT_RUN_BLOCKED);
  assert_int_equal(actor_run(&reader), TT_RUN_DONE);
  assert_int_equal(actor_run(&sender), TT_RUN_DONE);
  take_input(RIG_BOX_BYTES, MOST);
  assert_int_equal(actor_run(&reader), TT_RUN_DONE);
  assert_true(is_filled(out, RIG_BOX_BYTES, 0));
}

// Nothing lies there any more: from the beginning on, where the caches know it.
static void test_an_empty_ring_begins_anew(void **state)
{
  (void)state;
  for (int i = 0; i < 20; i++) {
    offer_input(300, 100);
    take_input(300, 100);
    assert_int_equal(actor_run(&sender), TT_RUN_DONE);
    for (unsigned k = 0; k < 3; k++) {
      assert_int_equal(next_token()->desc.place, 2 * k);
      assert_int_equal(actor_run_step(&reader), k < 2 ? TT_RUN_MORE : TT_RUN_DONE);
    }
  }
}

// The sizes of messages that were sent and not taken yet, oldest first.
typedef struct queue {
  size_t bytes[RIG_SLOTS];
  unsigned seed[RIG_SLOTS];
  int n;
} queue;

static void take_oldest(queue *q)
{
  take_input(q->bytes[0], MOST);
  assert_int_equal(actor_run(&reader), TT_RUN_DONE);
  assert_true(is_filled(out, q->bytes[0], q->seed[0]));
  for (int i = 1; i < q->n; i++) {
    q->bytes[i - 1] = q->bytes[i];
    q->seed[i - 1] = q->seed[i];
  }
  q->n--;
}

// Any sizes, taken sooner or later; sent is whatever there is room for. There is always one in the ring, so that its
// positions grow, beyond 2^32 at last.
static void test_any_sizes(void **state)
{
  uint64_t rnd = 7;
  queue q = {0};
  (void)state;
  for (unsigned i = 0; i < 5000; i++) {
    rnd = rnd * 6364136223846793005ull + 1442695040888963407ull;
    size_t bytes = 1 + (size_t)(rnd >> 33) % (i % 3 == 0 ? RIG_BOX_BYTES / 2 : 200);
    fill_with(in, bytes, i);
    offer_input(bytes, MOST);
    while (actor_run(&sender) == TT_RUN_BLOCKED) {
      assert_true(q.n > 0);
      take_oldest(&q);
    }
    assert_int_equal(next_token()->desc.along, 1 + TT_WAY_COPY);
    memset(in, 0x55, bytes);
    q.bytes[q.n] = bytes;
    q.seed[q.n++] = i;
    if (i == 0) { // as after four gigabytes
      box()->tail += 0u - 64 * RIG_BOX_BYTES;
      box()->end[0] = box()->tail;
      box()->end[TT_COUNT(box()->end) - 1] = 0u - 64 * RIG_BOX_BYTES;
    }
    while (q.n == RIG_SLOTS || (q.n > 1 && rnd >> 62 == 0)) {
      take_oldest(&q);
    }
  }
  assert_true(box()->tail < UINT32_MAX / 2);
}

// ---- Other ways

// The peer wants pages, there is no outbox, or the copy would not fit: the sender's memory is read, and the sender
// waits.
static void test_a_drain_waits_for_memory_that_is_read(void **state)
{
  (void)state;
  for (int why = 0; why < 3; why++) {
    offer_setup(state);
    size_t bytes = why == 2 ? RIG_BOX_BYTES + 1 : 500;
    want_pages(0, why == 0);
    box()->size = why == 1 ? 0 : RIG_BOX_BYTES;
    r->links[0][1].handover->trials = why == 1 ? NULL : r->links[0][1].handover->trials;
    r->links[0][1].handover->pages.state = TT_PAGEPIPE_UNTRIED; // through a pipe, where the kernel has them
    offer_input(bytes, MOST);
    take_input(bytes, MOST);
    assert_int_equal(actor_run(&sender), TT_RUN_BLOCKED);
    assert_int_equal(sender.lane.pc, 1);
    assert_int_equal(next_token()->desc.along, 1 + TT_WAY_PAGES);
    assert_int_equal(actor_run(&reader), TT_RUN_DONE);
    assert_int_equal(actor_run(&sender), TT_RUN_DONE);
    assert_true(is_filled(out, bytes, 0));
    tt_pagepipe_close(&r->links[0][1].handover->pages);
    tt_pagetap_close(&r->links[1][0].handover->tap);
    offer_teardown(state);
  }
}

// Of tokens of both kinds a drain waits for the last one that needs the sender's memory, and for none behind it.
static void test_a_drain_between_copies(void **state)
{
  (void)state;
  offer_input(64, 64);
  assert_int_equal(actor_run(&sender), TT_RUN_DONE);
  want_pages(0, 1);
  offer_input(64, 64);
  assert_int_equal(actor_run_step(&sender), TT_RUN_MORE);
  want_pages(0, 0);
  offer_input(128, 64);
  assert_int_equal(actor_run(&sender), TT_RUN_BLOCKED); // behind the third token, because of the second one
  assert_int_equal(sender.lane.pos, 0);
  take_input(64, 64);
  assert_int_equal(actor_run(&reader), TT_RUN_DONE);
  assert_int_equal(actor_run(&sender), TT_RUN_BLOCKED);
  assert_false(is_ready(&sender));
  actor_ready(&reader, 64, 64);
  assert_true(is_ready(&reader) && may_send(&reader));
  assert_int_equal(actor_run(&reader), TT_RUN_DONE);
  assert_true(is_ready(&sender));
  assert_int_equal(actor_run(&sender), TT_RUN_DONE);
  assert_false(tt_fifo_drained(&r->links[0][1].send[TT_TOK]));
}

// A token that offers nothing opens the sender's buffers: they stay.
static void test_a_drain_waits_for_plain_tokens(void **state)
{
  (void)state;
  offer_input(64, 64);
  sender.sch.refs[0].offer = TT_OFFER_NONE;
  take_input(64, 64);
  assert_int_equal(actor_run(&sender), TT_RUN_BLOCKED);
  assert_int_equal(next_token()->desc.along, 0);
  assert_int_equal(actor_run(&reader), TT_RUN_DONE);
  assert_int_equal(actor_run(&sender), TT_RUN_DONE);
}

// Drains are not confused by numbers that have gone round since there was anything to wait for.
static void test_a_drain_after_very_many_copies(void **state)
{
  tt_link *link = &r->links[0][1];
  (void)state;
  for (int i = 0; i < 5; i++) {
    tt_fifo *send = &link->send[TT_TOK], *recv = &r->links[1][0].recv[TT_TOK];
    send->next = send->seen = recv->next += 1u << 30; // so many copies, with a drain behind them
    atomic_store(send->head, send->next);
    assert_true(tt_offers_drained(link));
    offer_input(64, 64);
    assert_int_equal(actor_run(&sender), TT_RUN_DONE);
    take_input(64, 64);
    assert_int_equal(actor_run(&reader), TT_RUN_DONE);
  }
}

// The receiver has chosen to lay no copies itself (NCCL_HOST_COPIES=0): it takes them all the same.
static void test_a_receiver_without_copies_of_its_own(void **state)
{
  (void)state;
  r->links[1][0].handover->trials = NULL;
  r->links[1][0].handover->outbox.size = 0;
  offer_input(100, MOST);
  assert_int_equal(actor_run(&sender), TT_RUN_DONE);
  take_input(100, MOST);
  assert_int_equal(actor_run(&reader), TT_RUN_DONE);
  assert_true(is_filled(out, 100, 0));
}

// ---- What a token must not say

static void test_places_that_do_not_exist(void **state)
{
  static const struct {
    uint32_t along, place, bytes;
  } list[] = {
      {1 + TT_WAY_COPY, LINES, 100},
      {1 + TT_WAY_COPY, LINES - 1, 100},
      {1 + TT_WAY_COPY, (1u << 29) - 1, 100},
      {1 + TT_WAY_COPY, 0, UINT32_MAX},
      {1 + TT_WAY_COPY, 0, 99},
      {1 + TT_WAY_COPY, 0, 101},
      {1 + TT_WAY_COPY, LINES - 1, 0},
      {1 + TT_NWAYS, 0, 100},
  };
  (void)state;
  for (size_t i = 0; i < TT_COUNT(list); i++) {
    offer_setup(state);
    offer_input(100, MOST);
    assert_int_equal(actor_run(&sender), TT_RUN_DONE);
    tt_slot *s = next_token();
    s->desc.along = list[i].along;
    s->desc.place = list[i].place;
    s->bytes = list[i].bytes;
    take_input(100, MOST);
    assert_int_equal(actor_run(&reader), TT_RUN_FAILED);
    assert_int_equal(tt_port_status(&r->ports[1]), ncclSystemError);
    assert_non_null(strstr(r->ports[1].error,
                           list[i].along > TT_NWAYS ? "rank 1: rank 0 hands over in way 3" : "rank 1: rank 0 says"));
    assert_int_equal(out[0], 0);
    offer_teardown(state);
  }
}

// ---- Sums put into the peer's output

static char sum[MOST], other[MOST], own_sum[MOST];

// Rank 1 offers its input, and takes the sum where it has not got it already.
static void take_sum(size_t count)
{
  actor_begin(&reader, 1, other, out);
  actor_step(&reader, 0);
  actor_to(&reader, TT_TOKEN, 0, TT_OFFER_IN);
  actor_step(&reader, TT_STEP_UNLESS_PUT);
  actor_from(&reader, TT_TOKEN, 0);
  actor_from(&reader, TT_PEER_OUT, 0);
  actor_to(&reader, TT_OUT, 1, 0);
  actor_ready(&reader, count, MOST);
}

// Rank 0 sums both inputs, writes the sum into both outputs, and offers its own.
static void put_sum(unsigned flags, size_t count)
{
  actor_begin(&sender, 0, in, own_sum);
  actor_step(&sender, TT_STEP_REDUCE | TT_STEP_FINAL | TT_STEP_PUT | flags);
  actor_from(&sender, TT_TOKEN, 1);
  actor_from(&sender, TT_IN, 0);
  actor_from(&sender, TT_PEER_IN, 1);
  actor_to(&sender, TT_OUT, 0, 0);
  actor_to(&sender, TT_PEER_OUT, 1, 0);
  actor_step(&sender, 0);
  actor_to(&sender, TT_TOKEN, 1, TT_OFFER_OUT);
  actor_ready(&sender, count, MOST);
}

static void make_sums(size_t count)
{
  fill_with(other, count, 99);
  for (size_t i = 0; i < count; i++) {
    sum[i] = (char)(in[i] + other[i]);
  }
  memset(own_sum, 0, sizeof own_sum);
  memset(out, 0, sizeof out);
}

// The sum goes where the token will say that it lies, and is not copied again.
static void test_sums_are_laid_at_once(void **state)
{
  const size_t count = 777;
  (void)state;
  make_sums(count);
  put_sum(0, count);
  take_sum(count);
  assert_int_equal(actor_run(&reader), TT_RUN_BLOCKED);
  assert_int_equal(actor_run_step(&sender), TT_RUN_MORE);
  assert_int_equal(box()->laid, count);
  assert_memory_equal(r->windows[0][1].box, sum, count);
  assert_memory_equal(own_sum, sum, count);
  assert_int_equal(out[0], 0);
  memset(own_sum, 0x55, count); // nobody copies it from there
  assert_int_equal(actor_run_step(&sender), TT_RUN_DONE);
  assert_int_equal(box()->laid, 0);
  assert_int_equal(next_token()->desc.along, 1 + TT_WAY_COPY);
  assert_int_equal(next_token()->desc.put, 0);
  assert_int_equal(actor_run(&reader), TT_RUN_DONE);
  assert_memory_equal(out, sum, count);
}

// No room when it is summed: the token waits for it, and then copies.
static void test_sums_without_room(void **state)
{
  const size_t count = 777;
  (void)state;
  offer_input(500, MOST);
  assert_int_equal(actor_run(&sender), TT_RUN_DONE);
  make_sums(count);
  put_sum(0, count);
  take_sum(count);
  assert_int_equal(actor_run_step(&reader), TT_RUN_MORE);
  assert_int_equal(actor_run(&sender), TT_RUN_BLOCKED);
  assert_int_equal(box()->laid, 0);
  assert_int_equal(sender.lane.pc, 1);
  take_input(500, MOST);
  assert_int_equal(actor_run(&reader), TT_RUN_DONE);
  assert_true(is_filled(out, 500, 0));
  assert_int_equal(actor_run(&sender), TT_RUN_DONE);
  take_sum(count);
  reader.lane.pc = 1;
  assert_int_equal(actor_run(&reader), TT_RUN_DONE);
  assert_memory_equal(out, sum, count);
}

// Where the peer wants no copies the kernel writes the sum there, if it may; what is not a gift is fetched.
static void test_sums_that_the_kernel_writes(void **state)
{
  const size_t count = 777;
  (void)state;
  for (int far = 0; far < 2; far++) {
    make_sums(count);
    want_pages(0, 1);
    put_sum(far ? TT_STEP_PUT_FAR : 0, count);
    take_sum(count);
    assert_int_equal(actor_run(&reader), TT_RUN_BLOCKED);
    assert_int_equal(actor_run(&sender), TT_RUN_DONE);
    assert_int_equal(box()->laid, 0);
    assert_int_equal(next_token()->desc.put, far);
    assert_int_equal(next_token()->desc.along, 1 + TT_WAY_PAGES);
    if (far) {
      assert_memory_equal(out, sum, count);
      memset(own_sum, 0x55, count); // the reader knows that it has got it
    }
    assert_int_equal(actor_run(&reader), TT_RUN_DONE);
    assert_memory_equal(out, sum, count);
    assert_int_equal(atomic_load(&r->pages[0].writes), 0);
  }
}

// ---- Who decides

// Of two that offer each other something the lower rank, for both; where only one gives, the reader.
static void test_the_lower_rank_decides(void **state)
{
  const tt_call call = {.count = 100, .esize = 1};
  (void)state;
  for (unsigned k = 0; k < 16; k++) {
    uint32_t lower = k & 1, higher = k >> 1 & 1; // what they want as pages
    bool both = k >> 2 & 1;
    r->trials[0][1].sent[0] = both ? ONE_WAY - 1 : ONE_WAY;
    r->trials[1][0].sent[0] = k >> 3 & 1 ? 0 : ONE_WAY;
    want_pages(1, lower);
    want_pages(0, higher);
    assert_int_equal(tt_offer_copies(&r->links[0][1], &call, 100), !(both ? lower : higher));
    assert_int_equal(tt_offer_copies(&r->links[1][0], &call, 100), !lower);
  }
}

// A reader that takes no copies at all (NCCL_HOST_COPIES=0) gets none, whichever rank decides.
static void test_a_reader_that_forbids_copies(void **state)
{
  const tt_call call = {.count = 100, .esize = 1};
  (void)state;
  for (int rank = 0; rank < 2; rank++) {
    tt_link *link = &r->links[rank][1 - rank];
    r->trials[rank][1 - rank].sent[0] = 0;
    assert_true(tt_offer_copies(link, &call, 100));
    want_pages(rank, TT_WANTS_PAGES);
    assert_false(tt_offer_copies(link, &call, 100));
    want_pages(rank, 0);
  }
}

// So many offers in a row, without one that comes back, and only the reader counts.
static void test_offers_that_go_one_way(void **state)
{
  (void)state;
  r->trials[0][1].sent[0] = 0;
  r->trials[0][1].off = false;
  want_pages(0, 1); // rank 1, which reads
  for (int i = 0; i < ONE_WAY + 4; i++) {
    offer_input(64, 64);
    assert_int_equal(actor_run_step(&sender), TT_RUN_MORE);
    assert_int_equal(next_token()->desc.along, 1 + (i + 1 < ONE_WAY ? TT_WAY_COPY : TT_WAY_PAGES));
    take_input(64, 64);
    assert_int_equal(actor_run(&reader), TT_RUN_DONE);
  }
  r->links[0][1].handover->timing.came = 1 + TT_WAY_COPY;
  tt_offer_taken(&r->links[0][1]); // now one has
  offer_input(64, 64);
  assert_int_equal(actor_run(&sender), TT_RUN_DONE);
  assert_int_equal(next_token()->desc.along, 1 + TT_WAY_COPY);
}

// The reader measures, and says by size what it wants; not if its user has chosen.
static void test_the_reader_says_what_it_wants(void **state)
{
  (void)state;
  for (int only = 0; only < 2; only++) {
    for (int size = 0; size < TT_TRIAL_SIZES; size++) {
      tt_trials *all = &r->trials[1][0];
      size_t count = size == 0 ? 100 : (size_t)(40u << 10) << size; // of the call; the lane does a part of it
      *all = (tt_trials){.off = only != 0};
      r->trials[0][1] = (tt_trials){.off = true};
      all->of_size[size] = (tt_trial){.chosen = TT_WAY_PAGES};
      want_pages(0, 1u << TT_TRIAL_SIZES);
      offer_input(count, 64);
      tt_lane_share(&sender.lane, 0, 64);
      assert_int_equal(actor_run(&sender), TT_RUN_DONE);
      take_input(count, 64);
      tt_lane_share(&reader.lane, 0, 64);
      assert_int_equal(actor_run(&reader), TT_RUN_DONE);
      assert_int_equal(atomic_load(&r->windows[0][1].wants), 1u << TT_TRIAL_SIZES | (only ? 0 : 1u << size));
      assert_int_equal(all->of_size[size].part, !only);
      assert_int_equal(r->trials[0][1].sent[size], 1);
    }
  }
}

// A sample is as many chunks as a call has, at most eight.
static void test_chunks_of_a_call(void **state)
{
  static const struct {
    size_t count, chunk;
    int nsub, nranks, blocks, chunks;
  } list[] = {{64, 64, 1, 2, 1, 1},  {65, 64, 1, 2, 1, 2},   {320, 64, 1, 2, 1, 5},  {320, 64, 2, 2, 1, 6},
              {64, 64, 3, 2, 1, 3},  {64, 64, 3, 3, 1, 2},   {64, 64, 4, 4, 1, 2},   {320, 64, 1, 4, 1, 5},
              {512, 64, 1, 2, 1, 8}, {4000, 64, 1, 2, 1, 8}, {4000, 64, 2, 4, 1, 8}, {320, 64, 1, 2, 2, 5},
              {576, 64, 1, 2, 2, 8}, {1088, 64, 1, 4, 4, 8}, {2112, 64, 1, 2, 2, 8}, {4000, 64, 1, 2, 2, 8}};
  tt_port *port = &r->ports[1];
  int nranks = port->nranks;
  (void)state;
  for (size_t i = 0; i < TT_COUNT(list); i++) {
    offer_input(64, 64);
    assert_int_equal(actor_run(&sender), TT_RUN_DONE);
    take_input(list[i].count, list[i].chunk);
    next_token()->sig = reader.call.sig;
    next_token()->count = reader.call.sig_count;
    reader.sch.s.nsub = list[i].nsub;
    reader.sch.s.out_blocks = list[i].blocks;
    port->nranks = list[i].nranks;
    assert_int_equal(tt_token_take(port, &reader.lane, &r->links[1][0], 64), ncclSuccess);
    port->nranks = nranks;
    tt_fifo_release(&r->links[1][0].recv[TT_TOK]);
    assert_int_equal(r->links[1][0].handover->timing.chunks, list[i].chunks);
  }
}

// With a block for each rank a call goes both ways, whatever went before: it is measured from its first offer on.
static void test_a_call_of_blocks_goes_both_ways(void **state)
{
  (void)state;
  for (int i = 0; i < 2; i++) {
    offer_input(100, MOST);
    take_input(100, MOST);
    sender.sch.s.out_blocks = 2 - i;
    assert_int_equal(actor_run(&sender), TT_RUN_DONE);
    assert_int_equal(actor_run(&reader), TT_RUN_DONE);
    assert_int_equal(r->trials[0][1].sent[0], 1 + i);
    assert_true(r->links[0][1].handover->timing.since != 0);
  }
}

static uint64_t measured(void)
{
  return tt_now_ns() - r->links[0][1].handover->timing.since;
}

// Waiting for room before a call's first offer is measured, and for the peer to read the last one.
static void test_waiting_counts(void **state)
{
  static const uint64_t second = 1000000000;
  tt_link *link = &r->links[0][1];
  (void)state;
  r->trials[0][1].sent[0] = 0;
  offer_input(100, MOST);
  take_input(100, MOST);
  assert_int_equal(actor_run(&sender), TT_RUN_DONE);
  assert_int_equal(link->handover->timing.waits, 0);
  offer_input(RIG_BOX_BYTES, MOST); // has no room before the first one is taken
  assert_int_equal(actor_run(&sender), TT_RUN_BLOCKED);
  uint64_t from_ns = link->handover->timing.waits;
  assert_true(from_ns != 0);
  assert_int_equal(actor_run(&sender), TT_RUN_BLOCKED);
  assert_int_equal(link->handover->timing.waits, from_ns);
  link->handover->timing.since = 0;
  assert_int_equal(actor_run(&reader), TT_RUN_DONE);
  assert_int_equal(actor_run(&sender), TT_RUN_DONE);
  assert_int_equal(link->handover->timing.since, from_ns);
  assert_int_equal(link->handover->timing.waits, 0);
  link->handover->timing.until = second; // long ago: the peer has not read that yet
  take_input(RIG_BOX_BYTES, MOST);
  assert_int_equal(actor_run(&reader), TT_RUN_DONE);
  assert_true(tt_offers_drained(link));
  assert_true(link->handover->timing.until >= link->handover->timing.since);
}

// What is measured is all of a call, also what was still offered when the last one had taken everything, and not what
// the program does in between.
static void test_what_counts_as_a_calls_time(void **state)
{
  static const uint64_t second = 1000000000, hour = 3600 * second;
  tt_link *link = &r->links[0][1];
  (void)state;
  r->trials[0][1].sent[0] = 0;
  offer_input(128, 64);
  assert_int_equal(actor_run_step(&sender), TT_RUN_MORE);
  assert_true(link->handover->timing.since != 0 && link->handover->timing.until >= link->handover->timing.since &&
              measured() < hour);
  link->handover->timing.since -= hour;
  assert_int_equal(actor_run(&sender), TT_RUN_DONE); // the second chunk
  assert_true(measured() > hour && link->handover->timing.until - link->handover->timing.since > hour);
  take_input(128, 64);
  assert_int_equal(actor_run(&reader), TT_RUN_DONE);
  link->handover->timing.since = 3 * second; // everything was taken then, and something more offered afterwards
  link->handover->timing.until = 8 * second;
  offer_input(64, 64);
  assert_int_equal(actor_run(&sender), TT_RUN_DONE);
  assert_in_range(measured(), 5 * second, 6 * second + hour / 2);
  for (uint64_t call = 6; call <= 7;
       call++) { // numbered ones: among several ranks only one peer is offered something in the first step
    link->handover->timing.since = 3 * second;
    link->handover->timing.until = 8 * second;
    offer_input(64, 64);
    sender.call.sig = call << 32;
    assert_int_equal(actor_run(&sender), TT_RUN_DONE);
    assert_in_range(measured(), 5 * second, 6 * second + hour / 2);
  }
  link->handover->timing.since = 3 * second;
  offer_input(64, 64);
  sender.call.sig = 7ull << 32;
  assert_int_equal(actor_run(&sender), TT_RUN_DONE);
  assert_int_equal(link->handover->timing.since, 3 * second); // in the midst of the call
  for (int i = 0; i < 4; i++) {
    take_input(64, 64);
    reader.call.sig = (uint64_t)(i == 0 ? 0 : TT_MIN(5 + i, 7)) << 32;
    assert_int_equal(actor_run(&reader), TT_RUN_DONE);
  }
  r->trials[0][1].sent[0] = ONE_WAY; // a rank that takes nothing measures nothing
  offer_input(64, 64);
  assert_int_equal(actor_run(&sender), TT_RUN_DONE);
  assert_true(link->handover->timing.since == 0 && link->handover->timing.until == 0);
  r->trials[0][1] = (tt_trials){.off = true, .of_size[0] = {.rest = 1}}; // and nobody between trials
  offer_input(64, 64);
  assert_int_equal(actor_run(&sender), TT_RUN_DONE);
  assert_true(link->handover->timing.since == 0 && link->handover->timing.until == 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_copies_reach_the_reader, offer_setup, offer_teardown),
      cmocka_unit_test_setup_teardown(test_a_full_ring_blocks, offer_setup, offer_teardown),
      cmocka_unit_test_setup_teardown(test_a_copy_that_fills_the_ring, offer_setup, offer_teardown),
      cmocka_unit_test_setup_teardown(test_an_empty_ring_begins_anew, offer_setup, offer_teardown),
      cmocka_unit_test_setup_teardown(test_any_sizes, offer_setup, offer_teardown),
      cmocka_unit_test(test_a_drain_waits_for_memory_that_is_read),
      cmocka_unit_test_setup_teardown(test_a_drain_between_copies, offer_setup, offer_teardown),
      cmocka_unit_test_setup_teardown(test_a_drain_waits_for_plain_tokens, offer_setup, offer_teardown),
      cmocka_unit_test_setup_teardown(test_a_drain_after_very_many_copies, offer_setup, offer_teardown),
      cmocka_unit_test_setup_teardown(test_a_receiver_without_copies_of_its_own, offer_setup, offer_teardown),
      cmocka_unit_test(test_places_that_do_not_exist),
      cmocka_unit_test_setup_teardown(test_sums_are_laid_at_once, offer_setup, offer_teardown),
      cmocka_unit_test_setup_teardown(test_sums_without_room, offer_setup, offer_teardown),
      cmocka_unit_test_setup_teardown(test_sums_that_the_kernel_writes, offer_setup, offer_teardown),
      cmocka_unit_test_setup_teardown(test_the_lower_rank_decides, offer_setup, offer_teardown),
      cmocka_unit_test_setup_teardown(test_a_reader_that_forbids_copies, offer_setup, offer_teardown),
      cmocka_unit_test_setup_teardown(test_offers_that_go_one_way, offer_setup, offer_teardown),
      cmocka_unit_test_setup_teardown(test_the_reader_says_what_it_wants, offer_setup, offer_teardown),
      cmocka_unit_test_setup_teardown(test_chunks_of_a_call, offer_setup, offer_teardown),
      cmocka_unit_test_setup_teardown(test_a_call_of_blocks_goes_both_ways, offer_setup, offer_teardown),
      cmocka_unit_test_setup_teardown(test_waiting_counts, offer_setup, offer_teardown),
      cmocka_unit_test_setup_teardown(test_what_counts_as_a_calls_time, offer_setup, offer_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
