// service_priv.h: what the files of the service share.
//
// Everything here belongs to the service thread unless said otherwise.
#pragma once
#include "bootstrap/bootstrap.h"
#include "bootstrap/dial.h"
#include "bootstrap/greet.h"
#include "os/events.h"
#include "os/thread.h"
#include "proxy/messages.h"
#include "proxy/proxy_priv.h"

// What the service's event set tells: a pointer to this, which stands in the object.
typedef enum { TT_WATCHED_TALK, TT_WATCHED_DIAL } tt_proxy_watched;

// A control connection.
typedef struct tt_proxy_talk {
  struct tt_proxy_talk *next, **at; // of the service; at: what points to it
  struct tt_proxy_talk *ended;      // of those that have ended
  tt_proxy_watched watched;         // TALK
  int fd;                           // -1: ended
  bool watch_out;                   // the set also tells when it is writable
  int rank;                         // the peer's
  bool outgoing;
  bool known;                    // outgoing, or INIT has come
  bool closing;                  // CLOSE has come: the end is no surprise
  bool deaf;                     // takes nothing any more; what it has said is still read
  uint32_t owes;                 // bits of STATE and PROBE: to be sent when there is room
  bool asked;                    // a question has no answer yet
  uint64_t looked_ns, silent_ns; // when that was last looked at; how long there was none while this thread was awake
  size_t got, out_at, out_end;
  char in[1024], out[2048];
} tt_proxy_talk;

typedef enum { TT_DIAL_NONE, TT_DIAL_ON, TT_DIAL_RESTING, TT_DIAL_DONE, TT_DIAL_FAILED } tt_dial_stage;
typedef enum { TT_SETUP_NONE, TT_SETUP_ASKED, TT_SETUP_CONNECTING, TT_SETUP_UP, TT_SETUP_FAILED } tt_setup_stage;

// What the service knows of a peer. The first group is touched by other threads too.
struct tt_proxy_ties {
  struct tt_proxy_ties *news; // list of those with requests
  _Atomic uint32_t wants;     // bits of tt_msg_type: INIT, ASK, START (a connection has failed)
  _Atomic uint64_t asked_ns;  // last question
  _Atomic uint64_t wanted_ns; // last tt_proxy_probe, whether it became a question or not
  _Atomic uint64_t since_ns;  // the first of those without a long pause between them
  tt_proxy_peer *peer;
  // NULL: these are the peer's own. Else they are of the pair of connections for one-sided operations, and the peer's
  // own are here.
  struct tt_proxy_ties *whose;
  struct tt_proxy_ties *next; // list of those that the service has dealt with
  bool listed;
  tt_proxy_watched watched; // DIAL
  tt_span timer;            // when to look at it, in tt_proxy_service.timers

  tt_proxy_talk *out, *in;
  bool counting;      // a census waits for its state
  bool own;           // a link was taken on: connect
  uint64_t linked_ns; // when that was, or when the peer was dialled for another reason

  // The control connection that this rank dials: for a link, for a neighbour's messages, or to ask the peer.
  struct {
    tt_dial_stage stage;
    tt_dial *under_way;
    int count; // of failures
    uint64_t rest_ns;
  } dial;

  // The data connection from this rank to the peer.
  struct {
    tt_setup_stage stage;
    uint32_t behalf; // goes with its messages (tt_msg_head)
    uint32_t attempt;
    bool tried;                              // connect has been called
    int ndevices;                            // the peer's
    _Alignas(16) char handle[TT_NET_HANDLE]; // plugins keep structures in it
    uint64_t since_ns;                       // when the attempt began
    uint64_t try_ns, pause_ns;               // when to call the network again; and after how long the next time
    char text[256];                          // why the last attempt failed
  } setup;

  // The data connection from the peer to this rank.
  struct {
    bool on;        // this rank listens, or has accepted
    int by;         // the rank that has asked: the peer, or the neighbour whose proxy sends for it
    tt_span asker;  // that rank and the peer, in tt_proxy_service.askers; size 0: not there
    bool connected; // the peer has sent CONNECT: its end stands
    bool begun;     // the peer has begun to connect
    uint32_t attempt;
    int device; // of the network, on which it listens
    void *listener, *comm;
    bool flush, groups;
    uint64_t try_ns, pause_ns;
  } accept;

  // What the peer has said last, and what is not shown yet.
  struct {
    uint32_t state;       // FAILED or later, and not shown yet; 0: none
    uint32_t sent, puts;  // how many messages it had sent when it said so; puts: for one-sided operations,
    uint32_t graphs;      // for captured ones
    uint32_t came;        // and how many of this rank's it had got
    uint64_t ns, lost_ns; // when it came; when a connection ended without one; 0: not
    uint64_t moved_ns;    // when messages were last seen to move
    uint32_t moved;
  } last;

