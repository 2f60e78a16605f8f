#include "backend.h"

#include <comms/torchcomms/utils/StoreManager.hpp>
#include <comms/torchcomms/utils/Utils.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace tutti {

using WorkPtr = CommsTutti::WorkPtr;

// ---- CommsWork ----

CommsWork::CommsWork(c10::intrusive_ptr<c10d::Work> work, Milliseconds limit, Milliseconds usual,
                     std::shared_ptr<Owner> owner)
    : work_(std::move(work)), limit_(limit), usual_(usual), owner_(std::move(owner))
{
  setStatus(WorkStatus::INPROGRESS);
}

void CommsWork::end(const std::exception_ptr &error)
{
  {
    const std::lock_guard<std::recursive_mutex> guard(ending_);
    if (status() != WorkStatus::INPROGRESS || failing_) {
      return;
    }
    failing_ = error != nullptr;
    if (!failing_) {
      return setStatus(WorkStatus::COMPLETED);
    }
  }
  owner_->failed(); // no lock is held: a hook may abort, which ends other operations, or this one by another thread
  setStatus(WorkStatus::ERROR);
}

void CommsWork::watch()
{
  if (work_->isCompleted()) {
    return end(work_->exception());
  }
  auto self = c10::intrusive_ptr<CommsWork>::reclaim_copy(this);
  work_->getFuture()->addCallback([self](c10::ivalue::Future &future) { self->end(future.exception_ptr()); });
}

void CommsWork::wait()
{
  runWaitPreHooks();
  try {
    work_->wait(limit_);
  } catch (...) {
    end(std::current_exception());
    throw;
  }
  end(nullptr);
  runWaitPostHooks();
}

// ---- Options ----

// The options of torch.distributed's operation.
template <typename T, typename O> static T options_of(const O &options)
{
  T result;
  result.asyncOp = true; // CommsWork waits, and calls the hooks
  if (options.timeout != tc::kNoTimeout) {
    result.timeout = options.timeout;
  }
  return result;
}

template <typename T, typename O> static T rooted_options(const O &options, int root)
{
  T result = options_of<T>(options);
  result.rootRank = root;
  return result;
}

static c10d::ReduceOp scaled_sum(const tc::ReduceOp &op)
{
  TORCH_CHECK(op.factor().has_value(), "tutti: PREMUL_SUM has no factor");
  c10d::ReduceOp result;
  result.op_ = c10d::ReduceOp::PREMUL_SUM;
  result.supplement_ = std::visit(
      [](const auto &factor) -> c10::intrusive_ptr<c10d::_SupplementBase> {
        return c10::make_intrusive<Supplement>(factor);
      },
      *op.factor());
  return result;
}

static c10d::ReduceOp reduce_op(const tc::ReduceOp &op)
{
  using From = tc::ReduceOp::RedOpType;
  switch (op.type()) {
  case From::SUM: return c10d::ReduceOp::SUM;
  case From::PRODUCT: return c10d::ReduceOp::PRODUCT;
  case From::MIN: return c10d::ReduceOp::MIN;
  case From::MAX: return c10d::ReduceOp::MAX;
  case From::BAND: return c10d::ReduceOp::BAND;
  case From::BOR: return c10d::ReduceOp::BOR;
  case From::BXOR: return c10d::ReduceOp::BXOR;
  case From::AVG: return c10d::ReduceOp::AVG;
  case From::PREMUL_SUM: return scaled_sum(op);
  }
  TORCH_CHECK(false, "tutti: there is no reduction ", static_cast<int>(op.type()));
}

template <typename T, typename O> static T reducing_options(const O &options, const tc::ReduceOp &op)
{
  T result = options_of<T>(options);
  result.reduceOp = reduce_op(op);
  return result;
}

// ---- Life ----

void Owner::failed()
{
  std::map<int64_t, Hook> called;
  {
    const std::lock_guard<std::mutex> guard(mutex);
    called = hooks;
  }
  for (const auto &hook : called) {
    try {
      (*hook.second)();
    } catch (const std::exception &error) {
      TORCH_WARN("tutti: an abort hook has thrown: ", error.what());
    } catch (...) {
      TORCH_WARN("tutti: an abort hook has thrown");
    }
  }
  const std::lock_guard<std::mutex> guard(mutex);
  for (auto &[id, hook] : called) {
    const auto kept = hooks.find(id);
    if (kept == hooks.end() || kept->second != hook) { // removed meanwhile: this thread cannot free Python's objects
      new Hook(hook);
    }
  }
  called.clear();
}

