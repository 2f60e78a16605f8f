// inside.c: the library's own functions with made-up ranks, jobs and buffers, n and 4n of them, for what no process
// alone can have so many of. Like growth.c: bench/counts.sh --growth counts the instructions of the calling thread
// inside counted(), and a line per part is printed.
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/result.h"
#include "base/util.h"
#include "bootstrap/bootstrap_priv.h"
#include "comm/comm.h"
#include "comm/decide.h"
#include "comm/group.h"
#include "comm/ranks.h"
#include "comm/schedules.h"
#include "comm/topology.h"
#include "os/clock.h"
#include "os/events.h"
#include "proxy/relay.h"
#include "tools/sockets.h"

enum { MOST = 8000 };

static void must_be(bool good, const char *what, int n)
{
  if (!good) {
    fprintf(stderr, "growth_inside: %s of %d: wrong result (%s)\n", what, n, tt_last_error());
    exit(1);
  }
}

// ---- ranks

static tt_peer peers[MOST];
static tt_endpoint endpoints[MOST];
static tt_split_choice choices[MOST];
static int members[MOST];

// Rank 8 i to 8 i + 7 are on one host; neighbours in number are not neighbours in the order of the hosts' hashes.
static void make_peers(int n)
{
  for (int i = 0; i < n; i++) {
    uint64_t host = (uint64_t)(i / 8 + 1) * 0x9e3779b97f4a7c15ull;
    peers[i] =
        (tt_peer){.at.rank = i, .at.host = host, .machine = host, .at.proc = {.pid = i + 1, .cookie = host}, .cpus = 4};
  }
}

static void layout_of_hosts(int n)
{
  tt_layout *l = NULL;
  must_be(tt_ranks_layout(peers, n, &l) == ncclSuccess && l->nnodes == n / 8 && l->node_of[n - 1] == n / 8 - 1,
          "layout", n);
  tt_layout_destroy(l);
}

static void no_shared_memory(int n)
{
  make_peers(n);
  for (int i = 0; i < n; i++) {
    peers[i].at.shm_disable = peers[i].at.p2p_disable = true;
  }
}

static void layout_of_lone_ranks(int n)
{
  tt_layout *l = NULL;
  must_be(tt_ranks_layout(peers, n, &l) == ncclSuccess && l->nnodes == n && l->index_of[n - 1] == 0, "layout", n);
  tt_layout_destroy(l);
}

static void cores_of_machines(int n)
{
  int mine = 0;
  bool crowded = false;
  must_be(tt_ranks_pool_cores(peers, n, 0, &mine, &crowded) == ncclSuccess && mine == 8 && crowded, "cores", n);
}

// All in one group, by falling keys.
static void make_choices(int n)
{
  for (int i = 0; i < n; i++) {
    choices[i] = (tt_split_choice){.color = 1, .key = -i, .rank = i};
  }
}

static void members_of_a_group(int n)
{
  int place = -1, count = tt_ranks_members(choices, n, 0, members, &place);
  must_be(count == n && place == n - 1 && members[0] == n - 1, "members", n);
}

// ---- channels

static struct ncclComm comm;

// The layout is the previous case's; every host is a plain node.
static void make_comm(int n)
{
  make_peers(n);
  memset(&comm, 0, sizeof comm);
  comm.nranks = n;
  comm.peers = peers;
  comm.network.needed = true;
  must_be(tt_ranks_layout(peers, n, &comm.layout) == ncclSuccess, "layout", n);
}

static void channels_of_plain_nodes(int n)
{
  tt_topology *t = NULL;
  must_be(tt_topology_create(&comm, &t) == ncclSuccess && t->connect->nnodes == n / 8, "topology", n);
  tt_topology_destroy(t);
}

static void drop_comm(int n)
{
  (void)n;
  tt_layout_destroy(comm.layout);
}

// ---- schedules

static tt_link *links[MOST + TT_COLLNET_HEADS];

