// bootstrap_priv.h: what the files of this folder share: the unique id, roots and lobbies, the rank's side of joining,
// waiting, the ring.
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "bootstrap/bootstrap.h"
#include "bootstrap/dial.h"
#include "bootstrap/greet.h"
#include "os/events.h"

// ---- id.c

enum {
  TT_ID_FIXED =
      1, // the address comes from NCCL_COMM_ID: rank 0 starts the root in init, and it may come later than the others
  TT_ID_PUBLIC = 2, // and there is no secret (tt_key.is_public)
};

// What an id says.
typedef struct tt_id {
  tt_addrs root; // where it listens, best first; an id holds at least the first four
  uint8_t secret[TT_SECRET_BYTES];
  tt_key key;     // of the secret
  unsigned flags; // TT_ID_…
} tt_id;

// Reads an id. Pure. Any 128 bytes are allowed; everything but an unharmed id of this library is ncclInvalidArgument
// with a text.
ncclResult_t tt_bootstrap_id_parse(const ncclUniqueId *id, tt_id *out);
// Writes an id. Pure.
void tt_bootstrap_id_write(const tt_id *in, ncclUniqueId *id);
// What only ranks of a job have: a text, or a file with it. NULL: not set.
typedef struct tt_id_secret {
  const char *text, *file;
} tt_id_secret;

// The id that NCCL_COMM_ID=`text` stands for: the same in every process with the same secret. A text and a file of the
// same bytes are one secret. Errors: ncclInvalidArgument, also where both are set.
ncclResult_t tt_bootstrap_id_fixed(const char *text, const tt_id_secret *secret, tt_id *out);

// ---- root.c

enum { TT_BOOTSTRAP_MAX_RANKS = 1 << 20 };

// With several ids there are several roots; each has its share of the ranks, as even as possible, in order. First rank
// of root `share`'s; the share after the last begins at nranks. Pure. 1 <= nroots <= nranks.
int tt_share_begin(int nranks, int nroots, int share);
// The share of `rank`; numbers out of range count as the nearest rank. Pure.
int tt_share_of(int nranks, int nroots, int rank);

// The notes between a rank and a root, after the rank's hello.
//
// With several roots the first rank of each share also joins the root before its own, as the neighbour of that root.
// The root learns from it where the next share begins, and the two roots speak through it. The rank passes what it
// hears from the root before (READY, WAIT with a share) on to its own root, and a FAIL to whichever of the two has not
// said it.
enum {
  TT_NOTE_JOIN = 1, // rank to root: tt_join_card
  TT_NOTE_JOINED,   // root to rank: it counts as joined; if the connection ends now, the root is dying
  TT_NOTE_WAIT, // root to its own ranks: a sign of life, with a text that names the missing ranks. To the neighbour:
                // nothing, or the int32_t of its share, whose ranks are missing; passed on
  TT_NOTE_NEXT, // root to its own ranks: tt_addrs of the successor; all ranks have joined
  TT_NOTE_FAIL, // both ways: tt_note_send_failure
  TT_NOTE_READY // root to the neighbour, passed on: the int32_t number of shares in a row up to this one that are
                // complete. With nroots or more all ranks have joined, and it is the root's last note
};

typedef struct tt_join_card {
  tt_addrs peer;  // where the sender's peers find it; none when it is alone
  uint64_t ids;   // names the list of unique ids: equal on all ranks
  int32_t nroots; // how many they are
  int32_t share;  // which of them it takes this root for
  uint32_t pid;   // its process, for messages
  uint32_t zero;
} tt_join_card;
static_assert(sizeof(tt_join_card) == 224, "cards are sent as they are");

// A unique id of this process and its ranks. It never waits. After tt_root_new all calls are made by the thread of its
// lobby.
typedef struct tt_root tt_root;

// What the roots of a lobby share. It must outlive them.
typedef struct tt_root_shared {
  const tt_greeter *door; // the one through which their ranks come, for messages
  int events;             // the set (os/events.h) in which they watch their connections
  uint64_t file_limit;    // most descriptors that the process may have
} tt_root_shared;

