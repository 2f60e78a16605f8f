// bootstrap.c: a ring of ranks from a unique id, or from a larger ring. See bootstrap.h.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/result.h"
#include "base/spans.h"
#include "base/util.h"
#include "bootstrap/bootstrap_priv.h"
#include "os/netif.h"

// How a connection runs: between an own address and another one. `list`: what the listener of the two had told the
// other side. Every row stands for itself, because ranks of one process write theirs at the same time.
static void log_way(const tt_bootstrap *b, const char *who, const tt_addr *own, const tt_addr *other,
                    const tt_addrs *list)
{
  char to[TT_ADDR_TEXT], from[TT_ADDR_TEXT], name[16];
  bool mine = list == &b->door.addrs;
  const tt_addr *at = mine ? own : other;
  tt_info(TT_INIT | TT_BOOTSTRAP, "bootstrap %d/%d  %-14s %s %-27s %s %u of %u, over %-8s from %s", b->rank, b->nranks,
          who, mine ? "to" : "at", tt_addr_text(at, to), mine ? "my address " : "its address",
          tt_addrs_find(list, at, true), list->n, tt_netif_name(own, name), tt_addr_text(mine ? other : own, from));
}

// How the root and the neighbours were reached: once for each communicator and rank.
static void log_ways(const tt_bootstrap *b, const tt_join *j)
{
  const struct {
    const char *name;
    int rank, fd;
    const tt_addrs *list;
  } sides[] = {{"successor", b->successor, b->next, &j->next},
               {"predecessor", b->predecessor, b->prev, &b->door.addrs}};
  tt_addr own, other;
  char who[32];
  if (!tt_log_on(TT_LOG_INFO, TT_INIT | TT_BOOTSTRAP)) {
    return;
  }
  snprintf(who, sizeof(who), "root %d", j->way.share);
  log_way(b, who, &j->way.own, &j->way.at, &j->ids[j->way.share].root);
  for (size_t i = 0; i < TT_COUNT(sides) && b->nranks > 1; i++) {
    if (tt_sock_peer(sides[i].fd, &other) == 0 && tt_sock_local(sides[i].fd, &own) == 0) {
      snprintf(who, sizeof(who), "%s %d", sides[i].name, sides[i].rank);
      log_way(b, who, &own, &other, sides[i].list);
    }
  }
}

// A rank alone needs no root; where no interface was up when the id was made, there is none.
static ncclResult_t check_roots(const tt_join *j, bool *rootless)
{
  *rootless = j->nids == 1 && j->b->nranks == 1 && j->ids[0].root.n == 0;
  for (int i = 0; i < j->nids && !*rootless; i++) {
    if (j->ids[i].root.n == 0) {
      return tt_fail(
          ncclSystemError,
          "rank %d: unique id %d has no address, because no network interface was up where it was made: it "
          "is for one rank, and there are %d. Set an interface up (ip link set lo up) before ncclGetUniqueId",
          j->b->rank, i, j->b->nranks);
    }
  }
  return ncclSuccess;
}

// Finds an id that is there twice, in time that n log n bounds. `names`: room for n.
static ncclResult_t check_ids_differ(const ncclUniqueId *ids, int n, tt_span *names)
{
  tt_span *set = NULL;
  for (int i = 0; i < n; i++) {
    names[i] = (tt_span){.start = tt_hash(&ids[i], sizeof(ids[i]), 0), .size = 1};
    const tt_span *same = tt_spans_same(set, names[i].start, names[i].size);
    if (same != NULL && memcmp(&ids[same - names], &ids[i], sizeof(ids[i])) == 0) {
      return tt_fail(ncclInvalidArgument, "unique ids %d and %d are the same: make each with ncclGetUniqueId",
                     (int)(same - names), i);
    }
    tt_spans_add(&set, &names[i]);
  }
  return ncclSuccess;
}

static ncclResult_t parse_each(const ncclUniqueId *ids, int n, tt_id *parsed)
{
  for (int i = 0; i < n; i++) {
    TT_TRY(tt_bootstrap_id_parse(&ids[i], &parsed[i]));
    if ((parsed[i].flags & TT_ID_FIXED) != 0 && (parsed[0].flags & TT_ID_FIXED) == 0) {
      return tt_fail(ncclInvalidArgument, "unique id %d was made with NCCL_COMM_ID, id 0 without it", i);
    }
  }
  return ncclSuccess;
}