// Every rank is on a host of its own, and every peer has been connected over a network.
static void make_networked(int n)
{
  static tt_link far = {.networked = true};
  static tt_proxy none;
  no_shared_memory(n);
  memset(&comm, 0, sizeof comm);
  comm.nranks = n;
  comm.network.proxy = &none;
  comm.port.row = &tt_device_host;
  comm.port.links = links;
  comm.wiring = (tt_wiring){.nranks = n, .ranks = endpoints, .port = &comm.port};
  for (int i = 0; i < n; i++) {
    endpoints[i] = peers[i].at;
    links[i] = &far;
  }
  must_be(tt_ranks_layout(peers, n, &comm.layout) == ncclSuccess, "layout", n);
}

static void write_schedule(tt_func func, const char *algo, int root, int n)
{
  tt_decision d = {.choice = {.algo = tt_algorithm_find(algo), .channels = 1}};
  must_be(tt_comm_schedules(&comm, func, root, &d) == ncclSuccess && d.cached->ntraffic > 0, algo, n);
}

static void all_to_all_of_ranks(int n)
{
  write_schedule(TT_FUNC_ALLTOALL, "Pairwise", 0, n);
}

// A schedule for each peer.
static void sends_to_ranks(int n)
{
  for (int i = 1; i < n; i++) {
    write_schedule(TT_FUNC_SEND, "Linear", i, n);
  }
}

static void drop_networked(int n)
{
  tt_comm_free_schedules(&comm);
  drop_comm(n);
}

// ---- jobs

static int places[MOST], jobs_run;

static ncclResult_t run_nothing(void *arg)
{
  (void)arg;
  __atomic_fetch_add(&jobs_run, 1, __ATOMIC_RELAXED);
  return ncclSuccess;
}

// As of splits of n communicators in a group.
static void jobs_of_communicators(int n)
{
  jobs_run = 0;
  must_be(tt_group_start() == ncclSuccess, "ncclGroupStart", n);
  for (int i = 0; i < n; i++) {
    must_be(tt_job_submit(&(tt_job_desc){.fn = run_nothing, .serial = &places[i]}) == ncclSuccess, "a job", n);
  }
  must_be(tt_group_end() == ncclSuccess && jobs_run == n, "jobs", n);
}

// ---- memory that a network knows

static int known; // registrations with the made-up network

static ncclResult_t reg_mr(void *ctx, void *data, size_t size, int type, void **mhandle)
{
  (void)ctx, (void)size, (void)type;
  known++;
  *mhandle = data;
  return ncclSuccess;
}

static ncclResult_t dereg_mr(void *ctx, void *mhandle)
{
  (void)ctx, (void)mhandle;
  known--;
  return ncclSuccess;
}

static int listeners; // with the made-up network

static ncclResult_t get_properties(void *ctx, int dev, tt_net_props *props)
{
  (void)ctx, (void)dev;
  props->max_recvs = 1;
  return ncclSuccess;
}

static ncclResult_t listen_for_peer(void *ctx, int dev, void *handle, void **listener)
{
  (void)ctx, (void)dev, (void)handle;
  listeners++;
  *listener = &listeners;
  return ncclSuccess;
}

static ncclResult_t close_listen(void *listener)
{
  listeners -= listener != NULL;
  return ncclSuccess;
}

static ncclResult_t close_recv(void *received)
{
  (void)received;
  return ncclSuccess;
}

static const tt_net_ops made_up_net = {.name = "made up",
                                       .reg_mr = reg_mr,
                                       .dereg_mr = dereg_mr,
                                       .get_properties = get_properties,
                                       .listen = listen_for_peer,
                                       .close_listen = close_listen,
                                       .close_recv = close_recv};
static tt_proxy_peer peer;
static _Atomic(tt_proxy_peer *) proxy_peers[] = {&peer};
static tt_proxy proxy = {.net = &made_up_net, .memory.registers = true, .nranks = 1, .peers = proxy_peers};
static tt_proxy_peer peer = {.send = {.proxy = &proxy}, .recv = {.proxy = &proxy}};
static char memory[MOST];

