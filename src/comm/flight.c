// flight.c: see flight.h. Reads recorders while their threads write them.
#include "comm/flight.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/text.h"
#include "comm/comm.h"
#include "comm/flight_signal.h"
#include "os/own_file.h"

#define PATH_MOST 4096
// Numbers of messages begin behind those of all collectives: fr_trace compares the two kinds with each other.
#define FIRST_MESSAGE (1ll << 32)

// The recorders of the process, the oldest first.
static pthread_mutex_t flight_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *first_recorder;

__attribute__((constructor)) static void flight_at_start(void)
{
  tt_proc_hold_at_fork(&flight_lock);
}

// ---- one operation

// What fr_trace calls the functions, and how many blocks a rank passes in and takes out; 0: as many as there are ranks.
// Blocks of several lengths are recorded as one, of the longer buffer. -1: no size, because fr_trace would compare it
// with other ranks', which have blocks of other lengths.
static const struct {
  const char *name;
  int in, out;
} flight_functions[TT_FLIGHT_FUNCS] = {
    [TT_FUNC_BROADCAST] = {"broadcast", 1, 1},
    [TT_FUNC_REDUCE] = {"reduce", 1, 1},
    [TT_FUNC_ALLGATHER] = {"_all_gather_base", 1, 0},
    [TT_FUNC_REDUCESCATTER] = {"_reduce_scatter_base", 0, 1},
    [TT_FUNC_ALLREDUCE] = {"all_reduce", 1, 1},
    [TT_FUNC_ALLTOALL] = {"all_to_all", 0, 0},
    [TT_FUNC_GATHER] = {"gather", 1, 0},
    [TT_FUNC_SCATTER] = {"scatter", 0, 1},
    [TT_FUNC_SEND] = {"send", 1, 1},
    [TT_FUNC_RECV] = {"recv", 1, 1},
    [TT_FUNC_ALLGATHERV] = {"all_gather_v", 1, 1},
    [TT_FUNC_REDUCESCATTERV] = {"reduce_scatter_v", 1, 1},
    [TT_FUNC_GATHERV] = {"gather", -1, 1},
    [TT_FUNC_SCATTERV] = {"scatter", 1, -1},
    [TT_FUNC_ALLTOALLV] = {"all_to_all", 1, 1},
    [TT_FLIGHT_PUT] = {"PutSignal", 1, 1},
    [TT_FLIGHT_SIGNAL] = {"Signal", 1, 1},
    [TT_FLIGHT_WAIT] = {"WaitSignal", 1, 1},
};

const char *tt_comm_flight_name(unsigned func)
{
  return func >= TT_NCALLS && func < TT_FLIGHT_FUNCS ? flight_functions[func].name : tt_func_name((tt_func)func);
}

// fr_trace ends at a name that it does not know: one-sided operations are in a list of their own, which it leaves
// alone.
static bool flight_is_rma(const tt_flight_entry *e)
{
  unsigned func = e->kind & 0xff;
  return func >= TT_FLIGHT_PUT && func < TT_FLIGHT_FUNCS;
}

// Names of the types as torch has them.
static const char *const flight_types[ncclNumTypes] = {[ncclInt8] = "Char",
                                                       [ncclUint8] = "Byte",
                                                       [ncclInt32] = "Int",
                                                       [ncclUint32] = "UInt32",
                                                       [ncclInt64] = "Long",
                                                       [ncclUint64] = "UInt64",
                                                       [ncclFloat16] = "Half",
                                                       [ncclFloat32] = "Float",
                                                       [ncclFloat64] = "Double",
                                                       [ncclBfloat16] = "BFloat16",
                                                       [ncclFloat8e4m3] = "Float8_e4m3fn",
                                                       [ncclFloat8e5m2] = "Float8_e5m2"};

// The clock and the ring of one communicator while it is dumped.
typedef struct flight_reader {
  const struct ncclComm *comm;
  int id; // of the communicator in the dump
  tt_moment now;
  int64_t wall_ns; // of the wall clock, less those of the monotonic one
  const tt_flight_entry *entries;
  size_t n;
} flight_reader;

