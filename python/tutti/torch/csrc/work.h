// work.h: what an operation returns to PyTorch.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "comm.h"

namespace tutti {

using Tensors = std::vector<at::Tensor>;

// A c10::DistBackendError with this text.
std::exception_ptr failure(const std::string &text);

// An operation that complete() ends. wait() sleeps until then.
class BaseWork : public c10d::Work {
public:
  // `title`: for the profiler and for texts, as "tutti:all_reduce". `outputs`: what result() and the future give.
  BaseWork(int rank, c10d::OpType type, const char *title, Tensors outputs, Milliseconds timeout);

  bool isCompleted() override;
  bool isSuccess() const override;
  int sourceRank() const override
  {
    return source_;
  }
  Tensors result() override
  {
    return outputs_;
  }
  void synchronize() override
  {
    wait(c10d_no_timeout());
  }
  bool wait(Milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override
  {
    return number_;
  }

  // Ends the operation: on success (`error` is null) or with an error. The first call wins. From any thread.
  void complete(std::exception_ptr error, int source = -1);
  void set_number(uint64_t number)
  {
    number_ = number;
  }
  const char *title() const
  {
    return title_;
  }

protected:
  static Milliseconds c10d_no_timeout()
  {
    return Milliseconds(0);
  }
  bool ended() const
  {
    return ended_.load(std::memory_order_acquire);
  }
  // Returns when the operation has ended, or at `limit`, when it ends it with an error. Called without locks.
  virtual void await(Clock::time_point limit);
  // Ends the operation if it is done. Called without locks.
  virtual void look() {}
  // The first future has been asked for: somebody must end the operation although nobody waits.
  virtual void watch() {}

  const char *title_;
  Tensors outputs_;
  Milliseconds timeout_;
  Clock::time_point begun_; // set where the operation was not done at once

private:
  std::atomic<bool> ended_{false};
  std::atomic<bool> ending_{false};
  int source_ = -1;
  uint64_t number_ = 0;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// What is queued on the stream of a communicator. Ends when the stream has passed it: whoever waits or looks, sees to
// the rest.
class StreamWork : public BaseWork {
public:
  struct Parts {
    Tensors outputs;
    Tensors keep;                 // memory that the operation uses
    std::function<void()> finish; // run once, after success, by the thread that finds the operation done
  };
  StreamWork(int rank, c10d::OpType type, const char *title, Parts parts, std::shared_ptr<Comm> comm,
             Milliseconds timeout);
  ~StreamWork() override;

  // To be called once, behind the launch. `async`: other work may follow on the stream before somebody waits.
  void launched(bool async);
  void abort() override;

protected:
  void await(Clock::time_point limit) override;
  void look() override;
  void watch() override;

private:
  void end();
  static void reached(void *work);

  std::shared_ptr<Comm> comm_;
  Tensors keep_;
  std::function<void()> finish_;
  std::mutex finishing_;
  tuttiEvent_t event_ = nullptr;
  std::unique_ptr<Deadline> deadline_;
};

// Several operations as one: ends when all have ended.
class JoinedWork : public BaseWork {
public:
  JoinedWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> parts, Tensors outputs, Milliseconds timeout);

protected:
  void await(Clock::time_point limit) override;
  void look() override;
  void watch() override;

private:
  void end();

  std::vector<c10::intrusive_ptr<c10d::Work>> parts_;
};

} // namespace tutti
