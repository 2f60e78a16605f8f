// deadlock.c: nothing goes on in any process that shares the devices, for a while: who waits for what.
#include <inttypes.h>
#include <stdio.h>

#include "sim.h"

enum { LOOK_MS = 20 }; // a look comes sooner after the one before, if the scheduler has its turn

static struct {
  double since, last, published;
  uint64_t sum;
} look;

struct list {
  struct box_wait wait[BOX_WAITS];
  int count;
};

static struct box_wait *add_wait(struct list *list)
{
  static struct box_wait none;
  return list->count < BOX_WAITS ? &list->wait[list->count++] : &none;
}

static void list_item(struct list *list, const struct sim_item *item)
{
  const struct sim_stream *stream = item->op->stream;
  char what[160];
  struct box_wait *wait = add_wait(list);
  int behind = 0;
  for (const struct sim_op *op = item->op->next_in_stream; op != NULL; op = op->next_in_stream) {
    behind++;
  }
  sim_work_text(item, what, sizeof what);
  snprintf(wait->text, sizeof wait->text, "device %d, stream %llu: waits for %s%s; %d operations behind it",
           stream->context->device->ordinal, stream->id, what, item->op->nitems > 0 ? " (in a graph)" : "", behind);
  wait->file = sim_work_word(item, &wait->offset);
}

// The first operation of a stream.
static void list_op(struct list *list, const struct sim_op *op)
{
  const struct sim_stream *stream = op->stream;
  const struct sim_op *first = stream->context->device->queue[stream->queue].first;
  if (first != op) {
    struct box_wait *wait = add_wait(list);
    wait->file = 0;
    snprintf(wait->text, sizeof wait->text,
             "device %d, stream %llu: stands in hardware queue %d behind stream %llu, though it does not depend on it",
             stream->context->device->ordinal, stream->id, stream->queue, first->stream->id);
    return;
  }
  if (op->work.kind != SIM_LAUNCH) {
    list_item(list, &op->item);
    return;
  }
  for (size_t i = 0; i < op->nitems; i++) {
    if (!op->items[i].done && op->items[i].left == 0) {
      list_item(list, &op->items[i]);
    }
  }
}

static void list_waits(struct list *list)
{
  list->count = 0;
  for (int d = 0; d < sim.modes.devices; d++) {
    const struct sim_context *context = sim.device[d].primary;
    for (const struct sim_stream *s = context != NULL ? context->streams : NULL; s != NULL; s = s->next) {
      if (s->first != NULL) {
        list_op(list, s->first);
      }
    }
  }
  for (const struct sim_waiter *waiter = sim.waiters; waiter != NULL; waiter = waiter->next) {
    struct box_wait *wait = add_wait(list);
    wait->file = 0;
    snprintf(wait->text, sizeof wait->text, "a thread in %s waits for %s", waiter->call, waiter->what);
  }
}

static void give_up(void)
{
  if (box_report()) {
    sim_say("deadlock: no stream of any process has gone on for %ld ms; nothing that runs can write the words above",
            sim.modes.deadlock_ms);
  }
  sim.stuck = true;
  for (int d = 0; d < sim.modes.devices; d++) {
    if (sim.device[d].primary != NULL) {
      sim_context_fail(sim.device[d].primary, CUDA_ERROR_LAUNCH_TIMEOUT, "given up in a deadlock");
    }
  }
  sim_changed();
}

// Time without looks is none without progress: this process was stopped, or had no turn on a busy machine.
static void leave_gap_out(double now)
{
  if (now - look.last > LOOK_MS) {
    look.since += now - look.last - LOOK_MS;
  }
  look.last = now;
}

void sim_deadlock_look(bool work)
{
  static struct list list;
  uint64_t sum = 0;
  double now = sim_now_ms();
  leave_gap_out(now);
  if (now - look.published >= 5) {
    look.published = now;
    list_waits(&list);
    box_waits(list.wait, list.count);
    box_state(work, true, sim.progress);
  }
  if (!box_all_blocked(&sum) || sum != look.sum) {
    look.since = now;
    look.sum = sum;
  } else if (work && !sim.stuck && sim.modes.deadlock_ms > 0 && now - look.since > (double)sim.modes.deadlock_ms) {
    list_waits(&list);
    box_waits(list.wait, list.count);
    give_up();
  }
}