  // Data connections that failed: sending, receiving, and one that did not come up.
  struct {
    uint64_t ns; // when that was seen; 0: it has not failed
    bool judged;
  } failures[3];
};
typedef struct tt_proxy_ties tt_proxy_ties;

// Limits. Tests change them while the service runs.
typedef struct tt_proxy_limits {
  _Atomic uint64_t connect_ns; // until a link is connected
  _Atomic uint64_t attempt_ns; // for one device, while there are others
  _Atomic uint64_t refused_ns; // how long a refusal is not believed: services listen before anybody knows where
  _Atomic uint64_t grace_ns;   // for a word that is on its way
  _Atomic uint64_t drain_ns;   // for the messages that a peer has sent before it went
  _Atomic uint64_t silent_ns;  // for the answer to a question; 0: for ever
} tt_proxy_limits;

struct tt_proxy_service {
  tt_proxy *proxy;
  tt_thread thread;
  int wake;   // eventfd
  int events; // set of control connections and dials
  tt_greeter door;
  tt_key key;
  int device; // of the network, to begin with
  int ndevices;
  tt_proxy_where *where; // by rank; written by tt_proxy_meet, read after a link was taken on
  int *gpus;             // device that each rank was created on, for the log
  int rails;             // devices of every rank; 0: they have different numbers. The same
  int *relays;           // neighbours whose proxies may send for others, by device (tt_relay_find). The same
  int relays_end[TT_MSG_DEVICES + 1]; // where those of each device end in `relays`. The same
  bool left;                          // the rank has gone, clients have not
  _Atomic int
      *leaver; // where tt_proxy_service_leave waits for its answer: 1 the service stays, -1 there are no clients
  _Atomic bool parted; // the leaver has that answer, and does nothing more here: it writes, the service ends after that
  _Atomic uint32_t wants;        // bits of tt_msg_type: STATE, PROBE, CLOSE, STOP. Any thread sets
  _Atomic(tt_proxy_ties *) news; // any thread adds, the service takes all
  _Atomic uint64_t probe_ns;     // from when on the next question may be asked. Any thread
  _Atomic uint64_t pending_ns;   // from when on tt_proxy_probe_pending looks again. Any thread
  _Atomic int unanswered;        // states that a census waits for, and 1 until the service has asked for them
  tt_proxy_limits limits;
  tt_proxy_ties *ties;
  tt_span *askers; // those of them that listen for a peer, or have accepted it, by the rank that has asked for that
  tt_proxy_talk *talks, *ended;
  tt_span *timers;        // of peers, clients' included
  uint64_t step_ns;       // when the last step began
  tt_bootstrap *ring;     // of the rank; NULL: it has ended, or the rank has gone
  tt_culprit died;        // a rank that has died, as the ring says, while the port has not been stopped for it; 0: none
  uint64_t died_ns;       // when that was heard
  uint64_t ring_rests_ns; // until then it is not looked at; 0: it is
  struct pollfd fds[4 + TT_GREET_POLL];
};
typedef struct tt_proxy_service tt_proxy_service;

#define TT_WANT(type) (1u << (type))

// ---- service.c

// The peer's entry, in the service's list from now on; NULL: no memory, or no such rank.
tt_proxy_ties *tt_proxy_ties_get(tt_proxy_service *s, int rank);
// The next step looks at the peer at `at_ns`, or before. What changes what a step finds calls tt_proxy_ties_due: the
// next one does.
void tt_proxy_ties_wake(tt_proxy_service *s, tt_proxy_ties *t, uint64_t at_ns);
void tt_proxy_ties_due(tt_proxy_service *s, tt_proxy_ties *t);
// The same for what has its own connections with the peer over these: clients' and those for one-sided operations.
void tt_proxy_guests_due(tt_proxy_service *s, int rank);
// Goes on with the peers that are due; returns when to come again at the latest (0: whenever).
uint64_t tt_proxy_service_step(tt_proxy_service *s);
// Stops the port with the thread's last error: its operations are dropped and its peers are told.
void tt_proxy_stop_port(tt_proxy_service *s, ncclResult_t code);
// The same because of a rank whose process has ended.
void tt_proxy_stop_for(tt_proxy_service *s, tt_culprit culprit);

// ---- control.c

