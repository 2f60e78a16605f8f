// paths_test.c: the path tables of all known machines, and what each rule does.
#include "topo/topo_rig.h"

#include <inttypes.h>

// ---- Known tables: tests/topologies/known/*/paths.txt ----
//
// Lines "from to type bandwidth count hops"; "# group i: ranks …" begins the table of a group; "# ---- before trimming"
// that of all.

typedef struct machine {
  tt_topo *topo; // the whole machine
  tt_paths *paths;
  tt_topo *part; // the group that is being compared; NULL: the whole machine
  tt_paths *part_paths;
} machine;

static void drop_part(machine *m)
{
  tt_paths_destroy(m->part_paths);
  tt_topo_destroy(m->part);
  m->part = NULL;
  m->part_paths = NULL;
}

static machine load(const char *folder)
{
  char path[1200];
  snprintf(path, sizeof(path), "%s/input.xml", folder);
  tt_xml *xml = rig_read(path);
  if (strstr(folder, "/mnnvl2") != NULL) {
    rig_double_hosts(xml, path);
  }
  machine m = {.topo = rig_build(xml, NULL)};
  m.paths = rig_paths(m.topo, NULL);
  return m;
}

static void unload(machine *m)
{
  drop_part(m);
  tt_paths_destroy(m->paths);
  tt_topo_destroy(m->topo);
}

// "# group 1: ranks 2 3": those ranks must be a group of ours.
static void begin_group(machine *m, const char *line)
{
  bool in_group[TT_PATHS_MAX_ENDS] = {false};
  int group[TT_PATHS_MAX_ENDS], wanted = -1, members = 0, number = 0;
  int count = tt_paths_groups(m->topo, m->paths, group);
  char *at = NULL;
  assert_int_equal(sscanf(line, "# group %d", &number), 1);
  assert_true(number < count);
  for (const char *p = strstr(line, "ranks") + 5; *p == ' '; p = at, members++) {
    long rank = strtol(p, &at, 10);
    int g = tt_topo_rank_node(m->topo, (int)rank);
    assert_true(g >= 0 && (wanted < 0 || group[g] == wanted));
    wanted = group[g];
    in_group[rank] = true;
  }
  for (int g = 0; g < tt_topo_count(m->topo, TT_NODE_GPU); g++) {
    members -= group[g] == wanted;
  }
  assert_int_equal(members, 0);
  drop_part(m);
  assert_int_equal(tt_topo_group(m->topo, in_group, TT_PATHS_MAX_ENDS, &m->part), ncclSuccess);
  m->part_paths = rig_paths(m->part, NULL);
}

// "GPU3", "NET0.h1", "CPU/1", "CPU/ffffffffffffff": the node, of 56 bits of its id.
static int find_node(const tt_topo *t, const char *name)
{
  uint64_t id = strtoull(name + (name[3] == '/' ? 4 : 3), NULL, name[3] == '/' ? 16 : 10);
  int kind = name[0] == 'G' ? TT_NODE_GPU : name[0] == 'N' ? TT_NODE_NET : TT_NODE_CPU;
  const char *host = strstr(name, ".h");
  if (kind == TT_NODE_GPU) {
    return tt_topo_rank_node(t, (int)id);
  }
  for (int i = t->first[kind]; i < t->first[kind + 1]; i++) {
    if (((uint64_t)t->nodes[i].id & 0xffffffffffffff) == id &&
        t->nodes[i].host == (host != NULL ? atoi(host + 2) : 0)) {
      return i;
    }
  }
  return -1;
}

static bool compare_line(const machine *m, const char *folder, const char *line)
{
  const tt_topo *t = m->part != NULL ? m->part : m->topo;
  const tt_paths *p = m->part != NULL ? m->part_paths : m->paths;
  char from[64], to[64], type[16];
  float bw;
  int count, hops;
  assert_int_equal(sscanf(line, "%63s %63s %15s %f %d %d", from, to, type, &bw, &count, &hops), 6);
  int a = find_node(t, from), b = find_node(t, to);
  assert_true(a >= 0 && b >= 0);
  const tt_path *path = tt_path_get(p, a, b);
  if (path->type == tt_path_type_of(type) && path->bw > bw - 0.0011f && path->bw < bw + 0.0011f &&
      path->count == hops) {
    return true;
  }
  print_error("%s: %s to %s is %s %.3f of %d hops, known is %s %.3f of %d\n", folder, from, to,
              tt_path_type_name(path->type), (double)path->bw, path->count, type, (double)bw, hops);
  return false;
}

