// lane_test.c: how a lane cuts a message into chunks, when it stops, and what its tokens carry. tests/executor_test.c
// runs whole algorithms.
#include "device/host/rig.h"

static rig *r;
static rig_schedule sch;
static char in[4096], out[4096];

static int setup(void **state)
{
  (void)state;
  r = rig_open();
  for (size_t i = 0; i < sizeof in; i++) {
    in[i] = (char)(i * 7);
  }
  memset(out, 0, sizeof out);
  return 0;
}

static int teardown(void **state)
{
  (void)state;
  rig_close(r);
  return 0;
}

// Takes the next message from rank 0 to rank 1 and returns its bytes; -1: there is none.
static int take(tt_proto k, const char *expected)
{
  tt_fifo *f = &r->links[1][0].recv[k];
  if (!tt_fifo_arrived(f)) {
    return -1;
  }
  int bytes = (int)tt_fifo_slot(f)->bytes;
  assert_memory_equal(tt_fifo_data(f), expected, (size_t)bytes);
  tt_fifo_release(f);
  return bytes;
}

typedef struct cut {
  int nsub;
  size_t esize, count, chunk;
  int bytes[12]; // of the messages, -1 at the end
} cut;

// One message per sub-chunk and pass. The last pass shares out what remains, in whole cache lines.
static void test_how_messages_are_cut(void **state)
{
  static const cut cuts[] = {
      {1, 4, 40, 16, {64, 64, 32, -1}},
      {1, 4, 1, 16, {4, -1}},
      {1, 4, 16, 16, {64, -1}},
      {3, 4, 48, 16, {64, 64, 64, -1}},
      {3, 4, 50, 16, {64, 64, 64, 8, 0, 0, -1}},
      {3, 4, 130, 60, {192, 192, 136, -1}}, // 44 each, rounded to 48
      {3, 1, 300, 250, {128, 128, 44, -1}}, // 100 each, rounded to 128
      {3, 8, 5, 30, {40, 0, 0, -1}},
      {2, 2, 7, 3, {6, 6, 2, 0, -1}}, // never more than the chunk
      {1, 8, 3, 1, {8, 8, 8, -1}},
  };
  (void)state;
  for (size_t i = 0; i < TT_COUNT(cuts); i++) {
    const cut *c = &cuts[i];
    rig_step steps[3];
    for (int k = 0; k < 3; k++) {
      steps[k] = (rig_step){TT_IN, -1, TT_FIFO, 1, (uint32_t)k};
    }
    tt_call call = {.in = in, .count = c->count, .esize = c->esize};
    tt_lane l;
    size_t budget = 1 << 20, at = 0;
    int n = 0, got;
    tt_lane_init(&l, rig_write(&sch, c->nsub, steps, c->nsub), 0, &call, c->chunk, TT_SIMPLE);
    while (!l.done || tt_fifo_arrived(&r->links[1][0].recv[TT_SIMPLE])) {
      tt_lane_run(&r->ports[0], &l, &budget);
      got = take(TT_SIMPLE, in + at);
      if (got != c->bytes[n]) {
        fail_msg("case %zu: message %d has %d bytes, not %d", i, n, got, c->bytes[n]);
      }
      at += (size_t)got;
      n++;
    }
    assert_int_equal(c->bytes[n], -1);
    assert_int_equal(at, c->count * c->esize);
  }
}

static void test_nothing_to_do(void **state)
{
  tt_call call = {.in = in, .esize = 4};
  tt_lane l;
  size_t budget = 100;
  (void)state;
  tt_lane_init(&l, rig_send(&sch, 1), 0, &call, 16, TT_SIMPLE);
  assert_true(l.done);
  assert_int_equal(tt_lane_run(&r->ports[0], &l, &budget), TT_RUN_DONE);
  assert_int_equal(budget, 100);
  call.count = 5;
  sch.strand.count = 0;
  tt_lane_init(&l, &sch.s, 0, &call, 16, TT_SIMPLE);
  assert_true(l.done);
}

