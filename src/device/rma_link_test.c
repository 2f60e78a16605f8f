// rma_link_test.c: messages of one-sided operations: what is written arrives as it was meant; what nobody could have
// meant writes nothing outside of a window.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/result.h"
#include "device/rma_link.h"

enum { WINDOW = 5000, GUARD = 4096, SIGNALS = 3, CONTEXTS = 2, GARBAGE = 20000 };

// Two ranks; a link from each to the other.
typedef struct end {
  tt_port port;
  tt_rma rma;
  tt_rma_peer peers[2];
  tt_board *board, *copy;
  tt_signal_row own, row;
  tt_rma_link link;
  char *fifo;
  char memory[GUARD + WINDOW + GUARD];
} end;

static end *end_open(int rank)
{
  end *e = tt_calloc_line(sizeof *e);
  assert_non_null(e);
  e->board = tt_calloc_line(sizeof *e->board);
  e->copy = tt_calloc_line(sizeof *e->copy);
  e->fifo = tt_calloc_line(tt_rma_fifo_bytes());
  e->link = (tt_rma_link){.peer = 1 - rank, .send = tt_rma_fifo(e->fifo)};
  e->link.known = tt_calloc(TT_WINDOWS, sizeof *e->link.known);
  assert_true(e->board != NULL && e->copy != NULL && e->fifo != NULL && e->link.known != NULL);
  pthread_mutex_init(&e->link.lock, NULL);
  e->port = (tt_port){.rank = rank, .nranks = 2, .page = &e->port.lone_page};
  e->peers[rank] = (tt_rma_peer){.board = e->board, .in = &e->own, .out = &e->own, .page = e->port.page};
  e->peers[1 - rank] = (tt_rma_peer){.networked = true, .board = e->copy, .in = &e->row};
  e->rma = (tt_rma){.port = &e->port, .contexts = CONTEXTS, .signals = SIGNALS, .board = e->board, .peers = e->peers};
  memset(e->memory, 7, sizeof e->memory);
  return e;
}

static void end_close(end *e)
{
  pthread_mutex_destroy(&e->link.lock);
  tt_free(e->link.known);
  tt_free(e->fifo);
  tt_free(e->copy);
  tt_free(e->board);
  tt_free(e);
}

static void open_window(end *e, uint64_t number)
{
  const tt_window_note note = {.base = (uintptr_t)e->memory + GUARD, .size = WINDOW};
  assert_true(tt_board_open(&e->rma, &note, number));
}

// Hands the messages of `from` to `to`. The first error counts.
static ncclResult_t carry(end *from, end *to)
{
  tt_fifo recv = tt_rma_fifo(from->fifo);
  ncclResult_t res = ncclSuccess;
  for (recv.next = *recv.head; tt_fifo_arrived(&recv); tt_fifo_release(&recv)) {
    tt_slot *s = tt_fifo_slot(&recv);
    const char *payload = s->elsewhere != 0 ? (const char *)(uintptr_t)s->elsewhere : tt_fifo_data(&recv);
    s->elsewhere = 0;
    ncclResult_t r = tt_rma_take(&to->rma, &to->link, s, payload);
    res = res == ncclSuccess ? r : res;
  }
  return res;
}

static void tell(end *from, end *to)
{
  while (tt_rma_link_owes(&from->rma, &from->link)) {
    tt_rma_link_tell(&from->rma, &from->link);
    assert_int_equal(carry(from, to), ncclSuccess);
  }
}

static void assert_guards(const end *e)
{
  for (int i = 0; i < GUARD; i++) {
    assert_int_equal(e->memory[i], 7);
    assert_int_equal(e->memory[GUARD + WINDOW + i], 7);
  }
}

static tt_rma_op put_of(const char *from, size_t bytes, uint64_t offset)
{
  return (tt_rma_op){.peer = 1, .ctx = 1, .sig = 2, .window = 1, .offset = offset, .from = from, .bytes = bytes};
}

static void puts_arrive(void **state)
{
  end *a = end_open(0), *b = end_open(1);
  tt_window_note note;
  char data[WINDOW];
  (void)state;
  memset(data, 9, sizeof data);
  assert_int_equal(tt_board_find(a->copy, 1, &note), 0);
  open_window(b, 1);
  tell(b, a);
  assert_int_equal(tt_board_find(a->copy, 1, &note), 1);
  assert_int_equal(note.size, WINDOW);
  static const size_t sizes[] = {0, 1, 4999, WINDOW};
  for (size_t i = 0; i < TT_COUNT(sizes); i++) {
    tt_rma_op op = put_of(data, sizes[i], WINDOW - sizes[i]);
    tt_rma_link_put(&a->rma, &a->link, &op);
    assert_true(op.passed && op.bytes == 0 && !op.lent && !tt_rma_link_idle(&a->link));
    assert_int_equal(carry(a, b), ncclSuccess);
    assert_true(tt_rma_link_idle(&a->link));
    assert_int_equal(b->row.count[1 * SIGNALS + 2], i + 1);
    assert_memory_equal(b->memory + GUARD + WINDOW - sizes[i], data, sizes[i]);
    assert_guards(b);
  }
  tt_board_close(&b->rma, 1);
  tell(b, a);
  assert_int_equal(tt_board_find(a->copy, 1, &note), -1);
  end_close(a);
  end_close(b);
}

