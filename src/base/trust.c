// trust.c: see trust.h.
#define _GNU_SOURCE // O_PATH
#include "base/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_owned_by_user(uid_t owner)
{
  return owner == geteuid() || owner == 0;
}

static bool refuse_owner(const char *what, uid_t owner, char why[TT_TRUST_WHY])
{
  snprintf(why, TT_TRUST_WHY, "%s belongs to user %u, this process runs as %u", what, (unsigned)owner,
           (unsigned)geteuid());
  return false;
}

bool tt_trust_contents(int fd, bool named, char why[TT_TRUST_WHY])
{
  struct stat st;
  if (fstat(fd, &st) != 0) {
    snprintf(why, TT_TRUST_WHY, "%s", strerror(errno));
    return false;
  }
  if (!S_ISREG(st.st_mode)) {
    return true; // a device or a pipe: the user's choice
  }
  if (!is_owned_by_user(st.st_uid) && (!named || geteuid() == 0)) {
    return refuse_owner("it", st.st_uid, why);
  }
  if ((st.st_mode & S_IWOTH) != 0 || ((st.st_mode & S_IWGRP) != 0 && st.st_gid != st.st_uid)) {
    snprintf(why, TT_TRUST_WHY, "others may write it (mode %o)", (unsigned)st.st_mode & 0777);
    return false;
  }
  return true;
}

// Owner of the folder that `path` stands in; this process's user when it cannot be found.
static uid_t folder_owner(const char *path)
{
  char folder[PATH_MAX];
  struct stat st;
  const char *slash = strrchr(path, '/');
  size_t size = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
  if (size >= sizeof folder) {
    return geteuid();
  }
  memcpy(folder, path, size);
  folder[size] = '\0';
  return stat(size == 0 ? "." : folder, &st) == 0 ? st.st_uid : geteuid();
}

// May the link at the end of `path` be followed?
static bool is_good_link(const char *path, char why[TT_TRUST_WHY])
{
  struct stat st;
  if (lstat(path, &st) != 0) {
    snprintf(why, TT_TRUST_WHY, "%s", strerror(errno));
    return false;
  }
  return is_owned_by_user(st.st_uid) || refuse_owner("the link", st.st_uid, why);
}

// May the file be emptied and written?
static bool is_good_target(const char *path, int fd, char why[TT_TRUST_WHY])
{
  struct stat st;
  if (fstat(fd, &st) != 0) {
    snprintf(why, TT_TRUST_WHY, "%s", strerror(errno));
    return false;
  }
  if (!S_ISREG(st.st_mode)) {
    return true;
  }
  if (st.st_nlink > 1) {
    snprintf(why, TT_TRUST_WHY, "the file has %lu names (hard links)", (unsigned long)st.st_nlink);
    return false;
  }
  return is_owned_by_user(st.st_uid) || st.st_uid == folder_owner(path) || refuse_owner("the file", st.st_uid, why);
}

static int open_here(const char *path, int flags)
{
  int fd;
  do { // without waiting: a pipe would hold us until somebody reads from it
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags, 0644);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

int tt_trust_create(const char *path, int flags, char why[TT_TRUST_WHY])
{
  why[0] = '\0';
  int fd = open_here(path, flags | O_NOFOLLOW);
  if (fd < 0 && errno == ELOOP && is_good_link(path, why)) {
    fd = open_here(path, flags);
  } else if (fd < 0 && errno == ELOOP) {
    errno = EPERM;
  }
  if (fd < 0) {
    int e = errno;
    if (why[0] == '\0') {
      snprintf(why, TT_TRUST_WHY, "%s", strerror(e));
    }
    errno = e;
    return -1;
  }
  if (!is_good_target(path, fd, why)) {
    close(fd);
    errno = EPERM;
    return -1;
  }
  (void)!ftruncate(fd, 0); // pipes and devices have no length
  return fd;
}
