// folder.h: files below a folder that may be anything: a captured /sys, a user's upload. Nothing here follows a
// link, waits, or reads what is not a regular file. A caller that wants links followed finds out where they lead
// (topo/tree.h).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "nccl.h"

typedef enum { TT_FOLDER_NONE, TT_FOLDER_FILE, TT_FOLDER_FOLDER, TT_FOLDER_LINK } tt_folder_kind;

// Opens a folder; *out is a descriptor for tt_folder_close. Errors: ncclSystemError with the name.
ncclResult_t tt_folder_open(const char *path, int *out);
void tt_folder_close(int folder);

// What stands at `path`, relative to the folder ("" is the folder itself); no link is followed in its last component.
// Anything that is no file, folder or link (devices, sockets, pipes) is NONE. Of a link, `target` (NULL: not wanted)
// gets the text, at most size - 1 bytes.
tt_folder_kind tt_folder_look(int folder, const char *path, char *target, size_t size);

// Hashes the first `max` bytes of the regular file at `path`, after `seed`; links are followed. False: it cannot be
// read, or is no such file.
bool tt_file_hash(const char *path, size_t max, uint64_t seed, uint64_t *out);

// Reads the first size - 1 bytes of a regular file and puts a 0 behind. Returns their number, -1 when it cannot be
// read.
long tt_folder_read(int folder, const char *path, char *buf, size_t size);

// Reads until `size` bytes have come or the file ends. Returns how many; -1: errno, and none has come. Any thread.
ssize_t tt_file_read(int fd, void *buf, size_t size);
// The beginning of a regular file of the kernel's (/proc, /sys), with a 0 behind. False, and "": it cannot be read,
// or is empty. Any thread.
bool tt_file_text(const char *path, char *buf, size_t size);
// The next part of a list of numbers as the kernel writes them, "0-3,8": moves *at behind it. False: it is at the end
// of the list, or at something else. Pure.
bool tt_file_range(const char **at, long *first, long *last);

// Calls `fn` for the names in a folder, "." and ".." not, until it returns false or `max` are told. Returns how many;
// -1: cannot be read.
typedef bool tt_folder_name_fn(void *arg, const char *name);
int tt_folder_list(int folder, const char *path, int max, tt_folder_name_fn *fn, void *arg);
