// modes.c: the variable CUDASIM: words and name=value pairs, separated by commas.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim.h"

static const struct sim_modes defaults = {
    .seed = 1,
    .devices = 1,
    .queues = 8,
    .fail_code = CUDA_ERROR_OUT_OF_MEMORY,
    .deadlock_ms = 10000,
    .peers = true,
    .memory = (uint64_t)16 << 30,
    .sms = 8,
    .step = 20000,
};

enum type { NUMBER, FLAG, NAME, SPECIAL };

static const struct mode {
  const char *name;
  enum type type;
  size_t at;
  long least, most;
} modes_known[] = {
    {"seed", NUMBER, offsetof(struct sim_modes, seed), 0, LONG_MAX},
    {"devices", NUMBER, offsetof(struct sim_modes, devices), 0, SIM_DEVICES},
    {"queues", SPECIAL, 0, 1, SIM_QUEUES},
    {"order", SPECIAL, 0, 0, 0},
    {"stores", FLAG, offsetof(struct sim_modes, stores), 0, 0},
    {"stale", FLAG, offsetof(struct sim_modes, stale), 0, 0},
    {"lines", FLAG, offsetof(struct sim_modes, lines), 0, 0},
    {"waits", FLAG, offsetof(struct sim_modes, waits), 0, 0},
    {"launches", SPECIAL, 0, 1, INT_MAX},
    {"slices", SPECIAL, 0, 1, LONG_MAX / 1000},
    {"blocking", SPECIAL, 0, 0, 60000},
    {"fail", SPECIAL, 0, 1, LONG_MAX},
    {"count", FLAG, offsetof(struct sim_modes, count), 0, 0},
    {"deadlock", SPECIAL, 0, 0, LONG_MAX},
    {"peers", SPECIAL, 0, 0, 0},
    {"memory", SPECIAL, 0, 1, 1 << 17},
    {"sms", NUMBER, offsetof(struct sim_modes, sms), 1, 1024},
    {"step", SPECIAL, 0, 1, LONG_MAX},
    {"box", NAME, offsetof(struct sim_modes, box), 0, 0},
};

static bool read_number(const char *text, const char **end, long least, long most, long *out)
{
  char *rest = NULL;
  long value = strtol(text, &rest, 10);
  *end = rest;
  *out = value;
  return rest != text && value >= least && value <= most;
}

static bool set_queues(struct sim_modes *modes, const struct mode *mode, const char *value)
{
  long number = 0;
  const char *rest = "";
  if (strcmp(value, "random") == 0) {
    modes->random = true;
    return true;
  }
  if (!read_number(value, &rest, mode->least, mode->most, &number) || *rest != '\0') {
    return false;
  }
  modes->queues = (int)number;
  return true;
}

static bool set_launches(struct sim_modes *modes, const struct mode *mode, const char *value)
{
  long number = 0;
  const char *rest = "";
  if (!read_number(value, &rest, mode->least, mode->most, &number)) {
    return false;
  }
  modes->launches = (int)number;
  modes->launches_all = strcmp(rest, ":all") == 0;
  return modes->launches_all || *rest == '\0';
}

static bool set_fail(struct sim_modes *modes, const struct mode *mode, const char *value)
{
  long code = CUDA_ERROR_OUT_OF_MEMORY;
  const char *rest = "";
  if (!read_number(value, &rest, mode->least, mode->most, &modes->fail)) {
    return false;
  }
  if (*rest == ':' && !read_number(rest + 1, &rest, 1, 999, &code)) {
    return false;
  }
  modes->fail_code = (int)code;
  return *rest == '\0';
}

