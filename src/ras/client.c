// client.c: connections of clients. Nothing here waits: whatever a client does, it costs its own connection alone.
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "os/clock.h"
#include "ras/query.h"
#include "ras/server.h"

enum {
  CLIENTS_MOST = 256,
  ACCEPTS = 64,                   // in one step
  PENDING_MOST = RAS_ANSWER_MOST, // bytes that a client has not read yet
};
#define IDLE_SECONDS 60 // without a command, or without reading the answer

struct ras_client {
  ras_client *next;
  int fd;
  char line[RAS_LINE_MAX];
  size_t got;
  ras_text out;
  size_t sent;
  bool json, verbose;
  bool ended;         // nothing more comes from it
  bool closing;       // once all is sent
  double seconds;     // TIMEOUT; 0: none
  ras_question waits; // 0: for nothing
  uint32_t arg;       // of that question (ras_request)
  bool why;           // WHY, not STATUS
  bool served;        // by the query under way
  unsigned groups;    // MONITOR
  uint64_t since_ns;  // last activity
};

static void client_close(ras_server *s, ras_client **at)
{
  ras_client *c = *at;
  *at = c->next;
  s->nclients--;
  tt_sock_close(&c->fd);
  ras_text_free(&c->out);
  tt_free(c);
}

// Makes room for a new client: the one that has been idle for the longest time has to go. False: none is idle.
static bool evict_idle(ras_server *s)
{
  ras_client **oldest = NULL;
  for (ras_client **at = &s->clients; *at != NULL; at = &(*at)->next) {
    bool idle = (*at)->waits == 0 && (*at)->groups == 0 && !(*at)->closing;
    oldest = idle && (oldest == NULL || (*at)->since_ns < (*oldest)->since_ns) ? at : oldest;
  }
  if (oldest != NULL) {
    client_close(s, oldest);
  }
  return oldest != NULL;
}

static void client_add(ras_server *s, int fd)
{
  ras_client *c = s->nclients < CLIENTS_MOST || evict_idle(s) ? tt_calloc(1, sizeof *c) : NULL;
  if (c == NULL) {
    tt_sock_close(&fd);
    return;
  }
  *c = (ras_client){.next = s->clients, .fd = fd, .seconds = 5, .since_ns = tt_now_ns()};
  s->clients = c;
  s->nclients++;
}

void ras_clients_accept(ras_server *s)
{
  s->short_of_fds = false;
  for (int i = 0; i < ACCEPTS && s->listener >= 0; i++) {
    int fd, e = tt_tcp_accept(s->listener, &fd, NULL);
    if (e < 0) {
      s->short_of_fds = e != -EAGAIN;
      return;
    }
    client_add(s, fd);
  }
}

// ---- commands

static bool diagnostics_busy(const ras_server *s)
{
  const ras_client *c = s->clients;
  while (c != NULL && c->waits != RAS_QUERY_DIAGNOSTICS) {
    c = c->next;
  }
  return c != NULL;
}

static void do_diagnostics(const ras_server *s, ras_client *c)
{
  c->closing = true;
  if (c->json) {
    ras_add(&c->out, "ERROR: diagnostics only supports text output\n");
  } else if (diagnostics_busy(s)) {
    ras_add(&c->out, "BUSY: diagnostics already in progress\n");
  } else {
    c->waits = RAS_QUERY_DIAGNOSTICS;
  }
}

static void answer(ras_client *c, const ras_command *cmd, const char *complaint)
{
  if (cmd->bad) {
    ras_add(&c->out, "ERROR: %s%s%s\n", complaint, cmd->arg, strchr(complaint, '\'') != NULL ? "'" : "");
  } else {
    ras_add(&c->out, "OK\n");
  }
}

// The answer to this question is the last thing that the client gets.
static ras_client *client_query(ras_client *c, ras_question what, uint32_t arg)
{
  c->closing = true;
  c->waits = what;
  c->arg = arg;
  return c;
}