// n buffers are registered, sent from, and deregistered in the order of their registration.
static void buffers_of_the_network(int n)
{
  tt_proxy_mr *mr;
  for (int i = 0; i < n; i++) {
    must_be(tt_proxy_register(&proxy, &memory[i], 1) == ncclSuccess, "a registration", n);
  }
  for (int i = 0; i < n; i++) {
    must_be(tt_proxy_reach(&peer.send, &memory[i], 1, &mr), "a buffer", n);
  }
  must_be(known == n, "buffers that the network knows", n);
  for (int i = 0; i < n; i++) {
    tt_proxy_deregister(&proxy, &memory[i], 1);
  }
  must_be(known == 0, "buffers that the network still knows", n);
}

// ---- networks of communicators

static int rings[MOST];

static void open_rings(int n)
{
  must_be(tt_proxy_thread_start(false) == ncclSuccess, "the progress thread", n);
  for (int i = 0; i < n; i++) {
    must_be(tt_ring_open(&rings[i]) == 0, "a descriptor", n);
  }
}

// n descriptors of networks are watched, and not any more in the order in which they came.
static void watched_descriptors(int n)
{
  for (int i = 0; i < n; i++) {
    must_be(tt_proxy_thread_watch(&made_up_net, NULL, rings[i]), "a watched descriptor", n);
  }
  must_be(!tt_proxy_thread_watch(&made_up_net, NULL, rings[n / 2]), "a descriptor watched twice", n);
  for (int i = 0; i < n; i++) {
    tt_proxy_thread_unwatch(rings[i]);
  }
}

static void close_rings(int n)
{
  for (int i = 0; i < n; i++) {
    close(rings[i]);
  }
}

// ---- neighbours that send for each other

static tt_proxy_where where[MOST];
static int neighbours[MOST];
static tt_proxy_service service = {.proxy = &proxy, .where = where, .relays = neighbours, .rails = 2};

// Two nodes with two devices each.
static void make_neighbours(int n)
{
  proxy.service = &service;
  proxy.nranks = n;
  for (int i = 0; i < n; i++) {
    where[i] = (tt_proxy_where){.node = i / (n / 2), .place = i % (n / 2), .ndevices = 2, .mailbox = "here"};
  }
}

// The relay for each peer of rank 0.
static void relays_of_peers(int n)
{
  tt_relay_find(&service);
  for (int i = 1; i < n; i++) {
    must_be(tt_proxy_relay_of(&proxy, i) == (i >= n / 2 && (i - n / 2) % 2 == 1 ? 1 : -1), "a relay", n);
  }
}

// ---- connections that end

static tt_proxy_peer far_peers[MOST];
static tt_proxy_ties far_ties[MOST];
static _Atomic(tt_proxy_peer *) far_table[MOST];

// This rank is the last one; every other one has a control connection with it.
static void make_far_peers(int n)
{
  proxy.service = &service;
  proxy.rank = n - 1;
  proxy.nranks = n;
  proxy.peers = far_table;
  service.ndevices = 1;
  service.ties = NULL;
  service.timers = NULL;
  for (int i = 0; i < n; i++) {
    far_ties[i] = (tt_proxy_ties){.peer = &far_peers[i], .next = service.ties, .listed = true};
    service.ties = &far_ties[i];
    far_peers[i].rank = i;
    far_peers[i].ties = &far_ties[i];
    far_table[i] = &far_peers[i];
  }
}

// Each has asked this rank to listen.
static void connections_that_end(int n)
{
  const tt_msg setup = {.head = {.type = TT_MSG_SETUP}};
  for (int i = 0; i < n - 1; i++) {
    tt_proxy_talk none = {.fd = -1, .rank = i};
    tt_proxy_setup_message(&service, &none, &far_ties[i], &setup);
  }
  must_be(listeners == n - 1, "listeners", n);
  for (int i = 0; i < n - 1; i++) {
    tt_proxy_setup_end(&service, &far_ties[i], false);
  }
  must_be(listeners == 0, "listeners that are left", n);
}

