// Wrong use gives the right code and a text that names the argument, its value and the rank; it never hangs and never
// harms what was right.
#include "harness.h"

#include "base/util.h"

enum { COUNT = 100 };

static float data[2][4 * COUNT];

// --- Arguments

static void handles_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  ncclUniqueId id;
  ncclComm_t comm = NULL, gone;
  ncclResult_t state;
  int n;
  float *x = data[0];
  OK(ncclGetUniqueId(&id));
  OK(ncclCommInitRank(&comm, 1, id, 0));
  REFUSED(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, NULL, NULL), ncclInvalidArgument, "ncclAllReduce",
          "communicator is NULL");
  REFUSED(ncclCommCount(NULL, &n), ncclInvalidArgument, "ncclCommCount", "NULL");
  REFUSED(ncclCommFinalize(NULL), ncclInvalidArgument, "ncclCommFinalize", "NULL");
  REFUSED(ncclCommGetAsyncError(NULL, &state), ncclInvalidArgument, "ncclCommGetAsyncError", "NULL");
  REFUSED(ncclCommGetAsyncError(comm, NULL), ncclInvalidArgument, "ncclCommGetAsyncError", "asyncError is NULL",
          "rank 0");
  REFUSED(ncclCommUserRank(comm, NULL), ncclInvalidArgument, "ncclCommUserRank", "NULL", "rank 0");
  REFUSED(ncclCommSplit(NULL, 0, 0, &gone, NULL), ncclInvalidArgument, "ncclCommSplit", "NULL");
  REFUSED(ncclCommSplit(comm, 0, 0, NULL, NULL), ncclInvalidArgument, "ncclCommSplit", "newcomm is NULL", "rank 0");
  REFUSED(ncclCommSplit(comm, -2, 0, &gone, NULL), ncclInvalidArgument, "color is -2", "rank 0");
  REFUSED(ncclGetUniqueId(NULL), ncclInvalidArgument, "uniqueId is NULL");
  REFUSED(ncclCommInitRank(NULL, 1, id, 0), ncclInvalidArgument, "ncclCommInitRank", "comm is NULL");
  REFUSED(ncclCommInitAll(NULL, 1, NULL), ncclInvalidArgument, "ncclCommInitAll", "comm");
  REFUSED(ncclCommInitAll(&gone, 0, NULL), ncclInvalidArgument, "ncclCommInitAll", "ndev is 0");
  REFUSED(ncclCommInitAll(&gone, 1, &(int){-1}), ncclInvalidArgument, "ncclCommInitAll", "device -1");
  REFUSED(ncclGetVersion(NULL), ncclInvalidArgument, "version is NULL");
  OK(ncclCommDestroy(NULL));
  OK(ncclCommAbort(NULL));
  OK(ncclCommDestroy(comm));
  gone = comm;
  REFUSED(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, gone, NULL), ncclInvalidArgument, "ncclAllReduce",
          "has been destroyed");
  REFUSED(ncclAllReduceConfig(x, x, 1, ncclFloat, ncclSum, gone, NULL, NULL), ncclInvalidArgument,
          "ncclAllReduceConfig", "has been destroyed");
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  REFUSED(ncclGatherConfig(x, x, 1, ncclFloat, 0, gone, NULL, &config), ncclInvalidArgument, "ncclGatherConfig",
          "has been destroyed");
  REFUSED(ncclCommSuspend(gone, NCCL_SUSPEND_MEM), ncclInvalidArgument, "ncclCommSuspend", "has been destroyed");
  REFUSED(ncclCommResume(gone), ncclInvalidArgument, "ncclCommResume", "has been destroyed");
  REFUSED(ncclCommMemStats(gone, ncclStatGpuMemTotal, &(uint64_t){0}), ncclInvalidArgument, "ncclCommMemStats",
          "has been destroyed");
  REFUSED(ncclCommDestroy(gone), ncclInvalidArgument, "ncclCommDestroy", "has been destroyed");
  REFUSED(ncclCommAbort(gone), ncclInvalidArgument, "ncclCommAbort", "has been destroyed");
  REFUSED(ncclCommGetAsyncError(gone, &state), ncclInvalidArgument, "ncclCommGetAsyncError", "has been destroyed");
  REFUSED(ncclCommCount(gone, &n), ncclInvalidArgument, "ncclCommCount", "has been destroyed");
  CHECK(ncclGetLastError(gone) != NULL, "text of a communicator that has been destroyed");
}

