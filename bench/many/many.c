// many.c: ranks without a core of their own, and cores that ranks do not need.
//
//   many latency|yield|init|idle|share|overlap [-m processes|threads|one] [-k collective] [-n ranks] [-b bytes] [-c
//   calls] [-q queue]
//     latency  calls of a collective (all_reduce) with a wait after each `queue` (1), and what each costs: time,
//              processor time, changes of the core
//     yield    what so many ranks cost that only yield: no call among them can take less than a turn of each
//     init     from the call to a usable communicator, and the memory that it takes
//     idle     processor time of ranks that wait half a second for the last one
//     share    what a computing process beside the ranks gets: while they wait, and while they reduce
//     overlap  what the library takes from a thread that computes while its all-reduce is in flight
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../pin.h"
#include "many.h"

#define WAIT_S 0.5 // how long ranks wait for the last one
#define REPEATS 5  // of what takes its time as a whole

static double cpu_seconds(const struct rusage *u)
{
  return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) + 1e-6 * (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

static struct rusage used_now(const many_rank *r)
{
  struct rusage u;
  getrusage(r->job->mode == MANY_PROCESSES ? RUSAGE_SELF : RUSAGE_THREAD, &u);
  return u;
}

// ---- latency

static int one_block(many_rank *r, double *seconds)
{
  many_meet(r->job);
  double start = many_now();
  int res = 0;
  for (int i = 0; i < r->job->calls && res == 0; i++) {
    res = many_call(r) || ((i + 1) % r->job->batch == 0 && many_settle(r));
  }
  res = res || many_settle(r);
  *seconds = many_now() - start;
  return res;
}

static int body_latency(many_rank *r)
{
  many_job *job = r->job;
  double warm;
  if (r->n == 1) {
    bench_pin(r->rank);
  }
  if (many_open(r) != 0 || one_block(r, &warm) != 0) {
    return 1;
  }
  struct rusage u = used_now(r);
  for (int b = 0; b < MANY_BLOCKS; b++) {
    if (one_block(r, &job->seconds[b][r->rank]) != 0) {
      return 1;
    }
  }
  job->used[r->rank] = used_now(r);
  job->used[r->rank].ru_nvcsw -= u.ru_nvcsw;
  job->used[r->rank].ru_nivcsw -= u.ru_nivcsw;
  job->before[r->rank] = cpu_seconds(&u);
  job->after[r->rank] = cpu_seconds(&job->used[r->rank]);
  many_meet(job);
  return many_close(r);
}

static int latency(many_job *job)
{
  if (many_run(job, body_latency) != 0) {
    return 1;
  }
  double block[MANY_BLOCKS], cpu = 0, given = 0, taken = 0, ops = (double)job->calls * MANY_BLOCKS;
  for (int b = 0; b < MANY_BLOCKS; b++) {
    block[b] = 0;
    for (int i = 0; i < job->nranks; i++) {
      block[b] = job->seconds[b][i] > block[b] ? job->seconds[b][i] : block[b];
    }
    block[b] *= 1e6 / job->calls;
  }
  for (int i = 0; i < job->nranks; i++) {
    cpu += job->after[i] - job->before[i];
    given += (double)job->used[i].ru_nvcsw;
    taken += (double)job->used[i].ru_nivcsw;
  }
  double median = many_median(block, MANY_BLOCKS);
  printf("us %.2f (least %.2f, quartile %.2f); per call, all ranks: processor us %.2f, cores given away %.2f, taken "
         "away %.2f\n",
         median, block[0], block[MANY_BLOCKS / 4], 1e6 * cpu / ops, given / ops, taken / ops);
  return 0;
}

// ---- yield

static int body_yield(many_rank *r)
{
  many_job *job = r->job;
  bench_pin(r->rank);
  for (int b = 0; b < MANY_BLOCKS; b++) {
    many_meet(job);
    double start = many_now();
    for (int i = 0; i < job->calls; i++) {
      sched_yield();
    }
    job->seconds[b][r->rank] = many_now() - start;
  }
  return 0;
}

static int yields(many_job *job)
{
  if (job->mode == MANY_ONE_THREAD || many_run(job, body_yield) != 0) {
    return 1;
  }
  double turn[MANY_BLOCKS];
  for (int b = 0; b < MANY_BLOCKS; b++) {
    turn[b] = job->seconds[b][0] * 1e6 / job->calls;
  }
  double median = many_median(turn, MANY_BLOCKS);
  printf("us %.2f (least %.2f) for a turn of every rank, %.2f for each on its core\n", median, turn[0],
         median / ((job->nranks + bench_cores() - 1) / bench_cores()));
  return 0;
}

// ---- init

// Kilobytes of the line that begins with `name` in a process's summary of its memory.
static double memory_kb(const char *name)
{
  char line[256];
  double kb = 0;
  FILE *f = fopen("/proc/self/smaps_rollup", "r");
  while (f != NULL && fgets(line, sizeof line, f) != NULL) {
    if (strncmp(line, name, strlen(name)) == 0) {
      kb = strtod(line + strlen(name), NULL);
    }
  }
  if (f != NULL) {
    fclose(f);
  }
  return kb;
}

static int body_init(many_rank *r)
{
  many_job *job = r->job;
  double memory = memory_kb("Pss:"), first;
  many_meet(job);
  double start = many_now();
  if (many_open(r) != 0) {
    return 1;
  }
  job->seconds[0][r->rank] = many_now() - start;
  if (one_block(r, &first) != 0) {
    return 1;
  }
  many_meet(job);
  job->before[r->rank] = memory;
  job->after[r->rank] = memory_kb("Pss:");
  many_meet(job);
  return many_close(r);
}

static int init(many_job *job)
{
  double ms[REPEATS], kb[REPEATS];
  for (int k = 0; k < REPEATS; k++) {
    if (many_run(job, body_init) != 0) {
      return 1;
    }
    ms[k] = kb[k] = 0;
    for (int i = 0; i < job->nranks; i++) {
      ms[k] = 1e3 * job->seconds[0][i] > ms[k] ? 1e3 * job->seconds[0][i] : ms[k];
      kb[k] += job->mode == MANY_PROCESSES || i == 0 ? job->after[i] - job->before[i] : 0;
    }
  }
  double median = many_median(ms, REPEATS);
  printf("ms %.1f (least %.1f, most %.1f); memory, all ranks, after %d all-reduces: %.0f KiB\n", median, ms[0],
         ms[REPEATS - 1], job->calls, many_median(kb, REPEATS));
  return 0;
}

// ---- idle

static int body_idle(many_rank *r)
{
  many_job *job = r->job;
  double warm;
  if (many_open(r) != 0 || one_block(r, &warm) != 0) {
    return 1;
  }
  many_meet(job);
  struct rusage u = used_now(r);
  if (r->rank == job->nranks - 1) {
    usleep((useconds_t)(1e6 * WAIT_S));
  }
  int res = many_call(r) || many_settle(r);
  job->used[r->rank] = used_now(r);
  job->before[r->rank] = cpu_seconds(&u);
  job->after[r->rank] = cpu_seconds(&job->used[r->rank]);
  many_meet(job);
  return res || many_close(r);
}

static int idle(many_job *job)
{
  if (job->mode == MANY_ONE_THREAD || many_run(job, body_idle) != 0) {
    return 1;
  }
  double sum = 0, most = 0;
  for (int i = 0; i < job->nranks - 1; i++) {
    double ms = 1e3 * (job->after[i] - job->before[i]);
    sum += ms;
    most = ms > most ? ms : most;
  }
  printf("processor ms of a rank that waits %.0f ms: %.2f in the mean, %.2f at most\n", 1e3 * WAIT_S,
         sum / (job->nranks - 1), most);
  return 0;
}

// ---- share and overlap

// Computes for so long; returns steps per second of its time.
static double compute(double seconds)
{
  volatile double x = 1;
  long steps = 0;
  double start = many_now(), end = start + seconds, now = start;
  for (; now < end; steps++) {
    for (int i = 0; i < 2000; i++) {
      x = x * 1.0000001 + 1e-9;
    }
    now = many_now();
  }
  return (double)steps / (now - start);
}

static _Atomic int *over; // ends the ranks' calls

static int body_share(many_rank *r)
{
  many_job *job = r->job;
  bench_pin(r->rank);
  double block;
  int res = many_open(r) || one_block(r, &block);
  for (double last = 0; res == 0 && last == 0; last = job->before[0]) {
    res = one_block(r, &block);
    if (r->rank == 0) { // decides for all: they must make the same calls
      job->before[0] = atomic_load(over);
    }
    many_meet(job);
  }
  return res || many_close(r);
}

// The ranks of core 0, and a process that computes there.
static int share(many_job *job)
{
  if (job->mode != MANY_PROCESSES) {
    return 1;
  }
  pid_t ranks = fork();
  if (ranks == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    _exit(many_run(job, body_share) != 0);
  }
  int fair_ranks = (job->nranks + bench_cores() - 1) / bench_cores();
  bench_pin(0);
  usleep(1000000); // until they are under way
  double beside[REPEATS], alone[REPEATS];
  for (int k = 0; k < REPEATS; k++) {
    beside[k] = compute(WAIT_S);
  }
  atomic_store(over, 1);
  int status;
  waitpid(ranks, &status, 0);
  for (int k = 0; k < REPEATS; k++) {
    alone[k] = compute(WAIT_S);
  }
  double got = many_median(beside, REPEATS) / many_median(alone, REPEATS), fair = 1.0 / (fair_ranks + 1);
  printf("beside ranks that reduce: %.0f%% of a core, %.0f%% of a fair share\n", 100 * got, 100 * got / fair);
  return status != 0;
}

// Processor time of this process less that of this thread: what the library's own threads have used.
static double others_seconds(void)
{
  struct rusage all, mine;
  getrusage(RUSAGE_SELF, &all);
  getrusage(RUSAGE_THREAD, &mine);
  return cpu_seconds(&all) - cpu_seconds(&mine);
}

static int body_overlap(many_rank *r)
{
  many_job *job = r->job;
  double warm;
  if (many_open(r) != 0 || one_block(r, &warm) != 0) {
    return 1;
  }
  many_meet(job);
  if (r->rank == job->nranks - 1) { // comes late: until then the others' calls are in flight
    usleep((useconds_t)(1e6 * WAIT_S));
    return many_call(r) || many_settle(r) || (many_meet(job), many_close(r));
  }
  int res = many_call(r);
  double used = others_seconds(), start = many_now();
  compute(WAIT_S / 2);
  job->after[r->rank] = (others_seconds() - used) / (many_now() - start);
  res |= many_settle(r);
  many_meet(job);
  return res || many_close(r);
}

static int overlap(many_job *job)
{
  if (job->mode != MANY_PROCESSES || many_run(job, body_overlap) != 0) {
    return 1;
  }
  double most = 0;
  for (int i = 0; i < job->nranks - 1; i++) {
    most = job->after[i] > most ? job->after[i] : most;
  }
  printf("with an all-reduce in flight that the last rank has not joined, the library uses %.2f%% of a core\n",
         100 * most);
  return 0;
}

// Number of a name; n: there is none such.
static int find(const char *name, const char *const *names, int n)
{
  int i = 0;
  while (i < n && strcmp(names[i], name) != 0) {
    i++;
  }
  return i;
}

static int parse(int argc, char **argv, many_job *job)
{
  static const char *const modes[] = {"processes", "threads", "one"};
  static const char *const collectives[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                            "reduce",     "alltoall",       "sendrecv"};
  *job = (many_job){.nranks = 8, .calls = 100, .batch = 1, .bytes = 8};
  for (int c; (c = getopt(argc, argv, "m:k:n:b:c:q:")) != -1;) {
    switch (c) {
    case 'm': job->mode = (many_mode)find(optarg, modes, 3); break;
    case 'k': job->kind = (many_kind)find(optarg, collectives, MANY_KINDS); break;
    case 'n': job->nranks = atoi(optarg); break;
    case 'b': job->bytes = strtoull(optarg, NULL, 0); break;
    case 'c': job->calls = atoi(optarg); break;
    case 'q': job->batch = atoi(optarg); break;
    default: return 1;
    }
  }
  return (int)job->mode > 2 || job->kind >= MANY_KINDS || job->nranks < 2 || job->nranks > MANY_RANKS ||
         job->bytes < sizeof(float) || job->calls < 1 || job->batch < 1;
}

int main(int argc, char **argv)
{
  static const struct {
    const char *name;
    int (*run)(many_job *job);
  } kinds[] = {{"latency", latency}, {"yield", yields}, {"init", init},
               {"idle", idle},       {"share", share},  {"overlap", overlap}};
  many_job *job = mmap(NULL, sizeof *job + sizeof *over, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (job == MAP_FAILED || argc < 2 || parse(argc - 1, argv + 1, job) != 0) {
    fprintf(stderr,
            "usage: many latency|yield|init|idle|share|overlap [-m processes|threads|one] [-k collective] [-n 2..%d] "
            "[-b bytes] [-c calls] [-q queue]\n",
            MANY_RANKS);
    return 2;
  }
  over = (_Atomic int *)(job + 1);
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    if (strcmp(kinds[i].name, argv[1]) == 0) {
      setpgid(0, 0);
      return kinds[i].run(job);
    }
  }
  fprintf(stderr, "many: there is no measurement %s\n", argv[1]);
  return 2;
}
