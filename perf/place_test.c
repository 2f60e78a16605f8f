// What the launchers' variables say, and what is wrong with them.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "place.h"

// The environment of a test: NAME=value, as many as there are.
static const char *const *variables;

static const char *lookup(const char *name)
{
  size_t len = strlen(name);
  for (const char *const *v = variables; *v; v++) {
    if (strncmp(*v, name, len) == 0 && (*v)[len] == '=') {
      return *v + len + 1;
    }
  }
  return NULL;
}

static perf_place good(const char *const *v)
{
  perf_place p;
  perf_text text;
  variables = v;
  if (!perf_place_find(lookup, &p, &text)) {
    fail_msg("%s...: %s", v[0] ? v[0] : "nothing", text.buf);
  }
  return p;
}

static void bad(const char *want, const char *const *v)
{
  perf_place p;
  perf_text text;
  variables = v;
  if (perf_place_find(lookup, &p, &text)) {
    fail_msg("%s... was accepted, want '%s'", v[0], want);
  }
  if (!strstr(text.buf, want)) {
    fail_msg("%s...: '%s', want '%s'", v[0], text.buf, want);
  }
}

#define ENV(...)        \
  (const char *const[]) \
  {                     \
    __VA_ARGS__, NULL   \
  }
#define NO_ENV          \
  (const char *const[]) \
  {                     \
    NULL                \
  }

static void assert_place(perf_place p, perf_by by, int proc, int procs)
{
  assert_int_equal(p.by, by);
  assert_int_equal(p.proc, proc);
  assert_int_equal(p.procs, procs);
}

static void assert_meeting(perf_place p, const char *host, int port, bool derived)
{
  assert_string_equal(p.missing, "");
  assert_string_equal(p.host, host);
  assert_int_equal(p.derived, derived);
  assert_true(p.port > 0);
  if (port) {
    assert_int_equal(p.port, port);
  }
}

static void test_nobody(void **state)
{
  (void)state;
  assert_place(good(NO_ENV), PERF_BY_NOBODY, 0, 1);
  assert_place(good(ENV("MASTER_ADDR=a", "MASTER_PORT=1", "LOCAL_RANK=3")), PERF_BY_NOBODY, 0, 1);
  assert_place(good(ENV("RANK=", "WORLD_SIZE=")), PERF_BY_NOBODY, 0, 1);
}