static tt_relay_client *clients;

// Each sends through this rank.
static void make_guests(int n)
{
  make_far_peers(n);
  clients = calloc((size_t)n, sizeof *clients);
  must_be(clients != NULL, "clients", n);
  for (int i = 0; i < n; i++) {
    tt_relay_client *g = &clients[i];
    *g = (tt_relay_client){.rank = i,
                           .peer.rank = (i + 1) % n,
                           .next = proxy.pxn.clients,
                           .pair = tt_pair(i, (i + 1) % n),
                           .end = tt_pair((i + 1) % n, i)};
    proxy.pxn.clients = g;
    tt_spans_add(&proxy.pxn.client_pairs, &g->pair);
    tt_spans_add(&proxy.pxn.client_ends, &g->end);
  }
}

static void guests_that_go(int n)
{
  for (int i = 0; i < n; i++) {
    tt_client_unreachable(&service, i);
    tt_client_gone(&service, i);
  }
  for (int i = 0; i < n; i++) {
    must_be(clients[i].refused && clients[i].leaving, "a guest", n);
  }
}

static void drop_guests(int n)
{
  (void)n;
  proxy.pxn.clients = NULL;
  proxy.pxn.client_pairs = proxy.pxn.client_ends = NULL;
  free(clients);
}

static tt_relay *relays;

// This rank sends through each.
static void make_relays(int n)
{
  make_far_peers(n);
  relays = calloc((size_t)n, sizeof *relays);
  must_be(relays != NULL, "relays", n);
  for (int i = 0; i < n; i++) {
    tt_relay *r = &relays[i];
    far_peers[i].send.relay = r;
    *r = (tt_relay){.via = i,
                    .peer = (i + 1) % n,
                    .next = proxy.pxn.relays,
                    .conn = &far_peers[i].send,
                    .taken_on = true,
                    .pair = tt_pair(i, (i + 1) % n)};
    proxy.pxn.relays = r;
    tt_spans_add(&proxy.pxn.relay_pairs, &r->pair);
  }
}

static void relays_that_go(int n)
{
  for (int i = 0; i < n; i++) {
    tt_relay_lost(&service, i, "it has left");
  }
  for (int i = 0; i < n; i++) {
    must_be(relays[i].ended, "a relay", n);
  }
}

static void drop_relays(int n)
{
  (void)n;
  proxy.pxn.relays = NULL;
  proxy.pxn.relay_pairs = NULL;
  free(relays);
}

// ---- control connections

static int *far_ends; // the peers' ends of their control connections

static void make_talks(int n)
{
  static tt_port port;
  make_far_peers(n);
  memset(&port, 0, sizeof port);
  port.page = &port.lone_page;
  proxy.port = &port;
  service.limits.silent_ns = TT_NS_PER_S;
  far_ends = calloc((size_t)n, sizeof *far_ends);
  must_be(far_ends != NULL && tt_events_open(&service.events) == 0, "an event set", n);
  for (int i = 0; i < n - 1; i++) {
    int fds[2];
    must_be(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0, "a connection", n);
    far_ends[i] = fds[1];
    far_ties[i].in = tt_proxy_talk_new(&service, fds[0], i, false);
    must_be(far_ties[i].in != NULL, "a control connection", n);
    far_ties[i].in->known = true;
    far_peers[i].page.state = TT_RANK_RUNNING;
  }
}