static int lines_compared;

static void compare_machine(const char *folder)
{
  machine m = load(folder);
  char path[1200], line[512];
  int bad = 0;
  snprintf(path, sizeof(path), "%s/paths.txt", folder);
  FILE *f = fopen(path, "re");
  assert_non_null(f);
  while (fgets(line, sizeof(line), f) != NULL) {
    if (strncmp(line, "# group", 7) == 0) {
      begin_group(&m, line);
    } else if (line[0] != '#' && line[0] != '\n') {
      bad += !compare_line(&m, folder, line);
      lines_compared++;
    }
  }
  fclose(f);
  unload(&m);
  assert_int_equal(bad, 0);
}

static void test_known_machines(void **state)
{
  (void)state;
  assert_int_equal(rig_each(RIG_MACHINES "/known", "", compare_machine), 107);
  assert_true(lines_compared > 10000);
}

// ---- Machines without known results ----

static void load_machine(const char *path)
{
  tt_topo *t = rig_build(rig_read(path), NULL);
  tt_paths *p = rig_paths(t, NULL);
  assert_true(tt_topo_count(t, TT_NODE_GPU) > 0);
  for (int g = 1; g < tt_topo_count(t, TT_NODE_GPU); g++) {
    assert_true(tt_path_get(p, 0, g)->type < TT_PATH_DIS);
  }
  for (int n = t->first[TT_NODE_NET]; n < t->first[TT_NODE_NET + 1]; n++) {
    assert_true(tt_path_get(p, 0, n)->type < TT_PATH_NET);
  }
  tt_paths_destroy(p);
  tt_topo_destroy(t);
}

static void test_other_machines(void **state)
{
  (void)state;
  assert_true(rig_each_machine(load_machine) > 200);
}

// The order of elements that say the same does not matter for what is found, but the views of ranks joined give the
// very same machine.
static void test_same_again(void **state)
{
  (void)state;
  machine a = load(RIG_MACHINES "/known/hgx_h100_8gpu_nvswitch_8nic"),
          b = load(RIG_MACHINES "/known/hgx_h100_8gpu_nvswitch_8nic");
  assert_int_equal(a.topo->bytes, b.topo->bytes);
  assert_memory_equal(a.topo->nodes, b.topo->nodes, (size_t)a.topo->nnodes * sizeof(tt_topo_node));
  assert_memory_equal(a.topo->links, b.topo->links, (size_t)a.topo->nlinks * sizeof(tt_topo_link));
  assert_int_equal(a.paths->nhops, b.paths->nhops);
  assert_memory_equal(a.paths->hops, b.paths->hops, (size_t)a.paths->nhops * sizeof(int));
  unload(&a);
  unload(&b);
}

// ---- Rules ----

#define SLOT "class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\""
#define GPU(bus, r, rest)                                                                                            \
  "<pci busid=\"0000:" bus ":00.0\" " SLOT "><gpu dev=\"" r "\" sm=\"80\" rank=\"" r "\" gdr=\"1\">" rest "</gpu></" \
  "pci>"
#define NIC(bus, r)                                                              \
  "<pci busid=\"0000:" bus ":00.0\" " SLOT "><nic><net name=\"n" r "\" dev=\"" r \
  "\" speed=\"100000\" gdr=\"1\"/></nic></pci>"
#define SWITCH(bus, rest) \
  "<pci busid=\"0000:" bus ":00.0\" class=\"0x060400\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">" rest "</pci>"
#define CPU(id, rest) \
  "<cpu numaid=\"" id "\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\">" rest "</cpu>"
