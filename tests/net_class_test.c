// net_class_test.c: the traffic class of a communicator's configuration reaches the network's plugin, where its version
// has a place for it.
#include "harness.h"

#include <limits.h>

enum { RANKS = 2, COUNT = 1000 };

static char log_file[64];

static int logged(const char *what)
{
  static char text[1 << 20];
  int times = 0;
  FILE *f = fopen(log_file, "r");
  CHECK(f != NULL, "no %s", log_file);
  text[fread(text, 1, sizeof text - 1, f)] = '\0';
  fclose(f);
  for (const char *at = text; (at = strstr(at, what)) != NULL; at++) {
    times++;
  }
  return times;
}

static void use_plugin(int version)
{
  char path[4096];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(path, sizeof path, "%s/tests/plugins/libnet_v%d.so", build != NULL ? build : "build", version);
  snprintf(log_file, sizeof log_file, "/tmp/tutti_net_class_%d.log", (int)getpid());
  setenv("NCCL_NET_PLUGIN", path, 1);
  setenv("NCCL_P2P_DISABLE", "1", 1);
  setenv("NCCL_SHM_DISABLE", "1", 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_SUBSYS", "INIT,NET", 1);
  setenv("NCCL_DEBUG_FILE", log_file, 1);
}

// Everybody's message goes over the network.
static void sum(const world *w)
{
  static float data[RANKS][COUNT];
  OK(ncclGroupStart());
  for (int i = 0; i < w->n; i++) {
    for (int k = 0; k < COUNT; k++) {
      data[i][k] = (float)(i + k);
    }
    OK(ncclAllReduce(data[i], data[i], COUNT, ncclFloat, ncclSum, w->comm[i], w->stream[i]));
  }
  OK(ncclGroupEnd());
  world_wait(w);
  for (int k = 0; k < COUNT; k++) {
    CHECK(data[0][k] == (float)(2 * k + 1) && data[1][k] == data[0][k], "element %d: %g and %g", k, (double)data[0][k],
          (double)data[1][k]);
  }
}

// A world of that class; INT_MIN: not given.
static void open_class(world *w, int class)
{
  ncclUniqueId id;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.trafficClass = class == INT_MIN ? config.trafficClass : class;
  OK(ncclGetUniqueId(&id));
  *w = (world){.n = RANKS};
  OK(ncclGroupStart());
  for (int i = 0; i < RANKS; i++) {
    OK(tuttiSetDevice(i));
    OK(tuttiStreamCreate(&w->stream[i], TUTTI_STREAM_DEFAULT));
    OK(ncclCommInitRankConfig(&w->comm[i], RANKS, id, i, &config));
  }
  OK(ncclGroupEnd());
}

static void split_of(const world *parent, world *w, int class)
{
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.trafficClass = class == INT_MIN ? config.trafficClass : class;
  *w = *parent;
  OK(ncclGroupStart());
  for (int i = 0; i < RANKS; i++) {
    OK(ncclCommSplit(parent->comm[i], 0, i, &w->comm[i], class == INT_MIN ? NULL : &config));
  }
  OK(ncclGroupEnd());
}

static void close_split(const world *w)
{
  for (int i = 0; i < RANKS; i++) {
    OK(ncclCommDestroy(w->comm[i]));
  }
}

// A context is of a communicator's rank, a connection of one direction.
static void class_reaches_plugin(int rank, void *arg)
{
  world w, child, other, plain;
  int version = *(int *)arg;
  const char *where = version == 10 ? "a connection of" : "",
             *none = version == 10 ? "a connection of traffic class -1" : "traffic class -1";
  char seven[64], nine[64];
  (void)rank;
  use_plugin(version);
  snprintf(seven, sizeof seven, "%s traffic class 7", where);
  snprintf(nine, sizeof nine, "%s traffic class 9", where);
  open_class(&w, 7);
  sum(&w);
  CHECK(logged(seven) == RANKS && logged(nine) == 0, "%d times", logged(seven));
  split_of(&w, &child, INT_MIN);
  sum(&child);
  CHECK(logged(seven) == 2 * RANKS && logged(nine) == 0, "children inherit it: %d times", logged(seven));
  split_of(&w, &other, 9);
  sum(&other);
  CHECK(logged(seven) == 2 * RANKS && logged(nine) == RANKS && logged(none) == 0, "%d times", logged(nine));
  close_split(&child);
  close_split(&other);
  world_close(&w);
  open_class(&plain, INT_MIN);
  sum(&plain);
  CHECK(logged(none) == RANKS, "not given: %d times", logged(none));
  world_close(&plain);
  CHECK(logged("caller is wrong") == 0 && logged("LEAK") == 0, "the plugin complains: %s", log_file);
  remove(log_file);
}

static void every_version_with_a_place_for_it(void **state)
{
  (void)state;
  for (int version = 10; version <= 12; version++) {
    PROCESSES(1, 60, class_reaches_plugin, &version);
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_version_with_a_place_for_it)};
  return RUN_TESTS("net_class", tests, argc, argv);
}
