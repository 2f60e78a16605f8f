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
  CHECK(!p.deviceApiSupport && !p.multimemSupport && p.hostRmaSupport, "rank %d: says what it does not support", rank);
  CHECK(p.ginType == NCCL_GIN_TYPE_NONE && p.railedGinType == NCCL_GIN_TYPE_NONE && p.nLsaTeams == 1,
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
  p.version = 23301;
  REFUSED(ncclCommQueryProperties(comm, &p), ncclInvalidUsage, "23301", "23203");
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
  CHECK(lsa.nRanks == RANKS && lsa.rank == rank && lsa.stride == 1, "lsa %d, %d", lsa.nRanks, lsa.rank);
  CHECK(rail.nRanks == 1 && rail.rank == 0 && rail.stride == RANKS, "rail %d, %d", rail.nRanks, rail.rank);
  CHECK(none.nRanks == 0 && none.stride == 0 && ncclTeamRankToWorld(NULL, everyone, 0) == -1,
        "a team of no communicator");
  for (int mode = NCCL_CFT_TEAM_FLAT; mode <= NCCL_CFT_TEAM_HIER_LSA + 1; mode++) {
    ncclTeam_t cft = ncclTeamCft(comm, (ncclCftTeamMode_t)mode);
    int n = mode <= NCCL_CFT_TEAM_HIER_LSA; // the rank alone; the mode behind the last does not exist
    CHECK(cft.nRanks == n && cft.rank == 0 && cft.stride == n, "cft %d: %d, %d", mode, cft.nRanks, cft.stride);
  }
  CHECK(ncclTeamCftMultimem(comm).nRanks == 1 && ncclTeamCftMultimem(NULL).nRanks == 0, "cft multicast");
  for (int i = 0; i < RANKS; i++) {
    CHECK(ncclTeamRankToWorld(comm, everyone, i) == i && ncclTeamRankToTeam(everyone, lsa, i) == i,
          "rank %d: member %d", rank, i);
    CHECK(ncclTeamRankIsMember(lsa, everyone, i), "rank %d: is %d a neighbour", rank, i);
    CHECK(ncclTeamRankToLsa(comm, everyone, i) == i, "rank %d: place of %d", rank, i);
  }
}

// All ranks have come here.
static void ranks_meet(ncclComm_t comm)
{
  char one[RANKS] = {0};
  cudaStream_t stream;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  OK(ncclAllGather(one, one, 1, ncclChar, comm, stream));
  OK(tuttiStreamSynchronize(stream));
  OK(tuttiStreamDestroy(stream));
}

static void check_windows(ncclComm_t comm, int rank)
{
  static char memory[RANKS][8192] __attribute__((aligned(4096)));
  ncclWindow_t win, other = (ncclWindow_t)(void *)memory;
  void *p = NULL;
  OK(ncclCommWindowRegister(comm, memory[rank], 8192, &win, NCCL_WIN_COLL_SYMMETRIC));
  for (int i = 0; i < RANKS; i++) {
    OK(ncclGetLsaDevicePointer(win, 100, i, &p));
    CHECK(p == &memory[i][100], "rank %d: window of %d at %p", rank, i, p);
    OK(ncclGetPeerDevicePointer(win, 8191, i, &p));
    CHECK(p == &memory[i][8191], "rank %d: window of %d at %p", rank, i, p);
  }
  OK(ncclGetLsaMultimemDevicePointer(win, 0, &p));
  CHECK(p == NULL, "a multicast address");
  REFUSED(ncclGetLsaDevicePointer(win, 0, RANKS, &p), ncclInvalidArgument, "lsaRank is 3");
  REFUSED(ncclGetLsaDevicePointer(win, 0, -1, &p), ncclInvalidArgument, "lsaRank is -1");
  REFUSED(ncclGetLsaDevicePointer(win, 8192, 0, &p), ncclInvalidArgument, "offset 8192", "8192 bytes");
  REFUSED(ncclGetPeerDevicePointer(win, 0, RANKS, &p), ncclInvalidArgument, "peer is 3");
  REFUSED(ncclGetPeerDevicePointer(NULL, 0, 0, &p), ncclInvalidArgument, "window");
  REFUSED(ncclGetPeerDevicePointer(other, 0, 0, &p), ncclInvalidArgument, "not a window");
  REFUSED(ncclGetMultimemDevicePointer(win, 0, (ncclMultimemHandle_t){NULL}, &p), ncclInvalidArgument, "empty");
  OK(ncclGetMultimemDevicePointer(win, 0, (ncclMultimemHandle_t){&p}, &p));
  CHECK(p == NULL, "a multicast address");
  ncclCftLeId id = 77;
  size_t at = 77;
  REFUSED(ncclGetPeerDeviceLeInfo(win, 0, 1, &id, &at), ncclInvalidArgument, "no CFT");
  REFUSED(ncclGetCftDeviceLeInfo(win, 0, 0, ncclTeamCft(comm, NCCL_CFT_TEAM_FLAT), &id, &at), ncclInvalidArgument,
          "no CFT");
  REFUSED(ncclGetMultimemDeviceLeInfo(win, 0, &id, &at), ncclInvalidArgument, "no CFT");
  REFUSED(ncclGetMultimemDeviceLeInfo(win, 8192, &id, &at), ncclInvalidArgument, "offset 8192");
  REFUSED(ncclGetPeerDeviceLeInfo(NULL, 0, 1, &id, &at), ncclInvalidArgument, "window");
  REFUSED(ncclGetPeerDeviceLeInfo(win, 0, 1, &id, NULL), ncclInvalidArgument, "must be given");
  CHECK(id == 77 && at == 77, "outputs are written on errors");
  OK(ncclWinGetUserPtr(comm, win, &p));
  CHECK(p == memory[rank], "rank %d: the user's pointer is %p", rank, p);
  REFUSED(ncclWinGetUserPtr(comm, win, NULL), ncclInvalidArgument, "outUserPtr");
  REFUSED(ncclWinGetUserPtr(comm, NULL, &p), ncclInvalidArgument, "ncclWinGetUserPtr");
  ranks_meet(comm); // a window that a peer has deregistered is an error
  OK(ncclCommWindowDeregister(comm, win));
  REFUSED(ncclGetLsaDevicePointer(win, 0, 0, &p), ncclInvalidArgument, "deregistered");
  OK(ncclCommWindowRegister(comm, memory[rank], 64, &win, 0)); // goes with the communicator
}

