// proc.h: this process and its peers: identity, life, and reading a peer's memory.
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "nccl.h"

// The identity of a process. A process id alone can be reused, so it stands with the start time and a random number.
typedef struct tt_proc_id {
  int32_t pid;
  uint32_t uid;
  uint64_t start;  // start time in clock ticks since boot (/proc/<pid>/stat field 22); 0 when unreadable
  uint64_t cookie; // random; made once per process, anew in a forked child
} tt_proc_id;

// This process. Any thread.
tt_proc_id tt_proc_self(void);

// Counts forks: the value differs between a parent and its child. Objects remember it to recognise use in a child. Any
// thread.
extern TT_HIDDEN uint32_t tt_proc_generation;

// What a module does in a forked child. Its own, for as long as the library is loaded.
typedef struct tt_fork_hook {
  void (*fn)(void);
  struct tt_fork_hook *next; // of proc.c
} tt_fork_hook;

// Calls the hook's `fn` in the child after each later fork, in the order of the calls. A hook that is there already
// stays where it is. Any thread.
void tt_proc_on_fork(tt_fork_hook *hook);

// From now on every fork waits until `lock` is free, and holds it meanwhile: so the child finds the lock free and
// what it guards whole. For locks of the process that are held for a short while, with no user's code inside, and no
// other such lock but those given later: forks take them in that order. At most 32, which stay for ever. Called while
// the library is loaded.
void tt_proc_hold_at_fork(pthread_mutex_t *lock);

// Is the process that was `id` still there? Reads /proc; costs microseconds. Any thread.
bool tt_proc_alive(const tt_proc_id *id);

// What the process does: 'R' one of its threads computes; 'S' all sleep, 'D' the first one so that no signal wakes it;
// 'T' stopped by a signal, 't' by a debugger; 'Z' it has ended; 0: not known. Reads /proc. Any thread.
char tt_proc_doing(int32_t pid);

enum { TT_PROC_TEXT = 160 };
// The same in words that follow "the process": "computes", "is stopped by a signal (…)", "sleeps in futex, a lock or
// condition", "is swapped out", "has exited". False: nothing is known. Reads /proc. Any thread.
bool tt_proc_describe(int32_t pid, char text[TT_PROC_TEXT]);

// Life of processes that map one piece of shared memory, also where one cannot look for the other by its number:
// another PID namespace, no /proc. Each process locks the byte of the memory's file that its cookie names; the kernel
// gives the lock back when the process ends, calls exec, or closes any descriptor of this file. A forked child does not
// inherit it. So a process keeps the descriptor as long as it uses the memory, and opens the file no second time.
//
// Takes this process's lock in `fd`. Any thread. Errors: ncclSystemError.
ncclResult_t tt_proc_hold(int fd);
// Does the process with this cookie, another one, hold its lock in `fd`? One system call. True where it cannot be found
// out. Any thread.
bool tt_proc_holds(int fd, uint64_t cookie);

// Names the network namespace of this process, in which abstract local sockets are found: equal values, same namespace.
// 0: not known.
uint64_t tt_proc_net_space(void);

// Names the name space that process ids are numbers of: equal for two processes that can look for each other in /proc.
// 0 when /proc does not show this process itself.
uint64_t tt_proc_pid_space(void);

// May this process open descriptors of the process `pid`, whose ids are numbers of `space` (its tt_proc_pid_space)?
// Reads a few links of /proc. Any thread.
bool tt_proc_may_open(int32_t pid, uint64_t space);

// Opens a descriptor of another process (or of this one) anew: what stands behind number `fd` there, if it is shared
// memory of tt_shm_create with this name (NULL: any) and this inode number (0: any). Anything else is left alone: it is
// not even opened, because closing it would give up this process's locks in it (tt_proc_hold). Needs /proc and the
// right to look into the process (same user). The caller closes *out. Returns 0 or an errno value; ENOENT: the process
// or its descriptor is gone, or is another one now. Any thread.
int tt_proc_open_shm(int32_t pid, int fd, const char *name, uint64_t inode, int *out);

// The same with the error in words.
// Errors: ncclInvalidArgument (the process or its descriptor is gone, or is another one now), ncclSystemError.
ncclResult_t tt_proc_open_fd(const tt_proc_id *id, int fd, uint64_t inode, int *out);

// Reads (write = false) or writes `size` bytes of another process's memory. Returns 0 or an errno value. Any thread.
int tt_proc_copy(int32_t pid, void *local, uint64_t remote, size_t size, bool write);

// Hash that says "same machine, and descriptors can be passed": boot id, host name and network namespace, or
// NCCL_HOSTID when set.
uint64_t tt_proc_host_hash(void);
// The boot id alone (the host name where it cannot be read): ranks with equal values run under one kernel and may share
// cores, also in containers with host names and networks of their own, and whatever NCCL_HOSTID says.
uint64_t tt_proc_machine_hash(void);
// Host name, without domain. Valid for the life of the process.
const char *tt_proc_host_name(void);
// Cores this process may use.
int tt_proc_cpus(void);

// Which they are: a bit for each. Empty where the system has more than fit, or does not say.
typedef struct tt_core_set {
  uint64_t bits[16];
} tt_core_set;
tt_core_set tt_proc_core_set(void);
// Adds the cores of `more`, and returns how many the set has then.
int tt_core_set_add(tt_core_set *s, const tt_core_set *more);
// NUMA node of the cores that the calling thread may use; -1: they are on several, or the system does not say. Reads a
// file or two of /sys.
int tt_proc_numa(void);
// Bytes of the largest cache that a core of the calling thread uses; 0: the system does not say. Reads a few files of
// /sys.
size_t tt_proc_cache(void);
