// corpus_main.c: runs a fuzz program over committed inputs, with any compiler. Arguments: files and folders of files.
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));

// Gives the input in a block of its own size, so that a sanitizer sees a read past its end. Returns 0, or 1 when it
// cannot be read.
static int run_file(const char *path)
{
  FILE *f = fopen(path, "rb");
  if (!f || fseek(f, 0, SEEK_END)) {
    perror(path);
    return 1;
  }
  size_t size = (size_t)ftell(f);
  uint8_t *data = malloc(size ? size : 1);
  rewind(f);
  if (!data || fread(data, 1, size, f) != size) {
    perror(path);
    exit(1);
  }
  fclose(f);
  LLVMFuzzerTestOneInput(data, size);
  free(data);
  return 0;
}

// Runs every file of a folder, or the one file. Returns how many were run, -1 on an error.
static int run_path(const char *path)
{
  DIR *dir = opendir(path);
  if (!dir) {
    return run_file(path) ? -1 : 1;
  }
  int count = 0;
  struct dirent *entry;
  while (count >= 0 && (entry = readdir(dir))) {
    char file[4096];
    if (entry->d_name[0] == '.') {
      continue;
    }
    snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
    count = run_file(file) ? -1 : count + 1;
  }
  closedir(dir);
  return count;
}

int main(int argc, char **argv)
{
  int total = 0;
  if (LLVMFuzzerInitialize) {
    LLVMFuzzerInitialize(&argc, &argv);
  }
  LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
  for (int i = 1; i < argc; i++) {
    int count = run_path(argv[i]);
    if (count <= 0) {
      fprintf(stderr, "%s: no inputs to run\n", argv[i]);
      return 1;
    }
    total += count;
  }
  printf("%d inputs\n", total);
  return 0;
}