static void flight_put_time(tt_values *v, const flight_reader *r, const char *key, uint64_t ticks)
{
  tt_values_key(v, key);
  if (ticks == TT_FLIGHT_NOT_YET) {
    tt_values_null(v);
  } else {
    tt_values_int(v, r->wall_ns + (int64_t)tt_ticks_ns(ticks, r->comm->recorder.opened, r->now));
  }
}

static void flight_put_sizes(tt_values *v, const char *key, uint64_t count, int blocks, int nranks)
{
  tt_values_key(v, key);
  tt_values_list(v);
  tt_values_list(v);
  if (blocks >= 0) {
    tt_values_int(v, (int64_t)(count * (uint64_t)(blocks == 0 ? nranks : blocks)));
  }
  tt_values_end(v);
  tt_values_end(v);
}

static void flight_put_type(tt_values *v, const char *key, unsigned type)
{
  tt_values_key(v, key);
  tt_values_list(v);
  tt_values_text(v, "%s", type < ncclNumTypes ? flight_types[type] : "undefined");
  tt_values_end(v);
}

static const char *flight_state(const tt_flight_entry *e)
{
  return e->started == TT_FLIGHT_NOT_YET ? "scheduled" : e->ended == TT_FLIGHT_NOT_YET ? "started" : "completed";
}

static void flight_put_name(tt_values *v, const struct ncclComm *c, unsigned func, int peer)
{
  const char *name = func < TT_FLIGHT_FUNCS ? flight_functions[func].name : "all_reduce";
  if (func == TT_FUNC_SEND) {
    tt_values_put_text(v, "profiling_name", "nccl:send %d->%d", c->rank, peer);
  } else if (func == TT_FUNC_RECV) {
    tt_values_put_text(v, "profiling_name", "nccl:recv %d<-%d", c->rank, peer);
  } else {
    tt_values_put_text(v, "profiling_name", "nccl:%s", name);
  }
}

static void flight_put_group(tt_values *v, const struct ncclComm *c)
{
  tt_values_key(v, "process_group");
  tt_values_list(v);
  tt_values_text(v, "%#llx", (unsigned long long)c->hash);
  tt_values_text(v, "%s", c->config.name[0] != '\0' ? c->config.name : "undefined");
  tt_values_end(v);
}

static void flight_put_duration(tt_values *v, const flight_reader *r, const tt_flight_entry *e)
{
  tt_values_key(v, "duration_ms");
  if (e->ended == TT_FLIGHT_NOT_YET) {
    tt_values_null(v);
    return;
  }
  const tt_moment *then = &r->comm->recorder.opened;
  tt_values_float(v, (double)(tt_ticks_ns(e->ended, *then, r->now) - tt_ticks_ns(e->started, *then, r->now)) / 1e6);
}

// What was asked for: function, arguments.
static void flight_put_call(tt_values *v, const flight_reader *r, const tt_flight_entry *e)
{
  unsigned func = e->kind & 0xff, type = e->kind >> 8 & 0xff;
  bool known = func < TT_FLIGHT_FUNCS;
  int peer = (int32_t)(e->kind >> 32), n = r->comm->nranks;
  uint64_t count = func == TT_FLIGHT_WAIT ? 0 : e->count;
  flight_put_name(v, r->comm, func, peer);
  flight_put_sizes(v, "input_sizes", count, known ? flight_functions[func].in : 1, n);
  flight_put_sizes(v, "output_sizes", count, known ? flight_functions[func].out : 1, n);
  flight_put_type(v, "input_dtypes", type);
  flight_put_type(v, "output_dtypes", type);
  tt_values_put_bool(v, "is_p2p", tt_func_is_message((tt_func)func));
  tt_values_put_int(v, "operator", (int64_t)(e->kind >> 16 & 0xff));
  tt_values_put_int(v, "peer", peer);
  if (flight_is_rma(e)) {
    tt_values_put_int(v, "signals", func == TT_FLIGHT_WAIT ? (int64_t)e->count : 1);
  }
}

