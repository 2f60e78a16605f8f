// comm.h: one rank's communicator with its stream, and the watch over time limits.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "library.h"

namespace tutti {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using CallsGuard = std::unique_lock<std::recursive_timed_mutex>; // of Comm::calls()

// Of each communicator, for one-sided operations.
constexpr int one_sided_signals = 64;

class Comm {
public:
  // Takes ownership of `handle`. `name` is for texts: "rank 0 of 2 of group x".
  Comm(ncclComm_t handle, std::string name);
  // Aborts, unless close() was called before.
  ~Comm();
  Comm(const Comm &) = delete;
  Comm &operator=(const Comm &) = delete;

  // To be locked around all calls of the library that name handle(): they come from one thread at a time, and close()
  // frees nothing meanwhile. An abort does not wait for it, because such a call may wait for a peer: ncclCommAbort ends
  // the call, and frees nothing before it has left. What the call gives then is an error.
  std::recursive_timed_mutex &calls()
  {
    return calls_;
  }
  // NULL: closed or aborted. With calls() locked.
  ncclComm_t handle() const
  {
    return handle_;
  }
  // Calls ask(handle), which asks the library about the communicator and waits for no peer. Nothing is freed meanwhile.
  // Throws where the communicator is closed or aborted. From any thread.
  template <typename F> auto look(const char *operation, F ask)
  {
    const std::shared_lock<std::shared_mutex> use(lookers_);
    ncclComm_t comm = handle_;
    TORCH_CHECK(comm != nullptr, "tutti: ", operation, ": ", name_, " has been shut down");
    return ask(comm);
  }
  cudaStream_t stream() const
  {
    return stream_;
  }
  // The stream of waits for this signal, which hold up nothing but each other.
  cudaStream_t wait_stream(int signal);
  // Is a wait for this signal under way?
  bool waits_for(int signal);
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
  // Throws error() where there is one. Costs little where there is none.
  void throw_error(const char *operation);
  // Throws where it is closed or aborted: error(), or else that.
  void check_open(const char *operation);
  // Throws where the library has answered a call with an error: error(), or else the library's text.
  void check(ncclResult_t result, const char *operation);
  // The text of such an answer.
  std::string describe(ncclResult_t result);
  // Waits for what a call that gave `begun` has begun, for `limit` at most. Throws on an error; missing() then says
  // which ranks have not called it, empty: none.
  void settled(ncclResult_t begun, Milliseconds limit, const char *operation,
               const std::function<std::string()> &missing);

private:
  void keep_error(c10d::ErrorType type, const std::string &text);
  ncclResult_t state();
  ncclComm_t take();
  bool idle();

  // Locked in this order: calls_, lookers_, mutex_.
  std::recursive_timed_mutex calls_; // calls() has its rule
  // Shared by threads that ask about the communicator or revoke it, which neither calls_ nor the library keeps apart
  // from an abort. The thread that frees takes handle_ away, and then locks this alone, once: no thread
  // asks any more.
  std::shared_mutex lookers_;
  std::atomic<ncclComm_t> handle_;
  cudaStream_t stream_ = nullptr;
  std::map<int, cudaStream_t> waits_; // by signal, made when first used; under mutex_
  std::string name_;
  std::mutex mutex_; // of the next two
  std::string error_;
  c10d::ErrorType type_ = c10d::ErrorType::SUCCESS;
  std::atomic<bool> failed_{false}; // there is an error_; set once
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

// While it lives: what its thread waits for in meet(), grow() and settle() ends with an error when `*stop` becomes
// true.
class Stoppable {
public:
  explicit Stoppable(const std::atomic<bool> *stop);
  ~Stoppable();
  Stoppable(const Stoppable &) = delete;
  Stoppable &operator=(const Stoppable &) = delete;

private:
  const std::atomic<bool> *outer_;
};

// Creates the communicator of `size` ranks that meet at `key` of `store`; rank 0 makes the id. Gives up after
// `limit`, and names the ranks that have not come.
// Where `*mark` is not null it becomes a text that these ranks have in common, and no other meeting has.
ncclComm_t meet(const c10::intrusive_ptr<c10d::Store> &store, const std::string &key, int rank, int size,
                Milliseconds limit, const std::string &name, std::string *mark = nullptr);

// Lets the ranks old and new of a communicator of `size` meet, and gives the larger one. `old` keeps its ranks'
// numbers; it is NULL on a new rank. Rank 0 is an old one. As meet().
ncclComm_t grow(ncclComm_t old, const c10::intrusive_ptr<c10d::Store> &store, const std::string &key, int rank,
                int size, Milliseconds limit, const std::string &name);

// Waits until a communicator that is being created without blocking is complete, and returns it. On an error, or after
// `limit`, aborts it and throws; hint() is the end of that text.
ncclComm_t settle(ncclComm_t comm, Clock::time_point limit, const std::string &name,
                  const std::function<std::string()> &hint);

} // namespace tutti
