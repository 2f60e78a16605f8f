// A network plugin of version 12 that breaks the rule that TEST_NET_WRONG names, one that `tutti-plugin check` looks
// at; the plain one (net_tcp.h) otherwise.
#define NET_VERSION 12
#include "net_tcp.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

static ncclProfilerCallback_t tell;
// Atomic: several threads call at once; nothing but these values depends on them.
static _Atomic int sends, tests;
static char *_Atomic last_buffer;

static bool wrong(const char *what)
{
  const char *value = getenv("TEST_NET_WRONG");
  return value != NULL && strcmp(value, what) == 0;
}

__attribute__((noreturn)) static void *sleeper(void *arg)
{
  (void)arg;
  for (;;) {
    pause();
  }
}

// Writes where the last message was to be received, for a second.
static void *late_writer(void *arg)
{
  const struct timespec nap = {.tv_nsec = 1000000};
  char *buffer = last_buffer;
  (void)arg;
  for (int i = 0; i < 1000; i++) {
    nanosleep(&nap, NULL);
    __atomic_store_n(buffer, 'x', __ATOMIC_RELAXED);
  }
  return NULL;
}

static void thread(void *(*fn)(void *))
{
  pthread_t id;
  if (pthread_create(&id, NULL, fn, NULL) == 0) {
    pthread_detach(id);
  }
}

static ncclResult_t wrong_init(void **ctx, uint64_t comm, ncclNetCommConfig_v12_t *config, ncclDebugLogger_t log,
                               ncclProfilerCallback_t profile)
{
  tell = profile;
  if (wrong("mask")) {
    sigset_t some;
    sigemptyset(&some);
    sigaddset(&some, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &some, NULL);
  } else if (wrong("folder")) {
    (void)!chdir("/");
  } else if (wrong("handler")) {
    signal(SIGUSR2, SIG_IGN);
  } else if (wrong("print")) {
    printf("the wrong plugin is here\n");
  } else if (wrong("stay")) {
    thread(sleeper);
    (void)!dup(0);
  }
  return tcp_init(ctx, comm, config, log, profile);
}

static ncclResult_t wrong_properties(int dev, ncclNetProperties_v12_t *p)
{
  static char path[] = "/sys/nothing/of/that/name";
  ncclResult_t res = tcp_properties(dev, p);
  p->vProps.ndevs = wrong("parts") ? 99 : 1;
  p->latency = wrong("latency") ? -1.0F : p->latency;
  p->pciPath = wrong("path") ? path : NULL;
  if (wrong("spill")) { // fills the structure of a version that is larger
    memset((char *)p + sizeof *p, 1, 16);
  }
  return res;
}

static ncclResult_t wrong_listen(void *ctx, int dev, void *handle, void **out)
{
  ncclResult_t res = tcp_listen(ctx, dev, handle, out);
  if (wrong("handle")) {
    memset((char *)handle + NCCL_NET_HANDLE_MAXSIZE, 0, 4);
  } else if (wrong("no listener")) {
    *out = NULL;
  }
  return res;
}

static ncclResult_t wrong_connect(void *ctx, int dev, void *handle, void **out, ncclNetDeviceHandle_v12_t **gpu)
{
  if (wrong("notes")) {
    memset((char *)handle + NCCL_NET_HANDLE_MAXSIZE, 0, 4);
  } else if (wrong("never")) {
    *out = NULL;
    return ncclSuccess;
  }
  return tcp_connect(ctx, dev, handle, out, gpu);
}

static ncclResult_t wrong_accept(void *any, void **out, ncclNetDeviceHandle_v12_t **gpu)
{
  static bool slept;
  if (wrong("block") && !slept) {
    slept = true;
    nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
  } else if (wrong("eager")) {
    *out = any;
    return ncclSuccess;
  }
  ncclResult_t res = tcp_accept(any, out, gpu);
  if (res == ncclSuccess && *out != NULL && wrong("leak descriptors")) {
    (void)!dup(0);
  } else if (res == ncclSuccess && *out != NULL && wrong("leak threads")) {
    thread(sleeper);
  }
  return res;
}

