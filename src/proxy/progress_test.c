// progress_test.c: the two machines, message by message, over a network in memory. Nothing is connected by service
// threads, and the progress thread keeps out of the way.
#include "proxy/proxy_rig.h"

#include <sys/socket.h>
#include <unistd.h>

#include "proxy/service_priv.h"

static rig *open_pair(const tt_net_ops *net)
{
  rig *r = rig_open(2, net);
  rig_link(r, 0, 1, false);
  rig_link(r, 1, 0, false);
  return r;
}

static void post(rig *r, int rank, const tt_proxy_op *op)
{
  assert_int_equal(tt_proxy_post(r->ranks[rank].proxy, op), ncclSuccess);
}

static bool look(rig *r, int rank)
{
  return tt_proxy_progress(r->ranks[rank].proxy, true);
}

// A stopped port's operations go. Its service looks after them too: the second thread may find the first one at it.
static void await_drop(rig *r, int rank)
{
  UNTIL((look(r, rank), tt_proxy_idle(r->ranks[rank].proxy)));
}

static void check_counts(rig *r, int rank, uint32_t posted, uint32_t received, uint32_t transmitted, uint32_t done)
{
  tt_proxy_op_state s = rig_state(r, rank);
  assert_int_equal(s.posted, posted);
  assert_int_equal(s.received, received);
  assert_int_equal(s.transmitted, transmitted);
  assert_int_equal(s.done, done);
}

static void send_machine(void **state)
{
  (void)state;
  fake_start(1);
  rig *r = open_pair(&fake_net);
  tt_fifo *f = &r->ranks[0].links[1].send[TT_SIMPLE];
  tt_proxy_op op = rig_op(1, true, TT_SIMPLE, 10);
  op.opcount = 5;
  op.nbytes = 1234;
  post(r, 0, &op);
  assert_false(tt_proxy_idle(r->ranks[0].proxy));
  assert_false(look(r, 0));
  assert_false(rig_state(r, 0).connected);
  rig_wire(r, 0, 1);
  assert_true(rig_state(r, 0).connected);
  assert_true(rig_state(r, 0).started_ns != 0);
  tt_proxy_op seen = rig_state(r, 0).op;
  assert_memory_equal(&seen, &op, sizeof op);
  check_counts(r, 0, 8, 0, 0, 0);
  assert_true(rig_put(0, f, TT_SIMPLE, op.sig, op.count));
  assert_true(look(r, 0)); // sent at once, so the slot is back
  check_counts(r, 0, 9, 0, 1, 1);
  assert_int_equal(atomic_load(f->head), 1);
  assert_false(look(r, 0));

  fake.send_ns = 3600 * TT_NS_PER_S; // from now on sends stay under way
  while (rig_put(0, f, TT_SIMPLE, op.sig, op.count)) {
  }
  assert_false(look(r, 0));
  check_counts(r, 0, 9, 0, 9, 1);
  assert_false(rig_put(0, f, TT_SIMPLE, op.sig, op.count));
  assert_false(tt_proxy_idle(r->ranks[0].proxy));
  rig_close(r); // with requests under way
  fake_stop();
}

static void send_in_pieces(void **state)
{
  (void)state;
  fake_start(2);
  rig *r = open_pair(&fake_net);
  rig_wire(r, 0, 1);
  for (int op = 0; op < 300; op++) { // also over the end of the FIFOs and of the pool of operations
    tt_proto proto = op % 3 == 0 ? TT_SIMPLE : TT_LL;
    tt_fifo *f = &r->ranks[0].links[1].send[proto];
    tt_proxy_op o = rig_op(1, true, proto, 1 + (uint32_t)op % 3);
    post(r, 0, &o);
    for (uint32_t i = 0; i < o.nsteps; i++) {
      assert_false(tt_proxy_idle(r->ranks[0].proxy));
      assert_true(rig_put(0, f, proto, o.sig, o.count));
      assert_true(look(r, 0));
    }
    assert_true(tt_proxy_idle(r->ranks[0].proxy));
    assert_int_equal(atomic_load(f->head), f->next);
  }
  tt_proxy_op none = rig_op(1, true, TT_LL, 0);
  post(r, 0, &none);
  assert_true(tt_proxy_idle(r->ranks[0].proxy));
  rig_close(r);
  fake_stop();
}

