// write_text.c: the report as text, in NCCL's form.
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "base/util.h"
#include "device/lane.h"
#include "ras/report.h"

static const char *const status_names[] = {"NOCOMM", "INIT", "RUNNING", "FINALIZE", "ABORT"};

static const char *plural(int n)
{
  return n == 1 ? "" : "s";
}

// "a" or "a-b".
static const char *range_text(int a, int b, char buf[24])
{
  snprintf(buf, 24, a == b ? "%d" : "%d-%d", a, b);
  return buf;
}

static const char *errors_text(unsigned errors, char buf[40])
{
  static const char *const names[] = {"INCOMPLETE", "ERROR", "MISMATCH"};
  buf[0] = '\0';
  for (unsigned i = 0; i < TT_COUNT(names); i++) {
    if (errors >> i & 1) {
      size_t n = strlen(buf);
      snprintf(buf + n, 40 - n, "%s%s", n == 0 ? "" : ",", names[i]);
    }
  }
  return buf[0] == '\0' ? "OK" : buf;
}

// ---- how often values come

typedef struct ras_tally {
  uint64_t value;
  int n;
} ras_tally;

static int by_count(const void *a, const void *b)
{
  const ras_tally *x = a, *y = b;
  return x->n != y->n ? y->n - x->n : (x->value > y->value) - (x->value < y->value);
}

// Counts a value among the `n` known ones, for which there is room for one more; returns how many there are now.
static int tally_add(ras_tally *sums, int n, uint64_t value)
{
  int k = 0;
  while (k < n && sums[k].value != value) {
    k++;
  }
  sums[k] = (ras_tally){.value = value, .n = k < n ? sums[k].n + 1 : 1};
  return TT_MAX(n, k + 1);
}

// Ranks, and nodes, are named where they are few: NCCL's rule.
static bool is_outlier(int n, int all, bool verbose)
{
  return n == 1 || (verbose ? 2 * n < all : n <= 10 && 4 * n <= all);
}

// ---- summary

static int by_host(const void *a, const void *b)
{
  const ras_process *x = a, *y = b;
  int order = memcmp(x->who.at.ip, y->who.at.ip, sizeof x->who.at.ip);
  return order != 0 ? order : (x->who.proc.pid > y->who.proc.pid) - (x->who.proc.pid < y->who.proc.pid);
}

static int by_device(const void *a, const void *b)
{
  const ras_rank *x = *(const ras_rank *const *)a, *y = *(const ras_rank *const *)b;
  int order = (x->cookie > y->cookie) - (x->cookie < y->cookie);
  return order != 0 ? order : (x->device > y->device) - (x->device < y->device);
}

// Distinct pairs of process and device among the ranks of `n` communicators; *least and *most: of one process.
static int count_devices(const ras_comm *comms, int n, int *least, int *most)
{
  int nranks = 0, all = 0, here = 0;
  for (int i = 0; i < n; i++) {
    nranks += comms[i].n;
  }
  const ras_rank **order = tt_calloc((size_t)nranks + 1, sizeof *order);
  *least = *most = nranks = 0;
  for (int i = 0; order != NULL && i < n; i++) {
    for (int k = 0; k < comms[i].n; k++) {
      order[nranks++] = &comms[i].ranks[k];
    }
  }
  ras_sort((void *)order, nranks, sizeof *order, by_device);
  for (int i = 0; i < nranks; i++) {
    bool same = i > 0 && order[i]->cookie == order[i - 1]->cookie;
    bool new = !same || order[i]->device != order[i - 1]->device;
    here = same ? here + new : 1;
    all += new;
    if (i + 1 == nranks || order[i + 1]->cookie != order[i]->cookie) {
      *least = *least == 0 ? here : TT_MIN(*least, here);
      *most = TT_MAX(*most, here);
    }
  }
  tt_free((void *)order);
  return all;
}

// End of the processes of the node that begins at `i`. They are sorted by host.
static int node_end(const ras_report *r, int i)
{
  int end = i + 1;
  while (end < r->nprocesses && memcmp(r->processes[i].who.at.ip, r->processes[end].who.at.ip, 16) == 0) {
    end++;
  }
  return end;
}