// A part of each block: the messages of that part alone, cut as if it were the whole.
static void test_a_share_of_each_block(void **state)
{
  rig_step steps[2] = {{TT_IN, -1, TT_FIFO, 1, 0}, {TT_IN, -1, TT_FIFO, 1, 1}};
  static const int bytes[] = {40, 40, 40, 20};
  tt_call call = {.in = in, .count = 80, .esize = 4};
  tt_lane l;
  size_t budget = 1 << 20, at = 7 * 4;
  (void)state;
  tt_lane_init(&l, rig_write(&sch, 2, steps, 2), 0, &call, 10, TT_SIMPLE);
  tt_lane_share(&l, 7, 42);
  for (int i = 0; i < 4; i++) {
    assert_int_equal(tt_lane_message(&l, (uint32_t)i % 2, (uint64_t)i / 2), bytes[i]);
  }
  tt_lane_run(&r->ports[0], &l, &budget);
  assert_true(l.done);
  for (int i = 0; i < 4; i++) {
    assert_int_equal(take(TT_SIMPLE, in + at), bytes[i]);
    at += (size_t)bytes[i];
  }
  assert_int_equal(at, 42 * 4);
  assert_false(tt_fifo_arrived(&r->links[1][0].recv[TT_SIMPLE]));
  tt_lane_share(&l, 5, 5);
  assert_true(l.done);
}

static void test_a_full_fifo_blocks(void **state)
{
  tt_call call = {.in = in, .count = 6 * 16, .esize = 4};
  tt_lane l;
  size_t budget = 1 << 20;
  (void)state;
  tt_lane_init(&l, rig_send(&sch, 1), 0, &call, 16, TT_LL);
  assert_int_equal(tt_lane_run(&r->ports[0], &l, &budget), TT_RUN_BLOCKED);
  assert_int_equal(l.waits_for, 1);
  assert_int_equal(l.pos, 4 * 16);
  size_t before = budget;
  assert_int_equal(tt_lane_run(&r->ports[0], &l, &budget), TT_RUN_BLOCKED);
  assert_int_equal(budget, before); // nothing moved
  assert_int_equal(take(TT_LL, in), 64);
  assert_int_equal(tt_lane_run(&r->ports[0], &l, &budget), TT_RUN_BLOCKED);
  assert_int_equal(l.pos, 5 * 16);
  assert_int_equal(take(TT_LL, in + 64), 64);
  assert_int_equal(tt_lane_run(&r->ports[0], &l, &budget), TT_RUN_DONE);
  assert_true(l.done);
  assert_false(tt_fifo_arrived(&r->links[1][0].recv[TT_SIMPLE])); // the other FIFOs were left alone
}

static void test_the_budget_ends_a_turn(void **state)
{
  tt_call call = {.in = in, .count = 3, .esize = 1};
  tt_lane l;
  (void)state;
  tt_lane_init(&l, rig_send(&sch, 1), 0, &call, 1, TT_SIMPLE);
  for (int i = 0; i < 3; i++) {
    size_t budget = 1;
    assert_int_equal(tt_lane_run(&r->ports[0], &l, &budget), i < 2 ? TT_RUN_MORE : TT_RUN_DONE);
    assert_int_equal(budget, 0);
    assert_int_equal(l.pos, i + 1);
  }
  size_t budget = 1000;
  tt_lane_init(&l, &sch.s, 0, &call, 3, TT_SIMPLE);
  assert_int_equal(tt_lane_run(&r->ports[0], &l, &budget), TT_RUN_DONE);
  assert_in_range(budget, 800, 997); // a step costs its bytes and something for itself
}

static void test_marks_of_choices(void **state)
{
  const uint64_t count = (UINT64_C(1) << TT_SIG_COUNT_BITS) - 3;
  (void)state;
  for (int bit = 0; bit < 20; bit++) { // each of them tells two choices apart
    uint64_t a = tt_sig_count_mark(count, 0x5a5a5, false),
             b = tt_sig_count_mark(count, 0x5a5a5 ^ UINT64_C(1) << bit, false);
    assert_false(tt_sig_count_same(a, b));
    assert_true(TT_SIG_COUNT(a) == count && TT_SIG_COUNT(b) == count);
  }
  // The mark tells that a rank has chosen, and makes no difference.
  uint64_t own = tt_sig_count_mark(count, UINT64_MAX, false), told = tt_sig_count_mark(count, UINT64_MAX, true);
  assert_true(tt_sig_count_same(own, told) && own != told && (own & TT_SIG_DECIDED) == 0 &&
              (told & TT_SIG_DECIDED) != 0);
  assert_false(tt_sig_count_same(own, tt_sig_count_mark(count - 1, UINT64_MAX, false)));
}

