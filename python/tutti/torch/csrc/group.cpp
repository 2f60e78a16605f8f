#include "group.h"

#include <cstdlib>
#include <unordered_set>

#include <c10/util/ScopeExit.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "allocator.h"

namespace tutti {

// How long the end of a group waits for operations that nobody has waited for.
static constexpr auto closing_patience = Milliseconds(10000);

std::string ProcessGroupTutti::own_name() const
{
  return c10::str("rank ", rank_, " of ", size_, ", group ",
                  options_->group_name.empty() ? "without a name" : options_->group_name);
}

ProcessGroupTutti::ProcessGroupTutti(StorePtr store, int rank, int size, OptionsPtr options)
    : Backend(rank, size), store_(std::move(store)), options_(std::move(options))
{
  const std::string name = own_name();
  std::string mark;
  comm_ = std::make_shared<Comm>(meet(store_, "tutti", rank, size, options_->timeout, name, &mark), name);
  // When ranks are started anew with the same store, it has what the group of before left there.
  store_ = c10::make_intrusive<c10d::PrefixStore>(mark, store_);
  messages_ = std::make_shared<Messages>(store_, rank, size, comm_, options_->timeout);
}

ProcessGroupTutti::ProcessGroupTutti(StorePtr store, int rank, int size, OptionsPtr options, ncclComm_t comm)
    : Backend(rank, size), store_(std::move(store)), options_(std::move(options))
{
  const std::string name = own_name();
  comm_ = std::make_shared<Comm>(comm, name);
  messages_ = std::make_shared<Messages>(store_, rank, size, comm_, options_->timeout);
}

ProcessGroupTutti::~ProcessGroupTutti()
{
  close("the group has been destroyed");
}

void ProcessGroupTutti::close(const std::string &why)
{
  messages_->close(closing_patience, why);
  comm_->close(closing_patience);
  decltype(running_) running; // freed without the lock
  const CallsGuard guard(comm_->calls());
  running.swap(running_);
  if (observer_) {
    observer_->close();
  }
}

void ProcessGroupTutti::shutdown()
{
  close("the group has been shut down");
}

void ProcessGroupTutti::abort()
{
  const std::string why = "the program has aborted the group";
  comm_->abort(why);
  messages_->close(Milliseconds(0), why);
}

c10d::ErrorType ProcessGroupTutti::getError()
{
  const auto type = comm_->error_type();
  return type == c10d::ErrorType::SUCCESS && !messages_->error().empty() ? c10d::ErrorType::REMOTE_ERROR : type;
}

Milliseconds ProcessGroupTutti::timeout_of(Milliseconds wanted) const
{
  return wanted == c10d::kUnsetTimeout || wanted.count() <= 0 ? options_->timeout : wanted;
}

// What a function of the library tells of a communicator.
static std::string told(Comm &comm, const char *what, ncclResult_t (*tell)(ncclComm_t, char **))
{
  return comm.look(what, [&](ncclComm_t handle) {
    char *text = nullptr;
    const ncclResult_t result = tell(handle, &text);
    const std::unique_ptr<char, decltype(&std::free)> owned(text, std::free);
    check(result, what);
    return std::string(owned.get());
  });
}

std::string ProcessGroupTutti::diagnose()
{
  comm_->throw_error("diagnose");
  return told(*comm_, "diagnose", lib().tuttiCommDiagnose);
}

std::string ProcessGroupTutti::flight_recorder()
{
  return told(*comm_, "flight_recorder", lib().tuttiCommFlightRecorder);
}

// ---- Coalescing ----

ProcessGroupTutti::Ptr ProcessGroupTutti::note(const c10::intrusive_ptr<BaseWork> &work)
{
  joining_ ? joining_->add(work) : work->follow();
  return work;
}

void ProcessGroupTutti::collect(const JoinedPtr &whole, const std::function<void()> &calls)
{
  const CallsGuard guard(comm_->calls());
  const auto outer = std::exchange(joining_, whole);
  const auto back = c10::make_scope_exit([&] { joining_ = outer; });
  calls();
}

ProcessGroupTutti::JoinedPtr ProcessGroupTutti::begin_joined(const Call &call, Tensors outputs)
{
  const CallsGuard guard(comm_->calls());
  return make<JoinedWork>(call.type, call.title, std::move(outputs), call.timeout, call.inputs);
}

ProcessGroupTutti::Ptr ProcessGroupTutti::end_joined(const JoinedPtr &whole)
{
  const CallsGuard guard(comm_->calls());
  whole->set_number(number_);
  return note(whole);
}

ProcessGroupTutti::Ptr ProcessGroupTutti::join(const Call &call, Tensors outputs, const std::function<void()> &calls)
{
  const auto whole = begin_joined(call, std::move(outputs));
  collect(whole, calls);
  return end_joined(whole);
}

// What has been started and not ended, since a call has failed, is forgotten.
void ProcessGroupTutti::startCoalescing()
{
  const CallsGuard guard(comm_->calls());
  joining_ = nullptr;
  joining_ = begin_joined({c10d::OpType::COALESCED, "tutti:coalesced", options_->timeout, true}, {});
}

ProcessGroupTutti::Ptr ProcessGroupTutti::endCoalescing()
{
  const CallsGuard guard(comm_->calls());
  TORCH_CHECK(joining_, "tutti: endCoalescing: startCoalescing has not been called");
  const JoinedPtr whole = std::exchange(joining_, nullptr);
  whole->take_results();
  return end_joined(whole);
}

ProcessGroupTutti::Ptr ProcessGroupTutti::batch(const std::function<void()> &calls)
{
  const CallsGuard guard(comm_->calls());
  startCoalescing();
  auto forget = c10::make_scope_exit([&] { joining_ = nullptr; });
  calls();
  forget.release();
  return endCoalescing();
}

// An estimate that has been started and not ended, since the program has left its block by an exception, is forgotten.
void ProcessGroupTutti::start_time_estimate()
{
  const CallsGuard guard(comm_->calls());
  comm_->check_open("start_time_estimate");
  estimating_ = true;
  estimated_us_ = 0;
}

double ProcessGroupTutti::end_time_estimate()
{
  const CallsGuard guard(comm_->calls());
  TORCH_CHECK(estimating_, "tutti: end_time_estimate: start_time_estimate has not been called");
  estimating_ = false;
  return estimated_us_;
}

// ---- What has ended ----

void ProcessGroupTutti::registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)> &&hook)
{
  const CallsGuard guard(comm_->calls());
  TORCH_CHECK_WITH(DistBackendError, !hasHooks(), "tutti: the group has a completion hook already");
  const auto shared = std::make_shared<Observer::Hook>(std::move(hook)); // a copy may need Python's lock
  onCompletionHook_ = [shared](const Observer::Info &info) { (*shared)(info); };
  enableCollectivesTiming();
  Observer::start(observer_, shared);
}

