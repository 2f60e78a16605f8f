// relax.h: what a thread does between two looks at memory that another one will write.
#pragma once

// Lets the core rest for some dozen cycles, where the processor can do that.
static inline void tt_cpu_relax(void)
{
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}
