// server.h: the RAS thread of a process and what it serves. All of it belongs to that thread.
#pragma once
#include "bootstrap/greet.h"
#include "os/events.h"
#include "os/thread.h"
#include "ras/command.h"
#include "ras/report.h"

typedef struct ras_server ras_server;
typedef struct ras_client ras_client;
typedef struct ras_query ras_query;
typedef struct ras_ring ras_ring;

// What a query asks every process.
typedef enum {
  RAS_QUERY_RANKS = 1,
  RAS_QUERY_DIAGNOSTICS,
  RAS_QUERY_MASK,
  RAS_QUERY_RECORDER,
  RAS_QUERY_KIN // of a communicator that the process that asks has not: how to reach its ranks
} ras_question;

// What to wait for, as poll(2) has it.
typedef struct ras_polls {
  struct pollfd *fds;
  size_t n, room;
  uint64_t wake_ns; // 0: for ever
} ras_polls;
// Adds one. Without memory it is left out: the thread looks again within a second.
void ras_poll_add(ras_polls *p, int fd, short events);

enum { RAS_ANSWER_MOST = 16 << 20 }; // bytes of a client's answer, and of a process's text

struct ras_server {
  tt_thread thread;
  int wake;
  volatile uint32_t stop;
  int listener;        // for clients; -1: none
  tt_greeter door;     // where it listens for processes
  double factor;       // NCCL_RAS_TIMEOUT_FACTOR
  ras_client *clients; // newest first
  int nclients;
  ras_polls polls;
  bool short_of_fds; // the listener waits for a second
  ras_query *query;  // under way; NULL: none
  ras_ring *ring;
  // Under the lock of server.c.
  tt_addrs addrs; // the door's addresses, those to come among them: communicators have been told of them
  uint32_t best;  // which of them the next communicator is told of
  int fresh[TT_ADDRS_MAX], nfresh; // sockets of the last ones, for the thread to add to the door
};

// Where the last communicator was told that this process listens. Any thread.
tt_addr ras_server_address(const ras_server *s);

// Seconds of NCCL, times the factor, in nanoseconds.
uint64_t ras_seconds(const ras_server *s, double seconds);

// The registry has changed: the thread looks. Any thread.
void ras_server_look(void);

// ---- clients (client.c)

typedef struct ras_query_result {
  ras_question what;
  const ras_report *report; // RAS_QUERY_RANKS
  const ras_text *lines;    // RAS_QUERY_DIAGNOSTICS, RAS_QUERY_RECORDER
} ras_query_result;

// Takes connections from the listener.
void ras_clients_accept(ras_server *s);
// What they wait for.
void ras_clients_poll(ras_server *s);
// Reads, writes, ends what is idle.
void ras_clients_step(ras_server *s);
// A query has ended: answers the clients that it was for.
void ras_clients_answer(ras_server *s, const ras_query_result *r);
// Tells an event to the clients that monitor its group (RAS_…), in either form.
void ras_clients_tell(ras_server *s, unsigned group, const char *text, const char *json);
// Closes all.
void ras_clients_close(ras_server *s);
