// cuda_modes.h: tests on the driver for tests, in several of its modes (tests/cudasim), each in a process of its own.
//
// The word "resident" is no mode of the driver: ranks that share no GPU are resident (NCCL_CUDA_RESIDENT). With the
// driver's mode "lines" their messages are LL128 (NCCL_PROTO).
//
// CUDA_TEST_DRIVER=libcuda.so.1 runs them on a real driver. Of the modes it has those that variables of CUDA's set;
// the others are left out, and so is what a test needs of the driver for tests alone.
#pragma once
#include <dlfcn.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static inline const char *driver_folder(void)
{
  static char path[512];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(path, sizeof path, "%s/lib/cudasim", build != NULL ? build : "build");
  return path;
}

static inline bool real_driver(void)
{
  return getenv("CUDA_TEST_DRIVER") != NULL;
}

// The driver for tests of the build directory, or the one that CUDA_TEST_DRIVER names.
static inline void use_driver(void)
{
  char path[600];
  snprintf(path, sizeof path, "%s/libcuda.so.1", driver_folder());
  setenv("TUTTI_CUDA_DRIVER", real_driver() ? getenv("CUDA_TEST_DRIVER") : path, 1);
}

// A function that the driver for tests, which is open, has beside those of a driver: "cudasim_NAME" (cudasim/sim.h).
static inline void *driver_hook(const char *name)
{
  void *driver = dlopen(getenv("TUTTI_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
  void *hook = driver != NULL ? dlsym(driver, name) : NULL;
  if (hook == NULL) {
    fprintf(stderr, "no %s: %s\n", name, dlerror());
    exit(1);
  }
  return hook;
}

// A word of the modes as a variable of CUDA's, or nothing to set; false: there is none. `set`: set it.
static inline bool cuda_variable(const char *word, bool set)
{
  if (strncmp(word, "queues=", 7) == 0) {
    return !set || setenv("CUDA_DEVICE_MAX_CONNECTIONS", word + 7, 1) == 0;
  }
  if (strcmp(word, "devices=1") == 0 || strncmp(word, "deadlock=", 9) == 0) {
    return true;
  }
  return strcmp(word, "blocking") == 0 && (!set || setenv("CUDA_LAUNCH_BLOCKING", "1", 1) == 0);
}

// Whether a real driver has these modes; `set`: it has them from now on. Streams of threads share no hardware queue
// unless the modes say otherwise (docs/gpu.md).
static inline bool real_modes(const char *modes, bool set)
{
  char words[256], *rest = words;
  bool all = !set || setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1) == 0;
  snprintf(words, sizeof words, "%s", modes);
  for (const char *word; (word = strsep(&rest, ",")) != NULL && *word != '\0';) {
    all &= cuda_variable(word, set);
  }
  return all;
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

// After so long without progress the driver reports a deadlock. CUDA_DEADLOCK_MS: less where one is expected.
static inline int deadlock_ms(void)
{
  const char *limit = getenv("CUDA_DEADLOCK_MS");
  return limit != NULL ? atoi(limit) : 60000;
}

// The driver that this process opens, and those of its children, have these modes. `name`: of the test; processes of
// one test and mode share the devices.
static inline void set_modes(const char *modes, const char *name)
{
  char all[256];
  static const char resident[] = "resident,";
  const bool is_resident = strncmp(modes, resident, strlen(resident)) == 0;
  setenv("NCCL_CUDA_RESIDENT", is_resident ? "1" : "0", 1);
  modes += is_resident ? strlen(resident) : 0;
  if (strstr(modes, "lines") != NULL) {
    setenv("NCCL_PROTO", "LL128", 1);
  }
  if (real_driver()) {
    real_modes(modes, true);
  }
  snprintf(all, sizeof all, "%s%sdeadlock=%d,box=%s-%d", modes, *modes != '\0' ? "," : "", deadlock_ms(), name,
           (int)getpid());
  setenv("CUDASIM", all, 1);
  printf("modes \"%s\"\n", modes);
}

// Runs in_mode(modes[i], i), every `step`th, in processes of their own; or with `one` alone, unless that is NULL. A
// real driver runs those that it has. Returns how many have failed.
static inline int for_each_mode(const char *const *modes, size_t n, size_t step, const char *one,
                                int (*in_mode)(const char *modes, unsigned number))
{
  int failed = 0;
  for (size_t i = 0; i < (one != NULL ? 1 : n); i += step) {
    int status = 0;
    if (real_driver() && !real_modes(one != NULL ? one : modes[i], false)) {
      printf("modes \"%s\": not on a real driver\n", one != NULL ? one : modes[i]);
      continue;
    }
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
