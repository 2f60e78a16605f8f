// cards.h: with which network card a rank sends to a rank of another machine: for the explorer and tests.
#pragma once
#include "topo/connect.h"

// A network card, and the GPU whose rank's proxy speaks to it: the rank itself, or one that is near the card (PXN).
// Both nodes; -1: none.
typedef struct tt_net_choice {
  int net, proxy;
} tt_net_choice;

typedef struct tt_p2p_rules {
  int cross_nic; // NCCL_CROSS_NIC: 0: always over the card that is near the peer's twin here
  int pxn; // NCCL_P2P_PXN_LEVEL: over the GPU near that card 0 never, 1 where the way there is PXN anyway, 2 wherever
           // it can be
} tt_p2p_rules;

// One part of a message.
typedef struct tt_p2p_part {
  int gpu;      // node of the sender's GPU
  int peer_dev; // number of the receiver's GPU on its machine
  int channel;
} tt_p2p_part;

// The card with which a part is sent: the sender's own, or, so that messages for one card over there leave by one card
// here, that of the GPU with the receiver's number.
tt_net_choice tt_p2p_net(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules, tt_p2p_rules p2p,
                         tt_p2p_part part);
