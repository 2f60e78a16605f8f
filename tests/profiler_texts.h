// profiler_texts.h: what recorders (tests/plugins/recorder.h) write about the jobs of profiler_rig.h, in version 6's
// terms, and how the other versions are told of the same.
#pragma once
#include "profiler_rig.h"

#define TEXTS __attribute__((unused)) static

TEXTS const char *const ring_simple[] = {"NCCL_ALGO=Ring", "NCCL_PROTO=Simple", NULL};

#define COLL "in=set out=set count=1000 root=0 type=ncclFloat32 channels=1 warps=1 algo=RING proto=SIMPLE"

TEXTS const char allreduce_v6[] =
    "init name=job id=set nodes=1 ranks=2 rank=0\n"
    "start GroupApi#1 parent=- rank=0 depth=1 graph=0\n"
    "state GroupApi#1 GroupStartApiStop\n"
    "start CollApi#1 parent=GroupApi#1 rank=0 func=AllReduce count=1000 type=ncclFloat32 root=0 stream=set graph=0\n"
    "stop CollApi#1\n"
    "state GroupApi#1 GroupEndApiStart\n"
    "start Group#1 parent=- rank=0\n"
    "start Coll#1 parent=CollApi#1 rank=0 seq=0 func=AllReduce " COLL " group=Group#1\n"
    "stop Coll#1\n"
    "stop Group#1\n"
    "start KernelLaunch#1 parent=GroupApi#1 rank=0 stream=set\n"
    "stop KernelLaunch#1\n"
    "stop GroupApi#1\n"
    "finalize rank=0\n";

TEXTS const char kernel_v6[] = "start KernelCh#1 parent=Coll#1 rank=0 channel=0 timer=set\n"
                               "state KernelCh#1 KernelChStop timer=set\n"
                               "stop KernelCh#1\n";

TEXTS const char mixed_v6[] =
    "start GroupApi#1 parent=- rank=0 depth=3 graph=0\n"
    "state GroupApi#1 GroupStartApiStop\n"
    "start CollApi#1 parent=GroupApi#1 rank=0 func=AllReduce count=1000 type=ncclInt32 root=0 stream=set graph=0\n"
    "stop CollApi#1\n"
    "start P2pApi#1 parent=GroupApi#1 rank=0 func=Send count=10 type=ncclInt64 stream=set graph=0\n"
    "stop P2pApi#1\n"
    "start CollApi#2 parent=GroupApi#1 rank=0 func=Broadcast count=1000 type=ncclUint8 root=1 stream=set graph=0\n"
    "stop CollApi#2\n"
    "start P2pApi#2 parent=GroupApi#1 rank=0 func=Recv count=10 type=ncclInt64 stream=set graph=0\n"
    "stop P2pApi#2\n"
    "state GroupApi#1 GroupEndApiStart\n"
    "start Group#1 parent=- rank=0\n"
    "start Coll#1 parent=CollApi#1 rank=0 seq=0 func=AllReduce in=set out=set count=1000 root=0 type=ncclInt32 "
    "channels=1 "
    "warps=1 algo=RING proto=SIMPLE group=Group#1\n"
    "stop Coll#1\n"
    "stop Group#1\n"
    "start KernelLaunch#1 parent=GroupApi#1 rank=0 stream=set\n"
    "stop KernelLaunch#1\n"
    "start Group#2 parent=- rank=0\n"
    "start Coll#2 parent=CollApi#2 rank=0 seq=0 func=Broadcast in=set out=set count=1000 root=1 type=ncclUint8 "
    "channels=1 "
    "warps=1 algo=RING proto=SIMPLE group=Group#2\n"
    "stop Coll#2\n"
    "stop Group#2\n"
    "start KernelLaunch#2 parent=GroupApi#1 rank=0 stream=set\n"
    "stop KernelLaunch#2\n"
    "start Group#3 parent=- rank=0\n"
    "start P2p#1 parent=P2pApi#1 rank=0 func=Send buff=set count=10 type=ncclInt64 peer=1 channels=1 group=Group#3\n"
    "start P2p#2 parent=P2pApi#2 rank=0 func=Recv buff=set count=10 type=ncclInt64 peer=1 channels=1 group=Group#3\n"
    "stop P2p#1\n"
    "stop P2p#2\n"
    "stop Group#3\n"
    "start KernelLaunch#3 parent=GroupApi#1 rank=0 stream=set\n"
    "stop KernelLaunch#3\n"
    "stop GroupApi#1\n"
    "start GroupApi#2 parent=- rank=0 depth=1 graph=0\n"
    "state GroupApi#2 GroupStartApiStop\n"
    "start CollApi#3 parent=GroupApi#2 rank=0 func=AllReduce count=0 type=ncclInt32 root=0 stream=set graph=0\n"
    "stop CollApi#3\n"
    "state GroupApi#2 GroupEndApiStart\n"
    "stop GroupApi#2\n";

HARNESS int compare_lines(const void *a, const void *b)
{
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// The text's lines in order of the alphabet: what threads have told at the same time may stand in another order in
// another file.
HARNESS char *sorted(char *text)
{
  static char outs[2][TEXT];
  HARNESS int next;
  static const char *lines[TEXT / 8];
  char *out = outs[next++ % 2];
  size_t n = 0, used = 0;
  for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
    lines[n++] = line;
  }
  qsort(lines, n, sizeof *lines, compare_lines);
  out[0] = '\0';
  for (size_t i = 0; i < n; i++) {
    used += (size_t)snprintf(out + used, TEXT - used, "%s\n", lines[i]);
  }
  return out;
}