void CommsTutti::registerAbortHook(int64_t id, tc::AbortHook hook)
{
  const std::lock_guard<std::mutex> guard(owner_->mutex);
  owner_->hooks.emplace(id, std::make_shared<const tc::AbortHook>(std::move(hook)));
}

void CommsTutti::unregisterAbortHook(int64_t id)
{
  Owner::Hook removed; // freed without the lock: Python may run anything then
  const std::lock_guard<std::mutex> guard(owner_->mutex);
  const auto hook = owner_->hooks.find(id);
  if (hook != owner_->hooks.end()) {
    removed = std::move(hook->second);
    owner_->hooks.erase(hook);
  }
}

CommsTutti::CommsTutti() : owner_(std::make_shared<Owner>()), member_(new_member()) {}

CommsTutti::~CommsTutti()
{
  std::map<int64_t, Owner::Hook> removed; // freed without the lock: Python may run anything then
  {
    const std::lock_guard<std::mutex> guard(owner_->mutex);
    removed.swap(owner_->hooks);
  }
  if (group_ && !finalized_ && !aborted_) {
    TORCH_WARN("tutti: the communicator ", name_, " was not finalized");
  }
}

void CommsTutti::keep(const ProcessGroupTutti::StorePtr &meeting, const tc::CommOptions &options)
{
  meeting_ = store_ = meeting;
  configuration_ = "first";
  options_ = options;
  options_.store = nullptr; // the communicator's own are in store_
}

void CommsTutti::start(const ProcessGroupTutti::StorePtr &store, int rank, int size, const tc::CommOptions &options)
{
  auto wanted = c10::make_intrusive<c10d::Backend::Options>("tutti", options.timeout);
  wanted->group_name = name_;
  keep(store, options);
  group_ = c10::make_intrusive<ProcessGroupTutti>(store, rank, size, wanted);
}

void CommsTutti::init(at::Device device, const std::string &name, const tc::CommOptions &options)
{
  TORCH_CHECK(!meeting_, "tutti: the communicator ", name_, " is initialized already");
  TORCH_CHECK(device.is_cpu(), "tutti: the communicator ", name, " is for CPU tensors, not for ", device);
  TORCH_CHECK(options.timeout.count() > 0, "tutti: the time-out of ", name, " must be more than 0 ms");
  name_ = name;
  if (options.enable_reconfigure) { // reconfigure() makes the communicator
    TORCH_CHECK(options.store, "tutti: ", name,
                ": enable_reconfigure needs the option store: a store that all members reach, new ones too");
    return keep(c10::make_intrusive<c10d::PrefixStore>(name, options.store), options);
  }
  const auto [rank, size] = tc::query_ranksize();
  if (options.store) {
    return start(c10::make_intrusive<c10d::PrefixStore>(name, options.store), rank, size, options);
  }
  const auto meeting = tc::createPrefixStore(name, options.timeout); // its port is free again behind this function
  start(tc::dupPrefixStore(name, meeting, options.timeout), rank, size, options);
}

void CommsTutti::finalize()
{
  TORCH_CHECK(meeting_, "tutti: finalize: the communicator is not initialized");
  TORCH_CHECK(!finalized_.exchange(true), "tutti: finalize: the communicator ", name_, " is finalized already");
  windows_.reset();
  if (group_) {
    group_->shutdown();
  }
}

void CommsTutti::abort()
{
  std::unique_lock<std::mutex> guard(mutex_);
  if (finalized_) {
    return;
  }
  stop_ = true;
  const auto group = aborted_.exchange(true) ? nullptr : group_;
  guard.unlock();
  if (group) {
    group->abort();
  }
}

c10::intrusive_ptr<ProcessGroupTutti> CommsTutti::drop_group()
{
  const std::lock_guard<std::mutex> guard(mutex_);
  stop_ = false;
  return std::exchange(group_, nullptr);
}

bool CommsTutti::place_group(const c10::intrusive_ptr<ProcessGroupTutti> &group)
{
  const std::lock_guard<std::mutex> guard(mutex_);
  if (!stop_) {
    group_ = group;
    aborted_ = false;
  }
  return !stop_;
}

