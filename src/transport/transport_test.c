// transport_test.c: which transport connects a pair, and what a link consists of.
//
// The ranks: 0, 1 and 2 in this process, 3 in another process of this machine, 4 on another machine.
#define _GNU_SOURCE
#include "transport/child_rig.h"

#include "base/param.h"

#include "base/util.h"
#include "device/device.h"
#include "os/proc.h"
#include "transport/transport.h"

enum { N = 5, LOCAL_RANKS = 4 };

static struct {
  tt_endpoint ranks[N];
  tt_wiring w[N];
  tt_port ports[N];
  tt_rank_page lone[N];
  tt_segment *segment;
} net;

static const volatile uint32_t no_abort;

static void make_ranks(void)
{
  tt_proc_id me = tt_proc_self(), other = me;
  other.cookie++;
  for (int i = 0; i < N; i++) {
    net.ranks[i] = (tt_endpoint){.rank = i,
                                 .device = i,
                                 .host = i < LOCAL_RANKS ? 100 : 200,
                                 .proc = i < 3 ? me : other,
                                 .p2p_disable = tt_transport_p2p_off(),
                                 .shm_disable = tt_params_get()->shm_disable};
  }
}

// One mapping serves all of them; for rank 3 we only pretend.
static void make_segment(void)
{
  static int ranks[LOCAL_RANKS] = {0, 1, 2, 3};
  static tt_proc_id procs[LOCAL_RANKS];
  static const char *boxes[LOCAL_RANKS];
  static char mailbox[TT_FDBOX_NAME];
  static const uint8_t secret[16] = "sixteen bytes...";
  CHECK(tt_fdbox_open(mailbox) == ncclSuccess);
  for (int i = 0; i < LOCAL_RANKS; i++) {
    procs[i] = net.ranks[0].proc;
    boxes[i] = mailbox;
  }
  tt_local who = {.n = LOCAL_RANKS,
                  .one_process = false,
                  .ranks = ranks,
                  .procs = procs,
                  .mailboxes = boxes,
                  .secret = secret,
                  .geometry = tt_geometry_default()};
  tt_segment_note notes[LOCAL_RANKS];
  CHECK(tt_segment_open(&who, &net.segment, &notes[0]) == ncclSuccess);
  CHECK(tt_segment_join(net.segment, &who, notes, &no_abort) == ncclSuccess);
}

static void transport_open_net(bool can_copy)
{
  make_ranks();
  make_segment();
  for (int i = 0; i < N; i++) {
    tt_port *p = &net.ports[i];
    *p = (tt_port){.rank = i,
                   .nranks = N,
                   .row = &tt_device_host,
                   .page = i < LOCAL_RANKS ? tt_segment_page(net.segment, i) : &net.lone[i]};
    p->links = tt_calloc(N, sizeof *p->links);
    net.w[i] = (tt_wiring){.rank = i,
                           .nranks = N,
                           .ranks = net.ranks,
                           .port = p,
                           .can_copy = can_copy,
                           .geometry = tt_geometry_default(),
                           .segment = i < LOCAL_RANKS ? net.segment : NULL};
  }
}

static void close_net(void)
{
  for (int i = 0; i < N; i++) {
    tt_transport_disconnect(&net.w[i]);
    for (int k = 0; k < N; k++) {
      CHECK(net.ports[i].links[k] == NULL);
    }
    tt_free(net.ports[i].links);
  }
  tt_segment_leave(net.segment);
}

// A proxy that only says that there is one.
static void pretend_network(void)
{
  for (int i = 0; i < N; i++) {
    net.w[i].proxy = (tt_proxy *)(uintptr_t)64;
  }
}

static const char *transport_name(int a, int b)
{
  const tt_transport *t = tt_transport_find(&net.w[a], b);
  return t == NULL ? "none" : t->name;
}

