// core.h: properties of a communicator, device communicators, teams, addresses of windows.
#ifndef NCCL_DEVICE_CORE_H_
#define NCCL_DEVICE_CORE_H_

#include "nccl.h"
#include "utility.h"

// ---------------------------------------------------------------------------------------------------------------------
// Types
// ---------------------------------------------------------------------------------------------------------------------

typedef struct ncclWindow_vidmem ncclWindow_vidmem_t;

// Where a resource of a device communicator begins in its buffer, in units of 128 bytes.
typedef uint32_t ncclDevResourceHandle;
typedef ncclDevResourceHandle ncclDevResourceHandle_t;

// Numbers of signals and counters of GIN, the network that kernels start by themselves.
typedef uint32_t ncclGinSignal_t;
typedef uint32_t ncclGinCounter_t;

typedef struct {
  uint64_t opaque[2];
} ncclGinRequest_t;

// How ranks are connected for GIN: not, all with all, those of one rail, or those of a distance that the program names.
typedef enum {
  NCCL_GIN_CONNECTION_NONE = 0,
  NCCL_GIN_CONNECTION_FULL = 1,
  NCCL_GIN_CONNECTION_RAIL = 2,
  NCCL_GIN_CONNECTION_CUSTOM_STRIDE = 3
} ncclGinConnectionType_t;

// What moves GIN's messages. NONE: there is no GIN.
typedef enum {
  NCCL_GIN_TYPE_NONE = 0,
  NCCL_GIN_TYPE_PROXY = 2,
  NCCL_GIN_TYPE_GDAKI = 3,
  NCCL_GIN_TYPE_GPI = 4,
  NCCL_GIN_TYPE_EFA_GDA = 5
} ncclGinType_t;

// Which ranks of the CFT team ncclTeamCft gives: all, or those with the same place in their multicast or LSA teams.
typedef enum { NCCL_CFT_TEAM_FLAT = 0, NCCL_CFT_TEAM_HIER_MULTIMEM = 1, NCCL_CFT_TEAM_HIER_LSA = 2 } ncclCftTeamMode_t;

// What ncclDevCommRequirements_t.cftCaps asks for.
typedef enum { NCCL_CFT_NONE = 0, NCCL_CFT = 1, NCCL_CFT_MULTIMEM = 2 } ncclCftCap_t;

// Names a logical endpoint of CFT, a memory that GPUs of several machines reach.
typedef uint32_t ncclCftLeId;
typedef ncclCftLeId ncclCftLeId_t;

// Some ranks of a communicator at equal distances, seen by one of them. World rank of member i: own world rank + (i -
// rank) * stride.
typedef struct ncclTeam {
  int nRanks; // members
  int rank;   // place of the rank that asked
  int stride; // world ranks from one member to the next
} ncclTeam_t;

#ifdef __cplusplus
// Arguments that name a team.
struct ncclTeamTagWorld {};
struct ncclTeamTagLsa {};
struct ncclTeamTagRail {};
#endif

// Multicast address of a team.
typedef struct ncclMultimemHandle {
  void *mcBasePtr;
} ncclMultimemHandle_t;

// A part of a device communicator's buffer and signals that a program asks for. Items form a list; the outputs, where
// not NULL, are written by ncclDevCommCreate.
typedef struct ncclDevResourceRequirements ncclDevResourceRequirements_t;
struct ncclDevResourceRequirements {
  ncclDevResourceRequirements_t *next;
  size_t bufferSize, bufferAlign; // bytes
  ncclDevResourceHandle_t *outBufferHandle;
  int ginSignalCount;
  int ginCounterCount;
  ncclGinSignal_t *outGinSignalStart;
  ncclGinCounter_t *outGinCounterStart;
};

// A team that a program wants prepared. Items form a list.
typedef struct ncclTeamRequirements ncclTeamRequirements_t;
struct ncclTeamRequirements {
  ncclTeamRequirements_t *next;
  ncclTeam_t team;
  bool multimem;
  ncclMultimemHandle_t *outMultimemHandle; // written by ncclDevCommCreate where not NULL
};

