// ras_test.c: what clients may say, the two forms of a report, and where the thread listens.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include "base/test_log.h"
#include "base/util.h"
#include "ras/command.h"
#include "ras/report.h"
#include "ras/server.h"
#include "ras/wire.h"

static void commands(void **state)
{
  (void)state;
  static const struct {
    const char *line;
    ras_verb verb;
    bool bad;
  } rows[] = {
      {"CLIENT PROTOCOL 2", RAS_PROTOCOL, false},
      {"client  protocol x", RAS_PROTOCOL, false},
      {"STATUS", RAS_STATUS, false},
      {" verbose\tstatus ", RAS_STATUS, false},
      {"STATUS now", RAS_UNKNOWN, false},
      {"STATUSES", RAS_UNKNOWN, false},
      {"", RAS_UNKNOWN, false},
      {"VERBOSE", RAS_UNKNOWN, false},
      {"TIMEOUT 2.5", RAS_TIMEOUT, false},
      {"TIMEOUT -1", RAS_TIMEOUT, true},
      {"TIMEOUT nan", RAS_TIMEOUT, true},
      {"TIMEOUT inf", RAS_TIMEOUT, true},
      {"TIMEOUT", RAS_TIMEOUT, true},
      {"TIMEOUT 1 2", RAS_TIMEOUT, true},
      {"SET FORMAT json", RAS_FORMAT, false},
      {"set format TEXT", RAS_FORMAT, false},
      {"SET FORMAT xml", RAS_FORMAT, true},
      {"SET COLOUR red", RAS_UNKNOWN, false},
      {"MONITOR", RAS_MONITOR, false},
      {"MONITOR Trace,lifecycle", RAS_MONITOR, false},
      {"MONITOR foo", RAS_MONITOR, true},
      {"MONITOR all,", RAS_MONITOR, false},
      {"DIAGNOSTICS", RAS_DIAGNOSTICS, false},
      {"CONTROL PROFILER_MASK none", RAS_PROFILER_MASK, false},
      {"CONTROL PROFILER_MASK", RAS_PROFILER_MASK, true},
      {"CONTROL PROFILER_MASK 0x8000", RAS_PROFILER_MASK, true},
      {"CONTROL PROFILER_MASK 0xEfC7fORR", RAS_PROFILER_MASK, true},
      {"CONTROL PROFILER_MASK -1", RAS_PROFILER_MASK, true},
      {"CONTROL PROFILER_MASK coll,x", RAS_PROFILER_MASK, true},
      {"CONTROL FOO", RAS_CONTROL, false},
      {"why", RAS_WHY, false},
      {"WHY not", RAS_UNKNOWN, false},
      {"RECORDER", RAS_RECORDER, false},
      {"RECORDER 7", RAS_RECORDER, false},
      {"RECORDER 0", RAS_RECORDER, true},
      {"RECORDER -1", RAS_RECORDER, true},
      {"RECORDER 7x", RAS_RECORDER, true},
  };
  for (size_t i = 0; i < TT_COUNT(rows); i++) {
    ras_command c = ras_command_read(rows[i].line);
    assert_int_equal(c.verb, rows[i].verb);
    assert_int_equal(c.bad, rows[i].bad);
  }
  assert_true(ras_command_read("verbose status").verbose);
  assert_false(ras_command_read("status").verbose);
  assert_true(ras_command_read("timeout 2.5").seconds == 2.5);
  assert_int_equal(ras_command_read("monitor all").groups, RAS_LIFECYCLE | RAS_TRACE);
  assert_int_equal(ras_command_read("monitor").groups, RAS_LIFECYCLE);
  assert_string_equal(ras_command_read("monitor trace,foo").arg, "foo");
}

static void masks(void **state)
{
  (void)state;
  assert_int_equal(ras_command_read("CONTROL PROFILER_MASK all").mask, 0x7fff);
  assert_int_equal(ras_command_read("CONTROL PROFILER_MASK Coll,p2p,ceBatch").mask, 2 | 4 | 1 << 14);
  assert_int_equal(ras_command_read("CONTROL PROFILER_MASK 0x1F").mask, 0x1f);
  assert_int_equal(ras_command_read("CONTROL PROFILER_MASK 12").mask, 12);
}