#define NVL(bus) "<nvlink target=\"0000:" bus ":00.0\" count=\"2\" tclass=\"0x030200\"/>"

typedef struct small {
  tt_topo *t;
  tt_paths *p;
} small;

static small make(const char *text, const tt_topo_rules *rules)
{
  small s;
  s.t = rig_build(rig_xml(text), NULL);
  s.p = rig_paths(s.t, rules);
  return s;
}

static void unmake(small *s)
{
  tt_paths_destroy(s->p);
  tt_topo_destroy(s->t);
}

// Two switches of two GPUs and a card each, on two sockets.
#define FOUR                                                                                                   \
  "<system version=\"1\">" CPU("0", SWITCH("10", GPU("11", "0", NVL("21")) GPU("12", "1", "") NIC("13", "0"))) \
      CPU("1", SWITCH("20", GPU("21", "2", NVL("11")) GPU("22", "3", "") NIC("23", "1"))) "</system>"

static int type_of(const small *s, int from, int to)
{
  return tt_path_get(s->p, from, to)->type;
}

static void test_types(void **state)
{
  (void)state;
  small s = make(FOUR, NULL);
  assert_int_equal(type_of(&s, 0, 0), TT_PATH_LOC);
  assert_int_equal(type_of(&s, 0, 1), TT_PATH_PIX);
  assert_int_equal(type_of(&s, 0, 2), TT_PATH_NVL);
  assert_int_equal(type_of(&s, 1, 3), TT_PATH_NET); // the cards are faster than the link between the sockets
  int net0 = s.t->first[TT_NODE_NET], net1 = net0 + 1;
  assert_int_equal(type_of(&s, 0, net0), TT_PATH_PIX);
  assert_int_equal(type_of(&s, 0, net1), TT_PATH_PXN);
  assert_int_equal(type_of(&s, net1, 0), TT_PATH_SYS);
  assert_int_equal(tt_path_relay(s.t, s.p, 0, net1), 2);
  assert_int_equal(tt_path_relay(s.t, s.p, 0, net0), -1);
  assert_int_equal(type_of(&s, 1, net1), TT_PATH_SYS);
  assert_int_equal(tt_paths_max_type(s.t, s.p, TT_NODE_GPU), TT_PATH_NET);
  assert_int_equal(tt_paths_min_type(s.t, s.p, TT_NODE_GPU), TT_PATH_NVL);
  assert_int_equal(tt_paths_min_type(s.t, s.p, TT_NODE_NET), TT_PATH_PIX);
  assert_int_equal(s.p->net_gpu[0], 0);
  assert_int_equal(s.p->net_gpu[1], 2);
  unmake(&s);
}

static void test_pxn_disable(void **state)
{
  (void)state;
  tt_topo_rules r = tt_topo_rules_default();
  r.pxn_disable = true;
  small s = make(FOUR, &r);
  assert_int_equal(type_of(&s, 0, s.t->first[TT_NODE_NET] + 1), TT_PATH_SYS);
  unmake(&s);
}

// Without P2P a pair goes through the CPU; the type of the path says so.
static void test_p2p_level(void **state)
{
  (void)state;
  tt_topo_rules r = tt_topo_rules_default();
  r.p2p_level = TT_PATH_NVL;
  r.net_disable_intra = true;
  small s = make(FOUR, &r);
  assert_int_equal(type_of(&s, 0, 1), TT_PATH_PHB);
  assert_int_equal(tt_path_get(s.p, 0, 1)->count, 4);
  assert_int_equal(type_of(&s, 0, 2), TT_PATH_NVL);
  assert_true(tt_topo_p2p_ok(s.t, s.p, &r, 0, 2));
  assert_false(tt_topo_p2p_ok(s.t, s.p, &r, 0, 1));
  unmake(&s);
  r.p2p_level = TT_PATH_LOC;
  s = make(FOUR, &r);
  assert_int_equal(type_of(&s, 0, 2), TT_PATH_SYS);
  unmake(&s);
}