// However many communicators come after it, a stale handle means none of them.
static void stale_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  enum { ROUNDS = 40 };
  ncclComm_t dead[ROUNDS], comm;
  int n;
  for (int i = 0; i < ROUNDS; i++) {
    OK(ncclCommInitAll(&comm, 1, NULL));
    for (int k = 0; k < i; k++) {
      CHECK(dead[k] != comm, "handle %d is that of communicator %d", k, i);
      REFUSED(ncclCommDestroy(dead[k]), ncclInvalidArgument, "ncclCommDestroy", "has been destroyed");
    }
    OK(ncclCommCount(comm, &n));
    dead[i] = comm;
    OK(i % 2 == 0 ? ncclCommDestroy(comm) : ncclCommAbort(comm));
  }
}

static void refuses_bad_handles(void **state)
{
  (void)state;
  PROCESSES(1, 60, stale_body, NULL);
  PROCESSES(1, 10, handles_body, NULL);
}

static void arguments_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  world w;
  float *x = data[0];
  world_open(&w, 2);
  ncclComm_t c = w.comm[1];
  REFUSED(ncclBroadcast(x, x, 1, ncclFloat, -1, c, NULL), ncclInvalidArgument, "ncclBroadcast", "root is -1", "rank 1");
  REFUSED(ncclBcast(x, 1, ncclFloat, 2, c, NULL), ncclInvalidArgument, "ncclBcast", "root is 2", "rank 1");
  REFUSED(ncclReduce(x, x, 1, ncclFloat, ncclSum, 2, c, NULL), ncclInvalidArgument, "ncclReduce", "root is 2",
          "rank 1");
  REFUSED(ncclGather(x, x, 1, ncclFloat, -7, c, NULL), ncclInvalidArgument, "ncclGather", "root is -7", "rank 1");
  REFUSED(ncclScatter(x, x, 1, ncclFloat, 99, c, NULL), ncclInvalidArgument, "ncclScatter", "root is 99", "rank 1");
  REFUSED(ncclSend(x, 1, ncclFloat, 2, c, NULL), ncclInvalidArgument, "ncclSend", "peer is 2", "rank 1");
  REFUSED(ncclRecv(x, 1, ncclFloat, -1, c, NULL), ncclInvalidArgument, "ncclRecv", "peer is -1", "rank 1");
  REFUSED(ncclAllReduce(x, x, 1, (ncclDataType_t)12, ncclSum, c, NULL), ncclInvalidArgument, "datatype", "12",
          "rank 1");
  REFUSED(ncclAllGather(x, x, 1, (ncclDataType_t)-1, c, NULL), ncclInvalidArgument, "datatype", "-1", "rank 1");
  REFUSED(ncclAllReduce(NULL, x, 5, ncclFloat, ncclSum, c, NULL), ncclInvalidArgument, "sendbuff is NULL", "5",
          "rank 1");
  REFUSED(ncclAllReduce(x, NULL, 5, ncclFloat, ncclSum, c, NULL), ncclInvalidArgument, "recvbuff is NULL", "5",
          "rank 1");
  REFUSED(ncclReduce(x, NULL, 5, ncclFloat, ncclSum, 1, c, NULL), ncclInvalidArgument, "recvbuff is NULL", "rank 1");
  REFUSED(ncclScatter(NULL, x, 5, ncclFloat, 1, c, NULL), ncclInvalidArgument, "sendbuff is NULL", "rank 1");
  REFUSED(ncclSend(NULL, 5, ncclFloat, 0, c, NULL), ncclInvalidArgument, "ncclSend", "sendbuff is NULL");
  REFUSED(ncclRecv(NULL, 5, ncclFloat, 0, c, NULL), ncclInvalidArgument, "ncclRecv", "recvbuff is NULL");
  REFUSED(ncclAllReduce(x, x, SIZE_MAX / 4, ncclDouble, ncclSum, c, NULL), ncclInvalidArgument, "count", "does not fit",
          "rank 1");
  REFUSED(ncclAllGather(x, x, SIZE_MAX / 2 + 1, ncclUint8, c, NULL), ncclInvalidArgument, "count", "does not fit",
          "rank 1");
  REFUSED(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, c, (cudaStream_t)data), ncclInvalidArgument, "stream",
          "not a stream");
  ncclCollConfig_t f = NCCL_COLLCONFIG_INITIALIZER;
  REFUSED(ncclBroadcastConfig(x, x, 1, ncclFloat, -1, c, NULL, &f), ncclInvalidArgument, "ncclBroadcastConfig",
          "root is -1", "rank 1");
  REFUSED(ncclReduceConfig(x, x, 1, ncclFloat, ncclSum, 2, c, NULL, &f), ncclInvalidArgument, "ncclReduceConfig",
          "root is 2");
  REFUSED(ncclGatherConfig(x, x, 1, ncclFloat, -7, c, NULL, NULL), ncclInvalidArgument, "ncclGatherConfig",
          "root is -7");
  REFUSED(ncclScatterConfig(NULL, x, 5, ncclFloat, 1, c, NULL, &f), ncclInvalidArgument, "ncclScatterConfig",
          "sendbuff is NULL", "rank 1");
  REFUSED(ncclAllGatherConfig(x, x, SIZE_MAX / 2 + 1, ncclUint8, c, NULL, &f), ncclInvalidArgument,
          "ncclAllGatherConfig", "does not fit");
  REFUSED(ncclReduceScatterConfig(x, x, 1, ncclFloat, (ncclRedOp_t)77, c, NULL, &f), ncclInvalidArgument,
          "ncclReduceScatterConfig", "77");
  REFUSED(ncclAlltoAllConfig(x, NULL, 1, ncclFloat, c, NULL, &f), ncclInvalidArgument, "ncclAlltoAllConfig",
          "recvbuff is NULL");
  for (int i = 0; i < 2; i++) { // nothing of that was harmful; NULL is fine for nothing
    data[i][0] = 1;
    OK(ncclAllReduce(NULL, NULL, 0, ncclFloat, ncclSum, w.comm[i], w.stream[i]));
    OK(ncclAllReduce(data[i], data[i], 1, ncclFloat, ncclSum, w.comm[i], w.stream[i]));
  }
  world_wait(&w);
  CHECK(data[0][0] == 2 && data[1][0] == 2, "sum after wrong use");
  world_close(&w);
}