static void recv_machine(void **state)
{
  (void)state;
  fake_start(3);
  rig *r = open_pair(&fake_net);
  rig_wire(r, 0, 1);
  tt_fifo *out = &r->ranks[0].links[1].send[TT_SIMPLE], *in = &r->ranks[1].links[0].recv[TT_SIMPLE];
  tt_proxy_op so = rig_op(1, true, TT_SIMPLE, 10), ro = rig_op(0, false, TT_SIMPLE, 10);
  post(r, 0, &so);
  post(r, 1, &ro);
  assert_false(look(r, 1));
  check_counts(r, 1, 8, 0, 0, 0);
  rig_put(0, out, TT_SIMPLE, so.sig, so.count);
  rig_put(0, out, TT_SIMPLE, so.sig, so.count);
  assert_true(look(r, 0));
  assert_true(look(r, 1));
  check_counts(r, 1, 8, 2, 2, 0);
  assert_true(rig_get(0, in, TT_SIMPLE, so.sig, so.count));
  check_counts(r, 1, 8, 2, 2, 1);
  assert_false(look(r, 1)); // a slot was posted, but nothing has come
  check_counts(r, 1, 9, 2, 2, 1);
  for (int i = 2; i < 10; i++) {
    assert_true(rig_put(0, out, TT_SIMPLE, so.sig, so.count));
    assert_true(look(r, 0));
  }
  assert_true(tt_proxy_idle(r->ranks[0].proxy));
  assert_true(look(r, 1));
  check_counts(r, 1, 9, 9, 9, 1); // the slots are full
  assert_false(look(r, 1));
  for (int i = 1; i < 9; i++) {
    assert_true(rig_get(0, in, TT_SIMPLE, so.sig, so.count));
  }
  assert_true(look(r, 1));
  assert_true(tt_proxy_idle(r->ranks[1].proxy));
  assert_true(rig_get(0, in, TT_SIMPLE, so.sig, so.count));
  assert_false(tt_fifo_arrived(in));
  rig_close(r);
  fake_stop();
}

// A payload that does not lie in its slot: this network takes messages in one piece only, so it goes by way of the
// slot.
static void lent_payloads(void **state)
{
  (void)state;
  fake_start(33);
  fake.not_now = 500;
  rig *r = open_pair(&fake_net);
  rig_wire(r, 0, 1);
  tt_fifo *out = &r->ranks[0].links[1].send[TT_SIMPLE], *in = &r->ranks[1].links[0].recv[TT_SIMPLE];
  tt_proxy_op so = rig_op(1, true, TT_SIMPLE, 40), ro = rig_op(0, false, TT_SIMPLE, 40);
  char *lent = malloc(RIG_BIG_BYTES);
  post(r, 0, &so);
  post(r, 1, &ro);
  for (uint32_t n = 0; n < 40; n++) {
    for (uint32_t k = 0; k < RIG_BIG_BYTES; k++) {
      lent[k] = rig_byte(0, n, k);
    }
    tt_fifo_slot(out)->elsewhere = (uint64_t)(uintptr_t)lent;
    tt_fifo_publish(out, rig_size(0, TT_SIMPLE, n, RIG_BIG_BYTES), so.sig, so.count);
    while (!tt_fifo_drained(out)) {
      look(r, 0);
    }
    memset(lent, 0x77, RIG_BIG_BYTES); // the slot is back: nobody reads here any more
    while (!tt_fifo_arrived(in)) {
      look(r, 1);
    }
    assert_int_equal(tt_fifo_slot(in)->elsewhere, 0);
    assert_true(rig_get(0, in, TT_SIMPLE, so.sig, so.count));
  }
  free(lent);
  rig_close(r);
  fake_stop();
}

