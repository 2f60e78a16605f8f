#include "comm.h"

#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

namespace tutti {

Comm::Comm(ncclComm_t handle, std::string name) : handle_(handle), name_(std::move(name))
{
  check(lib().tuttiStreamCreate(&stream_, TUTTI_STREAM_NON_BLOCKING), "a stream for " + name_);
}

Comm::~Comm()
{
  abort("the group has been destroyed");
  lib().tuttiStreamDestroy(stream_);
}

ncclComm_t Comm::take()
{
  return handle_.exchange(nullptr);
}

void Comm::keep_error(c10d::ErrorType type, const std::string &text)
{
  const std::lock_guard<std::mutex> guard(mutex_);
  if (error_.empty()) {
    type_ = type;
    error_ = text;
  }
}

std::string Comm::error()
{
  ncclResult_t result = ncclSuccess;
  ncclComm_t comm = handle_;
  if (comm != nullptr && lib().ncclCommGetAsyncError(comm, &result) == ncclSuccess && result != ncclSuccess &&
      result != ncclInProgress) {
    const auto type = result == ncclRemoteError ? c10d::ErrorType::REMOTE_ERROR
                      : result == ncclTimeout   ? c10d::ErrorType::TIMEOUT
                                                : c10d::ErrorType::COMM_ERROR;
    keep_error(type, describe(result, name_, comm));
  }
  const std::lock_guard<std::mutex> guard(mutex_);
  return error_;
}

c10d::ErrorType Comm::error_type()
{
  error();
  const std::lock_guard<std::mutex> guard(mutex_);
  return type_;
}

void Comm::check_alive(const char *operation)
{
  const std::string text = error();
  if (!text.empty()) {
    C10_THROW_ERROR(DistBackendError, c10::str(operation, ": ", text));
  }
  TORCH_CHECK(handle_ != nullptr, operation, ": tutti: ", name_, " has been shut down");
}

// The verdict's text of the library's answer: what stands behind "text" in "verdict".
static std::string verdict_text(const char *json)
{
  const char *at = std::strstr(json, "\"verdict\"");
  at = at != nullptr ? std::strstr(at, "\"text\"") : nullptr;
  at = at != nullptr ? std::strchr(at + 6, '"') : nullptr;
  std::string text;
  for (at = at != nullptr ? at + 1 : ""; *at != 0 && *at != '"'; at++) {
    at += *at == '\\' && at[1] != 0;
    text += *at;
  }
  return text;
}

void Comm::expire(const std::string &why)
{
  ncclComm_t comm = handle_;
  char *json = nullptr;
  std::string text = "tutti: " + name_ + ": " + why;
  if (comm != nullptr && lib().tuttiCommDiagnose(comm, &json) == ncclSuccess && json != nullptr) {
    const std::string verdict = verdict_text(json);
    text += verdict.empty() ? "" : ": " + verdict;
  }
  std::free(json);
  keep_error(c10d::ErrorType::TIMEOUT, text);
  if (comm != nullptr) {
    lib().ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT);
  }
}

void Comm::abort(const std::string &why)
{
  keep_error(c10d::ErrorType::COMM_ERROR, "tutti: " + name_ + ": " + why);
  ncclComm_t comm = take();
  if (comm != nullptr) {
    lib().ncclCommAbort(comm);
  }
}

void Comm::close(Milliseconds limit)
{
  if (handle_ == nullptr) {
    return;
  }
  const bool healthy = error().empty();
  if (healthy) { // waits for what is queued, which a peer that never calls holds up
    const auto end = Clock::now() + limit;
    while (lib().tuttiStreamQuery(stream_) == ncclInProgress && Clock::now() < end) {
      std::this_thread::sleep_for(Milliseconds(1));
    }
  }
  ncclComm_t comm = take();
  if (comm != nullptr) {
    healthy &&lib().tuttiStreamQuery(stream_) != ncclInProgress ? lib().ncclCommDestroy(comm)
                                                                : lib().ncclCommAbort(comm);
  }
}

// ---- Time limits: one thread of the process, which sleeps until the next one ----

struct Watched {
  std::shared_ptr<Comm> comm;
  Clock::time_point limit;
  std::string why;
};

struct Watch {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<uint64_t, Watched> all;
  uint64_t next = 0;
  Clock::time_point wakes = Clock::time_point::max();
};

