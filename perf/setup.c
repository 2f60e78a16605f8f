// Ranks, devices, communicators and buffers of this process.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"
#include "fail.h"
#include "split.h"
#include "system.h"

static void must(bool ok)
{
  if (!ok) {
    perf_die(PERF_EXIT_INTERNAL); // the launcher has said why
  }
}

enum { COMPLAINT = 512, MOST_DEVICES = 1 << 20 };

// Every process says what is wrong in its eyes, or NULL. If anything is, process 0 prints the first complaint, and all
// end in good order.
static void agree(perf_job *j, int status, const char *why)
{
  char mine[COMPLAINT] = "";
  snprintf(mine, sizeof(mine), "%s", why ? why : "");
  char(*all)[COMPLAINT] = calloc((size_t)j->world.procs, sizeof(*all));
  must(all && j->world.launcher->allgather(&j->world, mine, all, sizeof(mine)));
  int p = 0;
  while (p < j->world.procs && !all[p][0]) {
    p++;
  }
  if (p < j->world.procs && j->world.proc == 0) {
    char name[32] = "";
    if (p > 0) {
      snprintf(name, sizeof(name), "process %d: ", p);
    }
    perf_say("%s%s", name, all[p]);
  }
  bool content = p == j->world.procs;
  free(all);
  if (!content) {
    perf_quit(status);
  }
}

void perf_check_job(perf_job *j)
{
  char why[COMPLAINT];
  uint64_t mine = perf_hash(j->program, perf_options_hash(&j->o)), first = mine;
  must(j->world.launcher->bcast(&j->world, &first, sizeof(first), 0));
  agree(j, PERF_EXIT_USAGE,
        mine != first ? "was started with other options, or is another program, than process 0" : NULL);
  snprintf(why, sizeof(why), "%d processes x -t %d x -g %d: more than %d ranks", j->world.procs, j->o.threads,
           j->o.gpus, PERF_MAX_RANKS);
  agree(j, PERF_EXIT_USAGE, j->nworld > PERF_MAX_RANKS ? why : NULL);
  snprintf(why, sizeof(why), "-D %d: device implementations are not supported on %s", j->o.device_impl,
           perf_devices()->name);
  agree(j, PERF_EXIT_IMPOSSIBLE, j->o.device_impl ? why : NULL);
}

void perf_mark_memory(perf_job *j, int mark)
{
  j->memory[mark] = perf_devices()->memory(j);
}

// What NCCL_TESTS_SPLIT counts in a job of one process, where nccl-tests has nothing to count: its threads, with one
// thread its devices.
static int unit_of(const perf_job *j, int world_rank)
{
  return j->o.threads > 1 ? world_rank / j->o.gpus : world_rank;
}

static void read_split(perf_job *j, perf_split *split)
{
  const char *text = perf_env("NCCL_TESTS_SPLIT"), *mask = perf_env("NCCL_TESTS_SPLIT_MASK");
  char why[COMPLAINT];
  snprintf(why, sizeof(why), "%s='%.100s': want AND, OR, MOD or DIV (or & | %% /) and a number, such as \"MOD 2\"",
           mask ? "NCCL_TESTS_SPLIT_MASK (hexadecimal)" : "NCCL_TESTS_SPLIT",
           mask   ? mask
           : text ? text
                  : "");
  agree(j, PERF_EXIT_USAGE, perf_split_parse(text, mask, split) ? NULL : why);
}

// Colour of every rank of the job, in an array the caller frees. Each process has its own variables.
static int *colors(perf_job *j)
{
  perf_split split;
  read_split(j, &split);
  int *color = calloc((size_t)j->nworld, sizeof(*color)), *given = calloc((size_t)j->world.procs, sizeof(*given));
  int mine = perf_split_color(&split, j->world.proc);
  must(color && given && j->world.launcher->allgather(&j->world, &mine, given, sizeof(mine)));
  for (int r = 0; r < j->nworld; r++) {
    color[r] = j->world.procs > 1 ? given[r / j->nlocal] : perf_split_color(&split, unit_of(j, r));
  }
  free(given);
  return color;
}

