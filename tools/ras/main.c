// main.c: ncclras. See ncclras(1).
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "nccl.h"

enum { LINE_MOST = 1024 };

static const char usage[] = "usage: ncclras [OPTION]... [COMMAND WORD]...\n\n"
                            "Asks a running job for its state. Without a command: STATUS.\n\n"
                            "  -f, --format FMT      format of the answer: text (default) or json\n"
                            "  -h, --host HOST       host to ask (default localhost)\n"
                            "  -p, --port PORT       its port (default 28028)\n"
                            "  -t, --timeout SECS    seconds until the answer must be there; 0: no limit (default 5)\n"
                            "  -v, --verbose         more details in text\n"
                            "  -m, --monitor[=GRP]   print events until interrupted: lifecycle (default), trace, all\n"
                            "  -D, --diagnostics     what each process says of itself and its machine\n"
                            "      --help            print this text\n"
                            "      --version         print the version\n\n"
                            "Exit status: 0 done; 1 wrong option, no connection, time-out, or the job answers ERROR.\n";

typedef struct options {
  const char *host, *port, *format, *monitor; // monitor NULL: no
  double seconds;
  bool verbose, diagnostics;
  char command[LINE_MOST]; // "": none
} options;

// A connection and what has been read from it.
typedef struct talk {
  int fd;
  double deadline; // of the clock below; 0: none
  char data[4096];
  size_t size;
} talk;