static void watch_run(Watch *watch)
{
  std::unique_lock<std::mutex> lock(watch->mutex);
  for (;;) {
    const auto now = Clock::now();
    std::vector<Watched> late;
    watch->wakes = Clock::time_point::max();
    for (auto i = watch->all.begin(); i != watch->all.end();) {
      if (i->second.limit <= now) {
        late.push_back(std::move(i->second));
        i = watch->all.erase(i);
      } else {
        watch->wakes = std::min(watch->wakes, i->second.limit);
        ++i;
      }
    }
    if (late.empty()) {
      if (watch->wakes == Clock::time_point::max()) {
        watch->changed.wait(lock);
      } else {
        watch->changed.wait_until(lock, watch->wakes);
      }
      continue;
    }
    lock.unlock();
    for (auto &one : late) {
      one.comm->expire(one.why);
    }
    late.clear();
    lock.lock();
  }
}

// Never freed, so that the thread may run while the process exits. A child of fork gets one of its own.
static Watch *watch_get()
{
  static std::mutex making;
  static Watch *watch;
  static pid_t owner;
  const std::lock_guard<std::mutex> guard(making);
  if (watch == nullptr || owner != getpid()) {
    watch = new Watch;
    owner = getpid();
    std::thread(watch_run, watch).detach();
  }
  return watch;
}

Deadline::Deadline(std::shared_ptr<Comm> comm, Clock::time_point limit, std::string why)
{
  Watch *watch = watch_get();
  const std::lock_guard<std::mutex> guard(watch->mutex);
  number_ = watch->next++;
  watch->all.emplace(number_, Watched{std::move(comm), limit, std::move(why)});
  if (limit < watch->wakes) {
    watch->changed.notify_one();
  }
}

Deadline::~Deadline()
{
  Watch *watch = watch_get();
  Watched one; // its communicator may end here, without the lock
  const std::lock_guard<std::mutex> guard(watch->mutex);
  const auto i = watch->all.find(number_);
  if (i != watch->all.end()) {
    one = std::move(i->second);
    watch->all.erase(i);
  }
}

// ---- Meeting ----

static std::string missing_ranks(c10d::Store &store, const std::string &key, int size)
{
  std::string missing;
  for (int i = 0; i < size; i++) {
    if (!store.check({key + "/here/" + std::to_string(i)})) {
      missing += (missing.empty() ? "" : ", ") + std::to_string(i);
    }
  }
  return missing;
}

// Waits for ready(), which is asked more and more rarely. False: the limit has passed, or *stop.
template <typename F> static bool wait_until(Clock::time_point limit, const std::atomic<bool> *stop, F ready)
{
  for (auto pause = std::chrono::microseconds(100); !ready();) {
    if (Clock::now() >= limit || (stop != nullptr && *stop)) {
      return false;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 3 / 2, std::chrono::microseconds(20000));
  }
  return true;
}

ncclComm_t settle(ncclComm_t comm, Clock::time_point limit, const std::atomic<bool> *stop, const std::string &name,
                  const std::function<std::string()> &hint)
{
  ncclResult_t state = ncclInProgress;
  const bool done = wait_until(
      limit, stop, [&] { return lib().ncclCommGetAsyncError(comm, &state) != ncclSuccess || state != ncclInProgress; });
  if (done && state == ncclSuccess) {
    return comm;
  }
  const std::string text =
      (done ? describe(state, name, comm) : "tutti: " + name + ": the communicator is not complete in time") + hint();
  lib().ncclCommAbort(comm);
  C10_THROW_ERROR(DistBackendError, text);
}

ncclComm_t meet(const c10::intrusive_ptr<c10d::Store> &store, const std::string &key, int rank, int size,
                Milliseconds limit, const std::string &name, const std::atomic<bool> *stop)
{
  const auto end = Clock::now() + limit;
  const auto hint = [&] {
    const std::string missing = missing_ranks(*store, key, size);
    return c10::str(" (time limit ", limit.count(), " ms", missing.empty() ? "" : "; not here: rank " + missing, ")");
  };
  ncclUniqueId id;
  store->set(key + "/here/" + std::to_string(rank), std::vector<uint8_t>(1, 1));
  if (rank == 0) {
    check(lib().ncclGetUniqueId(&id), "an id for " + name);
    const auto *bytes = reinterpret_cast<const uint8_t *>(&id);
    store->set(key + "/id", std::vector<uint8_t>(bytes, bytes + sizeof(id)));
  } else {
    TORCH_CHECK_WITH(DistStoreError, wait_until(end, stop, [&] { return store->check({key + "/id"}); }),
                     "tutti: ", name, ": rank 0 has not come", hint());
    const auto bytes = store->get(key + "/id");
    TORCH_CHECK(bytes.size() == sizeof(id), "tutti: ", name, ": the store has ", bytes.size(),
                " bytes where the id should be; does another job use this store?");
    std::memcpy(&id, bytes.data(), sizeof(id));
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0; // so that the wait can be given up
  ncclComm_t comm = nullptr;
  check(lib().ncclCommInitRankConfig(&comm, size, id, rank, &config), name);
  return settle(comm, end, stop, name, hint);
}

} // namespace tutti