// Once the port is stopped and the proxy was told to leave the buffers alone, nothing is under way, whichever thread
// drives it.
static void settling(void **state)
{
  (void)state;
  fake_start(34);
  fake.send_ns = 3600 * TT_NS_PER_S;
  rig *r = open_pair(&fake_net);
  rig_wire(r, 0, 1);
  tt_fifo *out = &r->ranks[0].links[1].send[TT_SIMPLE];
  tt_proxy_op so = rig_op(1, true, TT_SIMPLE, 5);
  tt_proxy_mover.settle(r->ranks[0].proxy); // nothing to do
  post(r, 0, &so);
  rig_put(0, out, TT_SIMPLE, so.sig, so.count);
  look(r, 0);
  assert_int_equal(atomic_load(&fake.sends), 1);
  rig_put(0, out, TT_SIMPLE, so.sig, so.count);
  tt_fail(ncclRemoteError, "the test has ended this");
  tt_port_stop(&r->ranks[0].port, ncclRemoteError);
  tt_proxy_mover.settle(r->ranks[0].proxy);
  assert_true(tt_proxy_idle(r->ranks[0].proxy));
  assert_int_equal(atomic_load(&fake.sends), 2); // what was sent before still goes out
  post(r, 0, &so);
  rig_put(0, out, TT_SIMPLE, so.sig, so.count);
  tt_proxy_mover.settle(r->ranks[0].proxy);
  assert_true(tt_proxy_idle(r->ranks[0].proxy));
  assert_int_equal(atomic_load(&fake.sends), 2);
  rig_close(r);
  fake_stop();
}

// What a rank says of itself to rank 1.
static tt_msg_state told(rig *r, int rank)
{
  int fds[2];
  char bytes[sizeof(tt_msg_head) + sizeof(tt_msg_state) + 1];
  tt_msg_state m;
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  tt_proxy_talk talk = {.fd = fds[0], .rank = 1, .known = true};
  tt_proxy_tell(r->ranks[rank].proxy->service, &talk);
  assert_int_equal(read(fds[1], bytes, sizeof bytes), sizeof bytes - 1);
  memcpy(&m, bytes + sizeof(tt_msg_head), sizeof m);
  close(fds[0]);
  close(fds[1]);
  return m;
}

// The last word counts all messages that the executor has sent before it, also those that nobody has looked at since.
static void last_word(void **state)
{
  (void)state;
  for (int failed = 0; failed < 2; failed++) {
    fake_start(35);
    rig *r = open_pair(&fake_net);
    rig_wire(r, 0, 1);
    tt_proxy_op op = rig_op(1, true, TT_LL, 5);
    post(r, 0, &op);
    for (int i = 0; i < 5; i++) {
      assert_true(rig_put(0, &r->ranks[0].links[1].send[TT_LL], TT_LL, op.sig, op.count));
    }
    tt_msg_state m = told(r, 0);
    assert_int_equal(m.state, TT_RANK_RUNNING);
    assert_int_equal(m.sent, 0); // a word that is not the last counts what is on its way
    if (failed) {
      tt_fail(ncclRemoteError, "the test has ended this");
      tt_port_stop(&r->ranks[0].port, ncclRemoteError);
    } else {
      atomic_store(&r->ranks[0].port.page->state, TT_RANK_GONE);
    }
    m = told(r, 0);
    assert_int_equal(m.state, failed ? TT_RANK_FAILED : TT_RANK_GONE);
    assert_int_equal(m.sent, 5);
    assert_int_equal(atomic_load(&fake.sends), 5);
    rig_close(r);
    fake_stop();
  }
}

// Receives are flushed before they are published.
static void flushes(void **state)
{
  (void)state;
  fake_start(4);
  fake.flush = true;
  rig *r = open_pair(&fake_net);
  rig_wire(r, 0, 1);
  tt_proxy_op so = rig_op(1, true, TT_LL, 40), ro = rig_op(0, false, TT_LL, 40);
  post(r, 0, &so);
  post(r, 1, &ro);
  bool between = false;
  for (int i = 0; i < 40;) {
    rig_put(0, &r->ranks[0].links[1].send[TT_LL], TT_LL, so.sig, so.count);
    look(r, 0);
    look(r, 1);
    tt_proxy_op_state s;
    between |= tt_proxy_states(r->ranks[1].proxy, &s, 1) == 1 && s.received > s.transmitted;
    i += rig_get(0, &r->ranks[1].links[0].recv[TT_LL], TT_LL, so.sig, so.count);
  }
  assert_true(between);
  assert_int_equal(atomic_load(&fake.flushes), 40);
  rig_close(r);
  fake_stop();
}