// Two GPUs of an AMD machine reach each other through the CPU, three do not.
static void test_p2p_of_pairs(void **state)
{
  (void)state;
  const char *two =
      "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\">" GPU("11", "0", "")
          GPU("12", "1", "") "</cpu></system>";
  const char *three =
      "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\">" GPU("11", "0", "")
          GPU("12", "1", "") GPU("13", "2", "") "</cpu></system>";
  tt_topo_rules r = tt_topo_rules_default();
  small s = make(two, NULL);
  assert_true(tt_topo_p2p_ok(s.t, s.p, &r, 0, 1));
  unmake(&s);
  s = make(three, NULL);
  assert_false(tt_topo_p2p_ok(s.t, s.p, &r, 0, 1));
  unmake(&s);
}

static void test_groups(void **state)
{
  (void)state;
  tt_topo_rules r = tt_topo_rules_default();
  r.shm_disable = true;
  int group[4];
  small s = make("<system version=\"1\">" CPU("0", GPU("11", "0", NVL("12")) GPU("12", "1", NVL("11")))
                     CPU("1", GPU("21", "2", NVL("22")) GPU("22", "3", NVL("21"))) "</system>",
                 &r);
  assert_int_equal(tt_paths_groups(s.t, s.p, group), 2);
  assert_memory_equal(group, ((int[]){0, 0, 1, 1}), sizeof(group));
  assert_int_equal(type_of(&s, 1, 2), TT_PATH_NET);
  unmake(&s);
  s = make(FOUR, NULL);
  // The cards are faster than the link between the sockets, but 0 and 2 have NVLink, and 1 reaches 0, 3 reaches 2.
  assert_true(tt_topo_net_wins(s.t, s.p, &r, 1, 3));
  assert_int_equal(tt_paths_groups(s.t, s.p, group), 1);
  unmake(&s);
  r = tt_topo_rules_default();
  r.net_disable_intra = true;
  s = make(FOUR, &r);
  assert_false(tt_topo_net_wins(s.t, s.p, &r, 1, 3));
  assert_int_equal(type_of(&s, 1, 3), TT_PATH_SYS);
  unmake(&s);
}

// A chain of NVLinks: the ends are one GPU apart, or far.
static void test_nvb(void **state)
{
  (void)state;
  const char *chain =
      "<system version=\"1\">" CPU("0", GPU("11", "0", NVL("12")) GPU("12", "1", NVL("11") NVL("13"))
                                            GPU("13", "2", NVL("12") NVL("14")) GPU("14", "3", NVL("13"))) "</system>";
  tt_topo_rules r = tt_topo_rules_default();
  small s = make(chain, &r);
  assert_int_equal(type_of(&s, 0, 1), TT_PATH_NVL);
  assert_int_equal(type_of(&s, 0, 2), TT_PATH_NVB);
  assert_int_equal(type_of(&s, 0, 3), TT_PATH_PHB);
  assert_int_equal(tt_path_relay(s.t, s.p, 0, 2), 1);
  unmake(&s);
  r.nvb_disable = true;
  s = make(chain, &r);
  assert_int_equal(type_of(&s, 0, 2), TT_PATH_PHB);
  unmake(&s);
}

static void test_gdr(void **state)
{
  (void)state;
  tt_topo_rules r = tt_topo_rules_default();
  small s = make(FOUR, &r);
  int net0 = s.t->first[TT_NODE_NET];
  assert_int_equal(tt_topo_gdr(s.t, s.p, &r, 0, net0, false), TT_GDR_ON);
  assert_int_equal(tt_topo_gdr(s.t, s.p, &r, 0, net0, true), TT_GDR_ON);
  assert_int_equal(tt_topo_gdr(s.t, s.p, &r, 0, net0 + 1, true), TT_GDR_ON); // by PXN: rank 2 is near
  assert_int_equal(tt_topo_gdr(s.t, s.p, &r, 1, net0 + 1, false), TT_GDR_OFF);
  r.gdr_read = 0;
  assert_int_equal(tt_topo_gdr(s.t, s.p, &r, 0, net0, true), TT_GDR_OFF);
  unmake(&s);
  r = tt_topo_rules_default();
  r.gdr_level = TT_PATH_LOC;
  s = make(FOUR, &r);
  assert_int_equal(tt_topo_gdr(s.t, s.p, &r, 0, net0, false), TT_GDR_OFF);
  assert_int_equal(type_of(&s, 0, net0), TT_PATH_PHB); // over the CPU instead
  assert_int_equal(tt_path_get(s.p, 0, net0)->count, 5);
  unmake(&s);
}

