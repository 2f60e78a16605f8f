// The host side of the device API: what it answers about communicators, teams and windows, and what it refuses.
#include "harness.h"

#include "nccl_device.h"

enum { RANKS = 3 };

static void check_properties(ncclComm_t comm, int rank)
{
  ncclCommProperties_t p = NCCL_COMM_PROPERTIES_INITIALIZER;
  int device;
  OK(ncclCommCuDevice(comm, &device));
  memset(&p.rank, 0x55, sizeof p - offsetof(ncclCommProperties_t, rank));
  OK(ncclCommQueryProperties(comm, &p));
  CHECK(p.rank == rank && p.nRanks == RANKS && p.cudaDev == device && p.nvmlDev == device,
        "rank %d: %d of %d, device %d", rank, p.rank, p.nRanks, p.cudaDev);
  CHECK(!p.deviceApiSupport && !p.multimemSupport && !p.hostRmaSupport, "rank %d: supports what it does not", rank);
  CHECK(p.ginType == NCCL_GIN_TYPE_NONE && p.railedGinType == NCCL_GIN_TYPE_NONE && p.nLsaTeams == RANKS,
        "rank %d: GIN %d, %d teams", rank, (int)p.ginType, p.nLsaTeams);
  // That of 2.29.2 ends before nLsaTeams.
  ncclCommProperties_t old = {
      .size = offsetof(ncclCommProperties_t, nLsaTeams), .magic = NCCL_API_MAGIC, .version = 22902};
  old.nLsaTeams = -7;
  OK(ncclCommQueryProperties(comm, &old));
  CHECK(old.nRanks == RANKS && old.nLsaTeams == -7, "rank %d: wrote beyond an older structure", rank);
}

static void check_refusals(ncclComm_t comm)
{
  ncclCommProperties_t p = NCCL_COMM_PROPERTIES_INITIALIZER;
  ncclDevCommRequirements_t reqs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
  ncclDevComm_t dev = {0};
  REFUSED(ncclCommQueryProperties(NULL, &p), ncclInvalidArgument, "ncclCommQueryProperties", "NULL");
  REFUSED(ncclCommQueryProperties(comm, NULL), ncclInvalidArgument, "props is NULL");
  p.version = 23101;
  REFUSED(ncclCommQueryProperties(comm, &p), ncclInvalidUsage, "23101", "23007");
  p.magic = 0;
  REFUSED(ncclCommQueryProperties(comm, &p), ncclInvalidUsage, "not initialised");
  REFUSED(ncclDevCommCreate(comm, NULL, &dev), ncclInvalidArgument, "reqs");
  REFUSED(ncclDevCommCreate(comm, &reqs, &dev), ncclInvalidUsage, "no device code");
  OK(ncclDevCommDestroy(comm, &dev));
  dev.magic = NCCL_API_MAGIC;
  REFUSED(ncclDevCommDestroy(comm, &dev), ncclInvalidArgument, "no device communicator");
  reqs.magic = 0;
  REFUSED(ncclDevCommCreate(comm, &reqs, &dev), ncclInvalidUsage, "not initialised");
}

static void check_teams(ncclComm_t comm, int rank)
{
  ncclTeam_t everyone = ncclTeamWorld(comm), lsa = ncclTeamLsa(comm), rail = ncclTeamRail(comm),
             none = ncclTeamWorld(NULL);
  CHECK(everyone.nRanks == RANKS && everyone.rank == rank && everyone.stride == 1, "everyone of %d: %d %d", rank,
        everyone.nRanks, everyone.rank);
  CHECK(lsa.nRanks * rail.nRanks == RANKS && lsa.stride == 1 && rail.stride == lsa.nRanks, "lsa %d, rail %d",
        lsa.nRanks, rail.nRanks);
  CHECK(none.nRanks == 0 && none.stride == 0 && ncclTeamRankToWorld(NULL, everyone, 0) == -1,
        "a team of no communicator");
  for (int i = 0; i < RANKS; i++) {
    CHECK(ncclTeamRankToWorld(comm, everyone, i) == i && ncclTeamRankToTeam(everyone, rail, i) == i,
          "rank %d: member %d", rank, i);
    CHECK(ncclTeamRankIsMember(lsa, everyone, i) == (i == rank), "rank %d: is %d a neighbour", rank, i);
    CHECK(ncclTeamRankToLsa(comm, everyone, i) == i - rank, "rank %d: place of %d", rank, i);
  }
}