static void refuses_bad_arguments(void **state)
{
  (void)state;
  PROCESSES(1, 10, arguments_body, NULL);
}

static void encryption_body(int rank, void *arg)
{
  ncclEncryptionConfig_t f = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
  (void)rank, (void)arg;
  OK(ncclSetEncryption(NULL));
  OK(ncclSetEncryption(&f));
  f.mode = NCCL_ENCRYPTION_MODE_PSK;
  REFUSED(ncclSetEncryption(&f), ncclInvalidArgument, "psk is NULL");
  f.psk = "0123456789012345678901234567890";
  REFUSED(ncclSetEncryption(&f), ncclInvalidArgument, "31 characters", "32");
  f.psk = "01234567890123456789012345678901";
  OK(ncclSetEncryption(&f));
  f.mode = 2;
  REFUSED(ncclSetEncryption(&f), ncclInvalidArgument, "mode is 2");
  f.magic = 0;
  REFUSED(ncclSetEncryption(&f), ncclInvalidArgument, "NCCL_ENCRYPTION_CONFIG_INITIALIZER");
}

static void refuses_encryption(void **state)
{
  (void)state;
  PROCESSES(1, 10, encryption_body, NULL);
}

static void operations_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  world w;
  ncclRedOp_t op, other;
  float *x = data[0], two = 2;
  world_open(&w, 2);
  ncclComm_t c = w.comm[0];
  REFUSED(ncclAllReduce(x, x, 1, ncclFloat, (ncclRedOp_t)5, c, NULL), ncclInvalidArgument, "operation 5", "rank 0");
  REFUSED(ncclAllReduce(x, x, 1, ncclFloat, (ncclRedOp_t)-1, c, NULL), ncclInvalidArgument, "operation -1", "rank 0");
  REFUSED(ncclRedOpCreatePreMulSum(NULL, &two, ncclFloat, ncclScalarHostImmediate, c), ncclInvalidArgument, "op",
          "rank 0");
  REFUSED(ncclRedOpCreatePreMulSum(&op, NULL, ncclFloat, ncclScalarHostImmediate, c), ncclInvalidArgument, "scalar",
          "rank 0");
  REFUSED(ncclRedOpCreatePreMulSum(&op, &two, (ncclDataType_t)77, ncclScalarHostImmediate, c), ncclInvalidArgument,
          "datatype is 77", "rank 0");
  REFUSED(ncclRedOpCreatePreMulSum(&op, &two, ncclFloat, (ncclScalarResidence_t)9, c), ncclInvalidArgument,
          "residence is 9", "rank 0");
  REFUSED(ncclRedOpCreatePreMulSum(&op, &two, ncclFloat, ncclScalarHostImmediate, NULL), ncclInvalidArgument, "NULL");
  OK(ncclRedOpCreatePreMulSum(&op, &two, ncclFloat, ncclScalarHostImmediate, c));
  REFUSED(ncclAllReduce(x, x, 1, ncclDouble, op, c, NULL), ncclInvalidArgument, "operation", "ncclFloat32",
          "ncclFloat64", "rank 0");
  REFUSED(ncclAllReduce(x, x, 1, ncclFloat, op, w.comm[1], NULL), ncclInvalidArgument, "operation", "rank 1");
  REFUSED(ncclRedOpDestroy(op, w.comm[1]), ncclInvalidArgument, "ncclRedOpDestroy", "rank 1");
  OK(ncclRedOpCreatePreMulSum(&other, &two, ncclFloat, ncclScalarDevice, w.comm[1]));
  OK(ncclRedOpDestroy(other, w.comm[1]));
  OK(ncclRedOpDestroy(op, c));
  REFUSED(ncclRedOpDestroy(op, c), ncclInvalidArgument, "ncclRedOpDestroy", "rank 0");
  REFUSED(ncclAllReduce(x, x, 1, ncclFloat, op, c, NULL), ncclInvalidArgument, "operation", "rank 0");
  REFUSED(ncclRedOpDestroy(ncclSum, c), ncclInvalidArgument, "operation 0", "rank 0");
  world_close(&w);
}