static void flight_put_entry(tt_values *v, const flight_reader *r, const tt_flight_entry *e)
{
  tt_values_dict(v);
  tt_values_put_int(v, "record_id", (int64_t)e->number);
  tt_values_put_int(v, "pg_id", r->id);
  flight_put_group(v, r->comm);
  tt_values_put_int(v, "collective_seq_id", (int64_t)e->sequence);
  tt_values_put_int(v, "p2p_seq_id", FIRST_MESSAGE + (int64_t)e->number);
  tt_values_put_int(v, "op_id", (int64_t)e->number);
  flight_put_call(v, r, e);
  tt_values_put_text(v, "state", "%s", flight_state(e));
  flight_put_time(v, r, "time_created_ns", e->added);
  flight_put_time(v, r, "time_discovered_started_ns", e->started);
  flight_put_time(v, r, "time_discovered_completed_ns", e->ended);
  flight_put_duration(v, r, e);
  tt_values_put_bool(v, "retired", e->ended != TT_FLIGHT_NOT_YET);
  tt_values_put_int(v, "timeout_ms", tt_params_get()->stall_error_ms);
  tt_values_put_text(v, "stream", "%#llx", (unsigned long long)e->stream);
  tt_values_put_text(v, "thread_id", "%#llx", (unsigned long long)e->thread);
  tt_values_put_text(v, "thread_name", "%s", "");
  tt_values_key(v, "frames");
  tt_values_list(v);
  tt_values_end(v);
  tt_values_end(v);
}

// ---- one rank of the job

static bool flight_is_of(const struct ncclComm *c, int job_rank)
{
  return c->recorder.job_rank == job_rank && c->port.flight.mask != 0;
}

// "[0, 1]"
static void flight_put_ranks(tt_values *v, const struct ncclComm *c)
{
  size_t room = (size_t)c->nranks * 13 + 3, at = 0;
  char *text = tt_calloc(room, 1);
  for (int i = 0; text != NULL && i < c->nranks; i++) {
    at += (size_t)snprintf(text + at, room - at, "%s%d", i == 0 ? "[" : ", ", c->peers[i].job_rank);
  }
  tt_values_key(v, "ranks");
  if (text != NULL) {
    text[at] = ']';
  }
  tt_values_string(v, text != NULL ? text : "[]");
  tt_free(text);
}

static void flight_put_config(tt_values *v, int job_rank)
{
  tt_values_key(v, "pg_config");
  tt_values_dict(v);
  for (const struct ncclComm *c = first_recorder; c != NULL; c = c->recorder.next) {
    if (flight_is_of(c, job_rank)) {
      char key[24];
      snprintf(key, sizeof key, "%#llx", (unsigned long long)c->hash);
      tt_values_key(v, key);
      tt_values_dict(v);
      tt_values_put_text(v, "name", "%s", key);
      tt_values_put_text(v, "desc", "%s", c->config.name[0] != '\0' ? c->config.name : "undefined");
      flight_put_ranks(v, c);
      tt_values_end(v);
    }
  }
  tt_values_end(v);
}

// The numbers of the last operation that was queued, that started, that ended; one-sided ones have none.
static void flight_put_status(tt_values *v, const flight_reader *r)
{
  int64_t queued = -1, started = -1, ended = -1;
  for (size_t i = 0; i < r->n; i++) {
    const tt_flight_entry *e = &r->entries[i];
    int64_t number = (int64_t)e->sequence;
    if (flight_is_rma(e)) {
      continue;
    }
    queued = number;
    started = e->started != TT_FLIGHT_NOT_YET ? number : started;
    ended = e->ended != TT_FLIGHT_NOT_YET ? number : ended;
  }
  char key[24];
  snprintf(key, sizeof key, "%d", r->id);
  tt_values_key(v, key);
  tt_values_dict(v);
  tt_values_put_int(v, "last_enqueued_collective", queued);
  tt_values_put_int(v, "last_started_collective", started);
  tt_values_put_int(v, "last_completed_collective", ended);
  tt_values_end(v);
}

static int64_t flight_wall(void)
{
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (int64_t)t.tv_sec * (int64_t)TT_NS_PER_S + t.tv_nsec - (int64_t)tt_now_ns();
}

