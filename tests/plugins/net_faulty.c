// A network plugin of version 12 that does what the plain one does, badly, as the environment says:
//   TEST_NET_SLOW=1                  a request is done some calls of test after it is, each after another number of
//                                    them
//   TEST_NET_PIECE=N                 a call moves N bytes at most
//   TEST_NET_REFUSE=N                N of N + 1 calls of isend and irecv begin nothing
//   TEST_NET_FAIL=FUNCTION:K:CODE    the K-th call of the function gives the code; K and CODE are numbers
//   TEST_NET_LIE=1                   test tells of more bytes than there is room for
//   TEST_NET_MUM=1                   test tells no sizes
//   TEST_NET_BLOCK=1                 accept waits until there is a connection, at most 100 s; so does connect; listen
//                                    takes 50 ms, so that ranks meet there
#define NET_VERSION 12
#include "net_tcp.h"

#include <time.h>

static int setting(const char *name)
{
  const char *value = getenv(name);
  return value != NULL ? atoi(value) : 0;
}

// Is it this function's turn to fail? *code then.
static bool fails(const char *function, ncclResult_t *code)
{
  static _Atomic int calls;
  const char *plan = getenv("TEST_NET_FAIL");
  size_t n = strlen(function);
  int k = 0, value = 0;
  if (plan == NULL || strncmp(plan, function, n) != 0 || sscanf(plan + n, ":%d:%d", &k, &value) != 2 ||
      atomic_fetch_add(&calls, 1) + 1 < k) {
    return false;
  }
  *code = (ncclResult_t)value;
  return true;
}

static ncclResult_t bad_init(void **ctx, uint64_t comm, ncclNetCommConfig_v12_t *config, ncclDebugLogger_t log,
                             ncclProfilerCallback_t profile)
{
  tcp_piece = setting("TEST_NET_PIECE") > 0 ? (size_t)setting("TEST_NET_PIECE") : tcp_piece;
  return tcp_init(ctx, comm, config, log, profile);
}

static ncclResult_t bad_listen(void *ctx, int dev, void *handle, void **out)
{
  ncclResult_t code;
  if (setting("TEST_NET_BLOCK")) {
    usleep(50000);
  }
  return fails("listen", &code) ? code : tcp_listen(ctx, dev, handle, out);
}

// Is the call to be made again? *begun: when the first was, 0 before it.
static bool blocks(ncclResult_t code, const void *out, time_t *begun)
{
  time_t now = time(NULL);
  *begun = *begun != 0 ? *begun : now;
  bool again = code == ncclSuccess && out == NULL && setting("TEST_NET_BLOCK") && now - *begun < 100;
  if (again) {
    usleep(100);
  }
  return again;
}

static ncclResult_t bad_connect(void *ctx, int dev, void *handle, void **out, ncclNetDeviceHandle_v12_t **gpu)
{
  time_t begun = 0;
  ncclResult_t code;
  if (fails("connect", &code)) {
    return code;
  }
  do {
    code = tcp_connect(ctx, dev, handle, out, gpu);
  } while (blocks(code, *out, &begun));
  return code;
}

static ncclResult_t bad_accept(void *any, void **out, ncclNetDeviceHandle_v12_t **gpu)
{
  time_t begun = 0;
  ncclResult_t code;
  if (fails("accept", &code)) {
    return code;
  }
  do {
    code = tcp_accept(any, out, gpu);
  } while (blocks(code, *out, &begun));
  return code;
}

static ncclResult_t bad_reg(void *any, void *data, size_t size, int type, void **mhandle)
{
  ncclResult_t code;
  return fails("regMr", &code) ? code : tcp_reg(any, data, size, type, mhandle);
}

static bool refuses(void)
{
  static _Atomic int calls;
  int n = setting("TEST_NET_REFUSE");
  return n > 0 && atomic_fetch_add(&calls, 1) % (n + 1) != n;
}

static ncclResult_t bad_isend(void *any, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request)
{
  ncclResult_t code;
  *request = NULL;
  if (fails("isend", &code)) {
    return code;
  }
  return refuses() ? ncclSuccess : tcp_isend(any, data, size, tag, mhandle, phandle, request);
}

static ncclResult_t bad_irecv(void *any, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **phandles,
                              void **request)
{
  ncclResult_t code;
  *request = NULL;
  if (fails("irecv", &code)) {
    return code;
  }
  return refuses() ? ncclSuccess : tcp_irecv(any, n, data, sizes, tags, mhandles, phandles, request);
}

// Slow ones: what is left until a request may be done is kept in its `flushes`.
static ncclResult_t bad_test(void *any, int *done, int *sizes)
{
  tcp_request *r = any;
  ncclResult_t code;
  *done = 0;
  if (fails("test", &code)) {
    return code;
  }
  if (setting("TEST_NET_SLOW") && !r->flush && r->flushes++ < (int)(r->order * 7 % 13)) {
    return r->of->send ? tcp_drive_send(r->of) : tcp_drive_recv(r->of);
  }
  ncclResult_t res = tcp_test(any, done, setting("TEST_NET_MUM") ? NULL : sizes);
  if (*done && sizes != NULL && !r->of->send && setting("TEST_NET_LIE")) {
    sizes[0] = (int)r->parts[0].room + 1;
  }
  return res;
}

const ncclNet_v12_t ncclNetPlugin_v12 = {
    .name = "TestFaulty",
    .init = bad_init,
    .devices = tcp_devices,
    .getProperties = tcp_properties,
    .listen = bad_listen,
    .connect = bad_connect,
    .accept = bad_accept,
    .regMr = bad_reg,
    .deregMr = tcp_dereg,
    .isend = bad_isend,
    .irecv = bad_irecv,
    .iflush = tcp_flush,
    .test = bad_test,
    .closeSend = tcp_close,
    .closeRecv = tcp_close,
    .closeListen = tcp_close_listen,
    .makeVDevice = tcp_make_device,
    .finalize = tcp_finalize,
    .setNetAttr = tcp_set_attr,
};
