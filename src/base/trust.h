// trust.h: whose files the library believes, and which it writes to. Neither a process of root nor a folder that
// everybody may write to (/tmp) shall let a user change other files or other programs' settings. The rule stands here
// alone; the bundled plugins compile this file in.
#pragma once
#include <stdbool.h>

#define TT_TRUST_WHY 128

// May the process believe what stands in the open file? A regular file is refused when others than its owner may write
// it: everybody, or its group. A group with the owner's number is allowed: by convention it is the owner's private
// group. A file is also refused when it belongs neither to the process's user nor to root. `named`: the user has named
// the file, and it holds no secret. Then it may belong to anybody, unless the process runs as root: a setting can name
// libraries to load, so its owner could do all that root can. False: `why` says it. Any thread.
bool tt_trust_contents(int fd, bool named, char why[TT_TRUST_WHY]);

// Opens a file for writing, made if need be (mode 0644), emptied; nothing is waited for, the descriptor is closed on
// exec and does not block. `flags`: more of open(2)'s. Refused: a link that belongs neither to the process's user nor
// to root; a regular file with several names, or that belongs to neither of these nor to the owner of its folder.
// Returns the descriptor; -1 with errno, `why` saying it. Any thread.
int tt_trust_create(const char *path, int flags, char why[TT_TRUST_WHY]);
