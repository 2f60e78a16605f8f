// main.c: tutti-why. See tutti-why(1). Asks a job over RAS (ask.c), or finds the memory that the ranks of a job share
// by /proc, maps it for reading, and says what the ranks show there.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ask.h"
#include "base/util.h"
#include "device/device.h"
#include "os/proc.h"
#include "transport/segment.h"

enum { FINE = 0, FAILED = 1, BAD_USAGE = 2, NRANKS_MOST = 1 << 20 };

static const char usage[] =
    "usage: tutti-why PID\n"
    "       tutti-why HOST:PORT\n\n"
    "Shows the communicators in which process PID takes part together with other processes of this machine: what each\n"
    "rank here has called last, which rank it waits for, for how long, and which rank is the cause. The job does not\n"
    "notice. Ranks that are threads of one process share no memory with a name: there use HOST:PORT.\n\n"
    "With HOST:PORT (or [IPV6]:PORT) it asks the job that listens there (NCCL_RAS_ADDR, default localhost:28028), on "
    "any\n"
    "machine, and shows the same of all ranks of the job.\n\n"
    "  -h, --help   print this text\n\n"
    "Exit status: 0 shown; 1 there is nothing to show, it may not be read, or no job answers; 2 wrong usage.\n";

// A segment that is mapped for reading.
typedef struct why_segment {
  char *base;
  size_t size; // mapped
  const tt_segment_header *header;
} why_segment;

// Does the descriptor of the process stand for a segment?
static bool why_is_segment(const char *path)
{
  char is[64];
  ssize_t n = readlink(path, is, sizeof is - 1);
  is[n > 0 ? n : 0] = '\0';
  return strcmp(is, "/memfd:tutti-comm (deleted)") == 0;
}

// Is what the process has written there a segment of this version?
static bool why_fits(const tt_segment_header *h, size_t size)
{
  return h->magic == TT_SEGMENT_MAGIC && h->n > 0 && h->nranks >= h->n && h->nranks <= NRANKS_MOST && h->size <= size &&
         TT_SEGMENT_PAGES + (size_t)h->n * sizeof(tt_rank_page) <= size;
}

// False: it cannot be mapped, or is of another version.
static bool why_map(const char *path, why_segment *out)
{
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    fprintf(stderr, "tutti-why: %s: %s\n", path, strerror(errno));
    return false;
  }
  bool big = fstat(fd, &st) == 0 && st.st_size >= TT_SEGMENT_PAGES;
  void *base = big ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
  (void)close(fd);
  if (base == MAP_FAILED) {
    fprintf(stderr, "tutti-why: %s cannot be mapped\n", path);
    return false;
  }
  *out = (why_segment){.base = base, .size = (size_t)st.st_size, .header = base};
  if (!why_fits(out->header, out->size)) {
    fprintf(stderr, "tutti-why: %s belongs to another version of the library\n", path);
    (void)munmap(base, out->size);
    return false;
  }
  return true;
}

// A port that sees what the ranks of this machine see, but does nothing. False: no memory.
static bool why_make_port(const why_segment *s, tt_port *port, tt_neighbor *neighbors)
{
  const tt_segment_header *h = s->header;
  *port = (tt_port){.rank = -1, .nranks = h->nranks, .hash = h->hash, .neighbors = neighbors, .row = tt_device_row()};
  port->links = tt_calloc((size_t)h->nranks, sizeof *port->links);
  for (int i = 0; i < TT_MIN(h->n, TT_SEGMENT_RANKS); i++) {
    int rank = h->ranks[i].rank;
    if (rank >= 0 && rank < h->nranks) {
      neighbors[rank] =
          (tt_neighbor){.page = (tt_rank_page *)(void *)(s->base + TT_SEGMENT_PAGES) + i, .pid = h->ranks[i].pid};
    }
  }
  return port->links != NULL;
}

