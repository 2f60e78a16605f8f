// capture.h: a machine's files as one text. Private to topo/.
//
//     tutti-machine 1
//     # comment
//     f /sys/devices/pci0000:00/0000:00:03.0/class 0x020000\n
//     l /sys/bus/pci/devices/0000:00:03.0 ../../../devices/pci0000:00/0000:00:03.0
//
// One line for each file and link, folders are those of the paths. In contents, \n \t \\ and \xHH; in paths a blank is \x20.
#pragma once
#include "os/folder.h"
#include "topo/tree.h"

typedef struct tt_capture tt_capture;

// Reads a capture of `size` bytes; `name` is for messages. *out goes with tt_capture_free, which takes NULL, too. Errors: ncclInvalidArgument (a text that is no
// capture, with the line), ncclSystemError (no memory).
ncclResult_t tt_capture_parse(const char *name, const void *text, size_t size, tt_capture **out);
void tt_capture_free(tt_capture *c);

// As the functions of os/folder.h; `path` without "/" in front.
tt_folder_kind tt_capture_look(const tt_capture *c, const char *path, char *target, size_t size);
long tt_capture_read(const tt_capture *c, const char *path, char *buf, size_t size);
int tt_capture_list(const tt_capture *c, const char *path, int max, tt_folder_name_fn *fn, void *arg);
