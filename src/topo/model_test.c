// model_test.c: predicted times and choices for 1, 2 and 4 of all known machines, as NCCL 2.30.7 has them; variables;
// reasons.
#include "topo/plan_rig.h"

#include <math.h>

#include "tools/model_choice.h"
#include "topo/model.h"

// ---- Known models and choices ----

static tt_model model_of(const known *k, const tt_model_options *opt)
{
  tt_model m;
  tt_model_input in = {.connect = k->c, .net_gathers = true, .opt = opt};
  assert_int_equal(tt_model_make(&in, &m), ncclSuccess);
  return m;
}

static int by_name(const char *(*name)(int), int n, const char *text)
{
  for (int i = 0; i < n; i++) {
    if (strcmp(name(i), text) == 0) {
      return i;
    }
  }
  fail_msg("unknown name %s", text);
  return -1;
}

static const char *func_name(int i)
{
  return tt_model_func_name((tt_model_func)i);
}

static const char *algo_name(int i)
{
  return tt_model_algo_name((tt_model_algo)i);
}

static const char *proto_name(int i)
{
  return tt_model_proto_name((tt_model_proto)i);
}

static bool near(double ours, double theirs)
{
  return fabs(ours - theirs) <= 1e-4 * fmax(1, fabs(theirs));
}

static bool same_cell(const tt_model *m, const char *line, char *ours)
{
  char func[32], algo[32], proto[32];
  double latency, bw;
  assert_int_equal(sscanf(line, "model %31s %31s %31s %lf %lf", func, algo, proto, &latency, &bw), 5);
  int f = by_name(func_name, TT_MODEL_FUNCS, func), a = by_name(algo_name, TT_MODEL_ALGOS, algo),
      p = by_name(proto_name, TT_MODEL_PROTOS, proto);
  sprintf(ours, "%g %g", (double)m->latency[f][a][p], (double)m->bandwidth[f][a][p]);
  return near((double)m->latency[f][a][p], latency) && near((double)m->bandwidth[f][a][p], bw);
}

static bool same_choice(const tt_model *m, const char *line, char *ours)
{
  char func[32], algo[32], proto[32];
  double us;
  int channels, threads;
  tt_model_op op = {0};
  tt_model_choice c;
  assert_int_equal(
      sscanf(line, "choice %31s %zu %31s %31s %lf %d %d", func, &op.bytes, algo, proto, &us, &channels, &threads), 7);
  op.func = (tt_model_func)by_name(func_name, TT_MODEL_FUNCS, func);
  assert_int_equal(tt_model_choose(m, &op, &c), ncclSuccess);
  sprintf(ours, "%s %s %.4f %d %d", algo_name(c.algo), proto_name(c.proto), (double)c.us, c.channels, c.threads);
  return strcmp(algo_name(c.algo), algo) == 0 && strcmp(proto_name(c.proto), proto) == 0 && near((double)c.us, us) &&
         c.channels == channels && c.threads == threads;
}

// "# …, nRanks 8 … minCompCap 80 maxCompCap 80 cpuArch 1 cpuVendor 2 minNetBw 24 collnet 0 nvls 0": what the model is
// made from.
static bool same_head(const known *k, const char *line, char *ours)
{
  static const int archs[] = {0, TT_CPU_X86, TT_CPU_POWER, TT_CPU_ARM};
  static const int vendors[] = {TT_CPU_OTHER, TT_CPU_INTEL, TT_CPU_AMD, TT_CPU_ZHAOXIN};
  int arch, vendor, cc_min, cc_max, collnet;
  float bw;
  assert_int_equal(sscanf(strstr(line, "minCompCap"),
                          "minCompCap %d maxCompCap %d cpuArch %d cpuVendor %d minNetBw %f collnet %d", &cc_min,
                          &cc_max, &arch, &vendor, &bw, &collnet),
                   6);
  const tt_plan_machine *m = &k->c->machine;
  sprintf(ours, "capability %d to %d, CPU %d %d, network %g, collnet %d", m->cc_min, m->cc_max, m->cpu_arch,
          m->cpu_vendor, (double)m->net_bw, k->c->collnet);
  return m->cc_min == cc_min && m->cc_max == cc_max && m->cpu_arch == archs[arch] &&
         m->cpu_vendor == vendors[vendor < 0 ? 0 : vendor] && near((double)m->net_bw, (double)bw) &&
         k->c->collnet == collnet;
}