static void refuses_bad_operations(void **state)
{
  (void)state;
  PROCESSES(1, 10, operations_body, NULL);
}

static void memory_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  world w;
  void *p, *handle;
  ncclWindow_t win;
  world_open(&w, 1);
  REFUSED(ncclMemAlloc(NULL, 8), ncclInvalidArgument, "ncclMemAlloc", "ptr");
  REFUSED(ncclMemFree(data), ncclInvalidArgument, "ncclMemFree");
  OK(ncclMemFree(NULL));
  OK(ncclMemAlloc(&p, 8));
  OK(ncclMemFree(p));
  REFUSED(ncclMemFree(p), ncclInvalidArgument, "ncclMemFree");
  GIVES(ncclMemAlloc(&p, (size_t)1 << 60), ncclSystemError);
  REFUSED(ncclCommRegister(w.comm[0], NULL, 8, &handle), ncclInvalidArgument, "buff", "rank 0");
  REFUSED(ncclCommRegister(w.comm[0], data, 0, &handle), ncclInvalidArgument, "size is 0", "rank 0");
  REFUSED(ncclCommRegister(w.comm[0], data, 8, NULL), ncclInvalidArgument, "handle", "rank 0");
  REFUSED(ncclCommDeregister(w.comm[0], data), ncclInvalidArgument, "not a handle", "rank 0");
  OK(ncclCommRegister(w.comm[0], data, 8, &handle));
  REFUSED(ncclCommWindowDeregister(w.comm[0], handle), ncclInvalidArgument, "ncclCommWindowDeregister on rank 0",
          "deregister it with ncclCommDeregister");
  REFUSED(ncclWinGetUserPtr(w.comm[0], handle, &p), ncclInvalidArgument, "ncclWinGetUserPtr on rank 0", "not a window");
  OK(ncclCommDeregister(w.comm[0], handle));
  REFUSED(ncclCommDeregister(w.comm[0], handle), ncclInvalidArgument, "not a handle", "rank 0");
  REFUSED(ncclCommRegister(w.comm[0], data, SIZE_MAX, &handle), ncclInvalidArgument, "not fit into memory", "rank 0");
  REFUSED(ncclCommWindowRegister(w.comm[0], data, SIZE_MAX, &win, 0), ncclInvalidArgument, "not fit into memory");
  OK(ncclMemAlloc(&p, 8192));
  REFUSED(ncclCommWindowRegister(w.comm[0], p, 8193, &win, 0), ncclInvalidArgument, "size is 8193", "8192 bytes");
  REFUSED(ncclCommWindowRegister(w.comm[0], (char *)p + 4096, 4097, &win, 0), ncclInvalidArgument, "4096 bytes");
  OK(ncclCommWindowRegister(w.comm[0], (char *)p + 4096, 4096, &win, 0));
  OK(ncclCommWindowDeregister(w.comm[0], win));
  OK(ncclMemFree(p));
  REFUSED(ncclCommWindowRegister(w.comm[0], NULL, 8, &win, 0), ncclInvalidArgument, "buff", "rank 0");
  REFUSED(ncclCommWindowRegister(w.comm[0], data, 0, &win, 0), ncclInvalidArgument, "size is 0", "rank 0");
  REFUSED(ncclCommWindowRegister(w.comm[0], data, 8, NULL, 0), ncclInvalidArgument, "win", "rank 0");
  REFUSED(ncclCommWindowRegister(w.comm[0], data, 8, &win, 4), ncclInvalidArgument, "winFlags", "0x4");
  OK(ncclCommWindowRegister(w.comm[0], data, 8, &win, NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING));
  OK(ncclWinGetUserPtr(w.comm[0], win, &p));
  CHECK(p == data, "the window begins at %p, not at %p", p, (void *)data);
  REFUSED(ncclWinGetUserPtr(w.comm[0], win, NULL), ncclInvalidArgument, "outUserPtr", "rank 0");
  REFUSED(ncclCommDeregister(w.comm[0], win), ncclInvalidArgument, "ncclCommDeregister on rank 0",
          "deregister it with ncclCommWindowDeregister");
  OK(ncclCommWindowDeregister(w.comm[0], win));
  OK(ncclCommWindowDeregister(w.comm[0], NULL));
  REFUSED(ncclCommWindowDeregister(w.comm[0], win), ncclInvalidArgument, "not a handle", "rank 0");
  REFUSED(ncclWinGetUserPtr(w.comm[0], win, &p), ncclInvalidArgument, "not a handle", "rank 0");
  world_close(&w);
}