// Nodes with different numbers of processes: how many have which number, and which ones are few.
static void add_distribution(ras_text *out, const ras_report *r)
{
  ras_tally *sums = tt_calloc((size_t)r->nprocesses + 1, sizeof *sums);
  int n = 0, nodes = 0;
  bool first = true;
  for (int i = 0, end; sums != NULL && i < r->nprocesses; i = end) {
    end = node_end(r, i);
    n = tally_add(sums, n, (uint64_t)(end - i));
    nodes++;
  }
  ras_sort(sums, n, sizeof *sums, by_count);
  ras_add(out, "  Nodes  Processes  Processes\n          per node    (total)\n");
  for (int k = 0; k < n; k++) {
    ras_add(out, "%7d  %9d  %9d\n", sums[k].n, (int)sums[k].value, sums[k].n * (int)sums[k].value);
  }
  for (int i = 0, end; i < r->nprocesses; i = end) {
    char host[TT_ADDR_TEXT];
    int k = 0;
    end = node_end(r, i);
    while (k < n && sums[k].value != (uint64_t)(end - i)) {
      k++;
    }
    if (k < n && is_outlier(sums[k].n, nodes, false)) {
      ras_add(out, "%s  Node %s: %d process%s\n", first ? "\nThe outlier node(s):\n" : "",
              ras_host_text(&r->processes[i].who.at, host), end - i, end - i == 1 ? "" : "es");
      first = false;
    }
  }
  ras_add(out, "\n");
  tt_free(sums);
}

static void add_summary(ras_text *out, const ras_report *r)
{
  int nodes = 0, least = r->nprocesses, most = 0, fewest, greatest;
  char per_node[24], per_process[24];
  for (int i = 0, end; i < r->nprocesses; i = end) {
    end = node_end(r, i);
    nodes++;
    least = TT_MIN(least, end - i);
    most = TT_MAX(most, end - i);
  }
  int devices = count_devices(r->comms, r->ncomms, &fewest, &greatest);
  ras_add(out,
          "Job summary\n===========\n\n"
          "  Nodes  Processes         GPUs  Processes     GPUs\n"
          "(total)   per node  per process    (total)  (total)\n"
          "%7d  %9s  %11s  %9d  %7d\n\n",
          nodes, range_text(least, most, per_node), range_text(fewest, greatest, per_process), r->nprocesses, devices);
  if (least != most) {
    add_distribution(out, r);
  }
}

// ---- groups

static void add_group(ras_text *out, const ras_comm *c, int n)
{
  int fewest, most;
  char per_node[24], errors[40];
  int devices = count_devices(c, n, &fewest, &most);
  ras_add(out, "%5d  %8d  %8d  %8s  %8d  %8d  %8s  %6s\n", c->group, n, c->nodes,
          range_text(c->least, c->most, per_node), c->size, devices, status_names[c->status],
          errors_text(c->errors, errors));
}

static void add_groups(ras_text *out, const ras_report *r)
{
  ras_add(out, "Communicators... (%.2fs)\n=============\n\n", r->seconds);
  if (r->ncomms == 0) {
    ras_add(out, "No communicator data collected!\n\n");
    return;
  }
  ras_add(out, "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
               "    #  in group  per comm  per node  per comm  in group\n");
  for (int i = 0, end; i < r->ncomms; i = end) {
    for (end = i + 1; end < r->ncomms && r->comms[end].group == r->comms[i].group; end++) {
    }
    add_group(out, &r->comms[i], end - i);
  }
  ras_add(out, "\n");
}

// ---- errors

static bool process_is_missing(const ras_process *p)
{
  return !p->answered && !p->dead;
}

static bool process_is_dead(const ras_process *p)
{
  return p->dead;
}

static void add_processes(ras_text *out, const ras_report *r, bool (*is)(const ras_process *p), const char *title,
                          const char *form)
{
  char host[TT_ADDR_TEXT];
  int n = 0;
  for (int i = 0; i < r->nprocesses; i++) {
    n += is(&r->processes[i]);
  }
  if (n == 0) {
    return;
  }
  ras_add(out, "%s\n  ", title);
  ras_add(out,
          form[0] == 'M' ? "Missing communicator data from %d job process%s\n"
                         : "%d job process%s considered dead (unreachable via the RAS network)\n",
          n,
          form[0] == 'M' ? n == 1 ? "" : "es"
          : n == 1       ? " is"
                         : "es are");
  for (int i = 0; i < r->nprocesses; i++) {
    const ras_process *p = &r->processes[i];
    if (is(p)) {
      ras_add(out, "  Process %d on node %s managing GPU %d\n", p->who.proc.pid, ras_host_text(&p->who.at, host),
              p->who.device);
    }
  }
  ras_add(out, "\n");
}

