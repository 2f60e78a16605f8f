// perf_main: from the command line to the exit status.
#define _GNU_SOURCE // program_invocation_short_name
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "device.h"
#include "fail.h"
#include "system.h"
#include "tuning.h"

double perf_factor_others(int nranks)
{
  return (double)(nranks - 1) / nranks;
}

double perf_factor_twice(int nranks)
{
  return 2 * perf_factor_others(nranks);
}

size_t perf_share(const perf_case *c, size_t count)
{
  return count / (size_t)c->nranks & ~(16 / c->elt - 1);
}

static void print(const perf_job *j, const char *text)
{
  if (j->world.proc == 0) {
    perf_monitor_print(j->monitor, text);
  }
}

static void finish_json(void *arg)
{
  perf_json *json = arg;
  perf_json_errors(json, ncclGetLastError(NULL));
  perf_json_close(json);
}

static void open_json(perf_job *j, int argc, char **argv, int version)
{
  if (!j->o.output_file || j->world.proc != 0) {
    return;
  }
  char note[4200];
  j->json = perf_json_open(j->o.output_file, argc, argv, version, note, sizeof(note));
  fputs(note, stdout);
  if (j->json) {
    perf_on_death(finish_json, j->json);
  }
}

static bool all_made(const perf_job *j)
{
  return j->team && j->monitor && j->patterns && j->ranks;
}

static void start_job(perf_job *j, int argc, char **argv)
{
  int version;
  char text[2048];
  j->nlocal = j->o.threads * j->o.gpus;
  j->nworld = j->nlocal * j->world.procs;
  j->team = perf_team_create(j->o.threads, &j->world);
  j->monitor = perf_monitor_create(j->o.threads, j->o.timeout, j->world.proc == 0 && isatty(STDERR_FILENO));
  j->patterns = perf_patterns_create();
  j->ranks = calloc((size_t)j->nlocal, sizeof(*j->ranks));
  if (!all_made(j)) {
    perf_die_saying(PERF_EXIT_INTERNAL, "no memory for %d ranks", j->nlocal);
  }
  perf_monitor_begin(j->monitor, 0, "the other processes");
  perf_device_choose();
  perf_check_job(j);
  PERF_NCCL(ncclGetVersion(&version));
  open_json(j, argc, argv, version);
  perf_report_start(&j->o, j->program, version, text, sizeof(text));
  print(j, text);
  perf_plan_ranks(j);
  perf_print_devices(j);
  if (j->world.cores > 0) {
    snprintf(text, sizeof(text), "# Each process is bound to %d core%s of its own (-B 0: none is)\n", j->world.cores,
             j->world.cores > 1 ? "s" : "");
    print(j, text);
  }
  perf_plan_memory(j);
  perf_monitor_end(j->monitor, 0);
  perf_mark_memory(j, PERF_MEMORY_START);
}

static void wait_for_team(perf_thread *t)
{
  perf_monitor_begin(t->job->monitor, t->index, "the other ranks");
  perf_team_barrier(t->job->team, t->index);
  perf_monitor_end(t->job->monitor, t->index);
}

// With -p every thread sets its own ranks up.
static void set_up_own(perf_thread *t)
{
  perf_job *j = t->job;
  int first = t->index * j->o.gpus;
  perf_make_comms(j, first, j->o.gpus);
  wait_for_team(t);
  if (t->index == 0) {
    perf_mark_memory(j, PERF_MEMORY_COMMS);
  }
  wait_for_team(t);
  perf_make_buffers(j, first, j->o.gpus);
  wait_for_team(t);
  if (t->index == 0) {
    perf_mark_memory(j, PERF_MEMORY_BUFFERS);
  }
}

static void *thread_main(void *arg)
{
  perf_thread *t = arg;
  if (t->job->o.parallel_init) {
    set_up_own(t);
  }
  if (!t->job->coll->skip || !t->job->coll->skip(t->ranks[0].nranks)) {
    perf_run_thread(t);
  } else if (t->prints) {
    printf("nRanks %d is not a power of 2, skipping\n", t->ranks[0].nranks);
  }
  perf_monitor_begin(t->job->monitor, t->index, "the other ranks");
  double errors = perf_team_reduce(t->job->team, t->index, (double)t->errors, PERF_TOTAL);
  perf_monitor_end(t->job->monitor, t->index);
  if (t->index == 0) {
    t->job->errors = (long)errors;
  }
  return NULL;
}

// Thread 0 is the main thread.
static void run_threads(perf_job *j)
{
  perf_thread *threads = calloc((size_t)j->o.threads, sizeof(*threads));
  if (!threads) {
    perf_die_saying(PERF_EXIT_INTERNAL, "no memory for %d threads", j->o.threads);
  }
  for (int i = j->o.threads - 1; i >= 0; i--) {
    threads[i] =
        (perf_thread){.job = j, .index = i, .ranks = j->ranks + i * j->o.gpus, .prints = i == 0 && j->world.proc == 0};
    int error = i ? pthread_create(&threads[i].id, NULL, thread_main, &threads[i]) : 0;
    if (error) {
      errno = error;
      perf_die_saying(PERF_EXIT_INTERNAL, "-t %d: cannot create thread %d: %m", j->o.threads, i);
    }
  }
  thread_main(&threads[0]);
  for (int i = 1; i < j->o.threads; i++) {
    pthread_join(threads[i].id, NULL);
  }
  free(threads);
}

// What all processes must know at the end: the bandwidth that process 0 reports, and the greatest memory use.
typedef struct ending {
  double bus_bw;
  int64_t phases[PERF_MEMORY_MARKS - 1];
} ending;

