#include "net.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/util.h"

enum { MOST_DEVICES = 256 };

// ---- what can be said without a peer

// What it consists of, and how much of the structure it writes. Each version's structure is another.
typedef struct raw_device {
  ncclResult_t res;
  int parts, most_parts; // vProps.ndevs; most_parts 0: the version has none
  size_t beyond;         // bytes written behind the structure
} raw_device;

#define ASK(v, parts_of, most)                                             \
  case v: {                                                                \
    ncclNetProperties_v##v##_t *p = (void *)space.p;                       \
    pc_space_clear(&space, sizeof *p);                                     \
    d.res = ((const ncclNet_v##v##_t *)job->table)->getProperties(dev, p); \
    d.parts = parts_of;                                                    \
    d.most_parts = most;                                                   \
    d.beyond = pc_space_beyond(&space, sizeof *p);                         \
    break;                                                                 \
  }

static raw_device look_at_raw(const pc_job *job, int dev)
{
  pc_space space;
  raw_device d = {.res = ncclInternalError};
  switch (job->version) {
    ASK(6, 0, 0)
    ASK(7, 0, 0)
    ASK(8, 0, 0)
    ASK(9, p->vProps.ndevs, NCCL_NET_MAX_DEVS_PER_NIC_V9)
    ASK(10, p->vProps.ndevs, NCCL_NET_MAX_DEVS_PER_NIC_V10)
    ASK(11, p->vProps.ndevs, NCCL_NET_MAX_DEVS_PER_NIC_V11)
    ASK(12, p->vProps.ndevs, NCCL_NET_MAX_DEVS_PER_NIC_V12)
  default: break;
  }
  return d;
}

// A device that can be used at all.
static bool look_at_device(const pc_job *job, net_side *s, int dev)
{
  tt_net_props p = {0};
  int type = NCCL_NET_DEVICE_HOST, vdevs[TT_NET_PARTS];
  net_enter(s, NET_PROPERTIES);
  raw_device raw = look_at_raw(job, dev);
  net_leave(s, NET_PROPERTIES, raw.res);
  if (!pc_rule(job, raw.res == ncclSuccess, "getProperties: returns %d for device %d, which devices counts",
               (int)raw.res, dev) ||
      !pc_rule(job, raw.beyond == 0,
               "getProperties: writes behind the structure of version %d; the one of another version?", job->version)) {
    return false;
  }
  ncclResult_t res = NET_CALL(s, NET_PROPERTIES, s->v->properties(job->table, dev, &p, &type, vdevs));
  if (!pc_rule(job, res == ncclSuccess, "getProperties: returns %d for device %d when it is called again", (int)res,
               dev)) {
    return false;
  }
  pc_say("device %d: %s, %d Mbit/s, port %d, %d connections, %d buffers in a receive", dev,
         p.name != NULL ? p.name : "(no name)", p.speed, p.port, p.max_comms, p.max_recvs);
  pc_rule(job, raw.parts >= 0 && raw.parts <= TT_MAX(raw.most_parts, 0),
          "getProperties: device %d consists of %d devices (vProps.ndevs); there is room for %d", dev, raw.parts,
          raw.most_parts);
  pc_rule(job, p.name != NULL, "getProperties: device %d has no name, which the log needs", dev);
  pc_rule(job, p.speed >= 1, "getProperties: device %d has speed %d; it is in Mbit/s, from 1 on", dev, p.speed);
  pc_rule(job, p.max_comms >= 1, "getProperties: device %d has maxComms %d; connections that it can have, from 1 on",
          dev, p.max_comms);
  pc_rule(job, p.max_recvs >= 1, "getProperties: device %d has maxRecvs %d; buffers that one irecv takes, from 1 on",
          dev, p.max_recvs);
  pc_rule(job, isfinite(p.latency) && p.latency >= 0,
          "getProperties: device %d has latency %g; microseconds, 0: not known", dev, (double)p.latency);
  if (p.pci_path != NULL && access(p.pci_path, F_OK) != 0) {
    pc_note(job, "device %d: pciPath %.80s is not there", dev, p.pci_path);
  }
  if (type != NCCL_NET_DEVICE_HOST || (p.ptr_support & NCCL_PTR_HOST) == 0) {
    pc_note(job, "device %d %s: it is of no use on host memory, and nothing can be sent here", dev,
            type != NCCL_NET_DEVICE_HOST ? "leaves work to a GPU (netDeviceType)"
                                         : "takes no host memory (ptrSupport lacks NCCL_PTR_HOST)");
    return false;
  }
  return true;
}

// init, devices and their properties, in this process.
static bool look(const pc_job *job, net_side *s)
{
  int n = -1;
  bool usable = true;
  ncclResult_t res = NET_CALL(s, NET_DEVICES, s->v->devices(job->table, &n));
  if (!pc_rule(job, res == ncclSuccess, "devices: returns %d after an init that succeeded", (int)res) ||
      !pc_rule(job, n >= 0 && n <= MOST_DEVICES, "devices: gives %d; 0 to %d can be", n, MOST_DEVICES)) {
    return false;
  }
  if (n == 0) {
    pc_note(job, "devices: there is none on this machine, so nothing can be sent");
    return false;
  }
  for (int i = 0; i < n; i++) {
    usable &= look_at_device(job, s, i);
  }
  return usable;
}

// The table is full once init has succeeded, which may choose what is in it, and another name.
static bool is_full(const net_side *s, const char *name)
{
  if (!pc_members(s->job, s->v->needs, s->v->nneeds)) {
    return false;
  }
  const char *now = s->v->name(s->job->table);
  if (strncmp(now, name, TT_PNET_NAME - 1) != 0) {
    pc_say("name after init: %.*s", TT_PNET_NAME - 1, now);
  }
  return true;
}

typedef struct first_look {
  net_side *side;
  bool *usable; // shared
} first_look;

static void look_first(const pc_job *job, void *arg)
{
  const first_look *f = arg;
  net_side s = *f->side;
  char name[TT_PNET_NAME];
  pc_manners manners;
  pc_holdings before = pc_holdings_now();
  snprintf(name, sizeof name, "%s", s.v->name(job->table));
  pc_manners_take(&manners);
  if (net_init(&s)) {
    pc_manners_check(job, &manners);
    if (!is_full(&s, name)) {
      return;
    }
    *f->usable = look(job, &s);
    net_end(&s);
    pc_holdings after = pc_holdings_settled(&before, 2);
    if (s.v->finalize != NULL) { // older ones live on, and their library stays
      pc_rule(job, after.threads <= before.threads, "finalize: leaves %d threads, and the library may be closed now",
              after.threads - before.threads);
      pc_rule(job, after.descriptors <= before.descriptors, "finalize: leaves %d descriptors open",
              after.descriptors - before.descriptors);
    }
  }
}

// ---- scenes

typedef struct play {
  const net_scene *scene;
  net_side side;
} play;

static void play_side(const pc_job *job, void *arg, int i)
{
  const play *p = arg;
  net_side s = p->side;
  pc_manners manners;
  s.me = i;
  s.scene = p->scene->name;
  pc_manners_take(&manners);
  if (net_begin(&s)) {
    p->scene->play(&s);
    if (!atomic_load(&s.board->over)) { // else something may still be open
      net_end(&s);
      pc_manners_check(job, &manners);
    }
  }
}

// What became of a side. The one that dies on purpose, or that was left behind by the other, has nothing to say.
static void judge_side(const pc_job *job, const play *p, const pc_fate fates[2], int i)
{
  int f = atomic_load(&p->side.board->now[i]);
  const char *in = f == NET_NOTHING
                       ? "outside of its functions (a thread of the plugin's, or memory that it has spoilt)"
                       : net_names[f];
  bool alone = !fates[!i].good && !fates[!i].late && 1 - i != p->scene->dies;
  if (i == p->scene->dies || (fates[i].late && alone)) {
    return;
  }
  if (fates[i].late) {
    pc_rule(job, f == NET_NOTHING && !fates[!i].good, "%s: does not come back (%s)", in, p->scene->name);
  } else {
    pc_rule(job, fates[i].good, "%s: ends the process: %s (%s)", in, fates[i].how, p->scene->name);
  }
}

// False: the plugin made everybody wait, and would again.
static bool play_scene(const pc_job *job, const net_scene *scene, const net_side *base)
{
  play p = {.scene = scene, .side = *base};
  pc_fate fates[2];
  net_board *b = base->board;
  uint64_t begin = pc_clock_ns();
  int before = __atomic_load_n(&job->found->broken, __ATOMIC_RELAXED);
  atomic_store(&b->over, false);
  atomic_store(&b->handles, 0);
  for (int i = 0; i < 2; i++) {
    atomic_store(&b->step[i], 0);
    atomic_store(&b->now[i], NET_NOTHING);
  }
  pc_side_by_side(job, scene->dies, play_side, &p, fates);
  for (int i = 0; i < 2; i++) {
    judge_side(job, &p, fates, i);
  }
  bool broken = __atomic_load_n(&job->found->broken, __ATOMIC_RELAXED) > before;
  return !broken || pc_clock_ns() - begin < (uint64_t)job->patience * 1000000000u;
}

// What is said of all calls at last.
static void judge_calls(const pc_job *job, const net_board *b)
{
  static const bool may_block[NET_FUNCTIONS] = {
      [NET_NOTHING] = true,    [NET_INIT] = true,       [NET_REG] = true,          [NET_DEREG] = true,
      [NET_CLOSE_SEND] = true, [NET_CLOSE_RECV] = true, [NET_CLOSE_LISTEN] = true, [NET_FINALIZE] = true};
  for (int f = 1; f < NET_FUNCTIONS; f++) {
    uint64_t blocked = atomic_load(&b->blocked[f]);
    int odd = atomic_load(&b->odd[f]);
    if (atomic_load(&b->called[f]) && !may_block[f]) {
      pc_rule(job, blocked <= PC_BLOCKED_NS, "%s: blocks for %.2f s; nothing may wait for the peer: it is called again",
              net_names[f], (double)blocked / 1e9);
    }
    if (atomic_load(&b->called[f])) {
      pc_rule(job, odd == 0, "%s: returns %d, which is no result code", net_names[f], odd);
    }
  }
  pc_rule(job, atomic_load(&b->foreign) == 0,
          "the profiler's callback is called %d times with a handle that it has not given, or a phandle that isend or "
          "irecv was not given",
          atomic_load(&b->foreign));
  if (atomic_load(&b->untold)) {
    pc_note(job, "test: reports no sizes of what was received; the library believes that all has come");
  }
}

static void play_all(const pc_job *job, const net_side *base)
{
  for (int i = 0; i < net_nscenes; i++) {
    if (!play_scene(job, &net_scenes[i], base) &&
        i > 0) { // an accept that waits for somebody may be well with somebody
      pc_note(job, "what comes after \"%s\" is not looked at: %d checks of %d", net_scenes[i].name, net_nscenes - i - 1,
              net_nscenes);
      break;
    }
  }
  judge_calls(job, base->board);
}

void pc_check_net(const pc_job *job)
{
  char how[64];
  const tt_pnet_version *v = tt_pnet_version_of(job->version);
  if (!pc_members(job, v->needs, TT_PNET_FIRST)) {
    return;
  }
  pc_say("name: %.80s", v->name(job->table));
  size_t size = sizeof(net_board) + sizeof(bool);
  net_board *b = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (b == MAP_FAILED) {
    pc_rule(job, false, "tutti-plugin has no memory");
    return;
  }
  net_side base = {.job = job, .v = v, .board = b, .scene = "alone"};
  bool *usable = (bool *)(b + 1);
  if (!pc_survives(job, look_first, &(first_look){&base, usable}, how)) {
    pc_rule(job, false, "%s: ends the process: %s", net_names[atomic_load(&b->now[0])], how);
  } else if (*usable) {
    play_all(job, &base);
  }
  munmap(b, size);
}