// A root without ranks, or NULL without memory. `key` must outlive it. `end_ns` (0: none): when it ends if no rank has
// joined. `id`: tt_root_hear returns it.
tt_root *tt_root_new(const tt_root_shared *shared, const tt_key *key, uint64_t end_ns, void *id);
// A rank has proved itself at the door. Takes over `fd`.
void tt_root_take(tt_root *r, const tt_hello *h, int fd);
// Takes a bounded part of what has come on one connection. `line`: an owner that the set has told. Returns the `id` of
// its root.
void *tt_root_hear(void *line);
// When the next step is due; 0: none is.
uint64_t tt_root_wake_ns(const tt_root *r);
// Does what is due. The thread was to wake up at `wake_ns`.
void tt_root_step(tt_root *r, uint64_t wake_ns);
// Does it still take ranks? When it does not: close the door, unless others use it, then tt_root_answer.
bool tt_root_is_open(const tt_root *r);
// Sends every rank its answer. Once; from now on no rank can join.
void tt_root_answer(tt_root *r);
// Has every rank taken its answer, or had its time for that?
bool tt_root_has_ended(const tt_root *r);
// Closes everything.
void tt_root_destroy(tt_root *r);

// ---- lobby.c

// Lets ranks use `in`: listens on in->root (port 0: any, the same for all ids made while some of them are unused),
// starts a thread for that if none runs, and writes where it listens. Any thread. Errors: ncclSystemError.
ncclResult_t tt_lobby_add(const tt_id *in, tt_addrs *bound);
// Unique ids of this process that have not ended: unused, or with ranks. When there is none, the lobby's sockets are
// closed.
int tt_lobby_count(void);

// ---- join.c

// The root that has answered, for the log.
typedef struct tt_join_way {
  int share;
  tt_addr at, own; // its address, and ours
} tt_join_way;

// What a rank learns from the roots: its successor.
typedef struct tt_join {
  tt_bootstrap *b;  // its door is opened, unless nranks is 1, and served while the roots are waited for
  const tt_id *ids; // nids, parsed; not more than nranks
  int nids;
  uint64_t ids_name; // tt_join_card.ids
  tt_addrs next;     // out
  tt_join_way way;   // out
} tt_join;

// Reports to the root of this rank's share (and, as the first rank of a share, to the one before) and waits for the
// answer. Errors as tt_bootstrap_init.
ncclResult_t tt_join_roots(tt_join *j);

// ---- wait.c

struct tt_bootstrap {
  int rank, nranks;
  int successor, predecessor; // ranks
  pid_t owner;                // process that made it: a forked child closes its copies and nothing more
  tt_key key;
  uint8_t name[16];                                 // tt_bootstrap_secret
  const volatile uint32_t *abort_flag, *abort_also; // abort_also: of the child, while a split runs
  const char *what;                                 // the call that uses the ring, for messages; NULL: creation
  tt_greeter door;                                  // open until the predecessor has come
  tt_addrs own;        // where it was; splits listen on the same addresses. None when nranks is 1
  int next, prev;      // connections to the successor and the predecessor, -1: none
  ncclResult_t broken; // ncclSuccess, or what every later call returns
  uint32_t sequence;   // collective operations so far
  char doing[96];      // "rank 1 of 4: ...", for lines and errors
  char awaits[128];    // "ranks 1-5 of 7": for the line; "" unknown
  uint64_t line_ns;    // when to say so next
};

// NCCL_BOOTSTRAP_TIMEOUT in nanoseconds.
uint64_t tt_bs_patience_ns(void);
// An object without sockets yet, or NULL without memory (logged). Free it with tt_bootstrap_destroy.
tt_bootstrap *tt_bs_new(int rank, int nranks, const tt_key *key, const volatile uint32_t *abort_flag);
// ncclSuccess when the object may be used: not in a forked child, not after its ring has ended. Says, for the line
// after 30 s of silence and for messages, what is being done.
ncclResult_t tt_bs_begin(tt_bootstrap *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// Says for the same line which ranks are waited for.
void tt_bs_awaits(tt_bootstrap *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// Waits until one of `want` (at most TT_BS_WANTS; revents are set) is ready, the predecessor has come (b->prev), or
// `wake_ns` (0: none) has come. May return without any of these, so call it in a loop. Error: ncclInternalError,
// without a line, when aborted.
enum { TT_BS_WANTS = 2 * TT_DIAL_POLL };
ncclResult_t tt_bs_wait(tt_bootstrap *b, struct pollfd *want, size_t nwant, uint64_t wake_ns);
// Steps a dial to its end, and lets the predecessor in meanwhile. *e: 0 and *fd, or the -errno of tt_dial_step,
// quietly. Errors as tt_bs_wait.
ncclResult_t tt_bs_dial(tt_bootstrap *b, tt_dial *d, int *fd, int *e);

// ---- ring.c

// Connects to the successor, which listens at `next`, waits for the predecessor, and closes the door. nranks > 1.
// Errors: ncclRemoteError naming the neighbour, ncclSystemError when this machine has run out of something,
// ncclInternalError when aborted.
ncclResult_t tt_ring_form(tt_bootstrap *b, const tt_addrs *next);
