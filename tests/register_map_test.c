// register_map_test.c: NCCL_HOST_REGISTER_MAP: registered ordinary memory is mapped by peers, so that the kernel copies
// nothing; what cannot be mapped is reached as before. Device memory is mapped where it is a window, without the
// variable.
#define _GNU_SOURCE // process_vm_readv
#include "harness.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "comm/comm.h"
#include "nccl_device.h"
#include "os/map.h"

enum { RANKS = 2, BYTES = 8 << 20, COUNT = BYTES / (int)sizeof(int), PAGE = 4096 };

#define MAPS "NCCL_HOST_REGISTER_MAP=1"
#define NO_COPIES "NCCL_HOST_COPIES=0" // else plain memory might go through the library's own

// --- What the kernel copies for this process: the library calls these

static _Atomic uint64_t copied;

ssize_t process_vm_readv(pid_t pid, const struct iovec *mine, unsigned long n, const struct iovec *theirs,
                         unsigned long m, unsigned long flags)
{
  atomic_fetch_add(&copied, mine->iov_len);
  return syscall(SYS_process_vm_readv, pid, mine, n, theirs, m, flags);
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *mine, unsigned long n, const struct iovec *theirs,
                          unsigned long m, unsigned long flags)
{
  atomic_fetch_add(&copied, mine->iov_len);
  return syscall(SYS_process_vm_writev, pid, mine, n, theirs, m, flags);
}

ssize_t vmsplice(int fd, const struct iovec *v, size_t n, unsigned flags)
{
  ssize_t bytes = syscall(SYS_vmsplice, fd, v, n, flags);
  atomic_fetch_add(&copied, bytes > 0 ? (uint64_t)bytes : 0);
  return bytes;
}

// --- Buffers

typedef struct pair {
  int *in, *out;
  void *handle[2];
} pair;

// Of so many bytes, which begin `shift` bytes behind the start of a page.
static int *buffer(size_t bytes, size_t shift)
{
  char *p = aligned_alloc(PAGE, (bytes + shift + PAGE - 1) / PAGE * PAGE);
  CHECK(p != NULL, "no memory");
  return (int *)(void *)(p + shift);
}

static pair pair_open(ncclComm_t comm, size_t shift)
{
  pair p = {.in = buffer(BYTES, shift), .out = buffer(BYTES, shift)};
  OK(ncclCommRegister(comm, p.in, BYTES, &p.handle[0]));
  OK(ncclCommRegister(comm, p.out, BYTES, &p.handle[1]));
  return p;
}

static void pair_close(ncclComm_t comm, pair *p, size_t shift)
{
  OK(ncclCommDeregister(comm, p->handle[0]));
  OK(ncclCommDeregister(comm, p->handle[1]));
  free((char *)p->in - shift);
  free((char *)p->out - shift);
}

static void fill_pair(const pair *p, int rank)
{
  for (int i = 0; i < COUNT; i++) {
    p->in[i] = i % 1000 + rank;
    p->out[i] = -1;
  }
}

static void is_sum(const pair *p, int first, int count, const char *what)
{
  for (int i = 0; i < count; i++) {
    int want = RANKS * ((first + i) % 1000) + RANKS * (RANKS - 1) / 2;
    CHECK(p->out[i] == want, "%s: element %d is %d, not %d", what, i, p->out[i], want);
  }
}

// Block k of the output is what rank k had at `first` and behind.
static void is_all(const pair *p, int first, int count, const char *what)
{
  for (int k = 0; k < RANKS; k++) {
    for (int i = 0; i < count; i++) {
      int got = p->out[k * count + i], want = (first + i) % 1000 + k;
      CHECK(got == want, "%s: element %d of rank %d is %d, not %d", what, i, k, got, want);
    }
  }
}

static void all_functions(ncclComm_t c, const pair *p, int rank)
{
  enum { PART = COUNT / RANKS };
  int other = 1 - rank;
  fill_pair(p, rank);
  OK(ncclAllReduce(p->in, p->out, COUNT, ncclInt, ncclSum, c, NULL));
  OK(tuttiStreamSynchronize(NULL));
  is_sum(p, 0, COUNT, "all-reduce");
  fill_pair(p, rank);
  OK(ncclReduceScatter(p->in, p->out, PART, ncclInt, ncclSum, c, NULL));
  OK(tuttiStreamSynchronize(NULL));
  is_sum(p, rank * PART, PART, "reduce-scatter");
  fill_pair(p, rank);
  OK(ncclAllGather(p->in, p->out, PART, ncclInt, c, NULL));
  OK(tuttiStreamSynchronize(NULL));
  is_all(p, 0, PART, "all-gather");
  fill_pair(p, rank);
  OK(ncclAlltoAll(p->in, p->out, PART, ncclInt, c, NULL));
  OK(tuttiStreamSynchronize(NULL));
  is_all(p, rank * PART, PART, "all-to-all");
  fill_pair(p, rank);
  OK(ncclReduce(p->in, p->out, COUNT, ncclInt, ncclSum, 0, c, NULL));
  OK(tuttiStreamSynchronize(NULL));
  is_sum(p, 0, rank == 0 ? COUNT : 0, "reduce");
  fill_pair(p, rank);
  OK(ncclGroupStart());
  OK(ncclSend(p->in, COUNT, ncclInt, other, c, NULL));
  OK(ncclRecv(p->out, COUNT, ncclInt, other, c, NULL));
  OK(ncclGroupEnd());
  OK(ncclBroadcast(p->out, p->out, COUNT, ncclInt, 0, c, NULL));
  OK(tuttiStreamSynchronize(NULL));
  CHECK(p->out[COUNT - 1] == (COUNT - 1) % 1000 + 1 && p->out[0] == 1, "broadcast: %d", p->out[0]);
}

