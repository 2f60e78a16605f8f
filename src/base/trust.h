// trust.h: whose files the library believes, and which it writes to. A process of root, or a folder that everybody may
// write to (/tmp), shall be no way to change other files or other programs' settings. The rule stands here alone; the
// bundled plugins have this file compiled in.
#pragma once
#include <stdbool.h>

#define TT_TRUST_WHY 128

// May the process believe what stands in the open file? A regular file is refused when others than its owner may write
// it: everybody, or its group, unless that has the owner's number (the owner's private group, in which by convention
// nobody else is). It is also refused when it belongs neither to the process's user nor to root. `named`: the user has
// named the file, and it holds no secret; then the owner may be anybody, but not for root: a setting can name libraries
// to load, so the owner of a file that root obeys could do all that root can. False: `why` says it. Any thread.
bool tt_trust_contents(int fd, bool named, char why[TT_TRUST_WHY]);

// Opens a file for writing, made if need be (mode 0644), emptied; nothing is waited for, the descriptor is closed on
// exec and does not block. `flags`: more of open(2)'s. Refused: a link that belongs neither to the process's user nor
// to root; a regular file with several names, or that belongs to neither of these nor to the owner of its folder.
// Returns the descriptor; -1 with errno, `why` saying it. Any thread.
int tt_trust_create(const char *path, int flags, char why[TT_TRUST_WHY]);
