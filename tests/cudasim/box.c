// box.c: what processes that share devices know of each other: whose turn it is, what each waits for, who wrote a word.
//
// A file, mapped by all. A process holds the byte of its slot with a lock of the kernel's (fcntl), which goes with the
// process however it ends. The mutex is robust for the same reason. The last process that leaves removes the file.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

struct box_writer {
  uint64_t file, offset;
  uint32_t value;
  char who[64];
};

struct box_slot {
  int32_t pid; // 0: free
  bool work, blocked;
  uint64_t progress;
  int64_t used[SIM_DEVICES];
  int waits;
  struct box_wait wait[BOX_WAITS];
};

static struct box {
  uint64_t made; // MAGIC once the mutex is
  pthread_mutex_t mutex;
  struct box_device {
    int owner; // the slot + 1
    uint64_t waiting;
  } device[SIM_DEVICES];
  _Atomic uint64_t sleeps; // bit: a scheduler that sleeps, or is about to,
  _Atomic uint64_t asleep; // and wants to hear of others
  _Atomic uint32_t bell[BOX_PROCESSES];
  uint64_t reported; // the sum of progress at the last report
  struct box_writer writer[BOX_WRITERS];
  struct box_slot slot[BOX_PROCESSES];
} * box;

static int box_fd = -1, mine = -1;
static char box_path[512];

enum { LOCK_ALL = BOX_PROCESSES, LOCK_MAKE };
static const uint64_t MAGIC = 0x63756461626f7801;

static bool lock_byte(int byte, short type, int command)
{
  struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
  int error;
  do {
    error = fcntl(box_fd, command, &lock);
  } while (error != 0 && errno == EINTR);
  return error == 0;
}

static bool alive(int slot)
{
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};
  return slot == mine || (fcntl(box_fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK);
}

static void box_lock(void)
{
  if (pthread_mutex_lock(&box->mutex) == EOWNERDEAD) {
    pthread_mutex_consistent(&box->mutex); // each change below is one store, or is made good by the next
  }
}

static void box_unlock(void)
{
  pthread_mutex_unlock(&box->mutex);
}

// Beside the library; where that may not be written, in TMPDIR.
static void box_name(bool beside, char *path, size_t size)
{
  Dl_info here;
  const char *slash = NULL, *tmp = getenv("TMPDIR");
  if (beside && dladdr((const void *)(uintptr_t)&box_open, &here) != 0 && here.dli_fname != NULL) {
    slash = strrchr(here.dli_fname, '/');
  }
  if (slash != NULL) {
    snprintf(path, size, "%.*s/box-%u-%s", (int)(slash - here.dli_fname), here.dli_fname, (unsigned)getuid(),
             sim.modes.box);
  } else {
    snprintf(path, size, "%s/cudasim-box-%u-%s", tmp != NULL ? tmp : "/tmp", (unsigned)getuid(), sim.modes.box);
  }
}

static int open_file(void)
{
  int fd = -1;
  for (int beside = 1; beside >= 0 && fd < 0; beside--) {
    box_name(beside != 0, box_path, sizeof box_path);
    fd = open(box_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  }
  return fd;
}

// Opens the file and holds it, so that nobody removes it meanwhile.
static bool hold_file(void)
{
  struct stat open_one, named;
  for (;;) {
    box_fd = open_file();
    if (box_fd < 0 || !lock_byte(LOCK_MAKE, F_WRLCK, F_SETLKW)) {
      return false;
    }
    if (fstat(box_fd, &open_one) == 0 && stat(box_path, &named) == 0 && open_one.st_ino == named.st_ino) {
      return ftruncate(box_fd, sizeof *box) == 0;
    }
    close(box_fd);
  }
}

static void make_mutex(void)
{
  pthread_mutexattr_t how;
  pthread_mutexattr_init(&how);
  pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&box->mutex, &how);
  pthread_mutexattr_destroy(&how);
  box->made = MAGIC;
}

static bool others_alive(void)
{
  bool any = false;
  for (int i = 0; i < BOX_PROCESSES; i++) {
    any |= i != mine && alive(i);
  }
  return any;
}

