// Bytes of a node's graphs: there and back, cut, changed; plain hosts.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <malloc.h>
#include <stdlib.h>

#include "base/util.h"
#include "comm/shapes.h"

enum { RANKS = 5, CHANNELS = 3 };

// Two groups with graphs of all kinds.
static void make(tt_node_shapes *s)
{
  assert_int_equal(tt_node_shapes_room(RANKS, 2, s), ncclSuccess);
  for (int i = 0; i < RANKS; i++) {
    s->group_of[i] = i % 2;
  }
  for (int g = 0; g < 2; g++) {
    tt_node_group *group = &s->group[g];
    int n = g == 0 ? 3 : 2, *to = group->shape.memory = tt_calloc(TT_GRAPH_KINDS * CHANNELS * RANKS, sizeof(int));
    group->shape.ngpus = n;
    group->p2p_wanted = 4 + g;
    group->npacked = 2 * g;
    group->packed = group->packed_memory = tt_calloc((size_t)(2 * n), sizeof(int));
    for (int i = 0; i < 2 * n; i++) {
      group->packed[i] = i % n - 1;
    }
    group->machine =
        (tt_plan_machine){.cc_min = 80, .cc_max = 90, .cpu_arch = TT_CPU_X86, .nvswitch = g == 0, .net_bw = 12.5f};
    for (int k = 0; k < TT_GRAPH_KINDS; k++) {
      tt_plan_graph *x = &group->shape.graph[k];
      *x = (tt_plan_graph){
          .pattern = TT_PATTERN_RING, .nchannels = k == 3 ? 0 : CHANNELS, .type_intra = TT_PATH_NVL, .bw_intra = 20};
      if (x->nchannels > 0) {
        x->gpus = to;
        for (int i = 0; i < CHANNELS * n; i++) {
          *to++ = i % n;
        }
        x->nets = k == 0 ? to : NULL;
        for (int i = 0; k == 0 && i < 2 * CHANNELS; i++) {
          *to++ = i - 1;
        }
      }
    }
  }
}

static void same_graph(const tt_plan_graph *a, const tt_plan_graph *b, int ngpus)
{
  assert_int_equal(a->pattern, b->pattern);
  assert_int_equal(a->nchannels, b->nchannels);
  assert_int_equal(a->type_intra, b->type_intra);
  assert_true(a->bw_intra == b->bw_intra);
  assert_int_equal(a->gpus != NULL, b->gpus != NULL);
  assert_int_equal(a->nets != NULL, b->nets != NULL);
  for (int i = 0; i < a->nchannels * ngpus; i++) {
    assert_int_equal(a->gpus[i], b->gpus[i]);
  }
  for (int i = 0; a->nets != NULL && i < 2 * a->nchannels; i++) {
    assert_int_equal(a->nets[i], b->nets[i]);
  }
}

static void there_and_back(void **state)
{
  (void)state;
  tt_node_shapes s = {0}, t = {0};
  char *bytes = NULL;
  size_t size = 0;
  make(&s);
  assert_int_equal(tt_node_shapes_write(&s, &bytes, &size), ncclSuccess);
  assert_int_equal(tt_node_shapes_read(bytes, size, &t), ncclSuccess);
  assert_int_equal(t.nranks, RANKS);
  assert_int_equal(t.ngroups, 2);
  assert_memory_equal(t.group_of, s.group_of, RANKS * sizeof(int));
  for (int g = 0; g < 2; g++) {
    assert_int_equal(t.group[g].p2p_wanted, s.group[g].p2p_wanted);
    assert_memory_equal(&t.group[g].machine, &s.group[g].machine, sizeof(tt_plan_machine));
    assert_int_equal(t.group[g].npacked, s.group[g].npacked);
    for (int i = 0; i < s.group[g].npacked * s.group[g].shape.ngpus; i++) {
      assert_int_equal(t.group[g].packed[i], s.group[g].packed[i]);
    }
    for (int k = 0; k < TT_GRAPH_KINDS; k++) {
      same_graph(&s.group[g].shape.graph[k], &t.group[g].shape.graph[k], s.group[g].shape.ngpus);
    }
  }
  tt_node_shapes_clear(&s);
  tt_node_shapes_clear(&t);
  tt_free(bytes);
}

