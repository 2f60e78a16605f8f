// bootstrap_priv.h: what the files of this folder share: the unique id, roots and lobbies, the rank's side of joining,
// waiting, the ring.
#pragma once
#include <errno.h>
#include <stdbool.h>
#include <sys/types.h>

#include "bootstrap/bootstrap.h"
#include "bootstrap/dial.h"
#include "bootstrap/greet.h"
#include "os/events.h"

// A rank that the root has heard, and whose connection has ended before the answer, comes again so soon.
#define TT_AGAIN_NS (50 * TT_NS_PER_MS)

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
  uint32_t pid;   // of the process that made the id; 0: each process made it from NCCL_COMM_ID
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
// A rank has been refused at the door, because it has another encryption key: the others hear that.
void tt_root_refuse(tt_root *r, const tt_hello *h);
// The connection of a rank that had proved itself has ended at once. Unless it comes again soon, it has died.
void tt_root_miss(tt_root *r, const tt_hello *h);
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

// What the ranks of a ring tell each other as soon as it stands.
typedef struct tt_ring_card {
  tt_addrs door;     // where the rank listens from now on
  uint8_t nonce[16]; // makes the key of a shrunk ring differ from that of every other
} tt_ring_card;

// A neighbour that was at the next shrink before this rank was.
typedef struct tt_early {
  bool there; // else there is none
  int fd;
  tt_hello hello;
} tt_early;

// A shrink that forms a ring (shrink.c).
typedef struct tt_shrinking {
  tt_bootstrap *parent;
  const int *members; // the parent's ranks, by the child's
  int count;
  uint32_t attempt; // 1 + the parent's `nfailed`
  uint64_t list;    // hash of the members
  tt_greeter door;  // the child's own one: until its ring stands the parent's is in its place
} tt_shrinking;

// Why a rank is the cause of a ring's end, beside ncclRemoteError. They travel.
typedef enum {
  TT_STOP_GONE,
  TT_STOP_LATE,
  TT_STOP_ABORTED,
  TT_STOP_LISTS,
  TT_STOP_PAST,
  TT_STOP_DIED,
  TT_STOP_LOST,
  TT_STOP_EXITED
} tt_stop_reason;

// How this rank's last shrink of a ring that failed was ended by another rank.
typedef struct tt_past_end {
  uint32_t attempt; // 0: none was
  uint64_t list;    // as in tt_shrinking
  int cause;        // rank of the ring that did not come to be
  ncclResult_t code;
  tt_stop_reason reason;
} tt_past_end;

struct tt_bootstrap {
  int rank, nranks;
  int successor, predecessor; // ranks
  pid_t owner;                // process that made it: a forked child closes its copies and nothing more
  tt_key key;
  uint8_t name[16];                                 // tt_bootstrap_secret
  const volatile uint32_t *abort_flag, *abort_also; // abort_also: of the child, while a split runs
  const char *what;                                 // the call that uses the ring, for messages; NULL: creation
  // Listens while the object lives, but is served only until the predecessor has come, and while a shrink forms its
  // ring (shrink.c). Splits listen on the same addresses. Closed when nranks is 1.
  tt_greeter door;
  tt_ring_card *cards;         // by rank; NULL when nranks is 1
  const tt_shrinking *shrinks; // while a shrink forms this ring; else NULL
  tt_early early;              // of a later attempt than this rank was at
  tt_past_end past_end;        // of its last one
  uint32_t nfailed;            // shrinks of this ring
  int next, prev;              // connections to the successor and the predecessor, -1: none
  // ncclSuccess, or what every later call returns. By __atomic_…; the next six are under `busy`
  ncclResult_t broken;
  tt_frame last_stop; // what the neighbours have heard then
  tt_ring_end end;    // why,
  int cause;          // and because of which rank
  tt_stop_reason reason;
  bool heard;           // from a neighbour, outside a ring operation: the next one reports it
  uint32_t busy;        // 1 while a call, or a look from outside, uses the connections. By __atomic_…
  tt_ring_look_fn look; // tt_bootstrap_care
  void *look_arg;
  bool look_own;
  uint64_t look_ns;  // when to ask again
  int dead;          // what it has said; -1: nothing
  uint32_t sequence; // collective operations so far,
  uint32_t finished; // and those of them that have succeeded
  char doing[96];    // "rank 1 of 4: ...", for lines and errors
  char awaits[128];  // "ranks 1-5 of 7": for the line; "" unknown
  uint64_t line_ns;  // when to say so next
};

