#include "observer.h"

#include <thread>

namespace tutti {

void Observer::start(const std::shared_ptr<Observer> &self, std::shared_ptr<Hook> hook)
{
  {
    const std::lock_guard<std::mutex> guard(self->mutex_);
    self->hook_ = std::move(hook);
  }
  std::thread([self] { self->run(); }).detach(); // nobody may wait for it: the hook may wait for the caller's lock
}

void Observer::expect()
{
  const std::lock_guard<std::mutex> guard(mutex_);
  missing_++;
}

void Observer::ended(Info info)
{
  const std::lock_guard<std::mutex> guard(mutex_);
  if (hook_ && !closed_) {
    ended_.push_back(std::move(info));
  } else {
    missing_--;
  }
  changed_.notify_all();
}

int64_t Observer::wait(Clock::time_point limit)
{
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_until(lock, limit, [this] { return missing_ == 0; });
  return missing_;
}

void Observer::close()
{
  const std::lock_guard<std::mutex> guard(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void Observer::run()
{
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closed_ || !ended_.empty(); });
    if (ended_.empty()) {
      return;
    }
    const Info info = std::move(ended_.front());
    ended_.pop_front();
    lock.unlock();
    try {
      (*hook_)(info);
    } catch (const std::exception &error) {
      TORCH_WARN("tutti: the hook of operation ", info->seq, ", ", c10d::opTypeToString(info->opType),
                 ", has failed: ", error.what());
    }
    lock.lock();
    missing_--;
    changed_.notify_all();
  }
}

} // namespace tutti
