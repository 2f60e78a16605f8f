// comm.h: one rank's communicator with its stream, and the watch over time limits.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "library.h"

namespace tutti {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

class Comm {
public:
  // Takes ownership of `handle`. `name` is for texts: "rank 0 of 2 of group x".
  Comm(ncclComm_t handle, std::string name);
  // Lets queued operations complete, for `limit` at most, unless close() was called before.
  ~Comm();
  Comm(const Comm &) = delete;
  Comm &operator=(const Comm &) = delete;

  ncclComm_t handle() const
  {
    return handle_;
  }
  cudaStream_t stream() const
  {
    return stream_;
  }
  const std::string &name() const
  {
    return name_;
  }

  // The first error: of the library, of a time limit, or of an abort. Empty: none. From any thread.
  std::string error();
  // Which kind of error that is.
  c10d::ErrorType error_type();
  // Stops what runs, on this rank and so on its peers, and keeps `why` and what the library knows as the error.
  void expire(const std::string &why);
  // Stops what runs and frees the communicator. Calls that wait for it end with an error. Does nothing the second time.
  void abort(const std::string &why);
  // Lets queued operations complete, for `limit` at most, and frees the communicator.
  void close(Milliseconds limit);
  // Throws error() where there is one.
  void check_alive(const char *operation);

private:
  void keep_error(c10d::ErrorType type, const std::string &text);
  ncclComm_t take();

  std::mutex mutex_;
  std::atomic<ncclComm_t> handle_;
  cudaStream_t stream_ = nullptr;
  std::string name_;
  std::string error_;
  c10d::ErrorType type_ = c10d::ErrorType::SUCCESS;
};

// While it lives: when `limit` has passed, comm->expire(why) is called, by a thread of the process.
class Deadline {
public:
  Deadline(std::shared_ptr<Comm> comm, Clock::time_point limit, std::string why);
  ~Deadline();
  Deadline(const Deadline &) = delete;
  Deadline &operator=(const Deadline &) = delete;

private:
  uint64_t number_;
};

// Creates the communicator of `size` ranks that meet at `key` of `store`; rank 0 makes the id. Gives up after
// `limit`, or when `*stop` becomes true, and names the ranks that have not come.
ncclComm_t meet(const c10::intrusive_ptr<c10d::Store> &store, const std::string &key, int rank, int size,
                Milliseconds limit, const std::string &name, const std::atomic<bool> *stop);

// Waits until a communicator that is being created without blocking is complete, and returns it. On an error, after
// `limit` or when `*stop` becomes true, aborts it and throws; hint() is the end of that text.
ncclComm_t settle(ncclComm_t comm, Clock::time_point limit, const std::atomic<bool> *stop, const std::string &name,
                  const std::function<std::string()> &hint);

} // namespace tutti