// Operations of both protocols, one after the other on one connection, many at a time.
static void order(void **state)
{
  (void)state;
  fake_start(5);
  rig *r = open_pair(&fake_net);
  rig_wire(r, 0, 1);
  for (int round = 0; round < 50; round++) {
    uint32_t steps[6], left = 0;
    for (int i = 0; i < 6; i++) {
      steps[i] = 1 + (uint32_t)(round + i) % 3;
      left += steps[i];
      tt_proxy_op so = rig_op(1, true, i % 2 ? TT_LL : TT_SIMPLE, steps[i]),
                  ro = rig_op(0, false, i % 2 ? TT_LL : TT_SIMPLE, steps[i]);
      so.sig = ro.sig = (uint64_t)(round * 6 + i + 1) << 32;
      post(r, 0, &so);
      post(r, 1, &ro);
    }
    int wop = 0, rop = 0;
    for (uint32_t written = 0, got = 0; left > 0;) {
      if (wop < 6 &&
          rig_put(0, &r->ranks[0].links[1].send[wop % 2], (tt_proto)(wop % 2), (uint64_t)(round * 6 + wop + 1) << 32,
                  77) &&
          ++written == steps[wop]) {
        wop++;
        written = 0;
      }
      look(r, 0);
      look(r, 1);
      if (rig_get(0, &r->ranks[1].links[0].recv[rop % 2], (tt_proto)(rop % 2), (uint64_t)(round * 6 + rop + 1) << 32,
                  77)) {
        left--;
        if (++got == steps[rop]) {
          rop++;
          got = 0;
        }
      }
    }
    assert_true(tt_proxy_idle(r->ranks[0].proxy) && tt_proxy_idle(r->ranks[1].proxy));
  }
  rig_close(r);
  fake_stop();
}

// New operations wait for their turn while there is something to do, and no longer.
static void append(void **state)
{
  (void)state;
  fake_start(6);
  rig *r = open_pair(&fake_net);
  rig_wire(r, 0, 1);
  tt_proxy *p = r->ranks[0].proxy;
  tt_fifo *f = &r->ranks[0].links[1].send[TT_SIMPLE];
  tt_proxy_op op = rig_op(1, true, TT_SIMPLE, 100);
  char text[64];
  assert_int_equal(p->append_every, 8);
  assert_string_equal(tt_proxy_oldest_text(p, 1, text, sizeof text), "");
  post(r, 0, &op);
  assert_non_null(p->incoming);
  assert_string_equal(tt_proxy_oldest_text(p, 1, text, sizeof text), " (0 of 100 messages sent to rank 1)");
  rig_put(0, f, TT_SIMPLE, op.sig, op.count);
  assert_true(look(r, 0));
  assert_null(p->incoming); // nothing was active: at once
  post(r, 0, &op);
  for (int i = 1; i < 8; i++) {
    rig_put(0, f, TT_SIMPLE, op.sig, op.count);
    assert_true(look(r, 0));
    assert_non_null(p->incoming);
  }
  rig_put(0, f, TT_SIMPLE, op.sig, op.count);
  assert_true(look(r, 0));
  assert_null(p->incoming);
  post(r, 0, &op);
  assert_false(look(r, 0)); // nothing else moves: at once
  assert_null(p->incoming);
  tt_proxy_op_state s[4];
  assert_int_equal(tt_proxy_states(p, s, 4), 3);
  assert_int_equal(tt_proxy_states(p, s, 1), 3);
  rig_close(r);
  fake_stop();
}

// A peer in another call sends messages of another shape: they arrive as far as they fit, with their fingerprint.
static void misfits(void **state)
{
  (void)state;
  fake_start(7);
  rig *r = open_pair(&fake_net);
  rig_wire(r, 0, 1);
  tt_fifo *out = &r->ranks[0].links[1].send[TT_SIMPLE], *in = &r->ranks[1].links[0].recv[TT_LL];
  tt_proxy_op so = rig_op(1, true, TT_SIMPLE, 3), ro = rig_op(0, false, TT_LL, 3);
  post(r, 0, &so);
  post(r, 1, &ro);
  for (int i = 0; i < 3; i++) {
    tt_fifo_publish(out, i == 0 ? RIG_BIG_BYTES : (uint32_t)i, 0xabc00000000ull, 5);
  }
  assert_true(look(r, 0));
  assert_true(look(r, 1));
  for (int i = 0; i < 3; i++) {
    assert_true(tt_fifo_arrived(in));
    const tt_slot *s = tt_fifo_slot(in);
    assert_true(s->sig == 0xabc00000000ull && s->count == 5 && s->bytes == (i == 0 ? in->capacity : (uint32_t)i));
    tt_fifo_release(in);
  }
  assert_true(tt_proxy_idle(r->ranks[1].proxy));
  rig_close(r);
  fake_stop();
}

