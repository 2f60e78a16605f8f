// tree.c: paths below a root, links followed by hand so that none leads out of it.
#include "topo/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

struct tt_tree {
  char *name;
  int folder;             // descriptor of a root that is a folder
  const tt_tree_ops *ops; // of other files; NULL: a folder
  void *files;
};

// ---- Opening ----

static void tree_clear(tt_tree *t)
{
  if (t->ops != NULL) {
    t->ops->close(t->files);
  } else {
    tt_folder_close(t->folder);
  }
  tt_free(t->name);
}

// `root` without a name. On an error it is closed.
static ncclResult_t tree_create(const char *name, tt_tree root, tt_tree **out)
{
  tt_tree *t = tt_calloc(1, sizeof(*t));
  root.name = tt_strdup(name);
  if (t == NULL || root.name == NULL) {
    tt_free(t);
    tree_clear(&root);
    return tt_fail(ncclSystemError, "%s: no memory", name);
  }
  *t = root;
  *out = t;
  return ncclSuccess;
}

ncclResult_t tt_tree_over(const char *name, const tt_tree_ops *ops, void *files, tt_tree **out)
{
  return tree_create(name, (tt_tree){.ops = ops, .files = files}, out);
}

void tt_tree_close(tt_tree *tree)
{
  if (tree != NULL) {
    tree_clear(tree);
    tt_free(tree);
  }
}

const char *tt_tree_name(const tt_tree *tree)
{
  return tree->name;
}

ncclResult_t tt_tree_open(const char *root, tt_tree **out)
{
  int here = -1, folder = -1;
  TT_TRY(tt_folder_open("/", &here));
  char full[4096];
  // What the name leads to is the caller's choice: links count here.
  bool known = realpath(root, full) != NULL;
  bool good = known && tt_folder_look(here, full + 1, NULL, 0) == TT_FOLDER_FOLDER;
  tt_folder_close(here);
  if (!good) {
    return tt_fail(ncclInvalidArgument, "%s: %s", root, known ? "not a folder" : "there is no such folder");
  }
  TT_TRY(tt_folder_open(full, &folder));
  return tree_create(root, (tt_tree){.folder = folder}, out);
}

// ---- Following links ----

static tt_folder_kind tree_look(const tt_tree *t, const char *path, char target[TT_TREE_PATH])
{
  return t->ops != NULL ? t->ops->look(t->files, path, target, TT_TREE_PATH)
                        : tt_folder_look(t->folder, path, target, TT_TREE_PATH);
}

typedef struct walk {
  const tt_tree *tree;
  char *done;                 // where we are, without links: "/sys/devices", "" at the root
  char rest[TT_TREE_PATH];    // what is still to go
  char target[TT_TREE_PATH];  // of a link
  char scratch[TT_TREE_PATH]; // for joining
  int links;
} walk;

void tt_tree_up(char *path)
{
  char *slash = strrchr(path, '/');
  if (slash != NULL) {
    *slash = 0;
  }
}

static bool tree_follow(walk *w, const char *after)
{
  if (++w->links > TT_TREE_LINKS) {
    return false;
  }
  if (w->target[0] == '/') {
    w->done[0] = 0;
  } else {
    tt_tree_up(w->done);
  }
  int n = snprintf(w->scratch, sizeof(w->scratch), "%s/%s", w->target, after);
  if (n >= (int)sizeof(w->scratch)) {
    return false;
  }
  memcpy(w->rest, w->scratch, (size_t)n + 1);
  return true;
}

// One component further. False: there is nothing.
static bool tree_step(walk *w)
{
  char *name = w->rest + strspn(w->rest, "/");
  size_t length = strcspn(name, "/"), at = strlen(w->done);
  const char *after = name + length;
  if (length == 2 && memcmp(name, "..", 2) == 0) {
    tt_tree_up(w->done);
  } else if (length > 0 && !(length == 1 && name[0] == '.')) {
    if (at + length + 2 > TT_TREE_PATH) {
      return false;
    }
    w->done[at] = '/';
    memcpy(w->done + at + 1, name, length);
    w->done[at + 1 + length] = 0;
    tt_folder_kind kind = tree_look(w->tree, w->done + 1, w->target);
    if (kind == TT_FOLDER_NONE || kind == TT_FOLDER_LINK) {
      return kind == TT_FOLDER_LINK && tree_follow(w, after);
    }
  }
  memmove(w->rest, after, strlen(after) + 1);
  return true;
}

