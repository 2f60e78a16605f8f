// capture.h: a machine's files as one text, which tt_gather (gather.h) writes: a root for topo/tree.h.
//
//     tutti-machine 1
//     # comment
//     f /sys/devices/pci0000:00/0000:00:03.0/class 0x020000\n
//     l /sys/bus/pci/devices/0000:00:03.0 ../../../devices/pci0000:00/0000:00:03.0
//
// One line for each file and link, folders are those of the paths. In contents, \n \t \\ and \xHH; in paths a blank is
// \x20.
#pragma once
#include "topo/tree.h"

enum {
  TT_CAPTURE_FILES = 500000,   // most entries
  TT_CAPTURE_BYTES = 64 << 20, // most bytes
};

// Makes a tree of a capture's text of `size` bytes; `name` stands for its file in messages. Free *out with
// tt_tree_close. Errors: ncclInvalidArgument (a text that is no capture, with the line), ncclSystemError (no memory).
ncclResult_t tt_capture_parse(const char *name, const void *text, size_t size, tt_tree **out);

// Opens a folder as tt_tree_open does, or the file of a capture. Errors: those of both, and a file that cannot be read.
ncclResult_t tt_capture_open(const char *path, tt_tree **out);
