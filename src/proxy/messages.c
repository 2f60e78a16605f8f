// messages.c: see messages.h.
#include "proxy/messages.h"

#include <string.h>

#include "base/util.h"
#include "device/link.h"

int tt_msg_size(unsigned type)
{
  switch (type) {
  case TT_MSG_INIT: return sizeof(tt_msg_init);
  case TT_MSG_SETUP: return sizeof(tt_msg_setup);
  case TT_MSG_CONNECT: return 0;
  case TT_MSG_TRY: return 0;
  case TT_MSG_CLOSE: return 0;
  case TT_MSG_ANSWER: return sizeof(tt_msg_answer);
  case TT_MSG_GET_FD: return sizeof(tt_msg_get_fd);
  case TT_MSG_STATE: return sizeof(tt_msg_state);
  case TT_MSG_PROBE: return 0;
  default: return -1;
  }
}

static bool has_behalf(unsigned type)
{
  return type == TT_MSG_SETUP || type == TT_MSG_CONNECT || type == TT_MSG_TRY || type == TT_MSG_ANSWER;
}

static const char *check_head(const tt_msg_head *h, int from)
{
  int size = tt_msg_size(h->type);
  return size < 0                                 ? "a message of unknown type"
         : h->size != size                        ? "a message of the wrong size"
         : h->from != from                        ? "a message of another rank"
         : h->behalf != 0 && !has_behalf(h->type) ? "a damaged message"
                                                  : NULL;
}

static const char *check_body(const tt_msg *m)
{
  switch (m->head.type) {
  case TT_MSG_SETUP:
    return m->setup.channel != 0 || m->setup.device < 0 ? "a request for a connection that cannot be" : NULL;
  case TT_MSG_ANSWER:
    if (m->answer.ndevices < 1 || m->answer.ndevices > TT_MSG_DEVICES || m->answer.code < 0 ||
        m->answer.code >= ncclNumResults) {
      return "an impossible answer";
    }
    return m->answer.code != ncclSuccess && memchr(m->answer.text, 0, sizeof m->answer.text) == NULL
               ? "an answer without end"
               : NULL;
  case TT_MSG_STATE: return m->state.state >= TT_RANK_LOST ? "an unknown state" : NULL;
  default: return NULL;
  }
}

int tt_msg_read(const void *data, size_t got, int from, tt_msg *out, const char **why)
{
  if (got < sizeof out->head) {
    return 0;
  }
  memcpy(&out->head, data, sizeof out->head);
  const char *wrong = check_head(&out->head, from);
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