// Calls `put` for each communicator of the rank, numbered as in the dump.
static void flight_each(tt_values *v, int job_rank, size_t most, void (*put)(tt_values *v, const flight_reader *r))
{
  flight_reader r = {.now = tt_moment_now(), .wall_ns = flight_wall()};
  for (const struct ncclComm *c = first_recorder; c != NULL; c = c->recorder.next) {
    if (flight_is_of(c, job_rank)) {
      r.comm = c;
      tt_flight_entry *all;
      size_t n = tt_flight_copy(&c->port.flight, &all);
      r.n = TT_MIN(n, most);
      r.entries = all + (n - r.n);
      r.now = tt_moment_now(); // later than all that was copied
      put(v, &r);
      tt_free(all);
      r.id++;
    }
  }
}

static void flight_put_some(tt_values *v, const flight_reader *r, bool rma)
{
  for (size_t i = 0; i < r->n; i++) {
    if (flight_is_rma(&r->entries[i]) == rma) {
      flight_put_entry(v, r, &r->entries[i]);
    }
  }
}

static void flight_put_entries(tt_values *v, const flight_reader *r)
{
  flight_put_some(v, r, false);
}

static void flight_put_rma(tt_values *v, const flight_reader *r)
{
  flight_put_some(v, r, true);
}

