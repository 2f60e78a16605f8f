// encryption_test.c: jobs with ncclSetEncryption over the network: they work, nothing of what they say can be read, and
// ranks with different keys fail at once and by name. A network that does not encrypt is said. This program stands
// between the library and send(2), and between it and dlopen(3).
#define _GNU_SOURCE // memmem, memfd_create
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "harness.h"

#define TEXT "what a rank sends to another one "
#define BLOCK "colb\1\0\0\0" // a frame of the bootstrap's first all-gather

#define RAS_LINE "NCCL DIAG [" // what a process finds, in RAS's answers to processes and to clients

enum { SIZE = 300000, CROWD = 64, CROWD_PROCESSES = 4 };
enum { PEER_LINES, CLIENT_LINES }; // words of the board: sends with such lines, to processes and to clients

static _Atomic int texts_seen, blocks_seen;
static int ras_port; // where the processes of the run listen for RAS's clients
static bool no_openssl;

static bool goes_to_client(int fd)
{
  struct sockaddr_in at = {.sin_port = 0};
  socklen_t size = sizeof at;
  return getsockname(fd, (struct sockaddr *)&at, &size) == 0 && ntohs(at.sin_port) == ras_port;
}

static void look_at(int fd, const void *data, size_t size)
{
  atomic_fetch_add(&texts_seen, memmem(data, size, TEXT, sizeof TEXT - 1) != NULL);
  atomic_fetch_add(&blocks_seen, memmem(data, size, BLOCK, sizeof BLOCK - 1) != NULL);
  if (memmem(data, size, RAS_LINE, sizeof RAS_LINE - 1) != NULL) {
    atomic_fetch_add(&the_board->word[goes_to_client(fd) ? CLIENT_LINES : PEER_LINES], 1);
  }
}

ssize_t send(int fd, const void *data, size_t size, int flags)
{
  look_at(fd, data, size);
  return syscall(SYS_sendto, fd, data, size, flags, NULL, 0);
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
  for (size_t i = 0; i < m->msg_iovlen; i++) {
    look_at(fd, m->msg_iov[i].iov_base, m->msg_iov[i].iov_len);
  }
  return syscall(SYS_sendmsg, fd, m, flags);
}

void *dlopen(const char *name, int flags)
{
  void *(*real)(const char *, int) = NULL;
  *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
  return real(no_openssl && name != NULL && strcmp(name, "libssl.so.3") == 0 ? "libssl.so.3.absent" : name, flags);
}

static void set_key(const char *key)
{
  ncclEncryptionConfig_t f = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
  f.mode = key == NULL ? NCCL_ENCRYPTION_MODE_NONE : NCCL_ENCRYPTION_MODE_PSK;
  f.psk = key;
  OK(ncclSetEncryption(&f));
}

#define KEY_A "a key of the job, with 32 characters or more"
#define KEY_B "b key of the job, with 32 characters or more"
#define NETWORK_ONLY "NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_SOCKET_IFNAME=lo"
#define OVER(count, function, argument, ...)                                                                         \
  assert_int_equal(                                                                                                  \
      run_processes(&(run){                                                                                          \
          .n = (count), .seconds = 60, .fn = (function), .arg = (argument), .env = ENV(NETWORK_ONLY, __VA_ARGS__)}), \
      0)
#define OVER_NETWORK(count, function, argument) OVER(count, function, argument, "NCCL_NET=Socket", "NCCL_RAS_ENABLE=1")

