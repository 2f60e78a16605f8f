// ports.h: ports that the kernel does not give out by itself, although they can be had.
//
// A bind to port 0, and a connect, get a port that nothing holds. For a minute after a connection of a former listener
// has ended, its port counts as held (TIME_WAIT), so that a machine which makes many runs out of them. With
// SO_REUSEADDR on all sockets a port named in the bind can be had all the same.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { TT_PORT_GAPS = 64 };

// A walk over the kernel's range of ports (net.ipv4.ip_local_port_range), from a random one on, without the reserved
// ones.
typedef struct tt_ports {
  uint32_t first, count; // the range
  uint32_t at, left;     // the next one, from `first`; how many are to come
  int ngaps;
  struct {
    uint32_t first, last;
  } gaps[TT_PORT_GAPS]; // net.ipv4.ip_local_reserved_ports
} tt_ports;

// Begins a walk. `range` and `reserved` are the texts of the two settings as the kernel writes them; NULL: those of
// this process's network. A text of another form, or with too many gaps, gives a walk without a port.
void tt_ports_begin(tt_ports *p, const char *range, const char *reserved);
// The next port; 0: all have been seen.
uint16_t tt_ports_next(tt_ports *p);
