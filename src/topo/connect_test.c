// connect_test.c: channels of 1, 2 and 4 of all known machines, as NCCL 2.30.7 connects them; shapes of trees; many nodes; bad input.
#include "topo/plan_rig.h"

// ---- Known channels ----

// Our line for a ring or rank of the file; the file's own begins alike.
static void our_ring(const known *k, int channel, char *out)
{
  int order[RIG_MAX_RANKS * 4];
  tt_connect_ring(k->c, channel, 0, order);
  out += sprintf(out, "ring %d :", channel);
  for (int i = 0; i < k->c->nranks; i++) {
    out += sprintf(out, " %d", order[i]);
  }
}

static void our_trees(const known *k, int rank, char *out)
{
  out += sprintf(out, "rank %d :", rank);
  for (int ch = 0; ch < k->c->nchannels; ch++) {
    tt_tree_place p = tt_connect_tree(k->c, ch, rank);
    out += sprintf(out, " [%d] %d/%d/%d->%d->%d", ch, p.down[0], p.down[1], p.down[2], rank, p.up);
  }
}

static bool same_channels(known *k)
{
  char *line = malloc(RIG_MAX_LINE), *ours = malloc(RIG_MAX_LINE);
  FILE *f = known_open(k, "channels.txt");
  bool same = f != NULL && k->c->nsearch == k->search && k->c->nchannels == k->channels && k->c->nvls_channels == k->nvls;
  int lines = 0;
  if (!same) {
    print_message("%s, %d nodes: search %d, channels %d, NVLS %d; known %d, %d, %d\n", k->name, k->nnodes_in_name, k->c->nsearch,
                  k->c->nchannels, k->c->nvls_channels, k->search, k->channels, k->nvls);
  }
  while (same && fgets(line, RIG_MAX_LINE, f) != NULL) {
    int number = atoi(line + 5);
    line[strcspn(line, "\n")] = 0;
    if (line[0] == '#') {
      continue;
    }
    (line[1] == 'i' ? our_ring : our_trees)(k, number, ours);
    lines++;
    if (strcmp(line, ours) != 0) {
      print_message("%s, %d nodes\n  known %s\n  ours  %s\n", k->name, k->nnodes_in_name, line, ours);
      same = false;
    }
  }
  same = same && lines == k->c->nchannels + k->c->nranks;
  if (f != NULL) {
    fclose(f);
  }
  free(line);
  free(ours);
  return same;
}

static bool same_p2p(known *k)
{
  tt_p2p_channels p = tt_p2p_agree(k->c, &k->opt, k->p2p_wanted);
  if (p.channels != k->p2p || p.per_peer != k->p2p_per_peer) {
    print_message("%s, %d nodes: %d point-to-point channels, %d per peer; known %d, %d\n", k->name, k->nnodes_in_name, p.channels,
                  p.per_peer, k->p2p, k->p2p_per_peer);
    return false;
  }
  return true;
}

static void test_known_channels(void **state)
{
  (void)state;
  assert_int_equal(known_each(same_channels, "channels"), 0);
}

static void test_known_p2p(void **state)
{
  (void)state;
  assert_int_equal(known_each(same_p2p, "point-to-point channels"), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_known_channels),
      cmocka_unit_test(test_known_p2p),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
