// messages.h: what the service threads of two ranks say to each other on a control connection, after its handshake
// (bootstrap/dial.h, greet.h).
//
// A message is a head and a body whose size its type fixes. Names are those of seed 001; a rank's requests to its own
// service are the same types, but lie in its memory (service_priv.h). Both ends are of one version (peers are compared
// at init), so structs travel as they are.
//
//   The dialling side says INIT first. Then either side, any time: STATE, PROBE (answered by STATE). Last: STATE,
//   CLOSE. A data connection A -> B, on the control connection that A has dialled: SETUP, answered by ANSWER with the
//   network's handle; TRY before A connects to that; when A's end stands CONNECT. What goes wrong at B's end is an
//   ANSWER with a code: A tries the next device with another SETUP.
//
//   A rank that sends through a relay dials it, and leaves two descriptors in the relay's mailbox (os/fdbox.h): the
//   memory of its FIFOs, and its doorbell. Then it says GET_FD. An ANSWER with code success means that the relay has
//   taken it on, and that the relay's doorbell is in the rank's own mailbox. Another code means that the relay does not
//   send, or sends no more. The relay sets up the data connection as its own, but says on whose `behalf`.
#pragma once
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/link.h"
#include "net/net.h"

typedef enum {
  TT_MSG_INIT = 1,    // to a peer: names the sender. To the own service: a link was taken on
  TT_MSG_SETUP = 3,   // listen for the sender
  TT_MSG_CONNECT = 4, // the sender's end stands
  TT_MSG_START = 5,   // to the own service: look at the operations
  TT_MSG_CLOSE = 6,   // nothing follows
  TT_MSG_STOP = 8,    // to the own service: end
  TT_MSG_GET_FD = 9,  // send what the sender's FIFOs hold: their descriptor is in the mailbox
  TT_MSG_ANSWER = 13, // to SETUP and GET_FD
  TT_MSG_STATE = 14,  // the sender's state and operations. To the own service: the state has changed
  TT_MSG_PROBE = 15,  // answer with STATE. To the own service: ask that peer
  TT_MSG_TRY = 16,    // the sender begins to connect: accept
  TT_MSG_TYPES
} tt_msg_type;

enum { TT_MSG_VERSION = 10, TT_MSG_BODY = 880, TT_MSG_DEVICES = 64 };

// In the place of a rank (tt_msg_head.behalf): the connections for one-sided operations between the two, and for
// captured ones (puts.h).
#define TT_MSG_PUTS UINT32_MAX
#define TT_MSG_GRAPHS (UINT32_MAX - 1)

typedef struct tt_msg_head {
  uint16_t type; // tt_msg_type
  uint16_t size; // of the body
  uint32_t id;   // SETUP, TRY, CONNECT: number of the attempt; GET_FD: the rank to send to; ANSWER: the same. Else 0
  int32_t from;  // the sender's rank
  // SETUP, TRY, CONNECT and their ANSWER: 1 + the rank whose messages they are about, when it is not the dialling one;
  // or TT_MSG_PUTS, TT_MSG_GRAPHS. Else 0
  uint32_t behalf;
} tt_msg_head;
static_assert(sizeof(tt_msg_head) == 16, "sent as it is");

typedef struct tt_msg_init {
  uint64_t hash; // of the communicator
  int32_t nranks;
  uint32_t version;
} tt_msg_init;
static_assert(sizeof(tt_msg_init) == 16, "sent as it is");

typedef struct tt_msg_setup {
  int32_t channel; // 0
  int32_t device;  // the wish; taken modulo the number there is
} tt_msg_setup;
static_assert(sizeof(tt_msg_setup) == 8, "sent as it is");

// A FIFO in memory whose descriptor was passed on. Places are bytes from its start; the rest is as in tt_fifo.
typedef struct tt_msg_fifo {
  uint64_t slots_at, head_at;
  uint32_t stride, mask, at, capacity; // at: bytes from a slot's start to its payload
} tt_msg_fifo;
static_assert(sizeof(tt_msg_fifo) == 32, "sent as it is");

typedef struct tt_msg_get_fd {
  uint64_t size; // of the memory
  tt_msg_fifo fifo[2];
} tt_msg_get_fd;
static_assert(sizeof(tt_msg_get_fd) == 72, "sent as it is");

typedef struct tt_msg_answer {
  int32_t code;     // ncclResult_t
  int32_t ndevices; // of the receiving rank, 1 … TT_MSG_DEVICES
  union {
    char handle[TT_NET_HANDLE]; // code ncclSuccess
    char text[TT_NET_HANDLE];   // else: why not; ends with 0
  };
} tt_msg_answer;
static_assert(sizeof(tt_msg_answer) == 8 + TT_NET_HANDLE, "sent as it is");

typedef struct tt_msg_state {
  uint32_t state;  // TT_RANK_…, not LOST
  uint32_t sent;   // messages given to the network for the receiver so far, modulo 2^32
  uint32_t puts;   // the same of one-sided operations,
  uint32_t now;    // of `shown`
  uint32_t came;   // messages of the receiver's that have come so far, modulo 2^32
  uint32_t graphs; // and of captured ones
  struct {
    uint64_t sig, count; // 0: nothing is shown there
  } shown[1 + TT_SHOWN]; // of the rank's page
  tt_wait wait;          // the same; times are how long ago it was
  tt_culprit culprit;    // the same
  tt_why why;            // the same; ends with 0
} tt_msg_state;
static_assert(sizeof(tt_msg_state) == 32 + 16 * (1 + TT_SHOWN) + sizeof(tt_wait) + sizeof(tt_why), "sent as it is");

typedef struct tt_msg {
  tt_msg_head head;
  union {
    tt_msg_init init;
    tt_msg_setup setup;
    tt_msg_answer answer;
    tt_msg_get_fd get_fd;
    tt_msg_state state;
    char bytes[TT_MSG_BODY];
  };
} tt_msg;

// Bytes of the body of a message of this type between two ranks; -1: there is no such message. Pure.
int tt_msg_size(unsigned type);
// Reads the message that `data` begins with, which rank `from` has sent; `dialled`: on a connection that this rank has
// dialled. Its size in bytes (head and body), 0: `got` bytes are not all of it yet, -1: it is none of ours, and `*why`
// says what is wrong. Pure; any bytes are allowed.
int tt_msg_read(const void *data, size_t got, int from, bool dialled, tt_msg *out, const char **why);