// A link to the peer was taken on.
void tt_proxy_link(tt_proxy_service *s, tt_proxy_ties *t);
// Dials the peer, if that has not been done.
void tt_proxy_dial(tt_proxy_service *s, tt_proxy_ties *t);
void tt_proxy_dial_failed(tt_proxy_service *s, tt_proxy_ties *t, int e);
// Goes on with what is not done: dials and their pauses.
void tt_proxy_dial_step(tt_proxy_service *s, tt_proxy_ties *t, uint64_t now);
// Takes in connections that have proved themselves.
void tt_proxy_admit(tt_proxy_service *s);
// Reads and writes what is possible on the control connections that are ready, frees those that have ended, and makes
// dials due.
void tt_proxy_talk_step(tt_proxy_service *s);
// The service's end of a control connection, which takes over `fd`; NULL: no memory, and `fd` is closed.
tt_proxy_talk *tt_proxy_talk_new(tt_proxy_service *s, int fd, int rank, bool outgoing);
// Sends a message; a connection on which too many wait is ended. `body` may be NULL.
void tt_proxy_say(tt_proxy_service *s, tt_proxy_talk *k, tt_msg_type type, uint32_t id, const void *body);
// The same about another rank's messages (tt_msg_head).
void tt_proxy_say_for(tt_proxy_service *s, tt_proxy_talk *k, tt_msg_type type, uint32_t id, uint32_t behalf,
                      const void *body);
// Takes the complete messages out of a connection's buffer.
void tt_proxy_talk_feed(tt_proxy_service *s, tt_proxy_talk *k);
// Says the last words on all, waiting until `until_ns` at most, and frees them.
void tt_proxy_talks_close(tt_proxy_service *s, uint64_t until_ns);

// ---- setup.c

// The control connection to the peer stands: sets up the data connection.
void tt_proxy_setup_begin(tt_proxy_service *s, tt_proxy_ties *t);
// Goes on with what is under way, and lowers *wake_ns.
void tt_proxy_setup_step(tt_proxy_service *s, tt_proxy_ties *t, uint64_t now, uint64_t *wake_ns);
void tt_proxy_setup_message(tt_proxy_service *s, tt_proxy_talk *k, tt_proxy_ties *t, const tt_msg *m);
// No connection to the peer is wanted any more: what is under way, if anything, is given up in the network as well.
void tt_proxy_setup_cancel(const tt_proxy_service *s, tt_proxy_ties *t);
// No connection from the peer is wanted any more.
void tt_proxy_setup_close(tt_proxy_service *s, tt_proxy_ties *t);
// The control connection has ended: what is under way on it ends too, but not a connection whose other end stands.
void tt_proxy_setup_end(tt_proxy_service *s, tt_proxy_ties *t, bool outgoing);
// Logs that a connection stands, over which device, and through which relay (-1: none).
void tt_proxy_log_channel(const tt_proxy_service *s, int from, int to, int device, int relay);
// Says why a setup has failed (TT_SETUP_FAILED). Returns ncclRemoteError.
ncclResult_t tt_proxy_setup_error(const tt_proxy_service *s, const tt_proxy_ties *t);

// ---- probe.c

// The own rank has asked for the peer's state: asks those who carry messages between the two as well, each if it owes
// no answer.
void tt_proxy_question(tt_proxy_service *s, tt_proxy_ties *t);
// Stops the port when the peer has not answered for too long, and a peer is waited for. Lowers *wake_ns.
void tt_proxy_question_step(tt_proxy_service *s, const tt_proxy_ties *t, uint64_t now, uint64_t *wake_ns);
// The peer that is waited for and whose messages need this rank's proxy (it is that rank, if possible). NULL: none.
const tt_proxy_ties *tt_proxy_waiting_peer(const tt_proxy_service *s, int rank, uint64_t now);
// Stops the port: `rank` does not answer, and `t` (tt_proxy_waiting_peer) is waited for.
void tt_proxy_silent(tt_proxy_service *s, const tt_proxy_ties *t, int rank);

// The own rank takes a census: asks all peers with a control connection that have not left.
void tt_proxy_census_start(tt_proxy_service *s);
// The peer has said its state, or cannot any more.
void tt_proxy_census_answered(tt_proxy_service *s, tt_proxy_ties *t);

// ---- states.c

// Tells one peer, or all, the port's state. A final one settles the proxy before: service thread, run flag not held.
void tt_proxy_tell(tt_proxy_service *s, tt_proxy_talk *k);
void tt_proxy_tell_all(tt_proxy_service *s);
void tt_proxy_state_take(tt_proxy_service *s, tt_proxy_ties *t, const tt_msg_state *m);
// The peer's last word was CLOSE.
void tt_proxy_state_close(tt_proxy_ties *t);
// A control connection with the peer has ended without a last word.
void tt_proxy_state_lost(tt_proxy_service *s, tt_proxy_ties *t);
// A connection that has failed stops the port if it is time for that. Lowers *wake_ns.
void tt_proxy_failures_step(tt_proxy_service *s, tt_proxy_ties *t, uint64_t now, uint64_t *wake_ns);
// Shows what it is time to show: words, losses, failed connections. Lowers *wake_ns.
void tt_proxy_state_step(tt_proxy_service *s, tt_proxy_ties *t, uint64_t now, uint64_t *wake_ns);
