// settings.c: TUTTI_TRACE_… . A value that means nothing is named, and the default taken.
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trace.h"

enum {
  EVENTS = 8192,
  EVENTS_LEAST = 8,
  EVENTS_MOST = 1 << 22,
  MASK = ncclProfileColl | ncclProfileP2p | ncclProfileProxyOp | ncclProfileProxyStep | ncclProfileKernelCh |
         ncclProfileGroupApi | ncclProfileCollApi | ncclProfileP2pApi | ncclProfileKernelLaunch,
  MASK_MOST = ((1 << 12) - 1) | ncclProfileKernelPhase
};

locale_t tt_trace_c_locale(void)
{
  return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

// A number from `least` to `most`, or `otherwise`.
static double number(const char *name, double least, double most, double otherwise, ncclDebugLogger_t log)
{
  const char *text = getenv(name);
  if (text == NULL || text[0] == '\0') {
    return otherwise;
  }
  char *end;
  locale_t before = tt_trace_c_locale();
  double v = strtod(text, &end);
  uselocale(before);
  if (*end != '\0' || !(v >= least && v <= most)) {
    log(NCCL_LOG_WARN, TT_TRACE_WARNS, __FILE__, __LINE__, "trace: %s=%s is no number from %.0f to %.0f: %.0f is taken",
        name, text, least, most, otherwise);
    return otherwise;
  }
  return v;
}

static int signal_number(ncclDebugLogger_t log)
{
  static const struct {
    const char *name;
    int number;
  } names[] = {{"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"HUP", SIGHUP}, {"QUIT", SIGQUIT}, {"none", 0}};
  const char *text = getenv("TUTTI_TRACE_SIGNAL");
  if (text == NULL || text[0] == '\0') {
    return SIGUSR2;
  }
  const char *name = strncmp(text, "SIG", 3) == 0 ? text + 3 : text;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(name, names[i].name) == 0) {
      return names[i].number;
    }
  }
  log(NCCL_LOG_WARN, TT_TRACE_WARNS, __FILE__, __LINE__,
      "trace: TUTTI_TRACE_SIGNAL=%s is none of USR1, USR2, HUP, QUIT, none: USR2 is taken", text);
  return SIGUSR2;
}

// A relative folder is that of now: the program may go elsewhere before the first file is made.
static void set_folder(tt_settings *s, const char *dir, ncclDebugLogger_t log)
{
  char here[sizeof s->dir];
  int n = -1;
  if (dir[0] == '/') {
    n = snprintf(s->dir, sizeof s->dir, "%s", dir);
  } else if (getcwd(here, sizeof here) != NULL) {
    bool same = dir[0] == '\0' || strcmp(dir, ".") == 0;
    n = snprintf(s->dir, sizeof s->dir, "%s%s%s", here, same ? "" : "/", same ? "" : dir);
  }
  if (n < 0 || (size_t)n >= sizeof s->dir) {
    log(NCCL_LOG_WARN, TT_TRACE_WARNS, __FILE__, __LINE__,
        "trace: TUTTI_TRACE_DIR=%.80s is longer than %zu bytes with the current folder before it, or there is none: "
        "files go where the program is "
        "when they are made",
        dir, sizeof s->dir - 1);
    strcpy(s->dir, ".");
  }
}

void tt_settings_read(tt_settings *s, ncclDebugLogger_t log)
{
  const char *dir = getenv("TUTTI_TRACE_DIR");
  *s = (tt_settings){
      .events = (size_t)number("TUTTI_TRACE_EVENTS", EVENTS_LEAST, EVENTS_MOST, EVENTS, log),
      .keeps = number("TUTTI_TRACE_RING", 0, 1, 0, log) != 0,
      .mask = (int)number("TUTTI_TRACE_MASK", 0, MASK_MOST, MASK, log),
      .wait = number("TUTTI_TRACE_WAIT", 0, 3600, 5, log),
      .quiet = number("TUTTI_TRACE_SUMMARY", 0, 1, 1, log) == 0,
      .signal = signal_number(log),
  };
  set_folder(s, dir != NULL ? dir : "", log);
}