static void strings(void **state)
{
  (void)state;
  ras_text t = {.size = 0};
  ras_add_string(&t, "a\"b\\c\n\x80");
  assert_string_equal(t.data, "\"a\\\"b\\\\c\\u000a\\u0080\"");
  ras_text_free(&t);
  tt_alloc_fail_at(1);
  ras_add(&t, "x");
  assert_true(t.failed);
  ras_text_free(&t);
}

static void answers(void **state)
{
  (void)state;
  tt_note note = {.frame = {.kind = RAS_NOTE_ANSWER, .size = RAS_ANSWER_HEAD + sizeof(ras_rank)}};
  ras_answer a = {.n = 1};
  memcpy(note.body, &a, RAS_ANSWER_HEAD);
  assert_true(ras_answer_good(&note, RAS_QUERY_RANKS));
  assert_false(ras_answer_good(&note, RAS_QUERY_DIAGNOSTICS));
  uint8_t *flag = &note.body[RAS_ANSWER_HEAD + offsetof(ras_rank, state.abort_flag)];
  *flag = 2;
  assert_false(ras_answer_good(&note, RAS_QUERY_RANKS));
  *flag = 1;
  uint8_t *last = &note.body[RAS_ANSWER_HEAD + offsetof(ras_rank, state.why) + TT_RAS_WHY - 1];
  *last = 'x';
  assert_false(ras_answer_good(&note, RAS_QUERY_RANKS));
  *last = 0;
  note.frame.size--;
  assert_false(ras_answer_good(&note, RAS_QUERY_RANKS));
  note.frame.size = 4;
  assert_false(ras_answer_good(&note, RAS_QUERY_RANKS));
  a.n = UINT32_MAX;
  memcpy(note.body, &a, RAS_ANSWER_HEAD);
  note.frame.size = sizeof(ras_answer);
  assert_false(ras_answer_good(&note, RAS_QUERY_RANKS));
}

// A stranger that knows no more than a public key learns no secret one.
static void secret_keys_stay(void **state)
{
  (void)state;
  const tt_ras_member members[] = {{.at.family = 2, .proc.cookie = 11}, {.at.family = 2, .proc.cookie = 12}};
  for (int i = 0; i < 4; i++) {
    bool secret = i % 2 != 0, open = i / 2 != 0;
    ras_kin kin[2];
    uint64_t next = 7;
    tt_ras_env env = {.hash = 5, .nranks = 2, .members = members, .key.is_public = !secret};
    tt_ras_entry *e = tt_ras_join(&env);
    assert_non_null(e);
    assert_int_equal(ras_registry_kin(5, 0, open, kin, 2, &next), secret && open ? 0 : 2);
    assert_int_equal(next, 0);
    tt_ras_leave(e);
  }
}

// ---- reports

static ras_rank rank_of(int rank, int size)
{
  return (ras_rank){.hash = 0xdeadbeef,
                    .secondary = {1, 2},
                    .cookie = (uint64_t)rank + 100,
                    .size = size,
                    .rank = rank,
                    .pid = 70 + rank,
                    .device = rank,
                    .host = {.family = 2, .ip = {10, 0, 0, (uint8_t)(1 + rank / 2)}},
                    .state.counts = {[4] = 5}};
}

// Ranks 2, 0, 1 of four on two machines; the process of rank 3 is not heard.
static ras_report three_of_four(void)
{
  ras_report r = {.nranks = 3, .nprocesses = 4, .seconds = 0.0214, .timeouts = 1};
  static const int order[] = {2, 0, 1};
  r.ranks = tt_calloc(3, sizeof *r.ranks);
  r.processes = tt_calloc(4, sizeof *r.processes);
  for (int i = 0; i < 4; i++) {
    ras_rank x = rank_of(i, 4);
    r.processes[i] = (ras_process){.who = {.proc = {.pid = x.pid, .cookie = x.cookie}, .at = x.host, .device = i},
                                   .answered = i < 3};
  }
  for (int i = 0; i < 3; i++) {
    r.ranks[i] = rank_of(order[i], 4);
  }
  r.ranks[0].state.counts[4] = 6;
  r.ranks[1].state.wait_ms = 1500;
  r.ranks[1].state.wait_peer = 3;
  return r;
}