// First rank of the group of `rank`: its process makes the group's unique id.
static int leader_of(const int *color, int rank)
{
  int r = 0;
  while (color[r] != color[rank]) {
    r++;
  }
  return r;
}

static void number_in_group(perf_rank *r, const int *color, int nworld)
{
  r->group = color[r->world_rank];
  r->rank = r->nranks = 0;
  for (int other = 0; other < nworld; other++) {
    if (color[other] == r->group) {
      r->rank += other < r->world_rank;
      r->nranks++;
    }
  }
}

// One id per group, from the process of its leader to all.
static void share_ids(perf_job *j, const int *color)
{
  for (int leader = 0; leader < j->nworld; leader++) {
    if (leader_of(color, leader) != leader) {
      continue;
    }
    ncclUniqueId id = {0};
    int owner = leader / j->nlocal;
    if (owner == j->world.proc) {
      PERF_NCCL(ncclGetUniqueId(&id));
    }
    must(j->world.launcher->bcast(&j->world, &id, sizeof(id), owner));
    for (int i = 0; i < j->nlocal; i++) {
      if (j->ranks[i].group == color[leader]) {
        j->ranks[i].id = id;
      }
    }
  }
}

static void assign_devices(perf_job *j)
{
  const char *given = perf_env("NCCL_TESTS_DEVICE"), *text = given && *given ? given : NULL;
  char why[COMPLAINT];
  int base = 0;
  bool clear = !text || perf_parse_count(text, MOST_DEVICES, &base);
  snprintf(why, sizeof(why), "NCCL_TESTS_DEVICE='%.100s': want the number of this process's first device, 0 to %d",
           text ? text : "", MOST_DEVICES);
  agree(j, PERF_EXIT_USAGE, clear ? NULL : why);
  int needed = base + (perf_devices()->shared ? 1 : j->nlocal * (text ? 1 : j->world.local_procs));
  int available;
  PERF_NCCL(perf_devices()->count(&available));
  snprintf(why, sizeof(why),
           "Invalid number of GPUs: %d requested but only %d were found.\n"
           "Please check the number of processes and GPUs per process%s.",
           needed, available, perf_devices()->shared ? "" : " (NCCL_HOST_DEVICES sets the number of host devices)");
  agree(j, PERF_EXIT_IMPOSSIBLE, needed > available ? why : NULL);
  for (int i = 0; i < j->nlocal; i++) {
    j->ranks[i].device = (base + (text ? 0 : j->world.local_proc * j->nlocal) + i) % available;
  }
}

// The NULL stream is one for all ranks of the process on a GPU. What they queue there one after the other, and not in a
// group, would wait for itself.
static bool stuck(const perf_job *j, int a, int b)
{
  return j->ranks[a].device == j->ranks[b].device && (a / j->o.gpus != b / j->o.gpus || j->coll->no_group);
}

static void check_null_stream(perf_job *j)
{
  char why[COMPLAINT] = "";
  for (int a = 0; a < j->nlocal && j->o.stream_null && perf_devices()->shared; a++) {
    for (int b = a + 1; b < j->nlocal && !*why; b++) {
      if (stuck(j, a, b)) {
        snprintf(why, sizeof(why), "-y 1: ranks %d and %d would wait for each other on the NULL stream of GPU %d",
                 j->ranks[a].world_rank, j->ranks[b].world_rank, j->ranks[a].device);
      }
    }
  }
  agree(j, PERF_EXIT_IMPOSSIBLE, *why ? why : NULL);
}

static int smallest_group(const perf_job *j, const int *color)
{
  int smallest = j->nworld;
  for (int r = 0; r < j->nworld; r++) {
    int members = 0;
    for (int other = 0; other < j->nworld; other++) {
      members += color[other] == color[r];
    }
    smallest = members < smallest ? members : smallest;
  }
  return smallest;
}