// Lock held.
static char *flight_write(int job_rank, tt_values_format format, size_t most, size_t *length)
{
  tt_values v;
  tt_values_open(&v, format);
  tt_values_dict(&v);
  tt_values_put_text(&v, "version", "2.10");
  tt_values_put_text(&v, "comm_lib_version", "%d.%d.%d", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
  tt_values_put_int(&v, "rank", job_rank);
  tt_values_put_text(&v, "host", "%s", tt_proc_host_name());
  tt_values_put_int(&v, "pid", getpid());
  tt_values_put_int(&v, "time_ns", flight_wall() + (int64_t)tt_now_ns());
  flight_put_config(&v, job_rank);
  tt_values_key(&v, "pg_status");
  tt_values_dict(&v);
  flight_each(&v, job_rank, most, flight_put_status);
  tt_values_end(&v);
  tt_values_key(&v, "entries");
  tt_values_list(&v);
  flight_each(&v, job_rank, most, flight_put_entries);
  tt_values_end(&v);
  tt_values_key(&v, "one_sided");
  tt_values_list(&v);
  flight_each(&v, job_rank, most, flight_put_rma);
  tt_values_end(&v);
  tt_values_end(&v);
  return tt_values_close(&v, length);
}

ncclResult_t tt_comm_flight_text(const struct ncclComm *comm, tt_values_format format, size_t most, char **text,
                                 size_t *length)
{
  pthread_mutex_lock(&flight_lock);
  char *all = flight_write(comm->recorder.job_rank, format, most, length);
  pthread_mutex_unlock(&flight_lock);
  if (all == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for the flight recorder's dump", comm->rank);
  }
  *text = all;
  return ncclSuccess;
}

// ---- files

// A whole file appears under its name, or none: readers may look at any time.
static ncclResult_t flight_put_file(const char *path, const char *text, size_t length)
{
  char part[PATH_MOST + 32];
  snprintf(part, sizeof part, "%s.%d", path, (int)getpid());
  (void)unlink(part); // what a dead process has left; another user's file, or a pipe, is not written to
  int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  bool good = fd >= 0 && tt_write_all(fd, text, length);
  int e = errno;
  if (fd >= 0 && close(fd) != 0 && good) {
    good = false;
    e = errno;
  }
  if (good && rename(part, path) != 0) {
    good = false;
    e = errno;
  }
  if (!good) {
    (void)unlink(part);
    return tt_fail(ncclSystemError, "cannot write the flight recorder's file %s (NCCL_FLIGHT_RECORDER_FILE): %s", path,
                   strerror(e));
  }
  return ncclSuccess;
}

static ncclResult_t flight_dump_rank(const char *prefix, int job_rank, tt_values_format format)
{
  char path[PATH_MOST];
  size_t length;
  if (snprintf(path, sizeof path, "%s%d", prefix, job_rank) >= (int)sizeof path) {
    return tt_fail(ncclInvalidArgument, "the name of the flight recorder's file is longer than %d bytes", PATH_MOST);
  }
  char *text = flight_write(job_rank, format, SIZE_MAX, &length);
  if (text == NULL) {
    return tt_fail(ncclSystemError, "no memory for the flight recorder's file %s", path);
  }
  ncclResult_t res = flight_put_file(path, text, length);
  free(text);
  return res;
}

// Is the communicator the first one of its rank of the job?
static bool flight_is_first(const struct ncclComm *comm)
{
  const struct ncclComm *c = first_recorder;
  while (c->recorder.job_rank != comm->recorder.job_rank) {
    c = c->recorder.next;
  }
  return c == comm;
}

bool tt_comm_flight_speaks(const struct ncclComm *comm)
{
  pthread_mutex_lock(&flight_lock);
  const struct ncclComm *c = first_recorder;
  while (c != NULL && c != comm) {
    c = c->recorder.next;
  }
  bool first = c != NULL && flight_is_first(c);
  pthread_mutex_unlock(&flight_lock);
  return first;
}

static tt_values_format flight_format(void)
{
  const char *wanted = tt_params_get()->flight_recorder_format;
  return wanted != NULL && tt_casecmp(wanted, "json") == 0 ? TT_VALUES_JSON : TT_VALUES_PICKLE;
}

ncclResult_t tt_comm_flight_dump(const char *prefix)
{
  ncclResult_t res = ncclSuccess;
  pthread_mutex_lock(&flight_lock);
  for (const struct ncclComm *c = first_recorder; c != NULL; c = c->recorder.next) {
    if (flight_is_first(c)) {
      ncclResult_t r = flight_dump_rank(prefix, c->recorder.job_rank, flight_format());
      res = res == ncclSuccess ? r : res;
    }
  }
  pthread_mutex_unlock(&flight_lock);
  return res;
}

// ---- communicators

// The rank has failed, or waits for long: its operations may be wanted. The caller's error stays the last one.
static void flight_alarm(tt_port *port)
{
  const struct ncclComm *comm = (struct ncclComm *)(void *)((char *)port - offsetof(struct ncclComm, port));
  char error[sizeof port->error];
  snprintf(error, sizeof error, "%s", tt_last_error());
  pthread_mutex_lock(&flight_lock);
  ncclResult_t res = flight_dump_rank(tt_params_get()->flight_recorder_file, comm->recorder.job_rank, flight_format());
  pthread_mutex_unlock(&flight_lock);
  if (res != ncclSuccess) {
    tt_warn("rank %d: %s", port->rank, tt_last_error());
  }
  tt_last_error_set(error);
}

int tt_comm_flight_rank(const struct ncclComm *comm)
{
  pthread_mutex_lock(&flight_lock);
  const struct ncclComm *c = first_recorder;
  while (c != NULL && (c->device != comm->device || c->hash == comm->hash)) {
    c = c->recorder.next;
  }
  int rank = c != NULL ? c->recorder.job_rank : comm->rank;
  pthread_mutex_unlock(&flight_lock);
  return rank;
}

void tt_comm_flight_open(struct ncclComm *comm)
{
  tt_flight_open(&comm->port.flight, (size_t)TT_CLAMP(tt_params_get()->flight_recorder_size, 0, INT32_MAX));
  comm->recorder.job_rank = comm->peers[comm->rank].job_rank;
  comm->recorder.opened = tt_moment_now();
  if (tt_params_get()->flight_recorder_file != NULL) {
    comm->port.alarm = flight_alarm;
    tt_comm_flight_listen();
  }
  pthread_mutex_lock(&flight_lock);
  struct ncclComm **at = &first_recorder;
  while (*at != NULL) {
    at = &(*at)->recorder.next;
  }
  *at = comm;
  pthread_mutex_unlock(&flight_lock);
}

void tt_comm_flight_close(struct ncclComm *comm)
{
  pthread_mutex_lock(&flight_lock);
  struct ncclComm **at = &first_recorder;
  while (*at != NULL && *at != comm) {
    at = &(*at)->recorder.next;
  }
  if (*at != NULL) {
    *at = comm->recorder.next;
  }
  pthread_mutex_unlock(&flight_lock);
  comm->port.alarm = NULL;
  tt_flight_close(&comm->port.flight);
}
