// sums.h: a link whose other end is a network that reduces (net/collnet.h): what the executor puts into
// link->send[SIMPLE] is given to the network, and what comes back is put into link->recv[SIMPLE], in the same order.
// The holder of the run flag drives it, as everything else of the proxy.
//
// No operations are needed: a message's fingerprint says type and operation. How many will come is posted, so that
// somebody drives.
#pragma once
#include "net/collnet.h"
#include "proxy/proxy.h"

typedef struct tt_proxy_sums tt_proxy_sums;

// Takes on the link: both FIFOs (laid out as for tt_proxy_connect) are registered with the connection, which becomes
// the proxy's, whatever is returned. At most one of a proxy. Errors: those of the plugin, ncclSystemError. Calling
// thread: init.
ncclResult_t tt_proxy_sums_open(tt_proxy *p, tt_link *link, tt_collnet_comm *comm, tt_proxy_sums **out);
// So many messages more will come. Nobody is woken. Launching thread.
void tt_proxy_sums_post(tt_proxy_sums *s, uint32_t messages);
// Ends the connection, also with messages under way. Before the link's FIFOs are freed, and before tt_proxy_destroy.
// NULL is allowed.
void tt_proxy_sums_close(tt_proxy_sums *s);

// The copy of a rank's page that the service thread keeps (tt_proxy_probe), for threads that wait for ranks behind the
// network; NULL: no memory. As long as the proxy.
tt_rank_page *tt_proxy_page(tt_proxy *p, int rank);
