// wire.c: see wire.h.
#include "ras/wire.h"

#include <string.h>

#include "base/util.h"
#include "ras/diagnose.h"
#include "ras/ring.h"

// Of the recorders: the cursor is a number of bytes. A dump is made for the first page, as the next ones belong to it.
static size_t record_page(const ras_request *request, ras_text *kept, ras_answer *out)
{
  if (request->cursor == 0) {
    ras_text_free(kept);
    ras_registry_record(request->arg, kept);
  }
  uint64_t left = request->cursor < kept->size && !kept->failed ? kept->size - request->cursor : 0;
  out->n = (uint32_t)TT_MIN(left, sizeof out->text);
  out->cursor = left > out->n ? request->cursor + out->n : 0;
  if (out->n > 0) {
    memcpy(out->text, kept->data + request->cursor, out->n);
  }
  if (out->cursor == 0) {
    ras_text_free(kept);
  }
  return RAS_ANSWER_HEAD + out->n;
}

// Each connection has a key of its own, and a tag names one key: a cover is used for one text.
void ras_kin_cover(ras_kin *kin, const tt_key *key)
{
  const tt_key cover = tt_key_derive(key, "ras kin", &kin->peer.tag, sizeof kin->peer.tag);
  for (size_t i = 0; i < sizeof cover.b; i++) {
    kin->peer.key.b[i] ^= cover.b[i];
  }
}

static size_t kin_page(const ras_server *s, const ras_request *request, const tt_key *key, ras_answer *out)
{
  out->n =
      (uint32_t)ras_registry_kin(request->hash, request->cursor, key->is_public, out->kin, RAS_PAGE_KIN, &out->cursor);
  for (uint32_t i = 0; i < out->n; i++) {
    out->kin[i].dead = ras_ring_is_dead(s, &out->kin[i].peer.who);
    ras_kin_cover(&out->kin[i], key);
  }
  return RAS_ANSWER_HEAD + out->n * sizeof(ras_kin);
}

static size_t ranks_page(const ras_server *s, ras_answer *out)
{
  tt_addr host = ras_server_address(s);
  out->n = (uint32_t)ras_registry_ranks(&out->cursor, &host, out->ranks, RAS_PAGE_RANKS);
  return RAS_ANSWER_HEAD + out->n * sizeof(ras_rank);
}

size_t ras_answer_make(const ras_server *s, const ras_request *request, const tt_key *key, ras_text *kept,
                       ras_answer *out)
{
  *out = (ras_answer){.cursor = request->cursor};
  switch (request->what) {
  case RAS_QUERY_RANKS: return ranks_page(s, out);
  case RAS_QUERY_DIAGNOSTICS:
    out->n = (uint32_t)ras_diagnose_page(&out->cursor, out->text, sizeof out->text);
    return RAS_ANSWER_HEAD + out->n;
  case RAS_QUERY_KIN:
    if (key != NULL) { // NULL: a process asks itself, and knows its kin
      return kin_page(s, request, key, out);
    }
    break;
  case RAS_QUERY_RECORDER: return record_page(request, kept, out);
  case RAS_QUERY_MASK: ras_profiler_mask(request->arg); break;
  default: break;
  }
  out->cursor = 0;
  return RAS_ANSWER_HEAD;
}

static size_t answer_each(uint32_t what)
{
  return what == RAS_QUERY_RANKS ? sizeof(ras_rank) : what == RAS_QUERY_KIN ? sizeof(ras_kin) : 1;
}

// A flag is a byte of 0 or 1.
static bool wire_kin_good(const uint8_t *body)
{
  return body[offsetof(ras_kin, peer.key.is_public)] <= 1;
}

// The same, and a text ends: a reader may rely on that. ras_report_sort checks the rest.
static bool wire_rank_good(const uint8_t *body)
{
  const uint8_t *flags = body + offsetof(ras_rank, state.finalize_called);
  return (flags[0] | flags[1] | flags[2]) <= 1 && body[offsetof(ras_rank, state.why) + TT_RAS_WHY - 1] == 0;
}
_Static_assert(offsetof(tt_ras_state, abort_flag) == offsetof(tt_ras_state, finalize_called) + 2,
               "three flags in a row");

bool ras_answer_good(const tt_note *note, uint32_t what)
{
  ras_answer head;
  if (note->frame.kind != RAS_NOTE_ANSWER || note->frame.size < RAS_ANSWER_HEAD ||
      note->frame.size > sizeof(ras_answer)) {
    return false;
  }
  memcpy(&head, note->body, RAS_ANSWER_HEAD);
  size_t each = answer_each(what);
  bool good = head.n <= RAS_PAGE_TEXT / each && note->frame.size == RAS_ANSWER_HEAD + head.n * each;
  for (uint32_t i = 0; good && each > 1 && i < head.n; i++) {
    const uint8_t *body = note->body + RAS_ANSWER_HEAD + i * each;
    good = what == RAS_QUERY_RANKS ? wire_rank_good(body) : wire_kin_good(body);
  }
  return good;
}