void perf_plan_ranks(perf_job *j)
{
  char why[COMPLAINT];
  int *color = colors(j);
  for (int i = 0; i < j->nlocal; i++) {
    j->ranks[i].world_rank = j->world.proc * j->nlocal + i;
    number_in_group(&j->ranks[i], color, j->nworld);
  }
  snprintf(why, sizeof(why), "-r,--root %d: there are %d ranks", j->o.root, smallest_group(j, color));
  agree(j, PERF_EXIT_USAGE, j->coll->rooted && j->o.root >= smallest_group(j, color) ? why : NULL);
  agree(j, PERF_EXIT_USAGE,
        j->coll->prepare ? j->coll->prepare(j->o.min_bytes, j->o.max_bytes, j->ranks[0].nranks) : NULL);
  assign_devices(j);
  check_null_stream(j);
  share_ids(j, color);
  free(color);
}

// A rank has a send and a receive buffer.
static size_t most_bytes_here(const perf_job *j)
{
  size_t each = SIZE_MAX;
  for (int i = 0; i < j->nlocal; i++) {
    size_t room = perf_devices()->room(j, &j->ranks[i]) / 2;
    each = room < each ? room : each;
  }
  size_t extra = 2 * PERF_GUARD + 8 * (size_t)j->o.unalign;
  return each > extra ? each - extra : 0;
}

void perf_plan_memory(perf_job *j)
{
  size_t mine = most_bytes_here(j);
  size_t *all = calloc((size_t)j->world.procs, sizeof(*all));
  must(all && j->world.launcher->allgather(&j->world, &mine, all, sizeof(mine)));
  for (int p = 0; p < j->world.procs; p++) {
    mine = all[p] < mine ? all[p] : mine;
  }
  free(all);
  mine &= ~(size_t)4095;
  if (j->o.max_bytes <= mine) {
    return;
  }
  if (mine == 0) { // all processes have the same minimum
    char why[COMPLAINT];
    snprintf(why, sizeof(why), "-e,--maxbytes %zu: no memory for the buffers of %d ranks", j->o.max_bytes, j->nworld);
    agree(j, PERF_EXIT_USAGE, why);
  }
  j->o.max_bytes = mine;
  j->o.min_bytes = j->o.min_bytes < mine ? j->o.min_bytes : mine;
  if (j->world.proc == 0) {
    printf("#\n# Reducing maxBytes to %zu due to memory limitation\n", mine);
  }
}

// Ranks of the job on the same device as this one.
static int sharers(const perf_device *all, int count, const perf_device *mine)
{
  int n = 0;
  for (int r = 0; r < count; r++) {
    n += strcmp(all[r].host, mine->host) == 0 && strcmp(all[r].bus, mine->bus) == 0;
  }
  return n;
}

static void describe(const perf_rank *r, const char *host, perf_device *d)
{
  *d = (perf_device){.rank = r->world_rank, .group = r->group, .pid = (int)getpid(), .device = r->device};
  snprintf(d->host, sizeof(d->host), "%s", host);
  perf_devices()->describe(r->device, d);
}

void perf_print_devices(perf_job *j)
{
  char host[64], line[512];
  perf_host_name(host, sizeof(host));
  perf_device *mine = calloc((size_t)j->nlocal, sizeof(*mine));
  perf_device *all = calloc((size_t)j->nworld, sizeof(*all));
  must(mine && all);
  for (int i = 0; i < j->nlocal; i++) {
    describe(&j->ranks[i], host, &mine[i]);
  }
  must(j->world.launcher->allgather(&j->world, mine, all, (size_t)j->nlocal * sizeof(*mine)));
  for (int i = 0; i < j->nlocal && perf_devices()->shared; i++) {
    j->ranks[i].sharing = sharers(all, j->nworld, &mine[i]);
  }
  for (int r = 0; j->world.proc == 0 && r < j->nworld; r++) {
    perf_report_device(&all[r], line, sizeof(line));
    fputs(line, stdout);
  }
  perf_json_config(j->json, &j->o, all, j->nworld);
  free(mine);
  free(all);
}