// --- Tests

typedef struct manner {
  size_t shift;
  bool maps, all;
} manner;

static void collectives_body(int rank, void *arg)
{
  const manner *m = arg;
  ncclComm_t c = join_processes(0, RANKS, rank);
  pair p = pair_open(c, m->shift);
  for (int round = 0; round < 3; round++) {
    atomic_store(&copied, 0);
    all_functions(c, &p, rank);
    uint64_t n = atomic_load(&copied), most = over_network() || m->all ? 0 : 3 * (uint64_t)BYTES;
    CHECK(m->maps || over_network() ? n <= most : n > 3 * (uint64_t)BYTES, "the kernel has copied %llu bytes",
          (unsigned long long)n);
    meet(RANKS);
  }
  pair_close(c, &p, m->shift);
  OK(ncclCommDestroy(c));
}

static void run_manner(const manner *m)
{
  manner copy = *m;
  assert_int_equal(run_processes(&(run){.n = RANKS,
                                        .seconds = 30,
                                        .fn = collectives_body,
                                        .arg = &copy,
                                        .env = m->maps ? ENV(NO_COPIES, MAPS) : ENV(NO_COPIES)}),
                   0);
}

static void pages_are_mapped(void **state)
{
  (void)state;
  run_manner(&(manner){.maps = true, .all = true});
}

static void partial_pages_are_not(void **state)
{
  (void)state;
  run_manner(&(manner){.maps = true, .shift = 16});
  run_manner(&(manner){.maps = true, .shift = 4092});
}

static void without_the_variable(void **state)
{
  (void)state;
  run_manner(&(manner){.maps = false});
}

// What the communicator says of its memory; suspension leaves it; destruction puts it back.
static void life_body(int rank, void *arg)
{
  (void)arg;
  uint64_t before, with, after;
  ncclComm_t c = join_processes(0, RANKS, rank);
  OK(ncclCommMemStats(c, ncclStatGpuMemPersist, &before));
  pair p = pair_open(c, 0);
  OK(ncclCommMemStats(c, ncclStatGpuMemPersist, &with));
  CHECK(with == before + (over_network() ? 0 : 2 * BYTES), "%llu bytes more", (unsigned long long)(with - before));
  CHECK(over_network() || !tt_map_is_ordinary(p.in, BYTES), "it has not moved");
  all_functions(c, &p, rank);
  OK(ncclCommSuspend(c, NCCL_SUSPEND_MEM));
  OK(ncclCommResume(c));
  all_functions(c, &p, rank);
  OK(ncclCommMemStats(c, ncclStatGpuMemPersist, &with));
  OK(ncclCommDeregister(c, p.handle[0]));
  OK(ncclCommMemStats(c, ncclStatGpuMemPersist, &after));
  CHECK(with - after == (over_network() ? 0 : BYTES), "it gave %llu bytes", (unsigned long long)(with - after));
  CHECK(tt_map_is_ordinary(p.in, BYTES), "it has not come back");
  int last = p.out[COUNT - 1];
  OK(ncclCommDestroy(c));
  CHECK(tt_map_is_ordinary(p.out, BYTES), "it has not come back with the communicator");
  CHECK(p.out[COUNT - 1] == last, "the contents have changed");
  free(p.in);
  free(p.out);
}

static void a_life(void **state)
{
  (void)state;
  assert_int_equal(run_processes(&(run){.n = RANKS, .seconds = 30, .fn = life_body, .env = ENV(MAPS)}), 0);
}

static bool maps_name(const char *name)
{
  char line[600];
  bool found = false;
  FILE *f = fopen("/proc/self/maps", "re");
  while (f != NULL && !found && fgets(line, sizeof line, f) != NULL) {
    found = strstr(line, name) != NULL;
  }
  fclose(f);
  return found;
}