// A text from rank 0 to all, whole and in halves of the ranks. `arg`: the key.
static void broadcast_body(int rank, void *arg)
{
  static char data[SIZE];
  ncclComm_t half = NULL;
  set_key(arg);
  ncclComm_t comm = join_processes(0, 4, rank);
  OK(ncclCommSplit(comm, rank % 2, rank, &half, NULL));
  ncclComm_t all[] = {comm, half};
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < SIZE; i++) {
      data[i] = rank < 1 + round ? TEXT[(size_t)i % (sizeof TEXT - 1)] : '\0';
    }
    OK(ncclBroadcast(data, data, SIZE, ncclInt8, 0, all[round], (cudaStream_t)2));
    OK(tuttiStreamSynchronize((cudaStream_t)2));
    for (int i = 0; i < SIZE; i++) {
      CHECK(data[i] == TEXT[(size_t)i % (sizeof TEXT - 1)], "byte %d", i);
    }
  }
  OK(ncclCommDestroy(half));
  OK(ncclCommDestroy(comm));
  if (arg != NULL) {
    CHECK(texts_seen == 0 && blocks_seen == 0, "%d texts and %d blocks can be read", texts_seen, blocks_seen);
  } else {
    CHECK(blocks_seen > 0 && (rank != 0 || texts_seen > 0), "the look at what is sent sees nothing");
  }
}

static void nothing_can_be_read(void **state)
{
  (void)state;
  OVER_NETWORK(4, broadcast_body, KEY_A);
}

static void without_a_key_it_can(void **state)
{
  (void)state;
  OVER_NETWORK(4, broadcast_body, NULL);
}

// The keys of the ranks.
static void differing_body(int rank, void *arg)
{
  const char *const *keys = arg;
  ncclComm_t comm = NULL;
  set_key(keys[rank]);
  ncclUniqueId id = shared_id(0, rank);
  REFUSED(ncclCommInitRank(&comm, 3, id, rank), ncclInvalidUsage, "encryption key", "ncclSetEncryption",
          rank == 1 ? "rank 1 cannot join" : "rank 1 has not");
  meet(3); // the process that made the id answers the late ones
}

static void differing_keys_are_named(void **state)
{
  (void)state;
  static const char *const keys[][3] = {{KEY_A, KEY_B, KEY_A}, {KEY_A, NULL, KEY_A}, {NULL, KEY_A, NULL}};
  for (int i = 0; i < 3; i++) {
    OVER_NETWORK(3, differing_body, (void *)(uintptr_t)keys[i]);
  }
}

// ---- RAS

// A port for RAS's clients; the variable that says so to the library.
static const char *choose_ras_port(void)
{
  static char variable[64];
  ras_port = free_port();
  snprintf(variable, sizeof variable, "NCCL_RAS_ADDR=localhost:%d", ras_port);
  return variable;
}

// Asks what the processes of the job find, and returns how many have answered.
static int ask_diagnostics(void)
{
  static char answer[1 << 18];
  struct sockaddr_in at = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)ras_port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  size_t got = 0;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), peers = 0;
  CHECK(connect(fd, (struct sockaddr *)&at, sizeof at) == 0, "connect: %s", strerror(errno));
  CHECK(send(fd, "DIAGNOSTICS\n", 12, MSG_NOSIGNAL) == 12, "send: %s", strerror(errno));
  for (ssize_t n = 1; n > 0; got += (size_t)n) {
    n = recv(fd, answer + got, sizeof answer - 1 - got, 0);
    CHECK(n >= 0, "recv: %s", strerror(errno));
  }
  close(fd);
  const char *across = strstr(answer, " ms across ");
  CHECK(across != NULL && sscanf(across, " ms across %d RAS peers", &peers) == 1, "the answer is: %s", answer);
  return peers;
}

static void ras_body(int rank, void *arg)
{
  set_key(arg);
  ncclComm_t comm = join_processes(0, 3, rank);
  if (rank == 0) {
    int peers = ask_diagnostics();
    CHECK(peers == 3, "%d processes answer", peers);
  }
  meet(3);
  uint64_t to_peers = the_board->word[PEER_LINES], to_client = the_board->word[CLIENT_LINES];
  CHECK((to_peers == 0) == (arg != NULL), "%d of RAS's texts between processes can be read", (int)to_peers);
  CHECK(to_client > 0, "the client's connection is encrypted");
  OK(ncclCommDestroy(comm));
}

static void ras_is_encrypted_between_processes(void **state)
{
  (void)state;
  OVER(3, ras_body, KEY_A, "NCCL_NET=Socket", choose_ras_port());
  OVER(3, ras_body, NULL, "NCCL_NET=Socket", choose_ras_port());
}

