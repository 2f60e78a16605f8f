#include "launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "system.h"

static bool always(const perf_options *o, const perf_place *p)
{
  (void)o, (void)p;
  return true;
}

static perf_launch_result init(const perf_options *o, const perf_place *p, perf_world *w)
{
  (void)o, (void)p;
  *w = (perf_world){.launcher = &perf_launch_single, .procs = 1};
  return PERF_LAUNCHED;
}

static bool barrier(perf_world *w)
{
  (void)w;
  return true;
}

static bool allgather(perf_world *w, const void *mine, void *all, size_t size)
{
  (void)w;
  memmove(all, mine, size);
  return true;
}

static bool bcast(perf_world *w, void *data, size_t size, int root)
{
  (void)w, (void)data, (void)size, (void)root;
  return true;
}

static void finalize(perf_world *w, int status)
{
  (void)w, (void)status;
}

const perf_launcher perf_launch_single = {
    .name = "single",
    .wanted = always,
    .init = init,
    .barrier = barrier,
    .allgather = allgather,
    .bcast = bcast,
    .finalize = finalize,
};

static const perf_launcher *const launchers[] = {&perf_launch_fork, &perf_launch_mpi, &perf_launch_env,
                                                 &perf_launch_single};
enum { LAUNCHERS = sizeof(launchers) / sizeof(launchers[0]) };

// Where a process runs, as its name in two hashes.
typedef struct whereabouts {
  uint64_t machine, node;
} whereabouts;

static whereabouts here(void)
{
  char host[256];
  perf_host_name(host, sizeof(host));
  char *boot = perf_read_file("/proc/sys/kernel/random/boot_id"); // machines that were copied have the same name
  uint64_t machine = perf_hash(boot, perf_hash(host, 0));
  free(boot);
  return (whereabouts){machine, perf_hash(perf_env("NCCL_HOSTID"), machine)};
}

static bool find_neighbours(perf_world *w)
{
  whereabouts mine = here(), *all = calloc((size_t)w->procs, sizeof(*all));
  bool ok = all && w->launcher->allgather(w, &mine, all, sizeof(mine));
  for (int p = 0; ok && p < w->procs; p++) {
    bool near = all[p].node == mine.node;
    w->local_proc += near && p < w->proc;
    w->local_procs += near;
    w->machine_procs += all[p].machine == mine.machine;
  }
  free(all);
  return ok;
}

// TUTTI_PERF_LAUNCHER: the name of the launcher to use, whatever the environment looks like; NULL: not set.
static const char *asked_for(void)
{
  const char *name = perf_env("TUTTI_PERF_LAUNCHER");
  return name && *name ? name : NULL;
}

static bool is_name(const char *name)
{
  for (int i = 0; i < LAUNCHERS; i++) {
    if (strcmp(launchers[i]->name, name) == 0) {
      return true;
    }
  }
  return false;
}

bool perf_find_place(const perf_options *o, perf_place *p, perf_text *text)
{
  const char *name = asked_for();
  if (name && !is_name(name)) {
    perf_say("TUTTI_PERF_LAUNCHER='%.100s': there are fork, mpi, env and single", name);
    return false;
  }
  if (name && (strcmp(name, "single") == 0 || strcmp(name, "fork") == 0)) {
    *p = (perf_place){.procs = 1};
    return true;
  }
  bool found = perf_place_find(perf_launch_lookup, p, text);
  if (p->proc < p->procs) {
    perf_name_process(p->proc, p->procs, o->threads * o->gpus);
  }
  if (!found) {
    perf_say("%s", text->buf);
    return false;
  }
  if (o->procs > 1 && p->procs != 1) {
    perf_say("-P,--procs %d cannot be combined with %s, which started %d processes (%s): leave -P out", o->procs,
             perf_by_name(p->by), p->procs, p->size_name);
    return false;
  }
  return true;
}

bool perf_launch(const perf_options *o, const perf_place *p, perf_world *w)
{
  const char *name = asked_for();
  perf_launch_result r = PERF_LAUNCH_NEXT;
  for (int i = 0; i < LAUNCHERS && r == PERF_LAUNCH_NEXT; i++) {
    *w = (perf_world){0};
    if ((!name || strcmp(launchers[i]->name, name) == 0) && launchers[i]->wanted(o, p)) {
      r = launchers[i]->init(o, p, w);
    }
  }
  if (r == PERF_LAUNCH_NEXT) {
    perf_say("TUTTI_PERF_LAUNCHER=%s: not possible with these options and variables", name);
  }
  return r == PERF_LAUNCHED && (w->supervisor || find_neighbours(w));
}