static void test_near(void **state)
{
  (void)state;
  tt_topo_rules r = tt_topo_rules_default();
  small s =
      make("<system version=\"1\">" CPU("0", SWITCH("10", GPU("11", "0", "") GPU("12", "1", "") NIC("13", "0") NIC(
                                                              "14", "1") NIC("15", "2") NIC("16", "3"))) "</system>",
           &r);
  int net0 = s.t->first[TT_NODE_NET], nets[4];
  assert_int_equal(tt_topo_near(s.t, s.p, 0, TT_NODE_NET, nets), 4);
  // Four cards for two GPUs: two each; GPU 1 begins in the middle.
  assert_int_equal(tt_topo_gpu_net(s.t, s.p, &r, 0, 0), net0);
  assert_int_equal(tt_topo_gpu_net(s.t, s.p, &r, 0, 1), net0 + 1);
  assert_int_equal(tt_topo_gpu_net(s.t, s.p, &r, 0, 2), net0);
  assert_int_equal(tt_topo_gpu_net(s.t, s.p, &r, 1, 0), net0 + 2);
  r.nets_per_gpu = -1;
  assert_int_equal(tt_topo_gpu_net(s.t, s.p, &r, 0, 3), net0 + 3);
  r.nets_per_gpu = 1;
  assert_int_equal(tt_topo_gpu_net(s.t, s.p, &r, 0, 3), net0);
  assert_int_equal(tt_topo_gpu_cpu(s.t, s.p, 1), s.t->first[TT_NODE_CPU]);
  unmake(&s);
  s = make("<system version=\"1\">" CPU("0", GPU("11", "0", "")) "</system>", &r);
  assert_int_equal(tt_topo_gpu_net(s.t, s.p, &r, 0, 0), -1);
  unmake(&s);
}

// Ranks that share a GPU are at the same place, and everything else is as far for the second as for the first.
static void test_shared_gpu(void **state)
{
  (void)state;
  small s =
      make("<system version=\"1\">" CPU(
               "0", "<pci busid=\"0000:11:00.0\" " SLOT "><gpu dev=\"0\" sm=\"80\" rank=\"0\" gdr=\"1\">" NVL(
                        "12") "</gpu><gpu dev=\"0\" sm=\"80\" rank=\"1\" gdr=\"1\"/></pci>" GPU("12", "2",
                                                                                                NVL("11") NVL("13"))
                        GPU("13", "3", NVL("12"))) "</system>",
           NULL);
  assert_int_equal(tt_topo_devices(s.t), 3);
  assert_int_equal(type_of(&s, 0, 1), TT_PATH_LOC);
  assert_int_equal(type_of(&s, 1, 0), TT_PATH_LOC);
  for (int other = 0; other < 2; other++) {
    assert_int_equal(type_of(&s, other, 2), TT_PATH_NVL);
    assert_int_equal(type_of(&s, 2, other), TT_PATH_NVL);
    assert_int_equal(type_of(&s, other, 3), TT_PATH_NVB);
    assert_int_equal(type_of(&s, 3, other), TT_PATH_NVB);
    assert_int_equal(tt_path_relay(s.t, s.p, other, 3), 2);
  }
  // Rank 0 leaves: its device stays for rank 1.
  tt_topo *part = NULL;
  assert_int_equal(tt_topo_group(s.t, (bool[]){false, true, true, true}, 4, &part), ncclSuccess);
  tt_paths *p = rig_paths(part, NULL);
  assert_int_equal(tt_topo_count(part, TT_NODE_DEV), 1);
  assert_int_equal(tt_path_get(p, tt_topo_rank_node(part, 1), tt_topo_rank_node(part, 2))->type, TT_PATH_NVL);
  tt_paths_destroy(p);
  tt_topo_destroy(part);
  unmake(&s);
}

