// shrink.c: a ring of some ranks of a ring, made by these ranks alone: the others may be busy, or dead.
//
// Every rank of a ring listens while it lives, and all know where (tt_ring_card). So each survivor connects to the next
// one. Its hello says which shrink of the ring it takes this for (tag: number of all, and of those that have both
// ranks), and which ranks survive (cookie). A rank that is at a later shrink has given up the earlier one. After a
// failure the ranks may try again with fewer ranks.
#include <string.h>
#include <unistd.h>

#include "base/result.h"
#include "base/util.h"
#include "bootstrap/bootstrap_priv.h"
#include "os/random.h"

int tt_shrink_name(const tt_bootstrap *b, int rank)
{
  return b->shrinks != NULL && rank >= 0 && rank < b->nranks ? b->shrinks->members[rank] : rank;
}

int tt_shrink_size(const tt_bootstrap *b)
{
  return b->shrinks != NULL ? b->shrinks->parent->nranks : b->nranks;
}

// The shrinks that this rank has begun and that have the other one, too. Where both list the same ranks, this tells
// which one is ahead: a rank that an earlier shrink left out has begun fewer of all.
static uint32_t shrunk_with(const tt_bootstrap *parent, int rank)
{
  return rank >= 0 && rank < parent->nranks ? parent->shrunk_with[rank] : 0;
}

tt_hello tt_shrink_hello(const tt_bootstrap *b)
{
  tt_hello h = {.kind = TT_HELLO_RING,
                .rank = tt_shrink_name(b, b->rank),
                .to = tt_shrink_name(b, b->successor),
                .nranks = tt_shrink_size(b)};
  if (b->shrinks != NULL) {
    h.tag = (uint64_t)shrunk_with(b->shrinks->parent, h.to) << 32 | b->shrinks->attempt;
    h.cookie = b->shrinks->list;
  }
  return h;
}

// The predecessor of this rank's next shrink is at it already: its connection is good for that. Errors: what it, or
// another neighbour, has said of this shrink's end; that it has given this one up. Quiet where this one has failed.
static ncclResult_t keep_early(tt_bootstrap *b, const tt_hello *h, int fd)
{
  tt_early *early = &b->shrinks->parent->early;
  if (early->there) {
    tt_sock_close(&early->fd);
  }
  *early = (tt_early){.there = true, .fd = fd, .hello = *h};
  if (b->broken != ncclSuccess || h->rank == tt_shrink_name(b, b->successor)) {
    return b->broken; // the successor says why on this shrink's own connection
  }
  TT_TRY(tt_ring_hear(b));
  tt_ring_stop(b, true, h->rank, ncclRemoteError, TT_STOP_PAST);
  return tt_ring_error(b);
}

// To a rank that is still at a shrink of the past: the rank that ended it, where this is known.
static void refuse_past(const tt_shrinking *s, const tt_hello *h, int fd, int me)
{
  const tt_past_end *g = &s->parent->past_end;
  if (g->attempt == (uint32_t)h->tag && g->list == h->cookie) {
    tt_ring_refuse(fd, g->cause, g->code, g->reason);
  } else {
    tt_ring_refuse(fd, me, ncclRemoteError, TT_STOP_PAST);
  }
}

ncclResult_t tt_shrink_judge(tt_bootstrap *b, const tt_hello *h, int fd)
{
  const tt_shrinking *s = b->shrinks;
  int me = tt_shrink_name(b, b->rank);
  bool same = h->cookie == s->list;
  uint32_t theirs = (uint32_t)(same ? h->tag >> 32 : h->tag),
           ours = same ? shrunk_with(s->parent, h->rank) : s->attempt;
  bool past = theirs < ours; // one whose connection has ended was given up
  bool later = theirs > ours;
  if (later && b->broken != ncclSuccess) {
    return keep_early(b, h, fd);
  }
  if (same) {
    if (h->rank == tt_shrink_name(b, b->predecessor) && b->prev < 0 && !(past && tt_sock_finished(fd))) {
      b->prev = fd;
    } else {
      tt_sock_close(&fd);
    }
    return ncclSuccess;
  }
  if (past || tt_sock_finished(fd)) { // numbers may be alike where ranks have taken part in different shrinks
    refuse_past(s, h, fd, me);
    return ncclSuccess;
  }
  if (later) {
    return keep_early(b, h, fd);
  }
  tt_ring_refuse(fd, me, ncclInvalidUsage, TT_STOP_LISTS);
  return tt_fail(ncclInvalidUsage,
                 "%s: rank %d excludes other ranks than rank %d: all survivors must pass the same ranks", b->doing,
                 h->rank, me);
}