// Reads the ids; *n may become smaller. Free *out with tt_free.
static ncclResult_t parse_ids(const ncclUniqueId *ids, int *n, int nranks, tt_id **out)
{
  if (*n < 1 || *n > nranks) {
    return tt_fail(ncclInvalidArgument, "%d unique ids for %d ranks: at least one, at most as many as ranks", *n,
                   nranks);
  }
  tt_id *parsed = *out = tt_calloc((size_t)*n, sizeof(parsed[0]));
  tt_span *names = tt_calloc((size_t)*n, sizeof(names[0]));
  ncclResult_t res = parsed != NULL && names != NULL ? parse_each(ids, *n, parsed)
                                                     : tt_fail(ncclSystemError, "no memory for %d unique ids", *n);
  if (res == ncclSuccess && (parsed[0].flags & TT_ID_FIXED) == 0) {
    res = check_ids_differ(ids, *n, names);
  } else if (res == ncclSuccess && *n > 1) {
    tt_info(TT_INIT | TT_BOOTSTRAP, "NCCL_COMM_ID names one root: the other %d unique ids are not used", *n - 1);
    *n = 1;
  }
  tt_free(names);
  return res;
}

// Everything after the ids are read.
static ncclResult_t init_ring(tt_bootstrap *b, tt_join *j)
{
  uint64_t began = tt_now_ns();
  tt_addrs bound;
  bool rootless;
  TT_TRY(check_roots(j, &rootless));
  if (rootless) {
    tt_info(TT_INIT | TT_BOOTSTRAP, "bootstrap: rank %d is alone, without a root", b->rank);
    return ncclSuccess;
  }
  if (b->rank == 0 && (j->ids[0].flags & TT_ID_FIXED) != 0) {
    TT_TRY(tt_lobby_add(&j->ids[0], &bound)); // with NCCL_COMM_ID no process has made the id
  }
  TT_TRY(tt_bs_begin(b, "asking the root for the next rank"));
  TT_TRY(tt_join_roots(j));
  if (b->nranks > 1) {
    TT_TRY(tt_ring_form(b, &j->next));
  }
  tt_info(TT_INIT | TT_BOOTSTRAP, "bootstrap: rank %d of %d joined in %.1f ms", b->rank, b->nranks,
          (double)(tt_now_ns() - began) / TT_NS_PER_MS);
  log_ways(b, j);
  return ncclSuccess;
}

// Reads the ids, and makes the object. The caller calls end_join, also after an error.
static ncclResult_t begin_join(const ncclUniqueId *ids, int nids, int nranks, int rank, tt_join *j)
{
  *j = (tt_join){.nids = nids};
  if (nranks < 1 || nranks > TT_BOOTSTRAP_MAX_RANKS) {
    return tt_fail(ncclInvalidArgument, "a communicator of %d ranks is not possible (from 1 to %d)", nranks,
                   TT_BOOTSTRAP_MAX_RANKS);
  }
  tt_id *parsed = NULL;
  ncclResult_t res = parse_ids(ids, &j->nids, nranks, &parsed);
  j->ids = parsed;
  TT_TRY(res);
  // All ids name the ring: with one of them changed it is another one.
  size_t size = (size_t)j->nids * sizeof(ids[0]);
  tt_key key = tt_key_derive(&parsed[0].key, "ring", ids, size), name = tt_key_derive(&parsed[0].key, "ids", ids, size);
  memcpy(&j->ids_name, name.b, sizeof(j->ids_name));
  j->b = tt_bs_new(rank, nranks, &key, NULL);
  return j->b != NULL ? ncclSuccess : ncclSystemError;
}

static ncclResult_t end_join(const tt_join *j, ncclResult_t res, tt_bootstrap **out)
{
  tt_free((void *)(uintptr_t)j->ids);
  if (res != ncclSuccess) {
    tt_bootstrap_destroy(j->b);
    return res;
  }
  *out = j->b;
  return ncclSuccess;
}

