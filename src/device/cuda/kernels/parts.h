// parts.h: what all kernels have in common: the parts of a step before and behind its data.
#pragma once
#include "kernels.h"
#include "gpu.h"
#include "span.h"

#define AT(base, type, number, member) ((base) + (uint64_t)(number) * sizeof(type) + __builtin_offsetof(type, member))

// ---- Resolve ----

// The bits of a scalar of `bytes` bytes.
TT_INLINE uint64_t scalar_at(uint64_t at, uint32_t bytes)
{
  switch (bytes) {
  case 1: return gpu_load1(at);
  case 2: return gpu_load2(at);
  case 4: return gpu_load4(at);
  default: return gpu_load8(at);
  }
}

// Where this rank has `bytes` bytes at `address` of the peer's process, in its allocation `handle`; 0: nowhere.
TT_INLINE uint64_t map_find(uint64_t maps, uint32_t handle, uint64_t address, uint64_t bytes)
{
  if (maps == 0) {
    return address;
  }
  for (uint64_t m = maps; gpu_load4(AT(m, tt_cuda_map, 0, handle)) != 0; m += sizeof(tt_cuda_map)) {
    const uint64_t offset = address - gpu_load8(AT(m, tt_cuda_map, 0, remote)),
                   size = gpu_load8(AT(m, tt_cuda_map, 0, bytes));
    if (gpu_load4(AT(m, tt_cuda_map, 0, handle)) == handle && offset <= size && bytes <= size - offset) {
      return gpu_load8(AT(m, tt_cuda_map, 0, here)) + offset;
    }
  }
  return 0;
}

// Has the header arrived, of the same call? The stream has waited for it before this launch, so that all of it is here;
// if not, the stream was released to stop.
TT_INLINE uint32_t header_fault(tt_cuda_call call, uint64_t slot, uint32_t seq)
{
  if (gpu_look(AT(slot, tt_cuda_slot, 0, seq)) != seq) {
    return TT_CUDA_NOT_THERE;
  }
  const uint64_t sig = gpu_load8(AT(slot, tt_cuda_slot, 0, sig)), count = gpu_load8(AT(slot, tt_cuda_slot, 0, count));
  const bool same = sig == call.sig && ((count ^ call.count) & ~TT_CUDA_DECIDED) == 0;
  return same ? TT_CUDA_FINE : TT_CUDA_MISMATCH;
}

// The peer's token has arrived: finds the operand in its buffer.
TT_INLINE uint64_t peer_operand(uint64_t ref, uint64_t slot, uint32_t where)
{
  const bool out = where == TT_CUDA_PEER_OUT;
  const uint64_t base = gpu_load8(out ? AT(slot, tt_cuda_slot, 0, out) : AT(slot, tt_cuda_slot, 0, in));
  const uint32_t handle = gpu_load4(out ? AT(slot, tt_cuda_slot, 0, out_mem) : AT(slot, tt_cuda_slot, 0, in_mem));
  return map_find(gpu_load8(AT(ref, tt_cuda_ref, 0, maps)), handle, base + gpu_load8(AT(ref, tt_cuda_ref, 0, at)),
                  gpu_load8(AT(ref, tt_cuda_ref, 0, bytes)));
}

// Tells the peers whose memory the step uses that it is about to. A peer that had ended before is seen to have
// (resolve_one), and one that ends later sees this.
TT_INLINE void resolve_uses(tt_cuda_resolve r)
{
  bool any = false;
  for (uint32_t i = gpu_thread(); i < r.nrefs; i += gpu_threads()) {
    const uint64_t line = gpu_load8(AT(r.refs, tt_cuda_ref, i, line));
    if (line != 0) {
      gpu_mark(AT(line, tt_cuda_line, 0, uses), 1);
      any = true;
    }
  }
  if (any) {
    gpu_fence();
  }
}