static const char golden_text[] =
    "Job summary\n===========\n\n"
    "  Nodes  Processes         GPUs  Processes     GPUs\n"
    "(total)   per node  per process    (total)  (total)\n"
    "      2          2            1          4        3\n\n"
    "Communicators... (0.02s)\n=============\n\n"
    "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
    "    #  in group  per comm  per node  per comm  in group\n"
    "    0         1         2       1-2         4         3   RUNNING  INCOMPLETE,MISMATCH\n\n"
    "Errors\n======\n\n"
    "INCOMPLETE\n  Missing communicator data from 1 job process\n"
    "  Process 73 on node 10.0.0.2 managing GPU 3\n\n"
    "#0-0 (00000000deadbeef) INCOMPLETE\n  Missing communicator data from 1 rank\n"
    "  Rank 3 -- [process information not found]\n\n"
    "Warnings\n========\n\n"
    "TIMEOUT\n  Encountered 1 communication timeout while gathering communicator data\n\n"
    "#0-0 (00000000deadbeef) MISMATCH\n"
    "  Communicator ranks have different AllReduce operation counts\n"
    "  2 ranks have launched up to operation 5\n"
    "  Rank 2 has launched up to operation 6 -- GPU 2 managed by process 72 on node "
    "10.0.0.2\n\n"
    "#0-0 (00000000deadbeef) WAITING\n"
    "  Rank 0 has waited 1.5 s for rank 3 in ";

static void text_form(void **state)
{
  (void)state;
  ras_report r = three_of_four();
  ras_text t = {.size = 0};
  assert_true(ras_report_sort(&r));
  ras_write_text(&r, false, &t);
  const char *body = strstr(t.data, "Job summary");
  assert_non_null(body);
  assert_int_equal(strncmp(t.data, "NCCL version 2.", 15), 0);
  if (strncmp(body, golden_text, strlen(golden_text)) != 0) {
    assert_string_equal(body, golden_text);
  }
  ras_text_free(&t);
  ras_report_free(&r);
}

// One node of five has a process less: a table, and its name.
static void unequal_nodes(void **state)
{
  (void)state;
  ras_report r = {.nprocesses = 9, .processes = tt_calloc(9, sizeof(ras_process))};
  ras_text t = {.size = 0};
  for (int i = 0; i < 9; i++) {
    ras_rank x = rank_of(i, 10);
    r.processes[i] = (ras_process){.who = {.proc = {.pid = x.pid, .cookie = x.cookie}, .at = x.host}, .answered = true};
  }
  assert_true(ras_report_sort(&r));
  ras_write_text(&r, false, &t);
  const char *table = strstr(t.data, "      5        1-2            0          9        0\n\n");
  assert_non_null(table);
  assert_non_null(strstr(table, "  Nodes  Processes  Processes\n"
                                "          per node    (total)\n"
                                "      4          2          8\n"
                                "      1          1          1\n\n"
                                "The outlier node(s):\n  Node 10.0.0.5: 1 process\n\n"));
  ras_text_free(&t);
  ras_report_free(&r);
}

static void json_form(void **state)
{
  (void)state;
  static const char *const parts[] = {
      "\"nccl_version\": \"2.",
      "\"communicators_count\": 1,",
      "{\"hash\": \"0xdeadbeef\", \"secondary_hash\": \"0x1:0x2\", \"size\": 4, \"ranks_count\": 3, "
      "\"missing_ranks_count\": 1,",
      "{\"rank\": 2, \"host\": \"10.0.0.2\", \"pid\": 72, \"cuda_dev\": 2, \"nvml_dev\": 2,",
      "\"status\": {\"init_state\": 0, \"async_error\": 0, \"finalize_called\": false, \"destroy_flag\": false, "
      "\"abort_flag\": false},",
      "\"collective_counts\": {\"Broadcast\": 0, \"Reduce\": 0, \"AllGather\": 0, \"ReduceScatter\": 0, "
      "\"AllReduce\": 6}}",
      "\"missing_ranks\": [\n        {\"rank\": 3, \"host\": \"\", \"pid\": -1, \"cuda_dev\": -1, \"nvml_dev\": -1, "
      "\"status\": {\"unresponsive\": true, \"considered_dead\": false}}\n      ]",
      "\"tutti\": {\"ranks\": [\n        {\"rank\": 0, \"sequence\": 0, \"waits\": true, \"waits_ms\": 1500, "
      "\"waits_for\": 3, \"in\": \"",
      "\"ras\": {\"collection_time_sec\": 0.021, \"timeouts_count\": 1}\n}\n",
  };
  ras_report r = three_of_four();
  ras_text t = {.size = 0};
  assert_true(ras_report_sort(&r));
  ras_write_json(&r, &t);
  const char *at = t.data;
  for (size_t i = 0; i < TT_COUNT(parts); i++) {
    const char *found = strstr(at, parts[i]);
    if (found == NULL) {
      assert_string_equal(at, parts[i]);
    }
    at = found + 1;
  }
  ras_text_free(&t);
  ras_report_free(&r);
}

