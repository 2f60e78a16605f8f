#include "comm.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

namespace tutti {

Comm::Comm(ncclComm_t handle, std::string name) : handle_(handle), name_(std::move(name))
{
  tutti::check(lib().tuttiStreamCreate(&stream_, TUTTI_STREAM_NON_BLOCKING), "a stream for " + name_);
}

Comm::~Comm()
{
  abort("the group has been destroyed");
  lib().tuttiStreamDestroy(stream_);
  for (const auto &wait : waits_) {
    if (wait.second != nullptr) {
      lib().tuttiStreamDestroy(wait.second);
    }
  }
}

cudaStream_t Comm::wait_stream(int signal)
{
  const std::lock_guard<std::mutex> guard(mutex_);
  cudaStream_t &stream = waits_[signal];
  if (stream == nullptr) {
    tutti::check(lib().tuttiStreamCreate(&stream, TUTTI_STREAM_NON_BLOCKING), "a stream for " + name_);
  }
  return stream;
}

bool Comm::waits_for(int signal)
{
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto wait = waits_.find(signal);
  return wait != waits_.end() && wait->second != nullptr && lib().tuttiStreamQuery(wait->second) == ncclInProgress;
}

bool Comm::idle()
{
  std::vector<cudaStream_t> all{stream_};
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    for (const auto &wait : waits_) {
      all.push_back(wait.second);
    }
  }
  return std::all_of(all.begin(), all.end(), [](cudaStream_t stream) {
    return stream == nullptr || lib().tuttiStreamQuery(stream) != ncclInProgress;
  });
}

// After this nobody uses the communicator any more, and the caller may free it.
ncclComm_t Comm::take()
{
  ncclComm_t comm = handle_.exchange(nullptr);
  const std::unique_lock<std::shared_mutex> others_have_left(lookers_);
  return comm;
}

void Comm::keep_error(c10d::ErrorType type, const std::string &text)
{
  const std::lock_guard<std::mutex> guard(mutex_);
  if (error_.empty()) {
    type_ = type;
    error_ = text;
    failed_.store(true, std::memory_order_release);
  }
}

// The library's error, and its text; success where it has none, or has been told to free the communicator.
ncclResult_t Comm::state()
{
  ncclResult_t result = ncclSuccess;
  const std::shared_lock<std::shared_mutex> use(lookers_);
  ncclComm_t comm = handle_;
  if (comm == nullptr || lib().ncclCommGetAsyncError(comm, &result) != ncclSuccess || result == ncclInProgress) {
    return ncclSuccess;
  }
  if (result != ncclSuccess) {
    const auto type = result == ncclRemoteError ? c10d::ErrorType::REMOTE_ERROR
                      : result == ncclTimeout   ? c10d::ErrorType::TIMEOUT
                                                : c10d::ErrorType::COMM_ERROR;
    keep_error(type, tutti::describe(result, name_, comm));
  }
  return result;
}

std::string Comm::error()
{
  state();
  const std::lock_guard<std::mutex> guard(mutex_);
  return error_;
}

std::string Comm::describe(ncclResult_t result)
{
  const std::shared_lock<std::shared_mutex> use(lookers_);
  return tutti::describe(result, name_, handle_);
}

c10d::ErrorType Comm::error_type()
{
  error();
  const std::lock_guard<std::mutex> guard(mutex_);
  return type_;
}

void Comm::throw_error(const char *operation)
{
  if (failed_.load(std::memory_order_acquire) || state() != ncclSuccess) {
    C10_THROW_ERROR(DistBackendError, c10::str(operation, ": ", error()));
  }
}

void Comm::check_open(const char *operation)
{
  if (handle_ == nullptr) {
    throw_error(operation);
    C10_THROW_ERROR(DistBackendError, c10::str(operation, ": tutti: ", name_, " has been shut down"));
  }
}