// The token lies on.
TT_INLINE void token_keep(uint64_t slot, uint64_t to)
{
  for (uint32_t i = 0; i < sizeof(tt_cuda_slot); i += sizeof(uint64_t)) {
    gpu_store8(to + i, gpu_load8(slot + i));
  }
}

// Finds one operand, and writes it. Returns what is wrong with it.
TT_INLINE uint32_t resolve_one(tt_cuda_step r, uint32_t i)
{
  const uint64_t ref = AT(r.resolve.refs, tt_cuda_ref, i, at), slot = gpu_load8(AT(ref, tt_cuda_ref, 0, slot));
  const uint32_t where = gpu_load1(AT(ref, tt_cuda_ref, 0, where)), scaled = gpu_load1(AT(ref, tt_cuda_ref, 0, scaled));
  const uint64_t line = gpu_load8(AT(ref, tt_cuda_ref, 0, line));
  uint32_t fault =
      slot == 0 ? (uint32_t)TT_CUDA_FINE : header_fault(r.call, slot, gpu_load4(AT(ref, tt_cuda_ref, 0, seq)));
  if (fault != TT_CUDA_MISMATCH && line != 0 && gpu_look(AT(line, tt_cuda_line, 0, ended)) != 0) {
    fault = TT_CUDA_ENDED;
  }
  const uint64_t keep = gpu_load8(AT(ref, tt_cuda_ref, 0, keep));
  if (fault == TT_CUDA_FINE && keep != 0) {
    token_keep(slot, keep);
  }
  uint64_t at = gpu_load8(AT(ref, tt_cuda_ref, 0, at)), scalar = 0;
  if (fault == TT_CUDA_FINE && where != TT_CUDA_AT) {
    at = peer_operand(ref, slot, where);
    fault = at == 0 ? TT_CUDA_UNMAPPED : TT_CUDA_FINE;
    scalar = gpu_load8(AT(slot, tt_cuda_slot, 0, scalar));
  } else if (where == TT_CUDA_AT && scaled != 0) {
    scalar = scalar_at(gpu_load8(AT(ref, tt_cuda_ref, 0, scalar)), r.resolve.scalar_bytes);
  }
  gpu_store8(AT(r.operands, tt_cuda_operand, i, at), at);
  gpu_store8(AT(r.operands, tt_cuda_operand, i, scalar), scalar);
  gpu_store8(AT(r.operands, tt_cuda_operand, i, lines), gpu_load8(AT(ref, tt_cuda_ref, 0, lines)));
  gpu_store4(AT(r.operands, tt_cuda_operand, i, scaled), scaled);
  gpu_store4(AT(r.operands, tt_cuda_operand, i, fault), fault);
  return fault;
}

// Reports the first fault among the operands, if the port has none yet: a peer that has stopped is none if there is
// another one, which may be why it has.
TT_INLINE void fault_report(tt_cuda_step r)
{
  if (gpu_claim(AT(r.port.fault, tt_cuda_fault, 0, claimed)) != 0) {
    return;
  }
  uint32_t first = 0, code = TT_CUDA_FINE;
  for (uint32_t i = 0; i < r.resolve.nrefs && (code == TT_CUDA_FINE || code == TT_CUDA_ENDED); i++) {
    const uint32_t its = gpu_load4(AT(r.operands, tt_cuda_operand, i, fault));
    if (its != TT_CUDA_FINE && its != code) {
      first = i;
      code = its;
    }
  }
  const uint64_t ref = AT(r.resolve.refs, tt_cuda_ref, first, at), slot = gpu_load8(AT(ref, tt_cuda_ref, 0, slot));
  const bool out = gpu_load1(AT(ref, tt_cuda_ref, 0, where)) == TT_CUDA_PEER_OUT;
  const bool lines = gpu_load8(AT(ref, tt_cuda_ref, 0, lines)) != 0;
  const uint64_t call = lines ? gpu_load8(AT(ref, tt_cuda_ref, 0, at)) : AT(slot, tt_cuda_slot, 0, sig);
  uint64_t sig = gpu_look8(AT(call, tt_cuda_call, 0, sig)), count = gpu_look8(AT(call, tt_cuda_call, 0, count));
  if (code == TT_CUDA_UNMAPPED) {
    sig = gpu_load4(out ? AT(slot, tt_cuda_slot, 0, out_mem) : AT(slot, tt_cuda_slot, 0, in_mem));
    count = gpu_load8(out ? AT(slot, tt_cuda_slot, 0, out) : AT(slot, tt_cuda_slot, 0, in));
  }
  gpu_store4(AT(r.port.fault, tt_cuda_fault, 0, peer), gpu_load4(AT(ref, tt_cuda_ref, 0, peer)));
  gpu_store8(AT(r.port.fault, tt_cuda_fault, 0, sig), sig);
  gpu_store8(AT(r.port.fault, tt_cuda_fault, 0, count), count);
  gpu_store8(AT(r.port.fault, tt_cuda_fault, 0, own_sig), r.call.sig);
  gpu_store8(AT(r.port.fault, tt_cuda_fault, 0, own_count), r.call.count);
  gpu_release(AT(r.port.fault, tt_cuda_fault, 0, code), code);
}

