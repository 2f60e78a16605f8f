// report.c: see report.h.
#include "ras/report.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/util.h"

const char *const ras_func_names[TT_RAS_FUNCS] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"};

// By number (tt_verdict.class).
static const char *const ras_classes[] = {"none", "late", "stuck", "behind", "remote", "network", "deadlock", "circle"};

uint32_t tt_ras_class_number(const char *class)
{
  uint32_t i = TT_COUNT(ras_classes);
  do {
    i--;
  } while (i > 0 && strcmp(ras_classes[i], class) != 0);
  return i;
}

const char *ras_class_text(const tt_ras_state *s)
{
  return ras_classes[s->verdict < TT_COUNT(ras_classes) ? s->verdict : 0];
}

const char *ras_last_text(const tt_ras_state *s, char buf[TT_CALL_TEXT])
{
  buf[0] = '\0';
  return s->last_sig == 0 && s->last_count == 0 ? buf : tt_call_describe(buf, s->last_sig, s->last_count, -1);
}

static int compare_u64(uint64_t a, uint64_t b)
{
  return (a > b) - (a < b);
}

static int by_comm(const void *a, const void *b)
{
  const ras_rank *x = a, *y = b;
  int order = compare_u64(x->hash, y->hash);
  order = order != 0 ? order : compare_u64(x->secondary[0], y->secondary[0]);
  order = order != 0 ? order : compare_u64(x->secondary[1], y->secondary[1]);
  return order != 0 ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

static bool same_comm(const ras_rank *a, const ras_rank *b)
{
  return a->hash == b->hash && a->secondary[0] == b->secondary[0] && a->secondary[1] == b->secondary[1];
}

ras_status ras_status_of(const tt_ras_state *s)
{
  return s->abort_flag                           ? RAS_ABORT
         : s->finalize_called || s->destroy_flag ? RAS_FINALIZE
         : s->init_state == (int)ncclInProgress  ? RAS_INIT
         : s->init_state != (int)ncclSuccess     ? RAS_NOCOMM
                                                 : RAS_RUNNING;
}

static bool rank_has_error(const tt_ras_state *s)
{
  return (s->init_state != (int)ncclSuccess && s->init_state != (int)ncclInProgress) ||
         (s->async_error != (int)ncclSuccess && s->async_error != (int)ncclInProgress);
}

static unsigned errors_of(const ras_comm *c)
{
  unsigned errors = c->n < c->size ? RAS_INCOMPLETE : 0;
  for (int i = 0; i < c->n; i++) {
    const tt_ras_state *s = &c->ranks[i].state, *first = &c->ranks[0].state;
    errors |= rank_has_error(s) ? RAS_ERROR : 0;
    bool differs = ras_status_of(s) != ras_status_of(first) || memcmp(s->counts, first->counts, sizeof s->counts) != 0;
    errors |= differs ? RAS_MISMATCH : 0;
  }
  return errors;
}

static int by_ip(const void *a, const void *b)
{
  return memcmp(((const tt_addr *)a)->ip, ((const tt_addr *)b)->ip, sizeof((const tt_addr *)a)->ip);
}

static int by_kinship(const void *a, const void *b)
{
  const ras_kin *x = a, *y = b;
  int order = compare_u64(x->hash, y->hash);
  return order != 0 ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

// What a rank of a communicator is known by, of this process's own or another's. False: by nothing.
static bool find_member(const ras_report *r, uint64_t hash, int rank, tt_ras_member *out)
{
  const ras_kin wanted = {.hash = hash, .rank = rank};
  if (ras_registry_member(hash, rank, out)) {
    return true;
  }
  const ras_kin *kin = r->nkin > 0 ? bsearch(&wanted, r->kin, (size_t)r->nkin, sizeof *kin, by_kinship) : NULL;
  if (kin != NULL) {
    *out = kin->peer.who;
  }
  return kin != NULL;
}

// Machines of the ranks that are known, and how many ranks are on each.
static void count_nodes(const ras_report *report, ras_comm *c, tt_addr *hosts)
{
  int n = 0;
  for (int i = 0; i < c->size; i++) {
    tt_ras_member m;
    const ras_rank *r = NULL;
    for (int k = i < c->n ? i : c->n - 1; k >= 0 && r == NULL && c->ranks[k].rank >= i; k--) {
      r = c->ranks[k].rank == i ? &c->ranks[k] : NULL;
    }
    if (r != NULL) {
      hosts[n++] = r->host;
    } else if (find_member(report, c->ranks[0].hash, i, &m)) {
      hosts[n++] = m.at;
    }
  }
  ras_sort(hosts, n, sizeof *hosts, by_ip);
  c->nodes = c->most = 0;
  c->least = n;
  for (int i = 0, end; i < n; i = end) {
    for (end = i + 1; end < n && by_ip(&hosts[i], &hosts[end]) == 0; end++) {
    }
    c->nodes++;
    c->least = TT_MIN(c->least, end - i);
    c->most = TT_MAX(c->most, end - i);
  }
}

// Ranks are numbers below the size, each once: what others send is not trusted.
static void drop_bad_ranks(ras_report *r)
{
  int kept = 0;
  for (int i = 0; i < r->nranks; i++) {
    const ras_rank *x = &r->ranks[i];
    bool twice = kept > 0 && same_comm(x, &r->ranks[kept - 1]) &&
                 (x->rank == r->ranks[kept - 1].rank || x->size != r->ranks[kept - 1].size);
    if (x->rank >= 0 && x->rank < x->size && x->size <= 1 << 20 && !twice) {
      r->ranks[kept++] = *x;
    }
  }
  r->nranks = kept;
}

static bool make_comms(ras_report *r)
{
  r->comms = tt_calloc((size_t)r->nranks + 1, sizeof *r->comms);
  if (r->comms == NULL) {
    return false;
  }
  for (int i = 0, end; i < r->nranks; i = end) {
    for (end = i + 1; end < r->nranks && same_comm(&r->ranks[i], &r->ranks[end]); end++) {
    }
    ras_comm *c = &r->comms[r->ncomms++];
    *c = (ras_comm){.ranks = &r->ranks[i], .n = end - i, .size = r->ranks[i].size};
    tt_addr *hosts = tt_calloc((size_t)c->size, sizeof *hosts);
    if (hosts == NULL) {
      return false;
    }
    count_nodes(r, c, hosts);
    tt_free(hosts);
    c->errors = errors_of(c);
    for (int k = 0; k < c->n; k++) {
      c->status = TT_MAX(c->status, ras_status_of(&c->ranks[k].state));
    }
  }
  return true;
}

static int by_kind(const void *a, const void *b)
{
  const ras_comm *x = a, *y = b;
  int order = (x->size < y->size) - (x->size > y->size);
  order = order != 0 ? order : x->nodes - y->nodes;
  order = order != 0 ? order : (int)x->status - (int)y->status;
  order = order != 0 ? order : (x->errors > y->errors) - (x->errors < y->errors);
  return order;
}

static int by_kind_and_hash(const void *a, const void *b)
{
  const ras_comm *x = a, *y = b;
  int order = by_kind(x, y);
  return order != 0 ? order : by_comm(x->ranks, y->ranks);
}

bool ras_report_sort(ras_report *r)
{
  ras_sort(r->ranks, r->nranks, sizeof *r->ranks, by_comm);
  ras_sort(r->kin, r->nkin, sizeof *r->kin, by_kinship);
  drop_bad_ranks(r);
  if (!make_comms(r)) {
    return false;
  }
  ras_sort(r->comms, r->ncomms, sizeof *r->comms, by_kind_and_hash);
  for (int i = 0; i < r->ncomms; i++) {
    bool same = i > 0 && by_kind(&r->comms[i - 1], &r->comms[i]) == 0;
    r->comms[i].group = same ? r->comms[i - 1].group : r->ngroups++;
    r->comms[i].place = same ? r->comms[i - 1].place + 1 : 0;
  }
  return true;
}

void ras_report_free(ras_report *r)
{
  tt_free(r->ranks);
  tt_free(r->kin);
  tt_free(r->processes);
  tt_free(r->comms);
  *r = (ras_report){.nranks = 0};
}

static ras_missing missing_rank(const ras_report *r, const ras_comm *c, int rank)
{
  tt_ras_member m;
  if (!find_member(r, c->ranks[0].hash, rank, &m)) {
    return (ras_missing){.rank = rank, .pid = -1, .device = -1, .unresponsive = true};
  }
  ras_missing out = {.rank = rank, .pid = m.proc.pid, .device = m.device, .host = m.at};
  for (int i = 0; i < r->nprocesses; i++) {
    const ras_process *p = &r->processes[i];
    if (p->who.proc.cookie == m.proc.cookie) {
      out.unresponsive = p->unresponsive;
      out.dead = p->dead;
    }
  }
  return out;
}

void ras_report_missing(const ras_report *r, const ras_comm *c, void (*fn)(ras_text *out, const ras_missing *m),
                        ras_text *out)
{
  for (int rank = 0, k = 0; rank < c->size; rank++) {
    if (k < c->n && c->ranks[k].rank == rank) {
      k++;
      continue;
    }
    ras_missing m = missing_rank(r, c, rank);
    fn(out, &m);
  }
}

const char *ras_host_text(const tt_addr *host, char buf[TT_ADDR_TEXT])
{
  return tt_addr_ip_text(host, buf);
}

const char *ras_time_text(char buf[32])
{
  struct tm tm;
  time_t now = time(NULL);
  if (localtime_r(&now, &tm) == NULL || strftime(buf, 32, "%Y-%m-%d %H:%M:%S", &tm) == 0) {
    buf[0] = '\0';
  }
  return buf;
}