void perf_make_comms(perf_job *j, int first, int count)
{
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (j->o.cta_policy >= 0) {
    config.CTAPolicy = j->o.cta_policy;
  }
  if (j->coll->max_p2p_peers) {
    config.maxP2pPeers = j->coll->max_p2p_peers;
  }
  int thread = first / j->o.gpus;
  perf_monitor_begin(j->monitor, thread, "ncclCommInitRankConfig");
  PERF_NCCL(ncclGroupStart());
  for (int i = first; i < first + count; i++) {
    perf_rank *r = &j->ranks[i];
    PERF_NCCL(perf_devices()->set(r->device));
    PERF_NCCL(ncclCommInitRankConfig(&r->comm, r->nranks, r->id, r->rank, &config));
  }
  PERF_NCCL(ncclGroupEnd());
  perf_monitor_end(j->monitor, thread);
  for (int i = first; i < first + count && !j->o.stream_null; i++) {
    PERF_NCCL(perf_devices()->open_stream(&j->ranks[i]));
  }
}

static size_t allocation_size(const perf_job *j)
{
  size_t size = j->o.max_bytes + 8 * (size_t)j->o.unalign + 2 * PERF_GUARD;
  return (size + 4095) & ~(size_t)4095; // windows want whole pages
}

static void allocate(perf_job *j, const perf_rank *r, char **memory)
{
  void *p;
  size_t size = allocation_size(j);
  PERF_NCCL(j->o.local_register ? ncclMemAlloc(&p, size) : perf_devices()->alloc(r, size, &p));
  PERF_NCCL(perf_devices()->zero(r, p, size)); // no page faults during measurements
  *memory = p;
}

static void register_buffer(const perf_job *j, const perf_rank *r, char *memory, void **handle)
{
  if (j->o.local_register == 2) {
    PERF_NCCL(
        ncclCommWindowRegister(r->comm, memory, allocation_size(j), (ncclWindow_t *)handle, NCCL_WIN_COLL_SYMMETRIC));
  } else if (j->o.local_register == 1) {
    PERF_NCCL(ncclCommRegister(r->comm, memory, allocation_size(j), handle));
  }
}

void perf_make_buffers(perf_job *j, int first, int count)
{
  for (int i = first; i < first + count; i++) {
    perf_rank *r = &j->ranks[i];
    PERF_NCCL(perf_devices()->set(r->device));
    allocate(j, r, &r->send_memory);
    allocate(j, r, &r->recv_memory);
    r->buffers = (perf_buffers){.size = j->o.max_bytes, .reach = perf_devices()->reach, .arg = r};
  }
  if (j->o.local_register) {
    PERF_NCCL(ncclGroupStart());
    for (int i = first; i < first + count; i++) {
      register_buffer(j, &j->ranks[i], j->ranks[i].send_memory, &j->ranks[i].send_handle);
      register_buffer(j, &j->ranks[i], j->ranks[i].recv_memory, &j->ranks[i].recv_handle);
    }
    PERF_NCCL(ncclGroupEnd());
  }
}

static void deregister(const perf_job *j, perf_rank *r)
{
  if (j->o.local_register == 2) {
    PERF_NCCL(ncclCommWindowDeregister(r->comm, r->send_handle));
    PERF_NCCL(ncclCommWindowDeregister(r->comm, r->recv_handle));
  } else if (j->o.local_register == 1) {
    PERF_NCCL(ncclCommDeregister(r->comm, r->send_handle));
    PERF_NCCL(ncclCommDeregister(r->comm, r->recv_handle));
  }
}

static void release(const perf_job *j, const perf_rank *r, char *memory)
{
  PERF_NCCL(j->o.local_register ? ncclMemFree(memory) : perf_devices()->free(r, memory));
}

void perf_unmake(perf_job *j)
{
  for (int i = 0; i < j->nlocal; i++) {
    PERF_NCCL(perf_devices()->set(j->ranks[i].device));
    deregister(j, &j->ranks[i]);
    PERF_NCCL(ncclCommDestroy(j->ranks[i].comm));
  }
  for (int i = 0; i < j->nlocal; i++) {
    perf_rank *r = &j->ranks[i];
    release(j, r, r->send_memory);
    release(j, r, r->recv_memory);
    if (r->stream) {
      PERF_NCCL(perf_devices()->close_stream(r));
    }
  }
}
