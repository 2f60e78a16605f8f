// figures.h: the file of a machine's figures as it is written, for tutti-tune and tests.
#pragma once
#include "figures/figures.h"
#include "os/own_file.h"

// A file's text, which tt_figures_parse reads to the same figures. Returns its length, less than TT_FIGURES_MAX_BYTES.
// Pure.
size_t tt_figures_write(const tt_figures *f, const tt_machine_kind *kind, const char *host,
                        char out[TT_FIGURES_MAX_BYTES]);

// Writes a file that only this user can write, beside its place first: a reader gets meanwhile the old one or the
// new one, whole. Folders that are missing are made, for this user alone. False, with the reason in `why`, when that
// cannot be done; then nothing has changed but for such folders. Any thread.
bool tt_own_file_write(const char *path, const char *text, size_t size, char why[TT_OWN_FILE_WHY]);
