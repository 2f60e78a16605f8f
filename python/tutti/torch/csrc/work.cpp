#include "work.h"

#include <algorithm>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

namespace tutti {

std::exception_ptr failure(const std::string &text)
{
  return std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text));
}

// ---- BaseWork ----

// The profiler's, where it runs.
static std::optional<Tensors> profiled(const Tensors *inputs)
{
  return inputs != nullptr && at::hasCallbacks() ? std::optional<Tensors>(*inputs) : std::nullopt;
}

BaseWork::BaseWork(int rank, c10d::OpType type, const char *title, Tensors outputs, Milliseconds timeout, size_t lists,
                   const Tensors *inputs)
    : Work(rank, type, at::hasCallbacks() ? title : nullptr, profiled(inputs)), title_(title),
      outputs_(std::move(outputs)), timeout_(timeout), lists_(lists)
{
}

// What the future gives.
c10::IValue BaseWork::value() const
{
  if (lists_ == 1) {
    return c10::IValue(outputs_);
  }
  const auto length = static_cast<std::ptrdiff_t>(outputs_.size() / lists_);
  std::vector<Tensors> lists;
  for (auto at = outputs_.begin(); at != outputs_.end(); at += length) {
    lists.emplace_back(at, at + length);
  }
  return c10::IValue(lists);
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

void BaseWork::begin()
{
  if (begun_ == Clock::time_point()) {
    begun_ = Clock::now();
  }
}

void BaseWork::observe(std::shared_ptr<Observer> observer)
{
  begin();
  observer_ = std::move(observer);
}

void BaseWork::follow()
{
  if (observer_) {
    observer_->expect();
    getFuture(); // so that somebody ends it
  }
}

float BaseWork::getDuration() const
{
  TORCH_CHECK(observer_ != nullptr, title_, ": its duration is unknown: _enable_collectives_timing() must be called ",
              "before the operation");
  TORCH_CHECK(ended(), title_, ": its duration is unknown: it has not completed");
  return std::chrono::duration<float, std::milli>(finished_ - begun_).count();
}

void BaseWork::complete(std::exception_ptr error, int source)
{
  if (ending_.exchange(true)) {
    return;
  }
  source_ = source;
  if (observer_) {
    finished_ = Clock::now();
  }
  finish(error);
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    ended_.store(true, std::memory_order_release);
    future = future_;
  }
  cv_.notify_all();
  if (future) {
    error ? future->setError(error) : future->markCompleted(value());
  }
  if (observer_) {
    using When = decltype(c10d::WorkInfo::timeStarted); // the system's clock before PyTorch 2.13
    const auto shift = When::clock::now().time_since_epoch() - Clock::now().time_since_epoch();
    const auto when = [&](Clock::time_point at) {
      return When(std::chrono::duration_cast<When::duration>(at.time_since_epoch() + shift));
    };
    observer_->ended(std::make_shared<c10d::WorkInfo>(opType_, number_, when(begun_), when(finished_),
                                                      std::chrono::duration<float>(finished_ - begun_)));
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
    std::unique_lock<std::mutex> lock(mutex_);
    cv_.wait(lock, [this] { return ended(); }); // another thread may be ending it, and has not said how
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
  const auto list = c10::ListType::create(c10::TensorType::get());
  future_ = c10::make_intrusive<c10::ivalue::Future>(lists_ == 1 ? list : c10::ListType::create(list));
  const bool done = ended(); // complete() gave up the lock before there was a future
  const auto error = exception_;
  lock.unlock();
  if (!done) {
    watch();
  } else if (error) {
    future_->setError(error);
  } else {
    future_->markCompleted(value());
  }
  return future_;
}

// ---- StreamWork ----

StreamWork::StreamWork(int rank, c10d::OpType type, const char *title, Parts parts, std::shared_ptr<Comm> comm,
                       Milliseconds timeout)
    : BaseWork(rank, type, title, std::move(parts.outputs), timeout, parts.lists, parts.inputs), comm_(std::move(comm)),
      stream_(parts.stream != nullptr ? parts.stream : comm_->stream()), keep_(std::move(parts.keep)),
      finish_(std::move(parts.finish))
{
}

StreamWork::~StreamWork()
{
  if (event_ != nullptr) {
    lib().tuttiEventDestroy(event_);
  }
}

void StreamWork::launched()
{
  if (lib().tuttiStreamQuery(stream_) != ncclInProgress) {
    return end();
  }
  begin();
  check(lib().tuttiEventCreateWithFlags(&event_, TUTTI_EVENT_DISABLE_TIMING), "an event");
  check(lib().tuttiEventRecord(event_, stream_), "an event");
}

bool StreamWork::passed() const
{
  return ended() || (event_ != nullptr && lib().tuttiEventQuery(event_) != ncclInProgress);
}

void StreamWork::look()
{
  if (passed()) {
    // A thread that ends it may need Python's lock, which the caller may hold.
    const std::unique_lock<std::mutex> sole(finishing_, std::try_to_lock);
    sole.owns_lock() ? end_locked() : void();
  }
}

static std::string late_text(const char *title, Clock::duration limit)
{
  return c10::str(title, " has not completed in ", std::chrono::duration_cast<Milliseconds>(limit).count(),
                  " ms, the timeout in force");
}

// Waits by sync(most milliseconds), which answers ncclInProgress when they are over. At `limit` the operation fails,
// which ends the wait.
template <typename F>
static void await_until(Comm &comm, const char *title, Clock::time_point begun, Clock::time_point limit, F sync)
{
  for (bool late = false;;) {
    const auto left = std::chrono::ceil<Milliseconds>(limit - Clock::now()).count();
    if (sync(static_cast<unsigned>(std::clamp<int64_t>(late ? 1000 : left, 0, 1000000000))) != ncclInProgress) {
      return;
    }
    if (!late && Clock::now() >= limit) {
      late = true;
      comm.expire(late_text(title, limit - begun));
    }
  }
}

// Results are data, not part of a graph.
static void call_finish(const std::function<void()> &finish)
{
  const at::AutoDispatchBelowADInplaceOrView below;
  finish();
}

void complete_now(Comm &comm, const char *title, Milliseconds timeout, const std::function<void()> &finish)
{
  if (lib().tuttiStreamQuery(comm.stream()) == ncclInProgress) {
    const auto begun = Clock::now();
    await_until(comm, title, begun, begun + timeout,
                [&](unsigned ms) { return lib().tuttiStreamSynchronizeFor(comm.stream(), ms); });
  }
  comm.throw_error(title);
  if (finish) {
    call_finish(finish);
  }
}

void StreamWork::await(Clock::time_point limit)
{
  await_until(*comm_, title_, begun_, limit, [&](unsigned ms) { return lib().tuttiEventSynchronizeFor(event_, ms); });
  end();
}

void StreamWork::end()
{
  const std::lock_guard<std::mutex> guard(finishing_);
  end_locked();
}

void StreamWork::end_locked()
{
  if (ended()) {
    return;
  }
  std::exception_ptr error;
  try {
    comm_->throw_error(title_);
    if (finish_) {
      call_finish(finish_);
    }
  } catch (...) {
    error = std::current_exception();
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
  deadline_ = std::make_unique<Deadline>(comm_, begun_ + timeout_, late_text(title_, timeout_));
  auto *self = new c10::intrusive_ptr<StreamWork>(c10::intrusive_ptr<StreamWork>::reclaim_copy(this));
  check(lib().tuttiStreamWaitEvent(aside, event_), "an event");
  check(lib().tuttiLaunchHostFunc(aside, reached, self), "a function behind an operation");
  check(lib().tuttiStreamDestroy(aside), "a stream");
}

// ---- JoinedWork ----

JoinedWork::JoinedWork(int rank, c10d::OpType type, const char *title, Tensors outputs, Milliseconds timeout,
                       const Tensors *inputs)
    : BaseWork(rank, type, title, std::move(outputs), timeout, 1, inputs)
{
  begin();
}

void JoinedWork::add(c10::intrusive_ptr<BaseWork> part)
{
  parts_.push_back(std::move(part));
}

void JoinedWork::take_results()
{
  for (const auto &part : parts_) {
    const Tensors results = part->result();
    outputs_.insert(outputs_.end(), results.begin(), results.end());
  }
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