// That another rank has ended the shrink.
static void remember(tt_bootstrap *parent, const tt_bootstrap *b)
{
  parent->past_end = (tt_past_end){.attempt = 0};
  if (b->cause != b->rank && b->reason != TT_STOP_LISTS && b->reason != TT_STOP_PAST) {
    parent->past_end = (tt_past_end){b->shrinks->attempt, b->shrinks->list, b->cause, b->broken, b->reason};
  }
}

// Through the parent's door, which is the child's for as long.
static ncclResult_t form_through(tt_bootstrap *parent, tt_bootstrap *b)
{
  ncclResult_t res = ncclSuccess;
  b->door.welcome = (tt_welcome){.key = b->key, .kinds = TT_HELLO_RING, .to = parent->rank};
  if (parent->early.there) {
    parent->early.there = false;
    res = tt_shrink_judge(b, &parent->early.hello, parent->early.fd);
  }
  if (res == ncclSuccess) {
    res = tt_ring_form(b, &parent->cards[b->shrinks->members[b->successor]].door);
  }
  if (res != ncclSuccess) {
    tt_bootstrap_stop(b);
    remember(parent, b);
  }
  if (res != ncclSuccess) {
    tt_ring_tell_late_prev(b);
  }
  tt_greeter_rest(&b->door);
  return res;
}

// Its ranks share what no other rank, and no other child, has: the nonces of their cards.
static void name_child(const tt_shrinking *s, tt_bootstrap *b)
{
  tt_ring_card alone = {.nonce = {0}};
  tt_random(alone.nonce, sizeof(alone.nonce));
  const tt_ring_card *cards = b->cards != NULL ? b->cards : &alone;
  b->key = tt_key_derive(&s->parent->key, "shrunk", cards, (size_t)b->nranks * sizeof(*cards));
  tt_key name = tt_key_derive(&b->key, "name", NULL, 0);
  memcpy(b->name, name.b, sizeof(b->name));
}

static ncclResult_t shrink_ring(tt_shrinking *s, tt_bootstrap *b)
{
  tt_bootstrap *parent = s->parent;
  TT_TRY(tt_bs_begin(b, "to %d ranks", s->count));
  if (s->count > 1) {
    TT_TRY(tt_bs_listen(parent, &s->door, &b->key, b->rank));
    b->door = parent->door;
    parent->door = (tt_greeter){.npending = 0};
    ncclResult_t res = form_through(parent, b);
    parent->door = b->door;
    b->door = s->door;
    TT_TRY(res);
  }
  name_child(s, b);
  return ncclSuccess;
}

static int shrunk_rank(const int *members, int count, int rank)
{
  int i = 0;
  while (i < count && members[i] != rank) {
    i++;
  }
  return i;
}

ncclResult_t tt_bootstrap_shrink(tt_bootstrap *parent, const int *members, int count,
                                 const volatile uint32_t *abort_flag, tt_bootstrap **out)
{
  tt_shrinking s = {.parent = parent,
                    .members = members,
                    .count = count,
                    .attempt = ++parent->nshrinks,
                    .list = tt_hash(members, (size_t)count * sizeof(members[0]), 5)};
  if (parent->shrunk_with == NULL) {
    TT_TRY(TT_NEW(parent->shrunk_with, parent->nranks, "ncclCommShrink: no memory"));
  }
  for (int i = 0; i < count; i++) {
    parent->shrunk_with[members[i]]++;
  }
  tt_key knock = tt_key_derive(&parent->key, "shrink", NULL, 0);
  tt_bootstrap *b = tt_bs_new(shrunk_rank(members, count, parent->rank), count, &knock, abort_flag);
  if (b == NULL) {
    return ncclSystemError;
  }
  b->owner = parent->owner; // a forked child is refused
  b->shrinks = &s;
  b->what = "ncclCommShrink";
  tt_bootstrap_care(b, parent->look, parent->look_arg, false);
  ncclResult_t res = shrink_ring(&s, b);
  b->shrinks = NULL;
  b->what = NULL;
  if (res != ncclSuccess) {
    tt_bootstrap_destroy(b);
    return res;
  }
  *out = b;
  return ncclSuccess;
}
