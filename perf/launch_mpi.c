// The launcher for processes that an mpirun started: they speak MPI with each other, through the shared object of that
// MPI.
#define _GNU_SOURCE // dladdr
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "fail.h"
#include "launch.h"
#include "mpi_module.h"

enum { READ_TRIES = 500 }; // milliseconds

static const char *object_name(const perf_place *p)
{
  return p->by == PERF_BY_MPICH ? "perf_mpi_mpich.so" : "perf_mpi_openmpi.so";
}

// A PMIx server without Slurm is that of prterun, which belongs to Open MPI.
static bool wanted(const perf_options *o, const perf_place *p)
{
  bool mpi = p->by == PERF_BY_OPENMPI || p->by == PERF_BY_MPICH || p->has_server;
  return o->procs == 1 && p->procs != 1 && mpi;
}

// Beside the library, or wherever the loader looks. MPI's own plugins want MPI's names, hence RTLD_GLOBAL.
static void *open_beside_library(const char *name)
{
  Dl_info library;
  char path[4096];
  void *known = dlsym(RTLD_DEFAULT, "ncclGetVersion"), *object = NULL;
  if (known && dladdr(known, &library) && library.dli_fname) {
    const char *slash = strrchr(library.dli_fname, '/');
    int folder = slash ? (int)(slash - library.dli_fname) + 1 : 0;
    snprintf(path, sizeof(path), "%.*s%s", folder, library.dli_fname, name);
    object = access(path, R_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
  }
  return object ? object : dlopen(name, RTLD_NOW | RTLD_GLOBAL);
}

static const perf_mpi *open_object(const perf_place *p)
{
  void *object = open_beside_library(object_name(p));
  const perf_mpi *mpi = object ? dlsym(object, PERF_MPI_TABLE) : NULL;
  if (mpi && mpi->version == PERF_MPI_VERSION) {
    return mpi;
  }
  if (p->proc == 0) {
    const char *why = dlerror();
    perf_say("no %s support (%s): using the launcher's variables (%s) in its place", perf_by_name(p->by),
             why ? why : "made for other programs", p->size_name);
  }
  if (object) {
    dlclose(object);
  }
  return NULL;
}

static bool ok(const perf_mpi *mpi, int error)
{
  char text[512];
  if (error) {
    mpi->error_text(error, text, sizeof(text));
    perf_say("MPI: %s", text);
  }
  return !error;
}

static bool fits(const perf_place *p, const perf_world *w)
{
  if (p->procs == 0 || (w->procs == p->procs && w->proc == p->proc)) {
    return true;
  }
  perf_say("%s=%d and %s=%d, but MPI says process %d of %d: %s was built for another MPI than that of the mpirun",
           p->rank_name, p->proc, p->size_name, p->procs, w->proc, w->procs, object_name(p));
  return false;
}

static perf_launch_result init(const perf_options *o, const perf_place *p, perf_world *w)
{
  const perf_mpi *mpi = open_object(p);
  if (!mpi) {
    return PERF_LAUNCH_NEXT;
  }
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0); // where MPI itself waits: in its init and finalize
  *w = (perf_world){.launcher = &perf_launch_mpi, .state = (void *)mpi};
  if (!ok(mpi, mpi->init(&w->proc, &w->procs))) {
    return PERF_LAUNCH_FAILED;
  }
  if (!fits(p, w)) {
    mpi->abort(PERF_EXIT_INTERNAL);
    return PERF_LAUNCH_FAILED;
  }
  perf_name_process(w->proc, w->procs, o->threads * o->gpus);
  return PERF_LAUNCHED;
}

static bool barrier(perf_world *w)
{
  const perf_mpi *mpi = w->state;
  return ok(mpi, mpi->barrier());
}

static bool allgather(perf_world *w, const void *mine, void *all, size_t size)
{
  const perf_mpi *mpi = w->state;
  return ok(mpi, mpi->allgather(mine, all, size));
}

static bool bcast(perf_world *w, void *data, size_t size, int root)
{
  const perf_mpi *mpi = w->state;
  return ok(mpi, mpi->bcast(data, size, root));
}

// Some finalize functions spin until the last process is there; by then it is.
static void finalize(perf_world *w, int status)
{
  const perf_mpi *mpi = w->state;
  (void)status;
  if (barrier(w)) {
    ok(mpi, mpi->finalize());
  }
}

// MPICH's mpirun stops reading a process's output as soon as one aborts: what it was told last, why, would often be
// lost. So it gets a while to read it.
static void let_read(int fd)
{
  int unread = 0;
  for (int i = 0; i < READ_TRIES && ioctl(fd, FIONREAD, &unread) == 0 && unread > 0; i++) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
}

static void abort_job(perf_world *w, int status)
{
  const perf_mpi *mpi = w->state;
  let_read(STDOUT_FILENO);
  let_read(STDERR_FILENO);
  mpi->abort(status);
}

const perf_launcher perf_launch_mpi = {
    .name = "mpi",
    .wanted = wanted,
    .init = init,
    .barrier = barrier,
    .allgather = allgather,
    .bcast = bcast,
    .finalize = finalize,
    .abort = abort_job,
};
