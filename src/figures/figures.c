// figures.c: the table of figures, and the ones of this process.
#include "figures/figures.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "base/text.h"
#include "base/util.h"
#include "os/cpu.h"
#include "os/own_file.h"

// The library's own: of the machine on which the thresholds of comm/tuning.c were last looked at (2 cores of an AMD
// EPYC of the fourth generation, virtual, Linux 6.18), as tutti-tune --machine measures them.
static const tt_figure_row rows[TT_FIGURES] = {
    [TT_FIG_LINE] = {"line_ps", "ps", "a cache line from core to core", 27000, 5000, 20000000},
    [TT_FIG_PASS] = {"pass_mbs", "MB/s", "sent and received by each of two cores through common memory", 8800, 50,
                     500000},
    [TT_FIG_ADD] = {"add_mbs", "MB/s", "c = a + b in a core's caches, read and written", 114000, 500, 5000000},
    [TT_FIG_CALL_START] = {"call_start_ns", "ns", "the kernel copies 8 bytes between processes", 1460, 20, 200000},
    [TT_FIG_CALL] = {"call_mbs", "MB/s", "the kernel copies 64 KiB for each of two processes", 12400, 50, 500000},
    [TT_FIG_SWITCH] = {"switch_ns", "ns", "a core goes on with another thread", 2400, 50, 1000000},
    [TT_FIG_NET_WAY] = {"net_way_ns", "ns", "8 bytes one way over TCP on this machine", 3900, 500, 5000000},
    [TT_FIG_NET_CALL] = {"net_call_ns", "ns", "sending, or receiving, 8 bytes over TCP", 2760, 50, 1000000},
    [TT_FIG_NET] = {"net_mbs", "MB/s", "sent and received over TCP by one core", 23800, 10, 200000},
    [TT_FIG_L2] = {"l2_kib", "KiB", "a core's second-level cache", 1024, 64, 65536},
};

const tt_figure_row *tt_figure_row_at(tt_figure f)
{
  return &rows[f];
}

tt_figures tt_figures_default(void)
{
  tt_figures f = {.version = TT_FIGURES_VERSION};
  for (int i = 0; i < TT_FIGURES; i++) {
    f.value[i] = rows[i].own;
  }
  return f;
}

bool tt_figures_good(const tt_figures *f)
{
  bool good = f->version == TT_FIGURES_VERSION;
  for (int i = 0; i < TT_FIGURES; i++) {
    good = good && f->value[i] >= rows[i].least && f->value[i] <= rows[i].most;
  }
  return good;
}

double tt_figures_ratio(const tt_figures *f, tt_figure which)
{
  return (double)f->value[which] / (double)rows[which].own;
}

bool tt_figures_same(const tt_figures *a, const tt_figures *b)
{
  return a->version == b->version && memcmp(a->value, b->value, sizeof a->value) == 0;
}

const char *tt_figures_text(const tt_figures *f, char *out, size_t size)
{
  out[0] = 0;
  for (int i = 0; i < TT_FIGURES; i++) {
    tt_list_add(out, size, "%s %u", rows[i].name, f->value[i]);
  }
  return out;
}

tt_machine_kind tt_machine_kind_get(void)
{
  tt_machine_kind k = {.cores = tt_cpu_count()};
  tt_cpu_name(k.cpu, sizeof k.cpu);
  tt_cpu_kernel(k.kernel, sizeof k.kernel);
  return k;
}

bool tt_figures_place(char *out, size_t size, bool *named, char why[TT_FIGURES_WHY])
{
  const char *wish = tt_params_get()->host_figures;
  *named = wish != NULL;
  if (wish != NULL && strcmp(wish, "none") == 0) {
    snprintf(why, TT_FIGURES_WHY, "NCCL_HOST_FIGURES=none");
    return false;
  }
  if (wish != NULL) {
    snprintf(why, TT_FIGURES_WHY, "the path in NCCL_HOST_FIGURES is too long");
    return snprintf(out, size, "%s", wish) < (int)size;
  }
  tt_machine_kind kind = tt_machine_kind_get();
  char name[64];
  uint64_t hash = tt_hash(kind.cpu, strlen(kind.cpu), tt_hash(kind.kernel, strlen(kind.kernel), (uint64_t)kind.cores));
  snprintf(name, sizeof name, "tutti/figures-%016llx", (unsigned long long)hash);
  snprintf(why, TT_FIGURES_WHY, "neither XDG_CACHE_HOME nor HOME names a folder for them");
  return tt_param_cache(name, out, size);
}

static void read_file(const char *path, bool named, tt_figures_source *out)
{
  char text[TT_FIGURES_MAX_BYTES], file_why[TT_OWN_FILE_WHY], why[TT_FIGURES_WHY];
  bool missing = false;
  tt_machine_kind kind = tt_machine_kind_get();
  long n = tt_own_file_read(path, text, sizeof text, &missing, file_why);
  if (n < 0) {
    snprintf(out->from, sizeof out->from, "%.240s: %s", path, file_why);
    out->bad = named || !missing;
  } else if (!tt_figures_parse(text, (size_t)n, named ? NULL : &kind, &out->figures, why)) {
    snprintf(out->from, sizeof out->from, "%.240s: %s", path, why);
    out->bad = true;
  } else {
    snprintf(out->from, sizeof out->from, "%.240s", path);
  }
}

void tt_figures_find(tt_figures_source *out)
{
  char path[PATH_MAX];
  bool named;
  *out = (tt_figures_source){.figures = tt_figures_default()};
  if (tt_figures_place(path, sizeof path, &named, out->from)) {
    read_file(path, named, out);
  }
}

static tt_figures_source own;

static void read_own(void)
{
  tt_figures_find(&own);
  if (own.bad) {
    tt_warn("the figures of this machine are not used, the library reckons with its own: %s. tutti-tune --machine "
            "measures them",
            own.from);
  }
}

const tt_figures_source *tt_figures_own(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_own);
  return &own;
}