// What a program wants of a device communicator. Start from NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER.
typedef struct ncclDevCommRequirements {
  size_t size;          // set by the initialiser
  unsigned int magic;   // set by the initialiser
  unsigned int version; // set by the initialiser
  ncclDevResourceRequirements_t *resourceRequirementsList;
  ncclTeamRequirements_t *teamRequirementsList;
  bool lsaMultimem; // multicast within the LSA team
  int barrierCount;
  int lsaBarrierCount;
  int railGinBarrierCount;
  int lsaLLA2ABlockCount, lsaLLA2ASlotCount;
  bool ginForceEnable;
  int ginContextCount; // a wish
  int ginSignalCount;  // numbers from 0 on
  int ginCounterCount; // numbers from 0 on
  ncclGinConnectionType_t ginConnectionType;
  bool ginExclusiveContexts;
  int ginQueueDepth;
  int ginTrafficClass;
  int worldGinBarrierCount;
  bool ginStrongSignalsRequired;
  bool ginVaSignalsRequired;
  int ginCustomStride;    // from one rank to the next, with NCCL_GIN_CONNECTION_CUSTOM_STRIDE
  ncclGinType_t ginType;  // NCCL_GIN_TYPE_NONE: any
  bool useRuntimeVersion; // the device communicator is for code that is compiled while the program runs
  int cftCaps;
  int cftBarrierCount;
} ncclDevCommRequirements_t;

#define NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER              \
  {                                                         \
    sizeof(ncclDevCommRequirements_t), /* size */           \
        NCCL_API_MAGIC,                /* magic */          \
        NCCL_VERSION_CODE,             /* version */        \
        NULL,                          /* resources */      \
        NULL,                          /* teams */          \
        false,                         /* lsaMultimem */    \
        0,                             /* barriers */       \
        0,                             /* LSA barriers */   \
        0,                             /* rail barriers */  \
        0,                             /* LLA2A blocks */   \
        0,                             /* LLA2A slots */    \
        false,                         /* ginForceEnable */ \
        4,                             /* GIN contexts */   \
        0,                             /* GIN signals */    \
        0,                             /* GIN counters */   \
        NCCL_GIN_CONNECTION_NONE,      /* connections */    \
        false,                         /* exclusive */      \
        0,                             /* queue depth */    \
        NCCL_CONFIG_UNDEF_INT,         /* traffic class */  \
        0,                             /* world barriers */ \
        true,                          /* strong signals */ \
        true,                          /* VA signals */     \
        1,                             /* custom stride */  \
        NCCL_GIN_TYPE_NONE,            /* GIN type */       \
        false,                         /* runtime vers. */  \
        0,                             /* CFT caps */       \
        0,                             /* CFT barriers */   \
  }

// What a communicator can do. Start from NCCL_COMM_PROPERTIES_INITIALIZER.
typedef struct ncclCommProperties {
  size_t size;          // set by the initialiser
  unsigned int magic;   // set by the initialiser
  unsigned int version; // set by the initialiser
  int rank;
  int nRanks;
  int cudaDev;                               // the device that the rank was created on
  int nvmlDev;                               // Tutti: the same
  bool deviceApiSupport;                     // Tutti: false, there is no device code
  bool multimemSupport;                      // Tutti: false
  ncclGinType_t ginType;                     // Tutti: NCCL_GIN_TYPE_NONE
  int nLsaTeams;                             // Tutti: the number of ranks, see ncclTeamLsa
  bool hostRmaSupport;                       // ncclPutSignal and its relatives work
  ncclGinType_t railedGinType;               // Tutti: NCCL_GIN_TYPE_NONE
  uint64_t commHash;                         // the communicator's identity, the same on all ranks
  int ginMinStride;                          // Tutti: 0
  ncclGinConnectionType_t ginConnectionType; // Tutti: NCCL_GIN_CONNECTION_NONE
  bool ginSupport[64];                       // by ncclGinType_t. Tutti: all false
  size_t devCommRuntimeVersionSize;          // Tutti: 0
} ncclCommProperties_t;

#define NCCL_COMM_PROPERTIES_INITIALIZER                                                                              \
  {                                                                                                                   \
    sizeof(ncclCommProperties_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, 0, 0, 0, 0, false, false, NCCL_GIN_TYPE_NONE, 0, \
        false, NCCL_GIN_TYPE_NONE, 0, 0, NCCL_GIN_CONNECTION_NONE, {false}, 0                                         \
  }

typedef struct ncclDevComm ncclDevComm_t; // comm.h

// ---------------------------------------------------------------------------------------------------------------------
// Communicators
// ---------------------------------------------------------------------------------------------------------------------

// Fills what the caller's version of the structure has. Any thread; the communicator must be ready. Errors:
// ncclInvalidArgument (props is NULL), ncclInvalidUsage (not initialised, or by the header of a newer NCCL than this
// library).
NCCL_EXTERN_C ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t *props);
NCCL_EXTERN_C ncclResult_t pncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t *props);