static void check_windows(ncclComm_t comm, int rank)
{
  static char memory[RANKS][8192] __attribute__((aligned(4096)));
  ncclWindow_t win, other = (ncclWindow_t)(void *)memory;
  void *p = NULL;
  OK(ncclCommWindowRegister(comm, memory[rank], 8192, &win, NCCL_WIN_COLL_SYMMETRIC));
  OK(ncclGetLsaDevicePointer(win, 100, 0, &p));
  CHECK(p == &memory[rank][100], "rank %d: %p", rank, p);
  for (int i = 0; i < RANKS; i++) {
    OK(ncclGetPeerDevicePointer(win, 8191, i, &p));
    CHECK(p == (i == rank ? &memory[rank][8191] : NULL), "rank %d: window of %d at %p", rank, i, p);
  }
  OK(ncclGetLsaMultimemDevicePointer(win, 0, &p));
  CHECK(p == NULL, "a multicast address");
  REFUSED(ncclGetLsaDevicePointer(win, 0, 1, &p), ncclInvalidArgument, "lsaRank is 1");
  REFUSED(ncclGetLsaDevicePointer(win, 8192, 0, &p), ncclInvalidArgument, "offset 8192", "8192 bytes");
  REFUSED(ncclGetPeerDevicePointer(win, 0, RANKS, &p), ncclInvalidArgument, "peer is 3");
  REFUSED(ncclGetPeerDevicePointer(NULL, 0, 0, &p), ncclInvalidArgument, "window");
  REFUSED(ncclGetPeerDevicePointer(other, 0, 0, &p), ncclInvalidArgument, "not a window");
  REFUSED(ncclGetMultimemDevicePointer(win, 0, (ncclMultimemHandle_t){NULL}, &p), ncclInvalidArgument, "empty");
  OK(ncclCommWindowDeregister(comm, win));
  REFUSED(ncclGetLsaDevicePointer(win, 0, 0, &p), ncclInvalidArgument, "deregistered");
  OK(ncclCommWindowRegister(comm, memory[rank], 64, &win, 0)); // goes with the communicator
}

static void rank_body(int rank, void *arg)
{
  const ncclUniqueId *id = arg;
  ncclComm_t comm;
  OK(ncclCommInitRank(&comm, RANKS, *id, rank));
  check_properties(comm, rank);
  check_refusals(comm);
  check_teams(comm, rank);
  check_windows(comm, rank);
  OK(ncclCommDestroy(comm));
}

static void threads_body(int rank, void *arg)
{
  ncclUniqueId id;
  (void)rank, (void)arg;
  OK(ncclGetUniqueId(&id));
  run_threads(RANKS, rank_body, &id);
}

static void answers_of_communicators(void **state)
{
  (void)state;
  PROCESSES(1, 20, threads_body, NULL);
}

static void needs_of_kernels(void **state)
{
  ncclTeam_t four = {4, 1, 1};
  ncclLsaBarrierHandle_t lsa;
  ncclLLA2AHandle_t ll;
  ncclDevResourceRequirements_t r;
  (void)state;
  assert_int_equal(ncclLsaBarrierCreateRequirement(four, 5, &lsa, &r), ncclSuccess);
  assert_true(r.bufferSize == (3 * 5 + 5 * 4) * 4 && r.bufferAlign == 4 && r.outBufferHandle == &lsa.bufHandle &&
              lsa.nBarriers == 5);
  assert_true(r.next == NULL && r.ginSignalCount == 0);
  assert_int_equal(ncclLLA2ACalcSlots(10, 12), 20);
  assert_int_equal(ncclLLA2ACreateRequirement(3, 20, &ll, &r), ncclSuccess);
  assert_true(r.bufferSize == 3 * 41 * 16 && r.bufferAlign == 16 && r.outBufferHandle == &ll.bufHandle &&
              ll.nSlots == 20);
  assert_int_equal(ncclLLA2ACreateRequirement(3, -1, &ll, &r), ncclInvalidArgument);
  assert_int_equal(ncclLsaBarrierCreateRequirement(four, 5, NULL, &r), ncclInvalidArgument);
}

// Against lists of everyone ranks: 12 ranks, this one is 7.
static void arithmetic_of_teams(void **state)
{
  ncclTeam_t everyone = {12, 7, 1}, inner = ncclTeamInnerFactor(everyone, 4), outer = ncclTeamOuterFactor(everyone, 4),
             back = {4, 2, -1};
  const int except_outer[] = {0, 1, 2, 4, 5, 6, 8, 9, 10}, except_inner[] = {0, 1, 2, 3, 8, 9, 10, 11},
            except_back[] = {0, 1, 2, 3, 4, 5, 10, 11};
  (void)state;
  assert_true(inner.nRanks == 4 && inner.rank == 3 && inner.stride == 1); // 4 5 6 7
  assert_true(outer.nRanks == 3 && outer.rank == 1 && outer.stride == 4); // 3 7 11
  assert_true(ncclTeamRankIsMember(outer, everyone, 11) && !ncclTeamRankIsMember(outer, everyone, 10) &&
              !ncclTeamRankIsMember(inner, everyone, 8));
  assert_int_equal(ncclTeamRankToTeam(outer, everyone, 3), 0);
  for (int i = 0; i < 9; i++) {
    assert_int_equal(ncclTeamRankInDifference(everyone, outer, i), except_outer[i]);
  }
  for (int i = 0; i < 8; i++) {
    assert_int_equal(ncclTeamRankInDifference(everyone, inner, i), except_inner[i]);
    assert_int_equal(ncclTeamRankInDifference(everyone, back, i), except_back[i]); // 9 8 7 6
  }
  assert_int_equal(ncclGetResourceBufferOffset(3), 384);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(answers_of_communicators),
      cmocka_unit_test(needs_of_kernels),
      cmocka_unit_test(arithmetic_of_teams),
  };
  return RUN_TESTS("device API", tests, argc, argv);
}
