// work.h: what an operation returns to PyTorch.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "comm.h"
#include "observer.h"

namespace tutti {

using Tensors = std::vector<at::Tensor>;

// A c10::DistBackendError with this text.
std::exception_ptr failure(const std::string &text);

// An operation that complete() ends. wait() sleeps until then.
class BaseWork : public c10d::Work {
public:
  // `title`: for the profiler and for texts, as "tutti:all_reduce". `outputs`: what result() and the future give.
  // `lists`: more than 1 where the future gives them as that many lists of equal length. `inputs`: for the profiler,
  // may be null.
  BaseWork(int rank, c10d::OpType type, const char *title, Tensors outputs, Milliseconds timeout, size_t lists = 1,
           const Tensors *inputs = nullptr);

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
  // In ms; an error where the operation is not observed.
  float getDuration() const override;

  // Ends the operation: on success (`error` is null) or with an error. The first call wins. From any thread.
  void complete(std::exception_ptr error, int source = -1);
  void set_number(uint64_t number)
  {
    number_ = number;
  }
  // The operation begins now, and `observer` hears of its end. To be called before another thread knows of the work.
  void observe(std::shared_ptr<Observer> observer);
  // To be called once the operation has been launched: it will end although nobody waits, if it is observed.
  void follow();
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

  c10::IValue value() const;
  // The operation begins now, if it has not begun before.
  void begin();

  const char *title_;
  Tensors outputs_;
  Milliseconds timeout_;
  size_t lists_;
  Clock::time_point begun_; // set where the operation was not done at once, or is observed

private:
  std::atomic<bool> ended_{false};
  std::atomic<bool> ending_{false};
  int source_ = -1;
  uint64_t number_ = 0;
  std::shared_ptr<Observer> observer_;
  Clock::time_point finished_; // of what is observed; written before ended_
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Waits until the stream of the communicator has passed what has been queued, for `timeout` at most, and calls `finish`
// where there is one. Throws when the operation, named `title`, has failed.
void complete_now(Comm &comm, const char *title, Milliseconds timeout, const std::function<void()> &finish);

// An operation queued on a stream of a communicator. Ends when the stream has passed it: the thread that waits or looks
// does what is left.
class StreamWork : public BaseWork {
public:
  struct Parts {
    Tensors outputs;
    Tensors keep;                    // memory that the operation uses
    std::function<void()> finish;    // run once, after success, by the thread that finds the operation done
    size_t lists = 1;                // of the future's value
    const Tensors *inputs = nullptr; // for the profiler; used by the constructor alone
    cudaStream_t stream = nullptr;   // null: the communicator's for operations
  };
  StreamWork(int rank, c10d::OpType type, const char *title, Parts parts, std::shared_ptr<Comm> comm,
             Milliseconds timeout);
  ~StreamWork() override;

  // To be called once, behind the launch.
  void launched();
  // Has the stream passed it? Ends nothing.
  bool passed() const;
  void abort() override;

protected:
  void await(Clock::time_point limit) override;
  void look() override;
  void watch() override;

private:
  void end();
  static void reached(void *work);

  void end_locked();

  std::shared_ptr<Comm> comm_;
  cudaStream_t stream_;
  Tensors keep_;
  std::function<void()> finish_;
  std::mutex finishing_;         // held by the one thread that ends the operation
  tuttiEvent_t event_ = nullptr; // behind the operation; null where that was done at once
  std::unique_ptr<Deadline> deadline_;
};

// Several operations as one: ends when all have ended.
class JoinedWork : public BaseWork {
public:
  JoinedWork(int rank, c10d::OpType type, const char *title, Tensors outputs, Milliseconds timeout,
             const Tensors *inputs = nullptr);

  // Both are to be called before anybody waits.
  void add(c10::intrusive_ptr<BaseWork> part);
  // The results are those of the parts, one behind the other.
  void take_results();

protected:
  void await(Clock::time_point limit) override;
  void look() override;
  void watch() override;

private:
  void end();

  std::vector<c10::intrusive_ptr<BaseWork>> parts_;
};

} // namespace tutti
