// shrink.c: a ring of some ranks of a ring, made by these ranks alone: the others may be busy, or dead.
//
// Every rank of a ring listens while it lives, and all know where (tt_ring_card). So each survivor connects to the next
// one. Its hello says which attempt this is (tag: one more after each shrink of the ring that has failed on this rank),
// and which ranks survive (cookie). A rank at a later attempt has given up the earlier one. After a failure the ranks
// may try again with fewer ranks. Where they list the same ranks, different attempts meet, since a rank may have missed
// one. That an earlier one has ended does not end a later one, unless a member has gone for good, or blocks of the
// earlier one have come already (tt_ring_ends_past).
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

const tt_addrs *tt_shrink_door(const tt_bootstrap *b)
{
  return &b->shrinks->parent->cards[b->shrinks->members[b->successor]].door;
}

tt_hello tt_shrink_hello(const tt_bootstrap *b)
{
  tt_hello h = {.kind = TT_HELLO_RING,
                .rank = tt_shrink_name(b, b->rank),
                .to = tt_shrink_name(b, b->successor),
                .nranks = tt_shrink_size(b)};
  if (b->shrinks != NULL) {
    h.tag = b->shrinks->attempt;
    h.cookie = b->shrinks->list;
  }
  return h;
}

// Keeps a connection for the next attempt. One is enough: a rank that connects again has given up its last one.
static void keep_early(tt_bootstrap *b, const tt_hello *h, int fd)
{
  tt_early *early = &b->shrinks->parent->early;
  if (early->there) {
    tt_sock_close(&early->fd);
  }
  *early = (tt_early){.there = true, .fd = fd, .hello = *h};
}

// The predecessor of this rank's next shrink is at it already: its connection is good for that. Errors: what it, or
// another neighbour, has said of this shrink's end; that it has given this one up. Quiet where this one has failed.
static ncclResult_t give_way(tt_bootstrap *b, const tt_hello *h, int fd)
{
  keep_early(b, h, fd);
  if (b->broken != ncclSuccess || h->rank == tt_shrink_name(b, b->successor)) {
    return b->broken; // the successor says why on this shrink's own connection
  }
  TT_TRY(tt_ring_hear(b));
  tt_ring_stop(b, true, h->rank, ncclRemoteError, TT_STOP_PAST);
  return tt_ring_error(b);
}

// To a rank that is still at a shrink of the past: the rank that ended it, where this is known.
static void refuse_past(const tt_bootstrap *b, const tt_hello *h, int fd, int me)
{
  const tt_past_end *g = &b->shrinks->parent->past_end;
  if (g->attempt == h->tag && g->list == h->cookie) {
    tt_ring_refuse(b, fd, g->cause, g->code, g->reason);
  } else {
    tt_ring_refuse(b, fd, me, ncclRemoteError, TT_STOP_PAST);
  }
}

ncclResult_t tt_shrink_judge(tt_bootstrap *b, const tt_hello *h, int fd)
{
  const tt_shrinking *s = b->shrinks;
  int me = tt_shrink_name(b, b->rank);
  bool past = h->tag < s->attempt; // one whose connection has ended was given up
  bool later = h->tag > s->attempt;
  if (later && b->broken != ncclSuccess) {
    return give_way(b, h, fd);
  }
  if (h->cookie == s->list) {
    bool ended = past && tt_sock_finished(fd);
    if (h->rank != tt_shrink_name(b, b->predecessor) || ended) {
      tt_sock_close(&fd);
    } else if (b->prev < 0) {
      b->prev = fd;
    } else { // it has given up what it has connected for before
      keep_early(b, h, fd);
    }
    return ncclSuccess;
  }
  if (past || tt_sock_finished(fd)) {
    refuse_past(b, h, fd, me);
    return ncclSuccess;
  }
  if (later) {
    return give_way(b, h, fd);
  }
  tt_ring_refuse(b, fd, me, ncclInvalidUsage, TT_STOP_LISTS);
  if (b->broken == ncclSuccess) {
    tt_ring_stop(b, true, me, ncclInvalidUsage, TT_STOP_LISTS);
  }
  return tt_fail(ncclInvalidUsage,
                 "%s: rank %d excludes other ranks than rank %d: all survivors must pass the same ranks", b->doing,
                 h->rank, me);
}

ncclResult_t tt_shrink_take_early(tt_bootstrap *b)
{
  tt_early early = b->shrinks->parent->early;
  b->shrinks->parent->early.there = false;
  return early.there ? tt_shrink_judge(b, &early.hello, early.fd) : ncclSuccess;
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
  b->door.welcome = (tt_welcome){.key = b->key, .kinds = TT_HELLO_RING, .to = parent->rank};
  ncclResult_t res = tt_shrink_take_early(b);
  if (res == ncclSuccess) {
    res = tt_ring_form(b, tt_shrink_door(b));
  }
  if (res != ncclSuccess) {
    tt_bootstrap_stop(b);
    remember(parent, b);
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
                    .attempt = 1 + parent->nfailed,
                    .list = tt_hash(members, (size_t)count * sizeof(members[0]), 5)};
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
    parent->nfailed++;
    tt_bootstrap_destroy(b);
    return res;
  }
  *out = b;
  return ncclSuccess;
}
