// self.c: a rank talking to itself. The whole of a transport in one file: copy it to start a new one.
//
// can_connect  says whether the pair is ours (transport.h: the same answer on both sides)
// connect      fills the link: where the FIFOs lie, whose page is the peer's, and how its memory can be reached; then
//              has the device add its part
// disconnect   frees what connect acquired
#include "base/result.h"
#include "transport/transport.h"

enum { PAGE = 4096 };

static bool self_can_connect(const tt_wiring *w, const tt_endpoint *me, const tt_endpoint *peer)
{
  (void)w;
  return me->rank == peer->rank;
}

// Sender and receiver are the same rank, so both views lie over one window, which only this rank sees.
static ncclResult_t self_connect(const tt_wiring *w, tt_link *link)
{
  const tt_geometry *g = &w->geometry;
  const size_t bytes = tt_window_bytes(g);
  char *memory = tt_calloc_line(bytes + PAGE), *window = (char *)TT_ROUND_UP((uintptr_t)memory, (uintptr_t)PAGE);
  if (memory == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for %zu bytes of buffer to send to itself", w->rank, bytes);
  }
  tt_window_view(g, window, link->send);
  tt_window_view(g, window, link->recv);
  link->page = w->port->page;
  link->access = TT_ACCESS_LOCAL;
  link->own = memory;
  const tt_link_env env = {.windows = {window, window}, .window_bytes = bytes};
  ncclResult_t res = w->port->row->connect(w->port, link, &env);
  if (res != ncclSuccess) {
    tt_free(memory);
  }
  return res;
}

static void self_disconnect(tt_link *link)
{
  tt_free(link->own);
}

const tt_transport tt_transport_self = {
    .name = "self", .can_connect = self_can_connect, .connect = self_connect, .disconnect = self_disconnect};
