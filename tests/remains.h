// remains.h: what ranks that have died could leave behind: processes, sockets, files in shared memory.
#pragma once
#include "harness.h"

#include <dirent.h>
#include <sys/stat.h>

enum { SOCKETS = 512 };

// Sockets (by inode) of some processes.
typedef struct sockets {
  int n;
  unsigned long inode[SOCKETS];
} sockets;

HARNESS void add_sockets(pid_t pid, sockets *out)
{
  char path[64], at[400], name[64];
  snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
  DIR *d = opendir(path);
  for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
    snprintf(at, sizeof at, "%s/%s", path, e->d_name);
    ssize_t len = readlink(at, name, sizeof name - 1);
    if (len > 8 && strncmp(name, "socket:[", 8) == 0 && out->n < SOCKETS) {
      out->inode[out->n++] = strtoul(name + 8, NULL, 10);
    }
  }
  if (d != NULL) {
    closedir(d);
  }
}

// Is one of the sockets in this table of the kernel? `column` holds the inode; only lines with `word` count.
HARNESS bool listed(const char *table, int column, const char *word, const sockets *s)
{
  char line[512];
  bool found = false;
  FILE *f = fopen(table, "r");
  while (f != NULL && fgets(line, sizeof line, f) != NULL) {
    char *field = line + strspn(line, " ");
    bool counts = word == NULL || strstr(line, word) != NULL;
    for (int i = 0; i < column && *field != '\0'; i++) {
      field += strcspn(field, " ");
      field += strspn(field, " ");
    }
    unsigned long inode = strtoul(field, NULL, 10);
    for (int i = 0; i < s->n && counts && inode != 0; i++) {
      found |= s->inode[i] == inode;
    }
  }
  if (f != NULL) {
    fclose(f);
  }
  return found;
}

// Files of this user in /dev/shm, newer than `since`, that a library of this kind could have left there.
HARNESS int shared_files(time_t since)
{
  int n = 0;
  DIR *d = opendir("/dev/shm");
  for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
    struct stat st;
    bool ours = strstr(e->d_name, "tutti") != NULL || strstr(e->d_name, "nccl") != NULL;
    n += ours && fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid == geteuid() &&
         st.st_ctime >= since;
  }
  if (d != NULL) {
    closedir(d);
  }
  return n;
}

HARNESS void expect_nothing_left(const sockets *s, time_t since)
{
  int status;
  assert_int_equal(waitpid(-1, &status, WNOHANG), -1); // orphans would be ours: this process is their subreaper
  assert_int_equal(errno, ECHILD);
  assert_int_equal(shared_files(since), 0);
  assert_false(listed("/proc/net/unix", 6, NULL, s));
  assert_false(listed("/proc/net/tcp", 9, " 0A ", s)); // listening
  assert_false(listed("/proc/net/tcp6", 9, " 0A ", s));
}