static void client_command(ras_server *s, ras_client *c, const char *line)
{
  ras_command cmd = ras_command_read(line);
  switch (cmd.verb) {
  case RAS_PROTOCOL: ras_add(&c->out, "SERVER PROTOCOL 2\n"); break;
  case RAS_TIMEOUT:
    c->seconds = cmd.bad ? c->seconds : cmd.seconds;
    answer(c, &cmd, "Invalid timeout value ");
    break;
  case RAS_FORMAT:
    c->json = cmd.bad ? c->json : cmd.json;
    answer(c, &cmd, "Invalid format ");
    break;
  case RAS_STATUS:
    c->verbose = cmd.verbose;
    client_query(c, RAS_QUERY_RANKS, 0);
    break;
  case RAS_MONITOR:
    c->groups = cmd.bad ? 0 : cmd.groups;
    answer(c, &cmd, "Invalid event group '");
    break;
  case RAS_DIAGNOSTICS: do_diagnostics(s, c); break;
  case RAS_PROFILER_MASK:
    if (cmd.bad) {
      answer(c, &cmd, "Invalid profiler mask value '");
    } else {
      c->arg = cmd.mask;
      c->waits = RAS_QUERY_MASK;
    }
    break;
  case RAS_WHY: client_query(c, RAS_QUERY_RANKS, 0)->why = true; break;
  case RAS_RECORDER:
    if (cmd.bad) {
      answer(c, &cmd, "Invalid number of operations '");
    } else {
      client_query(c, RAS_QUERY_RECORDER, cmd.most);
    }
    break;
  case RAS_CONTROL: ras_add(&c->out, "ERROR: Unknown CONTROL subcommand '%s'\n", cmd.arg); break;
  default: ras_add(&c->out, "ERROR: Unknown command %s\n", line);
  }
}

static bool wants_more(const ras_client *c)
{
  return c->waits == 0 && !c->closing && !c->ended && c->out.size - c->sent < RAS_LINE_MAX;
}

// Runs the lines that are complete, up to one whose answer takes time. False: a line is too long.
static bool run_lines(ras_server *s, ras_client *c)
{
  char *end;
  while (c->waits == 0 && !c->closing && c->groups == 0 && (end = memchr(c->line, '\n', c->got)) != NULL) {
    size_t n = (size_t)(end - c->line);
    char line[RAS_LINE_MAX];
    memcpy(line, c->line, n);
    line[n > 0 && line[n - 1] == '\r' ? n - 1 : n] = '\0';
    c->got -= n + 1;
    memmove(c->line, end + 1, c->got);
    client_command(s, c, line);
  }
  return c->got < sizeof c->line;
}

// ---- moving bytes

// False: the connection is over.
static bool client_read(ras_server *s, ras_client *c)
{
  if (!run_lines(s, c)) { // of what came before
    return false;
  }
  while (wants_more(c)) {
    c->got = c->groups != 0 ? 0 : c->got; // what comes from a monitor is not read
    ssize_t n = tt_sock_recv(c->fd, c->line + c->got, sizeof c->line - c->got);
    if (n == -EAGAIN) {
      return true;
    }
    if (n < 0) {
      c->ended = true;
      return c->waits != 0 || c->closing || c->sent < c->out.size;
    }
    c->got += (size_t)n;
    c->since_ns = tt_now_ns();
    if (!run_lines(s, c)) {
      return false;
    }
  }
  return true;
}

// False: the connection is over.
static bool client_write(ras_client *c)
{
  while (c->sent < c->out.size) {
    ssize_t n = tt_sock_send(c->fd, c->out.data + c->sent, c->out.size - c->sent);
    if (n == -EAGAIN) {
      return c->out.size - c->sent < PENDING_MOST;
    }
    if (n < 0) {
      return false;
    }
    c->sent += (size_t)n;
    c->since_ns = tt_now_ns();
  }
  if (c->out.size > 0) {
    ras_text_free(&c->out);
    c->sent = 0;
  }
  return c->waits != 0 || !(c->closing || c->ended);
}

static bool is_idle(const ras_server *s, const ras_client *c, uint64_t now)
{
  bool busy = c->waits != 0 || (c->groups != 0 && c->out.size == 0);
  return !busy && now > c->since_ns + ras_seconds(s, IDLE_SECONDS);
}