static bool same_model(known *k)
{
  char line[256], ours[256];
  FILE *f = known_open(k, "tuning.txt");
  tt_model m = model_of(k, NULL);
  int cells = 0, lines = 0, bad = 0;
  for (int i = 0; i < TT_MODEL_FUNCS * TT_MODEL_ALGOS * TT_MODEL_PROTOS; i++) {
    cells += (&m.latency[0][0][0])[i] != 0 || (&m.bandwidth[0][0][0])[i] != 0;
  }
  while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
    bool cell = line[0] == 'm', same = cell             ? same_cell(&m, line, ours)
                                       : line[0] == '#' ? same_head(k, line, ours)
                                                        : same_choice(&m, line, ours);
    lines += cell;
    bad += !same;
    if (!same && bad < 3) {
      print_message("%s, %d nodes\n  known %s  ours  %s\n", k->name, k->nnodes_in_name, line, ours);
    }
  }
  if (lines != cells) {
    print_message("%s, %d nodes: %d numbers in the model, known %d\n", k->name, k->nnodes_in_name, cells, lines);
  }
  if (f != NULL) {
    fclose(f);
  }
  return f != NULL && bad == 0 && lines == cells;
}

static void test_known_models(void **state)
{
  (void)state;
  assert_int_equal(known_each(same_model, "models and choices"), 0);
}

// ---- Variables ----

#define H100 "hgx_h100_8gpu_nvswitch_8nic"

static known *load(const char *name, int nodes)
{
  known *k = known_load(name, nodes);
  if (k == NULL) {
    skip(); // the results are not unpacked
  }
  return k;
}

static tt_model_choice choose(const tt_model *m, tt_model_func f, size_t bytes)
{
  tt_model_choice c;
  tt_model_op op = {.func = f, .bytes = bytes};
  assert_int_equal(tt_model_choose(m, &op, &c), ncclSuccess);
  return c;
}

static void test_lists(void **state)
{
  (void)state;
  static const char *const names[] = {"ring", "tree", "NVLS"};
  int allow[TT_MODEL_FUNCS * 3], *reduce = allow + 3 * TT_MODEL_REDUCE, *all_reduce = allow + 3 * TT_MODEL_ALL_REDUCE;
  for (int i = 0; i < TT_MODEL_FUNCS * 3; i++) {
    allow[i] = 7;
  }
  assert_int_equal(tt_model_allow("NCCL_ALGO", "AllReduce:^Tree;broadcast:RING,nvls,", names, 3, allow), ncclSuccess);
  assert_memory_equal(all_reduce, ((int[]){1, 0, 1}), 3 * sizeof(int));
  assert_memory_equal(allow + 3 * TT_MODEL_BROADCAST, ((int[]){1, 0, 1}), 3 * sizeof(int));
  assert_memory_equal(reduce, ((int[]){7, 7, 7}), 3 * sizeof(int));
  assert_int_equal(tt_model_allow("NCCL_ALGO", "tree;;reduce:ring", names, 3, allow), ncclSuccess);
  assert_memory_equal(all_reduce, ((int[]){0, 1, 0}), 3 * sizeof(int));
  assert_memory_equal(reduce, ((int[]){1, 0, 0}), 3 * sizeof(int));
  rig_error(tt_model_allow("NCCL_ALGO", "rings", names, 3, allow), "NCCL_ALGO=\"rings\"",
            "\"rings\" is not known; use names out of: ring, tree, NVLS");
  rig_error(tt_model_allow("NCCL_ALGO", "all:ring", names, 3, allow), "\"all\" is not a function", "AllReduce");
  rig_error(tt_model_allow("NCCL_PROTO", "ring;tree", names, 3, allow), "NCCL_PROTO=\"ring;tree\"",
            "\"tree\" names no function");
  static const char *const odd[] = {"",   ";",       ":", ",", "^", ";:;,^", "reduce:", "^^ring", "ring:tree:ring",
                                    "::", "reduce:^"};
  for (size_t i = 0; i < TT_COUNT(odd); i++) {
    (void)tt_model_allow("NCCL_ALGO", odd[i], names, 3, allow); // whatever it says, it ends
  }
}

