// star_priv.h: what travels in the star, and what its two files share. Byte order is the machine's: one of the other
// kind is a stranger.
#pragma once
#include <assert.h>
#include <pthread.h>

#include "star.h"

#define STAR_MAGIC 0x5253747552547450u
enum { STAR_VERSION = 1, STAR_TEXT = 512 };

// The first thing that a process says to process 0.
typedef struct star_hello {
  uint64_t magic, identity;
  uint32_t version, proc, procs;
  int32_t pid;
  char host[64];
} star_hello;
static_assert(sizeof(star_hello) == 96, "star_hello is sent as it is");

// Process 0 says WELCOME to a good hello and gets it back, and START when all are there.
typedef enum { STAR_WELCOME = 1, STAR_START, STAR_DATA, STAR_STOP } star_kind;

// In front of everything but the hello. STAR_STOP: `size` characters follow that say why the job is over.
typedef struct star_frame {
  uint64_t magic, size;
  uint32_t kind, seq; // seq: number of the operation, to see that all do the same
} star_frame;
static_assert(sizeof(star_frame) == 24, "star_frame is sent as it is");

// Another process, as this one knows it.
typedef struct star_peer {
  int fd;      // -1: not connected
  bool joined; // of process 0: it has answered the welcome
  int32_t pid; // 0: not known
  char host[64];
} star_peer;

struct perf_star {
  int proc, procs;
  uint32_t seq;
  pthread_mutex_t writing; // held by the thread that sends: a frame is never cut in two by perf_star_stop
  bool over;               // under `writing`: the others have been told
  star_peer *peers;        // [procs] in process 0, else [1]: process 0
};

// Allocates it, with all peers unconnected. NULL without memory.
perf_star *star_create(int proc, int procs);

// Sends one frame with `size` bytes behind it. 0 or a negative errno.
int star_send(perf_star *s, int fd, star_kind kind, const void *data, size_t size);

// "process 2 (pid 17 on box)".
void star_describe(const perf_star *s, int peer, char *buf, size_t size);

// Reads the text behind a STAR_STOP frame, shortened if need be.
void star_read_stop(int fd, const star_frame *f, char *text, size_t size);

// Process 0 found the job to be over: says it, tells all others. Returns false.
bool star_over(perf_star *s, const char *why);
