// handover.h: what the host device keeps for a link whose tokens hand memory over: the peer's last token, copies and
// pages under way, and trials of both ways.
//
// Private to src/device/host: offer.c, step.c and mem.c use it. It lives from the link's connection to its
// disconnection. Only the thread that runs the rank's plan uses it. The two words in shared memory (`wants`, `wanted`)
// are relaxed atomics: hints, which order nothing.
#pragma once
#include "device/host/trial.h"
#include "device/link.h"
#include "os/pagepipe.h"

#define TT_LINK_MAPS 8

// An allocation of a peer that this rank has mapped, or has tried to.
typedef struct tt_map {
  uint32_t handle; // 0: empty
  size_t size;
  uint64_t remote; // its address in the peer's process
  char *base;      // and here; NULL: it cannot be mapped, which is not tried again
} tt_map;

// The last ones that the peer's tokens have named. Emptied when the peer has freed something.
typedef struct tt_maplist {
  tt_map map[TT_LINK_MAPS];
  uint32_t next;
  uint32_t freed;
  bool logged; // the log has said that something cannot be mapped
} tt_maplist;

// A ring behind the window to a peer, in which this rank lays copies of what its tokens offer. A copy stays until the
// peer has given its token back. Positions count bytes since the beginning, modulo 2^32. Used by the thread that runs
// the rank's plan.
typedef struct tt_outbox {
  char *base;
  uint32_t size;                    // a power of two; 0: there is none
  uint32_t tail;                    // where the next copy goes
  uint32_t laid;                    // bytes from there on that hold the chunk which the next token will offer; 0: none
  uint32_t end[2 * TT_TOKEN_SLOTS]; // the tail behind each token, by the last digits of its number
} tt_outbox;

#define TT_WANTS_PAGES (1u << 31)
enum { TT_TRIAL_SIZES = 12 }; // of a call's blocks: below 64 KiB, and twice as much each

// What this rank has found out about a peer's offers, by size.
typedef struct tt_trials {
  tt_trial of_size[TT_TRIAL_SIZES];
  uint8_t sent[TT_TRIAL_SIZES]; // offers that this rank has sent since it last took one
  uint8_t logged;               // trials that the log has named
  bool off;                     // the user wants copies, whatever takes less time
} tt_trials;

// Times of what this rank gets from the peer, where they are measured (offer.c).
typedef struct tt_offer_timing {
  uint64_t since; // when this rank had read what the peer offered, or before that began with a call, if that is
                  // measured; else 0
  uint64_t until; // when it last offered something, had read what was offered, or saw that the peer had
  uint64_t waits; // since when what it offers next has no room, if that is measured; else 0
  uint64_t begun; // fingerprint of the call in which it last offered something
  uint8_t size;   // its number among the trials
  uint8_t chunks; // offers of the call that they belong to
  uint8_t came;   // 1 + the tt_way by which the last offer came; 0: by none
} tt_offer_timing;

typedef struct tt_handover {
  // The peer's last token: the addresses in its process, and what of its memory this one has, which may not be all of
  // the buffers. NULL: nothing.
  const tt_map *in_map, *out_map;
  uint64_t in_remote, out_remote;
  uint64_t scalar;
  const char *copied; // what it offers lies here; NULL: it came another way, or not at all
  size_t offered;     // bytes of the offered chunk, from its start on, that the pipe holds
  bool peer_put;      // the peer has written into this rank's output
  // This rank's tokens.
  bool put;            // TT_STEP_PUT: this rank has written into the peer's output since its last token,
  bool put_far;        // with the kernel's help
  uint32_t held;       // number of the token behind the last one that needs this rank's own memory until it comes back
  uint32_t sent_bytes; // that come along with the token being sent
  // COPY: what comes along.
  tt_maplist mapped;
  tt_pagepipe pages; // for what this rank's tokens offer
  tt_pagetap tap;    // and the peer's
  tt_outbox outbox;  // the other way
  const char *inbox; // the peer's outbox, which it need not use
  uint32_t inbox_size;
  // Sizes (by number) that this rank wants as pages, TT_WANTS_PAGES: always all. Only this rank writes there.
  _Atomic uint32_t *wants;
  const _Atomic uint32_t *wanted; // the same word of the peer's; an older value does no harm
  tt_trials *trials;              // of what the peer's tokens offer; NULL: there is no outbox
  tt_offer_timing timing;
} tt_handover;

// Where this process has `bytes` bytes at `offset` of the buffer of the peer's last token; NULL: nowhere.
static inline char *tt_handover_place(const tt_handover *h, bool out, size_t offset, size_t bytes)
{
  const tt_map *m = out ? h->out_map : h->in_map;
  uint64_t at = (out ? h->out_remote : h->in_remote) + offset - (m != NULL ? m->remote : 0);
  return m != NULL && at < m->size && bytes <= m->size - at ? (char *)((uintptr_t)m->base + at) : NULL;
}

// Makes link->handover; tt_device_ops.connect. Errors: ncclSystemError.
ncclResult_t tt_handover_open(const tt_port *port, tt_link *link, const tt_link_env *env);
// Frees it, with what the peer's tokens have had mapped; tt_device_ops.disconnect. Nothing of the port runs. Accepts a
// link without.
void tt_handover_close(tt_link *link);
