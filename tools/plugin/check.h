// check.h: what `tutti-plugin check` does: a job of checks per kind, each in a process of its own, so that a plugin that crashes or never comes back is a finding.
#pragma once
#include <stdbool.h>
#include <stdio.h>

#include "plugin/loader.h"

// Findings, shared with the processes that look for them.
enum { PC_TELL = 3, PC_TEXTS = 32 };

typedef struct pc_findings {
  int rules;                     // looked at
  int broken;                    // of these
  int notes;                     // what is allowed and unwise
  bool reached;                  // the job came to its end
  const char *formats[PC_TEXTS]; // that have been told; the first text of each, and how often
  char first[PC_TEXTS][120];
  int times[PC_TEXTS];
} pc_findings;

typedef struct pc_job {
  int version;
  const void *table;
  pc_findings *found;
} pc_job;

// A rule of the interface: says what is broken, if it is, PC_TELL times at most with one `fmt`. Returns `holds`.
bool pc_rule(const pc_job *job, bool holds, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
// Something that is no rule.
void pc_note(const pc_job *job, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Are these members of the table set? A rule each.
bool pc_members(const pc_job *job, const tt_plugin_member *members, size_t n);

// Does fn(job, arg) end well in a process of its own, within some seconds? Neither a rule nor a note by itself; *how says what became of it.
bool pc_survives(const pc_job *job, void (*fn)(const pc_job *job, void *arg), void *arg, char how[64]);

// The jobs.
void pc_check_tuner(const pc_job *job);
void pc_check_env(const pc_job *job);

// Checks the library; the program's exit status.
int pc_check(const char *library);