static void refuses_bad_memory(void **state)
{
  (void)state;
  PROCESSES(1, 10, memory_body, NULL);
}

// --- Groups

static void groups_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  world w;
  world_open(&w, 2);
  REFUSED(ncclGroupEnd(), ncclInvalidUsage, "ncclGroupEnd", "ncclGroupStart");
  data[0][0] = data[1][0] = 1;
  for (int inner = 0; inner < 2; inner++) { // an error inside, at either depth, undoes the whole group
    OK(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
      OK(ncclAllReduce(data[i], data[i], 1, ncclFloat, ncclSum, w.comm[i], w.stream[i]));
    }
    if (inner) {
      OK(ncclGroupStart());
    }
    GIVES(ncclAllReduce(data[0], data[0], 1, (ncclDataType_t)40, ncclSum, w.comm[0], w.stream[0]), ncclInvalidArgument);
    if (inner) {
      ncclGroupEnd();
    }
    GIVES(ncclGroupEnd(), ncclInvalidArgument);
    CHECK(tuttiStreamQuery(w.stream[0]) == ncclSuccess, "something was launched");
    CHECK(data[0][0] == 1 && data[1][0] == 1, "a group with an error in it has run");
  }
  OK(ncclGroupStart());
  REFUSED(ncclCommInitAll((ncclComm_t[2]){NULL}, 2, NULL), ncclInvalidUsage, "ncclCommInitAll", "group");
  GIVES(ncclGroupEnd(), ncclInvalidUsage);
  REFUSED(ncclGroupEnd(), ncclInvalidUsage, "ncclGroupEnd");
  for (int i = 0; i < 2; i++) {
    OK(ncclAllReduce(data[i], data[i], 1, ncclFloat, ncclSum, w.comm[i], w.stream[i]));
  }
  world_wait(&w);
  CHECK(data[0][0] == 2, "the next operation");
  world_close(&w);
}

static void *abort_it(void *comm)
{
  OK(ncclCommAbort(comm));
  return NULL;
}

static ncclComm_t one_rank(int blocking)
{
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclResult_t state = ncclInProgress;
  ncclUniqueId id;
  ncclComm_t comm;
  config.blocking = blocking;
  OK(ncclGetUniqueId(&id));
  GIVES(ncclCommInitRankConfig(&comm, 1, id, 0, &config), blocking ? ncclSuccess : ncclInProgress);
  while (state == ncclInProgress) {
    OK(ncclCommGetAsyncError(comm, &state));
  }
  OK(state);
  return comm;
}

// What the group's end will do with a communicator keeps it from being freed before, by the same thread; another
// thread's abort turns it into an error.
static void ends_in_group_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  for (int blocking = 0; blocking < 2; blocking++) {
    ncclComm_t comm = one_rank(blocking);
    OK(ncclGroupStart());
    OK(ncclCommFinalize(comm));
    REFUSED(ncclCommDestroy(comm), ncclInvalidUsage, "ncclCommDestroy", "rank 0", "end of the open group");
    REFUSED(ncclCommAbort(comm), ncclInvalidUsage, "ncclCommAbort", "rank 0", "end of the open group");
    GIVES(ncclGroupEnd(), blocking ? ncclSuccess : ncclInProgress);
    OK(ncclCommDestroy(comm));
    pthread_t other;
    comm = one_rank(blocking);
    OK(ncclGroupStart());
    OK(ncclCommFinalize(comm));
    CHECK(pthread_create(&other, NULL, abort_it, comm) == 0, "no thread");
    pthread_join(other, NULL);
    REFUSED(ncclGroupEnd(), ncclInvalidArgument, "has", "been destroyed");
  }
}

