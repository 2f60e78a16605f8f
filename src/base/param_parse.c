// Values, configuration files and nearest names: pure functions.
#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "base/text.h"
#include "base/util.h"

static bool is_blank(char c)
{
  return c == ' ' || c == '\t';
}

// Number of bits that a suffix shifts by; -1 when `text` is neither empty nor one suffix.
static int suffix_bits(const char *text)
{
  if (*text == '\0') {
    return 0;
  }
  if (text[1] != '\0') {
    return -1;
  }
  switch (*text | 0x20) {
  case 'k': return 10;
  case 'm': return 20;
  case 'g': return 30;
  default: return -1;
  }
}

static int digit_value(char c)
{
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  char l = (char)(c | 0x20);
  return l >= 'a' && l <= 'f' ? l - 'a' + 10 : INT_MAX;
}

// Reads the digits at *text and moves it behind them. False when there are none or they need more than 64 bits.
static bool read_digits(const char **text, uint64_t base, uint64_t *out)
{
  const char *p = *text;
  uint64_t value = 0;
  for (; (uint64_t)digit_value(*p) < base; p++) {
    if (__builtin_mul_overflow(value, base, &value) ||
        __builtin_add_overflow(value, (uint64_t)digit_value(*p), &value)) {
      return false;
    }
  }
  bool some = p != *text;
  *text = p;
  *out = value;
  return some;
}

// `text` has no blanks around it.
static bool parse_int(const char *text, int64_t *out)
{
  bool negative = *text == '-';
  text += *text == '-' || *text == '+';
  bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
  text += hex ? 2 : 0;
  uint64_t value;
  if (!read_digits(&text, hex ? 16 : 10, &value)) {
    return false;
  }
  int bits = suffix_bits(text);
  if (bits < 0 || (value << bits) >> bits != value) {
    return false;
  }
  value <<= bits;
  // A mask or an identity in hexadecimal may use the sign bit; a number may not.
  uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : hex && bits == 0 ? UINT64_MAX : (uint64_t)INT64_MAX;
  if (value > limit) {
    return false;
  }
  *out = (int64_t)(negative ? 0 - value : value);
  return true;
}

static bool parse_bool(const char *text, int64_t *out)
{
  static const char *const texts[] = {"no", "yes", "false", "true", "off", "on"};
  for (size_t i = 0; i < TT_COUNT(texts); i++) {
    if (tt_casecmp(text, texts[i]) == 0) {
      *out = (int64_t)(i & 1);
      return true;
    }
  }
  int64_t number;
  if (!parse_int(text, &number)) {
    return false;
  }
  *out = number != 0;
  return true;
}

static bool is_printable(const char *text)
{
  for (; *text != '\0'; text++) {
    if ((unsigned char)*text < ' ' && *text != '\t') {
      return false;
    }
  }
  return true;
}

bool tt_param_parse_value(tt_param_type type, const char *text, int64_t *out)
{
  if (type == TT_PARAM_TYPE_STR) {
    return is_printable(text);
  }
  while (is_blank(*text)) {
    text++;
  }
  size_t len = strlen(text);
  while (len > 0 && is_blank(text[len - 1])) {
    len--;
  }
  char word[64];
  if (len == 0 || len >= sizeof word) {
    return false;
  }
  memcpy(word, text, len);
  word[len] = '\0';
  return type == TT_PARAM_TYPE_BOOL ? parse_bool(word, out) : parse_int(word, out);
}

const char *tt_param_expected(tt_param_type type)
{
  switch (type) {
  case TT_PARAM_TYPE_INT: return "a whole number, decimal or 0x..., with k, m or g behind it if wanted";
  case TT_PARAM_TYPE_BOOL: return "0 or 1";
  default: return "text without control characters";
  }
}

// Cuts blanks at both ends of the `len` characters at `text`, in place, and ends it with 0.
static char *trim(char *text, size_t len)
{
  while (len > 0 && is_blank(text[len - 1])) {
    len--;
  }
  text[len] = '\0';
  while (is_blank(*text)) {
    text++;
  }
  return text;
}

static bool is_name(const char *text)
{
  if (!isalpha((unsigned char)*text) && *text != '_') {
    return false;
  }
  while (isalnum((unsigned char)*text) || *text == '_') {
    text++;
  }
  return *text == '\0';
}

