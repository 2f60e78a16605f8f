#include "work.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>

namespace tutti {

std::exception_ptr failure(const std::string &text)
{
  return std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text));
}

// ---- BaseWork ----

BaseWork::BaseWork(int rank, c10d::OpType type, const char *title, Tensors outputs, Milliseconds timeout)
    : Work(rank, type, title), title_(title), outputs_(std::move(outputs)), timeout_(timeout)
{
}

bool BaseWork::isCompleted()
{
  if (!ended()) {
    look();
  }
  return ended();
}

bool BaseWork::isSuccess() const
{
  return ended() && exception() == nullptr;
}

void BaseWork::complete(std::exception_ptr error, int source)
{
  if (ending_.exchange(true)) {
    return;
  }
  source_ = source;
  finish(error);
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    ended_.store(true, std::memory_order_release);
    future = future_;
  }
  cv_.notify_all();
  if (future) {
    error ? future->setError(error) : future->markCompleted(c10::IValue(outputs_));
  }
}

void BaseWork::await(Clock::time_point limit)
{
  std::unique_lock<std::mutex> lock(mutex_);
  if (!cv_.wait_until(lock, limit, [this] { return ended(); })) {
    lock.unlock();
    complete(failure(c10::str("tutti: ", title_, " has not completed in time")));
  }
}

bool BaseWork::wait(Milliseconds timeout)
{
  if (!isCompleted()) {
    const bool own = timeout == c10d_no_timeout() || timeout == c10d::kUnsetTimeout;
    await(own ? begun_ + timeout_ : Clock::now() + timeout);
  }
  if (const auto error = exception()) {
    std::rethrow_exception(error);
  }
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> BaseWork::getFuture()
{
  std::unique_lock<std::mutex> lock(mutex_);
  if (future_) {
    return future_;
  }
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  const bool done = ended(); // complete() gave up the lock before there was a future
  const auto error = exception_;
  lock.unlock();
  if (!done) {
    watch();
  } else if (error) {
    future_->setError(error);
  } else {
    future_->markCompleted(c10::IValue(outputs_));
  }
  return future_;
}

// ---- StreamWork ----

StreamWork::StreamWork(int rank, c10d::OpType type, const char *title, Parts parts, std::shared_ptr<Comm> comm,
                       Milliseconds timeout)
    : BaseWork(rank, type, title, std::move(parts.outputs), timeout), comm_(std::move(comm)),
      keep_(std::move(parts.keep)), finish_(std::move(parts.finish))
{
}

StreamWork::~StreamWork()
{
  if (event_ != nullptr) {
    lib().tuttiEventDestroy(event_);
  }
}

void StreamWork::launched(bool async)
{
  if (lib().tuttiStreamQuery(comm_->stream()) != ncclInProgress) {
    return end();
  }
  begun_ = Clock::now();
  if (async) {
    check(lib().tuttiEventCreateWithFlags(&event_, TUTTI_EVENT_DISABLE_TIMING), "an event");
    check(lib().tuttiEventRecord(event_, comm_->stream()), "an event");
  }
}

void StreamWork::look()
{
  const ncclResult_t state =
      event_ != nullptr ? lib().tuttiEventQuery(event_) : lib().tuttiStreamQuery(comm_->stream());
  if (state != ncclInProgress) {
    end();
  }
}

static std::string late_text(const char *title, Clock::duration limit)
{
  return c10::str(title, " has not completed in ", std::chrono::duration_cast<Milliseconds>(limit).count(), " ms");
}

void StreamWork::await(Clock::time_point limit)
{
  const Deadline deadline(comm_, limit, late_text(title_, limit - begun_));
  event_ != nullptr ? lib().tuttiEventSynchronize(event_) : lib().tuttiStreamSynchronize(comm_->stream());
  end();
}

void StreamWork::end()
{
  const std::lock_guard<std::mutex> guard(finishing_);
  if (ended()) {
    return;
  }
  std::exception_ptr error;
  const std::string text = comm_->error();
  if (!text.empty()) {
    error = failure(c10::str(title_, ": ", text));
  } else if (finish_) {
    try {
      const at::AutoDispatchBelowADInplaceOrView below; // results are data, not part of a graph
      finish_();
    } catch (...) {
      error = std::current_exception();
    }
  }
  keep_.clear();
  finish_ = nullptr;
  complete(error);
}

void StreamWork::abort()
{
  comm_->abort(c10::str(title_, " has been aborted"));
}

// On a thread of the library.
void StreamWork::reached(void *work)
{
  const std::unique_ptr<c10::intrusive_ptr<StreamWork>> self(static_cast<c10::intrusive_ptr<StreamWork> *>(work));
  (*self)->end();
  (*self)->deadline_.reset();
}

// A stream of its own waits for the operation, so that the others need not wait for the future's callbacks.
void StreamWork::watch()
{
  cudaStream_t aside = nullptr;
  check(lib().tuttiStreamCreate(&aside, TUTTI_STREAM_NON_BLOCKING), "a stream");
  tuttiEvent_t event = event_;
  if (event == nullptr) {
    check(lib().tuttiEventCreateWithFlags(&event, TUTTI_EVENT_DISABLE_TIMING), "an event");
    check(lib().tuttiEventRecord(event, comm_->stream()), "an event");
  }
  deadline_ = std::make_unique<Deadline>(comm_, begun_ + timeout_, late_text(title_, timeout_));
  auto *self = new c10::intrusive_ptr<StreamWork>(c10::intrusive_ptr<StreamWork>::reclaim_copy(this));
  check(lib().tuttiStreamWaitEvent(aside, event), "an event");
  check(lib().tuttiLaunchHostFunc(aside, reached, self), "a function behind an operation");
  check(lib().tuttiStreamDestroy(aside), "a stream");
  if (event != event_) {
    lib().tuttiEventDestroy(event);
  }
}

// ---- JoinedWork ----

JoinedWork::JoinedWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> parts, Tensors outputs,
                       Milliseconds timeout)
    : BaseWork(rank, c10d::OpType::COALESCED, "tutti:coalesced", std::move(outputs), timeout), parts_(std::move(parts))
{
  begun_ = Clock::now();
}

void JoinedWork::end()
{
  std::exception_ptr error;
  for (const auto &part : parts_) {
    error = error ? error : part->exception();
  }
  complete(error);
}

void JoinedWork::look()
{
  for (const auto &part : parts_) {
    if (!part->isCompleted()) {
      return;
    }
  }
  end();
}

void JoinedWork::await(Clock::time_point limit)
{
  for (const auto &part : parts_) {
    const auto left = std::chrono::duration_cast<Milliseconds>(limit - Clock::now());
    try {
      part->wait(std::max(left, Milliseconds(1)));
    } catch (...) { // end() finds it
    }
  }
  end();
}

void JoinedWork::watch()
{
  c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(
      c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
  for (const auto &part : parts_) {
    futures.push_back(part->getFuture());
  }
  auto self = c10::intrusive_ptr<JoinedWork>::reclaim_copy(this);
  c10::collectAll(futures)->addCallback([self](c10::ivalue::Future &) { self->end(); });
}

} // namespace tutti
