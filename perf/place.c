#include "place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_PORT = 20000, PORTS = 12000, LAST_PORT = 65535 };

typedef struct source {
  const char *name;
  const char *rank;
  const char *sizes[4];      // the first that is set counts
  const char *names[3];      // what names the job
  const char *local_size[2]; // processes on this machine; where it is less than the size, loopback will not do
} source;

static const source sources[] = {
    [PERF_BY_NOBODY] = {.name = "nobody"},
    [PERF_BY_TORCHRUN] = {"torchrun", "RANK", {"WORLD_SIZE"}, {"TORCHELASTIC_RUN_ID"}, {NULL}},
    [PERF_BY_SLURM] = {"Slurm",
                       "SLURM_PROCID",
                       {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
                       {"SLURM_JOB_ID", "SLURM_STEP_ID"},
                       {NULL}},
    [PERF_BY_PMIX] =
        {"PMIx", "PMIX_RANK", {"WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, {"PMIX_NAMESPACE"}, {NULL}},
    [PERF_BY_OPENMPI] = {"Open MPI",
                         "OMPI_COMM_WORLD_RANK",
                         {"OMPI_COMM_WORLD_SIZE"},
                         {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE"}},
    [PERF_BY_MPICH] = {"MPICH", "PMI_RANK", {"PMI_SIZE"}, {"PMI_JOBID", "(hydra)"}, {"MPI_LOCALNRANKS"}},
};

const char *perf_by_name(perf_by by)
{
  return sources[by].name;
}

uint64_t perf_hash(const char *text, uint64_t seed)
{
  uint64_t h = seed ^ 0x9e3779b97f4a7c15u;
  for (const char *c = text ? text : ""; *c; c++) {
    h = (h ^ (unsigned char)*c) * 0x100000001b3u;
    h ^= h >> 29;
  }
  h *= 0xbf58476d1ce4e5b9u;
  return h ^ h >> 32;
}

int perf_derived_port(uint64_t job, int i)
{
  char text[16];
  snprintf(text, sizeof(text), "port %d", i);
  return FIRST_PORT + (int)(perf_hash(text, job) % PORTS);
}

bool perf_first_host(const char *list, char *host, size_t size)
{
  size_t len = 0;
  for (const char *c = list; *c && *c != ','; c++) {
    if (*c == '[') {
      size_t first = strcspn(c + 1, "-,]"), all = strcspn(c + 1, "]");
      if (first == 0 || c[1 + all] != ']' || len + first >= size) {
        return false;
      }
      memcpy(host + len, c + 1, first);
      len += first;
      c += 1 + all;
    } else {
      if (*c == ']' || len + 1 >= size) {
        return false;
      }
      host[len++] = *c;
    }
  }
  host[len] = '\0';
  return len > 0;
}

// A variable that is empty is not set.
static const char *value_of(perf_lookup lookup, const char *name)
{
  const char *text = name ? lookup(name) : NULL;
  return text && *text ? text : NULL;
}

static bool fail(perf_text *text, const char *name, const char *value, const char *want)
{
  text->len = 0;
  perf_text_add(text, "%s='%.100s': %s", name, value, want);
  return false;
}

// A number from 0 to `max`.
static bool read_number(perf_lookup lookup, const char *name, long max, int *out, perf_text *text)
{
  const char *value = value_of(lookup, name);
  char *end;
  errno = 0;
  long v = strtol(value, &end, 10);
  if (*end || errno || strspn(value, "0123456789") != strlen(value)) {
    return fail(text, name, value, "not a whole number");
  }
  if (v > max) {
    char want[64];
    snprintf(want, sizeof(want), "must be 0 to %ld", max);
    return fail(text, name, value, want);
  }
  *out = (int)v;
  return true;
}

static const char *size_name(perf_lookup lookup, const source *s)
{
  for (int i = 0; s->sizes[i]; i++) {
    if (value_of(lookup, s->sizes[i])) {
      return s->sizes[i];
    }
  }
  return NULL;
}

// Slurm's own processes: those of a step. The batch script has SLURM_PROCID, too, but is alone. What mpirun starts
// within a step inherits the variables of the daemon that Slurm started.
static bool in_slurm_step(perf_lookup lookup)
{
  static const char *const step[] = {"SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS"};
  const char *space = value_of(lookup, "PMIX_NAMESPACE");
  if (value_of(lookup, "OMPI_COMM_WORLD_RANK") || value_of(lookup, "MPI_LOCALRANKID") ||
      (space && strncmp(space, "slurm.", 6) != 0)) {
    return false;
  }
  for (unsigned i = 0; i < sizeof(step) / sizeof(step[0]); i++) {
    if (value_of(lookup, step[i])) {
      return true;
    }
  }
  return false;
}

static bool both(perf_lookup lookup, const source *s)
{
  return value_of(lookup, s->rank) && size_name(lookup, s);
}

static bool either(perf_lookup lookup, const source *s)
{
  return value_of(lookup, s->rank) || size_name(lookup, s);
}

static bool same_numbers(perf_lookup lookup, const source *a, const source *b)
{
  return both(lookup, a) && both(lookup, b) && strcmp(lookup(a->rank), lookup(b->rank)) == 0 &&
         strcmp(lookup(size_name(lookup, a)), lookup(size_name(lookup, b))) == 0;
}

// Where torchrun was started by an MPI launcher, its processes inherit MPI's numbers, which are those of the torchrun.
// When both say the same, they were only copied, and MPI can do without an address.
static bool by_torchrun(perf_lookup lookup)
{
  const source *torch = &sources[PERF_BY_TORCHRUN];
  return both(lookup, torch) && !same_numbers(lookup, torch, &sources[PERF_BY_OPENMPI]) &&
         !same_numbers(lookup, torch, &sources[PERF_BY_MPICH]);
}

static perf_by choose(perf_lookup lookup)
{
  if (by_torchrun(lookup)) {
    return PERF_BY_TORCHRUN;
  }
  if (in_slurm_step(lookup) && either(lookup, &sources[PERF_BY_SLURM])) {
    return PERF_BY_SLURM;
  }
  if (either(lookup, &sources[PERF_BY_OPENMPI])) {
    return PERF_BY_OPENMPI; // PMIx is beneath it, but does not tell the size
  }
  if (value_of(lookup, "PMIX_RANK")) {
    return PERF_BY_PMIX;
  }
  if (either(lookup, &sources[PERF_BY_MPICH])) {
    return PERF_BY_MPICH;
  }
  return either(lookup, &sources[PERF_BY_TORCHRUN]) ? PERF_BY_TORCHRUN : PERF_BY_NOBODY;
}

static bool incomplete(const source *s, const char *set, const char *missing, perf_text *text)
{
  text->len = 0;
  perf_text_add(text, "%s is set, but %s is not: both together say which process of how many this is (variables of %s)",
                set, missing, s->name);
  return false;
}

static bool read_numbers(perf_lookup lookup, const source *s, perf_place *out, perf_text *text)
{
  const char *size = size_name(lookup, s);
  if (!value_of(lookup, s->rank)) {
    return incomplete(s, size, s->rank, text);
  }
  if (!size && !out->has_server) {
    return incomplete(s, s->rank, s->sizes[0], text);
  }
  out->rank_name = s->rank;
  out->size_name = size ? size : s->sizes[0];
  if (!read_number(lookup, s->rank, INT32_MAX, &out->proc, text)) {
    return false;
  }
  if (!size) {
    out->procs = 0;
    snprintf(out->missing, sizeof(out->missing), "no variable says how many processes there are: set WORLD_SIZE");
    return true;
  }
  if (!read_number(lookup, size, PERF_MAX_RANKS, &out->procs, text)) {
    return false;
  }
  if (out->proc >= out->procs) {
    text->len = 0;
    perf_text_add(text, "%s=%d and %s=%d contradict each other: must be 0 to %d", s->rank, out->proc, size, out->procs,
                  out->procs - 1);
    return false;
  }
  return true;
}

static uint64_t hash_names(perf_lookup lookup, const source *s, bool *named)
{
  bool one_machine = !value_of(lookup, "MASTER_ADDR");
  uint64_t h = perf_hash(s->name, 1);
  *named = false;
  for (int i = 0; i < 3; i++) {
    bool counts = s->names[i] && (one_machine || s->names[i][0] != '('); // every machine has a Hydra proxy of its own
    const char *name = counts ? value_of(lookup, s->names[i]) : NULL;
    h = perf_hash(name, h);
    *named |= name != NULL;
  }
  return h;
}

static bool read_port(perf_lookup lookup, perf_place *out, perf_text *text)
{
  if (!value_of(lookup, "MASTER_PORT")) {
    return true;
  }
  if (!read_number(lookup, "MASTER_PORT", LAST_PORT, &out->port, text)) {
    return false;
  }
  return out->port > 0 || fail(text, "MASTER_PORT", "0", "must be 1 to 65535");
}

static bool copy_host(const char *value, perf_place *out, perf_text *text)
{
  size_t len = strlen(value);
  bool brackets = value[0] == '[' && value[len - 1] == ']'; // IPv6 as in a URL
  len -= brackets ? 2 : 0;
  if (len == 0 || len >= sizeof(out->host)) {
    return fail(text, "MASTER_ADDR", value, "not a host name or address");
  }
  memcpy(out->host, value + brackets, len);
  return true;
}

// The first node of the step, where Slurm puts process 0.
static bool slurm_host(perf_lookup lookup, perf_place *out, perf_text *text)
{
  static const char *const lists[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"};
  for (unsigned i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
    const char *list = value_of(lookup, lists[i]);
    if (list) {
      return perf_first_host(list, out->host, sizeof(out->host)) || fail(text, lists[i], list, "not a list of hosts");
    }
  }
  snprintf(out->missing, sizeof(out->missing), "no SLURM_STEP_NODELIST: set MASTER_ADDR to the host of process 0");
  return true;
}

// MPI's processes on one machine, or PMIx's, of which nobody says that there are several.
static bool loopback(perf_lookup lookup, const source *s, perf_place *out, perf_text *text)
{
  int here = out->procs;
  const char *local = s->local_size[0];
  if (value_of(lookup, local) && !read_number(lookup, local, INT32_MAX, &here, text)) {
    return false;
  }
  if (here < out->procs) {
    snprintf(out->missing, sizeof(out->missing),
             "%s=%d of %d: with several machines, set MASTER_ADDR to the host of process 0", local, here, out->procs);
    return true;
  }
  out->one_machine_assumed = true;
  return copy_host("127.0.0.1", out, text);
}

static bool find_host(perf_lookup lookup, const source *s, perf_place *out, perf_text *text)
{
  const char *given = value_of(lookup, "MASTER_ADDR");
  if (given) {
    return copy_host(given, out, text);
  }
  switch (out->by) {
  case PERF_BY_TORCHRUN:
    snprintf(out->missing, sizeof(out->missing), "set MASTER_ADDR and MASTER_PORT: where process 0 can listen");
    return true;
  case PERF_BY_SLURM: return slurm_host(lookup, out, text);
  default: return loopback(lookup, s, out, text);
  }
}

static bool find_meeting(perf_lookup lookup, const source *s, perf_place *out, perf_text *text)
{
  bool named;
  out->job = hash_names(lookup, s, &named);
  if (!read_port(lookup, out, text) || !find_host(lookup, s, out, text)) {
    return false;
  }
  const char *taken = value_of(lookup, "TORCHELASTIC_USE_AGENT_STORE");
  bool agent_listens = out->by == PERF_BY_TORCHRUN && taken && strcmp(taken, "True") == 0;
  if (out->port) {
    out->job = perf_hash(value_of(lookup, "MASTER_PORT"), out->job);
    out->derived = agent_listens; // torchrun itself is at this port: meet at one that it gives a name to
  } else if (named && out->by != PERF_BY_TORCHRUN) {
    out->derived = true;
  } else if (!out->missing[0]) {
    snprintf(out->missing, sizeof(out->missing), "nothing names the job: set MASTER_PORT%s",
             value_of(lookup, "MASTER_ADDR") ? "" : " (and MASTER_ADDR when there are several machines)");
  }
  if (out->derived) {
    out->port = perf_derived_port(out->job, 0);
  }
  return true;
}

static void note_batch_script(perf_lookup lookup, perf_text *text)
{
  const char *tasks = value_of(lookup, "SLURM_NTASKS");
  if (value_of(lookup, "SLURM_PROCID") && tasks && strcmp(tasks, "1") != 0) {
    perf_text_add(
        text, "# SLURM_NTASKS=%.20s, but this is no step of the job: running as one process (srun starts several)\n",
        tasks);
  }
}

bool perf_place_find(perf_lookup lookup, perf_place *out, perf_text *text)
{
  text->len = 0;
  text->buf[0] = '\0';
  *out = (perf_place){.by = choose(lookup), .procs = 1, .rank_name = "", .size_name = ""};
  if (out->by == PERF_BY_NOBODY) {
    note_batch_script(lookup, text);
    return true;
  }
  const char *space = value_of(lookup, "PMIX_NAMESPACE");
  out->has_server = out->by == PERF_BY_PMIX && space &&
                    (value_of(lookup, "PMIX_SERVER_URI2") || value_of(lookup, "PMIX_SERVER_URI41"));
  const source *s = &sources[out->by];
  return read_numbers(lookup, s, out, text) && find_meeting(lookup, s, out, text);
}