// A lane of rank 0 that sends to rank 1, and that one's: ten elements at a time.
static void send_and_receive(tt_lane *l, tt_call *a, tt_lane *m, tt_call *b)
{
  static rig_schedule other;
  tt_lane_init(l, rig_send(&sch, 1), 0, a, 10, TT_SIMPLE);
  tt_lane_init(m, rig_recv(&other, 0), 0, b, 10, TT_SIMPLE);
}

static void test_received_messages_go_back_at_once(void **state)
{
  tt_call a = {.in = in, .count = 100, .esize = 1, .sig = 77, .sig_count = 100},
          b = {.out = out, .count = 100, .esize = 1, .sig = 77, .sig_count = 100};
  tt_lane l, m;
  (void)state;
  send_and_receive(&l, &a, &m, &b);
  assert_int_equal(rig_run(r, 1, &m), TT_RUN_BLOCKED);
  assert_int_equal(m.waits_for, 0);
  while (!m.done) {
    rig_run(r, 0, &l);
    assert_int_not_equal(rig_run(r, 1, &m), TT_RUN_FAILED);
    assert_int_equal(atomic_load(&r->windows[0][1].heads[TT_SIMPLE].head), m.done ? 10 : m.pos / 10);
  }
  assert_true(tt_fifo_drained(&r->links[0][1].send[TT_SIMPLE]));
  assert_memory_equal(in, out, 100);
}

// Token, read, answer: what a Direct send and receive do.
static void test_tokens_carry_addresses_and_scalars(void **state)
{
  static const rig_step give[] = {{-1, -1, TT_TOKEN, 1, 0}, {TT_DRAIN, 1, -1, -1, 0}};
  rig_schedule reader = {0};
  tt_call a = {.in = in, .out = out + 1000, .count = 64, .esize = 1, .op.scalar = 4711},
          b = {.out = out, .count = 64, .esize = 1};
  tt_lane l, m;
  (void)state;
  rig_write(&reader, 1, &(rig_step){TT_TOKEN, 0, -1, -1, 0}, 1);
  reader.refs[1] = (tt_ref){.kind = TT_PEER_IN, .peer = 0};
  reader.refs[2] = (tt_ref){.kind = TT_OUT};
  reader.steps[0] = (tt_step){.nsrc = 2, .ndst = 1, .dst = 2};
  reader.s.nrefs = 3;
  tt_lane_init(&l, rig_write(&sch, 1, give, 2), 0, &a, 64, TT_TOK);
  tt_lane_init(&m, &reader.s, 0, &b, 64, TT_TOK);
  assert_int_equal(rig_run(r, 1, &m), TT_RUN_BLOCKED);
  assert_int_equal(rig_run(r, 0, &l), TT_RUN_BLOCKED);
  assert_int_equal(l.pc, 1); // waits until the token comes back
  assert_int_equal(l.waits_for, 1);
  assert_int_equal(rig_run(r, 1, &m), TT_RUN_DONE);
  assert_memory_equal(out, in, 64);
  assert_ptr_equal(tt_handover_place(r->links[1][0].handover, false, 0, 1), in);
  assert_ptr_equal(tt_handover_place(r->links[1][0].handover, true, 0, 1), out + 1000);
  assert_int_equal(r->links[1][0].handover->scalar, 4711);
  assert_int_equal(rig_run(r, 0, &l), TT_RUN_DONE);
}

static void test_a_message_of_another_call_stops_the_port(void **state)
{
  tt_call a = {.in = in, .count = 3, .esize = 1, .sig = tt_sig_make(7, 4, ncclFloat32, 0, 0), .sig_count = 3};
  tt_call b = {.out = out, .count = 3, .esize = 1, .sig = tt_sig_make(7, 4, ncclFloat32, 1, 0), .sig_count = 3};
  tt_lane l, m;
  (void)state;
  send_and_receive(&l, &a, &m, &b);
  assert_int_equal(rig_run(r, 0, &l), TT_RUN_DONE);
  assert_int_equal(rig_run(r, 1, &m), TT_RUN_FAILED);
  assert_int_equal(tt_port_status(&r->ports[1]), ncclInvalidUsage);
  assert_int_equal(atomic_load(&r->pages[1].state), TT_RANK_FAILED);
  assert_non_null(strstr(r->ports[1].error, "op prod"));
  assert_non_null(strstr(r->ports[1].error, "op sum"));
  assert_int_equal(out[0], 0);
}