ncclResult_t tt_bootstrap_init(const ncclUniqueId *ids, int nids, int nranks, int rank,
                               const volatile uint32_t *abort_flag, tt_bootstrap **out)
{
  tt_join j;
  ncclResult_t res = begin_join(ids, nids, nranks, rank, &j);
  if (res == ncclSuccess) {
    j.b->abort_flag = abort_flag;
    res = init_ring(j.b, &j);
  }
  return end_join(&j, res, out);
}

ncclResult_t tt_bootstrap_grow(const tt_bootstrap *parent, const ncclUniqueId *id, int nranks,
                               const volatile uint32_t *abort_flag, tt_bootstrap **out)
{
  tt_join j;
  ncclResult_t res = begin_join(id, 1, nranks, parent->rank, &j);
  if (res == ncclSuccess) {
    j.b->abort_flag = abort_flag;
    tt_bootstrap_care(j.b, parent->look, parent->look_arg, false);
    res = init_ring(j.b, &j);
  }
  return end_join(&j, res, out);
}

// What a rank of the parent says about itself in a split.
typedef struct {
  tt_addrs addrs; // where it listens for the child; none when it is in no child, or alone in one
  uint64_t group; // hash of tag and members: equal within a child
  int32_t code;   // not ncclSuccess: this rank cannot take part
  uint32_t zero;
} split_card;
static_assert(sizeof(split_card) == 216, "cards are sent as they are");

static ncclResult_t check_members(const tt_bootstrap *parent, const int *members, int count, int *own)
{
  bool *seen = tt_calloc((size_t)parent->nranks, sizeof(bool));
  ncclResult_t res = seen != NULL
                         ? ncclSuccess
                         : tt_fail(ncclSystemError, "%s: no memory for %d ranks", parent->doing, parent->nranks);
  *own = -1;
  for (int i = 0; i < count && res == ncclSuccess; i++) {
    if (members[i] < 0 || members[i] >= parent->nranks) {
      res = tt_fail(ncclInvalidArgument, "%s: member %d is rank %d", parent->doing, i, members[i]);
    } else if (seen[members[i]]) {
      res = tt_fail(ncclInvalidArgument, "%s: rank %d is a member twice", parent->doing, members[i]);
    } else {
      seen[members[i]] = true;
      *own = members[i] == parent->rank ? i : *own;
    }
  }
  tt_free(seen);
  TT_TRY(res);
  return count == 0 || *own >= 0
             ? ncclSuccess
             : tt_fail(ncclInvalidArgument, "%s: this rank is not among its members", parent->doing);
}

// The child's key: no process outside the parent can know it, and no other child has it.
static tt_key child_key(const tt_bootstrap *parent, const int *members, int count, uint64_t tag)
{
  tt_key a = tt_key_derive(&parent->key, "split", &tag, sizeof(tag));
  return tt_key_derive(&a, "members", members, (size_t)count * sizeof(members[0]));
}

ncclResult_t tt_bs_listen(const tt_bootstrap *parent, tt_greeter *door, const tt_key *key, int rank)
{
  tt_addrs at = parent->door.addrs;
  for (uint32_t i = 0; i < at.n; i++) {
    at.a[i].port = 0;
  }
  int e = tt_greeter_open(door, &at, key, TT_HELLO_RING, rank);
  return e == 0 ? ncclSuccess : tt_fail(ncclSystemError, "%s: cannot listen: %s", parent->doing, tt_sock_error_text(e));
}

// Makes the child with its socket; *child stays NULL when this rank is in none.
static ncclResult_t prepare_child(tt_bootstrap *parent, const int *members, int count, uint64_t tag,
                                  tt_bootstrap **child)
{
  int own = -1;
  TT_TRY(check_members(parent, members, count, &own));
  if (count == 0) {
    return ncclSuccess;
  }
  tt_key key = child_key(parent, members, count, tag);
  tt_bootstrap *b = tt_bs_new(own, count, &key, NULL);
  if (b == NULL) {
    return ncclSystemError;
  }
  ncclResult_t res = count > 1 ? tt_bs_listen(parent, &b->door, &b->key, own) : ncclSuccess;
  if (res != ncclSuccess) {
    tt_bootstrap_destroy(b);
    return res;
  }
  *child = b;
  return ncclSuccess;
}

