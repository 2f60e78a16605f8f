// drive.h: the driver of the measuring processes (coll_drive), in three files: drive.c goes through the points,
// players.c talks to the processes, report.c says what came out.
#pragma once
#include <stdio.h>
#include <sys/types.h>

#include "coll_bench.h"

#define MAX_PLAYERS 24
#define MAX_RANKS 64
#define MAX_SIZES 32
#define MAX_ROUNDS 32

// One library under measurement: its processes.
typedef struct player {
  const char *name, *command;
  pid_t pid; // of the command, leader of a process group
  int nranks;
  int fds[MAX_RANKS]; // by rank
  int lost;           // it failed or did not answer: left out from then on
} player;

// What was measured: microseconds, by player, collective, size, warm or cold, and round. 0: not measured.
typedef struct results {
  double us[MAX_PLAYERS][COLL_COUNT][MAX_SIZES][2][MAX_ROUNDS];
  int64_t calls[MAX_PLAYERS][COLL_COUNT][MAX_SIZES][2]; // per block, found in the first round
  int warm[MAX_PLAYERS][MAX_SIZES][2];                  // warmed up
  int wrong[MAX_PLAYERS][COLL_COUNT];                   // elements
  int lacks[MAX_PLAYERS][COLL_COUNT];                   // the library has no such collective
} results;

typedef struct run_options {
  int nranks, rounds, cold; // cold: 0 warm only, 1 both, 2 cold only
  double block_us;          // length of a block of calls
  double seconds;           // after which no further point is measured; 0: no limit
  size_t min, max, buffer;  // bytes
  unsigned kinds;           // bit per coll_kind
  const char *json, *limits;
  size_t sizes[MAX_SIZES];
  int nsizes;
  int nplayers;
  player players[MAX_PLAYERS];
} run_options;

extern const char *const coll_names[COLL_COUNT];

// Starts the commands and waits until every rank of each has said who it is. A command that does not come is lost, and
// said so. 0 when the first one came.
int players_start(run_options *o);
// Lets the processes end, and ends those that do not.
void players_stop(run_options *o);
// Gives an order to all ranks of a player and waits for all answers (by rank). 0 on success; otherwise the player is
// lost.
int player_ask(player *p, const coll_order *order, coll_answer answers[MAX_RANKS]);

// The tables on standard output.
void report_print(const run_options *o, const results *r);
// The same and every round's figure as JSON. 0 on success.
int report_json(const run_options *o, const results *r);