std::shared_ptr<tc::TorchCommWindow> CommsTutti::new_window(const std::optional<at::Tensor> &tensor)
{
  (void)group("new_window");
  if (!windows_) {
    windows_ = std::make_shared<WindowSpace>(group_, owner_, options_.timeout);
  }
  auto window = std::make_shared<WindowTutti>(windows_);
  if (tensor.has_value()) {
    window->tensor_register(*tensor, true);
  }
  return window;
}

ProcessGroupTutti &CommsTutti::group(const char *operation) const
{
  TORCH_CHECK(group_, "tutti: ", operation, ": the communicator is not initialized");
  TORCH_CHECK(!finalized_, "tutti: ", operation, ": the communicator ", name_, " has been finalized");
  return *group_;
}

bool CommsTutti::isInitialized() const
{
  return group_ && !finalized_ && !aborted_;
}

int CommsTutti::getRank() const
{
  TORCH_CHECK(group_, "tutti: getRank: the communicator is not initialized");
  return group_->getRank();
}

int CommsTutti::getSize() const
{
  TORCH_CHECK(group_, "tutti: getSize: the communicator is not initialized");
  return group_->getSize();
}

std::string_view CommsTutti::getBackendName() const
{
  return "tutti";
}

std::string_view CommsTutti::getBackendVersion() const
{
  return TUTTI_VERSION;
}

std::string_view CommsTutti::getCommName() const
{
  return name_;
}

const tc::CommOptions &CommsTutti::getOptions() const
{
  return options_;
}

const at::Device &CommsTutti::getDevice() const
{
  return device_;
}

void CommsTutti::setTimeout(Milliseconds timeout)
{
  TORCH_CHECK(timeout.count() > 0, "tutti: setTimeout: ", timeout.count(), " ms: must be more than 0");
  group("setTimeout").setTimeout(timeout);
  options_.timeout = timeout;
}

std::shared_ptr<tc::TorchCommBackend> CommsTutti::split(const std::vector<int> &ranks, const std::string &name,
                                                        const tc::CommOptions &options)
{
  const int rank = group("split").getRank(), size = getSize();
  for (size_t i = 0; i < ranks.size(); i++) {
    TORCH_CHECK(ranks[i] >= 0 && ranks[i] < size, "tutti: split: there is no rank ", ranks[i], " of ", size);
    TORCH_CHECK(std::find(ranks.begin(), ranks.begin() + i, ranks[i]) == ranks.begin() + i, "tutti: split: rank ",
                ranks[i], " is named twice");
  }
  const uint64_t number = splits_++; // the ranks without a part count too
  if (ranks.empty()) {
    return nullptr;
  }
  const auto own = std::find(ranks.begin(), ranks.end(), rank);
  TORCH_CHECK(own != ranks.end(), "tutti: split: rank ", rank, " names a part to which it does not belong");
  auto child = std::make_shared<CommsTutti>();
  child->name_ = name;
  const std::string key = c10::str("split", number, "/", *std::min_element(ranks.begin(), ranks.end()));
  child->start(c10::make_intrusive<c10d::PrefixStore>(key, store_), static_cast<int>(own - ranks.begin()),
               static_cast<int>(ranks.size()), options);
  return child;
}

// ---- Operations ----

template <typename O, typename F> WorkPtr CommsTutti::run(bool async, const O &options, F call)
{
  const auto work = c10::make_intrusive<CommsWork>(call(), options.timeout, options_.timeout, owner_);
  async ? work->watch() : work->wait();
  return work;
}

WorkPtr CommsTutti::send(const at::Tensor &tensor, int dst, bool async, const tc::SendOptions &options)
{
  return run(async, options, [&] {
    Tensors tensors{tensor};
    return group("send").send(tensors, dst, options.tag);
  });
}

WorkPtr CommsTutti::recv(at::Tensor &tensor, int src, bool async, const tc::RecvOptions &options)
{
  return run(async, options, [&] {
    Tensors tensors{tensor};
    return group("recv").recv(tensors, src, options.tag);
  });
}

