// registry.h: the ranks of this process that reports show, and the processes that share communicators with it.
#pragma once
#include "ras/ras.h"
#include "ras/text.h"

// One rank of one communicator as it travels between processes. Times are of the process that sends it.
typedef struct ras_rank {
  uint64_t hash;
  uint64_t secondary[2]; // names the machine and the process of rank 0
  uint64_t cookie;       // of its process
  int32_t size, rank, pid, device;
  tt_addr host; // of its process
  tt_ras_state state;
} ras_rank;
static_assert(sizeof(ras_rank) == 632, "ras_rank is sent as it is");

// Another process that shares a communicator with this one.
typedef struct ras_peer {
  tt_ras_member who;
  tt_key key;   // of a communicator that both share
  uint64_t tag; // its name
} ras_peer;

// Such a process, and the number of the newest communicator that both share. Numbers grow in order of joining.
typedef struct ras_sighting {
  ras_peer peer;
  uint64_t number;
} ras_sighting;

// A rank of a communicator that the process that is told of it has not, and how to reach its process.
typedef struct ras_kin {
  uint64_t hash; // of the communicator
  int32_t rank;
  uint32_t dead; // its process is considered dead by the one that tells
  ras_peer peer;
} ras_kin;
static_assert(sizeof(ras_kin) == 136, "ras_kin is sent as it is");

// Writes up to `room` ranks whose number is above *cursor, as those of a process at `host`, and returns how many.
// *cursor becomes the last one's number; 0 when no rank is left behind it. Any thread.
int ras_registry_ranks(uint64_t *cursor, const tt_addr *host, ras_rank *out, int room);
// Adds the dumps of this process's flight recorders, JSON with a comma between them, with at most `most` operations of
// each communicator. Any thread.
void ras_registry_record(size_t most, ras_text *out);
// What rank `rank` of communicator `hash` is known by. False: the communicator is not this process's. Any thread.
bool ras_registry_member(uint64_t hash, int rank, tt_ras_member *out);
// Writes up to `room` ranks of communicator `hash` from rank `first` on, but not this process's own, and returns how
// many; *next becomes the rank to go on with, 0 when none is left. With `open`, none if the communicator's key is
// secret: the asker has shown no more than a key that everybody can compute. Any thread.
int ras_registry_kin(uint64_t hash, uint64_t first, bool open, ras_kin *out, int room, uint64_t *next);
// A number that changes when the processes may have changed. Any thread.
uint64_t ras_registry_version(void);
// The other processes with a RAS address, each once, in order of their cookies, with the address that was told last.
// The caller frees *out with tt_free. Returns how many; < 0: no memory. Any thread.
int ras_registry_peers(ras_sighting **out);
// The key with this name, if this process has it. Any thread.
bool ras_registry_key(uint64_t tag, tt_key *out);
// Writes the devices of a process's ranks, each once, and returns how many. Any thread.
int ras_registry_devices(uint64_t cookie, int *out, int room);
// In a forked child: forgets all.
void ras_registry_forget(void);