// The peers tell their states one after the other, and then end: this rank's service wakes up for each.
static void states_of_peers(int n)
{
  struct {
    tt_msg_head head;
    tt_msg_state state;
  } m = {.head = {.type = TT_MSG_STATE, .size = sizeof m.state}, .state = {.state = TT_RANK_RUNNING}};
  for (int i = 0; i < n - 1; i++) {
    m.head.from = i;
    m.state.shown[2].sig = 1ull << 32;
    m.state.shown[2].count = (uint64_t)i + 1;
    must_be(write(far_ends[i], &m, sizeof m) == sizeof m, "a message", n);
    tt_proxy_talk_step(&service);
    (void)tt_proxy_service_step(&service);
    uint64_t sig, count;
    must_be(tt_page_shown(&far_peers[i].page, 1, &sig, &count) && count == (uint64_t)i + 1, "a peer's state", n);
  }
  for (int i = 0; i < n - 1; i++) {
    close(far_ends[i]);
    tt_proxy_talk_step(&service);
    (void)tt_proxy_service_step(&service);
    must_be(far_ties[i].in == NULL && far_ties[i].last.lost_ns != 0, "a connection that has ended", n);
  }
  must_be(service.talks == NULL, "control connections", n);
}

static void drop_talks(int n)
{
  (void)n;
  close(service.events);
  free(far_ends);
}

// ---- the root of a unique id

static const tt_greeter no_door;
static tt_root_shared root_shared = {.door = &no_door, .events = -1, .file_limit = 1 << 20};
static const tt_key id_key = {.b = {1}};
static tt_root *root;
static bool root_answers;
static tt_conn *ranks; // the ranks' ends of their connections
static int *root_ends;

static void make_root(int n)
{
  ranks = calloc((size_t)n, sizeof *ranks);
  root_ends = calloc((size_t)n, sizeof *root_ends);
  must_be(ranks != NULL && root_ends != NULL && tt_events_open(&root_shared.events) == 0, "an event set", n);
  root = tt_root_new(&root_shared, &id_key, 0, &root);
  root_answers = false;
  must_be(root != NULL, "a root", n);
  for (int i = 0; i < n; i++) {
    int fds[2];
    must_be(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0, "a connection", n);
    tt_hello h = {.kind = TT_HELLO_JOIN, .rank = i, .to = -1, .nranks = n};
    tt_conn_open(&ranks[i], fds[0], &id_key, &h, false);
    root_ends[i] = fds[1];
  }
}

// What the lobby's thread does at a wake-up for which one id has something to do.
static void serve_root(int n)
{
  void *lines[TT_EVENTS_AT_ONCE];
  int count = tt_events_take(root_shared.events, lines, TT_EVENTS_AT_ONCE);
  for (int i = 0; i < count; i++) {
    must_be(tt_root_hear(lines[i]) == &root, "a connection's root", n);
  }
  tt_root_step(root, tt_now_ns());
  must_be(tt_root_wake_ns(root) != 0, "the root's time", n);
  if (!tt_root_is_open(root) && !root_answers) {
    root_answers = true;
    tt_root_answer(root);
  }
}

// They come one after the other, and leave as they have their answers.
static void ranks_of_a_root(int n)
{
  tt_note note;
  tt_join_card card = {.peer = tt_addrs_one(&(tt_addr){.family = AF_INET, .port = 9, .ip = {127, 0, 0, 1}}),
                       .nroots = 1};
  for (int i = 0; i < n; i++) {
    tt_root_take(root, &(tt_hello){.kind = TT_HELLO_JOIN, .rank = i, .to = -1, .nranks = n}, root_ends[i]);
    must_be(tt_note_send(&ranks[i], TT_NOTE_JOIN, &card, sizeof card) == 0, "a card", n);
    serve_root(n);
  }
  for (int i = 0; i < n; i++) {
    must_be(tt_note_recv(&ranks[i], &note) == 1 && note.frame.kind == TT_NOTE_JOINED, "the root's first word", n);
    must_be(tt_note_recv(&ranks[i], &note) == 1 && note.frame.kind == TT_NOTE_NEXT, "the root's last word", n);
    must_be(!tt_root_has_ended(root), "a root with ranks", n);
    tt_conn_close(&ranks[i]);
    serve_root(n);
  }
  must_be(tt_root_has_ended(root), "a root without ranks", n);
}