void ProcessGroupTutti::enableCollectivesTiming()
{
  const CallsGuard guard(comm_->calls());
  observer_ = observer_ ? observer_ : std::make_shared<Observer>();
}

void ProcessGroupTutti::waitForPendingWorks()
{
  const auto limit = Clock::now() + options_->timeout;
  CallsGuard guard(comm_->calls());
  const std::vector<c10::intrusive_ptr<StreamWork>> running(running_.begin(), running_.end());
  const auto observer = observer_;
  guard.unlock();
  for (const auto &work : running) {
    try {
      work->wait(Milliseconds(0));
    } catch (const std::exception &) { // for the program's own wait
    }
  }
  const int64_t missing = observer ? observer->wait(limit) : 0;
  TORCH_CHECK_WITH(DistBackendError, missing == 0, "tutti: ", own_name(), ": ", missing,
                   " operations have not ended, or their hook has not returned, in ", options_->timeout.count(), " ms");
}

// ---- Messages ----

static void check_one_message(const char *what, const Tensors &tensors, int peer, int tag, int rank, int size)
{
  TORCH_CHECK(tensors.size() == 1, "tutti: ", what, " takes one tensor, not ", tensors.size());
  TORCH_CHECK(tensors[0].layout() == at::kStrided && tensors[0].is_cpu(), "tutti: ", what, " takes a dense CPU tensor");
  TORCH_CHECK(peer >= -1 && peer < size && peer != rank, "tutti: ", what, ": there is no peer ", peer, " of rank ",
              rank, " among ", size, " ranks");
  TORCH_CHECK(tag >= 0, "tutti: ", what, ": the tag is ", tag, ", but must be 0 or more");
}

