// user_rig.h: a user and his buffers, for tests of what the proxy does with large messages. Define RIG_BIG before,
// large enough for payloads that travel alone.
#pragma once
#include "proxy/proxy_rig.h"

#include "device/schedule.h"

// The user's side of one operation between two ranks: a buffer that is sent and one that is received, in messages of
// RIG_BIG_BYTES and a last one.
typedef struct user {
  rig *r;
  int from, to;
  char *in, *out; // of `room` bytes; the buffers are at `shift`
  size_t room, shift, bytes;
  uint32_t messages, written, read;
  bool shared;  // what is staged
  bool blind;   // the receive has no lane
  bool decided; // the sender's tuner plugin has decided on the call, the receiver's has not
  tt_proxy_op send, recv;
  tt_schedule sched;
  tt_strand strand;
  tt_step step;
  tt_ref refs[2];
  uint32_t steps[1];
  tt_call call;
  tt_lane lane;
} user;

// Posts both operations: `bytes` from the buffer `in` of one rank to `out` of the other. `places`: the receiver may be
// written to before its step runs.
FAKE void user_begin(user *u, size_t bytes, bool places)
{
  static uint32_t number;
  u->bytes = bytes;
  u->written = u->read = 0;
  for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    uint64_t word = tt_hash(&(uint64_t[2]){i, number}, 16, 3);
    memcpy(u->in + u->shift + i, &word, TT_MIN(bytes - i, sizeof word));
  }
  memset(u->out, 0x55, u->room);
  number++;
  u->strand = (tt_strand){.first = 0, .count = 1};
  u->step = (tt_step){.flags = TT_STEP_PLACE, .nsrc = 1, .ndst = 1, .src = 0, .dst = 1};
  u->refs[0] = (tt_ref){.kind = TT_FIFO, .peer = u->from};
  u->refs[1] = (tt_ref){.kind = TT_OUT, .peer = u->to};
  u->sched = (tt_schedule){.nranks = u->r->n,
                           .rank = u->to,
                           .out_blocks = 1,
                           .nsub = 1,
                           .nstrands = 1,
                           .nsteps = 1,
                           .nrefs = 2,
                           .strands = &u->strand,
                           .steps = &u->step,
                           .refs = u->refs};
  u->call = (tt_call){.out = u->out + u->shift, .count = bytes, .esize = 1};
  tt_lane_init(&u->lane, &u->sched, 0, &u->call, RIG_BIG_BYTES, TT_SIMPLE);
  u->lane.places = places ? TT_STEP_PLACE : 0;
  u->messages = (uint32_t)TT_DIV_UP(bytes, (size_t)RIG_BIG_BYTES);
  u->send = rig_op(u->to, true, TT_SIMPLE, u->messages);
  u->recv = rig_op(u->from, false, TT_SIMPLE, u->messages);
  u->send.shared = u->recv.shared = u->shared;
  u->send.count |= u->decided ? TT_SIG_DECIDED : 0;
  u->send.sig = u->recv.sig = (uint64_t)number << 32;
  u->recv.place = (tt_proxy_place){.lane = u->blind ? NULL : &u->lane, .steps = u->steps, .messages = 1};
  assert_int_equal(tt_proxy_post(u->r->ranks[u->from].proxy, &u->send), ncclSuccess);
  assert_int_equal(tt_proxy_post(u->r->ranks[u->to].proxy, &u->recv), ncclSuccess);
  atomic_store(&u->call.open, true);
}

FAKE void user_open(user *u, rig *r, int from, int to, size_t room)
{
  memset(u, 0, sizeof *u);
  u->r = r;
  u->from = from;
  u->to = to;
  u->room = room;
  u->in = malloc(room);
  u->out = malloc(room);
  assert_true(u->in != NULL && u->out != NULL);
}

FAKE void user_close(user *u)
{
  free(u->in);
  free(u->out);
}

// Lends the next message, if there is room. `copies`: the executor has put it into the slot instead.
FAKE bool user_put(user *u, bool copies)
{
  tt_fifo *f = &u->r->ranks[u->from].links[u->to].send[TT_SIMPLE];
  if (u->written == u->messages || !tt_fifo_room(f)) {
    return false;
  }
  size_t at = (size_t)u->written * RIG_BIG_BYTES, n = TT_MIN(u->bytes - at, (size_t)RIG_BIG_BYTES);
  char *from = u->in + u->shift + at;
  tt_fifo_slot(f)->elsewhere = copies ? 0 : (uint64_t)(uintptr_t)from;
  if (copies) {
    memcpy(tt_fifo_data(f), from, n);
  }
  tt_fifo_publish(f, (uint32_t)n, u->send.sig, u->send.count);
  u->written++;
  return true;
}

// Takes the next message, if it is there.
FAKE bool user_get(user *u)
{
  tt_fifo *f = &u->r->ranks[u->to].links[u->from].recv[TT_SIMPLE];
  if (u->read == u->messages || !tt_fifo_arrived(f)) {
    return false;
  }
  const tt_slot *s = tt_fifo_slot(f);
  size_t at = (size_t)u->read * RIG_BIG_BYTES;
  char *to = u->out + u->shift + at;
  assert_true(s->sig == u->recv.sig && s->count == u->send.count &&
              s->bytes == TT_MIN(u->bytes - at, (size_t)RIG_BIG_BYTES));
  char *from = s->elsewhere == 0 ? tt_fifo_data(f) : (char *)(uintptr_t)s->elsewhere;
  if (from != to) {
    memcpy(to, from, s->bytes);
  }
  tt_fifo_release(f);
  u->read++;
  return true;
}

FAKE void user_look(const user *u, int rank)
{
  tt_proxy_progress(u->r->ranks[rank].proxy, true);
}

FAKE void user_finish(user *u, bool copies)
{
  while (u->read < u->messages) {
    user_put(u, copies);
    user_look(u, u->from);
    user_look(u, u->to);
    user_get(u);
  }
  while (!tt_proxy_idle(u->r->ranks[u->from].proxy)) {
    user_look(u, u->from);
  }
  assert_memory_equal(u->in + u->shift, u->out + u->shift, u->bytes);
  size_t touched = 0; // of what is not the message's
  for (size_t i = 0; i < u->room; i++) {
    touched += (i < u->shift || i >= u->shift + u->bytes) && u->out[i] != 0x55;
  }
  assert_int_equal(touched, 0);
}
