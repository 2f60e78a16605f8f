/* device.c: what a host program does with the device API before it decides against it, in the common subset of C99 and
 * C++. */
#include <stdio.h>

#include "nccl.h"
#include "nccl_device.h"

#define EXPECT(cond)                                              \
  do {                                                            \
    if (!(cond)) {                                                \
      fprintf(stderr, "%s: %s\n", #cond, ncclGetLastError(NULL)); \
      return 1;                                                   \
    }                                                             \
  } while (0)

int main(void)
{
  ncclCommProperties_t props = NCCL_COMM_PROPERTIES_INITIALIZER;
  ncclDevCommRequirements_t reqs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
  ncclDevComm_t dev;
  ncclTeam_t world;
  ncclComm_t comm = NULL;

  EXPECT(ncclCommInitAll(&comm, 1, NULL) == ncclSuccess);
  EXPECT(ncclCommQueryProperties(comm, &props) == ncclSuccess);
  EXPECT(props.nRanks == 1 && props.rank == 0 && props.nLsaTeams == 1 && !props.deviceApiSupport);
  reqs.lsaBarrierCount = 1;
  EXPECT(ncclDevCommCreate(comm, &reqs, &dev) == ncclInvalidUsage);
  world = ncclTeamWorld(comm);
  EXPECT(world.nRanks == 1 && world.rank == 0 && world.stride == 1);
  EXPECT(ncclTeamRankIsMember(world, ncclTeamLsa(comm), 0));
#ifdef __cplusplus
  dev = ncclDevComm_t();
  dev.nRanks = 8;
  dev.rank = 5;
  dev.lsaSize = 2;
  dev.lsaRank = 1;
  EXPECT(ncclTeamWorld(dev).nRanks == 8 && ncclTeamLsa(dev).rank == 1 && ncclTeamRail(dev).nRanks == 4 &&
         ncclTeamRail(dev).rank == 2);
  EXPECT(ncclTeamRankToWorld(dev, ncclTeamRail(dev), 0) == 1 && ncclTeamRankToLsa(dev, ncclTeamWorld(dev), 4) == 0);
#endif
  EXPECT(ncclCommDestroy(comm) == ncclSuccess);
  return 0;
}