static void test_algo_and_proto(void **state)
{
  (void)state;
  known *k = load(H100, 1);
  tt_model_options o = {0};
  o.algo = "allreduce:ring";
  tt_model m = model_of(k, &o);
  tt_model_op op = {.func = TT_MODEL_ALL_REDUCE, .bytes = 1 << 20};
  assert_int_equal(choose(&m, TT_MODEL_ALL_REDUCE, 1 << 30).algo, TT_MODEL_RING);
  assert_int_equal(tt_model_why(&m, &op, TT_MODEL_NVLS, TT_MODEL_SIMPLE), TT_OFF_ALGO_VAR);
  assert_true(m.bandwidth[TT_MODEL_ALL_GATHER][TT_MODEL_NVLS][TT_MODEL_SIMPLE] > 0);
  o = (tt_model_options){0};
  o.proto = "^LL,LL128";
  m = model_of(k, &o);
  assert_int_equal(choose(&m, TT_MODEL_ALL_REDUCE, 8).proto, TT_MODEL_SIMPLE);
  assert_int_equal(tt_model_why(&m, &op, TT_MODEL_RING, TT_MODEL_LL128), TT_OFF_PROTO_VAR);
  // Tree does not broadcast: nothing is left.
  o = (tt_model_options){0};
  o.algo = "tree";
  m = model_of(k, &o);
  op.func = TT_MODEL_BROADCAST;
  tt_model_choice c;
  assert_int_equal(tt_model_choose(&m, &op, &c), ncclInvalidUsage);
  rig_error(ncclInvalidUsage, "Broadcast on 8 ranks", "NCCL_ALGO");
  tt_model_input in = {.connect = k->c, .opt = &o};
  o.proto = "LL64";
  rig_error(tt_model_make(&in, &m), "NCCL_PROTO=\"LL64\"", "LL128");
  known_free(k);
}

// LL128 between GPUs over PCI is asked for: the variable wins.
static void test_ll128(void **state)
{
  (void)state;
  known *k = load("pcie_4gpu_1socket_nosw_intel", 1);
  tt_model m = model_of(k, NULL);
  tt_model_op op = {.func = TT_MODEL_ALL_REDUCE, .bytes = 1 << 20};
  assert_int_equal(tt_model_why(&m, &op, TT_MODEL_RING, TT_MODEL_LL128), TT_OFF_LL128);
  tt_model_options o = {0};
  o.proto = "LL128";
  m = model_of(k, &o);
  assert_int_equal(choose(&m, TT_MODEL_ALL_REDUCE, 1 << 20).proto, TT_MODEL_LL128);
  known_free(k);
}

static void test_threads(void **state)
{
  (void)state;
  static const int want[][2] = {{128, 128}, {33, 512}, {32, 64}, {4096, 512}, {0, 512}};
  known *k = load(H100, 2);
  for (size_t i = 0; i < TT_COUNT(want); i++) {
    tt_model_options o = {0};
    o.nthreads = want[i][0];
    tt_model m = model_of(k, &o);
    assert_int_equal(m.threads[TT_MODEL_RING][TT_MODEL_SIMPLE], want[i][1]);
    assert_int_equal(m.threads[TT_MODEL_NVLS][TT_MODEL_SIMPLE], 640);
  }
  tt_model m = model_of(k, NULL);
  assert_int_equal(m.threads[TT_MODEL_RING][TT_MODEL_LL128], 640);
  assert_int_equal(m.threshold[TT_MODEL_TREE][TT_MODEL_LL], 8);
  assert_int_equal(m.threshold[TT_MODEL_RING][TT_MODEL_LL128], 8);
  assert_int_equal(m.threshold[TT_MODEL_RING][TT_MODEL_SIMPLE], 64);
  known_free(k);
}

// ---- Operations ----

