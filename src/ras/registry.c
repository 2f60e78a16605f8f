// registry.c: see registry.h.
#include "ras/registry.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "ras/server.h"

struct tt_ras_entry {
  tt_ras_entry *next;
  uint64_t number; // in order of joining, from 1
  tt_ras_env env;
  uint64_t tag;
  uint64_t secondary[2];
  tt_ras_member members[];
};

static struct {
  pthread_mutex_t lock;
  tt_ras_entry *first, **end; // in order of joining
  uint64_t last, version;
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

// Before those without a number: a communicator that is asked for its record takes the recorder's lock inside.
__attribute__((constructor(200))) static void registry_at_start(void)
{
  registry.end = &registry.first;
  tt_proc_hold_at_fork(&registry.lock);
}

void ras_registry_forget(void)
{
  registry.first = NULL;
  registry.end = &registry.first;
}

tt_ras_entry *tt_ras_join(const tt_ras_env *env)
{
  size_t n = (size_t)env->nranks;
  if (env->members[env->rank].at.family == 0) {
    return NULL;
  }
  tt_ras_entry *e = tt_calloc(1, sizeof *e + n * sizeof *e->members);
  if (e == NULL) {
    return NULL;
  }
  e->env = *env;
  memcpy(e->members, env->members, n * sizeof *e->members);
  e->env.members = e->members;
  e->tag = tt_key_name(&env->key);
  const tt_proc_id *first = &e->members[0].proc;
  e->secondary[0] = tt_hash(&e->members[0].host, sizeof e->members[0].host, 5);
  e->secondary[1] = tt_hash(first, sizeof *first, 6);
  pthread_mutex_lock(&registry.lock);
  e->number = ++registry.last;
  *registry.end = e;
  registry.end = &e->next;
  registry.version++;
  pthread_mutex_unlock(&registry.lock);
  ras_server_look();
  return e;
}

void tt_ras_leave(tt_ras_entry *entry)
{
  if (entry == NULL) {
    return;
  }
  pthread_mutex_lock(&registry.lock);
  tt_ras_entry **at = &registry.first;
  while (*at != NULL && *at != entry) {
    at = &(*at)->next;
  }
  if (*at != NULL) {
    *at = entry->next;
    registry.end = entry->next == NULL ? at : registry.end;
    registry.version++;
  }
  pthread_mutex_unlock(&registry.lock);
  tt_free(entry);
}

static void registry_read(const tt_ras_entry *e, const tt_addr *host, ras_rank *out)
{
  const tt_ras_member *me = &e->members[e->env.rank];
  *out = (ras_rank){.hash = e->env.hash,
                    .secondary = {e->secondary[0], e->secondary[1]},
                    .cookie = me->proc.cookie,
                    .size = e->env.nranks,
                    .rank = e->env.rank,
                    .pid = me->proc.pid,
                    .device = me->device,
                    .host = *host};
  e->env.read(e->env.comm, &out->state);
}

int ras_registry_ranks(uint64_t *cursor, const tt_addr *host, ras_rank *out, int room)
{
  int n = 0;
  pthread_mutex_lock(&registry.lock);
  const tt_ras_entry *e = registry.first;
  while (e != NULL && e->number <= *cursor) {
    e = e->next;
  }
  for (; e != NULL && n < room; e = e->next) {
    registry_read(e, host, &out[n++]);
    *cursor = e->number;
  }
  *cursor = e != NULL ? *cursor : 0;
  pthread_mutex_unlock(&registry.lock);
  return n;
}

void ras_registry_record(size_t most, ras_text *out)
{
  pthread_mutex_lock(&registry.lock);
  for (const tt_ras_entry *e = registry.first; e != NULL; e = e->next) {
    char *text = e->env.record != NULL ? e->env.record(e->env.comm, most) : NULL;
    if (text != NULL) {
      ras_add(out, "%s%s", out->size > 0 ? ",\n" : "", text);
    }
    free(text);
  }
  pthread_mutex_unlock(&registry.lock);
}

bool ras_registry_member(uint64_t hash, int rank, tt_ras_member *out)
{
  pthread_mutex_lock(&registry.lock);
  const tt_ras_entry *e = registry.first;
  while (e != NULL && (e->env.hash != hash || rank >= e->env.nranks)) {
    e = e->next;
  }
  if (e != NULL) {
    *out = e->members[rank];
  }
  pthread_mutex_unlock(&registry.lock);
  return e != NULL;
}

int ras_registry_kin(uint64_t hash, uint64_t first, bool open, ras_kin *out, int room, uint64_t *next)
{
  uint64_t self = tt_proc_self().cookie, rank = first;
  int n = 0;
  pthread_mutex_lock(&registry.lock);
  const tt_ras_entry *e = registry.first;
  while (e != NULL && (e->env.hash != hash || (open && !e->env.key.is_public))) {
    e = e->next;
  }
  for (; e != NULL && n < room && rank < (uint64_t)e->env.nranks; rank++) {
    const tt_ras_member *m = &e->members[rank];
    if (m->proc.cookie != self && m->at.family != 0) {
      out[n++] = (ras_kin){.hash = hash, .rank = (int32_t)rank, .peer = {.who = *m, .key = e->env.key, .tag = e->tag}};
    }
  }
  *next = e != NULL && rank < (uint64_t)e->env.nranks ? rank : 0;
  pthread_mutex_unlock(&registry.lock);
  return n;
}

uint64_t ras_registry_version(void)
{
  pthread_mutex_lock(&registry.lock);
  uint64_t version = registry.version;
  pthread_mutex_unlock(&registry.lock);
  return version;
}

bool ras_registry_key(uint64_t tag, tt_key *out)
{
  pthread_mutex_lock(&registry.lock);
  const tt_ras_entry *e = registry.first;
  while (e != NULL && e->tag != tag) {
    e = e->next;
  }
  if (e != NULL) {
    *out = e->env.key;
  }
  pthread_mutex_unlock(&registry.lock);
  return e != NULL;
}

// By process, then by key, so that both ends of a pair choose the same one.
static int by_process(const void *a, const void *b)
{
  const ras_sighting *x = a, *y = b;
  uint64_t p = x->peer.who.proc.cookie, q = y->peer.who.proc.cookie;
  int order = (p > q) - (p < q);
  return order != 0 ? order : (x->peer.tag > y->peer.tag) - (x->peer.tag < y->peer.tag);
}

// Fills `out`, if there is one, and returns how many members are another process's.
static int list_others(ras_sighting *out)
{
  uint64_t self = tt_proc_self().cookie;
  int n = 0;
  for (const tt_ras_entry *e = registry.first; e != NULL; e = e->next) {
    for (int i = 0; i < e->env.nranks; i++) {
      const tt_ras_member *m = &e->members[i];
      if (m->proc.cookie == self || m->at.family == 0) {
        continue;
      }
      if (out != NULL) {
        out[n] = (ras_sighting){.peer = {.who = *m, .key = e->env.key, .tag = e->tag}, .number = e->number};
      }
      n++;
    }
  }
  return n;
}

// Each process once, in place, with the address of its newest sighting. Returns how many.
static int merge_sightings(ras_sighting *all, int n)
{
  int kept = 0;
  for (int i = 0; i < n; i++) {
    ras_sighting *last = kept > 0 ? &all[kept - 1] : NULL;
    if (last == NULL || last->peer.who.proc.cookie != all[i].peer.who.proc.cookie) {
      all[kept++] = all[i];
    } else if (all[i].number > last->number) {
      last->number = all[i].number;
      last->peer.who.at = all[i].peer.who.at;
    }
  }
  return kept;
}

int ras_registry_peers(ras_sighting **out)
{
  pthread_mutex_lock(&registry.lock);
  int n = list_others(NULL);
  ras_sighting *all = tt_calloc((size_t)n + 1, sizeof *all);
  n = all != NULL ? list_others(all) : -1;
  pthread_mutex_unlock(&registry.lock);
  if (n > 0) {
    qsort(all, (size_t)n, sizeof *all, by_process);
    n = merge_sightings(all, n);
  }
  *out = all;
  return n;
}

int ras_registry_devices(uint64_t cookie, int *out, int room)
{
  int n = 0;
  pthread_mutex_lock(&registry.lock);
  for (const tt_ras_entry *e = registry.first; e != NULL; e = e->next) {
    for (int i = 0; i < e->env.nranks && n < room; i++) {
      int k = e->members[i].proc.cookie == cookie ? 0 : n + 1;
      while (k < n && out[k] != e->members[i].device) {
        k++;
      }
      if (k == n) {
        out[n++] = e->members[i].device;
      }
    }
  }
  pthread_mutex_unlock(&registry.lock);
  return n;
}