static ending agree_on_end(perf_job *j)
{
  ending mine = {.bus_bw = j->bw_count ? j->bw_sum / (double)j->bw_count : 0};
  for (int i = 0; i < PERF_MEMORY_MARKS - 1; i++) {
    mine.phases[i] = j->memory[i + 1] - j->memory[i];
  }
  ending *all = calloc((size_t)j->world.procs, sizeof(*all));
  if (!all || !j->world.launcher->allgather(&j->world, &mine, all, sizeof(mine))) {
    perf_die(PERF_EXIT_INTERNAL);
  }
  mine.bus_bw = all[0].bus_bw;
  for (int p = 0; p < j->world.procs; p++) {
    for (int i = 0; i < PERF_MEMORY_MARKS - 1; i++) {
      mine.phases[i] = all[p].phases[i] > mine.phases[i] ? all[p].phases[i] : mine.phases[i];
    }
  }
  free(all);
  return mine;
}

static double min_bandwidth(void)
{
  const char *text = perf_env("NCCL_TESTS_MIN_BW");
  return text ? atof(text) : -1;
}

static int end_job(perf_job *j)
{
  char text[2048];
  ending end = agree_on_end(j);
  double least = min_bandwidth();
  perf_report_footer(j->program, j->errors, end.bus_bw, least, text, sizeof(text));
  print(j, text);
  perf_json_footer(j->json, j->errors, end.bus_bw, least);
  if (j->o.memory) {
    perf_memory m[] = {
        {"Initialization", end.phases[0]}, {"User-Allocated", end.phases[1]}, {"Collective", end.phases[2]}};
    perf_report_memory(m, 3, text, sizeof(text));
    print(j, text);
  }
  print(j, "#\n");
  const char *error = ncclGetLastError(NULL);
  snprintf(text, sizeof(text), *error ? "# error: %s\n" : "%s\n", error);
  print(j, text);
  perf_json_errors(j->json, error);
  return j->errors || end.bus_bw < least * 0.9 ? PERF_EXIT_WRONG : PERF_EXIT_OK;
}

static void close_json(perf_job *j)
{
  perf_on_death(NULL, NULL);
  if (!perf_json_close(j->json)) {
    perf_say("-J %s: could not be written completely", j->o.output_file);
  }
}

static void free_job(perf_job *j)
{
  perf_monitor_destroy(j->monitor);
  perf_team_destroy(j->team);
  perf_patterns_destroy(j->patterns);
  free(j->ranks);
}

static int run_job(perf_job *j, int argc, char **argv)
{
  char text[2048];
  start_job(j, argc, argv);
  if (!j->o.parallel_init) {
    perf_make_comms(j, 0, j->nlocal);
    perf_mark_memory(j, PERF_MEMORY_COMMS);
    perf_make_buffers(j, 0, j->nlocal);
    perf_mark_memory(j, PERF_MEMORY_BUFFERS);
  }
  perf_report_columns(&j->o, text, sizeof(text));
  print(j, text);
  run_threads(j);
  perf_mark_memory(j, PERF_MEMORY_END);
  perf_unmake(j);
  perf_monitor_begin(j->monitor, 0, "the other processes");
  int status = end_job(j);
  close_json(j); // first: when the others have ended with a bad status, an mpirun may kill this process
  perf_in_job(NULL);
  j->world.launcher->finalize(&j->world, status);
  perf_monitor_end(j->monitor, 0);
  free_job(j);
  return status;
}

// Wrong options: every process sees them, and each says so, because the first that ends may take the others with it.
static int usage_error(const char *text)
{
  perf_place place;
  perf_text note;
  if (perf_place_find(perf_launch_lookup, &place, &note)) {
    perf_name_process(place.proc, place.procs, 1);
  }
  perf_say("%s", text);
  return PERF_EXIT_USAGE;
}

static int help(const perf_coll *coll, const char *program)
{
  perf_place place;
  perf_text note;
  char usage[8192];
  if (!perf_place_find(perf_launch_lookup, &place, &note) || place.proc == 0) {
    perf_options_usage(program, usage, sizeof(usage));
    fputs(usage, stdout);
    fputs(coll->help ? coll->help : "", stdout);
  }
  return PERF_EXIT_OK;
}

static int launch_job(perf_job *j, int argc, char **argv, const char *notes)
{
  perf_place place;
  perf_text hint = {0};
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (!perf_find_place(&j->o, &place, &hint)) {
    return PERF_EXIT_USAGE;
  }
  if (j->o.tuning && !perf_tuning_prepare()) {
    perf_say("-U: no memory");
    return PERF_EXIT_INTERNAL;
  }
  perf_device_prepare();
  if (!perf_launch(&j->o, &place, &j->world)) {
    return PERF_EXIT_INTERNAL;
  }
  if (j->world.supervisor) {
    return j->world.status;
  }
  perf_name_process(j->world.proc, j->world.procs, j->o.threads * j->o.gpus);
  perf_in_job(&j->world);
  if (j->world.proc == 0) {
    fputs(hint.buf, stderr);
    fputs(notes, stderr);
  }
  return run_job(j, argc, argv);
}

int perf_main(const perf_coll *coll, int argc, char **argv)
{
  perf_job job = {.coll = coll, .program = program_invocation_short_name};
  perf_text text;
  switch (perf_options_parse(&job.o, argc, argv, &text)) {
  case PERF_HELP: return help(coll, job.program);
  case PERF_BAD: return usage_error(text.buf);
  default: return launch_job(&job, argc, argv, text.buf);
  }
}