static void drop_root(int n)
{
  (void)n;
  tt_root_destroy(root);
  close(root_shared.events);
  free(ranks);
  free(root_ends);
}

// ---- the ids of a communicator

static ncclUniqueId unique_ids[MOST];

// The last one is there twice.
static void make_ids(int n)
{
  for (int i = 0; i < n; i++) {
    tt_id id = {.root = tt_addrs_one(&(tt_addr){.family = AF_INET, .port = 9, .ip = {127, 0, 0, 1}})};
    memcpy(id.secret, &(int){TT_MIN(i, n - 2)}, sizeof(int));
    tt_bootstrap_id_write(&id, &unique_ids[i]);
  }
}

static void ids_of_a_communicator(int n)
{
  tt_bootstrap *b = NULL;
  must_be(tt_bootstrap_init(unique_ids, n, n, 0, NULL, &b) == ncclInvalidArgument && b == NULL, "ids", n);
  must_be(strstr(tt_last_error(), "are the same") != NULL, "ids", n);
}

typedef struct growth_case {
  const char *name;
  void (*prepare)(int n), (*run)(int n), (*drop)(int n); // prepare, drop: NULL: there is nothing to do
  int n;
} growth_case;

static const growth_case cases[] = {
    {"layout_of_hosts", make_peers, layout_of_hosts, NULL, 2000},
    {"layout_of_lone_ranks", no_shared_memory, layout_of_lone_ranks, NULL, 2000},
    {"cores_of_machines", make_peers, cores_of_machines, NULL, 2000},
    {"members_of_a_group", make_choices, members_of_a_group, NULL, 2000},
    {"channels_of_plain_nodes", make_comm, channels_of_plain_nodes, drop_comm, 2000},
    {"all_to_all_of_ranks", make_networked, all_to_all_of_ranks, drop_networked, 1000},
    {"sends_to_ranks", make_networked, sends_to_ranks, drop_networked, 1000},
    {"buffers_of_the_network", NULL, buffers_of_the_network, NULL, 1000},
    {"jobs_of_communicators", NULL, jobs_of_communicators, NULL, 500},
    {"watched_descriptors", open_rings, watched_descriptors, close_rings, 150},
    {"relays_of_peers", make_neighbours, relays_of_peers, NULL, 500},
    {"connections_that_end", make_far_peers, connections_that_end, NULL, 500},
    {"guests_that_go", make_guests, guests_that_go, drop_guests, 500},
    {"relays_that_go", make_relays, relays_that_go, drop_relays, 500},
    {"ids_of_a_communicator", make_ids, ids_of_a_communicator, NULL, 1000},
    {"states_of_peers", make_talks, states_of_peers, drop_talks, 100}, // two descriptors each
    {"ranks_of_a_root", make_root, ranks_of_a_root, drop_root, 100},   // two descriptors each
};

// Never inlined nor copied: its name is what callgrind looks for.
void counted(const growth_case *c, int n);
__attribute__((noinline)) void counted(const growth_case *c, int n)
{
  c->run(n);
  __asm__ volatile("" ::: "memory"); // not a tail call: the function ends after its calls
}

static void measure(const growth_case *c, int n, void (*run)(const growth_case *c, int n))
{
  if (c->prepare != NULL) {
    c->prepare(n);
  }
  run(c, n);
  if (c->drop != NULL) {
    c->drop(n);
  }
}

static void run_once(const growth_case *c, int n)
{
  c->run(n);
}

int main(void)
{
  for (const growth_case *c = cases; c < cases + TT_COUNT(cases); c++) {
    measure(c, c->n, run_once); // what is done once
    for (int n = c->n; n <= 4 * c->n; n *= 4) {
      measure(c, n, counted);
      printf("%s %d\n", c->name, n);
    }
  }
  return 0;
}