// Fills `line` from one line of `len` bytes, copied to `buf`. False for a line that says nothing.
static bool split_line(const char *text, size_t len, char *buf, tt_conf_line *line)
{
  line->key = line->value = "";
  line->problem = NULL;
  len -= len > 0 && text[len - 1] == '\r';
  if (len > TT_CONF_MAX_LINE) {
    line->problem = "line is longer than 4096 bytes";
    return true;
  }
  if (memchr(text, '\0', len) != NULL) {
    line->problem = "line contains a zero byte";
    return true;
  }
  memcpy(buf, text, len);
  char *start = trim(buf, len);
  if (*start == '\0' || *start == '#') {
    return false;
  }
  char *equals = strchr(start, '=');
  if (equals == NULL) {
    line->problem = "no '='; expected NAME=VALUE";
    return true;
  }
  char *key = trim(start, (size_t)(equals - start));
  if (!is_name(key)) {
    line->problem = "what stands before '=' is not a variable's name";
    return true;
  }
  line->key = key;
  line->value = trim(equals + 1, strlen(equals + 1));
  return true;
}

ncclResult_t tt_param_parse_conf(const char *text, size_t len, tt_conf_fn *fn, void *arg)
{
  ncclResult_t res = ncclSuccess;
  char buf[TT_CONF_MAX_LINE + 1];
  if (len > TT_CONF_MAX_BYTES) {
    fn(arg, &(tt_conf_line){.key = "", .value = "", .problem = "file is longer than 1 MiB"});
    return ncclInvalidArgument;
  }
  int number = 0;
  for (size_t at = 0; at < len;) {
    const char *end = memchr(text + at, '\n', len - at);
    size_t size = end != NULL ? (size_t)(end - (text + at)) : len - at;
    tt_conf_line line = {.number = ++number};
    if (split_line(text + at, size, buf, &line)) {
      res = line.problem != NULL ? ncclInvalidArgument : res;
      fn(arg, &line);
    }
    at += size + 1;
  }
  return res;
}

enum {
  NAME_MAX_BYTES = 48,
  NAME_MAX_PARTS = NAME_MAX_BYTES / 2,
  NAME_MAX_EDITS = 3,
  LETTER = 2, // what an edit costs
  MISSING_WORD = 5,
  EXTRA_WORD = 7, // at the end
  NEVER = 1000,
};

// A name, and its words: what stands between the underscores.
typedef struct name_parts {
  int n;
  struct {
    const char *at;
    size_t len;
  } word[NAME_MAX_PARTS];
} name_parts;

static name_parts name_parts_of(const char *name)
{
  name_parts w = {0};
  while (*name != '\0' && w.n < NAME_MAX_PARTS) {
    size_t len = strcspn(name, "_");
    w.word[w.n].at = name;
    w.word[w.n++].len = len;
    name += len + (name[len] == '_');
  }
  return w;
}

// Levenshtein distance of two texts of at most NAME_MAX_BYTES characters.
static size_t edit_distance(const char *a, size_t na, const char *b, size_t nb)
{
  size_t row[NAME_MAX_BYTES + 1];
  for (size_t j = 0; j <= nb; j++) {
    row[j] = j;
  }
  for (size_t i = 1; i <= na; i++) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= nb; j++) {
      size_t change = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = TT_MIN(change, TT_MIN(row[j], row[j - 1]) + 1);
    }
  }
  return row[nb];
}

// The cost from a list of words to the one that was meant: a word can become another, letter by letter, or be missing,
// or be too many at the end.
static size_t parts_distance(const name_parts *a, const name_parts *meant)
{
  size_t row[NAME_MAX_PARTS + 1];
  for (int j = 0; j <= meant->n; j++) {
    row[j] = (size_t)j * MISSING_WORD;
  }
  for (int i = 1; i <= a->n; i++) {
    size_t diagonal = row[0];
    row[0] = NEVER; // all names begin alike
    for (int j = 1; j <= meant->n; j++) {
      size_t change = diagonal + LETTER * edit_distance(a->word[i - 1].at, a->word[i - 1].len, meant->word[j - 1].at,
                                                        meant->word[j - 1].len);
      size_t extra = row[j] + (j == meant->n ? EXTRA_WORD : NEVER);
      diagonal = row[j];
      row[j] = TT_MIN(change, TT_MIN(extra, row[j - 1] + MISSING_WORD));
    }
  }
  return row[meant->n];
}

const char *tt_param_nearest(const char *name)
{
  size_t prefix = strcspn(name, "_") + 1;
  size_t len = strlen(name);
  if (len <= prefix || len > NAME_MAX_BYTES) {
    return NULL;
  }
  const char *nearest = NULL;
  const name_parts parts = name_parts_of(name);
  size_t best = LETTER * (TT_MIN((size_t)NAME_MAX_EDITS, (len - prefix) / 3) + 1);
  for (size_t i = 0; i < tt_param_count(); i++) {
    const char *row_name = tt_param_row_at(i)->name;
    if (strncmp(row_name, name, prefix) != 0) {
      continue;
    }
    const name_parts row_parts = name_parts_of(row_name);
    size_t letters = LETTER * edit_distance(name, len, row_name, strlen(row_name));
    size_t cost = TT_MIN(letters, parts_distance(&parts, &row_parts));
    if (cost < best) {
      best = cost;
      nearest = row_name;
    }
  }
  return nearest;
}