static void test_torchrun(void **state)
{
  (void)state;
  perf_place p = good(ENV("RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "MASTER_ADDR=node7", "MASTER_PORT=29500"));
  assert_place(p, PERF_BY_TORCHRUN, 1, 4);
  assert_meeting(p, "node7", 29500, false);
  assert_string_equal(good(ENV("RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=[fd00::1]", "MASTER_PORT=1")).host, "fd00::1");
  assert_place(good(ENV("RANK=0", "WORLD_SIZE=1")), PERF_BY_TORCHRUN, 0, 1);
  // The agent keeps its port: the processes agree on another one.
  p = good(ENV("RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=a", "MASTER_PORT=29500", "TORCHELASTIC_USE_AGENT_STORE=True",
               "TORCHELASTIC_RUN_ID=x"));
  assert_meeting(p, "a", 0, true);
  assert_int_not_equal(p.port, 29500);
  perf_place q = good(ENV("RANK=0", "WORLD_SIZE=4", "MASTER_ADDR=a", "MASTER_PORT=29500",
                          "TORCHELASTIC_USE_AGENT_STORE=True", "TORCHELASTIC_RUN_ID=x"));
  assert_int_equal(p.port, q.port);
  assert_true(p.job == q.job);
  assert_false(p.job ==
               good(ENV("RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=a", "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=y")).job);
}

static void test_wrong_variables(void **state)
{
  (void)state;
  bad("RANK=4 and WORLD_SIZE=4 contradict", ENV("RANK=4", "WORLD_SIZE=4"));
  bad("RANK=0 and WORLD_SIZE=0 contradict", ENV("RANK=0", "WORLD_SIZE=0"));
  bad("RANK is set, but WORLD_SIZE is not", ENV("RANK=4"));
  bad("WORLD_SIZE is set, but RANK is not", ENV("WORLD_SIZE=4"));
  bad("RANK='-1': not a whole number", ENV("RANK=-1", "WORLD_SIZE=4"));
  bad("WORLD_SIZE='4x': not a whole number", ENV("RANK=1", "WORLD_SIZE=4x"));
  bad("WORLD_SIZE='99999999999999999999': not a whole", ENV("RANK=1", "WORLD_SIZE=99999999999999999999"));
  bad("WORLD_SIZE='5000': must be 0 to 4096", ENV("RANK=1", "WORLD_SIZE=5000"));
  bad("MASTER_PORT='65536': must be 0 to 65535", ENV("RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=a", "MASTER_PORT=65536"));
  bad("MASTER_PORT='0': must be 1", ENV("RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=a", "MASTER_PORT=0"));
  bad("MASTER_PORT='http': not a whole", ENV("RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=a", "MASTER_PORT=http"));
  bad("MASTER_ADDR='[]'", ENV("RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=[]", "MASTER_PORT=1"));
  bad("SLURM_PROCID=9 and SLURM_NTASKS=8", ENV("SLURM_PROCID=9", "SLURM_NTASKS=8", "SLURM_STEP_ID=0"));
  bad("SLURM_NTASKS is set, but SLURM_PROCID", ENV("SLURM_NTASKS=8", "SLURM_STEP_ID=0"));
  bad("SLURM_STEP_NODELIST='n[1-': not a list", ENV("SLURM_PROCID=1", "SLURM_NTASKS=8", "SLURM_STEP_NODELIST=n[1-"));
  bad("OMPI_COMM_WORLD_RANK is set, but OMPI_COMM_WORLD_SIZE", ENV("OMPI_COMM_WORLD_RANK=1"));
  bad("PMI_SIZE is set, but PMI_RANK is not", ENV("PMI_SIZE=2"));
  bad("PMIX_RANK is set, but WORLD_SIZE is not", ENV("PMIX_RANK=1", "PMIX_NAMESPACE=x"));
}

static void test_missing_meeting(void **state)
{
  (void)state;
  assert_string_equal(good(ENV("RANK=1", "WORLD_SIZE=4")).missing,
                      "set MASTER_ADDR and MASTER_PORT: where process 0 can listen");
  assert_non_null(strstr(good(ENV("RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=a")).missing, "set MASTER_PORT"));
  assert_non_null(strstr(good(ENV("PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALNRANKS=4")).missing, "nothing names the job"));
  assert_non_null(strstr(good(ENV("PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALNRANKS=2", "(hydra)=7")).missing,
                         "MPI_LOCALNRANKS=2 of 4"));
  assert_non_null(
      strstr(good(ENV("SLURM_PROCID=1", "SLURM_NTASKS=8", "SLURM_STEP_ID=0")).missing, "SLURM_STEP_NODELIST"));
}

static void test_slurm(void **state)
{
  (void)state;
  perf_place p = good(ENV("SLURM_PROCID=3", "SLURM_NTASKS=8", "SLURM_LOCALID=1",
                          "SLURM_STEP_NODELIST=node[07-09,12],login", "SLURM_JOB_ID=4711", "SLURM_STEP_ID=0"));
  assert_place(p, PERF_BY_SLURM, 3, 8);
  assert_meeting(p, "node07", 0, true);
  perf_place q = good(ENV("SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_STEP_NODELIST=node[07-09,12],login",
                          "SLURM_JOB_ID=4711", "SLURM_STEP_ID=1"));
  assert_false(p.job == q.job); // two steps of a job do not meet
  p = good(ENV("SLURM_PROCID=3", "SLURM_NTASKS=8", "SLURM_STEP_NODELIST=a", "MASTER_PORT=7777"));
  assert_meeting(p, "a", 7777, false);
  p = good(ENV("SLURM_PROCID=3", "SLURM_NTASKS=8", "SLURM_STEP_NODELIST=a", "MASTER_ADDR=b", "SLURM_JOB_ID=1"));
  assert_meeting(p, "b", 0, true);
  // A step of fewer tasks than the job.
  assert_place(good(ENV("SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_STEP_NUM_TASKS=1")), PERF_BY_SLURM, 0, 1);
}

static void test_batch_script(void **state)
{
  (void)state;
  perf_place p;
  perf_text text;
  variables = ENV("SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_JOB_ID=4711", "SLURM_JOB_NODELIST=a");
  assert_true(perf_place_find(lookup, &p, &text));
  assert_place(p, PERF_BY_NOBODY, 0, 1);
  assert_non_null(strstr(text.buf, "SLURM_NTASKS=8"));
}

static void test_mpi_without_mpi(void **state)
{
  (void)state;
  perf_place p = good(ENV("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                          "PMIX_RANK=1", "PMIX_NAMESPACE=1122828289"));
  assert_place(p, PERF_BY_OPENMPI, 1, 2);
  assert_meeting(p, "127.0.0.1", 0, true);
  p = good(ENV("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=1",
               "PMIX_NAMESPACE=1122828289", "MASTER_ADDR=box"));
  assert_meeting(p, "box", 0, true);
  p = good(ENV("PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALNRANKS=4", "(hydra)=7"));
  assert_place(p, PERF_BY_MPICH, 1, 4);
  assert_meeting(p, "127.0.0.1", 0, true);
  assert_true(p.one_machine_assumed);
  p = good(ENV("PMIX_RANK=1", "WORLD_SIZE=4", "PMIX_NAMESPACE=prterun-node18-12345@1"));
  assert_place(p, PERF_BY_PMIX, 1, 4);
  assert_meeting(p, "127.0.0.1", 0, true);
  p = good(ENV("PMIX_RANK=1", "PMIX_NAMESPACE=prterun-node18-12345@1", "PMIX_SERVER_URI41=uri"));
  assert_place(p, PERF_BY_PMIX, 1, 0);
  assert_true(p.has_server);
  assert_non_null(strstr(p.missing, "set WORLD_SIZE"));
}

// Every machine has a Hydra proxy of its own: its number must not keep the machines' processes apart.
static void test_hydra_on_several_machines(void **state)
{
  (void)state;
  perf_place p =
      good(ENV("PMI_RANK=0", "PMI_SIZE=4", "MPI_LOCALNRANKS=2", "(hydra)=7", "MASTER_ADDR=a", "MASTER_PORT=5"));
  perf_place q =
      good(ENV("PMI_RANK=2", "PMI_SIZE=4", "MPI_LOCALNRANKS=2", "(hydra)=8", "MASTER_ADDR=a", "MASTER_PORT=5"));
  assert_true(p.job == q.job);
  assert_meeting(q, "a", 5, false);
}

// The innermost launcher counts.
static void test_one_within_another(void **state)
{
  (void)state;
  assert_place(good(ENV("RANK=5", "WORLD_SIZE=8", "MASTER_ADDR=a", "MASTER_PORT=1", "OMPI_COMM_WORLD_RANK=1",
                        "OMPI_COMM_WORLD_SIZE=2")),
               PERF_BY_TORCHRUN, 5, 8);
  assert_place(
      good(ENV("RANK=5", "WORLD_SIZE=8", "OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=8", "PMIX_NAMESPACE=1")),
      PERF_BY_OPENMPI, 5, 8);
  assert_place(good(ENV("SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_ID=0", "OMPI_COMM_WORLD_RANK=5",
                        "OMPI_COMM_WORLD_SIZE=8", "PMIX_NAMESPACE=1")),
               PERF_BY_OPENMPI, 5, 8);
  assert_place(good(ENV("SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_ID=0", "PMI_RANK=5", "PMI_SIZE=8",
                        "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=8", "(hydra)=1")),
               PERF_BY_MPICH, 5, 8);
  assert_place(good(ENV("SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=a", "PMI_RANK=1", "PMI_SIZE=2")),
               PERF_BY_SLURM, 1, 2);
  assert_place(good(ENV("SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=a", "PMIX_RANK=1",
                        "PMIX_NAMESPACE=slurm.pmix.4711.0")),
               PERF_BY_SLURM, 1, 2);
  // Many scripts export WORLD_SIZE for all steps.
  assert_place(good(ENV("WORLD_SIZE=2", "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=a")), PERF_BY_SLURM, 1,
               2);
}

static void first_host(const char *list, const char *want)
{
  char host[16];
  bool ok = perf_first_host(list, host, sizeof(host));
  assert_int_equal(ok, want != NULL);
  if (want) {
    assert_string_equal(host, want);
  }
}

static void test_host_lists(void **state)
{
  (void)state;
  first_host("node1", "node1");
  first_host("node1,node2", "node1");
  first_host("node[1-4]", "node1");
  first_host("node[007,9]", "node007");
  first_host("r[1-2]n[5-6]-ib,x", "r1n5-ib");
  first_host("n[3]", "n3");
  first_host("", NULL);
  first_host(",a", NULL);
  first_host("n[", NULL);
  first_host("n[]", NULL);
  first_host("n[1", NULL);
  first_host("n]1", NULL);
  first_host("n[-1]", NULL);
  first_host("123456789012345", "123456789012345");
  first_host("1234567890123456", NULL);
  first_host("123456789012[3456]", NULL);
  first_host("123456789012[345]", "123456789012345");
}

static void test_ports(void **state)
{
  (void)state;
  for (uint64_t job = 0; job < 2000; job++) {
    int port = perf_derived_port(job, (int)job % 8);
    assert_true(port >= 20000 && port < 32000);
  }
  assert_int_not_equal(perf_derived_port(1, 0), perf_derived_port(1, 1));
  assert_int_not_equal(perf_derived_port(1, 0), perf_derived_port(2, 0));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nobody),
      cmocka_unit_test(test_torchrun),
      cmocka_unit_test(test_wrong_variables),
      cmocka_unit_test(test_missing_meeting),
      cmocka_unit_test(test_slurm),
      cmocka_unit_test(test_batch_script),
      cmocka_unit_test(test_mpi_without_mpi),
      cmocka_unit_test(test_hydra_on_several_machines),
      cmocka_unit_test(test_one_within_another),
      cmocka_unit_test(test_host_lists),
      cmocka_unit_test(test_ports),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
