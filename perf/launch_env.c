// The launcher for processes that something else started (torchrun, srun, prterun, an mpirun without its library): rank
// and size from the environment, and a star of TCP connections among the processes.
#define _GNU_SOURCE
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fail.h"
#include "launch.h"
#include "star.h"
#include "system.h"

enum { SECONDS = 300, MOST_SECONDS = 1000000 };

// Name and parent of a process. False: there is none.
static bool ask_process(long pid, char *name, size_t size, long *parent)
{
  char path[64];
  snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
  char *text = perf_read_file(path);
  char *open = text ? strchr(text, '(') : NULL, *close = text ? strrchr(text, ')') : NULL;
  bool ok = open && close && sscanf(close + 1, " %*c %ld", parent) == 1;
  if (ok) {
    snprintf(name, size, "%.*s", (int)(close - open - 1), open + 1);
  }
  free(text);
  return ok;
}

// "4711" when the Hydra proxy with that number is above this process. It is one for all processes of a job on this
// machine.
static const char *hydra_proxy(void)
{
  static char number[24]; // the same value whenever
  char name[64];
  long pid = getpid(), parent;
  while (pid > 1 && ask_process(pid, name, sizeof(name), &parent)) {
    if (strcmp(name, "hydra_pmi_proxy") == 0) {
      snprintf(number, sizeof(number), "%ld", pid);
      return number;
    }
    pid = parent;
  }
  return NULL;
}

const char *perf_launch_lookup(const char *name)
{
  return strcmp(name, "(hydra)") == 0 ? hydra_proxy() : perf_env(name);
}

static bool wanted(const perf_options *o, const perf_place *p)
{
  return o->procs == 1 && p->by != PERF_BY_NOBODY;
}

// TUTTI_PERF_TIMEOUT.
static bool read_seconds(int *seconds)
{
  const char *text = perf_env("TUTTI_PERF_TIMEOUT");
  *seconds = SECONDS;
  if (!text || !*text) {
    return true;
  }
  char *end;
  long v = strtol(text, &end, 10);
  if (!isdigit((unsigned char)text[0]) || *end || v < 1 || v > MOST_SECONDS) {
    perf_say("TUTTI_PERF_TIMEOUT='%.100s': want seconds, 1 to %d", text, MOST_SECONDS);
    return false;
  }
  *seconds = (int)v;
  return true;
}

static void choose_ports(const perf_place *p, perf_star_plan *plan)
{
  plan->ports[0] = p->port;
  plan->nports = p->derived ? PERF_STAR_PORTS : 1;
  for (int i = 1; i < plan->nports; i++) {
    plan->ports[i] = perf_derived_port(p->job, i);
  }
}

static perf_star *join(const perf_place *p)
{
  const char *secret = perf_env("TUTTI_PERF_SECRET");
  perf_star_plan plan = {.proc = p->proc,
                         .procs = p->procs,
                         .host = p->host,
                         .identity = perf_hash(secret, p->job),
                         .seconds_name = "TUTTI_PERF_TIMEOUT",
                         .hint = ""};
  if (p->one_machine_assumed) {
    plan.hint = "; with several machines, set MASTER_ADDR and MASTER_PORT";
  }
  choose_ports(p, &plan);
  return read_seconds(&plan.seconds) ? perf_star_join(&plan) : NULL;
}

static perf_launch_result init(const perf_options *o, const perf_place *p, perf_world *w)
{
  (void)o;
  *w = (perf_world){.launcher = &perf_launch_env, .proc = p->proc, .procs = p->procs};
  if (p->procs == 1) {
    return PERF_LAUNCHED;
  }
  if (p->missing[0]) {
    perf_say("%s=%d of %s=%d: %s", p->rank_name, p->proc, p->size_name, p->procs, p->missing);
    return PERF_LAUNCH_FAILED;
  }
  w->state = join(p);
  return w->state ? PERF_LAUNCHED : PERF_LAUNCH_FAILED;
}

static bool allgather(perf_world *w, const void *mine, void *all, size_t size)
{
  if (w->procs == 1) {
    memmove(all, mine, size);
    return true;
  }
  return perf_star_gather(w->state, mine, all, size) && perf_star_spread(w->state, all, (size_t)w->procs * size);
}

static bool barrier(perf_world *w)
{
  return w->procs == 1 || (perf_star_gather(w->state, NULL, NULL, 0) && perf_star_spread(w->state, NULL, 0));
}

static bool bcast(perf_world *w, void *data, size_t size, int root)
{
  return w->procs == 1 ||
         ((root == 0 || perf_star_fetch(w->state, data, size, root)) && perf_star_spread(w->state, data, size));
}

// All meet once more: a launcher may kill the others as soon as one ends with a bad status.
static void finalize(perf_world *w, int status)
{
  (void)status;
  barrier(w);
  perf_star_leave(w->state);
}

static void abort_job(perf_world *w, int status)
{
  char why[128];
  if (w->procs > 1) {
    snprintf(why, sizeof(why), "process %d ends with status %d", w->proc, status);
    perf_star_stop(w->state, why);
  }
}

const perf_launcher perf_launch_env = {
    .name = "env",
    .wanted = wanted,
    .init = init,
    .barrier = barrier,
    .allgather = allgather,
    .bcast = bcast,
    .finalize = finalize,
    .abort = abort_job,
};
