// The table of devices: a communicator works through the row that it was made with, and its ranks must be on devices of
// one kind.
//
// The made-up kind "toy" does everything as the host device does, and counts, but that it has no shortcut for small
// calls.
#include "harness.h"

#include "comm/comm.h"
#include "comm/init.h"

enum { RANKS = 2, COUNT = 2, CALLS = 8 };

static tt_device_ops toy;
static _Atomic int opened, closed, waited, submitted;

static void toy_identify(int device, tt_device_id *out)
{
  tt_device_host.identify(device, out);
  strcpy(out->kind, "toy");
}

static ncclResult_t toy_open(tt_port *port, const tt_port_env *env)
{
  atomic_fetch_add(&opened, 1);
  return tt_device_host.open(port, env);
}

static void toy_close(tt_port *port)
{
  atomic_fetch_add(&closed, 1);
  tt_device_host.close(port);
}

static void toy_await(bool (*ready)(void *arg), void *arg)
{
  atomic_fetch_add(&waited, 1);
  tt_device_host.await(ready, arg);
}

static ncclResult_t toy_submit(tt_plan *plan, tt_stream *stream)
{
  atomic_fetch_add(&submitted, 1);
  return tt_device_host.submit(plan, stream);
}

static void make_toy(void)
{
  toy = tt_device_host;
  toy.name = "toy";
  toy.identify = toy_identify;
  toy.open = toy_open;
  toy.close = toy_close;
  toy.await = toy_await;
  toy.submit = toy_submit;
  toy.shortcut = NULL;
}

// Creates this process's rank on a device of the row.
static ncclResult_t create(const tt_device_ops *row, int rank, int slot, ncclComm_t *out)
{
  tt_init_args args = {.id = shared_id(slot, rank), .nranks = RANKS, .rank = rank, .device = rank};
  OK(tt_comm_new(row, out));
  OK(tt_config_read(NULL, NULL, &(*out)->config));
  tt_comm_name(*out, &args);
  return tt_comm_init(*out, &args);
}

static void mixed_body(int rank, void *arg)
{
  ncclComm_t comm;
  (void)arg;
  make_toy();
  ncclResult_t res = create(rank == 0 ? &tt_device_host : &toy, rank, 0, &comm);
  CHECK(res == ncclInvalidUsage, "rank %d: %d", rank, (int)res);
  CHECK(has_words(ncclGetLastError(NULL), (const char *const[]){"rank 0", "'host'", "rank 1", "'toy'", NULL}),
        "rank %d: the text", rank);
  CHECK(atomic_load(&opened) == 0, "rank %d: its port was opened", rank);
  tt_comm_free(comm);
}

static void kinds_do_not_mix(void **state)
{
  (void)state;
  PROCESSES(RANKS, 30, mixed_body, NULL);
}

static void toys_body(int rank, void *arg)
{
  ncclComm_t comm;
  cudaStream_t stream;
  float in[COUNT], out[COUNT];
  (void)arg;
  make_toy();
  OK(create(&toy, rank, 0, &comm));
  const tt_device_id *a = &comm->peers[0].where, *b = &comm->peers[1].where;
  CHECK(strcmp(a->kind, "toy") == 0 && strcmp(b->kind, "toy") == 0, "kinds '%.8s' and '%.8s'", a->kind, b->kind);
  CHECK(memcmp(a->uuid, b->uuid, sizeof a->uuid) != 0, "both devices have one UUID");
  CHECK(atomic_load(&opened) == 1, "rank %d: %d ports of the row were opened", rank, atomic_load(&opened));
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  for (int i = 0; i < COUNT; i++) {
    in[i] = (float)(i + rank);
  }
  for (int call = 1; call <= CALLS; call++) {
    OK(ncclAllReduce(in, out, COUNT, ncclFloat, ncclSum, comm, stream));
    OK(tuttiStreamSynchronize(stream));
    for (int i = 0; i < COUNT; i++) {
      CHECK(out[i] == (float)(2 * i + 1), "rank %d: element %d is %g", rank, i, (double)out[i]);
    }
    CHECK(atomic_load(&submitted) == call, "rank %d: %d plans for %d calls", rank, atomic_load(&submitted), call);
  }
  OK(tuttiStreamDestroy(stream));
  OK(ncclCommDestroy(comm));
  CHECK(atomic_load(&waited) > 0 && atomic_load(&closed) == 1, "rank %d: %d waits, %d ports closed", rank,
        atomic_load(&waited), atomic_load(&closed));
}

static void a_row_is_all_that_a_communicator_knows(void **state)
{
  (void)state;
  PROCESSES(RANKS, 30, toys_body, NULL);
}

// A program that has asked for the host device gets it, whatever GPUs there are.
static void who_asks_for_the_host_gets_it(void **state)
{
  int device;
  tuttiDeviceKind_t kind = tuttiDeviceCuda;
  (void)state;
  assert_int_equal(tuttiGetDeviceKind(NULL), ncclInvalidArgument);
  OK(tuttiGetDevice(&device));
  OK(tuttiGetDeviceKind(&kind));
  assert_int_equal(kind, tuttiDeviceHost);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kinds_do_not_mix),
      cmocka_unit_test(a_row_is_all_that_a_communicator_knows),
      cmocka_unit_test(who_asks_for_the_host_gets_it),
  };
  return RUN_TESTS("device_row", tests, argc, argv);
}
