// trace.h: the profiler that writes a time line. For plugins/profiler-trace alone.
//
//   the job's threads   plugin.c: startEvent … stopEvent fill a slot of the communicator's ring (ring.h), and never
//                       wait
//   the plugin's own    thread.c: empties the rings every few milliseconds; events.c turns events into JSON, file.c
//                       writes, stats.c counts
#pragma once
#include <locale.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/trust.h"
#include "nccl/profiler_net.h"
#include "nccl/profiler.h"
#include "ring.h"

enum {
  TT_TRACE_CONTEXTS = 4095, // communicators of a process at one time: 12 bits of an event's name
  TT_TRACE_NUMBER_BITS = 52,
  TT_TRACE_CHANNELS = 64, // channels whose messages are counted, for arrows
  TT_TRACE_NAME = 128
};

// Flags of a warning: it is seen whatever NCCL_DEBUG_SUBSYS says, as the library's own are.
#define TT_TRACE_WARNS (~0ul)

// TUTTI_TRACE_…, read with the first communicator.
typedef struct tt_settings {
  char dir[3072];
  size_t events; // slots of a communicator's ring
  bool keeps;    // the last events only, written when asked for
  int signal;    // that asks; 0: none
  int mask;
  double wait; // seconds that finalize waits for a slow disk
  bool quiet;  // no summary
} tt_settings;

void tt_settings_read(tt_settings *s, ncclDebugLogger_t log);

// Puts the calling thread into the C locale: the program's must not change how numbers are read and written. Returns
// the locale before, for uselocale.
locale_t tt_trace_c_locale(void);

// ---- file.c: a JSON file that is complete after every write

typedef struct tt_file {
  int fd; // -1: cannot be created, or not even its first bytes written
  char path[4096];
  uint64_t end; // bytes before the footer
  char *buf;
  size_t used;
  uint64_t pending;            // events in the buffer
  uint64_t written, unwritten; // events
  int error;                   // errno of the last write that failed; 0: none has
  bool any;                    // something stands in traceEvents
  bool ragged;                 // behind the footer there may be more
  void (*footer)(void *arg, char *out, size_t size);
  void *arg;
} tt_file;

// `path` is copied. Other people's links and files are not touched (base/trust.h). False: no memory, or it cannot be
// created; f->error, and in words `why`.
bool tt_file_open(tt_file *f, const char *path, char why[TT_TRUST_WHY]);
// Makes a file of a text, by the same rule. False: `why`.
bool tt_file_put(const char *path, const char *text, size_t size, char why[TT_TRUST_WHY]);
// Room for one more event's text, which is at most TT_FILE_LINE bytes; put back with the end of the text. Writes when
// the buffer is full.
enum { TT_FILE_LINE = 2048 };
char *tt_file_line(tt_file *f);
void tt_file_line_end(tt_file *f, const char *end, bool counts);
void tt_file_flush(tt_file *f);
void tt_file_close(tt_file *f);

// ---- stats.c: how long operations took

typedef struct tt_stats tt_stats;

tt_stats *tt_stats_create(int nranks);
void tt_stats_destroy(tt_stats *s);

enum { TT_TRACE_PEERS = 8 }; // whose messages an operation waits for; of more, those that came last

// Waiting for a peer's messages. The first one of each connection is waited for since the operation started, which is
// known only when it ends.
typedef struct tt_wait {
  int32_t peer;
  uint32_t first;  // how many first messages; 0: free
  uint64_t came;   // sum of the times when they came
  uint64_t waited; // nanoseconds for all further ones
} tt_wait;

// An operation, complete when all its channels have ended; its messages may end a little later.
typedef struct tt_op {
  uint64_t number; // of the Coll or P2p; 0: free
  const char *func, *algo, *proto, *datatype, *variant;
  uint64_t bytes, seq, queued, start, stop, age, tag;
  uint64_t proxied; // when its first proxy operation began; 0: none has
  uint64_t waited;  // of all channels together; set when it ends
  tt_wait waits[TT_TRACE_PEERS];
  int32_t peer;
  uint32_t nchannels, ended;
  uint8_t kind, send, symmetric;
} tt_op;

// Counts a complete operation.
void tt_stats_op(tt_stats *s, const tt_op *op);
// Nanoseconds of waiting for a message of `peer`.
void tt_stats_wait(tt_stats *s, int peer, uint64_t ns);
// The table, as text.
void tt_stats_print(const tt_stats *s, FILE *out);

// Histogram of nanoseconds: 32 steps per doubling, within 1.6 %.
enum { TT_HISTOGRAM = 32 * 40 };
int tt_histogram_index(uint64_t ns);
uint64_t tt_histogram_value(int index); // the middle of it

// ---- a communicator's rank

// What a rank has been warned of, or need not be: a disk that fails, a ring that was full; the table in place of its
// file.
enum { TT_SAID_DISK = 1, TT_SAID_FULL = 2, TT_SAID_LINES = 4, TT_SAID_ALL = 7 };

typedef struct tt_context {
  struct tt_context *next;
  uint64_t tag; // upper bits of its events' names
  uint64_t comm;
  int rank, nranks, nnodes;
  char name[TT_TRACE_NAME], host[64], clock[160]; // clock: which one time stamps are of; the same text, the same clock
  bool knows_ahead;                               // of the machine's clock, in a time namespace of its own,
  int64_t ahead;                                  // by nanoseconds
  ncclDebugLogger_t log;
  pid_t pid;
  tt_ring ring;
  _Atomic uint32_t *messages; // per direction, peer and channel; NULL: not counted
  _Atomic uint32_t *p2ps;     // per kind (Recv, Send, one-sided) and peer
  uint64_t began, skew;       // CLOCK_MONOTONIC; CLOCK_REALTIME minus that
  tt_file file;
  tt_stats *stats;
  struct tt_events *events;
  uint64_t dropped;                // operations that were queued, of which nothing more was seen
  bool opened, finished;           // the file has been tried; these are the last events
  _Atomic unsigned said;           // of TT_SAID_…: once each
  int dumps;                       // how many times events were written (keeps)
  bool closing, closed, abandoned; // under the lock of thread.c; abandoned: nobody waits for it
} tt_context;

// ---- events.c

// NULL: no memory.
struct tt_events *tt_events_create(void);
void tt_events_destroy(struct tt_events *e);
// The file's first lines.
void tt_events_begin(tt_context *c);
// A finished event: into the file if `write`, into the statistics if `count`.
void tt_events_see(tt_context *c, const tt_record *r, bool write, bool count);
// Operations whose channels have ended some rounds ago are complete; all are if `last`. `count` as above.
void tt_events_round(tt_context *c, bool last, bool count);
void tt_events_footer(void *context, char *out, size_t size);

// ---- thread.c

// The plugin's thread begins with the first context, ends with the last. False: it cannot.
bool tt_thread_add(tt_context *c, const tt_settings *s);
// Waits for what is left to be written, but not for ever; frees the context, or leaves it to the thread.
void tt_thread_remove(tt_context *c);
void tt_context_free(tt_context *c);
// In a forked child: nobody is in the middle of anything.
void tt_plugin_forked(void);

// A receive? Else a send, or one-sided: numbers of these match no other rank's. NULL is allowed. Pure.
static inline bool tt_trace_is_recv(const char *func)
{
  return func != NULL && strcmp(func, "Recv") == 0;
}

static inline uint64_t tt_trace_number(const tt_context *c, uint64_t number)
{
  return c->tag | number;
}