// Must the launch do nothing? One thread asks.
TT_INLINE bool step_halted(tt_cuda_step s)
{
  if (gpu_look(s.port.stop) != 0) {
    return true;
  }
  const bool resolved = s.resolve.nrefs == 0 && s.port.go != 0;
  return resolved ? gpu_look(s.port.go) == 0 : gpu_look(s.port.fault) != 0;
}

// The first part. May the step go on? All threads of the CTA ask, and get the same answer. `stopped`: this thread has
// found that it must not.
TT_INLINE bool step_begin(tt_cuda_step s, bool stopped)
{
  bool wrong = gpu_any(stopped || (gpu_thread() == 0 && step_halted(s)));
  if (s.resolve.nrefs == 0) {
    return !wrong;
  }
  const bool halted = wrong;
  if (!halted) {
    resolve_uses(s.resolve);
  }
  for (uint32_t i = gpu_thread(); i < s.resolve.nrefs && !halted; i += gpu_threads()) {
    wrong |= resolve_one(s, i) != TT_CUDA_FINE;
  }
  wrong = gpu_any(wrong);
  if (gpu_thread() == 0) {
    if (wrong && !halted) {
      fault_report(s);
    }
    gpu_store4(s.port.go, !wrong);
  }
  return !wrong;
}

// ---- Arrive and post ----

// Writes what every header has, or a word alone, and hands it over: whoever sees the number sees all that was written
// before.
TT_INLINE void post_one(tt_cuda_call call, tt_cuda_posts p, uint32_t i)
{
  const uint64_t at = gpu_load8(AT(p.posts, tt_cuda_post, i, at));
  const uint32_t seq = gpu_load4(AT(p.posts, tt_cuda_post, i, seq));
  const uint64_t clear = gpu_load8(AT(p.posts, tt_cuda_post, i, clear));
  if (clear != 0) {
    gpu_store4(clear, 0);
  }
  if (gpu_load4(AT(p.posts, tt_cuda_post, i, word)) == 0) {
    gpu_store4(AT(at, tt_cuda_slot, 0, bytes), gpu_load4(AT(p.posts, tt_cuda_post, i, bytes)));
    gpu_store8(AT(at, tt_cuda_slot, 0, sig), call.sig);
    gpu_store8(AT(at, tt_cuda_slot, 0, count), call.count);
  }
  if (gpu_load4(AT(p.posts, tt_cuda_post, i, plain)) != 0) {
    gpu_mark(at, seq);
  } else {
    gpu_release(at, seq); // `seq` is a header's first word
  }
}