static ncclResult_t wrong_dereg(void *any, void *mhandle)
{
  ncclResult_t res = tcp_dereg(any, mhandle);
  return wrong("dereg") ? ncclInvalidUsage : res;
}

static ncclResult_t wrong_isend(void *any, void *data, size_t size, int tag, void *mhandle, void *phandle,
                                void **request)
{
  static int foreign;
  void *event = NULL;
  *request = NULL;
  if (wrong("stuck") && ++sends > 20) {
    return ncclSuccess;
  }
  if (wrong("garble") && size > 1000) {
    ((char *)data)[1000] ^= 1;
  } else if (wrong("event")) {
    tell(&event, ncclProfilerNetEventStart, &foreign, 1, NULL);
  } else if (wrong("crash")) {
    abort();
  }
  return tcp_isend(any, data, size, tag, mhandle, phandle, request);
}

static ncclResult_t wrong_irecv(void *any, int n, void **data, size_t *sizes, int *tags, void **mhandles,
                                void **phandles, void **request)
{
  last_buffer = data[0];
  if (wrong("overrun")) {
    ((char *)data[0])[sizes[0] + 1] = 'x';
  }
  ncclResult_t res = tcp_irecv(any, n, data, sizes, tags, mhandles, phandles, request);
  return wrong("tags") && n > 1 ? ncclInvalidArgument : res;
}

static ncclResult_t wrong_flush(void *any, int n, void **data, int *sizes, void **mhandles, void **request)
{
  return wrong("flush") ? ncclInternalError : tcp_flush(any, n, data, sizes, mhandles, request);
}

static ncclResult_t wrong_test(void *any, int *done, int *sizes)
{
  const tcp_request *r = any;
  if (r->flush && wrong("flushed never")) {
    *done = 0;
    return ncclSuccess;
  }
  ncclResult_t res = tcp_test(any, done, sizes);
  if (res == ncclRemoteError && wrong("silent")) {
    return ncclSuccess;
  }
  if (res == ncclRemoteError && wrong("done")) {
    *done = 1;
    return ncclSuccess;
  }
  return wrong("code") && ++tests > 50 ? (ncclResult_t)-5 : res;
}

static ncclResult_t wrong_close_send(void *any)
{
  ncclResult_t res = tcp_close(any);
  if (wrong("leak memory")) {
    (void)!strdup(getenv("PATH"));
  }
  return wrong("close") ? ncclSystemError : res;
}

static bool is_under_way(const connection *c)
{
  for (unsigned i = 0; i < REQUESTS; i++) {
    if (c->requests[i].used) {
      return true;
    }
  }
  return false;
}

static ncclResult_t wrong_close_recv(void *any)
{
  if (wrong("hang")) {
    sleeper(NULL);
  } else if (wrong("late") && is_under_way(any)) { // memory that the tool protects; other memory would be reused
    thread(late_writer);
  }
  return tcp_close(any);
}

static ncclResult_t wrong_close_listen(void *any)
{
  ncclResult_t res = tcp_close_listen(any);
  return wrong("close listener") ? ncclSystemError : res;
}

static ncclResult_t wrong_finalize(void *ctx)
{
  ncclResult_t res = tcp_finalize(ctx);
  return wrong("finalize") ? ncclSystemError : res;
}

ncclNet_v12_t ncclNetPlugin_v12 = {
    .name = "TestWrong",
    .init = wrong_init,
    .devices = tcp_devices,
    .getProperties = wrong_properties,
    .listen = wrong_listen,
    .connect = wrong_connect,
    .accept = wrong_accept,
    .regMr = tcp_reg,
    .deregMr = wrong_dereg,
    .isend = wrong_isend,
    .irecv = wrong_irecv,
    .iflush = wrong_flush,
    .test = wrong_test,
    .closeSend = wrong_close_send,
    .closeRecv = wrong_close_recv,
    .closeListen = wrong_close_listen,
    .makeVDevice = tcp_make_device,
    .finalize = wrong_finalize,
    .setNetAttr = tcp_set_attr,
};

__attribute__((constructor)) static void at_load(void)
{
  if (wrong("no flush")) {
    ncclNetPlugin_v12.iflush = NULL;
  }
}
