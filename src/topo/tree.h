// tree.h: the files that describe a machine (/sys, /proc/cpuinfo), read from any root: the machine's own, a folder with
// a copy of it, or what a table of functions shows (tools/capture.h). Paths begin with "/" and are the machine's
// ("/sys/class/net").
//
// Whatever is below the root may be bad. Links are followed inside the root alone ("/" in a link is the root, ".."
// stops there), at most TT_TREE_LINKS of them; only regular files are read, and only as much as asked for. A tree never
// changes; any thread may read.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/result.h"
#include "os/folder.h"

enum {
  TT_TREE_PATH = 1024,   // longest path, with its 0
  TT_TREE_LINKS = 40,    // links followed for one path
  TT_TREE_NAMES = 65536, // entries of a folder that are looked at
};

typedef struct tt_tree tt_tree;

// Opens a folder as root. Errors name it and what is wrong. Free *out with tt_tree_close.
ncclResult_t tt_tree_open(const char *root, tt_tree **out);

// Files that are no folder of this machine: look, read and list are as in os/folder.h, `path` without "/" in front.
typedef struct tt_tree_ops {
  tt_folder_kind (*look)(const void *files, const char *path, char *target, size_t size);
  long (*read)(const void *files, const char *path, char *buf, size_t size);
  int (*list)(const void *files, const char *path, int max, tt_folder_name_fn *fn, void *arg);
  void (*close)(void *files);
} tt_tree_ops;

// A tree over such files; `name` stands for the root in messages. `files` are the tree's from now on, on an error too.
// Errors: no memory.
ncclResult_t tt_tree_over(const char *name, const tt_tree_ops *ops, void *files, tt_tree **out);

// Closes the tree. NULL is allowed.
void tt_tree_close(tt_tree *tree);

// The root as it was given, for messages.
const char *tt_tree_name(const tt_tree *tree);

// Cuts a path's last name off.
void tt_tree_up(char *path);

// Where `path` leads when all links are followed: an absolute path without links, "" for the root. False when there is
// nothing, or links lead in a circle.
bool tt_tree_resolve(const tt_tree *tree, const char *path, char out[TT_TREE_PATH]);

// Reads the first size - 1 bytes of a file and puts a 0 behind. Returns their number; -1 when there is no such file.
long tt_tree_read(const tt_tree *tree, const char *path, char *buf, size_t size);

// Text of the link that stands at `path` (links on the way to it are followed). False when it is none.
bool tt_tree_link(const tt_tree *tree, const char *path, char out[TT_TREE_PATH]);

typedef struct tt_tree_names {
  char **names; // sorted
  int count;
} tt_tree_names;

// The names in a folder, none when it cannot be read. Free them with tt_tree_names_free.
ncclResult_t tt_tree_list(const tt_tree *tree, const char *path, tt_tree_names *out);
void tt_tree_names_free(tt_tree_names *names);