// A message of the same call whose sender was given another choice, or the same by somebody else.
static void test_choices_that_differ(void **state)
{
  static const struct {
    uint64_t choice;
    bool here, there; // has the plugin decided at the receiver, at the sender?
    const char *error;
  } list[] = {
      {6, true, true,
       "the tuner plugin (none here) answers differently on rank 1 and rank 0 for operation 7 AllReduce"},
      {6, true, false, "decides on rank 1, and on rank 0 leaves alone, operation 7"},
      {6, false, true, "decides on rank 0, and on rank 1 leaves alone, operation 7"},
      {6, false, false, "rank 1 and rank 0 choose differently for operation 7 AllReduce"},
      {5, true, false, NULL},
      {5, false, true, NULL},
  };
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    tt_call a = {.in = in, .count = 3, .esize = 1, .sig = tt_sig_make(7, 4, ncclFloat32, 0, 0)}, b = a;
    a.sig_count = tt_sig_count_mark(3, list[i].choice, list[i].there);
    b.out = out;
    b.sig_count = tt_sig_count_mark(3, 5, list[i].here);
    tt_lane l, m;
    send_and_receive(&l, &a, &m, &b);
    assert_int_equal(rig_run(r, 0, &l), TT_RUN_DONE);
    assert_int_equal(rig_run(r, 1, &m), list[i].error != NULL ? TT_RUN_FAILED : TT_RUN_DONE);
    if (list[i].error != NULL) {
      assert_int_equal(tt_port_status(&r->ports[1]), ncclInvalidUsage);
      assert_non_null(strstr(r->ports[1].error, list[i].error));
    }
    teardown(state);
    setup(state);
  }
}

// The proxy's part: looks at the next message to rank 1, and gives its slot back.
static const char *elsewhere(bool give_back)
{
  tt_fifo *f = &r->links[1][0].recv[TT_SIMPLE];
  assert_true(tt_fifo_arrived(f));
  const char *at = (const char *)(uintptr_t)tt_fifo_slot(f)->elsewhere;
  if (give_back) {
    tt_fifo_release(f);
  }
  return at;
}

static char large[4 * TT_LEND_MIN], copy[4 * TT_LEND_MIN];

// What is sent over the network stays where it is, and the lane with it, until the slots are back.
static void test_lending_over_the_network(void **state)
{
  tt_call call = {.in = large, .count = 4 * TT_LEND_MIN - 300, .esize = 1};
  tt_lane l;
  (void)state;
  rig_send(&sch, 1);
  sch.steps[0].flags = TT_STEP_LEND;
  r->links[0][1].networked = true;
  tt_lane_init(&l, &sch.s, 0, &call, 2 * TT_LEND_MIN, TT_SIMPLE);
  l.lends = TT_STEP_LEND;
  assert_int_equal(rig_run(r, 0, &l), TT_RUN_BLOCKED);
  assert_true(l.drains && !l.done);
  assert_int_equal(l.waits_for, 1);
  assert_ptr_equal(elsewhere(true), large);
  assert_int_equal(rig_run(r, 0, &l), TT_RUN_BLOCKED);
  assert_ptr_equal(elsewhere(true), large + 2 * TT_LEND_MIN);
  assert_int_equal(rig_run(r, 0, &l), TT_RUN_DONE);
  assert_int_equal(l.waits_for, -1);

  call.count = 100; // too small to be lent: and the slot says so again
  tt_fifo_slot(&r->links[0][1].send[TT_SIMPLE])->elsewhere = 1;
  tt_lane_init(&l, &sch.s, 0, &call, 2 * TT_LEND_MIN, TT_SIMPLE);
  l.lends = TT_STEP_LEND;
  assert_int_equal(rig_run(r, 0, &l), TT_RUN_DONE);
  assert_null(elsewhere(false));
  assert_int_equal(take(TT_SIMPLE, large), 100);
}

static void check_lender(const rig_step *steps, unsigned flags, const tt_redop *op, const char *expected)
{
  tt_call call = {.in = large, .out = copy, .count = TT_LEND_MIN, .esize = 1, .op = *op};
  tt_lane l;
  rig_write(&sch, 1, steps, 1);
  if (steps->dst == TT_OUT) { // and a message besides
    sch.refs[2] = (tt_ref){.kind = TT_FIFO, .peer = 1};
    sch.steps[0].ndst = 2;
  }
  sch.steps[0].flags = (uint16_t)(flags | TT_STEP_LEND_IN_PLACE);
  tt_lane_init(&l, &sch.s, 0, &call, TT_LEND_MIN, TT_SIMPLE);
  l.lends = TT_STEP_LEND_IN_PLACE;
  assert_int_equal(rig_run(r, 0, &l), TT_RUN_BLOCKED);
  assert_ptr_equal(elsewhere(true), expected);
  assert_int_equal(rig_run(r, 0, &l), TT_RUN_DONE);
}