// What other processes send is not trusted: ranks out of range, twice, of another size.
static void bad_ranks(void **state)
{
  (void)state;
  ras_report r = {.nranks = 6, .ranks = tt_calloc(6, sizeof(ras_rank))};
  for (int i = 0; i < 6; i++) {
    r.ranks[i] = rank_of(0, 4);
  }
  r.ranks[1].rank = -1;
  r.ranks[2].rank = 4;
  r.ranks[3].size = INT32_MAX;
  r.ranks[3].rank = 1;
  r.ranks[4].size = 5;
  r.ranks[4].rank = 2;
  ras_text t = {.size = 0};
  assert_true(ras_report_sort(&r));
  assert_int_equal(r.ncomms, 1);
  assert_int_equal(r.comms[0].n, 1);
  ras_write_json(&r, &t);
  ras_write_text(&r, true, &t);
  assert_false(t.failed);
  ras_text_free(&t);
  ras_report_free(&r);
}

static void nothing(void **state)
{
  (void)state;
  ras_report r = {.nranks = 0};
  ras_text t = {.size = 0};
  assert_true(ras_report_sort(&r));
  ras_write_text(&r, false, &t);
  assert_non_null(strstr(t.data, "No communicator data collected!"));
  ras_text_free(&t);
  ras_report_free(&r);
}

static void read_nothing(const void *comm, tt_ras_state *out)
{
  (void)comm;
  *out = (tt_ras_state){.cause = -1};
}

// A communicator of this process (rank 0) and of `n` others, process `first` and the next ones, each at address `last`.
static tt_ras_entry *join(uint64_t first, int n, uint8_t last)
{
  tt_ras_member m[4] = {{.proc = tt_proc_self(), .at = {.family = 2, .ip = {10, 0, 0, 9}}}};
  const tt_ras_env env = {.nranks = n + 1, .members = m, .read = read_nothing, .key = {.b = {(uint8_t)first, last}}};
  for (int i = 1; i <= n; i++) {
    m[i] = (tt_ras_member){.proc.cookie = first + (uint64_t)i - 1,
                           .at = {.family = 2, .port = (uint16_t)(1000 * last), .ip = {10, 0, 0, last}}};
  }
  tt_ras_entry *e = tt_ras_join(&env);
  assert_non_null(e);
  return e;
}

// The last byte of the address of process number `cookie`, as the ring would reach it; 0: it is not known, or twice.
static int reached_at(uint64_t cookie)
{
  ras_sighting *all = NULL;
  int n = ras_registry_peers(&all), found = 0, at = 0;
  for (int i = 0; i < n; i++) {
    assert_true(i == 0 || all[i].peer.who.proc.cookie > all[i - 1].peer.who.proc.cookie);
    found += all[i].peer.who.proc.cookie == cookie;
    at = all[i].peer.who.proc.cookie == cookie ? all[i].peer.who.at.ip[3] : at;
  }
  tt_free(all);
  return found == 1 ? at : 0;
}