void ProcessGroupTutti::check_message(const char *what, const Tensors &tensors, int peer, int tag) const
{
  TORCH_CHECK(peer >= 0, "tutti: ", what, ": there is no rank ", peer);
  check_one_message(what, tensors, peer, tag, rank_, size_);
}

ProcessGroupTutti::Ptr ProcessGroupTutti::message(c10d::OpType type, const char *title, const at::Tensor &tensor,
                                                  const std::function<void(const MessagePtr &)> &post)
{
  const CallsGuard guard(comm_->calls());
  TORCH_CHECK(!estimating_, title, ": there is no estimate of a message's time");
  const auto work = make<MessageWork>(type, title, tensor, options_->timeout, messages_);
  post(work);
  return note(work);
}

ProcessGroupTutti::Ptr ProcessGroupTutti::send(Tensors &tensors, int peer, int tag)
{
  check_message("send", tensors, peer, tag);
  const at::Tensor tensor = tensors[0].resolve_conj().resolve_neg();
  return message(c10d::OpType::SEND, "tutti:send", tensor,
                 [&](const MessagePtr &work) { messages_->send(work, tensor, peer, tag); });
}

ProcessGroupTutti::Ptr ProcessGroupTutti::recv(Tensors &tensors, int peer, int tag)
{
  check_message("recv", tensors, peer, tag);
  const at::Tensor &tensor = tensors[0];
  return message(c10d::OpType::RECV, "tutti:recv", tensor,
                 [&](const MessagePtr &work) { messages_->receive(work, tensor, peer, tag); });
}

ProcessGroupTutti::Ptr ProcessGroupTutti::recvAnysource(Tensors &tensors, int tag)
{
  check_one_message("recv_any_source", tensors, -1, tag, rank_, size_);
  const at::Tensor &tensor = tensors[0];
  return message(c10d::OpType::RECVANYSOURCE, "tutti:recvAnySource", tensor,
                 [&](const MessagePtr &work) { messages_->receive(work, tensor, -1, tag); });
}

// ---- Monitored barrier: through the store, so that rank 0 can say who is missing ----

static std::string join_ranks(const std::vector<int> &ranks)
{
  std::string text;
  for (const int rank : ranks) {
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
  }
  return text;
}

// Waits for the keys of the other ranks. Returns the ranks that have not come by `limit`: all, or the first one.
// `why`: the store's error, if one has come before that.
static std::vector<int> absent_ranks(c10d::Store &store, const std::string &key, int size, Clock::time_point limit,
                                     bool all, std::string *why)
{
  std::vector<int> absent;
  for (int rank = 1; rank < size && (all || absent.empty()); rank++) {
    const auto left = std::chrono::duration_cast<Milliseconds>(limit - Clock::now());
    try {
      store.wait({key + std::to_string(rank)}, std::max(left, Milliseconds(1)));
    } catch (const std::exception &error) { // the store's time limit, or its end
      absent.push_back(rank);
      if (Clock::now() < limit) {
        *why = error.what();
      }
    }
  }
  return absent;
}