TT_INLINE void token_write(uint64_t slot, tt_cuda_arrive a, uint64_t scalar)
{
  gpu_store8(AT(slot, tt_cuda_slot, 0, in), a.in);
  gpu_store8(AT(slot, tt_cuda_slot, 0, out), a.out);
  gpu_store4(AT(slot, tt_cuda_slot, 0, in_mem), a.in_mem);
  gpu_store4(AT(slot, tt_cuda_slot, 0, out_mem), a.out_mem);
  gpu_store8(AT(slot, tt_cuda_slot, 0, scalar), scalar);
  gpu_store4(AT(slot, tt_cuda_slot, 0, freed), a.freed);
  gpu_store4(AT(slot, tt_cuda_slot, 0, along), 0);
}

// The last part. The data that the CTA has made is there before a peer hears of it. If the step did not go on, what it
// gives up all the same.
TT_INLINE void step_end(tt_cuda_step s, bool went_on)
{
  const tt_cuda_arrive a = s.arrive;
  const uint32_t ntokens = went_on ? a.to.nposts : 0;
  if (s.post.nposts + ntokens == 0) {
    return;
  }
  gpu_any(false);
  for (uint32_t i = gpu_thread(); i < s.post.nposts; i += gpu_threads()) {
    if (went_on || gpu_load4(AT(s.post.posts, tt_cuda_post, i, halted)) != 0) {
      post_one(s.call, s.post, i);
    }
  }
  const uint64_t scalar = a.scalar_at == 0 || ntokens == 0 ? a.scalar : scalar_at(a.scalar_at, a.scalar_bytes);
  for (uint32_t i = gpu_thread(); i < ntokens; i += gpu_threads()) {
    token_write(gpu_load8(AT(a.to.posts, tt_cuda_post, i, at)), a, scalar);
    post_one(s.call, a.to, i);
  }
}

// Writes the time, if somebody wants to know it.
TT_INLINE void step_time(uint64_t at)
{
  if (at != 0 && gpu_thread() == 0) {
    gpu_mark8(at, gpu_time());
  }
}

#ifdef TT_WALK
// ---- Walks ----

// Shows the host where the walk stands: at the item's waits, or (0) at none.
TT_INLINE void walk_show(uint64_t item, uint32_t stands)
{
  const uint64_t place = gpu_load8(AT(item, tt_cuda_item, 0, place));
  if (place != 0 && gpu_thread() == 0) {
    gpu_mark(place, stands);
  }
}

// Waits until all words are as far, or the port stops: then every step of the walk does nothing. Returns whether this
// thread waits no longer because of a stop. The barrier behind it is that of step_begin. That before it: another thread
// may have put a word back in the step before (post_one).
TT_INLINE bool walk_wait(uint64_t stop, uint64_t waits, uint32_t n)
{
  bool stopped = false;
  if (n > 0) {
    gpu_any(false);
  }
  for (uint32_t i = gpu_thread(); i < n; i += gpu_threads()) {
    const uint64_t at = gpu_load8(AT(waits, tt_cuda_wait, i, at));
    const uint32_t value = gpu_load4(AT(waits, tt_cuda_wait, i, value));
    while (!stopped && (int32_t)(gpu_acquire(at) - value) < 0) {
      stopped = gpu_look(stop) != 0;
    }
  }
  return stopped;
}

// The step has messages in lines: has it taken and sent all of them? All threads of the CTA ask. `come`: this thread's
// part. If not, the port has stopped, or some message is of another call.
TT_INLINE bool walk_lines(tt_cuda_step s, bool come)
{
  if (!gpu_any(!come)) {
    return true;
  }
  bool wrong = false;
  for (uint32_t i = 0; i < s.combine.nsrc && gpu_thread() == 0; i++) {
    const uint64_t flag = gpu_load8(AT(s.operands, tt_cuda_operand, i, lines)),
                   line = gpu_load8(AT(s.operands, tt_cuda_operand, i, at));
    const uint64_t its = flag == 0 ? 0 : gpu_look8(line + TT_CUDA_LINE_DATA);
    if ((uint32_t)its == (uint32_t)flag && its >> 32 != 0 && its != flag) {
      gpu_store4(AT(s.operands, tt_cuda_operand, i, fault), TT_CUDA_MISMATCH);
      wrong = true;
    }
  }
  if (wrong) {
    fault_report(s);
  }
  return false;
}

