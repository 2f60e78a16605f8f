// cuda_modes.h: tests on the driver for tests, in several of its modes (tests/cudasim), each in a process of its own.
#pragma once
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static inline const char *driver_folder(void)
{
  static char path[512];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(path, sizeof path, "%s/lib/cudasim", build != NULL ? build : "build");
  return path;
}

// The driver for tests of the build directory.
static inline void use_driver(void)
{
  char path[600];
  snprintf(path, sizeof path, "%s/libcuda.so.1", driver_folder());
  setenv("TUTTI_CUDA_DRIVER", path, 1);
}

// Removes what processes that were killed, or left by _exit, have in common still: the file that the driver has for the
// devices of set_modes in process `pid`.
static inline void drop_devices(pid_t pid)
{
  char pattern[600];
  glob_t found;
  snprintf(pattern, sizeof pattern, "%s/box-%u-*-%d", driver_folder(), (unsigned)getuid(), (int)pid);
  if (glob(pattern, 0, NULL, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; i++) {
      unlink(found.gl_pathv[i]);
    }
    globfree(&found);
  }
}

// The driver that this process opens, and those of its children, have these modes. `name`: of the test; processes of
// one test and mode share the devices.
static inline void set_modes(const char *modes, const char *name)
{
  char all[256];
  const char *limit = getenv("CUDA_DEADLOCK_MS"); // less where a deadlock is expected
  snprintf(all, sizeof all, "%s%sdeadlock=%s,box=%s-%d", modes, *modes != '\0' ? "," : "",
           limit != NULL ? limit : "60000", name, (int)getpid());
  setenv("CUDASIM", all, 1);
  printf("modes \"%s\"\n", modes);
}

// Runs in_mode(modes[i], i), every `step`th, in processes of their own; or with `one` alone, unless that is NULL.
// Returns how many have failed.
static inline int for_each_mode(const char *const *modes, size_t n, size_t step, const char *one,
                                int (*in_mode)(const char *modes, unsigned number))
{
  int failed = 0;
  for (size_t i = 0; i < (one != NULL ? 1 : n); i += step) {
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
      exit(in_mode(one != NULL ? one : modes[i], (unsigned)i) != 0);
    }
    waitpid(child, &status, 0);
    drop_devices(child);
    failed += status != 0;
  }
  return failed;
}