static void test_operations(void **state)
{
  (void)state;
  known *k = load(H100, 2);
  tt_model m = model_of(k, NULL);
  tt_model_op op = {.func = TT_MODEL_ALL_REDUCE, .bytes = 1 << 26};
  float one = tt_model_time(&m, &op, TT_MODEL_RING, TT_MODEL_SIMPLE),
        nvls = tt_model_time(&m, &op, TT_MODEL_NVLS_TREE, TT_MODEL_SIMPLE);
  assert_true(one > 0 && nvls > 0);
  op.no_nvls = true;
  assert_true(tt_model_time(&m, &op, TT_MODEL_NVLS_TREE, TT_MODEL_SIMPLE) < 0);
  assert_int_equal(tt_model_why(&m, &op, TT_MODEL_NVLS_TREE, TT_MODEL_SIMPLE), TT_OFF_NVLS);
  assert_int_equal(tt_model_why(&m, &op, TT_MODEL_NVLS, TT_MODEL_SIMPLE), TT_OFF_COLLNET);
  assert_int_equal(tt_model_why(&m, &op, TT_MODEL_PAT, TT_MODEL_SIMPLE), TT_OFF_NEVER);
  op.fp8 = true;
  assert_true(tt_model_time(&m, &op, TT_MODEL_RING, TT_MODEL_SIMPLE) == one * 1024);
  op.fp8 = false;
  op.together = 3; // latency thrice
  float latency = m.latency[TT_MODEL_ALL_REDUCE][TT_MODEL_RING][TT_MODEL_SIMPLE] * 1.4F;
  assert_true(near((double)tt_model_time(&m, &op, TT_MODEL_RING, TT_MODEL_SIMPLE), (double)(one + 2 * latency)));
  // Other algorithms take eight at once.
  op.together = 1;
  float tree = tt_model_time(&m, &op, TT_MODEL_TREE, TT_MODEL_SIMPLE);
  op.together = 8;
  assert_true(tt_model_time(&m, &op, TT_MODEL_TREE, TT_MODEL_SIMPLE) == tree);
  op.together = 9;
  latency = m.latency[TT_MODEL_ALL_REDUCE][TT_MODEL_TREE][TT_MODEL_SIMPLE];
  assert_true(near((double)tt_model_time(&m, &op, TT_MODEL_TREE, TT_MODEL_SIMPLE), (double)(tree + latency)));
  op = (tt_model_op){.func = TT_MODEL_ALL_GATHER, .bytes = 1 << 20};
  assert_int_equal(tt_model_why(&m, &op, TT_MODEL_PAT, TT_MODEL_SIMPLE), TT_OFF_PAT);
  known_free(k);
  k = load("pcie_1gpu_1nic_switch", 4);
  m = model_of(k, NULL);
  op = (tt_model_op){.func = TT_MODEL_REDUCE_SCATTER, .bytes = 1 << 20};
  assert_int_equal(tt_model_why(&m, &op, TT_MODEL_PAT, TT_MODEL_SIMPLE), TT_OFF_NOT);
  op.scaled = true;
  assert_int_equal(tt_model_why(&m, &op, TT_MODEL_PAT, TT_MODEL_SIMPLE), TT_OFF_OPERATION);
  known_free(k);
}

static void test_collnet(void **state)
{
  (void)state;
  known *k = load(H100 ".collnet", 2);
  tt_model m;
  tt_model_input in = {.connect = k->c}; // the network reduces, but does not gather
  assert_int_equal(tt_model_make(&in, &m), ncclSuccess);
  tt_model_op op = {.func = TT_MODEL_ALL_GATHER, .bytes = 1 << 20};
  assert_int_equal(tt_model_why(&m, &op, TT_MODEL_NVLS, TT_MODEL_SIMPLE), TT_OFF_COLLNET);
  op.func = TT_MODEL_ALL_REDUCE;
  assert_int_equal(tt_model_why(&m, &op, TT_MODEL_COLLNET_CHAIN, TT_MODEL_SIMPLE), TT_OFF_NOT);
  op.no_net = true;
  assert_int_equal(tt_model_why(&m, &op, TT_MODEL_COLLNET_CHAIN, TT_MODEL_SIMPLE), TT_OFF_COLLNET);
  known_free(k);
}

// Whatever is off is off with a reason, and only that.
static bool reasons(known *k)
{
  tt_model m = model_of(k, NULL);
  bool good = true;
  for (int i = 0; i < TT_MODEL_FUNCS * TT_MODEL_ALGOS * TT_MODEL_PROTOS && m.nranks > 1; i++) {
    bool off = (&m.off[0][0][0])[i] != TT_OFF_NOT;
    good = good && off == ((&m.bound[0][0][0])[i] == TT_BOUND_NONE);
    good = good && off == !((&m.bandwidth[0][0][0])[i] > 0) && tt_model_off_text((&m.off[0][0][0])[i]) != NULL;
  }
  return good;
}

static void test_reasons(void **state)
{
  (void)state;
  assert_int_equal(known_each(reasons, "reasons"), 0);
  for (int i = 0; i < TT_OFF_REASONS; i++) {
    const char *text = tt_model_off_text((tt_model_off)i), *variable = tt_model_off_variable((tt_model_off)i);
    assert_non_null(text);
    assert_true(variable == NULL || strncmp(text, variable, strlen(variable)) == 0);
  }
}

