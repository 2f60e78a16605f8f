// collnet.c: what tutti-plugin asks of a collective network, of every version, without a second process: members,
// devices, properties, what it can reduce.
#include <math.h>

#include "check.h"
#include "nccl/net.h"
#include "net/plugin/collnet_priv.h"

enum { MOST_DEVICES = 256 };

// A plugin that is looked at.
typedef struct collnet {
  const pc_job *job;
  const tt_cnet_version *v;
  void *ctx;
} collnet;

// A device as its version's structure has it.
typedef struct device {
  ncclResult_t res;
  const char *name;
  int ptr_support, speed, max_comms;
  float latency;
  size_t beyond; // bytes written behind the structure
} device;

#define ASK(v)                                                                 \
  case v: {                                                                    \
    ncclNetProperties_v##v##_t *p = (void *)space.p;                           \
    pc_space_clear(&space, sizeof *p);                                         \
    d.res = ((const ncclCollNet_v##v##_t *)job->table)->getProperties(dev, p); \
    d.name = p->name;                                                          \
    d.ptr_support = p->ptrSupport;                                             \
    d.speed = p->speed;                                                        \
    d.max_comms = p->maxComms;                                                 \
    d.latency = p->latency;                                                    \
    d.beyond = pc_space_beyond(&space, sizeof *p);                             \
    break;                                                                     \
  }

static device ask_properties(const pc_job *job, int dev)
{
  pc_space space;
  device d = {.res = ncclInternalError};
  switch (job->version) {
    ASK(6)
    ASK(7)
    ASK(8)
    ASK(9)
    ASK(10)
    ASK(11)
    ASK(12)
  default: break;
  }
  return d;
}

// ---- rules

static void look_at_device(const pc_job *job, int dev)
{
  device d = ask_properties(job, dev);
  if (!pc_rule(job, d.res == ncclSuccess, "getProperties: returns %d for device %d, which devices counts", (int)d.res,
               dev) ||
      !pc_rule(job, d.beyond == 0,
               "getProperties: writes behind the structure of version %d; the one of another version?", job->version)) {
    return;
  }
  pc_say("device %d: %s, %d Mbit/s, %d connections", dev, d.name != NULL ? d.name : "(no name)", d.speed, d.max_comms);
  pc_rule(job, d.name != NULL, "getProperties: device %d has no name, which the log needs", dev);
  pc_rule(job, d.speed >= 1, "getProperties: device %d has speed %d; it is in Mbit/s, from 1 on", dev, d.speed);
  pc_rule(job, d.max_comms >= 1, "getProperties: device %d has maxComms %d; connections that it can have, from 1 on",
          dev, d.max_comms);
  pc_rule(job, isfinite(d.latency) && d.latency >= 0,
          "getProperties: device %d has latency %g; microseconds, 0: not known", dev, (double)d.latency);
  if ((d.ptr_support & NCCL_PTR_HOST) == 0) {
    pc_note(job, "device %d takes no host memory (ptrSupport lacks NCCL_PTR_HOST)", dev);
  }
}

// Every type and operation, twice: all ranks have to come to the same answer.
static void look_at_reductions(const collnet *c)
{
  const pc_job *job = c->job;
  int yes = 0;
  for (int type = 0; type < ncclNumTypes; type++) {
    for (int op = 0; op < ncclNumOps; op++) {
      int supported = -1, again = -1;
      ncclResult_t res = c->v->support(job->table, type, op, &supported);
      bool known =
          pc_rule(job, res == ncclSuccess,
                  "reduceSupport: returns %d for type %d, operation %d; what it cannot do it says by 0", (int)res, type,
                  op) &&
          pc_rule(job, supported == 0 || supported == 1,
                  "reduceSupport: says %d for type %d, operation %d; 1: it can, 0: it cannot", supported, type, op);
      (void)c->v->support(job->table, type, op, &again);
      pc_rule(job, again == supported, "reduceSupport: says %d and then %d for type %d, operation %d", supported, again,
              type, op);
      yes += known && supported == 1;
    }
  }
  pc_say("reduces %d of %d pairs of type and operation", yes, ncclNumTypes * ncclNumOps);
}

void pc_check_collnet(const pc_job *job)
{
  collnet c = {.job = job, .v = tt_cnet_version_of(job->version)};
  int n = -1;
  if (!pc_members(job, c.v->needs, c.v->nneeds)) {
    return;
  }
  pc_say("name: %.80s", c.v->name(job->table));
  ncclResult_t res = c.v->init(job->table, 0x7e57, &c.ctx);
  if (!pc_rule(job, res == ncclSuccess, "init: returns %d; so the plugin cannot be used on this machine, nor checked",
               (int)res)) {
    return;
  }
  res = c.v->devices(job->table, &n);
  if (pc_rule(job, res == ncclSuccess, "devices: returns %d after an init that succeeded", (int)res) &&
      pc_rule(job, n >= 0 && n <= MOST_DEVICES, "devices: gives %d; 0 to %d can be", n, MOST_DEVICES)) {
    for (int i = 0; i < n; i++) {
      look_at_device(job, i);
    }
    if (n == 0) {
      pc_note(job, "devices: there is none on this machine");
    }
    look_at_reductions(&c);
  }
  if (c.v->finalize != NULL) {
    res = c.v->finalize(job->table, c.ctx);
    pc_rule(job, res == ncclSuccess, "finalize: returns %d; nothing was made", (int)res);
  }
}