// A process is in the ring once, at the address that its newest communicator was told.
static void newest_addresses(void **state)
{
  (void)state;
  tt_ras_entry *old = join(5, 2, 1), *new = join(6, 2, 7), *other = join(4, 1, 3);
  assert_int_equal(reached_at(4), 3);
  assert_int_equal(reached_at(5), 1);
  assert_int_equal(reached_at(6), 7);
  assert_int_equal(reached_at(7), 7);
  assert_int_equal(reached_at(8), 0);
  tt_ras_leave(new);
  assert_int_equal(reached_at(6), 1);
  assert_int_equal(reached_at(7), 0);
  tt_ras_leave(old);
  tt_ras_leave(other);
  assert_int_equal(reached_at(4), 0);
}

// ---- addresses of this machine, as far as the library sees them

static const uint8_t loopback[] = {127, 0, 0, 1}, nowhere[] = {203, 0, 113, 77}; // RFC 5737: no machine has it

static struct {
  struct ifaddrs list[2];
  struct sockaddr_in at[2];
  int n, asked; // how often the library has asked for the list
} machine;

static void machine_add(const char *name, const uint8_t *ip, unsigned flags)
{
  int i = machine.n++;
  machine.at[i] = (struct sockaddr_in){.sin_family = AF_INET};
  memcpy(&machine.at[i].sin_addr, ip, 4);
  machine.list[i] = (struct ifaddrs){.ifa_name = (char *)(uintptr_t)name,
                                     .ifa_flags = IFF_UP | IFF_RUNNING | flags,
                                     .ifa_addr = (struct sockaddr *)&machine.at[i]};
  if (i > 0) {
    machine.list[i - 1].ifa_next = &machine.list[i];
  }
}

int getifaddrs(struct ifaddrs **out)
{
  machine.asked++;
  *out = machine.n > 0 ? machine.list : NULL;
  return 0;
}

void freeifaddrs(struct ifaddrs *list)
{
  (void)list;
}

// What cannot be listened on is named, with the reason. Others are told the address before.
static void addresses_that_fail(void **state)
{
  (void)state;
  tt_addr at, then;
  machine.n = 0;
  tt_ras_hold(&at);
  assert_int_equal(at.family, 0);
  assert_non_null(strstr(said(), "RAS: this process takes no part: no network interface"));
  tt_ras_release();
  machine_add("fake0", nowhere, 0);
  tt_ras_hold(&at);
  assert_int_equal(at.family, 0);
  assert_non_null(strstr(said(), "RAS: this process takes no part: cannot listen on 203.0.113.77: this machine"));
  tt_ras_release();
  machine.n = 0;
  machine_add("lo", loopback, IFF_LOOPBACK);
  tt_ras_hold(&at);
  assert_memory_equal(at.ip, loopback, 4);
  machine_add("fake0", nowhere, 0);
  (void)said();
  tt_ras_hold(&then);
  assert_memory_equal(&then, &at, sizeof at);
  const char *text = said();
  assert_non_null(strstr(text, "RAS: cannot listen on 203.0.113.77, now this machine's best address: this machine"));
  assert_non_null(strstr(text, "Others are told 127.0.0.1"));
  tt_ras_release();
  tt_ras_release();
}

// The kernel makes the list anew each time: a communicator asks once.
static void one_list_a_communicator(void **state)
{
  (void)state;
  tt_addr at;
  machine.n = 0;
  machine_add("lo", loopback, IFF_LOOPBACK);
  for (int i = 0; i < 3; i++) {
    machine.asked = 0;
    tt_ras_hold(&at);
    assert_int_equal(machine.asked, 1);
    assert_memory_equal(at.ip, loopback, 4);
  }
  for (int i = 0; i < 3; i++) {
    tt_ras_release();
  }
}

int main(void)
{
  setenv("NCCL_RAS_ADDR", "127.0.0.1:0", 1); // a port of its own: clients of other tests do not come here
  test_log_begin("RAS");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(commands),
      cmocka_unit_test(masks),
      cmocka_unit_test(strings),
      cmocka_unit_test(answers),
      cmocka_unit_test(text_form),
      cmocka_unit_test(unequal_nodes),
      cmocka_unit_test(json_form),
      cmocka_unit_test(bad_ranks),
      cmocka_unit_test(nothing),
      cmocka_unit_test(secret_keys_stay),
      cmocka_unit_test(newest_addresses),
      cmocka_unit_test(addresses_that_fail),
      cmocka_unit_test(one_list_a_communicator),
  };
  return cmocka_run_group_tests(tests, NULL, test_log_end);
}