// The choice for every pair, row by row: s(elf), p(2p), m(emory), n(etwork), -.
static void expect_choices(const char *rows)
{
  for (int i = 0; i < N; i++) {
    for (int k = 0; k < N; k++) {
      const char *name = transport_name(i, k);
      char c = strcmp(name, "self") == 0  ? 's'
               : strcmp(name, "p2p") == 0 ? 'p'
               : strcmp(name, "shm") == 0 ? 'm'
               : strcmp(name, "NET") == 0 ? 'n'
                                          : '-';
      if (c != rows[i * (N + 1) + k]) {
        fprintf(stderr, "rank %d to %d: %s\n", i, k, name);
        _exit(1);
      }
      CHECK(strcmp(name, transport_name(k, i)) == 0); // the same on both sides
    }
  }
}

static void usual_choices(int unused)
{
  (void)unused;
  transport_open_net(true);
  expect_choices("sppm- pspm- ppsm- mmms- ----s");
  pretend_network();
  expect_choices("sppmn pspmn ppsmn mmmsn nnnns");
  close_net();
}

static void choices_without_p2p(int unused)
{
  (void)unused;
  setenv("NCCL_P2P_DISABLE", "1", 1);
  transport_open_net(true);
  expect_choices("smmm- msmm- mmsm- mmms- ----s");
  CHECK(tt_transport_connect(&net.w[0], 1) == ncclSuccess);
  CHECK(net.ports[0].links[1]->access == TT_ACCESS_COPY);
  close_net();
}

static void choices_at_level_loc(int unused)
{
  (void)unused;
  setenv("NCCL_P2P_LEVEL", "loc", 1);
  transport_open_net(true);
  expect_choices("smmm- msmm- mmsm- mmms- ----s");
  close_net();
}

static void test_p2p_levels(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    bool allows;
  } rows[] = {{"LOC", false}, {"nvl", false}, {"PIX", false}, {"PXB", false},
              {"Phb", false}, {"SYS", true},  {"sys", true},  {"0", false},
              {"3", false},   {"4", true},    {"99", true},   {"99999999999999999999", true},
              {"PH", true},   {"1 ", true},   {"", true}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    if (tt_transport_level_allows(rows[i].text) != rows[i].allows) {
      fail_msg("NCCL_P2P_LEVEL='%s': allows %d", rows[i].text, !rows[i].allows);
    }
  }
}

static void choices_at_level_phb(int unused)
{
  (void)unused;
  setenv("NCCL_P2P_LEVEL", "PHB", 1);
  transport_open_net(true);
  expect_choices("smmm- msmm- mmsm- mmms- ----s");
  close_net();
}

static void choices_at_no_level(int unused)
{
  (void)unused;
  setenv("NCCL_P2P_LEVEL", "far", 1);
  transport_open_net(true);
  expect_choices("sppm- pspm- ppsm- mmms- ----s");
  close_net();
}

static void choices_without_shm(int unused)
{
  (void)unused;
  setenv("NCCL_SHM_DISABLE", "1", 1);
  transport_open_net(true);
  expect_choices("spp-- psp-- pps-- ---s- ----s");
  pretend_network();
  expect_choices("sppnn pspnn ppsnn nnnsn nnnns");
  close_net();
}

static void choices_without_both(int unused)
{
  (void)unused;
  setenv("NCCL_P2P_DISABLE", "1", 1);
  setenv("NCCL_SHM_DISABLE", "1", 1);
  transport_open_net(true);
  expect_choices("s---- -s--- --s-- ---s- ----s");
  CHECK(tt_transport_connect(&net.w[0], 1) == ncclInternalError);
  CHECK(strstr(tt_last_error(), "NCCL_P2P_DISABLE=1") != NULL && strstr(tt_last_error(), "NCCL_SHM_DISABLE=1") != NULL);
  CHECK(net.ports[0].links[1] == NULL);
  CHECK(tt_transport_connect(&net.w[0], 0) == ncclSuccess);
  close_net();
}

static void test_which_transport(void **state)
{
  (void)state;
  run_in_child(usual_choices);
  run_in_child(choices_without_p2p);
  run_in_child(choices_at_level_loc);
  run_in_child(choices_at_level_phb);
  run_in_child(choices_at_no_level);
  run_in_child(choices_without_shm);
  run_in_child(choices_without_both);
}