// More than the FIFO takes at once: it goes on when there is room, and counts one signal.
static void large_puts_come_in_pieces(void **state)
{
  enum { LARGE = 11 * TT_RMA_SLOT_BYTES + 13 };
  end *a = end_open(0), *b = end_open(1);
  char *data = tt_calloc(1, LARGE), *to = tt_calloc(1, LARGE);
  (void)state;
  assert_true(data != NULL && to != NULL);
  for (size_t i = 0; i < LARGE; i++) {
    data[i] = (char)(i * 7 + i / 4096);
  }
  assert_true(tt_board_open(&b->rma, &(tt_window_note){.base = (uintptr_t)to, .size = LARGE}, 1));
  tell(b, a);
  tt_rma_op op = put_of(data, LARGE, 0);
  tt_rma_link_put(&a->rma, &a->link, &op);
  assert_true(!op.passed && op.lent && op.bytes == LARGE - TT_RMA_SLOTS * TT_RMA_SLOT_BYTES);
  assert_int_equal(carry(a, b), ncclSuccess);
  assert_int_equal(b->row.count[1 * SIGNALS + 2], 0);
  tt_rma_link_put(&a->rma, &a->link, &op);
  assert_true(op.passed);
  assert_int_equal(carry(a, b), ncclSuccess);
  assert_int_equal(b->row.count[1 * SIGNALS + 2], 1);
  assert_memory_equal(to, data, LARGE);
  tt_free(data);
  tt_free(to);
  end_close(a);
  end_close(b);
}

// The window goes, or never was so large, and the sender does not know: its port hears of it, and nothing is written.
static void refused_puts_come_back(void **state)
{
  char data[WINDOW] = {0};
  (void)state;
  for (int closed = 0; closed < 2; closed++) {
    end *a = end_open(0), *b = end_open(1);
    open_window(b, 1);
    tell(b, a);
    if (closed) {
      tt_board_close(&b->rma, 1);
    }
    tt_rma_op op = put_of(data, closed ? 10 : WINDOW, closed ? 0 : 1);
    tt_rma_link_put(&a->rma, &a->link, &op);
    assert_int_equal(carry(a, b), ncclSuccess);
    assert_true(tt_rma_link_owes(&b->rma, &b->link));
    assert_int_equal(b->row.count[1 * SIGNALS + 2], 0);
    assert_true(tt_rma_link_tell(&b->rma, &b->link));
    assert_int_equal(carry(b, a), ncclInvalidUsage);
    assert_non_null(strstr(tt_last_error(), closed ? "window 1 of rank 1, which has deregistered it"
                                                   : "5000 bytes at offset 1 of window 1 of rank 1"));
    assert_int_equal(b->memory[GUARD], 7);
    assert_guards(b);
    end_close(a);
    end_close(b);
  }
}

// All windows that there can be are told, in several messages.
static void many_windows_are_told(void **state)
{
  end *a = end_open(0), *b = end_open(1);
  tt_window_note note;
  (void)state;
  for (uint64_t i = 1; i <= TT_WINDOWS; i++) {
    open_window(b, i);
  }
  tell(b, a);
  for (uint64_t i = 1; i <= TT_WINDOWS; i++) {
    assert_int_equal(tt_board_find(a->copy, i, &note), 1);
  }
  tt_board_close(&b->rma, 3);
  open_window(b, 3 + TT_WINDOWS); // in the same place
  tell(b, a);
  assert_int_equal(tt_board_find(a->copy, 3, &note), -1);
  assert_int_equal(tt_board_find(a->copy, 3 + TT_WINDOWS, &note), 1);
  end_close(a);
  end_close(b);
}

static uint64_t any_number(void)
{
  static const uint64_t odd[] = {0, 1, 2, WINDOW - 1, WINDOW, WINDOW + 1, TT_WINDOWS, UINT64_MAX, UINT64_MAX - 4096};
  return rand() % 2 == 0 ? odd[(size_t)rand() % TT_COUNT(odd)] : (uint64_t)rand() % (2 * WINDOW);
}

// Any bytes: an error, or a put into the window. Nothing outside, whatever they say.
static void garbage_stays_inside(void **state)
{
  end *b = end_open(1);
  char *payload = tt_calloc(1, TT_RMA_SLOT_BYTES);
  (void)state;
  assert_non_null(payload);
  open_window(b, 1);
  srand(4711);
  for (int i = 0; i < GARBAGE; i++) {
    tt_slot s = {.bytes = (uint32_t)any_number(), .sig = rand() % 16 == 0 ? any_number() : TT_RMA_SIG};
    tt_rma_head h = {.kind = (uint16_t)(rand() % 6),
                     .ctx = (uint16_t)(rand() % 4),
                     .sig = (uint16_t)(rand() % 5),
                     .closed = (uint16_t)(rand() % 3),
                     .window = any_number(),
                     .offset = any_number(),
                     .bytes = any_number()};
    memcpy(s.data, &h, sizeof h);
    for (int k = 0; k < 64; k++) {
      payload[k] = (char)rand();
    }
    ncclResult_t res = tt_rma_take(&b->rma, &b->link, &s, payload);
    assert_true(res == ncclSuccess || res == ncclRemoteError || res == ncclInvalidUsage);
    assert_guards(b);
    assert_int_equal(b->row.writing, 0);
  }
  tt_free(payload);
  end_close(b);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(puts_arrive), cmocka_unit_test(large_puts_come_in_pieces),
                                     cmocka_unit_test(refused_puts_come_back), cmocka_unit_test(many_windows_are_told),
                                     cmocka_unit_test(garbage_stays_inside)};
  return cmocka_run_group_tests_name("rma_link", tests, NULL, NULL);
}