// What the connection of a rank's receive says after a damaged message. `decided`: the sender's tuner plugin has
// decided on the call, the receiver's has not; they are in the same one.
static void check_damage(bool decided, long stretch, size_t by, size_t shrink_to, ncclResult_t code, const char *word)
{
  fake_start(8);
  rig *r = open_pair(&fake_net);
  rig_wire(r, 0, 1);
  tt_proxy_op so = rig_op(1, true, TT_SIMPLE, 3), ro = rig_op(0, false, TT_SIMPLE, 3);
  so.count |= decided ? TT_SIG_DECIDED : 0;
  tt_fifo *out = &r->ranks[0].links[1].send[TT_SIMPLE], *in = &r->ranks[1].links[0].recv[TT_SIMPLE];
  if (stretch) {
    atomic_store(&fake.stretch_in, 2);
    fake.stretch_by = by;
  } else {
    fake.shrink_in = 2;
    fake.shrink_to = shrink_to;
  }
  post(r, 0, &so);
  post(r, 1, &ro);
  for (int i = 0; i < 3; i++) {
    rig_put(0, out, TT_SIMPLE, so.sig, so.count);
  }
  assert_true(look(r, 0));
  assert_true(look(r, 1));
  assert_true(rig_get(0, in, TT_SIMPLE, so.sig, so.count)); // what came before still counts
  assert_false(tt_fifo_arrived(in));
  tt_proxy_conn *c = &tt_proxy_peer_find(r->ranks[1].proxy, 0)->recv;
  assert_int_equal(c->stage, TT_CONN_BROKEN);
  assert_int_equal(c->code, code);
  assert_non_null(strstr(c->text, word));
  assert_true(tt_proxy_idle(r->ranks[1].proxy));
  rig_close(r);
  fake_stop();
}

static void damage(void **state)
{
  (void)state;
  for (int decided = 0; decided < 2; decided++) {
    check_damage(decided, 1, 3, 0, ncclInvalidUsage, "does not fit");
    check_damage(decided, 1, 1 << 20, 0, ncclInvalidUsage, "NCCL_BUFFSIZE");
    check_damage(decided, 0, 0, 19, ncclRemoteError, "no message");
    check_damage(decided, 0, 0, 0, ncclRemoteError, "no message");
    check_damage(decided, 0, 0, 40, ncclInvalidUsage, "does not fit");
  }
}

// A call of the network fails, each in turn: the operations are dropped, later ones too, and nothing is touched any
// more.
static void errors(void **state)
{
  (void)state;
  for (int k = 1; k < 40; k++) {
    fake_start((uint64_t)k);
    fake.flush = k % 2;
    rig *r = open_pair(&fake_net);
    rig_wire(r, 0, 1);
    tt_proxy_op so = rig_op(1, true, TT_LL, 10), ro = rig_op(0, false, TT_LL, 10);
    post(r, 0, &so);
    post(r, 1, &ro);
    atomic_store(&fake.fail_in, k);
    for (int i = 0; i < 30; i++) {
      rig_put(0, &r->ranks[0].links[1].send[TT_LL], TT_LL, so.sig, so.count);
      look(r, 0);
      look(r, 1);
      rig_get(0, &r->ranks[1].links[0].recv[TT_LL], TT_LL, so.sig, so.count);
    }
    tt_proxy_conn *a = &tt_proxy_peer_find(r->ranks[0].proxy, 1)->send,
                  *b = &tt_proxy_peer_find(r->ranks[1].proxy, 0)->recv;
    if (atomic_load(&fake.fail_in) <= 0) {
      tt_proxy_conn *c = a->stage == TT_CONN_BROKEN ? a : b;
      assert_int_equal(c->stage, TT_CONN_BROKEN);
      assert_int_equal(c->code, ncclRemoteError);
      assert_non_null(strstr(c->text, "fake network"));
      int rank = c == a ? 0 : 1;
      await_drop(r, rank);
      post(r, rank, rank == 0 ? &so : &ro);
      await_drop(r, rank);
    }
    rig_close(r);
    fake_stop();
  }
}

