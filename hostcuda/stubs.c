// stubs.c: functions whose answer does not depend on their arguments: hints that are accepted, and what needs a GPU.
//
// The runtime's header is not included: these have its names, not its prototypes. A caller's arguments are not looked
// at.
int hc_error(int error);

#define S(name, error)                                   \
  __attribute__((visibility("default"))) int name(void); \
  __attribute__((visibility("default"))) int name(void)  \
  {                                                      \
    return (error) == 0 ? 0 : hc_error(error);           \
  }
#include "stubs.def"
#undef S