// Looks at what the other members say.
static ncclResult_t check_cards(const tt_bootstrap *parent, const tt_bootstrap *child, const int *members,
                                const split_card *cards)
{
  const split_card *own = &cards[parent->rank];
  for (int i = 0; i < child->nranks; i++) {
    const split_card *c = &cards[members[i]];
    if (c->code != ncclSuccess) {
      return tt_fail(ncclRemoteError, "%s: rank %d could not take part", parent->doing, members[i]);
    }
    if (c->group != own->group) {
      return tt_fail(ncclInvalidUsage, "%s: rank %d and rank %d list different members", parent->doing, parent->rank,
                     members[i]);
    }
  }
  return ncclSuccess;
}

// All ranks of the parent exchange their cards, even those that cannot go on: no rank is left waiting.
static ncclResult_t exchange_cards(tt_bootstrap *parent, tt_bootstrap *child, ncclResult_t prepared, split_card *cards)
{
  split_card *own = &cards[parent->rank];
  own->code = prepared;
  if (child != NULL) {
    own->addrs = child->door.addrs;
    memcpy(&own->group, child->name, sizeof(own->group));
  }
  ncclResult_t res = tt_bootstrap_allgather(parent, cards, sizeof(*cards));
  return prepared != ncclSuccess ? prepared : res;
}

static ncclResult_t connect_child(const tt_bootstrap *parent, tt_bootstrap *child, const int *members,
                                  const split_card *cards)
{
  TT_TRY(check_cards(parent, child, members, cards));
  return child->nranks > 1 ? tt_ring_form(child, &cards[members[child->successor]].addrs) : ncclSuccess;
}

ncclResult_t tt_bootstrap_split(tt_bootstrap *parent, const int *members, int count, uint64_t tag,
                                const volatile uint32_t *abort_flag, tt_bootstrap **out)
{
  TT_TRY(tt_bs_begin(parent, "split into %d ranks, tag %llu", count, (unsigned long long)tag));
  tt_bootstrap *child = NULL;
  split_card *cards = tt_calloc((size_t)parent->nranks, sizeof(*cards));
  if (cards == NULL) {
    return tt_fail(ncclSystemError, "%s: no memory", parent->doing);
  }
  ncclResult_t res = prepare_child(parent, members, count, tag, &child);
  if (child != NULL) {
    tt_bootstrap_care(child, parent->look, parent->look_arg, false);
  }
  const volatile uint32_t *outer = parent->abort_also;
  parent->abort_also = abort_flag;
  res = exchange_cards(parent, child, res, cards);
  parent->abort_also = outer;
  if (res == ncclSuccess && child != NULL) {
    child->abort_flag = abort_flag;
    res = connect_child(parent, child, members, cards);
  }
  tt_free(cards);
  if (res != ncclSuccess) {
    tt_bootstrap_destroy(child);
    return res;
  }
  *out = child;
  return ncclSuccess;
}

const uint8_t *tt_bootstrap_secret(const tt_bootstrap *b)
{
  return b->name;
}

uint32_t tt_bootstrap_way_us(const tt_bootstrap *b)
{
  return b->next >= 0 ? tt_sock_trip_us(b->next) / 2 : 0;
}

bool tt_bootstrap_is_public(const tt_bootstrap *b)
{
  return b->key.is_public;
}

// What was sent must still arrive. So a connection ends by "nothing more comes", which a forked copy of the
// descriptor cannot hold back.
static void close_connection(const tt_bootstrap *b, int *fd)
{
  if (b->owner == getpid()) {
    tt_sock_finish(*fd);
  }
  tt_sock_close(fd);
}

void tt_bootstrap_destroy(tt_bootstrap *b)
{
  if (b == NULL) {
    return;
  }
  tt_greeter_close(&b->door, b->owner == getpid());
  tt_ring_leave(b);
  close_connection(b, &b->next);
  close_connection(b, &b->prev);
  if (b->early.there) {
    close_connection(b, &b->early.fd);
  }
  tt_free(b->cards);
  tt_free(b);
}