static void add_missing_line(ras_text *out, const ras_missing *m)
{
  char host[TT_ADDR_TEXT];
  if (m->pid < 0) {
    ras_add(out, "  Rank %d -- [process information not found]\n", m->rank);
  } else {
    ras_add(out, "  Rank %d -- GPU %d managed by process %d on node %s\n", m->rank, m->device, m->pid,
            ras_host_text(&m->host, host));
  }
}

// "Rank 3 <what> -- GPU 3 managed by process 77 on node 10.0.0.2".
static void add_rank_line(ras_text *out, const ras_rank *r, const char *what)
{
  char host[TT_ADDR_TEXT];
  ras_add(out, "  Rank %d %s -- GPU %d managed by process %d on node %s\n", r->rank, what, r->device, r->pid,
          ras_host_text(&r->host, host));
}

static void add_title(ras_text *out, const ras_comm *c, const char *what)
{
  ras_add(out, "#%d-%d (%016llx) %s\n", c->group, c->place, (unsigned long long)c->ranks[0].hash, what);
}

// What ranks are compared by: a value of each, and what to say of those that share it. 0 is not said where `silent_0`.
typedef struct ras_trait {
  uint64_t (*value)(const tt_ras_state *s, int arg);
  int arg;
  void (*say)(uint64_t value, char *text, size_t size); // "status RUNNING"
  const char *of_many, *of_one;                         // "have", "has"
  bool silent_0;
} ras_trait;

// How often each value comes, the most frequent first; returns how many values there are.
static int tally(const ras_comm *c, const ras_trait *t, ras_tally *out)
{
  int n = 0;
  for (int i = 0; i < c->n; i++) {
    uint64_t value = t->value(&c->ranks[i].state, t->arg);
    n = value == 0 && t->silent_0 ? n : tally_add(out, n, value);
  }
  ras_sort(out, n, sizeof *out, by_count);
  return n;
}

static void add_values(ras_text *out, const ras_comm *c, const ras_trait *t, const ras_tally *sums, int n, bool verbose)
{
  for (int i = 0; i < n; i++) {
    char what[80], line[96];
    t->say(sums[i].value, what, sizeof what);
    if (sums[i].n > 1) {
      ras_add(out, "  %d ranks %s %s\n", sums[i].n, t->of_many, what);
    }
    snprintf(line, sizeof line, "%s %s", t->of_one, what);
    for (int k = 0; is_outlier(sums[i].n, c->n, verbose) && k < c->n; k++) {
      if (t->value(&c->ranks[k].state, t->arg) == sums[i].value) {
        add_rank_line(out, &c->ranks[k], line);
      }
    }
  }
}

// The error of the creation (arg 0) or of the communicator (1).
static uint64_t trait_error(const tt_ras_state *s, int arg)
{
  int32_t code = arg == 0 ? s->init_state : s->async_error;
  return code == (int)ncclInProgress ? 0 : (uint32_t)code;
}

static void say_error(uint64_t value, char *text, size_t size)
{
  static const char *const texts[] = {"no error",       "unhandled cuda error",  "system error",
                                      "internal error", "invalid argument",      "invalid usage",
                                      "remote error",   "operation in progress", "time-out"};
  snprintf(text, size, "%s", value < TT_COUNT(texts) ? texts[value] : "unknown result code");
}

static void add_error(ras_text *out, const ras_comm *c, const char *kind, int arg, bool verbose)
{
  const ras_trait error = {.value = trait_error,
                           .arg = arg,
                           .say = say_error,
                           .of_many = "reported",
                           .of_one = "reported",
                           .silent_0 = true};
  ras_tally *sums = tt_calloc((size_t)c->n, sizeof *sums);
  int n = sums != NULL ? tally(c, &error, sums) : 0, ranks = 0;
  for (int i = 0; i < n; i++) {
    ranks += sums[i].n;
  }
  if (n > 0) {
    ras_add(out, "  %s error%s on %d rank%s\n", kind, plural(ranks), ranks, plural(ranks));
  }
  add_values(out, c, &error, sums, n, verbose);
  tt_free(sums);
}

