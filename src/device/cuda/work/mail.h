// mail.h: requests between ranks of several processes of a machine (tt_mail): one asks, and waits until the other one's
// thread has answered (ipc.c). Calls of one rank come one at a time.
#pragma once
#include "device/cuda/work/port_priv.h"

// tt_mail.served: requests are answered, also those about inboxes; or no longer.
enum { TT_GPU_MAIL_SERVED = 1, TT_GPU_MAIL_INBOX, TT_GPU_MAIL_LEFT };

static inline const tt_neighbor *tt_gpu_neighbor(const tt_gpu_port *p, int peer)
{
  return &p->port->neighbors[peer];
}

// Asks the peer, and waits for the answer, for NCCL_BOOTSTRAP_TIMEOUT at most: its thread answers at once, unless the
// process is stopped. *state: what has become of the peer. False: there is no answer; the peer has gone, this port is
// stopped, or the peer is late.
bool tt_gpu_mail_request(const tt_gpu_port *p, int peer, const void *body, size_t bytes, uint32_t *answer,
                         uint32_t *state);

// Why there was no answer, which `state` is of: that stops the port.
ncclResult_t tt_gpu_mail_fail(const tt_gpu_port *p, int peer, uint32_t state);

// Both. Errors: ncclRemoteError, or why the port is stopped.
ncclResult_t tt_gpu_mail_require(const tt_gpu_port *p, int peer, const void *body, size_t bytes, uint32_t *answer);