static bool take_slot(void)
{
  for (int i = 0; i < BOX_PROCESSES && mine < 0; i++) {
    if (lock_byte(i, F_WRLCK, F_SETLK)) {
      mine = i;
    }
  }
  if (mine < 0) {
    return false;
  }
  box_lock();
  memset(&box->slot[mine], 0, sizeof box->slot[mine]);
  atomic_fetch_and(&box->sleeps, ~((uint64_t)1 << mine));
  atomic_fetch_and(&box->asleep, ~((uint64_t)1 << mine));
  box->slot[mine].pid = getpid();
  for (int d = 0; d < SIM_DEVICES; d++) {
    box->device[d].waiting &= ~((uint64_t)1 << mine);
    if (box->device[d].owner == mine + 1) {
      box->device[d].owner = 0;
    }
  }
  box_unlock();
  return true;
}

bool box_open(void)
{
  if (hold_file()) {
    box = mmap(NULL, sizeof *box, PROT_READ | PROT_WRITE, MAP_SHARED, box_fd, 0);
  }
  if (box == NULL || box == MAP_FAILED) {
    sim_say("cannot open %s: %s", box_path, strerror(errno));
    close(box_fd); // and so gives back its locks
    return false;
  }
  if (box->made != MAGIC || !others_alive()) { // what is there is of processes that have died
    memset(box, 0, sizeof *box);
    make_mutex();
  }
  bool taken = take_slot();
  lock_byte(LOCK_MAKE, F_UNLCK, F_SETLK);
  if (!taken) {
    sim_say("%s: %d processes share it already", box_path, BOX_PROCESSES);
  }
  return taken;
}

__attribute__((destructor)) static void box_leave(void)
{
  if (mine < 0 || sim.pid != getpid()) {
    return;
  }
  pthread_mutex_lock(&sim.lock); // for ever: no thread of ours may go on
  lock_byte(LOCK_MAKE, F_WRLCK, F_SETLKW);
  box_lock();
  box->slot[mine].pid = 0;
  box_unlock();
  for (int d = 0; d < SIM_DEVICES; d++) {
    box_give(d);
  }
  if (!others_alive()) {
    unlink(box_path);
  }
  lock_byte(mine, F_UNLCK, F_SETLK);
  lock_byte(LOCK_MAKE, F_UNLCK, F_SETLK);
}

// ---- Bells: a scheduler sleeps until its own is rung, or for a while ----

static void ring(int slot)
{
  atomic_fetch_add(&box->bell[slot], 1);
  if ((atomic_load(&box->sleeps) >> slot & 1) == 0) {
    return; // it sees the bell before it sleeps
  }
  syscall(SYS_futex, &box->bell[slot], FUTEX_WAKE, 1, NULL, NULL, 0);
}

void box_ring(void)
{
  ring(mine);
}

void box_ring_others(void)
{
  uint64_t asleep = atomic_load(&box->asleep) & ~((uint64_t)1 << mine);
  for (; asleep != 0; asleep &= asleep - 1) {
    ring(__builtin_ctzll(asleep));
  }
}

uint32_t box_bell(void)
{
  return atomic_load(&box->bell[mine]);
}

void box_sleep(uint32_t bell, long us)
{
  uint64_t bit = (uint64_t)1 << mine;
  struct timespec limit = {us / 1000000, us % 1000000 * 1000};
  atomic_fetch_or(&box->sleeps, bit);
  if (us > 0) {
    atomic_fetch_or(&box->asleep, bit);
  }
  syscall(SYS_futex, &box->bell[mine], FUTEX_WAIT, bell, us > 0 ? &limit : NULL, NULL, 0);
  atomic_fetch_and(&box->sleeps, ~bit);
  atomic_fetch_and(&box->asleep, ~bit);
}

// ---- Turns ----

// The next living process that waits, after this one.
static int next_owner(struct box_device *device)
{
  for (int i = 1; i <= BOX_PROCESSES; i++) {
    int slot = (mine + i) % BOX_PROCESSES;
    if ((device->waiting >> slot & 1) != 0 && slot != mine && alive(slot)) {
      return slot + 1;
    }
  }
  return 0;
}