// Makes a device communicator for kernels. Tutti: checks its arguments and returns ncclInvalidUsage, for there is no
// device code.
NCCL_EXTERN_C ncclResult_t ncclDevCommCreate(ncclComm_t comm, ncclDevCommRequirements_t const *reqs,
                                             ncclDevComm_t *outDevComm);
NCCL_EXTERN_C ncclResult_t pncclDevCommCreate(ncclComm_t comm, ncclDevCommRequirements_t const *reqs,
                                              ncclDevComm_t *outDevComm);

// Ends a device communicator. Tutti: none exists, so that any but one of zeros gives ncclInvalidArgument.
NCCL_EXTERN_C ncclResult_t ncclDevCommDestroy(ncclComm_t comm, ncclDevComm_t const *devComm);
NCCL_EXTERN_C ncclResult_t pncclDevCommDestroy(ncclComm_t comm, ncclDevComm_t const *devComm);

// ---------------------------------------------------------------------------------------------------------------------
// Windows: addresses at which this process reaches `offset` bytes into a window. Errors: ncclInvalidArgument (no window
// that is registered, a rank or offset out of range, an output that is NULL).
// ---------------------------------------------------------------------------------------------------------------------

// The multicast address of the LSA team. *outPtr becomes NULL where there is none. Tutti: always.
NCCL_EXTERN_C ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void **outPtr);
NCCL_EXTERN_C ncclResult_t pncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void **outPtr);

// The multicast address of another team; its handle must not be empty. *outPtr becomes NULL where there is none. Tutti:
// always.
NCCL_EXTERN_C ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset,
                                                        ncclMultimemHandle_t multimem, void **outPtr);
NCCL_EXTERN_C ncclResult_t pncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset,
                                                         ncclMultimemHandle_t multimem, void **outPtr);

// The window of a member of the LSA team, by its rank there.
NCCL_EXTERN_C ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsaRank, void **outPtr);
NCCL_EXTERN_C ncclResult_t pncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsaRank, void **outPtr);

// The window of a rank of the communicator. *outPtr becomes NULL for a rank outside the LSA team.
NCCL_EXTERN_C ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void **outPtr);
NCCL_EXTERN_C ncclResult_t pncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void **outPtr);

// Where an offset into a window lies among CFT's logical endpoints: of the multicast team, of a member of a CFT team,
// of a rank of the communicator. Tutti has no such endpoints: always ncclInvalidArgument, and the outputs stay as they
// are.
NCCL_EXTERN_C ncclResult_t ncclGetMultimemDeviceLeInfo(ncclWindow_t window, size_t offset, ncclCftLeId *leId,
                                                       size_t *leOffset);
NCCL_EXTERN_C ncclResult_t pncclGetMultimemDeviceLeInfo(ncclWindow_t window, size_t offset, ncclCftLeId *leId,
                                                        size_t *leOffset);
NCCL_EXTERN_C ncclResult_t ncclGetCftDeviceLeInfo(ncclWindow_t window, size_t offset, int peerCft, ncclTeam_t cftTeam,
                                                  ncclCftLeId *leId, size_t *leOffset);
NCCL_EXTERN_C ncclResult_t pncclGetCftDeviceLeInfo(ncclWindow_t window, size_t offset, int peerCft, ncclTeam_t cftTeam,
                                                   ncclCftLeId *leId, size_t *leOffset);
NCCL_EXTERN_C ncclResult_t ncclGetPeerDeviceLeInfo(ncclWindow_t window, size_t offset, int peerWorld, ncclCftLeId *leId,
                                                   size_t *leOffset);
NCCL_EXTERN_C ncclResult_t pncclGetPeerDeviceLeInfo(ncclWindow_t window, size_t offset, int peerWorld,
                                                    ncclCftLeId *leId, size_t *leOffset);

// ---------------------------------------------------------------------------------------------------------------------
// Teams. A communicator that is not valid gives a team of zeros, or rank -1, and ncclGetLastError says why.
// ---------------------------------------------------------------------------------------------------------------------

// All ranks.
NCCL_EXTERN_C ncclTeam_t ncclTeamWorld(ncclComm_t comm);
NCCL_EXTERN_C ncclTeam_t pncclTeamWorld(ncclComm_t comm);