bool tt_tree_resolve(const tt_tree *tree, const char *path, char out[TT_TREE_PATH])
{
  walk w = {.tree = tree, .done = out};
  size_t size = strlen(path);
  if (size >= TT_TREE_PATH) {
    return false;
  }
  memcpy(w.rest, path, size + 1);
  out[0] = 0;
  while (w.rest[0] != 0) {
    if (!tree_step(&w)) {
      return false;
    }
  }
  return true;
}

// ---- Reading ----

static const char *tree_inside(const char *path)
{
  return path[0] == '/' ? path + 1 : path;
}

long tt_tree_read(const tt_tree *tree, const char *path, char *buf, size_t size)
{
  char full[TT_TREE_PATH];
  if (size == 0 || !tt_tree_resolve(tree, path, full)) {
    return -1;
  }
  const char *in = tree_inside(full);
  return tree->ops != NULL ? tree->ops->read(tree->files, in, buf, size) : tt_folder_read(tree->folder, in, buf, size);
}

bool tt_tree_link(const tt_tree *tree, const char *path, char out[TT_TREE_PATH])
{
  char parent[TT_TREE_PATH], full[TT_TREE_PATH];
  const char *slash = strrchr(path, '/');
  size_t size = slash != NULL ? (size_t)(slash - path) : 0;
  if (slash == NULL || slash[1] == 0 || size >= TT_TREE_PATH) {
    return false;
  }
  memcpy(parent, path, size);
  parent[size] = 0;
  if (!tt_tree_resolve(tree, parent, full) || strlen(full) + strlen(slash) + 1 > TT_TREE_PATH) {
    return false;
  }
  strcat(full, slash);
  return tree_look(tree, tree_inside(full), out) == TT_FOLDER_LINK;
}

typedef struct collector {
  tt_tree_names *names;
  int room;
  bool failed;
} collector;

static bool tree_collect(void *arg, const char *name)
{
  collector *c = arg;
  tt_tree_names *names = c->names;
  char *copy = tt_strdup(name);
  c->failed = copy == NULL || !tt_grow(&names->names, names->count, 1, &c->room, sizeof(*names->names));
  if (c->failed) {
    tt_free(copy);
    return false;
  }
  names->names[names->count++] = copy;
  return true;
}

static int tree_compare_names(const void *a, const void *b)
{
  return strcmp(*(char *const *)a, *(char *const *)b);
}

ncclResult_t tt_tree_list(const tt_tree *tree, const char *path, tt_tree_names *out)
{
  tt_tree_names names = {0};
  collector c = {.names = &names};
  char full[TT_TREE_PATH];
  if (tt_tree_resolve(tree, path, full)) {
    const char *in = tree_inside(full);
    (void)(tree->ops != NULL ? tree->ops->list(tree->files, in, TT_TREE_NAMES, tree_collect, &c)
                             : tt_folder_list(tree->folder, in, TT_TREE_NAMES, tree_collect, &c));
  }
  if (c.failed) {
    tt_tree_names_free(&names);
    return tt_fail(ncclSystemError, "%s: no memory for the names in %s", tree->name, path);
  }
  if (names.count > 1) {
    qsort(names.names, (size_t)names.count, sizeof(*names.names), tree_compare_names);
  }
  *out = names;
  return ncclSuccess;
}

void tt_tree_names_free(tt_tree_names *names)
{
  for (int i = 0; i < names->count; i++) {
    tt_free(names->names[i]);
  }
  tt_free(names->names);
  *names = (tt_tree_names){0};
}