// Whatever the bytes are: an error, or shapes whose numbers lie where they must.
static void bad_bytes(void **state)
{
  (void)state;
  tt_node_shapes s = {0}, t = {0};
  char *bytes = NULL;
  size_t size = 0;
  make(&s);
  assert_int_equal(tt_node_shapes_write(&s, &bytes, &size), ncclSuccess);
  for (size_t cut = 0; cut < size; cut++) {
    char *part = malloc(cut + 1); // of its own, so that sanitizers see its end
    memcpy(part, bytes, cut);
    assert_int_equal(tt_node_shapes_read(part, cut, &t), ncclInternalError);
    free(part);
  }
  for (size_t i = 0; i < size * 6; i++) {
    static const unsigned char values[] = {0, 1, 0x7f, 0x80, 0xff, 3};
    char *copy = malloc(size);
    memcpy(copy, bytes, size);
    copy[i / 6] = (char)values[i % 6];
    if (tt_node_shapes_read(copy, size, &t) == ncclSuccess) {
      for (int r = 0; r < t.nranks; r++) {
        assert_in_range(t.group_of[r], 0, t.ngroups - 1);
      }
      tt_node_shapes_clear(&t);
    }
    free(copy);
  }
  tt_node_shapes_clear(&s);
  tt_free(bytes);
}

// A machine of many groups takes no more memory than its bytes, times the size of a number.
static void many_groups(void **state)
{
  (void)state;
  enum { GROUPS = 2000 };
  tt_node_shapes s = {0}, t = {0};
  char *bytes = NULL;
  size_t size = 0, used = 0;
  assert_int_equal(tt_node_shapes_room(GROUPS, GROUPS, &s), ncclSuccess);
  for (int g = 0; g < GROUPS; g++) {
    tt_plan_shape *shape = &s.group[g].shape;
    s.group_of[g] = g;
    shape->ngpus = 1;
    shape->memory = tt_calloc(CHANNELS, sizeof(int));
    shape->graph[TT_GRAPH_RING] =
        (tt_plan_graph){.pattern = TT_PATTERN_RING, .nchannels = CHANNELS, .gpus = shape->memory};
  }
  assert_int_equal(tt_node_shapes_write(&s, &bytes, &size), ncclSuccess);
  assert_int_equal(tt_node_shapes_read(bytes, size, &t), ncclSuccess);
  for (int g = 0; g < GROUPS; g++) {
    used += malloc_usable_size(t.group[g].shape.memory);
    same_graph(&t.group[g].shape.graph[TT_GRAPH_RING], &s.group[g].shape.graph[TT_GRAPH_RING], 1);
  }
  assert_in_range(used, 1, 2 * size);
  tt_node_shapes_clear(&s);
  tt_node_shapes_clear(&t);
  tt_free(bytes);
}

static void no_memory(void **state)
{
  (void)state;
  tt_node_shapes s = {0}, t = {0};
  char *bytes = NULL, *more = NULL;
  size_t size = 0;
  make(&s);
  assert_int_equal(tt_node_shapes_write(&s, &bytes, &size), ncclSuccess);
  tt_alloc_fail_at(1);
  assert_int_equal(tt_node_shapes_write(&s, &more, &size), ncclSystemError);
  for (int k = 1; k <= 3; k++) {
    tt_alloc_fail_at(k);
    assert_int_equal(tt_node_shapes_read(bytes, size, &t), ncclSystemError);
  }
  for (int k = 1; k <= 3; k++) {
    tt_alloc_fail_at(k);
    assert_int_equal(tt_node_shapes_plain((tt_source_rank[]){{.rank = 0}}, 1, false, &t), ncclSystemError);
  }
  tt_alloc_fail_at(0);
  tt_node_shapes_clear(&s);
  tt_free(bytes);
}

static void plain(void **state)
{
  (void)state;
  static const int numa[] = {1, 0, 1, -1, 0}, want[] = {0, 1, 2, 3, 4};
  tt_source_rank ranks[RANKS] = {{0}};
  tt_node_shapes s = {0};
  for (int i = 0; i < RANKS; i++) {
    ranks[i] = (tt_source_rank){.rank = 10 + i, .dev = i, .numa = numa[i]};
  }
  assert_int_equal(tt_node_shapes_plain(ranks, RANKS, true, &s), ncclSuccess);
  const tt_plan_shape *shape = &s.group[0].shape;
  assert_memory_equal(shape->graph[TT_GRAPH_RING].gpus, want, sizeof(want));
  assert_int_equal(shape->graph[TT_GRAPH_RING].type_intra, TT_PATH_SYS);
  assert_int_equal(shape->graph[TT_GRAPH_TREE].nchannels, 1);
  assert_int_equal(shape->graph[TT_GRAPH_NVLS].nchannels, 0);
  tt_node_shapes_clear(&s);
  assert_int_equal(tt_node_shapes_plain(ranks + 4, 1, false, &s), ncclSuccess);
  assert_int_equal(s.group[0].shape.graph[TT_GRAPH_RING].type_intra, TT_PATH_LOC);
  tt_node_shapes_clear(&s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(there_and_back), cmocka_unit_test(bad_bytes),
                                     cmocka_unit_test(many_groups), cmocka_unit_test(no_memory),
                                     cmocka_unit_test(plain)};
  return cmocka_run_group_tests_name("comm/shapes", tests, NULL, NULL);
}