void Comm::check(ncclResult_t result, const char *operation)
{
  if (result != ncclSuccess && result != ncclInProgress) {
    const std::string text = describe(result); // the thread's last error, before others are asked for
    throw_error(operation);
    C10_THROW_ERROR(DistBackendError, c10::str(operation, ": ", text));
  }
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
  const std::shared_lock<std::shared_mutex> use(lookers_);
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
  const auto end = Clock::now() + limit;
  const bool healthy = error().empty();
  while (healthy && !idle() && Clock::now() < end) {
    std::this_thread::sleep_for(Milliseconds(1)); // a peer that never calls holds up what is queued
  }
  const CallsGuard alone(calls_, end);
  if (!alone.owns_lock() || !idle() || !healthy) {
    return abort("it was shut down before its operations were complete");
  }
  ncclComm_t comm = take();
  if (comm != nullptr) {
    lib().ncclCommDestroy(comm);
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

// Removes what meet() has written.
static void forget(c10d::Store &store, const std::string &key, int size)
{
  try {
    store.deleteKey(key + "/id");
    for (int i = 0; i < size; i++) {
      store.deleteKey(key + "/here/" + std::to_string(i));
    }
  } catch (const std::exception &) { // a store that cannot remove: its keys are not used again
  }
}

// Of the innermost Stoppable; null: there is none.
static thread_local const std::atomic<bool> *stop_of_thread;

Stoppable::Stoppable(const std::atomic<bool> *stop) : outer_(std::exchange(stop_of_thread, stop)) {}

Stoppable::~Stoppable()
{
  stop_of_thread = outer_;
}

// Waits for ready(), which is asked more and more rarely. False: the limit has passed, or the thread is to stop.
template <typename F> static bool wait_until(Clock::time_point limit, F ready)
{
  for (auto pause = std::chrono::microseconds(100); !ready();) {
    if (Clock::now() >= limit || (stop_of_thread != nullptr && *stop_of_thread)) {
      return false;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 3 / 2, std::chrono::microseconds(20000));
  }
  return true;
}

void Comm::settled(ncclResult_t begun, Milliseconds limit, const char *operation,
                   const std::function<std::string()> &missing)
{
  check(begun, operation);
  ncclResult_t now = ncclSuccess;
  const bool done = wait_until(Clock::now() + limit, [&] {
    const ncclResult_t answer =
        look(operation, [&](ncclComm_t comm) { return lib().ncclCommGetAsyncError(comm, &now); });
    now = answer != ncclSuccess ? answer : now;
    return now != ncclInProgress;
  });
  if (done && now == ncclSuccess) {
    return;
  }
  // Also where a peer has given up before: the library's text names that peer then, not the rank that is late.
  const std::string late = missing(), why = late.empty() ? "" : "; not here: rank " + late;
  if (!done) { // ends the wait of the peers, too
    expire(c10::str(operation, " has not completed in ", limit.count(), " ms, the timeout in force", why));
  }
  const std::string text = error();
  C10_THROW_ERROR(DistBackendError, c10::str(operation, ": ", text.empty() ? describe(now) : text, done ? why : ""));
}

ncclComm_t settle(ncclComm_t comm, Clock::time_point limit, const std::string &name,
                  const std::function<std::string()> &hint)
{
  ncclResult_t state = ncclInProgress;
  const bool done = wait_until(
      limit, [&] { return lib().ncclCommGetAsyncError(comm, &state) != ncclSuccess || state != ncclInProgress; });
  if (done && state == ncclSuccess) {
    return comm;
  }
  const std::string text =
      (done ? describe(state, name, comm) : "tutti: " + name + ": the communicator is not complete in time") + hint();
  lib().ncclCommAbort(comm);
  C10_THROW_ERROR(DistBackendError, text);
}

// A number of the id (FNV-1a, 64 bits), as text. The ids of two meetings differ.
static std::string mark_of(const ncclUniqueId &id)
{
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : id.internal) {
    hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3u;
  }
  return std::to_string(hash);
}

using Hint = std::function<std::string()>;

static void show_id(c10d::Store &store, const std::string &key, const ncclUniqueId &id)
{
  const auto *bytes = reinterpret_cast<const uint8_t *>(&id);
  store.set(key, std::vector<uint8_t>(bytes, bytes + sizeof(id)));
}

static ncclUniqueId await_id(c10d::Store &store, const std::string &key, Clock::time_point end, const std::string &name,
                             const Hint &hint)
{
  ncclUniqueId id;
  TORCH_CHECK_WITH(DistStoreError, wait_until(end, [&] { return store.check({key}); }), "tutti: ", name,
                   ": rank 0 has not come", hint());
  const auto bytes = store.get(key);
  TORCH_CHECK(bytes.size() == sizeof(id), "tutti: ", name, ": the store has ", bytes.size(),
              " bytes where the id should be; does another job use this store?");
  std::memcpy(&id, bytes.data(), sizeof(id));
  return id;
}

// How the back end wants its communicators: created without blocking, so that the wait can be given up.
static ncclConfig_t usual_config()
{
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.numRmaSig = one_sided_signals;
  return config;
}

ncclComm_t grow(ncclComm_t old, const c10::intrusive_ptr<c10d::Store> &store, const std::string &key, int rank,
                int size, Milliseconds limit, const std::string &name)
{
  const auto end = Clock::now() + limit;
  const Hint hint = [&] { return c10::str(" (time limit ", limit.count(), " ms)"); };
  ncclUniqueId id;
  ncclConfig_t config = usual_config();
  ncclComm_t comm = nullptr;
  const bool knows = rank == 0 || old == nullptr;
  if (rank == 0) {
    check(lib().ncclCommGetUniqueId(old, &id), "an id for " + name, old);
    show_id(*store, key, id);
  } else if (old == nullptr) {
    id = await_id(*store, key, end, name, hint);
  }
  check(lib().ncclCommGrow(old, size, knows ? &id : nullptr, old != nullptr ? -1 : rank, &comm, &config), name, old);
  return settle(comm, end, name, hint);
}

ncclComm_t meet(const c10::intrusive_ptr<c10d::Store> &store, const std::string &key, int rank, int size,
                Milliseconds limit, const std::string &name, std::string *mark)
{
  const auto end = Clock::now() + limit;
  const Hint hint = [&] {
    const std::string missing = missing_ranks(*store, key, size);
    return c10::str(" (time limit ", limit.count(), " ms", missing.empty() ? "" : "; not here: rank " + missing, ")");
  };
  ncclUniqueId id;
  store->set(key + "/here/" + std::to_string(rank), std::vector<uint8_t>(1, 1));
  if (rank == 0) {
    check(lib().ncclGetUniqueId(&id), "an id for " + name);
    show_id(*store, key + "/id", id);
  } else {
    id = await_id(*store, key + "/id", end, name, hint);
  }
  ncclConfig_t config = usual_config();
  ncclComm_t comm = nullptr;
  check(lib().ncclCommInitRankConfig(&comm, size, id, rank, &config), name);
  comm = settle(comm, end, name, hint);
  if (rank == 0) { // all have joined; ranks that torchrun starts anew may meet at the same key of the same store
    forget(*store, key, size);
  }
  if (mark != nullptr) {
    *mark = mark_of(id);
  }
  return comm;
}

} // namespace tutti
