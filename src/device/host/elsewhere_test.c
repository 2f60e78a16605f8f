// elsewhere_test.c: which ports show what the process waits for in another one, and for how long.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/host/device.h"
#include "device/elsewhere.h"

enum { PORTS = 3, OWN = 7, OTHER = 8 };

// This process's ranks of some communicators, each with one rank of another process.
static tt_port ports[PORTS];
static tt_rank_page *pages; // by port; shared with forked children
static tt_rank_page peer_page;
static tt_neighbor neighbors[PORTS][2];

static int make_ports(void **state)
{
  (void)state;
  assert_int_equal(tt_host_device(), 0); // so that device.c, which is called at a fork, is linked
  pages = mmap(NULL, PORTS * sizeof *pages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(pages != MAP_FAILED);
  for (int i = 0; i < PORTS; i++) {
    neighbors[i][0] = (tt_neighbor){.page = &pages[i], .cookie = OWN};
    neighbors[i][1] = (tt_neighbor){.page = &peer_page, .cookie = OTHER};
    ports[i] = (tt_port){.nranks = 2, .hash = 100 + (uint64_t)i, .neighbors = neighbors[i], .page = &pages[i]};
  }
  return 0;
}

static int close_ports(void **state)
{
  (void)state;
  for (int i = 0; i < PORTS; i++) {
    tt_elsewhere_close(&ports[i]);
  }
  return munmap(pages, PORTS * sizeof *pages);
}

// The hash of the communicator in which the page of a port says that its process waits; 0: none.
static uint64_t shown_by(int port)
{
  tt_wait w;
  return tt_wait_read_at(pages[port].elsewhere, &w) ? w.hash : 0;
}

static void waits(int port, bool on)
{
  tt_elsewhere_show(&ports[port], &(tt_wait){.since_ns = on, .seen_ns = 1, .peer = 1, .sig = 5});
}

static void open_all(void)
{
  for (int i = 0; i < PORTS; i++) {
    tt_elsewhere_open(&ports[i]);
  }
}

static void the_others_show_it(void **state)
{
  (void)state;
  tt_wait w;
  ports[0].rank = 0;
  open_all();
  waits(0, true);
  assert_int_equal(shown_by(0), 0);
  assert_int_equal(shown_by(1), 100);
  assert_true(tt_wait_read_at(pages[2].elsewhere, &w));
  assert_int_equal(w.hash, 100);
  assert_int_equal(w.number, 0);
  assert_int_equal(w.peer, 1);
  waits(1, true); // in both at a time: the last one
  assert_int_equal(shown_by(0), 101);
  assert_int_equal(shown_by(2), 101);
  waits(0, false); // takes what it has shown itself alone
  assert_int_equal(shown_by(1), 0);
  assert_int_equal(shown_by(2), 101);
  tt_elsewhere_close(&ports[1]);
  assert_int_equal(shown_by(0), 0);
  assert_int_equal(shown_by(2), 0);
}

// It would not be known which of the two waits.
static void processes_with_several_ranks_show_nothing(void **state)
{
  (void)state;
  neighbors[0][1].cookie = OWN;
  open_all();
  waits(0, true);
  assert_int_equal(shown_by(1), 0);
  waits(1, true);
  assert_int_equal(shown_by(0), 0);
  assert_int_equal(shown_by(2), 101);
}

// The pages are the parent's, and its peers read them.
static void a_forked_child_writes_on_no_page(void **state)
{
  (void)state;
  int status;
  open_all();
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    waits(0, true);
    static tt_rank_page page;
    static tt_neighbor own[2] = {{.page = &page, .cookie = OWN}};
    static tt_port port = {.nranks = 2, .hash = 200, .neighbors = own, .page = &page};
    tt_elsewhere_open(&port);
    tt_elsewhere_show(&port, &(tt_wait){.since_ns = 1, .seen_ns = 1, .peer = 1});
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  for (int i = 0; i < PORTS; i++) {
    assert_int_equal(shown_by(i), 0);
  }
  waits(0, true);
  assert_int_equal(shown_by(1), 100);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(the_others_show_it, make_ports, close_ports),
      cmocka_unit_test_setup_teardown(processes_with_several_ranks_show_nothing, make_ports, close_ports),
      cmocka_unit_test_setup_teardown(a_forked_child_writes_on_no_page, make_ports, close_ports)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