// A window in memory of ncclMemAlloc begins on a multiple of 4096 bytes; any other memory will do.
static void check_alignment(ncclComm_t comm)
{
  ncclWindow_t win = (ncclWindow_t)(void *)&win;
  char *memory, plain[64];
  OK(ncclMemAlloc((void **)&memory, 16384));
  REFUSED(ncclCommWindowRegister(comm, memory + 64, 4096, &win, 0), ncclInvalidArgument, "64 bytes", "4096");
  CHECK(win == NULL, "a refused window has a handle");
  OK(ncclCommWindowRegister(comm, memory + 4096, 64, &win, 0));
  OK(ncclCommWindowDeregister(comm, win));
  OK(ncclCommWindowRegister(comm, plain + 1, 8, &win, 0));
  OK(ncclCommWindowDeregister(comm, win));
  OK(ncclMemFree(memory));
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
  check_alignment(comm);
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

// Each writes its number into the next rank's window through the address, in memory that peers map; of other memory
// there is no address.
static void process_body(int rank, void *arg)
{
  ncclComm_t comm;
  ncclWindow_t mapped, ordinary;
  char *memory, plain[64];
  void *p = &p;
  (void)arg;
  OK(ncclCommInitRank(&comm, RANKS, shared_id(0, rank), rank));
  OK(ncclMemAlloc((void **)&memory, 65536));
  OK(ncclCommWindowRegister(comm, memory + 4096, 8192, &mapped, NCCL_WIN_COLL_SYMMETRIC));
  OK(ncclCommWindowRegister(comm, plain, sizeof plain, &ordinary, NCCL_WIN_COLL_SYMMETRIC));
  OK(ncclGetLsaDevicePointer(mapped, 8191, (rank + 1) % RANKS, &p));
  *(char *)p = (char)(rank + 1);
  ranks_meet(comm);
  CHECK(memory[4096 + 8191] == (rank + RANKS - 1) % RANKS + 1, "rank %d: %d came", rank, memory[4096 + 8191]);
  OK(ncclGetPeerDevicePointer(ordinary, 0, (rank + 1) % RANKS, &p));
  CHECK(p == NULL, "rank %d: ordinary memory of a peer at %p", rank, p);
  REFUSED(ncclGetLsaDevicePointer(ordinary, 0, (rank + 1) % RANKS, &p), ncclInvalidUsage, "cannot map", "ncclMemAlloc");
  OK(ncclGetLsaDevicePointer(ordinary, 3, rank, &p));
  CHECK(p == plain + 3, "rank %d: own memory at %p", rank, p);
  ranks_meet(comm);
  OK(ncclCommWindowDeregister(comm, mapped));
  ranks_meet(comm);
  OK(ncclCommDestroy(comm));
  REFUSED(ncclGetPeerDevicePointer(ordinary, 0, 0, &p), ncclInvalidArgument, "not a window");
  OK(ncclMemFree(memory));
}

static void addresses_of_peers(void **state)
{
  (void)state;
  PROCESSES(RANKS, 20, process_body, NULL);
}

// A peer that has deregistered its window, or has gone, is named.
static void gone_body(int rank, void *arg)
{
  ncclComm_t comm;
  ncclWindow_t win = NULL;
  char *memory;
  void *p;
  (void)arg;
  OK(ncclCommInitRank(&comm, 2, shared_id(0, rank), rank));
  OK(ncclMemAlloc((void **)&memory, 4096));
  if (rank == 0) {
    OK(ncclCommWindowRegister(comm, memory, 4096, &win, 0));
    REFUSED(ncclGetPeerDevicePointer(win, 0, 1, &p), ncclRemoteError, "rank 1 has ended", "window 1");
  }
  OK(ncclCommDestroy(comm));
  OK(ncclMemFree(memory));
}

static void peers_that_go(void **state)
{
  (void)state;
  PROCESSES(2, 20, gone_body, NULL);
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
      cmocka_unit_test(addresses_of_peers),
      cmocka_unit_test(peers_that_go),
      cmocka_unit_test(needs_of_kernels),
      cmocka_unit_test(arithmetic_of_teams),
  };
  return RUN_TESTS("device API", tests, argc, argv);
}
