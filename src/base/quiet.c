// quiet.c: see quiet.h.
#include "base/quiet.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

void tt_quiet_begin(tt_quiet *q)
{
  sigset_t pending;
  sigpending(&pending);
  q->had_pipe = sigismember(&pending, SIGPIPE) == 1;
  q->had_size = sigismember(&pending, SIGXFSZ) == 1;
  sigemptyset(&q->ours);
  sigaddset(&q->ours, SIGPIPE);
  sigaddset(&q->ours, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &q->ours, &q->before);
}

void tt_quiet_end(tt_quiet *q)
{
  int saved = errno;
  struct timespec none = {0, 0};
  // What was pending before is the program's.
  if (q->had_pipe) {
    sigdelset(&q->ours, SIGPIPE);
  }
  if (q->had_size) {
    sigdelset(&q->ours, SIGXFSZ);
  }
  while (sigtimedwait(&q->ours, NULL, &none) > 0) {
  }
  pthread_sigmask(SIG_SETMASK, &q->before, NULL);
  errno = saved;
}