// So many CTAs have come, and see what all have written, from the next barrier on, which each step begins with.
TT_INLINE void walk_meet(uint64_t meet, uint64_t number)
{
  gpu_any(false);
  if (gpu_thread() == 0) {
    gpu_release_add8(meet, 1);
    while (gpu_acquire8(meet) < number) {
    }
  }
}

// Tells a group that waits for the item that it is over. The first CTA of the group does, whose threads see what the
// others have written.
TT_INLINE void walk_over(uint64_t item)
{
  const uint64_t over = gpu_load8(AT(item, tt_cuda_item, 0, over));
  if (over == 0) {
    return;
  }
  gpu_any(false);
  if (gpu_thread() == 0) {
    gpu_release(over, gpu_load4(AT(item, tt_cuda_item, 0, number)));
  }
}

// The first item of the CTA's group.
TT_INLINE uint64_t walk_first(tt_cuda_walk w)
{
  return gpu_load8(w.first + gpu_cta() / w.ctas * sizeof(uint64_t));
}

// A kernel whose argument is lists of items. Of the data it makes what MAKE does, or a copy.
#define TT_STEP(NAME, MAKE)                                                                     \
  TT_KERNEL NAME(const tt_cuda_walk w)                                                          \
  {                                                                                             \
    const uint32_t cta = gpu_cta() % w.ctas;                                                    \
    uint64_t meetings = 0;                                                                      \
    for (uint64_t at = walk_first(w); at != 0; at = gpu_load8(AT(at, tt_cuda_item, 0, next))) { \
      const uint64_t meet = gpu_load8(AT(at, tt_cuda_item, 0, meet));                           \
      if (meet != 0) {                                                                          \
        walk_meet(meet, ++meetings *w.ctas);                                                    \
      }                                                                                         \
      if (meet != 0 || cta == 0) {                                                              \
        tt_cuda_step s = *(const tt_cuda_step *)at;                                             \
        s.combine.cta = cta;                                                                    \
        s.combine.ctas = meet != 0 ? w.ctas : 1;                                                \
        walk_show(at, gpu_load4(AT(at, tt_cuda_item, 0, stands)));                              \
        const bool stopped = walk_wait(s.port.stop, gpu_load8(AT(at, tt_cuda_item, 0, waits)),  \
                                       gpu_load4(AT(at, tt_cuda_item, 0, nwaits)));             \
        bool goes_on = step_begin(s, stopped), come = true;                                     \
        walk_show(at, 0);                                                                       \
        step_time(goes_on ? s.start : 0);                                                       \
        if (goes_on && s.combine.count + s.combine.lines > 0) {                                 \
          const bool copies = gpu_load4(AT(at, tt_cuda_item, 0, copies)) != 0;                  \
          come = copies ? span_copy(span_of(s)) : MAKE(s);                                      \
        }                                                                                       \
        goes_on = goes_on && (s.combine.lines == 0 || walk_lines(s, come));                     \
        step_end(s, goes_on);                                                                   \
        step_time(goes_on ? s.stop : 0);                                                        \
      }                                                                                         \
      if (meet != 0) {                                                                          \
        walk_meet(meet, ++meetings *w.ctas);                                                    \
      }                                                                                         \
      if (cta == 0) {                                                                           \
        walk_over(at);                                                                          \
      }                                                                                         \
    }                                                                                           \
  }
#else
// A kernel of which only MAKE, what makes the data, differs from others.
#define TT_STEP(NAME, MAKE)                    \
  TT_KERNEL NAME(const tt_cuda_step s)         \
  {                                            \
    const bool goes_on = step_begin(s, false); \
    step_time(goes_on ? s.start : 0);          \
    if (goes_on && s.combine.count > 0) {      \
      MAKE(s);                                 \
    }                                          \
    step_end(s, goes_on);                      \
    step_time(goes_on ? s.stop : 0);           \
  }
#endif
