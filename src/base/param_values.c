// param_values.c: which values of a variable mean something, where its type alone does not say it. One table: a wrong
// value is named when it is read, whether or not the job comes to use it. Not here: names and paths, and values that
// the module concerned refuses with an error.
#include <stdio.h>
#include <string.h>

#include "base/param.h"
#include "base/text.h"
#include "base/util.h"

typedef struct meaning {
  size_t offset;       // of the field in tt_params
  const char *choices; // of a text, spaces between them. n: a number from 0; WORD:n: from 1
  int64_t least, most; // of a number
} meaning;

#define FROM_TO(field, least_, most_)                                        \
  {                                                                          \
    .offset = offsetof(tt_params, field), .least = (least_), .most = (most_) \
  }
#define FROM(field, least) FROM_TO(field, least, INT64_MAX)
#define CHOICES(field, choices_)                                \
  {                                                             \
    .offset = offsetof(tt_params, field), .choices = (choices_) \
  }
#define LEVELS "LOC NVL NVB C2C PIX PXB P2C PXN PHB SYS n"

// A number that is the row's default is good, too.
static const meaning meanings[] = {
    FROM(bootstrap_timeout, 1),
    FROM(id_timeout, 0),
    FROM(socket_retry_cnt, 0),
    FROM(socket_retry_sleep_msec, 0),
    FROM_TO(socket_nthreads, 0, 16),
    FROM_TO(nsocks_perthread, 0, 64),
    FROM(socket_inline, 0),
    FROM(socket_min_tasksize, 0),
    FROM(net_timeout, 0),
    FROM_TO(host_devices, 1, 1 << 20),
    FROM(host_spin_us, 0),
    FROM(host_direct_threshold, 0),
    FROM_TO(host_copies, 0, 1),
    FROM(peer_check_ms, 0),
    FROM(stall_warn_ms, 0),
    FROM(stall_error_ms, 0),
    FROM(flight_recorder_size, 0),
    FROM_TO(flight_recorder_signal, 0, 64),
    CHOICES(flight_recorder_format, "PICKLE JSON"),
    FROM(buffsize, 1),
    FROM(ll_buffsize, 1),
    FROM(nthreads, 1),
    FROM(max_nchannels, 0),
    FROM(min_nchannels, 0),
    FROM_TO(p2p_pxn_level, 0, 2),
    FROM_TO(nvls_enable, 0, 2),
    FROM(topo_dump_file_rank, 0),
    FROM(graph_dump_file_rank, 0),
    FROM_TO(cross_nic, 0, 2),
    FROM_TO(net_shared_buffers, 0, 1),
    FROM(p2p_net_chunksize, 1),
    FROM(net_delay, 0),
    FROM_TO(net_gdr_read, 0, 1),
    FROM_TO(collnet_enable, 0, 1),
    FROM(collnet_node_threshold, 0),
    FROM(progress_appendop_freq, 1),
    CHOICES(p2p_level, LEVELS),
    CHOICES(net_gdr_level, LEVELS),
    CHOICES(net_merge_level, "LOC PORT PIX PXB P2C PXN PHB SYS"),
    CHOICES(net_merge_policy, "ALL RAIL"),
    CHOICES(netdevs_policy, "AUTO ALL MAX:n"),
};

static const meaning *meaning_of(const tt_param_row *row)
{
  for (size_t i = 0; i < TT_COUNT(meanings); i++) {
    if (meanings[i].offset == row->offset) {
      return &meanings[i];
    }
  }
  return NULL;
}

static bool is_number(const char *text)
{
  return text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
}

// Is the text the word of `len` characters?
static bool is_word(const char *text, const char *word, size_t len)
{
  if (word[len - 1] != 'n') {
    return tt_ncasecmp(text, word, len) == 0 && text[len] == '\0';
  }
  return tt_ncasecmp(text, word, len - 1) == 0 && is_number(text + len - 1) && (len == 1 || text[len - 1] != '0');
}

static bool is_listed(const char *text, const char *choices)
{
  while (*choices != '\0') {
    size_t len = strcspn(choices, " ");
    if (is_word(text, choices, len)) {
      return true;
    }
    choices += len + (choices[len] == ' ');
  }
  return false;
}

// "LOC, PIX, n" for "LOC PIX n".
static void write_choices(const char *choices, char *out, size_t size)
{
  size_t used = (size_t)snprintf(out, size, "one of ");
  for (; *choices != '\0' && used + 2 < size; choices++) {
    out[used++] = *choices == ' ' ? ',' : *choices;
    if (*choices == ' ') {
      out[used++] = ' ';
    }
  }
  out[used] = '\0';
}

bool tt_param_means(const tt_param_row *row, const char *text, int64_t number, char expected[TT_PARAM_EXPECTED])
{
  const meaning *m = meaning_of(row);
  if (m == NULL) {
    return true;
  }
  if (m->choices != NULL) {
    write_choices(m->choices, expected, TT_PARAM_EXPECTED);
    return is_listed(text, m->choices);
  }
  if (m->most == INT64_MAX) {
    snprintf(expected, TT_PARAM_EXPECTED, "a number from %lld", (long long)m->least);
  } else {
    snprintf(expected, TT_PARAM_EXPECTED, "a number from %lld to %lld", (long long)m->least, (long long)m->most);
  }
  return number >= m->least && number <= m->most;
}