// The output if there is one, else the source, unless the step changes it.
static void test_who_lends(void **state)
{
  static const rig_step send = {TT_IN, -1, TT_FIFO, 1, 0}, both = {TT_IN, -1, TT_OUT, -1, 0},
                        again = {TT_OUT, -1, TT_FIFO, 1, 0};
  const tt_redop plain = {.type = ncclUint8, .kind = TT_RED_SUM};
  (void)state;
  memset(large, 3, sizeof large);
  r->links[0][1].networked = true;
  check_lender(&send, TT_STEP_REDUCE, &plain, large);
  check_lender(&again, 0, &plain, copy);
  check_lender(&both, TT_STEP_REDUCE | TT_STEP_FINAL, &(tt_redop){.type = ncclUint8, .divisor = 3}, copy);
  assert_int_equal(copy[0], 1);
  assert_int_equal(copy[TT_LEND_MIN - 1], 1);
  check_lender(&both, 0, &plain, copy);
  assert_memory_equal(copy, large, TT_LEND_MIN);
}

// Puts message `number` for rank 1 into its FIFO, made of this byte; it lies somewhere else.
static void put_elsewhere(char *payload, size_t size, int number)
{
  tt_fifo *f = &r->links[0][1].send[TT_SIMPLE];
  memset(payload, number, size);
  assert_true(tt_fifo_room(f));
  tt_fifo_slot(f)->elsewhere = (uint64_t)(uintptr_t)payload;
  tt_fifo_publish(f, (uint32_t)size, 0, 0);
}

// Where a message belongs before it has come is where the executor puts it.
static void check_places(uint32_t nsub, size_t esize, size_t count, size_t chunk)
{
  size_t block = count * esize, budget = 1 << 30, bytes;
  char *result = calloc(2, block), *payload = malloc(chunk * esize);
  rig_step steps[8];
  tt_call call = {.out = result, .count = count, .esize = esize};
  tt_lane l;
  for (uint32_t k = 0; k < 2 * nsub; k++) {
    steps[k] = (rig_step){TT_FIFO, 0, TT_OUT, -1, k % nsub};
  }
  rig_write(&sch, (int)nsub, steps, 2 * (int)nsub);
  sch.s.out_blocks = 2;
  for (uint32_t k = 0; k < 2 * nsub; k++) {
    sch.refs[2 * k].chunk = sch.refs[2 * k + 1].chunk = k;
    sch.steps[k].flags = k == 1 ? 0 : TT_STEP_PLACE;
  }
  tt_lane_init(&l, &sch.s, 0, &call, chunk, TT_SIMPLE);
  assert_null(tt_lane_place(&l, 0, 0, &bytes)); // not allowed
  l.places = TT_STEP_PLACE;
  int number = 0, placed = 0;
  for (uint64_t pass = 0; !l.done; pass++) {
    for (uint32_t k = 0; k < 2 * nsub; k++) {
      char *place = tt_lane_place(&l, k, pass, &bytes);
      put_elsewhere(payload, chunk * esize, ++number % 127);
      assert_int_not_equal(tt_lane_run(&r->ports[1], &l, &budget), TT_RUN_FAILED);
      if (place != NULL) {
        assert_int_not_equal(k, 1);
        assert_true(place >= result && place + bytes <= result + 2 * block && bytes >= TT_LEND_MIN);
        assert_true(place[0] == number % 127 && place[bytes - 1] == number % 127);
        assert_true(place == result || place[-1] != number % 127);
        assert_true(place + bytes == result + 2 * block || place[bytes] != number % 127);
        placed++;
      }
    }
  }
  assert_true(placed > 0);
  free(result);
  free(payload);
}

