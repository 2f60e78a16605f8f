// explain.h: schedules as text, for people and for golden files.
#pragma once
#include <stdio.h>

#include "coll/layout.h"
#include "device/schedule.h"

// Writes the schedule: one line for it, one per strand, one per step ("  3: sub 0  reduce  from<2[5] + in[5] -> out[5],
// to>4[5]"). With a layout (of as many ranks as the schedule; NULL: none) the first line names the rank's node, and
// where a message goes to another node its arrow is doubled ("to>>4[5]", "from<<2[5]").
void tt_schedule_print(FILE *f, const tt_schedule *s, const tt_layout *layout);
