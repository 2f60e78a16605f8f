// model_test.c: predicted times and choices for 1, 2 and 4 of all known machines, as NCCL 2.30.7 has them; variables; reasons.
#include "topo/plan_rig.h"

#include <math.h>

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

static bool near(double ours, double known)
{
  return fabs(ours - known) <= 1e-4 * fmax(1, fabs(known));
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
  assert_int_equal(sscanf(line, "choice %31s %zu %31s %31s %lf %d %d", func, &op.bytes, algo, proto, &us, &channels, &threads), 7);
  op.func = (tt_model_func)by_name(func_name, TT_MODEL_FUNCS, func);
  assert_int_equal(tt_model_choose(m, &op, &c), ncclSuccess);
  sprintf(ours, "%s %s %.4f %d %d", algo_name(c.algo), proto_name(c.proto), (double)c.us, c.channels, c.threads);
  return strcmp(algo_name(c.algo), algo) == 0 && strcmp(proto_name(c.proto), proto) == 0 && near((double)c.us, us) &&
         c.channels == channels && c.threads == threads;
}

// "# …, nRanks 8 … minCompCap 80 maxCompCap 80 cpuArch 1 cpuVendor 2 minNetBw 24 collnet 0 nvls 0": what the model is made from.
static bool same_head(const known *k, const char *line, char *ours)
{
  static const int archs[] = {0, TT_CPU_X86, TT_CPU_POWER, TT_CPU_ARM};
  static const int vendors[] = {TT_CPU_OTHER, TT_CPU_INTEL, TT_CPU_AMD, TT_CPU_ZHAOXIN};
  int arch, vendor, cc_min, cc_max, collnet;
  float bw;
  assert_int_equal(sscanf(strstr(line, "minCompCap"), "minCompCap %d maxCompCap %d cpuArch %d cpuVendor %d minNetBw %f collnet %d", &cc_min,
                          &cc_max, &arch, &vendor, &bw, &collnet),
                   6);
  const tt_plan_machine *m = &k->c->machine;
  sprintf(ours, "capability %d to %d, CPU %d %d, network %g, collnet %d", m->cc_min, m->cc_max, m->cpu_arch, m->cpu_vendor,
          (double)m->net_bw, k->c->collnet);
  return m->cc_min == cc_min && m->cc_max == cc_max && m->cpu_arch == archs[arch] && m->cpu_vendor == vendors[vendor < 0 ? 0 : vendor] &&
         near((double)m->net_bw, (double)bw) && k->c->collnet == collnet;
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

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_known_models),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