void ProcessGroupTutti::monitoredBarrier(const c10d::BarrierOptions &opts, bool all)
{
  const auto limit = opts.timeout == c10d::kUnsetTimeout ? options_->timeout : opts.timeout; // 0: no wait
  const uint64_t number = barriers_++;
  const std::string key = c10::str("monitored/", number, "/");
  if (rank_ != 0) {
    store_->set(key + std::to_string(rank_), std::vector<uint8_t>(1, 1));
    std::string verdict;
    const auto end = Clock::now() + limit;
    try {
      store_->wait({key + "go"}, std::max(limit, Milliseconds(1)));
      verdict = store_->get_to_str(key + "go");
    } catch (const std::exception &error) {
      verdict = Clock::now() < end ? error.what() : c10::str("no answer in ", limit.count(), " ms");
    }
    if (verdict != "go") {
      C10_THROW_ERROR(DistBackendError, c10::str("tutti: monitored_barrier: Rank ", rank_,
                                                 " successfully reached monitoredBarrier, but received errors while "
                                                 "waiting for send/recv from rank 0: ",
                                                 verdict, ". Please check rank 0 logs for faulty rank."));
    }
    return;
  }
  std::string why;
  const auto absent = absent_ranks(*store_, key, size_, Clock::now() + limit, all, &why);
  const std::string verdict = absent.empty()
                                  ? "go"
                                  : c10::str("[Rank 0]: ", absent.size() > 1 || all ? "Ranks " : "Rank ",
                                             join_ranks(absent), " failed to pass monitoredBarrier in ", limit.count(),
                                             " ms; Rank 0 ", why.empty() ? "timed out in monitoredBarrier" : why);
  store_->set(key + "go", verdict);
  for (int rank = 1; rank < size_; rank++) {
    store_->deleteKey(key + std::to_string(rank));
  }
  if (number > 0) { // all have read it, or have left
    store_->deleteKey(c10::str("monitored/", number - 1, "/go"));
  }
  if (!absent.empty()) {
    C10_THROW_ERROR(DistBackendError, "tutti: monitored_barrier: " + verdict);
  }
}

// ---- Children ----