// The ranks whose windows this rank reads and writes by address. Tutti: this rank alone.
NCCL_EXTERN_C ncclTeam_t ncclTeamLsa(ncclComm_t comm);
NCCL_EXTERN_C ncclTeam_t pncclTeamLsa(ncclComm_t comm);

// The ranks with the same place in their LSA teams. Tutti: all ranks.
NCCL_EXTERN_C ncclTeam_t ncclTeamRail(ncclComm_t comm);
NCCL_EXTERN_C ncclTeam_t pncclTeamRail(ncclComm_t comm);

#ifdef __cplusplus
#define TUTTI_CFT_MODE ncclCftTeamMode_t mode = NCCL_CFT_TEAM_FLAT
#else
#define TUTTI_CFT_MODE ncclCftTeamMode_t mode
#endif
// The ranks whose windows this rank reaches by CFT, or some of them. Tutti: this rank alone. Zeros for a mode that does
// not exist.
NCCL_EXTERN_C ncclTeam_t ncclTeamCft(ncclComm_t comm, TUTTI_CFT_MODE);
NCCL_EXTERN_C ncclTeam_t pncclTeamCft(ncclComm_t comm, TUTTI_CFT_MODE);

// The ranks with one CFT multicast address. Tutti: this rank alone.
NCCL_EXTERN_C ncclTeam_t ncclTeamCftMultimem(ncclComm_t comm);
NCCL_EXTERN_C ncclTeam_t pncclTeamCftMultimem(ncclComm_t comm);

// Member `rank` of `team`, as a rank of the communicator. `team` is one that this rank has asked for.
NCCL_EXTERN_C int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank);
NCCL_EXTERN_C int pncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank);

// Member `rank` of `team`, as a rank of the LSA team. Not checked: may lie outside that team.
NCCL_EXTERN_C int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank);
NCCL_EXTERN_C int pncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank);

// World ranks from the asking rank to member `rank` of the team.
NCCL_HOST_DEVICE_INLINE int tuttiTeamDistance(ncclTeam_t team, int rank)
{
  return (rank - team.rank) * team.stride;
}

// Member `bPeer` of team b, as a rank of team a. Both teams are the same rank's. Not checked: see ncclTeamRankIsMember.
NCCL_HOST_DEVICE_INLINE int ncclTeamRankToTeam(ncclTeam_t a, ncclTeam_t b, int bPeer)
{
  return a.rank + tuttiTeamDistance(b, bPeer) / a.stride;
}

// Is member `bPeer` of team b in team a?
NCCL_HOST_DEVICE_INLINE bool ncclTeamRankIsMember(ncclTeam_t a, ncclTeam_t b, int bPeer)
{
  int place = ncclTeamRankToTeam(a, b, bPeer);
  return tuttiTeamDistance(b, bPeer) % a.stride == 0 && place >= 0 && place < a.nRanks;
}

// The part of `parent`, cut into parts of `innerSize` neighbours, that this rank is in. `innerSize` divides the
// parent's size.
NCCL_HOST_DEVICE_INLINE ncclTeam_t ncclTeamInnerFactor(ncclTeam_t parent, int innerSize)
{
  ncclTeam_t part = {innerSize, parent.rank % innerSize, parent.stride};
  return part;
}

// The members of `parent` with this rank's place in those parts.
NCCL_HOST_DEVICE_INLINE ncclTeam_t ncclTeamOuterFactor(ncclTeam_t parent, int innerSize)
{
  ncclTeam_t across = {parent.nRanks / innerSize, parent.rank / innerSize, parent.stride * innerSize};
  return across;
}

// The parent's rank of member `index` of those that are in `parent` and not in `subset`, whose members all are in
// `parent`.
NCCL_HOST_DEVICE_INLINE int ncclTeamRankInDifference(ncclTeam_t parent, ncclTeam_t subset, int index)
{
  // The subset's lowest member, and the way to the next.
  int step = subset.stride / parent.stride, first = parent.rank - subset.rank * step;
  if (step < 0) {
    first += (subset.nRanks - 1) * step;
    step = -step;
  }
  int place = index;
  for (int i = 0; i < subset.nRanks && place >= first + i * step; i++) {
    place++; // one more member of the subset lies below
  }
  return place;
}

// Bytes from the start of a device communicator's buffer.
NCCL_HOST_DEVICE_INLINE size_t ncclGetResourceBufferOffset(ncclDevResourceHandle_t h)
{
  return (size_t)h * 128;
}

#endif