static void test_where_messages_belong(void **state)
{
  (void)state;
  r->links[1][0].networked = true;
  check_places(1, 1, 3 * TT_LEND_MIN + 5, TT_LEND_MIN);
  check_places(1, 8, TT_LEND_MIN, TT_LEND_MIN);
  check_places(2, 4, 5 * TT_LEND_MIN + 3, 2 * TT_LEND_MIN);
  check_places(3, 2, 20 * TT_LEND_MIN + 17, TT_LEND_MIN);
  check_places(4, 1, 8 * TT_LEND_MIN + 100, 3 * TT_LEND_MIN);
  check_places(4, 8, 16 * TT_LEND_MIN + 1, 3 * TT_LEND_MIN);
}

// A payload that lies where it belongs is left alone, and goes on from there.
static void test_a_placed_message(void **state)
{
  tt_call call = {.out = copy, .count = TT_LEND_MIN, .esize = 1};
  tt_lane l;
  (void)state;
  r->links[1][0].networked = r->links[1][2].networked = true;
  rig_recv(&sch, 0);
  sch.refs[2] = (tt_ref){.kind = TT_FIFO, .peer = 2};
  sch.steps[0].ndst = 2;
  sch.steps[0].flags = TT_STEP_PLACE | TT_STEP_LEND;
  tt_lane_init(&l, &sch.s, 0, &call, TT_LEND_MIN, TT_SIMPLE);
  l.lends = TT_STEP_LEND;
  l.places = TT_STEP_PLACE;
  put_elsewhere(copy, TT_LEND_MIN, 9);
  assert_int_equal(rig_run(r, 1, &l), TT_RUN_BLOCKED);
  assert_ptr_equal((char *)(uintptr_t)tt_fifo_slot(&r->links[2][1].recv[TT_SIMPLE])->elsewhere, copy);
  tt_fifo_release(&r->links[2][1].recv[TT_SIMPLE]);
  assert_int_equal(rig_run(r, 1, &l), TT_RUN_DONE);
  assert_int_equal(copy[0], 9);
  assert_int_equal(copy[TT_LEND_MIN - 1], 9);
}

// Links that no reference needs are not read at all, for another thread may be making them: the own one lies on a page
// here that cannot be read.
static void test_links_that_are_not_needed(void **state)
{
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  tt_call call = {.in = large, .out = copy, .count = 2 * TT_LEND_MIN, .esize = 1};
  tt_lane l;
  (void)state;
  char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(pages != MAP_FAILED);
  tt_link **table = (tt_link **)(pages + page) - 1;
  memcpy(table, r->tables[0], sizeof r->tables[0]);
  assert_int_equal(mprotect(pages, page, PROT_NONE), 0);
  r->ports[0].links = table;
  r->links[0][1].networked = true;
  rig_send(&sch, 1);
  sch.refs[2] = (tt_ref){.kind = TT_OUT}; // beside the message
  sch.steps[0].ndst = 2;
  sch.steps[0].flags = TT_STEP_LEND;
  tt_lane_init(&l, &sch.s, 0, &call, TT_LEND_MIN, TT_SIMPLE);
  l.lends = TT_STEP_LEND;
  assert_int_equal(rig_run(r, 0, &l), TT_RUN_BLOCKED);
  assert_true(l.drains && !l.done);
  assert_non_null(elsewhere(true));
  assert_non_null(elsewhere(true));
  assert_int_equal(rig_run(r, 0, &l), TT_RUN_DONE);
  r->ports[0].links = r->tables[0];
  munmap(pages, 2 * page);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_how_messages_are_cut, setup, teardown),
      cmocka_unit_test_setup_teardown(test_nothing_to_do, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_share_of_each_block, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_full_fifo_blocks, setup, teardown),
      cmocka_unit_test_setup_teardown(test_the_budget_ends_a_turn, setup, teardown),
      cmocka_unit_test(test_marks_of_choices),
      cmocka_unit_test_setup_teardown(test_received_messages_go_back_at_once, setup, teardown),
      cmocka_unit_test_setup_teardown(test_tokens_carry_addresses_and_scalars, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_message_of_another_call_stops_the_port, setup, teardown),
      cmocka_unit_test_setup_teardown(test_choices_that_differ, setup, teardown),
      cmocka_unit_test_setup_teardown(test_lending_over_the_network, setup, teardown),
      cmocka_unit_test_setup_teardown(test_who_lends, setup, teardown),
      cmocka_unit_test_setup_teardown(test_where_messages_belong, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_placed_message, setup, teardown),
      cmocka_unit_test_setup_teardown(test_links_that_are_not_needed, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
