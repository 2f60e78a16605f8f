// segment.h: memory shared by all ranks of a communicator on one machine: a page and a board per rank; a mail
// and a window per ordered pair of ranks, and behind the window the sender's outbox (device/host/offer.h); where ranks
// are on GPUs a FIFO of puts per ordered pair (device/rma_link.h).
//
// One memfd per communicator and machine, sparse: pages exist once they are touched, so a pair that never talks costs
// nothing. The first local rank creates it, and one rank of every other process opens it through /proc, where no other
// user can disturb that. A process that may not look into the first rank's gets the descriptor in its mailbox. Ranks of
// one process share one mapping.
#pragma once
#include "device/one_sided.h"

// Sizes of a window's FIFOs (fifo.h); tokens and TINY have their own. Equal on all ranks of a communicator: rank 0
// decides.
typedef struct tt_geometry {
  uint32_t ll_slots, ll_slot_bytes;         // header included
  uint32_t simple_slots, simple_slot_bytes; // payload
  uint32_t net_slot_bytes; // the same in windows whose messages go over a network: a message costs system calls there
} tt_geometry;

// Geometry from NCCL_BUFFSIZE and NCCL_LL_BUFFSIZE.
tt_geometry tt_geometry_default(void);
// Bytes of one window, a multiple of the page size.
size_t tt_window_bytes(const tt_geometry *g);
// Makes the sender's (or the receiver's) view of a window at `base`.
void tt_window_view(const tt_geometry *g, char *base, tt_fifo fifos[TT_NFIFOS]);
// The word of a window by which its receiver says how it wants what is offered (device/link.h).
_Atomic uint32_t *tt_window_wants(char *base);
// The same for a window whose messages go over a network: each SIMPLE payload lies directly behind its header, so that
// one piece of memory is one network message. There are no tokens.
size_t tt_net_window_bytes(const tt_geometry *g);
void tt_net_window_view(const tt_geometry *g, char *base, tt_fifo fifos[TT_NFIFOS]);
// Could a rank of this library have chosen it? What comes from others is asked first.
bool tt_geometry_valid(const tt_geometry *g);

// Start of the segment: what its creator decided, and which ranks share it, for tools that look at a live job. Behind
// it, from TT_SEGMENT_PAGES on, the ranks' pages by place.
typedef struct tt_segment_rank {
  int32_t rank, pid;
} tt_segment_rank;

enum { TT_SEGMENT_PAGES = 4096, TT_SEGMENT_RANKS = 500 };
#define TT_SEGMENT_MAGIC 0x7475747469736568ull

typedef struct tt_segment_header {
  uint64_t magic;
  uint64_t size;
  tt_geometry geometry;
  uint64_t hash;                           // the communicator's
  int32_t nranks, n;                       // of the communicator, of this machine
  tt_segment_rank ranks[TT_SEGMENT_RANKS]; // by place, as far as there is room
} tt_segment_header;
_Static_assert(sizeof(tt_segment_header) <= TT_SEGMENT_PAGES, "first page");

typedef struct tt_segment tt_segment;

// Participants: local ranks in ascending order, by place in `ranks`.
typedef struct tt_local {
  int n, me;        // number of local ranks; own place
  int leader;       // place of the first rank of the own process
  bool one_process; // all of them are in this process
  bool pulls;       // this process may open descriptors of the first local rank's (tt_proc_may_open)
  bool puts;        // some rank of the communicator is on a GPU: there are FIFOs of puts
  const int *ranks;
  const tt_proc_id *procs; // by place
  const char *const *mailboxes;
  const uint8_t *secret; // 16 bytes known to this communicator's ranks only
  tt_geometry geometry;
  uint64_t hash; // the communicator's, and the number of all its ranks: for tools
  int nranks;
} tt_local;

// What each rank tells the others between opening and joining.
typedef struct tt_segment_note {
  int32_t fd;      // of the first local rank: number of the segment's descriptor in its process
  uint32_t pushed; // not 0: the first rank of its process, which cannot open that; it shall have it in its mailbox
  uint64_t inode;  // of the first local rank: the segment's
} tt_segment_note;
_Static_assert(sizeof(tt_segment_note) == 16, "tt_segment_note is sent as it is");

// Opens this rank's share, and fills its note. The first local rank makes the segment; nobody waits. Errors:
// ncclSystemError. Free with tt_segment_leave.
ncclResult_t tt_segment_open(const tt_local *who, tt_segment **out, tt_segment_note *note);
// With the notes of all ranks of the communicator, by rank: passes the segment to the mailboxes of those processes that
// asked for it. Does nothing but on the first local rank. Errors: ncclSystemError, ncclRemoteError (a process has
// ended).
ncclResult_t tt_segment_push(const tt_segment *s, const tt_local *who, const tt_segment_note *notes);
// Maps an open segment. Called once every local rank has opened its share, and the first has passed it to those that
// asked for it, so that there is something to wait for; waits for NCCL_BOOTSTRAP_TIMEOUT at most. Errors:
// ncclSystemError, ncclRemoteError (the first local rank has ended), ncclInternalError (aborted).
ncclResult_t tt_segment_join(tt_segment *s, const tt_local *who, const tt_segment_note *notes,
                             const volatile uint32_t *abort_flag);
// Drops this rank's share; the last one in the process unmaps. NULL is allowed.
void tt_segment_leave(tt_segment *s);

// Bytes of the segment that so many ranks share, with FIFOs of puts or without.
size_t tt_segment_bytes(const tt_geometry *g, int nranks, bool puts);
// Bytes of the outbox behind each window, where so many ranks share the segment. 0: there is none.
uint32_t tt_outbox_bytes(int nranks);

// Fills link->send, recv, page and *env for the pair (link->rank, link->peer), both on this machine.
void tt_segment_connect(tt_segment *s, tt_link *link, tt_link_env *env);

// Page of the local rank at `place`.
tt_rank_page *tt_segment_page(tt_segment *s, int place);
// Board of the local rank at `place`, for one-sided operations.
tt_board *tt_segment_board(tt_segment *s, int place);
// What the device of one local rank asks of another one's, by place.
tt_mail *tt_segment_mail(tt_segment *s, int from, int to);
// Window for messages from one local rank to another, by place.
char *tt_segment_window(tt_segment *s, int from, int to);
// FIFO for payloads of puts from one local rank to another, by place (tt_rma_fifo). Of a segment that has these.
char *tt_segment_puts(tt_segment *s, int from, int to);
// What of the window from one local rank to another, with its outbox, holds nothing but messages: all behind its first
// page. Empty FIFOs need no more than that page to go on from where they are. *size: in bytes.
void *tt_segment_messages(tt_segment *s, int from, int to, size_t *size);
// The descriptor of the segment, in which every process holds its lock (tt_proc_hold) until it has left; -1: all ranks
// are in one process.
int tt_segment_life(const tt_segment *s);
// Place of a rank, or -1 when it is not on this machine.
int tt_segment_place(const tt_segment *s, int rank);
