// setup_test.c: a control connection that ends over the message TRY: nothing is done with the handle any more. The
// messages are real, the error is made here.
#define _GNU_SOURCE // RTLD_NEXT
#include "proxy/proxy_rig.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

#include "proxy/messages.h"

static _Atomic int fail_tries; // so many TRY of rank 0 cannot be sent
static _Atomic int connects;   // calls of rank 0

// In place of the C library's.
ssize_t send(int fd, const void *data, size_t size, int flags)
{
  static ssize_t (*_Atomic real)(int, const void *, size_t, int);
  tt_msg_head h = {0};
  if (real == NULL) {
    void *found = dlsym(RTLD_NEXT, "send");
    FAKE_DEMAND(found != NULL);
    ssize_t (*fn)(int, const void *, size_t, int);
    memcpy(&fn, &found, sizeof fn);
    real = fn;
  }
  if (size == sizeof h) {
    memcpy(&h, data, sizeof h);
  }
  if (h.type == TT_MSG_TRY && h.size == 0 && h.from == 0 && atomic_load(&fail_tries) > 0) {
    atomic_fetch_sub(&fail_tries, 1);
    errno = EHOSTUNREACH;
    return -1;
  }
  return real(fd, data, size, flags);
}

// Fails where it is called with what was given up.
static ncclResult_t counted_connect(void *ctx, int dev, void *handle, void **comm)
{
  atomic_fetch_add(&connects, ((fake_ctx *)ctx)->rank == 0);
  return fake_connect(ctx, dev, handle, comm);
}

static void try_cannot_be_said(void **state)
{
  (void)state;
  fake_start(1);
  tt_net_ops net = fake_net;
  net.connect = counted_connect;
  rig *r = rig_open(2, &net);
  rig_meet(r);
  atomic_store(&connects, 0);
  atomic_store(&fail_tries, 1);
  rig_link(r, 0, 1, true);
  UNTIL(atomic_load(&r->ranks[0].links[1].page->state) == TT_RANK_LOST);
  assert_int_equal(atomic_load(&fail_tries), 0);
  assert_int_equal(atomic_load(&connects), 0);
  assert_int_equal(atomic_load(&fake.cancels), 0); // nothing was begun
  rig_close(r);
  fake_stop();
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(try_cannot_be_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
