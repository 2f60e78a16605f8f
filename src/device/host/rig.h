// rig.h: ports and links made by hand for the tests of this folder: up to four ranks in shared memory, FIFOs of four
// slots, small outboxes, tiny schedules.
#pragma once
#include "device/host/work_rig.h"

#include <sys/mman.h>

#include "base/result.h"
#include "device/host/handover.h"
#include "device/lane.h"
#include "os/shm.h"

enum { RIG_RANKS = 4, RIG_SLOTS = 4, RIG_SLOT_BYTES = 256, RIG_BOX_BYTES = 1024 };

// One direction between two ranks.
typedef struct rig_window {
  struct {
    _Alignas(TT_CACHE_LINE) _Atomic uint32_t head;
  } heads[TT_NFIFOS];
  tt_slot slots[TT_NFIFOS][RIG_SLOTS];
  char data[TT_NFIFOS][RIG_SLOTS][RIG_SLOT_BYTES];
  _Atomic uint32_t wants;
  _Alignas(TT_CACHE_LINE) char box[RIG_BOX_BYTES];
} rig_window;

typedef struct rig {
  tt_rank_page pages[RIG_RANKS];
  rig_window windows[RIG_RANKS][RIG_RANKS]; // from, to
  tt_port ports[RIG_RANKS];
  tt_link links[RIG_RANKS][RIG_RANKS], *tables[RIG_RANKS][RIG_RANKS];
  void *operands[RIG_RANKS][TT_OPERANDS(RIG_RANKS)];
  char bounce[RIG_RANKS][TT_BOUNCE_BYTES];
  tt_handover handovers[RIG_RANKS][RIG_RANKS];
  tt_trials trials[RIG_RANKS][RIG_RANKS];
  _Atomic int word; // for a test with two processes
  tt_proc_id child;
  int life; // descriptor of shared memory in which the child holds its lock
} rig;

DUMMY void rig_fifos(rig_window *w, tt_fifo *fifos)
{
  for (int k = 0; k < TT_NFIFOS; k++) {
    fifos[k] = (tt_fifo){.slots = (char *)w->slots[k],
                         .stride = sizeof(tt_slot),
                         .data = w->data[k][0],
                         .data_stride = RIG_SLOT_BYTES,
                         .mask = RIG_SLOTS - 1,
                         .capacity = RIG_SLOT_BYTES,
                         .head = &w->heads[k].head};
  }
}

DUMMY rig *rig_open(void)
{
  rig *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(r != MAP_FAILED);
  assert_int_equal(tt_shm_create("rig", 4096, &r->life), ncclSuccess);
  for (int i = 0; i < RIG_RANKS; i++) {
    r->ports[i] = (tt_port){
        .rank = i, .nranks = RIG_RANKS, .page = &r->pages[i], .links = r->tables[i], .operands = r->operands[i]};
    r->ports[i].bounce = r->bounce[i];
    atomic_store(&r->pages[i].state, TT_RANK_RUNNING);
    for (int k = 0; k < RIG_RANKS; k++) {
      tt_link *link = r->tables[i][k] = &r->links[i][k];
      *link = (tt_link){.rank = i,
                        .peer = k,
                        .access = TT_ACCESS_LOCAL,
                        .page = &r->pages[k],
                        .proc = tt_proc_self(),
                        .handover = &r->handovers[i][k]};
      rig_fifos(&r->windows[i][k], link->send);
      rig_fifos(&r->windows[k][i], link->recv);
    }
  }
  return r;
}

DUMMY void rig_reach(rig *r, int rank, int peer)
{
  rig_window *to = &r->windows[rank][peer], *from = &r->windows[peer][rank];
  tt_link *link = &r->links[rank][peer];
  link->access = TT_ACCESS_COPY;
  link->handover->pages.state = TT_PAGEPIPE_NONE;
  link->handover->outbox = (tt_outbox){.base = to->box, .size = RIG_BOX_BYTES};
  link->handover->inbox = from->box;
  link->handover->inbox_size = RIG_BOX_BYTES;
  link->handover->wanted = &to->wants;
  link->handover->wants = &from->wants;
  link->handover->trials = &r->trials[rank][peer];
}

// From now on the two ranks read each other's memory as two processes do, and have outboxes. There are no pipes.
DUMMY void rig_part(rig *r, int rank, int peer)
{
  rig_reach(r, rank, peer);
  rig_reach(r, peer, rank);
}

// In a forked child: it plays a rank.
DUMMY void rig_live(rig *r)
{
  r->child = tt_proc_self();
  assert_int_equal(tt_proc_hold(r->life), ncclSuccess);
}

// The rank watches the peer, which the child plays.
DUMMY void rig_watch(rig *r, int rank, int peer)
{
  tt_link *link = &r->links[rank][peer];
  link->proc = r->child;
  link->life = r->life;
  link->watched = true;
}

DUMMY void rig_close(rig *r)
{
  for (int i = 0; i < RIG_RANKS; i++) {
    tt_bell_retire(&r->pages[i].bell); // the worker may still sleep on it
  }
  tt_fd_close(r->life);
  munmap(r, sizeof *r);
}

// A schedule of one strand, written as source -> destination steps; kind -1: none.
typedef struct rig_step {
  int src, src_peer, dst, dst_peer; // tt_ref_kind, rank
  uint32_t sub;
} rig_step;

typedef struct rig_schedule {
  tt_schedule s;
  tt_strand strand;
  tt_step steps[8];
  tt_ref refs[16];
} rig_schedule;

DUMMY const tt_schedule *rig_write(rig_schedule *out, int nsub, const rig_step *steps, int n)
{
  memset(out, 0, sizeof *out);
  int refs = 0;
  for (int i = 0; i < n; i++) {
    const rig_step *st = &steps[i];
    tt_step *o = &out->steps[i];
    *o = (tt_step){.sub = st->sub, .src = (uint32_t)refs};
    if (st->src >= 0) {
      out->refs[refs++] = (tt_ref){.kind = (uint8_t)st->src, .peer = st->src_peer, .chunk = st->sub};
      o->nsrc = 1;
    }
    o->dst = (uint32_t)refs;
    if (st->dst >= 0) {
      out->refs[refs++] = (tt_ref){.kind = (uint8_t)st->dst, .peer = st->dst_peer, .chunk = st->sub};
      o->ndst = 1;
    }
  }
  out->strand = (tt_strand){.first = 0, .count = (uint32_t)n};
  out->s = (tt_schedule){.nranks = RIG_RANKS,
                         .in_blocks = 1,
                         .out_blocks = 1,
                         .nsub = nsub,
                         .nstrands = 1,
                         .nsteps = n,
                         .nrefs = refs,
                         .strands = &out->strand,
                         .steps = out->steps,
                         .refs = out->refs};
  return &out->s;
}

// The own input to `peer`; what comes from `peer` to the own output.
DUMMY const tt_schedule *rig_send(rig_schedule *out, int peer)
{
  return rig_write(out, 1, &(rig_step){TT_IN, -1, TT_FIFO, peer, 0}, 1);
}

DUMMY const tt_schedule *rig_recv(rig_schedule *out, int peer)
{
  return rig_write(out, 1, &(rig_step){TT_FIFO, peer, TT_OUT, -1, 0}, 1);
}

// Runs the lane of a rank for as long as it can.
DUMMY tt_run rig_run(rig *r, int rank, tt_lane *l)
{
  size_t budget = 1 << 20;
  return tt_lane_run(&r->ports[rank], l, &budget);
}
