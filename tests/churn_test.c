// churn_test.c: ranks are killed at random points of their work, amid shrinks and amid growths. Each survivor must
// learn it in every communicator that held the dead rank, by name; communicators that did not hold it go on. The
// survivors shrink and sum, new processes take the places of the dead by a growth, and so on. Nothing is left of
// anybody.
//
//   CHURN_KILLS=1000 build/tests/tests_churn_test '*' SEED    so many kills with 4 processes, and so many with 8
//
// The test program is the launcher: it kills, knows which ranks are dead, and gives orders on the board. Ranks obey and
// answer.
#include "churn.h"
#include "remains.h"

// --- The launcher

// Times until ranks were told (ms).
typedef struct tally {
  int kills, n, room;
  double *ms;
} tally;

typedef struct churn {
  int n, immortal; // the second: a slot that is never killed, or -1
  ranks_set ranks;
  ranks_job job;
  uint64_t number; // of the last order
  int old, count, slots[MOST];
  unsigned dead, victims;
  int kills;
  double struck; // when the last ones died (s)
  sockets left;
  tally *tallies;
  double slowest_end; // s
} churn;

static unsigned seed;

static double chance(double most)
{
  seed = seed * 1103515245u + 12345u;
  return most * (double)(seed >> 8 & 0xffff) / 65536;
}

static void tally_add(tally *t, double ms)
{
  if (t->n == t->room) {
    t->room = 2 * t->room + 64;
    t->ms = realloc(t->ms, (size_t)t->room * sizeof *t->ms);
    assert_non_null(t->ms);
  }
  t->ms[t->n++] = ms;
}

// One look at the ranks. A living one that has ended ends the test.
static void look(churn *c)
{
  ranks_look(&c->ranks);
  for (int i = 0; i < c->n; i++) {
    if ((c->dead >> i & 1) == 0 && c->ranks.pid[i] == 0) {
      print_error("order %llu (kind %d, point %d), slot %d has ended; dead %x, victims %x\n",
                  (unsigned long long)c->number, (int)(get(ORDER) & 15), (int)get(POINT), i, c->dead, c->victims);
      ranks_wait(&c->ranks);
      fail();
    }
  }
}

static void await_all(churn *c, int first, int shift)
{
  for (int i = 0; i < c->n; i++) {
    while ((c->dead >> i & 1) == 0 && get(first + i) >> shift != c->number) {
      look(c);
    }
  }
}

static void give_order(churn *c, order_kind kind, bool take)
{
  c->victims = 0;
  put(VICTIMS, 0);
  put(DEAD, c->dead);
  put(OUT, c->dead);
  put(OLD, (uint64_t)c->old);
  put(SIZE, (uint64_t)c->count);
  for (int i = 0; i < c->count; i++) {
    put(PLACES + i, (uint64_t)c->slots[i]);
  }
  for (int i = 0; i < MOST * HELD; i++) {
    put(ANSWERS + i, 0);
  }
  c->ranks.limit = ranks_clock() + HANG * SLOWER;
  put(ORDER, ++c->number << 8 | (uint64_t)take << 4 | (uint64_t)kind);
}

// All living ranks have obeyed. True: all well.
static bool all_obeyed(churn *c)
{
  bool good = true;
  await_all(c, RESULT, 1);
  for (int i = 0; i < c->n; i++) {
    good &= (c->dead >> i & 1) != 0 || (get(RESULT + i) & 1) != 0;
  }
  return good;
}

static int living(const churn *c)
{
  return c->n - __builtin_popcount(c->dead);
}

// A living slot, but not the immortal one.
static int pick(const churn *c)
{
  int slot = (int)chance(c->n);
  while (((c->dead | c->victims) >> slot & 1) != 0 || slot == c->immortal) {
    slot = (slot + 1) % c->n;
  }
  return slot;
}

