// folder.h: a folder of a test's own, for its files; and files as text.
#pragma once
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATH_BYTES = 600, TEXT_BYTES = 1 << 17 };

static char folder[64]; // "": there is none

// The path of a file in the folder. Four are good at a time.
static inline const char *in_folder(const char *name)
{
  static char path[4][PATH_BYTES];
  static int turn;
  char *p = path[turn++ % 4];
  snprintf(p, PATH_BYTES, "%s/%s", folder, name);
  return p;
}

// Setup and teardown of a test. What the folder has then goes with it.
static inline int open_folder(void **state)
{
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/tutti_test.XXXXXX");
  return mkdtemp(folder) != NULL ? 0 : -1;
}

static inline int close_folder(void **state)
{
  (void)state;
  DIR *d = opendir(folder);
  for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
    if (e->d_name[0] != '.') {
      remove(in_folder(e->d_name));
    }
  }
  if (d != NULL) {
    closedir(d);
  }
  return rmdir(folder);
}

// A file as text, "" when it is not there; the caller frees it.
static inline char *text_of(const char *path)
{
  char *text = calloc(1, TEXT_BYTES);
  FILE *f = fopen(path, "r");
  if (f != NULL) {
    text[fread(text, 1, TEXT_BYTES - 1, f)] = 0;
    fclose(f);
  }
  return text;
}