void ras_clients_poll(ras_server *s)
{
  for (ras_client *c = s->clients; c != NULL; c = c->next) {
    bool writes = c->sent < c->out.size;
    short events = (short)((wants_more(c) ? POLLIN : 0) | (writes ? POLLOUT : 0));
    ras_poll_add(&s->polls, events != 0 ? c->fd : -1, events);
    bool has_line = wants_more(c) && memchr(c->line, '\n', c->got) != NULL;
    bool is_done = c->waits == 0 && c->closing && !writes;
    if (has_line || is_done || (c->waits != 0 && s->query == NULL)) { // its turn has come
      tt_wake_by(&s->polls.wake_ns, 1);
    } else if (c->waits == 0 && (c->groups == 0 || writes)) {
      tt_wake_by(&s->polls.wake_ns, c->since_ns + ras_seconds(s, IDLE_SECONDS) + TT_NS_PER_MS);
    }
  }
}

// The query for the client that waits longest; all that want the same are served by it.
static void start_next(ras_server *s)
{
  const ras_client *next = NULL;
  double seconds = 0;
  for (const ras_client *c = s->clients; c != NULL && s->query == NULL; c = c->next) {
    next = c->waits != 0 ? c : next;
  }
  if (next == NULL) {
    return;
  }
  for (ras_client *c = s->clients; c != NULL; c = c->next) {
    c->served = c->waits == next->waits && c->arg == next->arg;
    if (c->served && c->seconds > 0) {
      seconds = seconds > 0 ? TT_MIN(seconds, c->seconds) : c->seconds;
    }
  }
  ras_query_start(s, next->waits, next->arg, seconds);
}

void ras_clients_step(ras_server *s)
{
  uint64_t now = tt_now_ns();
  for (ras_client **at = &s->clients; *at != NULL;) {
    ras_client *c = *at;
    bool good = client_read(s, c) && client_write(c) && !c->out.failed && !is_idle(s, c, now);
    if (good) {
      at = &c->next;
    } else {
      client_close(s, at);
    }
  }
  start_next(s);
}

static void write_answer(ras_client *c, const ras_query_result *r)
{
  if (r->what == RAS_QUERY_MASK) {
    ras_add(&c->out, "OK\n");
  } else if (r->what == RAS_QUERY_DIAGNOSTICS) {
    ras_add(&c->out, "%s", r->lines->data != NULL ? r->lines->data : "");
  } else if (r->what == RAS_QUERY_RECORDER && r->lines->failed) {
    ras_add(&c->out, "ERROR: no memory for the flight recorders\n");
  } else if (r->what == RAS_QUERY_RECORDER && r->lines->size >= PENDING_MOST) {
    ras_add(&c->out, "ERROR: the flight recorders have %zu bytes, more than %d: ask for fewer operations\n",
            r->lines->size, PENDING_MOST - 1);
  } else if (r->what == RAS_QUERY_RECORDER) {
    ras_add(&c->out, "%s", r->lines->data);
  } else if (c->why) {
    ras_write_why(r->report, &c->out);
  } else if (c->json) {
    ras_write_json(r->report, &c->out);
  } else {
    ras_write_text(r->report, c->verbose, &c->out);
  }
}

void ras_clients_answer(ras_server *s, const ras_query_result *r)
{
  for (ras_client *c = s->clients; c != NULL; c = c->next) {
    if (c->served && c->waits == r->what) {
      c->waits = 0;
      c->served = false;
      c->arg = 0;
      write_answer(c, r);
      (void)client_write(c); // an error shows again in the next step
    }
  }
}

void ras_clients_tell(ras_server *s, unsigned group, const char *text, const char *json)
{
  for (ras_client *c = s->clients; c != NULL; c = c->next) {
    if (c->groups & group) {
      ras_add(&c->out, "%s\n", c->json ? json : text);
    }
  }
}

void ras_clients_close(ras_server *s)
{
  while (s->clients != NULL) {
    client_close(s, &s->clients);
  }
}