// Messages of a pair and direction match in their order, also those of a batch with those outside of it.
WorkPtr CommsTutti::batch_op_issue(const std::vector<tc::BatchSendRecv::P2POp> &ops, bool async,
                                   const tc::BatchP2POptions &options)
{
  TORCH_CHECK(!ops.empty(), "tutti: batch_op_issue: the batch is empty");
  return run(async, options, [&] {
    ProcessGroupTutti &all = group("batch_op_issue");
    for (const auto &op : ops) { // before any begins
      all.check_message("batch_op_issue", {op.tensor}, op.peer, 0);
    }
    return all.batch([&] {
      for (const auto &op : ops) {
        const bool sends = op.type == tc::BatchSendRecv::P2POp::OpType::SEND;
        Tensors tensors{op.tensor};
        sends ? all.send(tensors, op.peer, 0) : all.recv(tensors, op.peer, 0);
      }
    });
  });
}

WorkPtr CommsTutti::broadcast(at::Tensor &tensor, int root, bool async, const tc::BroadcastOptions &options)
{
  return run(async, options, [&] {
    Tensors tensors{tensor};
    return group("broadcast").broadcast(tensors, rooted_options<c10d::BroadcastOptions>(options, root));
  });
}

WorkPtr CommsTutti::all_reduce(at::Tensor &tensor, const tc::ReduceOp &op, bool async,
                               const tc::AllReduceOptions &options)
{
  return run(async, options, [&] {
    Tensors tensors{tensor};
    return group("all_reduce").allreduce(tensors, reducing_options<c10d::AllreduceOptions>(options, op));
  });
}

WorkPtr CommsTutti::reduce(const at::Tensor &tensor, int root, const tc::ReduceOp &op, bool async,
                           const tc::ReduceOptions &options)
{
  return run(async, options, [&] {
    Tensors tensors{tensor};
    auto opts = reducing_options<c10d::ReduceOptions>(options, op);
    opts.rootRank = root;
    return group("reduce").reduce(tensors, opts);
  });
}

WorkPtr CommsTutti::all_gather(const Tensors &outputs, const at::Tensor &input, bool async,
                               const tc::AllGatherOptions &options)
{
  return run(async, options, [&] {
    std::vector<Tensors> lists{outputs};
    Tensors inputs{input};
    return group("all_gather").allgather(lists, inputs, options_of<c10d::AllgatherOptions>(options));
  });
}

WorkPtr CommsTutti::all_gather_v(const Tensors &outputs, const at::Tensor &input, bool async,
                                 const tc::AllGatherOptions &options)
{
  return all_gather(outputs, input, async, options);
}

WorkPtr CommsTutti::all_gather_single(at::Tensor &output, const at::Tensor &input, bool async,
                                      const tc::AllGatherSingleOptions &options)
{
  return run(async, options, [&] {
    at::Tensor own = input;
    return group("all_gather_single")._allgather_base(output, own, options_of<c10d::AllgatherOptions>(options));
  });
}

WorkPtr CommsTutti::reduce_scatter(at::Tensor &output, const Tensors &inputs, const tc::ReduceOp &op, bool async,
                                   const tc::ReduceScatterOptions &options)
{
  return run(async, options, [&] {
    Tensors outputs{output};
    std::vector<Tensors> lists{inputs};
    const auto opts = reducing_options<c10d::ReduceScatterOptions>(options, op);
    return group("reduce_scatter").reduce_scatter(outputs, lists, opts);
  });
}

WorkPtr CommsTutti::reduce_scatter_v(at::Tensor &output, const Tensors &inputs, const tc::ReduceOp &op, bool async,
                                     const tc::ReduceScatterOptions &options)
{
  return reduce_scatter(output, inputs, op, async, options);
}

WorkPtr CommsTutti::reduce_scatter_single(at::Tensor &output, const at::Tensor &input, const tc::ReduceOp &op,
                                          bool async, const tc::ReduceScatterSingleOptions &options)
{
  return run(async, options, [&] {
    at::Tensor own = input;
    const auto opts = reducing_options<c10d::ReduceScatterOptions>(options, op);
    return group("reduce_scatter_single")._reduce_scatter_base(output, own, opts);
  });
}

