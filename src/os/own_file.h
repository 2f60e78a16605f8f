// own_file.h: small files of the user's own, which the library believes: no other user may have written them.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/trust.h"

#define TT_OWN_FILE_WHY TT_TRUST_WHY

// Reads a regular file of fewer than `size` bytes, and puts a 0 behind. The file must belong to this user or to
// root, and no other user may write it (base/trust.h). Nothing is waited for. `missing` (NULL: not wanted) says
// whether there is just no such file. Returns its length; -1, with the reason in `why`, when it is not such a file
// or cannot be read. Any thread.
long tt_own_file_read(const char *path, char *buf, size_t size, bool *missing, char why[TT_OWN_FILE_WHY]);
// May every user of this machine read the file (its mode says so)? False also where that cannot be found out. Any
// thread.
bool tt_own_file_is_open(const char *path);

// Writes all of a text. False: errno. Any thread.
bool tt_write_all(int fd, const char *text, size_t size);
