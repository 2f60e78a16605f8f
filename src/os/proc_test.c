// proc_test.c: the identity of a process, whether it lives, and how another process sees it.
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "os/clock.h"
#include "os/proc.h"
#include "os/shm.h"

// A child that does nothing until it is killed; it writes its identity to *id first.
static pid_t start_sleeper(tt_proc_id *id, int (*fn)(void))
{
  int p[2];
  assert_int_equal(pipe(p), 0);
  pid_t parent = getpid(), pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    tt_proc_id mine = tt_proc_self();
    if (getppid() != parent || (fn != NULL && fn() != 0) || write(p[1], &mine, sizeof mine) != sizeof mine) {
      _exit(1);
    }
    for (;;) {
      pause();
    }
  }
  close(p[1]);
  assert_int_equal(read(p[0], id, sizeof *id), sizeof *id);
  close(p[0]);
  return pid;
}

static void end_child(pid_t pid)
{
  kill(pid, SIGKILL);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_self(void **state)
{
  (void)state;
  tt_proc_id a = tt_proc_self(), b = tt_proc_self();
  assert_memory_equal(&a, &b, sizeof a);
  assert_int_equal(a.pid, getpid());
  assert_int_equal(a.uid, geteuid());
  assert_true(a.start != 0);
  assert_true(a.cookie != 0);
  assert_true(tt_proc_alive(&a));
}

static void test_alive(void **state)
{
  (void)state;
  tt_proc_id id;
  pid_t pid = start_sleeper(&id, NULL);
  assert_int_equal(id.pid, pid);
  assert_true(tt_proc_alive(&id));
  tt_proc_id other = id;
  other.start++; // the number was given to somebody else
  assert_false(tt_proc_alive(&other));
  other.start = 0; // unknown: the number has to do
  assert_true(tt_proc_alive(&other));
  kill(pid, SIGSTOP);
  assert_true(tt_proc_alive(&id));
  kill(pid, SIGKILL);
  siginfo_t info;
  assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
  assert_false(tt_proc_alive(&id)); // dead, but not buried
  end_child(pid);
  assert_false(tt_proc_alive(&id));
}

static int life; // descriptor of shared memory

static int hold_life(void)
{
  return tt_proc_hold(life) != ncclSuccess;
}

// The same where neither process sees the other's number, and without /proc: the kernel gives the lock back when the
// process ends, at once, not when it is reaped.
static void test_holds(void **state)
{
  (void)state;
  tt_proc_id id, survivor;
  assert_int_equal(tt_shm_create("life", 4096, &life), ncclSuccess);
  assert_int_equal(tt_proc_hold(life), ncclSuccess);
  pid_t pid = start_sleeper(&id, hold_life);
  assert_true(tt_proc_holds(life, id.cookie));
  assert_false(tt_proc_holds(life, id.cookie ^ 1ull << 40)); // nobody's
  pid_t other = start_sleeper(&survivor, NULL);              // has the descriptor too, and holds nothing
  assert_false(tt_proc_holds(life, survivor.cookie));
  kill(pid, SIGSTOP);
  assert_true(tt_proc_holds(life, id.cookie));
  kill(pid, SIGKILL);
  siginfo_t info;
  assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
  assert_false(tt_proc_holds(life, id.cookie));
  end_child(pid);
  end_child(other);
  tt_fd_close(life);
}

// A number that now stands for other memory, in which this process holds its lock: the look leaves the lock alone.
static void test_a_wrong_descriptor_keeps_the_lock(void **state)
{
  (void)state;
  tt_proc_id id, me = tt_proc_self();
  int out = -1;
  struct stat st;
  assert_int_equal(tt_shm_create("tutti-comm", 4096, &life), ncclSuccess);
  assert_int_equal(fstat(life, &st), 0);
  pid_t pid = start_sleeper(&id, hold_life);
  assert_int_equal(tt_proc_hold(life), ncclSuccess);
  assert_int_equal(tt_proc_open_fd(&me, life, (uint64_t)st.st_ino + 1, &out), ncclInvalidArgument);
  assert_int_equal(tt_proc_open_shm(me.pid, life, "tutti-mem", 0, &out), ENOENT);
  assert_int_equal(out, -1);
  pid_t witness = fork();
  if (witness == 0) {
    _exit(tt_proc_holds(life, me.cookie) ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(waitpid(witness, &status, 0), witness);
  assert_int_equal(status, 0);
  assert_int_equal(tt_proc_open_shm(id.pid, life, "tutti-comm", 0, &out), 0);
  assert_int_equal(tt_shm_size(out), 4096);
  end_child(pid);
  tt_fd_close(out);
  tt_fd_close(life);
}

// A process of the same user and the same name space, while it is there.
static void test_may_open(void **state)
{
  (void)state;
  tt_proc_id id;
  uint64_t space = tt_proc_pid_space();
  assert_true(space != 0 && tt_proc_may_open(getpid(), space));
  assert_false(tt_proc_may_open(getpid(), 0));
  assert_false(tt_proc_may_open(getpid(), space + 1));
  pid_t pid = start_sleeper(&id, NULL);
  assert_true(tt_proc_may_open(pid, space));
  end_child(pid);
  assert_false(tt_proc_may_open(pid, space));
}

static void test_net_space(void **state)
{
  (void)state;
  assert_true(tt_proc_net_space() != 0);
  assert_true(tt_proc_net_space() == tt_proc_net_space());
}

// A name with spaces and parentheses does not confuse the reader of /proc.
static int take_odd_name(void)
{
  return prctl(PR_SET_NAME, ") Z 1 (2");
}

static void test_odd_name(void **state)
{
  (void)state;
  tt_proc_id id;
  pid_t pid = start_sleeper(&id, take_odd_name);
  assert_true(tt_proc_alive(&id));
  end_child(pid);
  assert_false(tt_proc_alive(&id));
}

static void *stay_alive(void *arg)
{
  (void)arg;
  for (;;) {
    pause();
  }
  return NULL;
}

// The main thread ends, another one stays: /proc shows a zombie, but the process lives.
static void test_main_thread_left(void **state)
{
  (void)state;
  int p[2];
  tt_proc_id id;
  assert_int_equal(pipe(p), 0);
  pid_t pid = fork();
  if (pid == 0) {
    pthread_t t;
    id = tt_proc_self();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (pthread_create(&t, NULL, stay_alive, NULL) != 0 || write(p[1], &id, sizeof id) != sizeof id) {
      _exit(1);
    }
    pthread_exit(NULL);
  }
  close(p[1]);
  assert_int_equal(read(p[0], &id, sizeof id), sizeof id);
  close(p[0]);
  tt_sleep_ns(50 * TT_NS_PER_MS);
  assert_true(tt_proc_alive(&id));
  end_child(pid);
  assert_false(tt_proc_alive(&id));
}

// Out of descriptors, we must not take our peers for dead.
static void test_alive_without_descriptors(void **state)
{
  (void)state;
  tt_proc_id id;
  pid_t pid = start_sleeper(&id, NULL);
  struct rlimit old, none;
  getrlimit(RLIMIT_NOFILE, &old);
  none = (struct rlimit){.rlim_cur = 0, .rlim_max = old.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  bool before = tt_proc_alive(&id);
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  bool after = tt_proc_alive(&id);
  setrlimit(RLIMIT_NOFILE, &old);
  assert_true(before);
  assert_false(after);
}

static int hook_calls;

enum { MANY = 50 }; // hooks, and each is called

static void count_hook(void)
{
  hook_calls++;
}

static void test_fork(void **state)
{
  (void)state;
  tt_proc_id parent = tt_proc_self();
  uint32_t generation = tt_proc_generation;
  int status = -1;
  pid_t pid = fork();
  if (pid == 0) {
    tt_proc_id child = tt_proc_self();
    int bad = child.pid != getpid() ? 1 : child.cookie == parent.cookie ? 2 : 0;
    bad = bad != 0 ? bad : tt_proc_generation == generation ? 3 : hook_calls != MANY ? 4 : 0;
    _exit(bad != 0 ? bad : tt_proc_alive(&child) && tt_proc_alive(&parent) ? 0 : 5);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  tt_proc_id now = tt_proc_self();
  assert_memory_equal(&now, &parent, sizeof now);
  assert_int_equal(tt_proc_generation, generation);
  assert_int_equal(hook_calls, 0);
}

// A table at the same address in parent and child, with contents of their own.
static uint64_t table[5000];

static int fill_hooks(void)
{
  for (size_t i = 0; i < TT_COUNT(table); i++) {
    table[i] = i * 3;
  }
  return 0;
}

static void test_copy(void **state)
{
  (void)state;
  tt_proc_id id;
  static uint64_t mine[TT_COUNT(table)];
  pid_t pid = start_sleeper(&id, fill_hooks);
  int e = tt_proc_copy(pid, mine, (uint64_t)(uintptr_t)table, sizeof mine, false);
  if (e == EPERM || e == ENOSYS) { // a container without the right to trace
    end_child(pid);
    skip();
  }
  assert_int_equal(e, 0);
  for (size_t i = 0; i < TT_COUNT(mine); i++) {
    assert_int_equal(mine[i], i * 3);
    mine[i] = i * 5;
  }
  assert_int_equal(tt_proc_copy(pid, mine + 1, (uint64_t)(uintptr_t)(table + 1), 8000, true), 0);
  memset(mine, 0, sizeof mine);
  assert_int_equal(tt_proc_copy(pid, mine, (uint64_t)(uintptr_t)table, sizeof mine, false), 0);
  for (size_t i = 0; i < TT_COUNT(mine); i++) {
    assert_int_equal(mine[i], i * (i >= 1 && i <= 1000 ? 5 : 3));
  }
  assert_int_equal(tt_proc_copy(pid, mine, 0, 0, false), 0); // nothing is nothing
  end_child(pid);
  assert_int_equal(tt_proc_copy(pid, mine, (uint64_t)(uintptr_t)table, 8, false), ESRCH);
}

// Half of the range is there, the other half is not.
static void test_copy_bad_address(void **state)
{
  (void)state;
  static char mine[1 << 16];
  size_t half = sizeof mine / 2;
  char *at = mmap(NULL, sizeof mine, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(at, MAP_FAILED);
  int e = tt_proc_copy(getpid(), mine, (uint64_t)(uintptr_t)at, sizeof mine, false);
  if (e == ENOSYS) {
    skip();
  }
  assert_int_equal(e, 0);
  munmap(at + half, half);
  assert_int_equal(tt_proc_copy(getpid(), mine, (uint64_t)(uintptr_t)at, sizeof mine, false), EFAULT);
  assert_int_equal(tt_proc_copy(getpid(), mine, (uint64_t)(uintptr_t)at, sizeof mine, true), EFAULT);
  assert_int_equal(tt_proc_copy(getpid(), mine, (uint64_t)(uintptr_t)at, half, true), 0);
  assert_int_equal(tt_proc_copy(getpid(), mine, 8, 8, false), EFAULT);
  munmap(at, half);
}

typedef struct hashes {
  uint64_t host, machine;
} hashes;

// In another process, with NCCL_HOSTID (NULL: unset), and, if `container`, a host name of its own. Zeroes: not allowed
// to have one.
static hashes hashes_elsewhere(const char *hostid, bool container)
{
  int p[2], status = -1;
  char out[16];
  hashes h = {0};
  assert_int_equal(pipe(p), 0);
  pid_t pid = fork();
  if (pid == 0) {
    snprintf(out, sizeof out, "%d", p[1]);
    hostid == NULL ? unsetenv("NCCL_HOSTID") : setenv("NCCL_HOSTID", hostid, 1);
    if (container && (unshare(CLONE_NEWUSER | CLONE_NEWUTS) != 0 || sethostname("tutti-elsewhere", 15) != 0)) {
      _exit(write(p[1], &h, sizeof h) == sizeof h ? 0 : 1);
    }
    execl("/proc/self/exe", "proc_test", "hash", out, (char *)NULL);
    _exit(1);
  }
  close(p[1]);
  assert_int_equal(read(p[0], &h, sizeof h), sizeof h);
  close(p[0]);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  return h;
}

static uint64_t hash_elsewhere(const char *hostid)
{
  return hashes_elsewhere(hostid, false).host;
}

// Ranks in containers share the cores of their machine, and nothing else that needs to be known.
static void test_container(void **state)
{
  (void)state;
  hashes here = hashes_elsewhere(NULL, false), there = hashes_elsewhere(NULL, true);
  if (there.machine == 0) {
    skip(); // no namespaces for us
  }
  assert_true(here.machine == tt_proc_machine_hash());
  assert_true(there.machine == here.machine);
  assert_true(there.host != here.host);
}

static void test_host(void **state)
{
  (void)state;
  char full[256] = "";
  gethostname(full, sizeof full - 1);
  const char *name = tt_proc_host_name();
  assert_ptr_equal(name, tt_proc_host_name());
  assert_true(strlen(name) > 0);
  assert_null(strchr(name, '.'));
  assert_int_equal(strncmp(full, name, strlen(name)), 0);
  uint64_t here = hash_elsewhere(NULL), a = hash_elsewhere("node-a"), b = hash_elsewhere("node-b");
  assert_true(here == hash_elsewhere(NULL));
  assert_true(here == hash_elsewhere("")); // empty is unset
  assert_true(a == hash_elsewhere("node-a"));
  assert_true(a != b);
  assert_true(a != here);
  assert_true(b != here);
  assert_true(here != tt_proc_machine_hash()); // which knows nothing of network namespaces
  assert_in_range(tt_proc_cpus(), 1, 100000);
  assert_in_range(tt_proc_numa() + 1, 0, 256); // -1: not known
  size_t cache = tt_proc_cache();
  assert_true(cache == 0 || (cache >= 4096 && cache <= (size_t)1 << 36)); // 0: not known
  assert_int_equal(cache == 0, access("/sys/devices/system/cpu/cpu0/cache/index0/size", R_OK) != 0);
}

// Ranks that share cores have these cores once, whatever else each may use.
static void test_core_sets(void **state)
{
  (void)state;
  tt_core_set own = tt_proc_core_set(), all = {{0}}, low = {{3}}, middle = {{6}}, high = {.bits[15] = 1ull << 63};
  assert_int_equal(tt_core_set_add(&all, &low), 2);
  assert_int_equal(tt_core_set_add(&all, &middle), 3);
  assert_int_equal(tt_core_set_add(&all, &low), 3);
  assert_int_equal(tt_core_set_add(&all, &high), 4);
  all = (tt_core_set){{0}};
  assert_int_equal(tt_core_set_add(&all, &own), tt_proc_cpus());
}

int main(int argc, char **argv)
{
  if (argc == 3 && strcmp(argv[1], "hash") == 0) {
    const hashes h = {tt_proc_host_hash(), tt_proc_machine_hash()};
    return write(atoi(argv[2]), &h, sizeof h) == sizeof h ? 0 : 1;
  }
  static tt_fork_hook hooks[MANY];
  for (int i = 0; i < MANY; i++) {
    hooks[i].fn = count_hook;
    tt_proc_on_fork(&hooks[i]);
  }
  tt_proc_on_fork(&hooks[0]);
  tt_proc_on_fork(&hooks[MANY - 1]); // which is the last one
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_self),      cmocka_unit_test(test_alive),
      cmocka_unit_test(test_odd_name),  cmocka_unit_test(test_main_thread_left),
      cmocka_unit_test(test_fork),      cmocka_unit_test(test_alive_without_descriptors),
      cmocka_unit_test(test_copy),      cmocka_unit_test(test_copy_bad_address),
      cmocka_unit_test(test_host),      cmocka_unit_test(test_container),
      cmocka_unit_test(test_holds),     cmocka_unit_test(test_a_wrong_descriptor_keeps_the_lock),
      cmocka_unit_test(test_may_open),  cmocka_unit_test(test_net_space),
      cmocka_unit_test(test_core_sets),
  };
  return cmocka_run_group_tests_name("proc", tests, NULL, NULL);
}