// NCCL_BOOTSTRAP_TIMEOUT in nanoseconds.
uint64_t tt_bs_patience_ns(void);
// An object without sockets yet, or NULL without memory (logged). Free it with tt_bootstrap_destroy.
tt_bootstrap *tt_bs_new(int rank, int nranks, const tt_key *key, const volatile uint32_t *abort_flag);
// ncclSuccess when the object may be used: not in a forked child, not after its ring has ended. Says, for the line
// after 30 s of silence and for messages, what is being done.
ncclResult_t tt_bs_begin(tt_bootstrap *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// Listens for the ranks of a child of `parent`, on the addresses of its door and any ports. `rank`: in the child.
// Errors: ncclSystemError.
ncclResult_t tt_bs_listen(const tt_bootstrap *parent, tt_greeter *door, const tt_key *key, int rank);
// Takes the connections for a call, and gives them back.
void tt_bs_hold(tt_bootstrap *b);
void tt_bs_release(tt_bootstrap *b);
// Says for the same line which ranks are waited for.
void tt_bs_awaits(tt_bootstrap *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// Waits until one of `want` (at most TT_BS_WANTS; revents are set) is ready, the predecessor has come (b->prev), or
// `wake_ns` (0: none) has come. May return without any of these, so call it in a loop. Errors: ncclInternalError,
// without a line, when aborted; ncclRemoteError when a rank has died (b->dead).
enum { TT_BS_WANTS = 2 * TT_DIAL_POLL };
ncclResult_t tt_bs_wait(tt_bootstrap *b, struct pollfd *want, size_t nwant, uint64_t wake_ns);
// Steps a dial to its end, and lets the predecessor in meanwhile. *e: 0 and *fd, or the -errno of tt_dial_step,
// quietly. Errors as tt_bs_wait.
ncclResult_t tt_bs_dial(tt_bootstrap *b, tt_dial *d, int *fd, int *e);

// ---- ring_end.c

// Kinds of frames between neighbours. A BLOCK has the operation's number and the size of the block that follows. A STOP
// has the rank that is the cause for its number, and no block: its size holds, from the lowest bit on, the ncclResult_t
// (8 bits), why (8), the sender's attempt at a shrink (16), and how many operations it has finished (32).
enum { TT_FRAME_BLOCK = 0x626c6f63, TT_FRAME_STOP = 0x73746f70 };

// Ends the ring: both neighbours hear which rank is the cause (`forward`: the successor, too), and then that nothing
// more comes. Under b->busy, or while no other thread can have `b`.
void tt_ring_stop(tt_bootstrap *b, bool forward, int cause, ncclResult_t code, tt_stop_reason reason);
// Does what a read gave (bytes or -errno) mean that no process holds the connection's other end any more? It was
// closed, or reset: a kernel does that for a process that ends before it has read everything. Other errors may be the
// network's.
static inline bool tt_ring_is_closed(ssize_t n)
{
  return n == 0 || n == -ECONNRESET || n == -EPIPE;
}
// The connection of a neighbour has said `f`, or has ended by an error or in the middle of something (a frame without
// a kind), or was closed without a word (NULL): ends the ring, too. Returns the error.
ncclResult_t tt_ring_neighbour_ended(tt_bootstrap *b, bool forward, int neighbour, const tt_frame *f);
// The error of a ring that has ended: which rank is the cause.
ncclResult_t tt_ring_error(const tt_bootstrap *b);
// Has a neighbour said that the ring has ended, unread so far? Ends it then. Returns the error, else ncclSuccess.
ncclResult_t tt_ring_hear(tt_bootstrap *b);
// The ring has ended before the connection to a neighbour stood, and now it does: it hears which rank was the cause.
void tt_ring_tell(tt_bootstrap *b, int fd);
// The same where the predecessor has not come yet: waits for it for half a second, unless it is the cause or this rank
// is aborted. It would find this rank gone, and take it for the cause, or wait until its patience ends.
void tt_ring_tell_late_prev(tt_bootstrap *b);
// Tells one connection of `b` that it comes to nothing, and closes it.
void tt_ring_refuse(const tt_bootstrap *b, int fd, int cause, ncclResult_t code, tt_stop_reason reason);
// Does `f`, from a neighbour, only end what was before: a shrink that the neighbour was still at when this rank was at
// the next one? The neighbour will come again. False where another rank has gone for good: then this shrink fails, too.
bool tt_ring_ends_past(const tt_bootstrap *b, int neighbour, const tt_frame *f);
// Is `f` from a neighbour that has finished the operation which this rank is in?
bool tt_ring_ends_later(const tt_bootstrap *b, const tt_frame *f);
// The rank leaves in order.
void tt_ring_leave(tt_bootstrap *b);

// ---- ring.c

// Connects to the successor, which listens at `next`, waits for the predecessor, and exchanges the cards, which shows
// that the whole ring stands. Of the door it only uses what is there. nranks > 1. Errors: ncclRemoteError naming the
// neighbour, ncclSystemError when this machine has run out of something, ncclInternalError when aborted; those of a
// shrink's door.
ncclResult_t tt_ring_form(tt_bootstrap *b, const tt_addrs *next);

// ---- shrink.c

// The number that messages call a rank of the ring: while a shrink forms it, the parent's. Pure.
int tt_shrink_name(const tt_bootstrap *b, int rank);
// And the number of ranks that goes with it. Pure.
int tt_shrink_size(const tt_bootstrap *b);
// The hello by which this rank of a ring that a shrink forms introduces itself to its successor. Pure.
tt_hello tt_shrink_hello(const tt_bootstrap *b);
// Where that successor listens. Pure.
const tt_addrs *tt_shrink_door(const tt_bootstrap *b);
// A connection has proved itself at the door: lets the predecessor in. Takes over `fd`. Errors: ncclInvalidUsage (the
// ranks have passed different lists), ncclRemoteError (that rank has given this shrink up).
ncclResult_t tt_shrink_judge(tt_bootstrap *b, const tt_hello *h, int fd);
// The same for the connection that came too early and was kept (`early` of the parent), if there is one.
ncclResult_t tt_shrink_take_early(tt_bootstrap *b);