static ProcessGroupTutti::OptionsPtr child_options(const ProcessGroupTutti::OptionsPtr &wanted, Milliseconds timeout,
                                                   const std::string &name)
{
  auto options = c10::make_intrusive<c10d::Backend::Options>("tutti", wanted ? wanted->timeout : timeout);
  options->group_name = wanted && !wanted->group_name.empty() ? wanted->group_name : name;
  return options;
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupTutti::split(const StorePtr &store, const std::vector<int> &ranks,
                                                           const OptionsPtr &opts)
{
  const auto at = std::find(ranks.begin(), ranks.end(), rank_);
  if (at == ranks.end()) {
    return nullptr;
  }
  const auto options = child_options(opts, options_->timeout, "split of " + options_->group_name);
  return c10::make_intrusive<ProcessGroupTutti>(store, static_cast<int>(at - ranks.begin()),
                                                static_cast<int>(ranks.size()), options);
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupTutti::merge(const StorePtr &store, const OptionsPtr &opts,
                                                           const int &rank, const int &size)
{
  const auto options = child_options(opts, options_->timeout, "merged from " + options_->group_name);
  return c10::make_intrusive<ProcessGroupTutti>(store, rank, size, options);
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupTutti::shrink(const std::vector<int64_t> &excluded, int flags,
                                                            const OptionsPtr &opts)
{
  std::vector<int> gone(excluded.begin(), excluded.end());
  int before = 0;
  for (const int rank : gone) {
    TORCH_CHECK(rank >= 0 && rank < size_ && rank != rank_, "tutti: shrink: rank ", rank_, " cannot exclude rank ",
                rank, " of ", size_);
    before += rank < rank_;
  }
  TORCH_CHECK(std::unordered_set<int>(gone.begin(), gone.end()).size() == gone.size(),
              "tutti: shrink: a rank is excluded twice");
  CallsGuard guard(comm_->calls());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0; // so that the wait can be given up
  ncclComm_t comm = nullptr;
  const auto begin = [&](ncclComm_t parent) {
    return lib().ncclCommShrink(parent, gone.data(), static_cast<int>(gone.size()), &comm, &config,
                                flags == 0 ? NCCL_SHRINK_DEFAULT : NCCL_SHRINK_ABORT);
  };
  const ncclResult_t begun = comm_->look("shrink", begin); // look(): it may stop the operations that are under way
  check(begun, "shrink");
  const uint64_t number = shrinks_++;
  guard.unlock();
  const auto hint = [&] { return c10::str(" (shrink: time limit ", options_->timeout.count(), " ms)"); };
  comm = settle(comm, Clock::now() + options_->timeout, comm_->name(), hint);
  const auto store = c10::make_intrusive<c10d::PrefixStore>(c10::str("shrink", number, "/"), store_);
  return c10::make_intrusive<ProcessGroupTutti>(store, rank_ - before, size_ - static_cast<int>(gone.size()),
                                                child_options(opts, options_->timeout, options_->group_name), comm);
}

// ---- Memory ----

bool ProcessGroupTutti::supportsTensorAlloc(c10::DeviceIndex device)
{
  return device <= 0; // "cpu" has the index -1
}

at::Tensor ProcessGroupTutti::allocateTensor(long size, at::TensorOptions options)
{
  return shared_tensor(size, options);
}

static constexpr char memory_key[] = "memory/";

// Which ranks have called suspend() and resume() less often than this one. Empty: none, or the store does not answer.
static std::string behind(c10d::Store &store, int size, uint64_t number)
{
  std::vector<int> ranks;
  try {
    for (int rank = 0; rank < size; rank++) {
      const std::string own = memory_key + std::to_string(rank);
      if (!store.check({own}) || std::stoull(store.get_to_str(own)) < number) {
        ranks.push_back(rank);
      }
    }
  } catch (const std::exception &) {
    return "";
  }
  return join_ranks(ranks);
}

void ProcessGroupTutti::switch_memory(const char *operation, const std::function<ncclResult_t(ncclComm_t)> &begin)
{
  const CallsGuard guard(comm_->calls());
  comm_->check_open(operation);
  const uint64_t number = ++memory_calls_;
  store_->set(memory_key + std::to_string(rank_), std::to_string(number)); // so that others can say whom they wait for
  comm_->settled(begin(comm_->handle()), options_->timeout, operation, [&] { return behind(*store_, size_, number); });
}

void ProcessGroupTutti::suspend()
{
  switch_memory("suspend", [](ncclComm_t comm) { return lib().ncclCommSuspend(comm, NCCL_SUSPEND_MEM); });
}

void ProcessGroupTutti::resume()
{
  switch_memory("resume", [](ncclComm_t comm) { return lib().ncclCommResume(comm); });
}

std::unordered_map<std::string, uint64_t> ProcessGroupTutti::getMemoryStats()
{
  static constexpr std::pair<const char *, ncclCommMemStat_t> names[] = {{"suspend", ncclStatGpuMemSuspend},
                                                                         {"suspended", ncclStatGpuMemSuspended},
                                                                         {"persist", ncclStatGpuMemPersist},
                                                                         {"total", ncclStatGpuMemTotal}};
  const CallsGuard guard(comm_->calls());
  comm_->check_open("memory_stats");
  std::unordered_map<std::string, uint64_t> stats;
  for (const auto &[name, stat] : names) {
    comm_->check(lib().ncclCommMemStats(comm_->handle(), stat, &stats[name]), "memory_stats");
  }
  return stats;
}

// ---- Other members ----

c10::intrusive_ptr<ProcessGroupTutti> ProcessGroupTutti::grow(const StorePtr &store, int size, const OptionsPtr &opts)
{
  const CallsGuard guard(comm_->calls());
  ncclComm_t old = comm_->handle();
  comm_->check_open("grow"); // behind it, `old` is not NULL, which would stand for a new rank
  const std::string name = c10::str("rank ", rank_, " of ", size_, ", which grows to ", size);
  ncclComm_t comm = tutti::grow(old, store, "grow", rank_, size, opts->timeout, name);
  return c10::make_intrusive<ProcessGroupTutti>(store, rank_, size, opts, comm);
}

c10::intrusive_ptr<ProcessGroupTutti> ProcessGroupTutti::grown(const StorePtr &store, int rank, int size,
                                                               const OptionsPtr &opts)
{
  const std::string name = c10::str("new rank ", rank, " of ", size);
  ncclComm_t comm = tutti::grow(nullptr, store, "grow", rank, size, opts->timeout, name);
  return c10::make_intrusive<ProcessGroupTutti>(store, rank, size, opts, comm);
}

} // namespace tutti
