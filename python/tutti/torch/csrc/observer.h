// observer.h: what the program wants to know of operations that have ended.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "comm.h"

namespace tutti {

// Hears of the end of each operation of a group, and calls the program's hook for it. That is done on a thread of its
// own: a hook may need Python's lock, and the thread that ends an operation may hold other locks. Any thread.
class Observer {
public:
  using Info = std::shared_ptr<c10d::WorkInfo>;
  using Hook = std::function<void(Info)>;

  // Starts the thread, which lives until close(). Once.
  static void start(const std::shared_ptr<Observer> &self, std::shared_ptr<Hook> hook);
  // One more operation will end. ended() may come first.
  void expect();
  void ended(Info info);
  // Waits until all have ended and the hook has returned, for `limit` at most. How many are missing.
  int64_t wait(Clock::time_point limit);
  // The thread ends when it has called the hook for all that has ended.
  void close();

private:
  void run();

  std::mutex mutex_; // of all below; the thread reads hook_, which has not changed since its start, without it
  std::condition_variable changed_;
  std::shared_ptr<Hook> hook_;
  std::deque<Info> ended_; // the hook has not been called yet
  int64_t missing_ = 0;    // operations that have not ended, or whose hook has not returned
  bool closed_ = false;
};

} // namespace tutti