__attribute__((format(printf, 1, 2))) static int complain(const char *format, ...)
{
  va_list args;
  va_start(args, format);
  fputs("ncclras: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  return 1;
}

static double ras_clock(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

// ---- options

static bool read_seconds(const char *text, double *out)
{
  char *end;
  *out = strtod(text, &end);
  return end != text && *end == '\0' && isfinite(*out) && *out >= 0;
}

// getaddrinfo takes larger numbers as well, and connects to another port.
static bool is_port(const char *text)
{
  char *end;
  long port = strtol(text, &end, 10);
  return end != text && *end == '\0' && port > 0 && port <= UINT16_MAX;
}

static bool read_words(options *o, int argc, char **argv, int from)
{
  for (int i = from; i < argc; i++) {
    size_t used = strlen(o->command), more = strlen(argv[i]) + 1;
    if (used + more + 1 >= sizeof o->command || strpbrk(argv[i], "\r\n") != NULL) {
      return false;
    }
    snprintf(o->command + used, sizeof o->command - used, "%s%s", used > 0 ? " " : "", argv[i]);
  }
  return true;
}

// Returns an exit status, or -1: go on.
static int read_option(options *o, int letter)
{
  switch (letter) {
  case 'f':
    o->format = optarg;
    return strcasecmp(optarg, "text") == 0 || strcasecmp(optarg, "json") == 0
               ? -1
               : complain("--format %s: it must be text or json", optarg);
  case 'h': o->host = optarg; return -1;
  case 'p':
    o->port = optarg;
    return is_port(optarg) ? -1 : complain("--port %s: it must be a number from 1 to 65535", optarg);
  case 't':
    return read_seconds(optarg, &o->seconds)
               ? -1
               : complain("--timeout %s: it must be a number of seconds from 0 on", optarg);
  case 'v': o->verbose = true; return -1;
  case 'm': o->monitor = optarg != NULL ? optarg : ""; return -1;
  case 'D': o->diagnostics = true; return -1;
  case 'H': fputs(usage, stdout); return 0;
  case 'V': printf("ncclras: NCCL version %d.%d.%d\n", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH); return 0;
  default: fputs("ncclras --help lists the options\n", stderr); return 1;
  }
}

static int read_options(options *o, int argc, char **argv)
{
  static const struct option rows[] = {
      {"format", required_argument, NULL, 'f'}, {"host", required_argument, NULL, 'h'},
      {"port", required_argument, NULL, 'p'},   {"timeout", required_argument, NULL, 't'},
      {"verbose", no_argument, NULL, 'v'},      {"monitor", optional_argument, NULL, 'm'},
      {"diagnostics", no_argument, NULL, 'D'},  {"help", no_argument, NULL, 'H'},
      {"version", no_argument, NULL, 'V'},      {NULL, 0, NULL, 0},
  };
  int letter, status = -1;
  while (status < 0 && (letter = getopt_long(argc, argv, "f:h:p:t:vm::D", rows, NULL)) != -1) {
    status = read_option(o, letter);
  }
  if (status < 0 && !read_words(o, argc, argv, optind)) {
    status = complain("the command is longer than a line of %d bytes, or has several lines", LINE_MOST);
  }
  if (status < 0 && (o->command[0] != '\0') + (o->monitor != NULL) + o->diagnostics > 1) {
    status = complain("use one of --monitor, --diagnostics and a command");
  }
  return status;
}

// ---- the connection

// True: it is ready before the deadline.
static bool wait_for(const talk *t, short events)
{
  for (;;) {
    double left = t->deadline > 0 ? t->deadline - ras_clock() : 3600;
    struct pollfd p = {.fd = t->fd, .events = events};
    int n = left > 0 ? poll(&p, 1, left < 3600 ? (int)(left * 1e3) + 1 : 3600000) : 0;
    if (n > 0) {
      return true;
    }
    if ((n < 0 && errno != EINTR) || (t->deadline > 0 && ras_clock() >= t->deadline)) {
      errno = ETIMEDOUT;
      return false;
    }
  }
}

static bool connect_to(talk *t, const struct addrinfo *a)
{
  int e = 0;
  socklen_t size = sizeof e;
  t->fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (t->fd < 0) {
    return false;
  }
  if (connect(t->fd, a->ai_addr, a->ai_addrlen) == 0) {
    return true;
  }
  if (errno == EINPROGRESS && wait_for(t, POLLOUT)) {
    getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &e, &size);
    if (e == 0) {
      return true;
    }
    errno = e;
  }
  e = errno;
  close(t->fd);
  errno = e;
  return false;
}

static int open_talk(talk *t, const options *o)
{
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
  int e = getaddrinfo(o->host, o->port, &hints, &all);
  if (e != 0) {
    return complain("%s port %s: %s", o->host, o->port, gai_strerror(e));
  }
  t->deadline = o->seconds > 0 ? ras_clock() + o->seconds : 0;
  bool good = false;
  for (const struct addrinfo *a = all; a != NULL && !good; a = a->ai_next) {
    good = connect_to(t, a);
  }
  e = errno;
  freeaddrinfo(all);
  return good ? 0
              : complain("cannot connect to %s port %s: %s. Is a job running there, with NCCL_RAS_ADDR set so?",
                         o->host, o->port, strerror(e));
}

static bool say(talk *t, const char *line)
{
  char text[LINE_MOST + 2];
  int n = snprintf(text, sizeof text, "%s\n", line);
  for (int sent = 0; sent < n;) {
    ssize_t now = send(t->fd, text + sent, (size_t)(n - sent), MSG_NOSIGNAL);
    if (now < 0 && errno != EINTR && (errno != EAGAIN || !wait_for(t, POLLOUT))) {
      return false;
    }
    sent += now > 0 ? (int)now : 0;
  }
  return true;
}

// Reads more. 1: bytes have come; 0: the end; -1: an error.
static int hear(talk *t)
{
  for (;;) {
    ssize_t n = recv(t->fd, t->data + t->size, sizeof t->data - t->size, 0);
    if (n >= 0) {
      t->size += (size_t)n;
      return n > 0;
    }
    if (errno != EINTR && (errno != EAGAIN || !wait_for(t, POLLIN))) {
      return -1;
    }
  }
}

static void forget_first(talk *t, size_t n)
{
  t->size -= n;
  memmove(t->data, t->data + n, t->size);
}

static int no_answer(const talk *t)
{
  return errno == ETIMEDOUT && t->deadline > 0 ? complain("time-out: no answer within the limit (--timeout)")
                                               : complain("the connection broke: %s", strerror(errno));
}

// Says a line and reads the one that answers; returns 0 where it begins with `wanted`.
static int request(talk *t, const char *line, const char *wanted)
{
  char *end;
  errno = ECONNRESET;
  if (!say(t, line)) {
    return no_answer(t);
  }
  while ((end = memchr(t->data, '\n', t->size)) == NULL) {
    if (t->size == sizeof t->data || hear(t) <= 0) {
      return no_answer(t);
    }
  }
  *end = '\0';
  int status = strncmp(t->data, wanted, strlen(wanted)) == 0 ? 0 : complain("%s", t->data);
  forget_first(t, (size_t)(end - t->data) + 1);
  return status;
}

// Prints what comes until the other end closes. With `line`, only one.
static int print_answer(talk *t, bool line)
{
  bool first = true, failed = false, ended = false;
  while (!ended) {
    if (t->size == 0) {
      int n = hear(t);
      if (n <= 0) {
        return n < 0 ? no_answer(t) : failed ? 1 : first ? complain("the job closed the connection") : 0;
      }
    }
    bool whole = t->size >= 5 || memchr(t->data, '\n', t->size) != NULL;
    if (first && !whole && hear(t) > 0) {
      continue;
    }
    failed |= first && (strncmp(t->data, "ERROR", 5) == 0 || strncmp(t->data, "BUSY:", 5) == 0);
    first = false;
    const char *end = line ? memchr(t->data, '\n', t->size) : NULL;
    size_t n = end != NULL ? (size_t)(end - t->data) + 1 : t->size;
    fwrite(t->data, 1, n, failed ? stderr : stdout);
    fflush(stdout);
    forget_first(t, n);
    ended = end != NULL;
  }
  return failed;
}

// Commands whose answer is one line, after which the connection stays open.
static bool has_short_answer(const char *command)
{
  static const char *const longer[] = {"STATUS", "VERBOSE", "MONITOR", "DIAGNOSTICS", "WHY", "RECORDER"};
  size_t n = strcspn(command, " ");
  for (size_t i = 0; i < sizeof longer / sizeof *longer; i++) {
    if (strlen(longer[i]) == n && strncasecmp(command, longer[i], n) == 0) {
      return false;
    }
  }
  return true;
}

static int run_command(talk *t, const options *o)
{
  char line[LINE_MOST];
  snprintf(line, sizeof line, "%s",
           o->command[0] != '\0' ? o->command
           : o->diagnostics      ? "DIAGNOSTICS"
           : o->verbose          ? "VERBOSE STATUS"
                                 : "STATUS");
  if (o->monitor != NULL) {
    snprintf(line, sizeof line, "MONITOR%s%s", o->monitor[0] != '\0' ? " " : "", o->monitor);
    int status = request(t, line, "OK");
    t->deadline = 0;
    return status != 0 ? status : print_answer(t, false);
  }
  errno = ECONNRESET;
  return say(t, line) ? print_answer(t, has_short_answer(line)) : no_answer(t);
}

static int converse(talk *t, const options *o)
{
  char line[LINE_MOST];
  int status = request(t, "CLIENT PROTOCOL 2", "SERVER PROTOCOL ");
  if (status == 0) {
    snprintf(line, sizeof line, "TIMEOUT %g", o->seconds);
    status = request(t, line, "OK");
  }
  if (status == 0 && o->format != NULL) {
    snprintf(line, sizeof line, "SET FORMAT %s", o->format);
    status = request(t, line, "OK");
  }
  return status == 0 ? run_command(t, o) : status;
}

int main(int argc, char **argv)
{
  options o = {.host = "localhost", .port = "28028", .seconds = 5};
  int status = read_options(&o, argc, argv);
  if (status >= 0) {
    return status;
  }
  talk t = {.fd = -1};
  status = open_talk(&t, &o);
  if (status == 0) {
    status = converse(&t, &o);
    close(t.fd);
  }
  return status;
}
