// encryption.c: ncclSetEncryption: the key under which this process encrypts its connections (bootstrap/crypt.h).
#include <string.h>

#include "api/api_priv.h"
#include "base/result.h"
#include "base/util.h"
#include "bootstrap/crypt.h"

enum { KEY_LEAST = 32 };

static ncclResult_t set_key(const char *key)
{
  if (key == NULL) {
    return tt_fail(ncclInvalidArgument, "ncclSetEncryption: psk is NULL; NCCL_ENCRYPTION_MODE_PSK needs a key");
  }
  size_t length = strnlen(key, KEY_LEAST);
  if (length < KEY_LEAST) {
    return tt_fail(ncclInvalidArgument, "ncclSetEncryption: psk has %zu characters; it must have at least %d", length,
                   KEY_LEAST);
  }
  return tt_crypt_set(key);
}

TT_TWIN(ncclSetEncryption);
TT_EXPORT ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t *config)
{
  ncclEncryptionConfig_t c = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
  const size_t from = offsetof(ncclEncryptionConfig_t, mode);
  if (config == NULL) {
    return tt_crypt_set(NULL);
  }
  if (config->magic != NCCL_API_MAGIC || config->size < from) {
    return tt_fail(ncclInvalidArgument,
                   "ncclSetEncryption: the ncclEncryptionConfig_t at %p was not initialised with "
                   "NCCL_ENCRYPTION_CONFIG_INITIALIZER (magic 0x%x, size %zu)",
                   (const void *)config, config->magic, config->size);
  }
  memcpy((char *)&c + from, (const char *)config + from, TT_MIN(config->size, sizeof c) - from);
  switch (c.mode) {
  case NCCL_ENCRYPTION_MODE_NONE: return tt_crypt_set(NULL);
  case NCCL_ENCRYPTION_MODE_PSK: return set_key(c.psk);
  default:
    return tt_fail(ncclInvalidArgument, "ncclSetEncryption: mode is %d; it must be NCCL_ENCRYPTION_MODE_NONE or _PSK",
                   c.mode);
  }
}