static void add_errors(ras_text *out, const ras_report *r, bool verbose)
{
  ras_add(out, "Errors\n======\n\n");
  add_processes(out, r, process_is_missing, "INCOMPLETE", "M");
  add_processes(out, r, process_is_dead, "DEAD", "D");
  for (int i = 0; i < r->ncomms; i++) {
    const ras_comm *c = &r->comms[i];
    if (c->errors & RAS_INCOMPLETE) {
      add_title(out, c, "INCOMPLETE");
      ras_add(out, "  Missing communicator data from %d rank%s\n", c->size - c->n, plural(c->size - c->n));
      ras_report_missing(r, c, add_missing_line, out);
      ras_add(out, "\n");
    }
    if (c->errors & RAS_ERROR) {
      add_title(out, c, "ERROR");
      add_error(out, c, "Initialization", 0, verbose);
      add_error(out, c, "Asynchronous", 1, verbose);
      ras_add(out, "\n");
    }
  }
}

// ---- warnings

static uint64_t trait_status(const tt_ras_state *s, int arg)
{
  (void)arg;
  return (uint64_t)ras_status_of(s);
}

static void say_status(uint64_t value, char *text, size_t size)
{
  snprintf(text, size, "status %s", status_names[value]);
}

static uint64_t trait_count(const tt_ras_state *s, int arg)
{
  return s->counts[arg];
}

static void say_count(uint64_t value, char *text, size_t size)
{
  if (value == 0) {
    snprintf(text, size, "not launched any operations");
  } else {
    snprintf(text, size, "launched up to operation %llu", (unsigned long long)value);
  }
}

static void add_trait(ras_text *out, const ras_comm *c, const ras_trait *t, const char *title, bool verbose)
{
  ras_tally *sums = tt_calloc((size_t)c->n, sizeof *sums);
  int n = sums != NULL ? tally(c, t, sums) : 0;
  if (n > 1) {
    add_title(out, c, "MISMATCH");
    ras_add(out, "  %s\n", title);
    add_values(out, c, t, sums, n, verbose);
    ras_add(out, "\n");
  }
  tt_free(sums);
}

static void text_add_waits(ras_text *out, const ras_comm *c)
{
  bool first = true;
  for (int i = 0; i < c->n; i++) {
    const tt_ras_state *s = &c->ranks[i].state;
    char call[TT_CALL_TEXT], what[TT_CALL_TEXT + 80];
    if (s->wait_ms == 0) {
      continue;
    }
    if (first) {
      add_title(out, c, "WAITING");
      first = false;
    }
    if (s->wait_how & TT_WAIT_BEHIND) {
      tt_format(what, sizeof what, "has waited %.1f s behind other work of its stream", (double)s->wait_ms / 1e3);
    } else {
      tt_format(what, sizeof what, "has waited %.1f s for rank %d in %s", (double)s->wait_ms / 1e3, s->wait_peer,
                tt_call_describe(call, s->wait_sig, s->wait_count, s->wait_peer));
    }
    add_rank_line(out, &c->ranks[i], what);
  }
  ras_add(out, "%s", first ? "" : "\n");
}

static void add_warnings(ras_text *out, const ras_report *r, bool verbose)
{
  ras_add(out, "Warnings\n========\n\n");
  if (r->timeouts > 0) {
    ras_add(out, "TIMEOUT\n  Encountered %d communication timeout%s while gathering communicator data\n\n", r->timeouts,
            plural(r->timeouts));
  }
  for (int i = 0; i < r->ncomms; i++) {
    const ras_comm *c = &r->comms[i];
    const ras_trait status = {.value = trait_status, .say = say_status, .of_many = "have", .of_one = "has"};
    add_trait(out, c, &status, "Communicator ranks have different status", verbose);
    for (int f = 0; f < TT_RAS_FUNCS; f++) {
      const ras_trait count = {.value = trait_count, .arg = f, .say = say_count, .of_many = "have", .of_one = "has"};
      char title[80];
      snprintf(title, sizeof title, "Communicator ranks have different %s operation counts", ras_func_names[f]);
      add_trait(out, c, &count, title, verbose);
    }
    text_add_waits(out, c);
  }
}

void ras_write_text(const ras_report *r, bool verbose, ras_text *out)
{
  ras_sort(r->processes, r->nprocesses, sizeof *r->processes, by_host);
  ras_add(out, "NCCL version %d.%d.%d compiled with CUDA %d.%d\nCUDA runtime version %d, driver version %d\n\n",
          NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, RAS_CUDA_VERSION / 1000, RAS_CUDA_VERSION % 1000 / 10, RAS_CUDA_VERSION,
          RAS_CUDA_DRIVER_VERSION);
  add_summary(out, r);
  add_groups(out, r);
  add_errors(out, r, verbose);
  add_warnings(out, r, verbose);
}
