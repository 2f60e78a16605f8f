// fuzz_ras.c: what clients and other processes say to the RAS thread: no line and no answer may harm its reader, and
// what is accepted can be reported.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "ras/command.h"
#include "ras/server.h"
#include "ras/report.h"
#include "ras/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SMALL = 4096 }; // larger communicators only make longer reports

static void demand(int good)
{
  if (!good) {
    abort();
  }
}

static void try_line(const uint8_t *data, size_t size)
{
  char line[RAS_LINE_MAX] = "";
  memcpy(line, data, TT_MIN(size, sizeof line - 1));
  ras_command c = ras_command_read(line);
  demand(c.verb <= RAS_RECORDER);
  demand(c.arg == NULL || (c.arg >= line && c.arg <= line + strlen(line)));
  demand(c.bad || c.seconds >= 0);
  demand(c.mask >> 15 == 0 && c.groups <= (RAS_LIFECYCLE | RAS_TRACE));
}

// The report of the ranks of an answer, with what is known of ranks of other communicators; takes over `kin`.
static void try_report(const ras_answer *a, ras_kin *kin, int nkin)
{
  ras_report r = {.kin = kin, .nkin = nkin};
  ras_text text = {0}, json = {0};
  r.ranks = tt_calloc(RAS_PAGE_RANKS, sizeof *r.ranks);
  demand(r.ranks != NULL);
  for (uint32_t i = 0; i < a->n; i++) {
    if (a->ranks[i].size <= SMALL) {
      r.ranks[r.nranks++] = a->ranks[i];
    }
  }
  demand(ras_report_sort(&r));
  ras_write_text(&r, true, &text);
  ras_write_json(&r, &json);
  ras_write_why(&r, &text);
  demand(!text.failed && !json.failed && json.size > 0);
  ras_text_free(&text);
  ras_text_free(&json);
  ras_report_free(&r);
}

// The input as the body of a note whose head is right. False: it is no answer.
static bool make_answer(const uint8_t *data, size_t size, uint32_t what, uint32_t n, size_t each, ras_answer *out)
{
  static tt_note note;
  memset(&note, 0, sizeof note);
  memcpy(note.body + RAS_ANSWER_HEAD, data, TT_MIN(size, sizeof note.body - RAS_ANSWER_HEAD));
  *out = (ras_answer){.n = n};
  memcpy(note.body, out, RAS_ANSWER_HEAD);
  note.frame.kind = RAS_NOTE_ANSWER;
  note.frame.size = (uint32_t)(RAS_ANSWER_HEAD + n * each);
  if (!ras_answer_good(&note, what)) {
    return false;
  }
  memcpy(out, note.body, note.frame.size);
  return true;
}

static void try_answer(const uint8_t *data, size_t size)
{
  static ras_answer ranks, kin;
  uint32_t n = size > 0 ? data[0] % (RAS_PAGE_RANKS + 1) : 0;
  ras_kin *all = tt_calloc(RAS_PAGE_KIN, sizeof *all);
  demand(all != NULL);
  if (!make_answer(data, size, RAS_QUERY_RANKS, n, sizeof(ras_rank), &ranks)) {
    ranks.n = 0;
  }
  if (!make_answer(data, size, RAS_QUERY_KIN, RAS_PAGE_KIN, sizeof *all, &kin)) {
    kin.n = 0;
  }
  memcpy(all, kin.kin, kin.n * sizeof *all);
  for (uint32_t i = 0; i < kin.n && ranks.n > 0; i++) {
    all[i].hash = ranks.ranks[0].hash;
    ras_kin_cover(&all[i], &all[i].peer.key);
  }
  try_report(&ranks, all, (int)kin.n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  try_line(data, size);
  try_answer(data, size);
  return 0;
}
