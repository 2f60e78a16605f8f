// machine_main.c: prints the head line of the benches' tables.
#include "machine.h"

int main(void)
{
  machine_say(stdout);
  return 0;
}
