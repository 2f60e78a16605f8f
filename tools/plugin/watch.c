#define _GNU_SOURCE
#include "watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "tools/sanitizer.h"

static uint64_t clock_ns(clockid_t id)
{
  struct timespec now;
  clock_gettime(id, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t pc_clock_ns(void)
{
  return clock_ns(CLOCK_MONOTONIC);
}

pc_wait pc_wait_begin(void)
{
  static int fd = -1;
  static pid_t whose;
  char text[64], *end;
  struct rusage usage;
  if (whose != getpid()) { // a child's own
    if (fd >= 0) {
      close(fd);
    }
    fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    whose = getpid();
  }
  ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
  if (n <= 0 || getrusage(RUSAGE_THREAD, &usage) != 0) {
    return (pc_wait){0};
  }
  text[n] = '\0';
  (void)strtoull(text, &end, 10); // time that it ran, as of some moments ago
  uint64_t queued = strtoull(end, NULL, 10), ran = clock_ns(CLOCK_THREAD_CPUTIME_ID);
  return (pc_wait){.idle = clock_ns(CLOCK_MONOTONIC) - ran - queued, .switches = usage.ru_nvcsw};
}

uint64_t pc_wait_end(const pc_wait *begin)
{
  pc_wait now = pc_wait_begin();
  // The clocks are not read at once.
  return now.switches > begin->switches && now.idle > begin->idle ? now.idle - begin->idle : 0;
}

static int count_entries(const char *folder)
{
  DIR *d = opendir(folder);
  int n = 0;
  while (d != NULL && readdir(d) != NULL) {
    n++;
  }
  if (d != NULL) {
    closedir(d);
  }
  return n - 2;
}

pc_holdings pc_holdings_now(void)
{
  (void)pc_wait_begin(); // its descriptor is no news
  tt_sanitizer_begin();
  return (pc_holdings){.memory = mallinfo2().uordblks,
                       .threads = count_entries("/proc/self/task"),
                       .descriptors = count_entries("/proc/self/fd")};
}

pc_holdings pc_holdings_settled(const pc_holdings *before, int seconds)
{
  const struct timespec nap = {.tv_nsec = 2000000};
  uint64_t end = pc_clock_ns() + (uint64_t)seconds * 1000000000u;
  pc_holdings now = pc_holdings_now();
  while ((now.threads > before->threads || now.descriptors > before->descriptors) && pc_clock_ns() < end) {
    nanosleep(&nap, NULL);
    now = pc_holdings_now();
  }
  return now;
}

void pc_manners_take(pc_manners *m)
{
  memset(m, 0, sizeof *m);
  sigprocmask(SIG_SETMASK, NULL, &m->blocked);
  for (int s = 1; s < (int)TT_COUNT(m->handlers); s++) {
    sigaction(s, NULL, &m->handlers[s]);
  }
  if (getcwd(m->folder, sizeof m->folder) == NULL) {
    m->folder[0] = '\0';
  }
}

void pc_manners_check(const pc_job *job, const pc_manners *before)
{
  pc_manners now;
  int more = 0, fewer = 0;
  pc_manners_take(&now);
  for (int s = 1; s < (int)TT_COUNT(now.handlers); s++) {
    more += sigismember(&now.blocked, s) && !sigismember(&before->blocked, s);
    fewer += !sigismember(&now.blocked, s) && sigismember(&before->blocked, s);
    if (now.handlers[s].sa_handler != before->handlers[s].sa_handler) {
      pc_note(job, "has changed what becomes of signal %d (%s), which is the program's", s, strsignal(s));
    }
  }
  pc_rule(job, more == 0 && fewer == 0,
          "leaves %d signals blocked and %d let through in the thread that called; its mask is the program's", more,
          fewer);
  pc_rule(job, strcmp(now.folder, before->folder) == 0,
          "has changed the working directory to %.100s, which is the program's", now.folder);
}
