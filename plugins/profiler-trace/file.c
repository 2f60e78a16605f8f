// file.c: the time line's file. After every write it is complete JSON: the footer goes behind the new events, and the
// next write begins where it began. A disk that is full costs the events that found no room, and nothing else.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace.h"

enum { BUFFER = 192 * 1024, FOOTER = 4096 };

static const char head[] = "{\"traceEvents\":[\n";

// All of it, at `at`; false: errno.
static bool put(int fd, const char *text, size_t n, uint64_t at)
{
  while (n > 0) {
    ssize_t done = pwrite(fd, text, n, (off_t)at);
    if (done < 0 && errno == EINTR) {
      continue;
    }
    if (done <= 0) {
      errno = done == 0 ? ENOSPC : errno;
      return false;
    }
    text += done;
    n -= (size_t)done;
    at += (uint64_t)done;
  }
  return true;
}

// What stands before `end` and the footer, once more: their blocks are there. Whatever else was written goes.
static void mend(tt_file *f)
{
  char text[sizeof head + FOOTER] = "";
  bool empty = f->end == 0;
  strcpy(text, empty ? head : "");
  f->footer(f->arg, text + strlen(text), FOOTER);
  size_t n = strlen(text);
  bool good = put(f->fd, text, n, f->end);
  f->error = good ? f->error : errno;
  f->ragged = !good || ftruncate(f->fd, (off_t)(f->end + n)) != 0;
  f->end = empty && good ? sizeof head - 1 : f->end;
}

bool tt_file_open(tt_file *f, const char *path, char why[TT_TRUST_WHY])
{
  *f = (tt_file){.fd = -1, .unwritten = f->unwritten, .footer = f->footer, .arg = f->arg};
  snprintf(f->path, sizeof f->path, "%s", path);
  f->buf = malloc(BUFFER + TT_FILE_LINE + FOOTER);
  if (f->buf == NULL) {
    f->error = ENOMEM;
    snprintf(why, TT_TRUST_WHY, "%s", strerror(f->error));
    return false;
  }
  f->fd = tt_trust_create(path, 0, why);
  if (f->fd < 0) {
    f->error = errno;
    return false;
  }
  memcpy(f->buf, head, sizeof head - 1);
  f->used = sizeof head - 1;
  return true;
}

bool tt_file_put(const char *path, const char *text, size_t size, char why[TT_TRUST_WHY])
{
  int fd = tt_trust_create(path, 0, why);
  if (fd < 0) {
    return false;
  }
  bool good = put(fd, text, size, 0);
  int e = errno;
  if (close(fd) != 0 && good) {
    good = false;
    e = errno;
  }
  if (!good) {
    snprintf(why, TT_TRUST_WHY, "%s", strerror(e));
  }
  return good;
}

char *tt_file_line(tt_file *f)
{
  if (f->used >= BUFFER) {
    tt_file_flush(f);
  }
  char *at = f->buf + f->used;
  if (f->any) {
    *at++ = ',';
    *at++ = '\n';
  }
  return at;
}

void tt_file_line_end(tt_file *f, const char *end, bool counts)
{
  f->used = (size_t)(end - f->buf);
  f->any = true;
  f->pending += counts;
}

// A file without a single byte is no time line: it goes, and with it what was to come.
static void give_up(tt_file *f)
{
  struct stat st;
  if (fstat(f->fd, &st) == 0 && S_ISREG(st.st_mode)) {
    unlink(f->path);
    close(f->fd);
    f->fd = -1;
  }
}

// What could not be written is forgotten; what stands before `end` stays.
static void failed(tt_file *f, int error)
{
  f->error = error;
  f->unwritten += f->pending;
  f->written -= f->pending;
  f->pending = 0;
  if (f->end == 0 && ftruncate(f->fd, 0) != 0) {
    f->error = errno;
  }
  mend(f);
  f->used = f->end == 0 ? sizeof head - 1 : 0; // which is still in the buffer
  f->any = f->end > sizeof head - 1;
  if (f->end == 0) {
    give_up(f);
  }
}

void tt_file_flush(tt_file *f)
{
  if (f->fd < 0) {
    f->unwritten += f->pending;
    f->pending = 0;
    f->used = 0;
    return;
  }
  f->written += f->pending;
  f->footer(f->arg, f->buf + f->used, FOOTER);
  size_t n = f->used + strlen(f->buf + f->used);
  if (!put(f->fd, f->buf, n, f->end)) {
    failed(f, errno);
    return;
  }
  f->ragged = f->ragged && ftruncate(f->fd, (off_t)(f->end + n)) != 0;
  f->end += f->used;
  f->used = 0;
  f->pending = 0;
}

void tt_file_close(tt_file *f)
{
  if (f->fd >= 0) {
    close(f->fd);
  }
  free(f->buf);
  f->buf = NULL;
  f->fd = -1;
}
