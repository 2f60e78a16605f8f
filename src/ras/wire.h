// wire.h: what RAS threads of different processes say to each other, in notes (bootstrap/conn.h).
#pragma once
#include "bootstrap/conn.h"
#include "ras/server.h"

// Kinds of notes.
enum {
  RAS_NOTE_REQUEST = 1, // ras_request. Each is answered by one ANSWER
  RAS_NOTE_ANSWER,      // ras_answer, cut after what it has
  RAS_NOTE_ALIVE,       // ring: one a second; ras_about of the sender
  RAS_NOTE_DEAD,        // ring: ras_about of a process; passed on by a process to which it is news
  RAS_NOTE_BACK,        // the same of a process that is heard again
  RAS_NOTE_LEAVES,      // ring: the sender's thread ends in good order
};

typedef struct ras_request {
  uint32_t what; // ras_question
  uint32_t arg;  // RAS_QUERY_MASK: the mask; RAS_QUERY_RECORDER: operations
  uint64_t cursor;
  uint64_t hash; // RAS_QUERY_KIN: the communicator
} ras_request;
static_assert(sizeof(ras_request) == 24, "sent as it is");

enum {
  RAS_PAGE_RANKS = 2,
  RAS_PAGE_TEXT = RAS_PAGE_RANKS * sizeof(ras_rank),
  RAS_PAGE_KIN = RAS_PAGE_TEXT / sizeof(ras_kin)
};

typedef struct ras_answer {
  uint64_t cursor; // where the next page begins; 0: there is none
  uint32_t n;      // ranks, kin, or bytes of text
  uint32_t zero;
  union {
    ras_rank ranks[RAS_PAGE_RANKS];
    ras_kin kin[RAS_PAGE_KIN]; // keys are covered (ras_kin_cover)
    char text[RAS_PAGE_TEXT];
  };
} ras_answer;
enum { RAS_ANSWER_HEAD = 16 };
static_assert(sizeof(ras_answer) == RAS_ANSWER_HEAD + RAS_PAGE_TEXT && sizeof(ras_answer) <= TT_NOTE_MAX,
              "sent as it is, in one note");

typedef struct ras_about {
  uint64_t cookie;
} ras_about;

// Writes this process's answer to a question, and returns its size. `kept` is empty before the first page of a
// conversation: what pages are cut from stays there, and is gone after the last one. `key` is the connection's; NULL:
// this process asks itself.
size_t ras_answer_make(const ras_server *s, const ras_request *request, const tt_key *key, ras_text *kept,
                       ras_answer *out);
// Covers the key of `kin` for a connection with key `key`, so that who listens does not learn it, or uncovers it. Pure.
void ras_kin_cover(ras_kin *kin, const tt_key *key);
// Is a note's body an answer to such a question, whole and within bounds? Pure.
bool ras_answer_good(const tt_note *note, uint32_t what);