static void test_bounds(void **state)
{
  (void)state;
  known *k = load(H100, 4);
  tt_model m = model_of(k, NULL);
  assert_int_equal(m.bound[TT_MODEL_ALL_REDUCE][TT_MODEL_RING][TT_MODEL_SIMPLE], TT_BOUND_INTER);
  assert_int_equal(m.bound[TT_MODEL_ALL_REDUCE][TT_MODEL_RING][TT_MODEL_LL], TT_BOUND_LL);
  assert_int_equal(m.bound[TT_MODEL_ALL_REDUCE][TT_MODEL_RING][TT_MODEL_LL128], TT_BOUND_GPU);
  assert_int_equal(m.bound[TT_MODEL_ALL_REDUCE][TT_MODEL_TREE][TT_MODEL_SIMPLE], TT_BOUND_GPU);
  known_free(k);
  k = load(H100, 1);
  m = model_of(k, NULL);
  assert_int_equal(m.bound[TT_MODEL_ALL_REDUCE][TT_MODEL_RING][TT_MODEL_SIMPLE], TT_BOUND_INTRA);
  known_free(k);
  for (int i = 0; i < TT_BOUND_KINDS; i++) {
    assert_non_null(tt_model_bound_text((tt_model_bound)i));
  }
}

static void test_params(void **state)
{
  (void)state;
  tt_params params = *tt_params_get();
  params.algo = "ring";
  params.proto = "LL";
  params.nthreads = 64;
  tt_model_options o = tt_model_options_from(&params);
  assert_string_equal(o.algo, "ring");
  assert_string_equal(o.proto, "LL");
  assert_int_equal(o.nthreads, 64);
  assert_true(o.no_nvls == TT_OFF_NOT && o.no_collnet == TT_OFF_NOT);
  params.collnet_enable = 2; // not 0, as to the communicator
  o = tt_model_options_from(&params);
  assert_true(o.no_collnet == TT_OFF_NOT);
  params.nvls_enable = 0;
  params.collnet_enable = 0;
  o = tt_model_options_from(&params);
  assert_true(o.no_nvls == TT_OFF_NVLS_ENABLE && o.no_collnet == TT_OFF_COLLNET_ENABLE);
}

// What a variable switched off names the variable; the rest what the machine lacks.
static void test_switched_off(void **state)
{
  (void)state;
  tt_model_options o = {0};
  known *k = load("seed_a100_sxm4_vm", 1);
  tt_model m = model_of(k, &o);
  assert_int_equal(m.off[TT_MODEL_ALL_REDUCE][TT_MODEL_NVLS][TT_MODEL_SIMPLE], TT_OFF_SWITCH);
  assert_int_equal(m.off[TT_MODEL_ALL_REDUCE][TT_MODEL_COLLNET_CHAIN][TT_MODEL_SIMPLE], TT_OFF_COLLNET);
  o.no_nvls = TT_OFF_NVLS_ENABLE;
  o.no_collnet = TT_OFF_COLLNET_NODES;
  m = model_of(k, &o);
  assert_int_equal(m.off[TT_MODEL_ALL_REDUCE][TT_MODEL_NVLS][TT_MODEL_SIMPLE], TT_OFF_NVLS_ENABLE);
  assert_int_equal(m.off[TT_MODEL_ALL_REDUCE][TT_MODEL_NVLS_TREE][TT_MODEL_SIMPLE], TT_OFF_NVLS_ENABLE);
  assert_int_equal(m.off[TT_MODEL_ALL_REDUCE][TT_MODEL_COLLNET_CHAIN][TT_MODEL_SIMPLE], TT_OFF_COLLNET_NODES);
  known_free(k);
  k = load(H100, 2); // has NVLS: only what collnet lacks is out
  m = model_of(k, &o);
  assert_int_equal(m.off[TT_MODEL_ALL_REDUCE][TT_MODEL_NVLS_TREE][TT_MODEL_SIMPLE], TT_OFF_NOT);
  assert_int_equal(m.off[TT_MODEL_ALL_REDUCE][TT_MODEL_NVLS][TT_MODEL_SIMPLE], TT_OFF_COLLNET_NODES);
  known_free(k);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_known_models), cmocka_unit_test(test_lists),        cmocka_unit_test(test_algo_and_proto),
      cmocka_unit_test(test_ll128),        cmocka_unit_test(test_threads),      cmocka_unit_test(test_operations),
      cmocka_unit_test(test_collnet),      cmocka_unit_test(test_reasons),      cmocka_unit_test(test_bounds),
      cmocka_unit_test(test_params),       cmocka_unit_test(test_switched_off),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