static void ends_inside_groups(void **state)
{
  (void)state;
  PROCESSES(1, 10, ends_in_group_body, NULL);
}

// A non-blocking creation that fails tells its own reason, not the thread's last error.
static void late_error_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclResult_t state = ncclInProgress;
  ncclUniqueId none;
  ncclComm_t comm;
  config.blocking = 0;
  memset(&none, 7, sizeof none);
  REFUSED(ncclGetVersion(NULL), ncclInvalidArgument, "ncclGetVersion");
  GIVES(ncclCommInitRankConfig(&comm, 2, none, 0, &config), ncclInProgress);
  while (state == ncclInProgress) {
    OK(ncclCommGetAsyncError(comm, &state));
  }
  CHECK(state == ncclInvalidArgument, "%d", (int)state);
  CHECK(strstr(ncclGetLastError(comm), "not an id") != NULL, "it says: %s", ncclGetLastError(comm));
  OK(ncclCommAbort(comm));
}

static void creation_that_fails_later(void **state)
{
  (void)state;
  PROCESSES(1, 10, late_error_body, NULL);
}

static void errors_inside_groups(void **state)
{
  (void)state;
  PROCESSES(1, 10, groups_body, NULL);
}

// --- Ranks that disagree

// One operation as two ranks call it differently. A sum that both agree on follows: a rank that only sent may learn it
// there.
typedef struct quarrel {
  const char *what;
  int func[2]; // 0 all-reduce, 1 broadcast, 2 reduce-scatter, 3 send, 4 receive
  size_t count[2];
  ncclDataType_t type[2];
  ncclRedOp_t op[2];
  int root[2];
  size_t times; // of the counts, for a second and larger size
} quarrel;

static const quarrel quarrels[] = {
    {"counts", {0, 0}, {COUNT, COUNT + 1}, {ncclFloat, ncclFloat}, {0, 0}, {0, 0}, 1000},
    {"very unequal counts", {0, 0}, {1, COUNT * 1000}, {ncclFloat, ncclFloat}, {0, 0}, {0, 0}, 1},
    {"functions", {0, 1}, {COUNT, COUNT}, {ncclFloat, ncclFloat}, {0, 0}, {0, 0}, 1000},
    {"functions", {2, 0}, {COUNT, COUNT}, {ncclFloat, ncclFloat}, {0, 0}, {0, 0}, 1000},
    {"roots", {1, 1}, {COUNT, COUNT}, {ncclFloat, ncclFloat}, {0, 0}, {0, 1}, 1000},
    {"types", {0, 0}, {COUNT, COUNT}, {ncclFloat, ncclInt}, {0, 0}, {0, 0}, 1000},
    {"operations", {0, 0}, {COUNT, COUNT}, {ncclFloat, ncclFloat}, {ncclSum, ncclMax}, {0, 0}, 1000},
    {"sizes of a message", {3, 4}, {COUNT, COUNT - 1}, {ncclFloat, ncclFloat}, {0, 0}, {1, 0}, 1000},
    {"sizes of a message", {3, 4}, {COUNT - 1, COUNT}, {ncclFloat, ncclFloat}, {0, 0}, {1, 0}, 1000},
    {"size classes of a message", {3, 4}, {1, COUNT * 1000}, {ncclFloat, ncclFloat}, {0, 0}, {1, 0}, 1},
    {"size classes of a message", {3, 4}, {COUNT * 1000, 1}, {ncclFloat, ncclFloat}, {0, 0}, {1, 0}, 1},
    {"size classes of a message", {3, 4}, {COUNT * 50, 1}, {ncclFloat, ncclFloat}, {0, 0}, {1, 0}, 1},
};

static ncclResult_t act(const quarrel *q, int i, size_t times, float *x, ncclComm_t c, cudaStream_t s)
{
  size_t count = q->count[i] * times;
  switch (q->func[i]) {
  case 0: return ncclAllReduce(x, x, count, q->type[i], q->op[i], c, s);
  case 1: return ncclBroadcast(x, x, count, q->type[i], q->root[i], c, s);
  case 2: return ncclReduceScatter(x, x, count / 2, q->type[i], q->op[i], c, s);
  case 3: return ncclSend(x, count, q->type[i], q->root[i], c, s);
  default: return ncclRecv(x, count, q->type[i], q->root[i], c, s);
  }
}

// Codes that a launch may give: it may already notice the disagreement.
static bool tolerable(ncclResult_t res)
{
  return res == ncclSuccess || res == ncclInvalidUsage || res == ncclRemoteError;
}

