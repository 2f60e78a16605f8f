// netif.h: the machine's network interfaces, and which of them NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY mean.
//
// NCCL_SOCKET_IFNAME: "eth,ib" names starting so, in this order of preference; "=eth0,eth1" exactly these; "^docker"
// all but these; "^=lo" all but exactly these. Without it: InfiniBand interfaces; when there are none all ordinary
// ones, then docker's, loopback, virbr. NCCL_SOCKET_FAMILY: AF_INET or AF_INET6, nothing else; without it IPv4 where an
// interface has both.
#pragma once
#include <stdbool.h>

#include "nccl.h"
#include "os/socket.h"

typedef struct tt_netif {
  char name[16];
  bool loopback;
  bool way_out; // the default route sends from this address; only as tt_netif_reach says
  tt_addr addr; // port 0
} tt_netif;

// Every address of every interface that is up, in the kernel's order (all of IPv4 first), however many there are. Free
// *out with tt_free. Errors: ncclSystemError.
ncclResult_t tt_netif_list(tt_netif **out, int *count);
// The family that a value of NCCL_SOCKET_FAMILY names; AF_UNSPEC: none (NULL, or another word). Pure.
int tt_netif_family(const char *text);
// Position (from 0) of the first entry of `spec` that `name` matches, or -1. For a '^' list: 0 when no entry matches,
// else -1. An empty list or NULL matches everything. Pure.
int tt_netif_match(const char *name, const char *spec);
// Keeps in `list` what `spec` and `family` (texts of the two variables, NULL: unset) select, one address for each
// interface, best first; returns how many. Pure.
int tt_netif_select(tt_netif *list, int count, const char *spec, const char *family);
// Keeps in `list` every address that `spec` and `family` select, best first: the first one of each interface in
// tt_netif_select's order, then their further ones, link-local IPv6 last. Without a list of the user: InfiniBand and
// ordinary interfaces together; only when there are none docker's, else loopback, else virbr. Addresses with way_out
// come first of all, of what a list of the user names at the same place. Returns how many. Pure.
int tt_netif_order(tt_netif *list, int count, const char *spec, const char *family);
// tt_netif_list and tt_netif_select with the process's parameters; the best `max`. At least one is found, or
// ncclSystemError with the names there are; ncclInvalidUsage when NCCL_SOCKET_FAMILY is another word.
ncclResult_t tt_netif_find(tt_netif *out, int max, int *count);
// tt_netif_list and tt_netif_order with the process's parameters and routes: where this machine can be reached, all of
// it. Errors as tt_netif_find. Free *out with tt_free.
ncclResult_t tt_netif_reach(tt_netif **out, int *count);
// The first address of tt_netif_reach, which is where this machine is reached best at present; family 0: no interface
// is up, which is no error. Errors as tt_netif_find.
ncclResult_t tt_netif_best(tt_addr *out);
// Adds to `out`, best first, the list's addresses of the interface `first` (NULL: none), then the others, each once.
// Pure.
void tt_netif_pick(const tt_netif *list, int count, const char *first, tt_addrs *out);
// Where this machine can be reached, port 0: `first` (NULL: none), then the best of tt_netif_reach, TT_ADDRS_MAX
// together. Errors as tt_netif_find.
ncclResult_t tt_netif_addrs(const tt_addr *first, tt_addrs *out);
// Says at INFO, for a list of tt_netif_addrs without room for all, which addresses are left out, and what chooses.
void tt_netif_tell_left_out(const tt_addrs *listed);
// Name of the interface that has this address (its port is not looked at); "?" when none has. Written to `name`, which
// is returned.
const char *tt_netif_name(const tt_addr *addr, char name[16]);