// A stopped port: what was written still goes out, everything else is dropped.
static void stopped(void **state)
{
  (void)state;
  fake_start(9);
  rig *r = open_pair(&fake_net);
  rig_wire(r, 0, 1);
  tt_proxy_op so = rig_op(1, true, TT_LL, 10), ro = rig_op(1, false, TT_LL, 10), back = rig_op(0, false, TT_LL, 10);
  post(r, 0, &so);
  post(r, 0, &ro);
  post(r, 1, &back);
  rig_put(0, &r->ranks[0].links[1].send[TT_LL], TT_LL, so.sig, so.count);
  tt_port_stop(&r->ranks[0].port, tt_fail(ncclInternalError, "stopped for the test"));
  await_drop(r, 0);
  assert_true(look(r, 1));
  assert_true(rig_get(0, &r->ranks[1].links[0].recv[TT_LL], TT_LL, so.sig, so.count));
  post(r, 0, &so);
  rig_put(0, &r->ranks[0].links[1].send[TT_LL], TT_LL, so.sig, so.count);
  await_drop(r, 0);
  assert_false(look(r, 1));
  rig_close(r);
  fake_stop();
}

static void wrong_use(void **state)
{
  (void)state;
  fake_start(10);
  rig *r = open_pair(&fake_net);
  tt_proxy *p = r->ranks[0].proxy;
  tt_proxy_op op = rig_op(0, true, TT_LL, 1);
  assert_int_equal(tt_proxy_post(p, &op), ncclInternalError);
  op = rig_op(-1, true, TT_LL, 1);
  assert_int_equal(tt_proxy_post(p, &op), ncclInternalError);
  op = rig_op(2, true, TT_LL, 1);
  assert_int_equal(tt_proxy_post(p, &op), ncclInternalError);
  op = rig_op(1, true, TT_TOK, 1);
  assert_int_equal(tt_proxy_post(p, &op), ncclInternalError);
  tt_link l = r->ranks[0].links[1];
  l.peer = 2;
  assert_int_equal(tt_proxy_connect(p, &l), ncclSystemError);
  l.peer = 0;
  l.recv[TT_LL].data_stride = 1;
  assert_int_equal(tt_proxy_connect(p, &l), ncclInternalError);
  tt_proxy_destroy(NULL);
  rig_close(r);
  fake_stop();
}

// Creating fails at every allocation without leaving anything behind.
static void no_memory(void **state)
{
  (void)state;
  fake_start(11);
  rig *r = tt_calloc_line(sizeof *r);
  r->n = 2;
  r->net = &fake_net;
  rig_port(r, 0);
  tt_proxy_env e = rig_env(r, 0);
  int failed = 0;
  for (long k = 1; k < 20; k++) {
    tt_alloc_fail_at(k);
    ncclResult_t res = tt_proxy_create(&e, &r->ranks[0].proxy, &r->ranks[0].where);
    if (res == ncclSuccess) {
      tt_proxy_destroy(r->ranks[0].proxy);
    }
    failed += res != ncclSuccess;
  }
  tt_alloc_fail_at(0);
  assert_true(failed >= 2);
  tt_free(r);
  fake_stop();
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lent_payloads),  cmocka_unit_test(settling),     cmocka_unit_test(send_machine),
      cmocka_unit_test(send_in_pieces), cmocka_unit_test(recv_machine), cmocka_unit_test(flushes),
      cmocka_unit_test(order),          cmocka_unit_test(append),       cmocka_unit_test(misfits),
      cmocka_unit_test(damage),         cmocka_unit_test(errors),       cmocka_unit_test(stopped),
      cmocka_unit_test(wrong_use),      cmocka_unit_test(no_memory),    cmocka_unit_test(last_word),
  };
  return cmocka_run_group_tests_name("progress", tests, rig_hold, NULL);
}