// Runs the rank's stream until the communicator reports an error, or the limit.
static ncclResult_t await_error(ncclComm_t c, cudaStream_t s, double limit)
{
  ncclResult_t state = ncclSuccess;
  for (double end = seconds_now() + limit; state == ncclSuccess && seconds_now() < end; sleep_ms(1)) {
    tuttiStreamQuery(s);
    OK(ncclCommGetAsyncError(c, &state));
  }
  return state;
}

// Messages are named by peer and bytes, not by a type: they match whatever their types are. The other rank may be in
// the next call.
static bool names_both(const quarrel *q, ncclResult_t state, const char *text)
{
  bool message = q->func[0] == 3;
  return state == ncclInvalidUsage &&
         has_words(text, (const char *const[]){"rank 0", "rank 1", message ? " bytes" : "count", NULL}) &&
         (!message || (strstr(text, "Send/Recv with rank ") != NULL && strstr(text, "nt8") == NULL));
}

// At least one side names the mismatch; the other too, or that its peer has failed.
static void judge(const quarrel *q, size_t times, const ncclResult_t *state, const char *const *text)
{
  for (int i = 0; i < 2; i++) {
    CHECK(state[i] == ncclInvalidUsage || state[i] == ncclRemoteError, "unequal %s (x%zu), rank %d: state %d", q->what,
          times, i, (int)state[i]);
  }
  CHECK(names_both(q, state[0], text[0]) || names_both(q, state[1], text[1]),
        "unequal %s (x%zu): no rank names both (states %d %d): '%s' '%s'", q->what, times, (int)state[0], (int)state[1],
        text[0], text[1]);
}

static void quarrel_body(int rank, void *arg)
{
  (void)rank;
  const quarrel *q = arg;
  for (size_t times = 1; times <= q->times; times *= 1000) {
    for (int grouped = 0; grouped < 2; grouped++) {
      world w;
      ncclResult_t state[2];
      const char *text[2];
      size_t count = TT_MAX(q->count[0], q->count[1]) * times;
      float *x[2] = {calloc(count, 8), calloc(count, 8)};
      world_open(&w, 2);
      if (grouped) {
        OK(ncclGroupStart());
      }
      for (int i = 0; i < 2; i++) {
        CHECK(tolerable(act(q, i, times, x[i], w.comm[i], w.stream[i])), "unequal %s: launch", q->what);
      }
      CHECK(!grouped || tolerable(ncclGroupEnd()), "unequal %s: end of the group", q->what);
      for (int i = 0; i < 2; i++) {
        CHECK(tolerable(ncclAllReduce(x[i], x[i], 1, ncclFloat, ncclSum, w.comm[i], w.stream[i])), "unequal %s: sum",
              q->what);
      }
      for (int i = 0; i < 2; i++) {
        state[i] = await_error(w.comm[i], w.stream[i], GENEROUS(5));
        text[i] = ncclGetLastError(w.comm[i]);
        CHECK(strcmp(ncclGetLastError(NULL), text[i]) == 0, "this thread's last error is '%s', not '%s'",
              ncclGetLastError(NULL), text[i]);
      }
      judge(q, times, state, text);
      for (int i = 0; i < 2; i++) {
        OK(ncclCommAbort(w.comm[i]));
        OK(tuttiStreamDestroy(w.stream[i]));
        free(x[i]);
      }
    }
  }
}

static void ranks_disagree_in_one_process(void **state)
{
  (void)state;
  for (size_t i = 0; i < TT_COUNT(quarrels); i++) {
    PROCESSES(1, 30, quarrel_body, (void *)(uintptr_t)&quarrels[i]);
  }
}

static void quarrel_process(int rank, void *arg)
{
  const quarrel *q = arg;
  int slot = 0;
  for (size_t times = 1; times <= q->times; times *= 1000, slot++) {
    size_t count = TT_MAX(q->count[0], q->count[1]) * times;
    float *x = calloc(count, 8);
    cudaStream_t s;
    ncclComm_t c = join_processes(slot, 2, rank);
    OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
    CHECK(tolerable(act(q, rank, times, x, c, s)), "unequal %s: launch", q->what);
    CHECK(tolerable(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, c, s)), "unequal %s: sum", q->what);
    ncclResult_t got = await_error(c, s, GENEROUS(5));
    const char *text = ncclGetLastError(c);
    bool named = names_both(q, got, text);
    CHECK(got == ncclInvalidUsage || got == ncclRemoteError, "unequal %s (x%zu), rank %d: state %d (%s)", q->what,
          times, rank, (int)got, text);
    atomic_fetch_add(&the_board->word[slot], named);
    meet(2);
    CHECK(atomic_load(&the_board->word[slot]) > 0, "unequal %s (x%zu): no rank names both; rank %d: state %d '%s'",
          q->what, times, rank, (int)got, text);
    OK(ncclCommAbort(c));
    OK(tuttiStreamDestroy(s));
    free(x);
    meet(2);
  }
}