// ---- the same in another version's terms

// A line's word that begins with `key`, the key included; "" when there is none.
HARNESS const char *word_of(const char *line, const char *key, char *out, size_t size)
{
  const char *at = strstr(line, key);
  out[0] = '\0';
  if (at != NULL) {
    snprintf(out, size, "%.*s", (int)strcspn(at + 1, " ") + 1, at);
  }
  return out;
}

// Puts `with` in the place of a line's first `what`.
HARNESS void replace(char *line, size_t size, const char *what, const char *with)
{
  char *at = what[0] != '\0' ? strstr(line, what) : NULL;
  if (at != NULL) {
    char rest[1024];
    snprintf(rest, sizeof rest, "%s", at + strlen(what));
    snprintf(at, size - (size_t)(at - line), "%s%s", with, rest);
  }
}

HARNESS void drop_word(char *line, size_t size, const char *key)
{
  char word[128];
  replace(line, size, word_of(line, key, word, sizeof word), "");
}

// Version 1 has numbers, which NCCL gives functions, types, algorithms (RING 1) and protocols (SIMPLE 2).
HARNESS void use_numbers(char *line, size_t size)
{
  static const char *const rows[][2] = {
      {" func=AllReduce", " func=4"}, {" func=Broadcast", " func=0"},   {" func=Send", " func=6"},
      {" func=Recv", " func=7"},      {" type=ncclFloat32", " type=7"}, {" type=ncclInt32", " type=2"},
      {" type=ncclInt64", " type=4"}, {" type=ncclFloat64", " type=8"}, {" type=ncclUint8", " type=8"},
      {" algo=RING", " algo=1"},      {" proto=SIMPLE", " proto=2"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    replace(line, size, rows[i][0], rows[i][1]);
  }
}

// Up to version 4 operations hang below their Group.
HARNESS void hang_below_group(char *line, size_t size)
{
  char group[64], parent[80], below[80];
  word_of(line, " group=", group, sizeof group);
  if (group[0] != '\0') {
    word_of(line, " parent=", parent, sizeof parent);
    snprintf(below, sizeof below, " parent=%s", group + strlen(" group="));
    replace(line, size, parent, below);
    drop_word(line, size, " group=");
  }
}

// What version 7 says more of calls: no tag, and a variant made of algorithm and protocol.
HARNESS void add_words(char *line, size_t size)
{
  size_t used = strlen(line);
  bool coll = strncmp(line, "start Coll#", 11) == 0 || strncmp(line, "start Coll-", 11) == 0;
  bool tagged = coll || strncmp(line, "start CollApi", 13) == 0 || strncmp(line, "start P2p", 9) == 0;
  if (!tagged || strstr(line, " tag=") != NULL) {
    return;
  }
  if (coll) {
    char algo[64], proto[64];
    word_of(line, " algo=", algo, sizeof algo);
    word_of(line, " proto=", proto, sizeof proto);
    used += (size_t)snprintf(line + used, size - used, " variant=%s_%s sym=0", algo + 6, proto + 7);
  }
  snprintf(line + used, size - used, " tag=0");
}

HARNESS void drop_added_words(char *line, size_t size)
{
  drop_word(line, size, " variant=");
  drop_word(line, size, " sym=");
  drop_word(line, size, " tag=");
}

// What versions 1 to 3 have in other words.
HARNESS void use_old_words(char *line, size_t size, int version)
{
  if (strncmp(line, "init name", 9) == 0) {
    snprintf(line, size, "init");
  } else if (strncmp(line, "finalize", 8) == 0) {
    snprintf(line, size, "finalize rank=-1");
  } else if (strncmp(line, "start Coll", 10) == 0) {
    replace(line, size, " seq=", " name=- hash=0 seq=");
  } else if (strncmp(line, "start P2p", 9) == 0) {
    drop_word(line, size, " channels=");
  } else if (strncmp(line, "start KernelCh", 14) == 0) {
    drop_word(line, size, " timer=");
  } else if (strncmp(line, "state ProxyStep", 15) == 0) {
    drop_word(line, size, " size=");
  }
  if (version == 1) {
    use_numbers(line, size);
  }
}

// Is this version told of it at all?
HARNESS bool is_told(const char *line, int version)
{
  bool state = strncmp(line, "state", 5) == 0;
  if (version <= 4 && is_about(line, "GroupApi CollApi P2pApi KernelLaunch")) {
    return false;
  }
  if (version <= 3 && state && (is_about(line, "KernelCh ProxyOp") || strstr(line, "SendPeerWait") != NULL)) {
    return false;
  }
  return version > 2 || !is_about(line, "KernelCh");
}

// Version 6's (or a later one's) text as a version writes it.
HARNESS char *told_to(const char *text, int version)
{
  static char outs[4][TEXT];
  static int next;
  char *out = outs[next++ % 4], line[1024];
  size_t used = 0;
  out[0] = '\0';
  for (const char *at = text; *at != '\0'; at += strcspn(at, "\n") + 1) {
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    if (!is_told(line, version)) {
      continue;
    }
    (version >= 7 ? add_words : drop_added_words)(line, sizeof line);
    if (version <= 4) {
      hang_below_group(line, sizeof line);
    }
    if (version <= 3) {
      use_old_words(line, sizeof line, version);
    }
    used += (size_t)snprintf(out + used, TEXT - used, "%s\n", line);
  }
  return out;
}