bool box_take(int device)
{
  struct box_device *d = &box->device[sim.device[device].physical];
  box_lock();
  if (d->owner == 0 || !alive(d->owner - 1)) {
    d->owner = mine + 1;
  }
  bool have = d->owner == mine + 1;
  if (have) {
    d->waiting &= ~((uint64_t)1 << mine);
  } else {
    d->waiting |= (uint64_t)1 << mine;
  }
  box_unlock();
  return have;
}

void box_give(int device)
{
  struct box_device *d = &box->device[sim.device[device].physical];
  box_lock();
  d->waiting &= ~((uint64_t)1 << mine);
  int next = d->owner == mine + 1 ? next_owner(d) : 0;
  if (d->owner == mine + 1) {
    d->owner = next;
  }
  box_unlock();
  if (next > 0) {
    ring(next - 1);
  }
}

bool box_wanted(int device)
{
  box_lock();
  bool wanted = (box->device[sim.device[device].physical].waiting & ~((uint64_t)1 << mine)) != 0;
  box_unlock();
  return wanted;
}

// ---- What processes tell each other ----

void box_used(int device, int64_t bytes)
{
  box_lock();
  box->slot[mine].used[sim.device[device].physical] += bytes;
  box_unlock();
}

uint64_t box_used_by_all(int device)
{
  int64_t sum = 0;
  box_lock();
  for (int i = 0; i < BOX_PROCESSES; i++) {
    sum += box->slot[i].pid != 0 && alive(i) ? box->slot[i].used[sim.device[device].physical] : 0;
  }
  box_unlock();
  return (uint64_t)sum;
}

void box_state(bool work, bool blocked, uint64_t progress)
{
  struct box_slot *slot = &box->slot[mine];
  box_lock();
  slot->work = work;
  slot->blocked = blocked;
  slot->progress = progress;
  box_unlock();
}

void box_waits(const struct box_wait *waits, int count)
{
  struct box_slot *slot = &box->slot[mine];
  box_lock();
  slot->waits = count < BOX_WAITS ? count : BOX_WAITS;
  memcpy(slot->wait, waits, (size_t)slot->waits * sizeof *waits);
  box_unlock();
}

static struct box_writer *writer_of(uint64_t file, uint64_t offset)
{
  return &box->writer[(file * 31 + offset / 4 * 0x9e3779b97f4a7c15) % BOX_WRITERS];
}

void box_wrote(uint64_t file, uint64_t offset, uint32_t value, const char *who)
{
  box_lock();
  struct box_writer *writer = writer_of(file, offset);
  *writer = (struct box_writer){.file = file, .offset = offset, .value = value};
  snprintf(writer->who, sizeof writer->who, "%s", who);
  box_unlock();
}

bool box_all_blocked(uint64_t *sum)
{
  bool blocked = true;
  *sum = 0;
  box_lock();
  for (int i = 0; i < BOX_PROCESSES; i++) {
    const struct box_slot *slot = &box->slot[i];
    if (slot->pid != 0 && alive(i)) {
      blocked = blocked && (!slot->work || slot->blocked);
      *sum += slot->progress;
    }
  }
  box_unlock();
  return blocked;
}

static void report_wait(int pid, const struct box_wait *wait)
{
  char last[160] = "";
  const struct box_writer *writer = writer_of(wait->file, wait->offset);
  if (wait->file != 0 && writer->file == wait->file && writer->offset == wait->offset) {
    snprintf(last, sizeof last, "; last written by %s: %" PRIu32, writer->who, writer->value);
  } else if (wait->file != 0) {
    snprintf(last, sizeof last, "; no stream has written it");
  }
  sim_say("deadlock: process %d: %s%s", pid, wait->text, last);
}

bool box_report(void)
{
  uint64_t sum = 0;
  box_all_blocked(&sum);
  box_lock();
  bool first = box->reported != sum + 1;
  box->reported = sum + 1;
  for (int i = 0; i < BOX_PROCESSES && first; i++) {
    const struct box_slot *slot = &box->slot[i];
    for (int j = 0; j < slot->waits && slot->pid != 0 && alive(i); j++) {
      report_wait(slot->pid, &slot->wait[j]);
    }
  }
  box_unlock();
  return first;
}