// Blocks are elements here, not rows as in torch.distributed.
WorkPtr CommsTutti::all_to_all_single(at::Tensor &output, const at::Tensor &input, bool async,
                                      const tc::AllToAllSingleOptions &options)
{
  return run(async, options, [&] {
    at::Tensor from = input.is_contiguous() ? input.view(-1) : input;
    at::Tensor to = output.is_contiguous() ? output.view(-1) : output;
    std::vector<int64_t> equal;
    return group("all_to_all_single").alltoall_base(to, from, equal, equal, options_of<c10d::AllToAllOptions>(options));
  });
}

// The rows that are exchanged: the first of the tensor.
static at::Tensor exchanged_rows(const at::Tensor &tensor, const std::vector<uint64_t> &splits,
                                 std::vector<int64_t> *rows)
{
  rows->assign(splits.begin(), splits.end());
  int64_t sum = 0;
  for (const int64_t count : *rows) {
    TORCH_CHECK(count >= 0 && count <= tensor.size(0) - sum, "tutti: all_to_all_v_single: the split sizes exceed the ",
                tensor.size(0), " rows of the tensor");
    sum += count;
  }
  return tensor.narrow(0, 0, sum);
}

WorkPtr CommsTutti::all_to_all_v_single(at::Tensor &output, const at::Tensor &input,
                                        const std::vector<uint64_t> &output_splits,
                                        const std::vector<uint64_t> &input_splits, bool async,
                                        const tc::AllToAllvSingleOptions &options)
{
  const size_t size = getSize();
  TORCH_CHECK(output_splits.size() == size && input_splits.size() == size,
              "tutti: all_to_all_v_single: ", output_splits.size(), " output and ", input_splits.size(),
              " input splits for ", size, " ranks");
  return run(async, options, [&] {
    std::vector<int64_t> output_rows, input_rows;
    at::Tensor to = exchanged_rows(output, output_splits, &output_rows);
    at::Tensor from = exchanged_rows(input, input_splits, &input_rows);
    return group("all_to_all_v_single")
        .alltoall_base(to, from, output_rows, input_rows, options_of<c10d::AllToAllOptions>(options));
  });
}

WorkPtr CommsTutti::all_to_all(const Tensors &outputs, const Tensors &inputs, bool async,
                               const tc::AllToAllOptions &options)
{
  return run(async, options, [&] {
    Tensors to = outputs, from = inputs;
    return group("all_to_all").alltoall(to, from, options_of<c10d::AllToAllOptions>(options));
  });
}

WorkPtr CommsTutti::barrier(bool async, const tc::BarrierOptions &options)
{
  return run(async, options, [&] { return group("barrier").barrier(options_of<c10d::BarrierOptions>(options)); });
}

// Lists that only the root needs: what another rank passes is not looked at.
static std::vector<Tensors> root_lists(const Tensors &list, bool root)
{
  return root ? std::vector<Tensors>{list} : std::vector<Tensors>{};
}

WorkPtr CommsTutti::scatter(at::Tensor &output, const Tensors &inputs, int root, bool async,
                            const tc::ScatterOptions &options)
{
  return run(async, options, [&] {
    Tensors outputs{output};
    std::vector<Tensors> lists = root_lists(inputs, root == getRank());
    return group("scatter").scatter(outputs, lists, rooted_options<c10d::ScatterOptions>(options, root));
  });
}

WorkPtr CommsTutti::gather(const Tensors &outputs, const at::Tensor &input, int root, bool async,
                           const tc::GatherOptions &options)
{
  return run(async, options, [&] {
    std::vector<Tensors> lists = root_lists(outputs, root == getRank());
    Tensors inputs{input};
    return group("gather").gather(lists, inputs, rooted_options<c10d::GatherOptions>(options, root));
  });
}

} // namespace tutti

// ---- The loader ----

static torch::comms::TorchCommBackend *new_comm()
{
  const char *named = std::getenv("TUTTI_LIBRARY");
  tutti::open_library(named != nullptr && named[0] != 0 ? named : TUTTI_LIBRARY_PATH);
  return new tutti::CommsTutti;
}

static void destroy_comm(torch::comms::TorchCommBackend *comm)
{
  delete comm;
}

static const char *supported_version()
{
  return torch::comms::TORCHCOMM_BACKEND_ABI_VERSION; // of the headers that this was compiled with
}

// What torchcomms looks for.
extern "C" __attribute__((visibility("default"))) torch::comms::DynamicLoaderInterface create_dynamic_loader_tutti()
{
  return {new_comm, destroy_comm, supported_version};
}