static void why_show_rank(const tt_port *port, int rank)
{
  char text[TT_PROC_TEXT];
  tt_rank_view r;
  if (port->neighbors[rank].page == NULL || !port->row->view(port, rank, &r)) {
    return;
  }
  printf("  rank %d, process %d, %s: ", rank, r.pid, r.state);
  if (!r.waits) {
    printf("its process %s", tt_proc_describe(r.pid, text) ? text : "is not known here");
  } else if (r.wait.how & TT_WAIT_BEHIND) {
    printf("waits for %.1f s behind other work of its stream", (double)r.waited_ns / 1e9);
  } else {
    printf("waits for %.1f s to %s rank %u", (double)r.waited_ns / 1e9, tt_wait_verb(r.wait.how), r.wait.peer);
  }
  printf("; %s%s\n", r.call[0] != '\0' ? "last call: " : "no call yet", r.call);
}

// The sentence of the first rank that waits. Several ranks mostly wait for one cause: each cause is said once.
static void why_show_verdicts(tt_port *port, const why_segment *s)
{
  int causes[TT_SEGMENT_RANKS], n = 0;
  for (int i = 0; i < TT_MIN(s->header->n, TT_SEGMENT_RANKS); i++) {
    tt_verdict v;
    port->rank = s->header->ranks[i].rank;
    if (port->rank < 0 || port->rank >= port->nranks) {
      continue;
    }
    port->page = port->neighbors[port->rank].page;
    port->row->tell(port, &v);
    bool again = strcmp(v.class, "none") == 0;
    for (int k = 0; k < n; k++) {
      again |= causes[k] == v.cause;
    }
    if (!again) {
      causes[n++] = v.cause;
      printf("  %s: %s\n", v.class, v.text);
    }
  }
  if (n == 0) {
    printf("  no rank of this machine waits for another\n");
  }
}

static bool why_show(const why_segment *s)
{
  const tt_segment_header *h = s->header;
  tt_port port;
  tt_neighbor *neighbors = tt_calloc((size_t)h->nranks, sizeof *neighbors);
  bool good = neighbors != NULL && why_make_port(s, &port, neighbors);
  if (good) {
    printf("communicator %#llx: %d ranks, %d on this machine\n", (unsigned long long)h->hash, h->nranks, h->n);
    for (int rank = 0; rank < h->nranks; rank++) {
      why_show_rank(&port, rank);
    }
    why_show_verdicts(&port, s);
    tt_free(port.links);
  }
  tt_free(neighbors);
  return good;
}

static int why_look(int pid)
{
  char path[300];
  int shown = 0;
  snprintf(path, sizeof path, "/proc/%d/fd", pid);
  DIR *d = opendir(path);
  if (d == NULL) {
    fprintf(stderr, "tutti-why: %s: %s\n", path, strerror(errno));
    return FAILED;
  }
  for (const struct dirent *e; (e = readdir(d)) != NULL;) {
    why_segment s;
    snprintf(path, sizeof path, "/proc/%d/fd/%s", pid, e->d_name);
    if (why_is_segment(path) && why_map(path, &s)) {
      shown += why_show(&s);
      (void)munmap(s.base, s.size);
    }
  }
  closedir(d);
  if (shown == 0) {
    fprintf(stderr, "tutti-why: process %d shares no communicator with other processes of this machine\n", pid);
  }
  return shown > 0 ? FINE : FAILED;
}

int main(int argc, char **argv)
{
  if (argc == 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0)) {
    printf("%s", usage);
    return FINE;
  }
  if (argc == 2 && argv[1][0] != '-' && strchr(argv[1], ':') != NULL) {
    return why_ask(argv[1]) ? FINE : FAILED;
  }
  char *end = NULL;
  long pid = argc == 2 ? strtol(argv[1], &end, 10) : 0;
  if (pid <= 0 || pid > INT32_MAX || *end != '\0') {
    fprintf(stderr, "%s", usage);
    return BAD_USAGE;
  }
  return why_look((int)pid);
}
