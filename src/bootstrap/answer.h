// answer.h: one message from the root to many ranks at once, each over a connection of its own.
#pragma once
#include "bootstrap/hello.h"

typedef struct tt_answer {
  tt_addr to;     // the rank's socket for answers
  tt_hello hello; // sealed here; size is set to that of the text
  int fd;         // the rest is for tt_answer_all
  size_t sent;
  bool connected;
} tt_answer;

// Sends hello and `text` to each of the `n` answers' addresses, side by side, and returns when all are sent or `deadline_ns` has come.
// What cannot be delivered is left: that rank has gone, and its own connection to the root says so.
void tt_answer_all(tt_answer *answers, int n, const tt_key *key, const char *text, uint64_t deadline_ns);