// ---- What a user sees

static void absent_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  ncclEncryptionConfig_t f = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
  f.mode = NCCL_ENCRYPTION_MODE_PSK;
  f.psk = KEY_A;
  no_openssl = true;
  REFUSED(ncclSetEncryption(&f), ncclSystemError, "libssl.so.3 cannot be opened", "install the package libssl3");
  OK(ncclSetEncryption(NULL));
  no_openssl = false;
  OK(ncclSetEncryption(&f));
}

static void absent_openssl_is_named(void **state)
{
  (void)state;
  PROCESSES(1, 10, absent_body, NULL);
}

// Joins the job with the standard error in a file; returns what was written there.
static const char *joined_text(int rank, ncclComm_t *comm)
{
  static char text[1 << 14];
  int kept = dup(STDERR_FILENO), file = memfd_create("stderr", MFD_CLOEXEC);
  dup2(file, STDERR_FILENO);
  *comm = join_processes(0, 2, rank);
  dup2(kept, STDERR_FILENO);
  close(kept);
  text[pread(file, text, sizeof text - 1, 0)] = '\0';
  close(file);
  return text;
}

// `arg`: the network that does not encrypt; NULL: there is none.
static void unencrypted_body(int rank, void *arg)
{
  char want[128];
  ncclComm_t comm = NULL;
  set_key(KEY_A);
  const char *text = joined_text(rank, &comm);
  snprintf(want, sizeof want, "WARN ncclSetEncryption gave a key, but network %s does not encrypt", (const char *)arg);
  CHECK((strstr(text, want) != NULL) == (arg != NULL && rank == 0), "rank %d says: %s", rank, text);
  OK(ncclCommDestroy(comm));
}

static void network_that_does_not_encrypt_is_said(void **state)
{
  (void)state;
  char plugin[4096];
  snprintf(plugin, sizeof plugin, "NCCL_NET_PLUGIN=%s/tests/plugins/libnet_v12.so", getenv("TUTTI_BUILD"));
  OVER(2, unencrypted_body, (void *)(uintptr_t) "TestTcp", plugin);
  OVER(2, unencrypted_body, NULL, "NCCL_NET=Socket");
}

// ---- Many ranks

static void crowd_rank(int thread, void *arg)
{
  int rank = *(int *)arg * (CROWD / CROWD_PROCESSES) + thread, sum[1000];
  ncclComm_t comm = NULL;
  OK(ncclCommInitRank(&comm, CROWD, the_board->ids[0], rank));
  for (int i = 0; i < 1000; i++) {
    sum[i] = rank + i;
  }
  OK(ncclAllReduce(sum, sum, 1000, ncclInt, ncclSum, comm, (cudaStream_t)2));
  OK(tuttiStreamSynchronize((cudaStream_t)2));
  for (int i = 0; i < 1000; i++) {
    CHECK(sum[i] == CROWD * (CROWD - 1) / 2 + CROWD * i, "rank %d, element %d: %d", rank, i, sum[i]);
  }
  OK(ncclCommDestroy(comm));
}

static void crowd_body(int process, void *arg)
{
  set_key(arg);
  shared_id(0, process);
  run_threads(CROWD / CROWD_PROCESSES, crowd_rank, &process);
  meet(CROWD_PROCESSES);
  CHECK(blocks_seen == 0, "%d blocks can be read", blocks_seen);
}

static void crowd_is_encrypted(void **state)
{
  (void)state;
  double start = seconds_now();
  OVER_NETWORK(CROWD_PROCESSES, crowd_body, KEY_A);
  print_message("%d ranks: %.1f s\n", CROWD, seconds_now() - start);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_can_be_read),      cmocka_unit_test(without_a_key_it_can),
      cmocka_unit_test(differing_keys_are_named), cmocka_unit_test(ras_is_encrypted_between_processes),
      cmocka_unit_test(absent_openssl_is_named),  cmocka_unit_test(network_that_does_not_encrypt_is_said),
      cmocka_unit_test(crowd_is_encrypted),
  };
  return RUN_TESTS("encryption", tests, argc, argv);
}
