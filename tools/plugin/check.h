// check.h: what `tutti-plugin check` does: a job of checks per kind, each in a process of its own, so that a plugin
// that crashes or never comes back is a finding.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "os/library.h"
#include "plugin/loader.h"

// Findings, shared with the processes that look for them.
enum { PC_TELL = 3, PC_TEXTS = 48, PC_SAID = 256 };

typedef struct pc_findings {
  int lock;                      // the teller has it
  int rules;                     // looked at
  int broken;                    // of these
  int notes;                     // what is allowed and unwise
  bool reached;                  // the job came to its end
  const char *formats[PC_TEXTS]; // that have been told; the first text of each, and how often
  char first[PC_TEXTS][120];
  int times[PC_TEXTS], told[PC_TEXTS];
  uint64_t said[PC_SAID]; // texts, hashed: none is said twice
} pc_findings;

typedef struct pc_job {
  int version;
  bool newest; // of its kind in this library: the one that a job takes
  const void *table;
  pc_findings *found;
  tt_library *lib;  // open in this process, once
  const char *path; // of its file, or as the linker looks it up
  int patience;     // seconds that nothing may come of anything
} pc_job;

// What became of a process; `how` of one that was late is PC_LATE.
#define PC_LATE "did not come back"
typedef struct pc_fate {
  bool good, late;
  char how[64];
} pc_fate;

// A rule of the interface: says what is broken, if it is, PC_TELL times at most with one `fmt`. Returns `holds`.
bool pc_rule(const pc_job *job, bool holds, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
// Something that is no rule.
void pc_note(const pc_job *job, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// A line about the plugin. Jobs write through here: what goes to standard output is the plugin's.
void pc_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// Are these members of the table set? A rule each.
bool pc_members(const pc_job *job, const tt_plugin_member *members, size_t n);
// Says the name, which is the table's first member.
void pc_name(const pc_job *job);

// A structure that a plugin fills, with room behind it for the one of another version.
typedef struct pc_space {
  _Alignas(16) unsigned char p[512];
} pc_space;

void pc_space_clear(pc_space *space, size_t size);
// Bytes that were written behind the structure of this size.
size_t pc_space_beyond(const pc_space *space, size_t size);

// Does fn(job, arg) end well in a process of its own, within some seconds? Neither a rule nor a note by itself; *how
// says what became of it.
bool pc_survives(const pc_job *job, void (*fn)(const pc_job *job, void *arg), void *arg, char how[64]);

// Two processes side by side, fn(job, arg, 0) and fn(job, arg, 1). When one ends badly, and is not the one that `dies`,
// the other has no more than a second. True: both have ended well.
bool pc_side_by_side(const pc_job *job, int dies, void (*fn)(const pc_job *job, void *arg, int i), void *arg,
                     pc_fate fates[2]);

// The jobs.
void pc_check_net(const pc_job *job);
void pc_check_collnet(const pc_job *job);
void pc_check_profiler(const pc_job *job);
void pc_check_tuner(const pc_job *job);
void pc_check_env(const pc_job *job);

// Checks the library; the program's exit status. `patience`: seconds, from 1 on.
int pc_check(const char *library, int patience);
