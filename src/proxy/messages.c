// messages.c: see messages.h.
#include "proxy/messages.h"

#include <string.h>

#include "base/util.h"
#include "device/link.h"

typedef enum { NO_WAY, BOTH_WAYS, FROM_DIALLER, TO_DIALLER } msg_way;

// The messages between two ranks.
static const struct msg_form {
  msg_way way; // NO_WAY: there is no such message
  size_t size; // of the body
  bool behalf; // it may be about another rank's messages
} forms[TT_MSG_TYPES] = {
    [TT_MSG_INIT] = {FROM_DIALLER, sizeof(tt_msg_init), false},
    [TT_MSG_SETUP] = {FROM_DIALLER, sizeof(tt_msg_setup), true},
    [TT_MSG_TRY] = {FROM_DIALLER, 0, true},
    [TT_MSG_CONNECT] = {FROM_DIALLER, 0, true},
    [TT_MSG_GET_FD] = {FROM_DIALLER, sizeof(tt_msg_get_fd), false},
    [TT_MSG_ANSWER] = {TO_DIALLER, sizeof(tt_msg_answer), true},
    [TT_MSG_STATE] = {BOTH_WAYS, sizeof(tt_msg_state), false},
    [TT_MSG_PROBE] = {BOTH_WAYS, 0, false},
    [TT_MSG_CLOSE] = {BOTH_WAYS, 0, false},
};

int tt_msg_size(unsigned type)
{
  return type < TT_MSG_TYPES && forms[type].way != NO_WAY ? (int)forms[type].size : -1;
}

static const char *check_head(const tt_msg_head *h, int from, bool dialled)
{
  int size = tt_msg_size(h->type);
  return size < 0                                                      ? "a message of unknown type"
         : h->size != size                                             ? "a message of the wrong size"
         : h->from != from                                             ? "a message of another rank"
         : forms[h->type].way == (dialled ? FROM_DIALLER : TO_DIALLER) ? "a message that goes the other way"
         : h->behalf != 0 && !forms[h->type].behalf                    ? "a damaged message"
                                                                       : NULL;
}

static const char *check_body(const tt_msg *m)
{
  switch (m->head.type) {
  case TT_MSG_SETUP: return m->setup.channel != 0 || m->setup.device < 0 ? "an invalid request for a connection" : NULL;
  case TT_MSG_ANSWER:
    if (m->answer.ndevices < 1 || m->answer.ndevices > TT_MSG_DEVICES || m->answer.code < 0 ||
        m->answer.code >= ncclNumResults) {
      return "an invalid answer";
    }
    return m->answer.code != ncclSuccess && memchr(m->answer.text, 0, sizeof m->answer.text) == NULL
               ? "an answer whose text has no end"
               : NULL;
  case TT_MSG_STATE:
    if (m->state.state >= TT_RANK_LOST || m->state.now > TT_SHOWN || m->state.why.code >= ncclNumResults) {
      return "an unknown state";
    }
    return memchr(m->state.why.text, 0, sizeof m->state.why.text) == NULL ? "a reason whose text has no end" : NULL;
  default: return NULL;
  }
}

int tt_msg_read(const void *data, size_t got, int from, bool dialled, tt_msg *out, const char **why)
{
  if (got < sizeof out->head) {
    return 0;
  }
  memcpy(&out->head, data, sizeof out->head);
  const char *wrong = check_head(&out->head, from, dialled);
  if (wrong == NULL) {
    size_t size = sizeof out->head + out->head.size;
    if (got < size) {
      return 0;
    }
    memcpy(out->bytes, (const char *)data + sizeof out->head, out->head.size);
    wrong = check_body(out);
    if (wrong == NULL) {
      return (int)size;
    }
  }
  *why = wrong;
  return -1;
}
