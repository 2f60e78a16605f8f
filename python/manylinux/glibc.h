// glibc.h: included before every source of a wheel on x86-64 (-include), so that the wheel also loads with glibc 2.28.
// Functions of which glibc has had a newer version since then are taken in their older one. The versions differ in
// nothing that the library uses: nearly all functions were only moved from libpthread and libdl to libc.
#pragma once

#define TT_FIRST_VERSION(name, version) __asm__(".symver " #name "," #name "@GLIBC_" #version)

TT_FIRST_VERSION(dladdr, 2.2.5); // moved in 2.34
TT_FIRST_VERSION(dladdr1, 2.3.3);
TT_FIRST_VERSION(dlclose, 2.2.5);
TT_FIRST_VERSION(dlerror, 2.2.5);
TT_FIRST_VERSION(dlinfo, 2.3.3);
TT_FIRST_VERSION(dlopen, 2.2.5);
TT_FIRST_VERSION(dlsym, 2.2.5);
TT_FIRST_VERSION(pthread_condattr_setclock, 2.3.3);
TT_FIRST_VERSION(pthread_create, 2.2.5);
TT_FIRST_VERSION(pthread_detach, 2.2.5);
TT_FIRST_VERSION(pthread_getspecific, 2.2.5);
TT_FIRST_VERSION(pthread_join, 2.2.5);
TT_FIRST_VERSION(pthread_key_create, 2.2.5);
TT_FIRST_VERSION(pthread_mutex_trylock, 2.2.5);
TT_FIRST_VERSION(pthread_once, 2.2.5);
TT_FIRST_VERSION(pthread_setname_np, 2.12);
TT_FIRST_VERSION(pthread_setspecific, 2.2.5);
TT_FIRST_VERSION(pthread_sigmask, 2.2.5); // moved in 2.32
TT_FIRST_VERSION(log, 2.2.5);             // 2.29: no matherr() any more
TT_FIRST_VERSION(pow, 2.2.5);
