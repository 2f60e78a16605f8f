// one_sided.cu: the module of one-sided operations: put, signal, take (kernels.h).
#include "kernels.h"
#include "span.h"

#define FAULT(base, member) ((base) + __builtin_offsetof(tt_cuda_fault, member))

TT_INLINE bool port_stands(tt_cuda_port p)
{
  return gpu_look(p.stop) != 0 || gpu_look(p.fault) != 0;
}

// Counts the CTA in, if the window is open. Its owner closes it first, and then waits until nobody is counted: so
// either the owner sees the count, or this sees that it is closed. Called by one thread.
TT_INLINE bool put_begins(tt_cuda_put p)
{
  if (port_stands(p.port)) {
    return false;
  }
  gpu_add8(p.writing, 1);
  gpu_fence();
  if (gpu_look8(p.open) == p.number) {
    return true;
  }
  gpu_add8(p.writing, ~(uint64_t)0);
  if (gpu_claim(FAULT(p.port.fault, claimed)) == 0) {
    gpu_store4(FAULT(p.port.fault, peer), (uint32_t)p.peer);
    gpu_store8(FAULT(p.port.fault, sig), p.number);
    gpu_release(FAULT(p.port.fault, code), TT_CUDA_SHUT);
  }
  return false;
}

// Between two operands.
TT_INLINE void move(uint64_t operands, uint64_t first, uint64_t count)
{
  tt_span s;
  s.operands = operands;
  s.first = first;
  s.count = count;
  s.nsrc = s.ndst = 1;
  s.kind = s.cta = s.ctas = s.lines = 0;
  span_copy(s);
}

TT_KERNEL put(const tt_cuda_put p)
{
  bool stands = false;
  if (gpu_thread() == 0) {
    stands = !put_begins(p);
  }
  if (gpu_any(stands)) {
    return;
  }
  move(p.operands, p.first, p.count);
  gpu_any(false); // all threads of the CTA have written
  if (gpu_thread() == 0) {
    gpu_release_add8(p.writing, ~(uint64_t)0);
  }
}

TT_KERNEL take(const tt_cuda_take t)
{
  bool stands = false;
  if (gpu_thread() == 0) {
    stands = port_stands(t.port);
  }
  if (gpu_any(stands)) {
    return;
  }
  const uint64_t list = gpu_load8(t.list);
  const uint32_t n = gpu_load4(t.list + sizeof(uint64_t));
  for (uint32_t i = 0; i < n; i++) {
    const uint64_t payload = list + (uint64_t)i * sizeof(tt_cuda_payload);
    move(payload, 0, gpu_load8(payload + __builtin_offsetof(tt_cuda_payload, bytes)));
    gpu_any(false); // the next one may lie over it
  }
}

TT_KERNEL signal(const tt_cuda_signal s)
{
  if (gpu_thread() != 0 || port_stands(s.port)) {
    return;
  }
  gpu_release8(s.count, s.value);
  gpu_release(s.turn, s.over);
}
