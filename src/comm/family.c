// family.c: see family.h.
#include "comm/family.h"

#include <pthread.h>

#include "base/result.h"

static pthread_mutex_t family_lock = PTHREAD_MUTEX_INITIALIZER; // over tt_comm_family of all communicators

__attribute__((constructor)) static void family_at_start(void)
{
  tt_proc_hold_at_fork(&family_lock);
}

void tt_family_join(struct ncclComm *parent, struct ncclComm *child)
{
  pthread_mutex_lock(&family_lock);
  child->family.parent = parent;
  child->family.next = parent->family.first;
  parent->family.first = child;
  pthread_mutex_unlock(&family_lock);
}

void tt_family_leave(struct ncclComm *comm)
{
  tt_comm_family *f = &comm->family;
  pthread_mutex_lock(&family_lock);
  for (struct ncclComm *c = f->first; c != NULL; c = c->family.next) {
    c->family.parent = NULL;
  }
  struct ncclComm **at = f->parent != NULL ? &f->parent->family.first : NULL;
  while (at != NULL && *at != comm) {
    at = &(*at)->family.next;
  }
  if (at != NULL) {
    *at = f->next;
  }
  f->parent = f->first = NULL;
  pthread_mutex_unlock(&family_lock);
}

// The next one in a walk through the descendants of `top`, parents first. NULL: that was the last.
static struct ncclComm *next_descendant(const struct ncclComm *top, struct ncclComm *c)
{
  if (c->family.first != NULL) {
    return c->family.first;
  }
  while (c != top && c->family.next == NULL) {
    c = c->family.parent;
  }
  return c == top ? NULL : c->family.next;
}

void tt_family_stop(struct ncclComm *comm)
{
  pthread_mutex_lock(&family_lock);
  for (struct ncclComm *c = comm; (c = next_descendant(comm, c)) != NULL;) {
    tt_last_error_set(
        "the communicator's parent, with which it shares (splitShare, shrinkShare), was aborted or revoked");
    tt_port_stop(&c->port, ncclInternalError);
  }
  pthread_mutex_unlock(&family_lock);
}