// ---- Links ----

static tt_link *transport_connect_to(int a, int b)
{
  CHECK(tt_transport_connect(&net.w[a], b) == ncclSuccess);
  tt_link *link = net.ports[a].links[b];
  CHECK(link != NULL && link->peer == b && link->rank == a);
  CHECK(link->proc.cookie == net.ranks[b].proc.cookie);
  CHECK((uintptr_t)link % TT_CACHE_LINE == 0);
  return link;
}

// What one sends the other receives, by each of the FIFOs and no other.
static void pair_talks(tt_link *from, tt_link *to, unsigned char mark)
{
  for (int k = 0; k < TT_NFIFOS; k++) {
    CHECK(tt_fifo_room(&from->send[k]));
    for (int other = 0; other < TT_NFIFOS; other++) {
      CHECK(!tt_fifo_arrived(&to->recv[other]));
    }
    memset(tt_fifo_data(&from->send[k]), mark, 40);
    tt_fifo_publish(&from->send[k], 40, mark, 1);
    CHECK(tt_fifo_arrived(&to->recv[k]));
    CHECK(tt_fifo_slot(&to->recv[k])->sig == mark && (unsigned char)tt_fifo_data(&to->recv[k])[39] == mark);
    tt_fifo_release(&to->recv[k]);
    CHECK(tt_fifo_drained(&from->send[k]));
  }
}

static void every_pair_talks(int can_copy)
{
  transport_open_net(can_copy != 0);
  for (int i = 0; i < LOCAL_RANKS; i++) {
    for (int k = 0; k < LOCAL_RANKS; k++) {
      tt_link *link = transport_connect_to(i, k);
      CHECK(link->page == net.ports[k].page);
      CHECK(transport_connect_to(i, k) == link); // once
      bool away = (i == 3) != (k == 3);
      CHECK(link->access == (!away ? TT_ACCESS_LOCAL : can_copy ? TT_ACCESS_COPY : TT_ACCESS_NONE));
      CHECK(link->watched == away);
    }
  }
  for (int i = 0; i < LOCAL_RANKS; i++) {
    for (int k = 0; k < LOCAL_RANKS; k++) {
      pair_talks(net.ports[i].links[k], net.ports[k].links[i], (unsigned char)(i * 16 + k + 1));
    }
  }
  tt_link *own = transport_connect_to(4, 4); // alone on its machine: no segment
  pair_talks(own, own, 99);
  close_net();
}

static void test_what_is_sent_arrives(void **state)
{
  (void)state;
  run_in_children(2, every_pair_talks); // i = 0, 1: process_vm_readv is not allowed, is allowed
}

// Rank 3's process holds no lock in the segment: it has ended, or there never was one.
static void a_peer_without_a_lock_has_ended(int unused)
{
  (void)unused;
  transport_open_net(true);
  CHECK(tt_link_ended(transport_connect_to(0, 3)));
  CHECK(!tt_link_ended(transport_connect_to(0, 1)));
  close_net();
}

static void far_peers_and_no_memory(int unused)
{
  (void)unused;
  transport_open_net(true);
  CHECK(tt_transport_connect(&net.w[0], 4) == ncclInternalError);
  CHECK(strstr(tt_last_error(), "on different machines") != NULL);
  for (int peer = 0; peer < LOCAL_RANKS; peer++) {
    for (int k = 1; k <= (peer == 0 ? 2 : 1); k++) { // the link; of `self`, its window too
      tt_alloc_fail_at(k);
      CHECK(tt_transport_connect(&net.w[0], peer) == ncclSystemError);
      tt_alloc_fail_at(0);
      CHECK(net.ports[0].links[peer] == NULL);
    }
    transport_connect_to(0, peer);
  }
  close_net();
}

static void test_connect_failures(void **state)
{
  (void)state;
  run_in_child(a_peer_without_a_lock_has_ended);
  run_in_child(far_peers_and_no_memory);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_p2p_levels),
      cmocka_unit_test(test_which_transport),
      cmocka_unit_test(test_what_is_sent_arrives),
      cmocka_unit_test(test_connect_failures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
