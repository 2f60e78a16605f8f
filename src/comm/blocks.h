// blocks.h: collectives whose blocks have lengths of their own (tuttiAllGatherV and its relatives): what a call says of
// its blocks, and the parts that it consists of.
//
// A part is a task of its own: a message to or from one rank, the copy of the own block, or the sum of one rank's
// block. All parts of a call run side by side in one plan, under the call's fingerprint. There is one for each pair of
// ranks and direction that the function has, also for an empty block: so a rank notices what a peer expects of it.
//
// The launching thread calls all of it.
#pragma once
#include "comm/task.h"
#include "comm/tuning.h"

// Elements [at, at + count) of a buffer.
typedef struct tt_block {
  size_t at, count;
} tt_block;

typedef struct tt_blocks {
  _Atomic int holders; // tasks, and the call that has made it
  tt_block *out;       // [rank]: what comes from that rank; of a sum the own one alone
  tt_block in[];       // [rank]: what goes to it
} tt_blocks;

// All blocks are empty; one holder. NULL: no memory.
tt_blocks *tt_blocks_new(int nranks);
// One more holder, one less; the last one frees it. NULL is allowed.
void tt_blocks_hold(tt_blocks *b);
void tt_blocks_drop(tt_blocks *b);

// Bytes of the input that have to be copied before the call runs, because the output overwrites them; 0: none.
size_t tt_blocks_staged(const tt_task *t);

// The most parts that a call has. tt_blocks_part writes part `i` of them into *part; false: the call has none of this
// number. Its `root` is the peer, that of a sum; -1: of the own block, which is only copied.
int tt_blocks_parts(const tt_task *t);
bool tt_blocks_part(const tt_task *t, int i, tt_task *part);

// Chooses for a part. A sum is made in the order of the ranks, by the rank that gets it. Errors: those of
// tt_tuning_choose.
ncclResult_t tt_blocks_choose(const tt_task *part, tt_choice *out);