// A rank is killed in the middle: what the survivor has mapped of it, and its own, is gone after the abort.
static void killed_body(int rank, void *arg)
{
  (void)arg;
  ncclComm_t c = join_processes(0, RANKS, rank);
  pair p = pair_open(c, 0);
  all_functions(c, &p, rank);
  CHECK(maps_name("tutti-mem") != over_network(), "nothing is mapped");
  meet(RANKS);
  if (rank == 1) {
    kill(getpid(), SIGKILL);
  }
  ncclResult_t res = ncclAllReduce(p.in, p.out, COUNT, ncclInt, ncclSum, c, NULL);
  res = res == ncclSuccess ? tuttiStreamSynchronize(NULL) : res;
  CHECK(res == ncclRemoteError, "the result is %d", (int)res);
  OK(ncclCommAbort(c));
  CHECK(!maps_name("tutti-mem"), "shared memory is left");
  CHECK(tt_map_is_ordinary(p.in, BYTES) && tt_map_is_ordinary(p.out, BYTES), "it has not come back");
  free(p.in);
  free(p.out);
}

static void a_rank_is_killed(void **state)
{
  (void)state;
  ranks_set r;
  start_processes(&r, &(run){.n = RANKS, .seconds = 20, .fn = killed_body, .env = ENV(MAPS)});
  r.expected[1] = -SIGKILL;
  assert_int_equal(finish_processes(&r), 0);
}

// Ranks of one process have each other's memory: nothing moves.
static void threads_body(int rank, void *arg)
{
  world w;
  void *handle;
  (void)rank, (void)arg;
  world_open(&w, RANKS);
  int *p = buffer(BYTES, 0);
  OK(ncclCommRegister(w.comm[0], p, BYTES, &handle));
  CHECK(tt_map_is_ordinary(p, BYTES), "it has moved");
  OK(ncclCommDeregister(w.comm[0], handle));
  free(p);
  world_close(&w);
}

static void not_among_threads(void **state)
{
  (void)state;
  assert_int_equal(run_processes(&(run){.n = 1, .seconds = 20, .fn = threads_body, .env = ENV(MAPS)}), 0);
}

// --- Windows

// A put into the other's window, and a load from it: through its address, where there is one.
static void use_window(ncclComm_t c, int rank, char *memory, bool mapped)
{
  enum { HALF = BYTES / 2 };
  ncclWindow_t win;
  ncclWaitSignalDesc_t from = {.opCnt = 1, .peer = 1 - rank};
  void *peer = NULL;
  memset(memory, 10 + rank, HALF);
  OK(ncclCommWindowRegister(c, memory, BYTES, &win, NCCL_WIN_COLL_SYMMETRIC));
  meet(RANKS);
  atomic_store(&copied, 0);
  OK(ncclPutSignal(memory, HALF, ncclChar, 1 - rank, win, HALF, 0, 0, 0, c, NULL));
  OK(ncclWaitSignal(1, &from, c, NULL));
  OK(tuttiStreamSynchronize(NULL));
  CHECK(memory[HALF] == 11 - rank && memory[BYTES - 1] == 11 - rank, "the put wrote %d", memory[HALF]);
  if (mapped) {
    CHECK(atomic_load(&copied) == 0, "the kernel has copied %llu bytes", (unsigned long long)atomic_load(&copied));
    OK(ncclGetPeerDevicePointer(win, 5, 1 - rank, &peer));
    CHECK(*(const char *)peer == 11 - rank, "its memory shows %d", *(const char *)peer);
  } else {
    OK(ncclGetPeerDevicePointer(win, 5, 1 - rank, &peer));
    CHECK(peer == NULL, "its memory is at %p", peer);
  }
  meet(RANKS);
  OK(ncclCommWindowDeregister(c, win));
}

static void windows_body(int rank, void *arg)
{
  const bool variable = *(const bool *)arg, maps = !over_network();
  ncclComm_t c = join_processes(0, RANKS, rank);
  ncclWindow_t win;
  char *p = (char *)buffer(BYTES, 0);
  use_window(c, rank, p, variable && maps);
  CHECK(tt_map_is_ordinary(p, BYTES), "it has not come back");
  free(p);
  p = (char *)buffer(BYTES, 16); // its last page is not mapped
  use_window(c, rank, p, false);
  free(p - 16);
  OK(tuttiMalloc((void **)&p, BYTES + PAGE));
  use_window(c, rank, p + PAGE, maps);
  REFUSED(ncclCommWindowRegister(c, p + 512, BYTES, &win, NCCL_WIN_DEFAULT), ncclInvalidArgument, "512 bytes", "4096");
  OK(tuttiFree(p));
  OK(ncclCommDestroy(c));
}

static void windows(void **state)
{
  (void)state;
  for (int variable = 0; variable < 2; variable++) {
    bool is_set = variable != 0;
    assert_int_equal(run_processes(&(run){.n = RANKS,
                                          .seconds = 20,
                                          .fn = windows_body,
                                          .arg = &is_set,
                                          .env = is_set ? ENV(NO_COPIES, MAPS) : ENV(NO_COPIES)}),
                     0);
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(pages_are_mapped),
                                     cmocka_unit_test(partial_pages_are_not),
                                     cmocka_unit_test(without_the_variable),
                                     cmocka_unit_test(a_life),
                                     cmocka_unit_test(a_rank_is_killed),
                                     cmocka_unit_test(not_among_threads),
                                     cmocka_unit_test(windows)};
  return RUN_TESTS("register_map", tests, argc, argv);
}
