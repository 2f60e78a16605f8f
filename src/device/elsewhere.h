// elsewhere.h: what a process waits for in one communicator, shown to the ranks of its others. So a rank that is late
// in one says in which operation of which other communicator its process waits meanwhile.
//
// Only processes with one rank in each of the two show that: else it is not known which of the ranks waits.
#pragma once
#include "device/link.h"

// From now on port->page shows what the other ports wait for, and its waits are shown on theirs. Its page and
// neighbors are there. Any thread.
void tt_elsewhere_open(tt_port *port);

// No longer. Accepts a port that was not opened. Any thread.
void tt_elsewhere_close(tt_port *port);

// The port waits as `w` says; since_ns 0: it waits no longer. Does nothing while another thread is here: a later look
// does, and what is not renewed becomes old. Any thread, signal handlers too.
void tt_elsewhere_show(const tt_port *port, const tt_wait *w);

// In a forked child: no port is shown, because those there were are the parent's.
void tt_elsewhere_forget(void);
