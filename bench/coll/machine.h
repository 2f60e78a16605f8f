// machine.h: what every table and every JSON file of the benches says of the machine that measured: the processor's
// make and model, caches, cores, kernel, and the settings that copies between processes depend on.
#pragma once
#include <stdio.h>

#define MACHINE_ROWS 20
#define MACHINE_MOST 8

typedef struct machine_row {
  char name[24], value[128];
} machine_row;

// In the order of machine.c's list; what a machine does not say has no row.
typedef struct machine {
  int n;
  machine_row rows[MACHINE_ROWS];
} machine;

// What this machine says. `root`: "", or in tests a folder with proc and sys, whose files are read instead. Any thread.
void machine_read(machine *m, const char *root);
// Adds a row, with as much of the texts as has room. -1: there are too many.
int machine_add(machine *m, const char *name, const char *value);
// Its text; NULL: there is none.
const char *machine_get(const machine *m, const char *name);
// The same machine? The load does not count.
int machine_same(const machine *a, const machine *b);
// One line: "cpu AMD EPYC, vendor AuthenticAMD, …".
void machine_print(const machine *m, FILE *out);
// The head line of a table: "Machine: " and that of this machine.
void machine_say(FILE *out);
// {"cpu": "AMD EPYC", …}
void machine_json(const machine *m, FILE *out);