// One whose values are not plain.
static bool set_special(struct sim_modes *modes, const struct mode *mode, const char *value)
{
  long number = 0;
  const char *rest = "", *name = mode->name;
  if (strcmp(name, "queues") == 0) {
    return set_queues(modes, mode, value);
  }
  if (strcmp(name, "launches") == 0) {
    return set_launches(modes, mode, value);
  }
  if (strcmp(name, "fail") == 0) {
    return set_fail(modes, mode, value);
  }
  if (strcmp(name, "order") == 0) {
    modes->random = strcmp(value, "random") == 0;
    return modes->random || strcmp(value, "turns") == 0;
  }
  if (strcmp(name, "peers") == 0) {
    modes->peers = strcmp(value, "all") == 0;
    return modes->peers || strcmp(value, "none") == 0;
  }
  if (strcmp(name, "slices") == 0 && *value == '\0') {
    value = "200";
  } else if (strcmp(name, "blocking") == 0 && *value == '\0') {
    value = "0";
  }
  if (!read_number(value, &rest, mode->least, mode->most, &number) || *rest != '\0') {
    return false;
  }
  if (strcmp(name, "slices") == 0) {
    modes->slice = (uint64_t)number * 1000;
  } else if (strcmp(name, "blocking") == 0) {
    modes->blocking = true;
    modes->lag_ms = number;
  } else if (strcmp(name, "memory") == 0) {
    modes->memory = (uint64_t)number << 20;
  } else if (strcmp(name, "deadlock") == 0) {
    modes->deadlock_ms = number;
  } else {
    modes->step = (uint64_t)number;
  }
  return true;
}

static bool set_name(char *to, size_t room, const char *value)
{
  size_t n = strlen(value);
  if (n == 0 || n >= room || strchr(value, '/') != NULL || value[0] == '.') {
    return false;
  }
  memcpy(to, value, n + 1);
  return true;
}

static bool set_mode(struct sim_modes *modes, const struct mode *mode, const char *value)
{
  char *at = (char *)modes + mode->at;
  long number = 0;
  const char *rest = "";
  switch (mode->type) {
  case FLAG: *(bool *)at = true; return *value == '\0';
  case NAME: return set_name(at, sizeof modes->box, value);
  case SPECIAL: return set_special(modes, mode, value);
  default: break;
  }
  if (!read_number(value, &rest, mode->least, mode->most, &number) || *rest != '\0') {
    return false;
  }
  if (mode->at == offsetof(struct sim_modes, seed)) {
    modes->seed = (uint64_t)number;
  } else {
    *(int *)(void *)at = (int)number;
  }
  return true;
}

static bool read_word(struct sim_modes *modes, char *word)
{
  char *equal = strchr(word, '=');
  const char *value = equal != NULL ? equal + 1 : "";
  if (equal != NULL) {
    *equal = '\0';
  }
  for (size_t i = 0; i < sizeof modes_known / sizeof *modes_known; i++) {
    if (strcmp(word, modes_known[i].name) == 0) {
      if (set_mode(modes, &modes_known[i], value)) {
        return true;
      }
      sim_say("CUDASIM: %s has no value \"%s\"", word, value);
      return false;
    }
  }
  sim_say("CUDASIM: \"%s\" is not known", word);
  return false;
}

// The variables that the real driver has for these.
static void read_cuda_variables(struct sim_modes *modes)
{
  const char *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS"), *blocking = getenv("CUDA_LAUNCH_BLOCKING"), *rest;
  long number = 0;
  if (connections != NULL && read_number(connections, &rest, 1, 32, &number)) {
    modes->queues = (int)number;
  }
  modes->blocking = blocking != NULL && strcmp(blocking, "1") == 0;
}

// Numbers, separated by commas; the first that is none, or names no device, ends the list.
static void choose_visible(struct sim_modes *modes)
{
  const char *at = getenv("CUDA_VISIBLE_DEVICES");
  int all = modes->devices;
  for (int i = 0; i < SIM_DEVICES; i++) {
    modes->visible[i] = i;
  }
  if (at == NULL) {
    return;
  }
  long number = 0;
  modes->devices = 0;
  while (modes->devices < SIM_DEVICES && read_number(at, &at, 0, all - 1, &number)) {
    modes->visible[modes->devices++] = (int)number;
    if (*at != ',') {
      return;
    }
    at++;
  }
}

bool sim_modes_read(struct sim_modes *modes)
{
  char text[512], *save = NULL;
  const char *set = getenv("CUDASIM");
  *modes = defaults;
  read_cuda_variables(modes);
  snprintf(modes->box, sizeof modes->box, "%d", (int)getpgrp());
  snprintf(text, sizeof text, "%s", set != NULL ? set : "");
  for (char *word = strtok_r(text, ",", &save); word != NULL; word = strtok_r(NULL, ",", &save)) {
    if (!read_word(modes, word)) {
      return false;
    }
  }
  choose_visible(modes);
  return true;
}