static void ranks_disagree_between_processes(void **state)
{
  (void)state;
  for (size_t i = 0; i < TT_COUNT(quarrels); i++) {
    PROCESSES(2, 30, quarrel_process, (void *)(uintptr_t)&quarrels[i]);
  }
}

// One of four ranks makes another call than the others. Some ranks can finish theirs and go on to the next operation;
// a rank that is left behind compares what they had begun before.
static void one_differs(int rank, void *arg)
{
  (void)arg;
  static float x[5000], y[20000];
  for (int what = 0; what < 4; what++) {
    cudaStream_t s;
    ncclComm_t c = join_processes(what, 4, rank);
    bool other = rank == (what == 1 ? 2 : 1);
    OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
    ncclResult_t res = what == 0   ? ncclBroadcast(x, y, other ? 350 : 1, ncclFloat, 3, c, s)
                       : what == 1 ? ncclGather(x, y, other ? 1 : 5000, ncclFloat, 1, c, s)
                       : what == 2 ? ncclReduce(x, y, 862, ncclFloat, ncclSum, other ? 2 : 0, c, s)
                       : other     ? ncclReduceScatter(y, x, 1000, ncclFloat, ncclSum, c, s)
                                   : ncclBroadcast(x, y, 1000, ncclFloat, 2, c, s);
    CHECK(tolerable(res), "case %d: launch", what);
    for (int i = 0; i < 3; i++) {
      CHECK(tolerable(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, c, s)), "case %d: sum", what);
    }
    ncclResult_t got = await_error(c, s, GENEROUS(5));
    const char *text = ncclGetLastError(c);
    CHECK(got == ncclInvalidUsage || got == ncclRemoteError, "case %d, rank %d: state %d (%s)", what, rank, (int)got,
          text);
    const char *first = strstr(text, " operation 1 ");
    bool named = strstr(text, "ranks are in different calls") != NULL && first != NULL &&
                 strstr(first + 1, " operation 1 ") != NULL;
    atomic_fetch_add(&the_board->word[what], named);
    meet(4);
    CHECK(atomic_load(&the_board->word[what]) > 0, "case %d: no rank names both calls; rank %d: '%s'", what, rank,
          text);
    OK(ncclCommAbort(c));
    OK(tuttiStreamDestroy(s));
    meet(4);
  }
}

static void one_of_four_differs(void **state)
{
  (void)state;
  PROCESSES(4, 60, one_differs, NULL);
  run net = {.n = 4, .seconds = 60, .fn = one_differs, .env = ENV("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1")};
  assert_int_equal(run_processes(&net), 0);
}

// Every rank is a node, and they meet nowhere but in a network that reduces; which is never ready, so that it cannot
// find out what the ranks must.
static void heads_disagree(void **state)
{
  char plugin[4096];
  const char *build = getenv("TUTTI_BUILD");
  (void)state;
  snprintf(plugin, sizeof plugin, "NCCL_NET_PLUGIN=%s/tests/plugins/libcollnet_v12.so",
           build != NULL ? build : "build");
  for (size_t i = 0; i < TT_COUNT(quarrels); i++) {
    const quarrel *q = &quarrels[i];
    const run r = {.n = 2,
                   .seconds = 30,
                   .env = ENV("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", plugin, "NCCL_COLLNET_ENABLE=1",
                              "NCCL_ALGO=allreduce:CollNetChain", "TEST_COLL_REFUSE=1"),
                   .fn = quarrel_process,
                   .arg = (void *)(uintptr_t)q};
    if (q->func[0] == 0 && q->func[1] == 0) {
      assert_int_equal(run_processes(&r), 0);
    }
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(refuses_bad_handles),
      cmocka_unit_test(refuses_bad_arguments),
      cmocka_unit_test(refuses_encryption),
      cmocka_unit_test(refuses_bad_operations),
      cmocka_unit_test(refuses_bad_memory),
      cmocka_unit_test(errors_inside_groups),
      cmocka_unit_test(ends_inside_groups),
      cmocka_unit_test(creation_that_fails_later),
      cmocka_unit_test(ranks_disagree_in_one_process),
      cmocka_unit_test(ranks_disagree_between_processes),
      cmocka_unit_test(one_of_four_differs),
      cmocka_unit_test(heads_disagree),
  };
  return RUN_TESTS("wrong use", tests, argc, argv);
}
