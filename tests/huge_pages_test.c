// Huge pages under the buffers of calls that come back: results as without, also while others read; a switch; nothing
// where it pays nothing.
#include "harness.h"

#include "comm/comm.h"
#include "device/host/pages.h"

enum { RANKS = 3, CALLS = 24, BYTES = 9 << 20, COUNT = BYTES / (int)sizeof(int) };

static bool kernel_makes_them(void)
{
  char line[64] = "";
  FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
  bool allowed = f != NULL && fgets(line, sizeof line, f) != NULL && strstr(line, "[never]") == NULL;
  if (f != NULL) {
    fclose(f);
  }
  enum { HUGE = 2 << 20, COLLAPSE = 25 };
  char *p = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(p, 1, 2 * HUGE);
  char *at = p + (HUGE - (uintptr_t)p % HUGE) % HUGE;
  bool made = false;
  for (int i = 0; i < 10 && allowed && !made; i++) {
    made = madvise(at, HUGE, COLLAPSE) == 0;
  }
  munmap(p, 2 * HUGE);
  return made;
}

static int *map_buffer(void)
{
  int *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(p != MAP_FAILED, "no memory");
  madvise(p, BYTES, MADV_NOHUGEPAGE); // touched in small ones, whatever the machine does by itself
  memset(p, 0, BYTES);
  madvise(p, BYTES, MADV_HUGEPAGE);
  return p;
}

static int ranks_of(ncclComm_t comm)
{
  int n;
  OK(ncclCommCount(comm, &n));
  return n;
}

static int rank_of(ncclComm_t comm)
{
  int rank;
  OK(ncclCommUserRank(comm, &rank));
  return rank;
}

// The same buffers again and again, with other content each time, written right before and read right after each call.
static void sum_often(ncclComm_t comm, int *in, int *out, int calls)
{
  int n = ranks_of(comm), rank = rank_of(comm);
  for (int k = 0; k < calls; k++) {
    for (int i = 0; i < COUNT; i++) {
      in[i] = i % 1000 + k + rank;
    }
    OK(ncclAllReduce(in, out, COUNT, ncclInt, ncclSum, comm, NULL));
    OK(tuttiStreamSynchronize(NULL));
    for (int i = 0; i < COUNT; i++) {
      CHECK(out[i] == n * (i % 1000 + k) + n * (n - 1) / 2, "rank %d, call %d: element %d is %d", rank, k, i, out[i]);
    }
  }
}

// The same between neighbours, both ways at once.
static void pass_often(ncclComm_t comm, int *in, int *out, int calls)
{
  int n = ranks_of(comm), rank = rank_of(comm);
  for (int k = 0; k < calls; k++) {
    for (int i = 0; i < COUNT; i++) {
      in[i] = i ^ (k + rank * 100);
    }
    OK(ncclGroupStart());
    OK(ncclSend(in, COUNT, ncclInt, (rank + 1) % n, comm, NULL));
    OK(ncclRecv(out, COUNT, ncclInt, (rank + n - 1) % n, comm, NULL));
    OK(ncclGroupEnd());
    OK(tuttiStreamSynchronize(NULL));
    for (int i = 0; i < COUNT; i++) {
      CHECK(out[i] == (i ^ (k + (rank + n - 1) % n * 100)), "rank %d, message %d: element %d is %d", rank, k, i,
            out[i]);
    }
  }
}

typedef enum {
  MADE,
  NOT_MADE,
  MAY_BE
} expectation; // MAY_BE: the kernel refused when it was asked; it may have had no room just then

typedef struct wish {
  expectation pages;
  int calls;
} wish;

// What the library has done; the kernel may do more by itself.
static void check_made(ncclComm_t comm, const wish *w)
{
  long kib = status_value("/proc/self/smaps_rollup", "AnonHugePages:");
  bool good =
      w->pages == MADE ? comm->port.pages->made > 0 && kib >= 2048 : w->pages == MAY_BE || comm->port.pages->made == 0;
  CHECK(good, "%llu huge pages, %ld KiB", (unsigned long long)comm->port.pages->made, kib);
}

// Pages come on credit: where the machine is busy, and the kernel takes long and refuses, the next one is tried some
// calls later. All ranks do as many.
static void go_on_until_made(ncclComm_t comm, const wish *w, int *in, int *out)
{
  for (int i = 0, all = 0; i < 20 && w->pages == MADE && !all; i++) {
    int mine = comm->port.pages->made > 0;
    OK(ncclAllReduce(&mine, &all, 1, ncclInt, ncclMin, comm, NULL));
    OK(tuttiStreamSynchronize(NULL));
    sum_often(comm, in, out, all ? 0 : w->calls);
  }
}

static void body(int rank, void *arg)
{
  const wish *w = arg;
  ncclComm_t comm = join_processes(0, RANKS, rank);
  int *in = map_buffer(), *out = map_buffer();
  sum_often(comm, in, out, w->calls);
  pass_often(comm, in, out, w->calls);
  go_on_until_made(comm, w, in, out);
  check_made(comm, w);
  munmap(in, BYTES);
  in = map_buffer(); // other memory, perhaps at the same address
  sum_often(comm, in, out, w->calls);
  OK(ncclCommDestroy(comm));
  munmap(in, BYTES);
  munmap(out, BYTES);
}

static void same_results(void **state)
{
  (void)state;
  wish w = {.pages = kernel_makes_them() ? MADE : MAY_BE, .calls = CALLS / (SLOWER > 1 ? 3 : 1)};
  PROCESSES(RANKS, 60, body, &w);
}

static void switched_off(void **state)
{
  (void)state;
  wish w = {.pages = NOT_MADE, .calls = 6};
  assert_int_equal(
      run_processes(&(run){.n = RANKS, .seconds = 60, .fn = body, .arg = &w, .env = ENV("NCCL_HOST_HUGE_PAGES=0")}), 0);
}

// Twice is not often.
static void seldom_used(void **state)
{
  (void)state;
  wish w = {.pages = NOT_MADE, .calls = 1};
  PROCESSES(RANKS, 60, body, &w);
}

static void threads_body(int rank, void *arg)
{
  (void)rank;
  const wish *w = arg;
  world all;
  world_open(&all, 2);
  int *in = map_buffer(), *out[2] = {map_buffer(), map_buffer()};
  for (int k = 0; k < CALLS || (k < 20 * CALLS && w->pages == MADE && all.comm[0]->port.pages->made == 0); k++) {
    OK(ncclGroupStart());
    for (int i = 0; i < 2; i++) { // both from the same buffer
      OK(ncclAllReduce(in, out[i], COUNT, ncclInt, ncclSum, all.comm[i], all.stream[i]));
    }
    OK(ncclGroupEnd());
    world_wait(&all);
    for (int i = 0; i < COUNT; i++) {
      CHECK(out[0][i] == 2 * in[i] && out[1][i] == 2 * in[i], "call %d, element %d", k, i);
    }
    for (int i = 0; i < COUNT; i++) {
      in[i] = i % 1000 + k;
    }
  }
  check_made(all.comm[0], w);
  world_close(&all);
}

static void in_one_process(void **state)
{
  (void)state;
  wish w = {.pages = kernel_makes_them() ? MADE : MAY_BE};
  PROCESSES(1, 60, threads_body, &w);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(same_results),
      cmocka_unit_test(switched_off),
      cmocka_unit_test(seldom_used),
      cmocka_unit_test(in_one_process),
  };
  return RUN_TESTS("huge_pages", tests, argc, argv);
}