// Kills `count` ranks, at once.
static void strike(churn *c, point at, int count)
{
  int slots[2];
  for (int i = 0; i < count; i++) {
    slots[i] = pick(c);
    c->victims |= 1u << slots[i];
    add_sockets(c->ranks.pid[slots[i]], &c->left);
    put(DIED + slots[i], 0);
  }
  put(VICTIMS, c->victims);
  c->struck = seconds_now();
  for (int i = 0; i < count; i++) {
    c->dead |= 1u << slots[i];
    put(DIED + slots[i], ns_now());
    ranks_kill(&c->ranks, slots[i]);
  }
  for (int i = 0; i < count; i++) {
    assert_true(ranks_wait_one(&c->ranks, slots[i]));
  }
  put(DEAD, c->dead);
  c->kills += count;
  c->tallies[at].kills += count;
}

static void note_answers(churn *c, point at)
{
  double limit = at == AT_INITS || at == AT_GROWTH ? 1000 * (PATIENCE + 1) : 1000;
  for (int i = 0; i < MOST * HELD; i++) {
    double ms = (double)get(ANSWERS + i) / 1e6;
    if (ms > 0) {
      tally_add(&c->tallies[at], ms);
    }
    if (ms > limit) {
      print_message("late: %s, order %llu, slot %d, communicator %d: %.0f ms\n", point_names[at],
                    (unsigned long long)c->number, i / HELD, i % HELD, ms);
    }
  }
}

// How many ranks of the communicator live.
static int members(const churn *c)
{
  int n = 0;
  for (int i = 0; i < c->old; i++) {
    n += (c->dead >> c->slots[i] & 1) == 0;
  }
  return n;
}

static void work_and_die(churn *c)
{
  point at = (point)chance(WORKS);
  put(POINT, at);
  give_order(c, WORK, true);
  await_all(c, READY, 0);
  sleep_ms(chance(15));
  strike(c, at, living(c) > 3 && chance(5) < 1 ? 2 : 1);
  await_all(c, KNOWS, 0);
  put(TOLD, c->number);
  assert_true(all_obeyed(c));
  note_answers(c, at);
}

static bool any_dead(const churn *c)
{
  unsigned in = 0;
  for (int i = 0; i < c->count; i++) {
    in |= 1u << c->slots[i];
  }
  return (in & c->dead) != 0;
}

// Until the living ones have a communicator, which the next order takes. Some die in it. `take`: the last order's is
// taken first.
static void repair(churn *c, bool take)
{
  while (any_dead(c)) {
    give_order(c, SHRINK, take);
    unsigned out = c->dead;
    if (members(c) > 1 && chance(3) < 1) {
      sleep_ms(chance(5));
      strike(c, AT_REPAIR, 1);
    }
    take = all_obeyed(c);
    assert_true(take || c->victims != 0);
    note_answers(c, AT_REPAIR);
    int left = 0;
    for (int i = 0; i < c->count && take; i++) {
      if ((out >> c->slots[i] & 1) == 0) {
        c->slots[left++] = c->slots[i];
      }
    }
    c->old = c->count = take ? left : c->count;
  }
  tally_add(&c->tallies[RECOVERY], 1e3 * (seconds_now() - c->struck));
  c->tallies[RECOVERY].kills++;
}

// New processes in place of the dead ones, and those that could not join before, join. Some die in it. True: there is a
// grown communicator.
static bool refill(churn *c, bool take)
{
  unsigned in = 0;
  for (int i = 0; i < c->old; i++) {
    in |= 1u << c->slots[i];
  }
  put(MAKER, (uint64_t)c->slots[(int)chance(c->old)]);
  for (int i = 0; i < c->n; i++) {
    if ((c->dead >> i & 1) != 0) {
      put(RESULT + i, c->number << 1);
      ranks_start_one(&c->ranks, &c->job, i);
    }
    if ((in >> i & 1) == 0) {
      c->slots[c->count++] = i;
    }
  }
  c->dead = 0;
  give_order(c, GROW, take);
  if (members(c) > 1 && chance(4) < 1) {
    sleep_ms(chance(30));
    strike(c, AT_GROWTH, 1);
  }
  bool good = all_obeyed(c);
  assert_true(good || c->victims != 0);
  note_answers(c, AT_GROWTH);
  c->old = c->count = good ? c->n : c->old;
  return good;
}

