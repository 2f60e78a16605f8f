// addrs.h: lists of addresses in few bytes, best first: of unique ids and of the socket network's handles. They come
// from other machines.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/socket.h"

enum { TT_ADDRS_PACKED = 92 }; // bytes for four addresses of any kind; eight of IPv4 need 56

// Packs as many addresses of `list` as fit, in its order, zero after the last. Returns how many are left out,
// list->more among them; 255 stands for more than that, too. Pure.
uint8_t tt_addrs_pack(const tt_addrs *list, uint8_t to[TT_ADDRS_PACKED]);
// Reads what tt_addrs_pack wrote, together with what it returned. False: other code wrote it, or an address cannot
// be used; *out is then undefined. An empty list is one. Pure.
bool tt_addrs_unpack(const uint8_t from[TT_ADDRS_PACKED], uint8_t more, tt_addrs *out);
