// deadlock_test.c: circles of ranks that wait for each other, in one communicator or two: errors, not only warnings.
#include "stall.h"

#define PROVED "deadlock: ranks wait for each other, and none can go on: rank "
#define KEY "STALL_KEY=a key of the job, with 32 characters or more"
#define NETWORK "NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_STALL_WARN_MS=300"

static void a_circle_is_an_error(void **state)
{
  (void)state;
  for (int n = 2; n <= 4; n++) {
    ends(&(trial){
        CIRCLE,
        n,
        -1,
        ncclInvalidUsage,
        SOON,
        {"deadlock, ranks wait for each other: rank 0 waits to receive 4000 bytes from rank ", "; rank 1 waits"}});
  }
  ends(&(trial){SEND_CIRCLE,
                3,
                -1,
                ncclInvalidUsage,
                SOON,
                {"deadlock, ranks wait for each other: rank 0 waits to send 16777216 bytes to rank 1; rank 1 waits"}});
}

// Over a network, where the ranks tell each other that no message is under way, or that they take none and the network
// is full; and where some share a machine.
static void a_circle_over_a_network(void **state)
{
  (void)state;
  static const char *const net[] = {NETWORK, NULL};
  for (int n = 2; n <= 4; n++) {
    ends(&(trial){CIRCLE, n, -1, ncclInvalidUsage, net, {PROVED}});
  }
  for (int n = 2; n <= 4; n++) {
    ends(&(trial){SEND_CIRCLE, n, -1, ncclInvalidUsage, net, {PROVED}});
  }
  ends(&(trial){MIXED_CIRCLE, 3, -1, ncclInvalidUsage, SOON, {PROVED}});
  ends(&(trial){MIXED_CIRCLE, 4, -1, ncclInvalidUsage, SOON, {PROVED}});
}

// The same with encryption, over several sockets, with threads that move the data, and all of that.
static void a_circle_over_any_sockets(void **state)
{
  (void)state;
  static const char *const over[][7] = {
      {NETWORK, KEY, NULL},
      {NETWORK, "NCCL_SOCKET_NTHREADS=1", "NCCL_NSOCKS_PERTHREAD=3", NULL},
      {NETWORK, "NCCL_SOCKET_NTHREADS=2", "NCCL_NSOCKS_PERTHREAD=2", KEY, NULL},
  };
  for (size_t i = 0; i < sizeof over / sizeof over[0]; i++) {
    ends(&(trial){CIRCLE, 2, -1, ncclInvalidUsage, over[i], {PROVED}});
    for (int n = 2; n <= 4; n++) {
      ends(&(trial){SEND_CIRCLE, n, -1, ncclInvalidUsage, over[i], {PROVED}});
    }
  }
}

// Another network may still make room: the circle is named, and is no error.
static void a_circle_over_a_foreign_network(void **state)
{
  (void)state;
  static char plugin[4096];
  static const char *const net[] = {NETWORK, plugin, NULL};
  const char *build = getenv("TUTTI_BUILD");
  snprintf(plugin, sizeof plugin, "NCCL_NET_PLUGIN=%s/tests/plugins/libnet_v12.so", build != NULL ? build : "build");
  for (int n = 2; n <= 4; n++) {
    char last[96];
    snprintf(last, sizeof last, "; rank %d waits to send 16777216 bytes to rank 0", n - 1);
    stands_still(&(trial){SEND_CIRCLE,
                          n,
                          -1,
                          0,
                          net,
                          {"ranks of several machines wait for each other, and messages may be lost: rank 0 waits to "
                           "send 16777216 bytes to rank 1; rank 1 waits to send ",
                           last}});
    ends(&(trial){CIRCLE, n, -1, ncclInvalidUsage, net, {PROVED}});
  }
}

// Each rank has queued the other communicator's call first: none of the two can go on.
static void two_communicators(void **state)
{
  (void)state;
  for (int n = 2; n <= 3; n++) {
    ends(&(trial){TWO_COMMUNICATORS, n, -1, ncclInvalidUsage, SOON, {"has queued its call behind operation "}});
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_circle_is_an_error),      cmocka_unit_test(a_circle_over_a_network),
      cmocka_unit_test(a_circle_over_any_sockets), cmocka_unit_test(a_circle_over_a_foreign_network),
      cmocka_unit_test(two_communicators),
  };
  return RUN_TESTS("deadlock", tests, argc, argv);
}