// A job: processes that die and come anew, until so many have died.
static void churn_job(churn *c, int kills)
{
  bool ras = chance(2) < 1, some_live = chance(2) < 1;
  time_t since = time(NULL);
  const char *const env[] = {ras ? "NCCL_RAS_ENABLE=1" : "NCCL_RAS_ENABLE=0", NULL};
  c->job = (ranks_job){.n = c->n, .seconds = HANG, .fn = churn_body, .env = env};
  c->immortal = some_live ? (int)chance(c->n) : -1;
  c->number = c->dead = c->kills = 0;
  c->left.n = 0;
  c->old = c->count = c->n;
  for (int i = 0; i < c->n; i++) {
    c->slots[i] = i;
  }
  start_processes(&c->ranks, &c->job);
  give_order(c, FOUND, false);
  bool take = all_obeyed(c);
  assert_true(take);
  while (c->kills < kills) {
    work_and_die(c);
    for (take = false; !take || any_dead(c);) {
      if (any_dead(c)) {
        repair(c, take);
        take = true;
      }
      take = refill(c, take);
    }
  }
  for (int i = 0; i < c->n; i++) {
    add_sockets(c->ranks.pid[i], &c->left);
  }
  give_order(c, QUIT, true);
  assert_int_equal(ranks_wait(&c->ranks), 0);
  c->slowest_end = (double)get(SLOWEST_END) / 1e9 > c->slowest_end ? (double)get(SLOWEST_END) / 1e9 : c->slowest_end;
  board_close();
  assert_int_equal(c->ranks.left_behind, 0);
  expect_nothing_left(&c->left, since);
}

static int by_size(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void report(churn *c)
{
  print_message("%-31s %6s %7s %7s %7s %7s ms\n", "killed in", "kills", "answers", "p50", "p99", "max");
  for (int i = 0; i <= RECOVERY; i++) {
    tally *t = &c->tallies[i];
    if (t->n > 0) {
      qsort(t->ms, (size_t)t->n, sizeof *t->ms, by_size);
      print_message("%-31s %6d %7d %7.0f %7.0f %7.0f\n",
                    i == RECOVERY ? "until the survivors sum again" : point_names[i], t->kills, t->n, t->ms[t->n / 2],
                    t->ms[t->n * 99 / 100], t->ms[t->n - 1]);
      assert_true(i == AT_INITS || i == AT_GROWTH || t->n < 8 || t->ms[t->n / 2] < 1000 * SLOWER);
    }
    free(t->ms);
  }
  print_message("the slowest abort, revocation or destruction: %.0f ms\n", 1e3 * c->slowest_end);
}

static void kill_many(int n)
{
  tally tallies[RECOVERY + 1] = {{0}};
  churn c = {.n = n, .tallies = tallies};
  const char *text = getenv("CHURN_KILLS");
  int kills = text != NULL ? atoi(text) : SLOWER > 1 ? 6 : 16;
  for (int done = 0; done < kills; done += c.kills) {
    print_message("%d processes, %d killed, seed %u\n", n, done, seed);
    churn_job(&c, kills - done < PER_JOB ? kills - done : PER_JOB);
  }
  report(&c);
}

static void four(void **state)
{
  (void)state;
  kill_many(4);
}

static void eight(void **state)
{
  (void)state;
  kill_many(8);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(four), cmocka_unit_test(eight)};
  char patience[16];
  snprintf(patience, sizeof patience, "%d", PATIENCE * SLOWER);
  setenv("NCCL_BOOTSTRAP_TIMEOUT", patience, 1);
  seed = choose_seed(argc > 2 ? argv[2] : NULL);
  return RUN_TESTS("churn", tests, argc, argv);
}
