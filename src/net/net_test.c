// net_test.c: what the variables choose: the network, its interfaces, sockets and threads.
#include "base/test_child.h"

#include "base/param.h"
#include "base/result.h"
#include "net/socket/pair_rig.h"

static void print_choice(void)
{
  const tt_net_ops *ops = NULL;
  const tt_net_env env = {.nranks = 1};
  ncclResult_t res = tt_net_open(&env, tt_params_get()->net, &ops);
  printf("%d %s %s\n", (int)res, ops != NULL ? ops->name : "none", tt_last_error());
  tt_net_close(ops);
}

static void test_choice(void **state)
{
  char out[2000];
  (void)state;
  child_run(CHILD_ENV("NCCL_DEBUG=NONE"), print_choice, out, sizeof(out));
  assert_contains(out, "0 Socket");
  child_run(CHILD_ENV("NCCL_DEBUG=NONE", "NCCL_NET=soCKet"), print_choice, out, sizeof(out));
  assert_contains(out, "0 Socket");
  child_run(CHILD_ENV("NCCL_DEBUG=NONE", "NCCL_NET="), print_choice, out, sizeof(out));
  assert_contains(out, "0 Socket");
  child_run(CHILD_ENV("NCCL_DEBUG=NONE", "NCCL_NET=IB"), print_choice, out, sizeof(out));
  assert_contains(out, "none rank 0: no network is called IB (NCCL_NET, or ncclConfig_t.netName), or it cannot be "
                       "used; there are: Socket");
}

static void print_socket(void)
{
  tt_net_env env = {.nranks = 1};
  void *ctx = NULL;
  ncclResult_t res = NET->init(&env, &ctx);
  if (res != ncclSuccess) {
    printf("%d %s\n", (int)res, tt_last_error());
    return;
  }
  const tt_snet *net = ctx;
  char at[TT_ADDR_TEXT];
  printf("%s %s threads %d sockets %d inline %zu piece %zu timeout %u\n", net->base.devs[0].name,
         tt_addr_text(&net->base.devs[0].addrs.a[0], at), net->base.devs[0].nthreads, net->base.devs[0].nsocks,
         net->inline_max, net->min_piece, net->base.timeout_s);
  NET->finalize(ctx);
}

static void test_socket(void **state)
{
  char out[2000];
  (void)state;
  child_run(CHILD_ENV("NCCL_DEBUG=NONE", "NCCL_SOCKET_IFNAME=lo"), print_socket, out, sizeof(out));
  assert_contains(out, "lo 127.0.0.1:0 threads 0 sockets 0 inline 65536 piece 65536 timeout 60");
  child_run(CHILD_ENV("NCCL_DEBUG=NONE", "NCCL_SOCKET_IFNAME==lo", "NCCL_SOCKET_NTHREADS=3", "NCCL_NSOCKS_PERTHREAD=2",
                      "NCCL_SOCKET_INLINE=100", "NCCL_SOCKET_MIN_TASKSIZE=4k", "NCCL_NET_TIMEOUT=7"),
            print_socket, out, sizeof(out));
  assert_contains(out, "threads 3 sockets 6 inline 100 piece 4096 timeout 7");
  child_run(CHILD_ENV("NCCL_DEBUG=NONE", "NCCL_SOCKET_IFNAME=none"), print_socket, out, sizeof(out));
  assert_contains(out, "2 no network interface for NCCL_SOCKET_IFNAME=none");
  child_run(CHILD_ENV("NCCL_DEBUG=NONE", "NCCL_SOCKET_IFNAME=lo", "NCCL_SOCKET_FAMILY=AF_INET6"), print_socket, out,
            sizeof(out));
  if (strstr(out, "no network interface") == NULL) { // a machine without IPv6
    assert_contains(out, "lo [::1]:0");
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_choice), cmocka_unit_test(test_socket)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
