// flight_signal.c: see flight_signal.h. The handler only rings; a thread of the library writes the files.
#include "comm/flight_signal.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "comm/flight.h"
#include "os/proc.h"
#include "os/thread.h"

static pthread_once_t listen_once = PTHREAD_ONCE_INIT;
static int listen_fd = -1;         // the handler adds to it, the thread waits for it
static uint32_t listen_generation; // of the process that has the thread

static void listen_handler(int signal)
{
  int kept = errno;
  const uint64_t one = 1;
  (void)signal;
  if (tt_proc_generation == listen_generation) {
    (void)!write(listen_fd, &one, sizeof one);
  }
  errno = kept;
}

static void *listen_main(void *arg)
{
  uint64_t rung;
  (void)arg;
  for (;;) {
    if (read(listen_fd, &rung, sizeof rung) == (ssize_t)sizeof rung) {
      if (tt_comm_flight_dump(tt_params_get()->flight_recorder_file) != ncclSuccess) {
        tt_warn("%s", tt_last_error());
      }
    } else if (errno != EINTR) {
      return NULL;
    }
  }
}

// Is the signal free? A program that handles it keeps it.
static bool listen_may_take(int signal)
{
  struct sigaction now;
  return sigaction(signal, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
         (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN);
}

static void listen_start(void)
{
  int signal = (int)TT_CLAMP(tt_params_get()->flight_recorder_signal, 0, NSIG);
  if (signal == 0) {
    return;
  }
  if (!listen_may_take(signal)) {
    tt_warn("NCCL_FLIGHT_RECORDER_SIGNAL=%d: there is no such signal, or the program handles it; it dumps nothing",
            signal);
    return;
  }
  listen_generation = tt_proc_generation;
  listen_fd = eventfd(0, EFD_CLOEXEC);
  struct sigaction take = {.sa_handler = listen_handler, .sa_flags = SA_RESTART};
  if (listen_fd < 0 || tt_thread_start_detached("tutti recorder", listen_main, NULL) != ncclSuccess ||
      sigaction(signal, &take, NULL) != 0) {
    tt_warn("NCCL_FLIGHT_RECORDER_SIGNAL=%d dumps nothing: %s", signal, strerror(errno));
  }
}

void tt_comm_flight_listen(void)
{
  pthread_once(&listen_once, listen_start);
}