static void test_levels(void **state)
{
  (void)state;
  assert_int_equal(tt_topo_level("LOC"), TT_PATH_LOC);
  assert_int_equal(tt_topo_level("SYS"), TT_PATH_SYS);
  assert_int_equal(tt_topo_level("0"), TT_PATH_LOC);
  assert_int_equal(tt_topo_level("1"), TT_PATH_PIX);
  assert_int_equal(tt_topo_level("3"), TT_PATH_PHB);
  assert_int_equal(tt_topo_level("99"), TT_PATH_SYS);
  assert_int_equal(tt_topo_level("NET"), -1);
  assert_int_equal(tt_topo_level("sys"), -1);
  assert_int_equal(tt_topo_level(""), -1);
  assert_int_equal(tt_topo_level("-1"), -1);
  tt_params params = *tt_params_get();
  params.p2p_level = "PHB";
  params.net_gdr_level = "wrong";
  params.netdevs_policy = "MAX:3";
  params.pxn_disable = 1;
  tt_topo_rules r = tt_topo_rules_from(&params);
  assert_int_equal(r.p2p_level, TT_PATH_PHB);
  assert_int_equal(r.gdr_level, -1);
  assert_int_equal(r.nets_per_gpu, 3);
  assert_true(r.pxn_disable && !r.nvb_disable && r.gdr_c2c);
  params.p2p_disable = 1;
  params.netdevs_policy = "ALL";
  r = tt_topo_rules_from(&params);
  assert_int_equal(r.p2p_level, TT_PATH_LOC);
  assert_int_equal(r.nets_per_gpu, -1);
}

// ---- Limits ----

static void test_too_many(void **state)
{
  (void)state;
  char *text = calloc(1, 300 * 2100),
       *at = stpcpy(text, "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"GenuineIntel\">");
  for (int i = 0; i < 2100; i++) {
    at += sprintf(at, "<pci busid=\"%04x:00:00.0\" link_width=\"16\"><gpu dev=\"%d\" sm=\"80\" rank=\"%d\"/></pci>\n",
                  i, i, i);
  }
  strcpy(at, "</cpu></system>");
  tt_topo *t = rig_build(rig_xml(text), NULL);
  tt_topo_rules r = tt_topo_rules_default();
  tt_paths *p = NULL;
  rig_error(tt_paths_build(t, &r, &p), "2101 GPUs", "at most 2048");
  tt_topo_destroy(t);
  free(text);
  tt_paths_destroy(NULL);
  tt_topo_destroy(NULL);
}

static void test_no_memory(void **state)
{
  (void)state;
  tt_topo *t = rig_build(rig_xml(FOUR), NULL);
  tt_topo_rules r = tt_topo_rules_default();
  int failures = 0;
  for (long k = 1;; k++) {
    tt_paths *p = NULL;
    tt_alloc_fail_at(k);
    ncclResult_t res = tt_paths_build(t, &r, &p);
    tt_alloc_fail_at(0);
    if (res == ncclSuccess) {
      tt_paths_destroy(p);
      break;
    }
    assert_int_equal(res, ncclSystemError);
    failures++;
  }
  assert_true(failures > 5);
  tt_topo_destroy(t);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_known_machines),
      cmocka_unit_test(test_other_machines),
      cmocka_unit_test(test_same_again),
      cmocka_unit_test(test_types),
      cmocka_unit_test(test_pxn_disable),
      cmocka_unit_test(test_p2p_level),
      cmocka_unit_test(test_p2p_of_pairs),
      cmocka_unit_test(test_groups),
      cmocka_unit_test(test_nvb),
      cmocka_unit_test(test_gdr),
      cmocka_unit_test(test_near),
      cmocka_unit_test(test_shared_gpu),
      cmocka_unit_test(test_levels),
      cmocka_unit_test(test_too_many),
      cmocka_unit_test(test_no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
