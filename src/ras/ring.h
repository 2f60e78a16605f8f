// ring.h: the processes of the job that this one knows: a ring in order of their cookies (tt_proc_id), in which each
// process tells its successor once a second that it lives. A process's addresses may change, its cookie does not.
//
// A process whose connection breaks and that has ended, or that has been silent for 60 s, is considered dead until it
// is heard again. News of both goes round the ring in both directions.
#pragma once
#include "ras/server.h"

// Reads the registry again if it has changed. Without memory it stays as it was.
void ras_ring_refresh(ras_server *s);
void ras_ring_poll(ras_server *s);
void ras_ring_step(ras_server *s);
// Takes over a connection of another process, and its hello.
void ras_ring_accept(ras_server *s, const tt_hello *hello, int fd);
// Tells the neighbours that this process leaves, and closes all.
void ras_ring_close(ras_server *s);

// Is it useless to ask this process?
bool ras_ring_gave_up(const ras_server *s, uint64_t cookie);
// Is it considered dead, or has it ended?
bool ras_ring_is_dead(const ras_server *s, const tt_ras_member *who);
// What this process says when it connects to another one.
tt_hello ras_hello(const ras_peer *to);

// An event of the trace or lifecycle group (RAS_…) about a process (monitor.c).
void ras_event(ras_server *s, unsigned group, const char *name, const tt_ras_member *who, const char *details);
