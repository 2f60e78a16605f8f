#include "group.h"

#include <cstdlib>
#include <unordered_set>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

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
  comm_ = std::make_shared<Comm>(meet(store_, "tutti", rank, size, options_->timeout, name, nullptr), name);
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
  const std::lock_guard<std::recursive_mutex> guard(mutex_);
  running_.clear();
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

static std::string take_text(ncclResult_t result, char *text, const char *what)
{
  const std::unique_ptr<char, decltype(&std::free)> owned(text, std::free);
  check(result, what);
  return owned.get();
}

std::string ProcessGroupTutti::diagnose()
{
  comm_->check_alive("diagnose");
  char *text = nullptr;
  const ncclResult_t result = lib().tuttiCommDiagnose(comm_->handle(), &text);
  return take_text(result, text, "diagnose");
}

std::string ProcessGroupTutti::flight_recorder()
{
  TORCH_CHECK(comm_->handle() != nullptr, "tutti: flight_recorder: ", comm_->name(), " has been shut down");
  char *text = nullptr;
  const ncclResult_t result = lib().tuttiCommFlightRecorder(comm_->handle(), &text);
  return take_text(result, text, "flight_recorder");
}

// ---- Coalescing ----

ProcessGroupTutti::Ptr ProcessGroupTutti::note(const Ptr &work)
{
  if (coalescing_) {
    coalesced_.push_back(work);
  }
  return work;
}

void ProcessGroupTutti::startCoalescing()
{
  const std::lock_guard<std::recursive_mutex> guard(mutex_);
  TORCH_CHECK(!coalescing_, "tutti: startCoalescing: the group coalesces already");
  coalescing_ = true;
}

ProcessGroupTutti::Ptr ProcessGroupTutti::endCoalescing()
{
  const std::lock_guard<std::recursive_mutex> guard(mutex_);
  TORCH_CHECK(coalescing_, "tutti: endCoalescing: startCoalescing has not been called");
  coalescing_ = false;
  Tensors outputs;
  for (const auto &part : coalesced_) {
    for (const auto &tensor : part->result()) {
      outputs.push_back(tensor);
    }
  }
  std::vector<Ptr> parts;
  parts.swap(coalesced_);
  return c10::make_intrusive<JoinedWork>(rank_, std::move(parts), std::move(outputs), options_->timeout);
}

// ---- Messages ----

static at::Tensor &single_message(const char *what, Tensors &tensors, int peer, int tag, int rank, int size)
{
  TORCH_CHECK(tensors.size() == 1, "tutti: ", what, " takes one tensor, not ", tensors.size());
  TORCH_CHECK(tensors[0].layout() == at::kStrided && tensors[0].is_cpu(), "tutti: ", what, " takes a dense CPU tensor");
  TORCH_CHECK(peer >= -1 && peer < size && peer != rank, "tutti: ", what, ": there is no peer ", peer, " of rank ",
              rank, " among ", size, " ranks");
  TORCH_CHECK(tag >= 0, "tutti: ", what, ": the tag is ", tag, ", but must be 0 or more");
  return tensors[0];
}

ProcessGroupTutti::Ptr ProcessGroupTutti::send(Tensors &tensors, int peer, int tag)
{
  TORCH_CHECK(peer >= 0, "tutti: send: there is no rank ", peer);
  const at::Tensor &tensor = single_message("send", tensors, peer, tag, rank_, size_);
  return note(messages_->send(tensor.resolve_conj().resolve_neg(), peer, tag, options_->timeout));
}

ProcessGroupTutti::Ptr ProcessGroupTutti::recv(Tensors &tensors, int peer, int tag)
{
  TORCH_CHECK(peer >= 0, "tutti: recv: there is no rank ", peer);
  const at::Tensor &tensor = single_message("recv", tensors, peer, tag, rank_, size_);
  return note(messages_->receive(tensor, peer, tag, options_->timeout));
}

ProcessGroupTutti::Ptr ProcessGroupTutti::recvAnysource(Tensors &tensors, int tag)
{
  const at::Tensor &tensor = single_message("recv_any_source", tensors, -1, tag, rank_, size_);
  return note(messages_->receive(tensor, -1, tag, options_->timeout));
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
static std::vector<int> absent_ranks(c10d::Store &store, const std::string &key, int size, Clock::time_point limit,
                                     bool all)
{
  std::vector<int> absent;
  for (int rank = 1; rank < size && (all || absent.empty()); rank++) {
    const auto left = std::chrono::duration_cast<Milliseconds>(limit - Clock::now());
    try {
      store.wait({key + std::to_string(rank)}, std::max(left, Milliseconds(1)));
    } catch (const std::exception &) { // the store's time limit, or its end
      absent.push_back(rank);
    }
  }
  return absent;
}

void ProcessGroupTutti::monitoredBarrier(const c10d::BarrierOptions &opts, bool all)
{
  const auto limit = timeout_of(opts.timeout);
  const uint64_t number = barriers_++;
  const std::string key = c10::str("monitored/", number, "/");
  if (rank_ != 0) {
    store_->set(key + std::to_string(rank_), std::vector<uint8_t>(1, 1));
    try {
      store_->wait({key + "go"}, limit);
    } catch (const std::exception &) {
      C10_THROW_ERROR(DistBackendError, c10::str("tutti: monitored_barrier: Rank ", rank_,
                                                 " successfully reached monitoredBarrier, but received errors while "
                                                 "waiting for send/recv from rank 0: no answer in ",
                                                 limit.count(), " ms. Please check rank 0 logs for faulty rank."));
    }
    const std::string verdict = store_->get_to_str(key + "go");
    if (verdict != "go") {
      C10_THROW_ERROR(DistBackendError, verdict);
    }
    return;
  }
  const auto absent = absent_ranks(*store_, key, size_, Clock::now() + limit, all);
  const std::string verdict =
      absent.empty() ? "go"
                     : c10::str("tutti: monitored_barrier: [Rank 0]: ", absent.size() > 1 || all ? "Ranks " : "Rank ",
                                join_ranks(absent), " failed to pass monitoredBarrier in ", limit.count(), " ms");
  store_->set(key + "go", verdict);
  for (int rank = 1; rank < size_; rank++) {
    store_->deleteKey(key + std::to_string(rank));
  }
  if (number > 0) { // all have read it, or have left
    store_->deleteKey(c10::str("monitored/", number - 1, "/go"));
  }
  if (!absent.empty()) {
    C10_THROW_ERROR(DistBackendError, verdict);
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
  TORCH_CHECK(comm_->handle() != nullptr, "tutti: shrink: ", comm_->name(), " has been shut down");
  const std::lock_guard<std::recursive_mutex> guard(mutex_);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0; // so that the wait can be given up
  ncclComm_t comm = nullptr;
  check(lib().ncclCommShrink(comm_->handle(), gone.data(), static_cast<int>(gone.size()), &comm, &config,
                             flags == 0 ? NCCL_SHRINK_DEFAULT : NCCL_SHRINK_ABORT),
        "shrink", comm_->handle());
  const auto hint = [&] { return c10::str(" (shrink: time limit ", options_->timeout.count(), " ms)"); };
  comm = settle(comm, Clock::now() + options_->timeout, nullptr, comm_->name(), hint);
  const auto store = c10::make_intrusive<c10d::PrefixStore>(c10::str("shrink", shrinks_++, "/"), store_);
  return c10::make_intrusive<ProcessGroupTutti>(store, rank_ - before, size_ - static_cast<int>(gone.size()),
                                                child_options(opts, options_->timeout, options_->group_name), comm);
}

} // namespace tutti
