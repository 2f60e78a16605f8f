// collectives.cpp: the collective operations of ProcessGroupTutti.
#include "group.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>

namespace tutti {

using c10d::OpType;
using Ptr = ProcessGroupTutti::Ptr;
using Refusal = std::function<void(const std::string &)>;

// For the checks of c10d, which say what is wrong.
static Refusal refuse(const char *title)
{
  return [title](const std::string &text) { TORCH_CHECK(false, title, ": ", text); };
}

static const Tensors *first_of(const std::vector<Tensors> &lists)
{
  return lists.empty() ? nullptr : &lists[0];
}

static void check_tensors(const char *title, const Tensors &tensors)
{
  for (const auto &tensor : tensors) {
    TORCH_CHECK(tensor.layout() == at::kStrided, title,
                ": invalid tensor layout: only dense tensors are supported; to_dense() makes one");
    TORCH_CHECK(tensor.is_cpu(), title, ": the tensor is on ", tensor.device(),
                ", but this back end is for CPU tensors");
  }
}

static void check_alike(const char *title, const Tensors &tensors)
{
  check_tensors(title, tensors);
  c10d::assertNonEmpty(refuse(title), tensors);
  if (tensors.size() > 1) {
    c10d::assertTypeAndSizesMatch(refuse(title), tensors);
  }
}

// The tensor's elements, one behind the other; its own memory where they lie so.
static at::Tensor flat(const at::Tensor &tensor)
{
  return tensor.resolve_conj().resolve_neg().contiguous();
}

static bool is_flat(const at::Tensor &tensor)
{
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

// Where a result of the tensor's size can be written: its own memory, or new one that finish() has to copy.
static at::Tensor place_for(const at::Tensor &tensor)
{
  return is_flat(tensor) ? tensor
                         : at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
}

static void copy_unless_same(const at::Tensor &to, const at::Tensor &from)
{
  if (to.data_ptr() != from.data_ptr()) {
    to.copy_(from.reshape(to.sizes()));
  }
}

// All elements of some tensors, one tensor behind the other.
static at::Tensor joined(const Tensors &tensors)
{
  Tensors rows;
  for (const auto &tensor : tensors) {
    rows.push_back(flat(tensor).reshape({-1}));
  }
  return rows.size() == 1 ? rows[0] : at::cat(rows);
}

// Copies the elements of `all`, one tensor's behind the other's, to the tensors.
static void spread(const at::Tensor &all, const Tensors &tensors)
{
  int64_t from = 0;
  for (const auto &tensor : tensors) {
    tensor.copy_(all.narrow(0, from, tensor.numel()).reshape(tensor.sizes()));
    from += tensor.numel();
  }
}

static bool equal_sizes(const Tensors &tensors)
{
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor &one) { return one.numel() == tensors[0].numel(); });
}

template <typename F> static ncclResult_t grouped(F calls)
{
  const ncclResult_t begun = lib().ncclGroupStart();
  if (begun != ncclSuccess) {
    return begun;
  }
  const ncclResult_t result = calls();
  const ncclResult_t end = lib().ncclGroupEnd();
  return result != ncclSuccess ? result : end;
}

// What `calls` queue does not run: its time is added to *us. The group is not left open: it would be one of the thread,
// and take the operations of other communicators, too.
template <typename F> static ncclResult_t estimated(double *us, F calls)
{
  const ncclResult_t begun = lib().ncclGroupStart();
  if (begun != ncclSuccess) {
    return begun;
  }
  const ncclResult_t result = calls();
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  const ncclResult_t end = lib().ncclGroupSimulateEnd(&info);
  *us += info.estimatedTime;
  return result != ncclSuccess ? result : end;
}

template <typename O>
ProcessGroupTutti::Call ProcessGroupTutti::call_of(OpType type, const char *title, const O &opts,
                                                   const Tensors *inputs) const
{
  return {type, title, timeout_of(opts.timeout), opts.asyncOp, inputs};
}

template <typename F> Ptr ProcessGroupTutti::start(const Call &call, StreamWork::Parts parts, F queue)
{
  parts.inputs = call.inputs;
  cudaStream_t stream = parts.stream != nullptr ? parts.stream : comm_->stream();
  const auto work = make<StreamWork>(call.type, call.title, std::move(parts), comm_, call.timeout);
  const auto queued = [&] { return queue(comm_->handle(), stream); };
  comm_->check(estimating_ ? estimated(&estimated_us_, queued) : queued(), call.title);
  work->set_number(++number_);
  if (estimating_) {
    work->complete(nullptr);
    return note(work);
  }
  const bool holds = stream == comm_->stream(); // a wait for a signal uses no memory, and may never end
  if (holds) {
    running_.push_back(work);
  }
  work->launched();
  if (holds && work->isCompleted()) {
    running_.pop_back();
  }
  return note(work);
}

Ptr ProcessGroupTutti::one_sided(const OneSided &what, const Queue &queue)
{
  StreamWork::Parts parts{{}, what.keep, nullptr};
  parts.stream = what.waits_for > 0 ? comm_->wait_stream(what.waits_for) : nullptr;
  return launch({OpType::UNKNOWN, what.title, timeout_of(what.timeout), true}, std::move(parts), queue);
}

// Ends what the stream has passed, and frees it: for that a thread may need Python's lock, so it holds no other one.
struct Passed {
  std::deque<c10::intrusive_ptr<StreamWork>> works;
  ~Passed()
  {
    for (const auto &work : works) {
      work->isCompleted();
    }
  }
};

template <typename F> Ptr ProcessGroupTutti::launch(const Call &call, StreamWork::Parts parts, F queue)
{
  Passed passed;
  CallsGuard guard(comm_->calls());
  comm_->check_open(call.title);
  for (; !running_.empty() && running_.front()->passed(); running_.pop_front()) {
    passed.works.push_back(running_.front());
  }
  if (call.async || joining_ || estimating_) {
    return start(call, std::move(parts), queue);
  }
  if (observer_ || at::hasCallbacks()) { // a profiler: it sees works
    const Ptr work = start(call, std::move(parts), queue);
    guard.unlock();
    work->wait();
    return nullptr;
  }
  comm_->check(queue(comm_->handle(), comm_->stream()), call.title);
  ++number_;
  guard.unlock();
  complete_now(*comm_, call.title, call.timeout, parts.finish);
  return nullptr;
}

// ---- Broadcast, all-reduce, reduce ----

Ptr ProcessGroupTutti::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts)
{
  const Call call = call_of(OpType::BROADCAST, "tutti:broadcast", opts, &tensors);
  c10d::assertRootRank(refuse(call.title), opts.rootRank, size_);
  c10d::assertRootTensor(refuse(call.title), opts.rootTensor, static_cast<int64_t>(tensors.size()));
  check_alike(call.title, tensors);
  const at::Tensor &own = tensors[opts.rootRank == rank_ ? opts.rootTensor : 0];
  const at::Tensor data = flat(own);
  StreamWork::Parts parts{tensors, {data}, nullptr};
  if (tensors.size() > 1 || !is_flat(own)) {
    parts.finish = [tensors, data] {
      for (const auto &tensor : tensors) {
        copy_unless_same(tensor, data);
      }
    };
  }
  return launch(call, std::move(parts), [&](ncclComm_t comm, cudaStream_t stream) {
    return lib().ncclBroadcast(data.data_ptr(), data.data_ptr(), data.nbytes(), ncclUint8,
                               static_cast<int>(opts.rootRank), comm, stream);
  });
}

Ptr ProcessGroupTutti::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
  const Call call = call_of(OpType::ALLREDUCE, "tutti:all_reduce", opts, &tensors);
  if (!tensors.empty() && tensors[0].is_sparse()) {
    return allreduce_sparse(tensors, opts);
  }
  check_alike(call.title, tensors);
  const Reduction reduction(opts.reduceOp, tensors[0].scalar_type(), *comm_, call.title);
  const at::Tensor input = tensors.size() == 1 ? tensors[0] : Reduction::fold(opts.reduceOp, tensors);
  const at::Tensor data = reduction.enter(input);
  StreamWork::Parts parts{tensors, {data}, nullptr};
  if (tensors.size() > 1 || !reduction.in_place(input)) {
    for (const auto &tensor : tensors) {
      parts.finish = [first = parts.finish, next = reduction.leaving(tensor, data)] {
        first ? first() : void();
        next();
      };
    }
  }
  return launch(call, std::move(parts), [&](ncclComm_t comm, cudaStream_t stream) {
    return lib().ncclAllReduce(data.data_ptr(), data.data_ptr(), data.numel(), reduction.type(), reduction.op(), comm,
                               stream);
  });
}

Ptr ProcessGroupTutti::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts)
{
  const Call call = call_of(OpType::ALLREDUCE_COALESCED, "tutti:all_reduce_coalesced", opts, &tensors);
  c10d::assertNonEmpty(refuse(call.title), tensors);
  return join(call, tensors, [&] {
    for (size_t i = 0; i < tensors.size(); i++) {
      const auto same = [&](const at::Tensor &before) { return before.is_same(tensors[i]); };
      if (std::none_of(tensors.begin(), tensors.begin() + i, same)) { // a tensor named twice is reduced once
        Tensors one{tensors[i]};
        allreduce(one, opts);
      }
    }
  });
}

Ptr ProcessGroupTutti::reduce(Tensors &tensors, const c10d::ReduceOptions &opts)
{
  const Call call = call_of(OpType::REDUCE, "tutti:reduce", opts, &tensors);
  c10d::assertRootRank(refuse(call.title), opts.rootRank, size_);
  c10d::assertRootTensor(refuse(call.title), opts.rootTensor, static_cast<int64_t>(tensors.size()));
  c10d::assertSingleElement(refuse(call.title), tensors);
  check_alike(call.title, tensors);
  const bool root = opts.rootRank == rank_;
  const Reduction reduction(opts.reduceOp, tensors[0].scalar_type(), *comm_, call.title);
  const at::Tensor data = reduction.enter(tensors[0]);
  StreamWork::Parts parts{tensors, {data}, nullptr};
  if (root && !reduction.in_place(tensors[0])) {
    parts.finish = reduction.leaving(tensors[0], data);
  }
  return launch(call, std::move(parts), [&](ncclComm_t comm, cudaStream_t stream) {
    return lib().ncclReduce(data.data_ptr(), data.data_ptr(), data.numel(), reduction.type(), reduction.op(),
                            static_cast<int>(opts.rootRank), comm, stream);
  });
}

// ---- Gathering and scattering ----

Ptr ProcessGroupTutti::allgather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts)
{
  const Call call = call_of(OpType::ALLGATHER, "tutti:all_gather", opts, &inputs);
  checks::some_inputs(call.title, inputs.size());
  checks::as_many(call.title, outputs.size(), inputs.size());
  const size_t expected = inputs.size() * size_;
  Tensors results;
  for (size_t i = 0; i < outputs.size(); i++) {
    TORCH_CHECK(outputs[i].size() == expected, call.title, ": invalid output tensor list at index ", i,
                " (expected length ", expected, ", got ", outputs[i].size(), ")");
    results.insert(results.end(), outputs[i].begin(), outputs[i].end());
    check_tensors(call.title, outputs[i]);
    for (const auto &output : outputs[i]) {
      c10d::assertTypeMatch(refuse(call.title), inputs[0].options(), Tensors{output}, 0);
    }
  }
  check_alike(call.title, inputs);
  if (inputs.size() == 1 && !(equal_sizes(outputs[0]) && outputs[0][0].numel() == inputs[0].numel())) {
    return gather_unequal(call, outputs[0], inputs[0]);
  }
  const at::Tensor data = joined(inputs);
  const at::Tensor all = at::empty({size_ * data.numel()}, data.options());
  StreamWork::Parts parts{results, {data, all}, nullptr, outputs.size()};
  parts.finish = [all, outputs] {
    for (const auto &list : outputs) {
      spread(all, list);
    }
  };
  return launch(call, std::move(parts), [&](ncclComm_t comm, cudaStream_t stream) {
    return lib().ncclAllGather(data.data_ptr(), all.data_ptr(), data.nbytes(), ncclUint8, comm, stream);
  });
}

Ptr ProcessGroupTutti::gather_unequal(const Call &call, const Tensors &outputs, const at::Tensor &input)
{
  TORCH_CHECK(outputs[rank_].numel() == input.numel(), call.title, ": invalid tensor size at index ", rank_,
              " (expected ", input.sizes(), ", got ", outputs[rank_].sizes(), ")");
  const at::Tensor data = flat(input);
  StreamWork::Parts parts{outputs, {data}, nullptr};
  Tensors places;
  for (const auto &output : outputs) {
    places.push_back(place_for(output));
    parts.keep.push_back(places.back());
  }
  parts.finish = [outputs, places] {
    for (size_t i = 0; i < outputs.size(); i++) {
      copy_unless_same(outputs[i], places[i]);
    }
  };
  return launch(call, std::move(parts), [&](ncclComm_t comm, cudaStream_t stream) {
    return grouped([&] {
      ncclResult_t result = ncclSuccess;
      for (int rank = 0; rank < size_ && result == ncclSuccess; rank++) {
        const at::Tensor &to = places[rank];
        const void *from = rank == rank_ ? data.data_ptr() : to.data_ptr();
        result = lib().ncclBroadcast(from, to.data_ptr(), to.nbytes(), ncclUint8, rank, comm, stream);
      }
      return result;
    });
  });
}

Ptr ProcessGroupTutti::_allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &opts)
{
  const Tensors inputs{input};
  const Call call = call_of(OpType::_ALLGATHER_BASE, "tutti:all_gather_into_tensor", opts, &inputs);
  check_tensors(call.title, {output, input});
  TORCH_CHECK(output.scalar_type() == input.scalar_type(), call.title, ": the output is ", output.scalar_type(),
              ", but the input is ", input.scalar_type());
  TORCH_CHECK(output.numel() == input.numel() * size_, call.title, ": the output has ", output.numel(),
              " elements, but must have ", size_, " times the input's ", input.numel());
  const at::Tensor data = flat(input);
  const at::Tensor all = place_for(output);
  StreamWork::Parts parts{{output}, {data, all}, nullptr};
  if (!is_flat(output)) {
    parts.finish = [output, all] { copy_unless_same(output, all); };
  }
  return launch(call, std::move(parts), [&](ncclComm_t comm, cudaStream_t stream) {
    return lib().ncclAllGather(data.data_ptr(), all.data_ptr(), data.nbytes(), ncclUint8, comm, stream);
  });
}

Ptr ProcessGroupTutti::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                           const c10d::AllgatherOptions &opts)
{
  const Call call = call_of(OpType::ALLGATHER_COALESCED, "tutti:all_gather_coalesced", opts, &inputs);
  checks::some_inputs(call.title, inputs.size());
  checks::coalesced_outputs(call.title, outputs, inputs.size(), size_);
  std::vector<Tensors> of_inputs(inputs.size());
  Tensors results;
  for (size_t i = 0; i < inputs.size(); i++) {
    for (const auto &list : outputs) {
      of_inputs[i].push_back(list[i]);
    }
    results.insert(results.end(), of_inputs[i].begin(), of_inputs[i].end());
  }
  return join(call, std::move(results), [&] {
    for (size_t i = 0; i < inputs.size(); i++) {
      std::vector<Tensors> lists{of_inputs[i]};
      Tensors one{inputs[i]};
      allgather(lists, one, opts);
    }
  });
}

Ptr ProcessGroupTutti::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                       const c10d::AllgatherOptions &opts)
{
  const Call call = call_of(OpType::COALESCED, "tutti:all_gather_into_tensor_coalesced", opts, &inputs);
  checks::as_many(call.title, outputs.size(), inputs.size());
  return join(call, outputs, [&] {
    for (size_t i = 0; i < inputs.size(); i++) {
      _allgather_base(outputs[i], inputs[i], opts);
    }
  });
}

Ptr ProcessGroupTutti::gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &opts)
{
  const Call call = call_of(OpType::GATHER, "tutti:gather", opts, &inputs);
  const bool root = opts.rootRank == rank_;
  c10d::assertRootRank(refuse(call.title), opts.rootRank, size_);
  c10d::assertSingleElementInput(refuse(call.title), inputs);
  check_tensors(call.title, inputs);
  Tensors results;
  if (root) {
    checks::one_per_rank(call.title, "output", outputs, size_);
    check_tensors(call.title, outputs[0]);
    c10d::assertTypeAndSizesMatch(refuse(call.title), outputs[0], inputs[0].options(), inputs[0].sizes());
    results = outputs[0];
  } else {
    checks::none_but_at_root(call.title, "output", outputs);
  }
  const at::Tensor data = flat(inputs[0]);
  const at::Tensor all = at::empty({root ? size_ * data.numel() : 0}, data.options());
  StreamWork::Parts parts{results, {data, all}, nullptr};
  if (root) {
    parts.finish = [all, results] { spread(all, results); };
  }
  return launch(call, std::move(parts), [&](ncclComm_t comm, cudaStream_t stream) {
    return lib().ncclGather(data.data_ptr(), root ? all.data_ptr() : data.data_ptr(), data.nbytes(), ncclUint8,
                            static_cast<int>(opts.rootRank), comm, stream);
  });
}

Ptr ProcessGroupTutti::scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &opts)
{
  const Call call = call_of(OpType::SCATTER, "tutti:scatter", opts, first_of(inputs));
  const bool root = opts.rootRank == rank_;
  c10d::assertRootRank(refuse(call.title), opts.rootRank, size_);
  c10d::assertSingleElementOutput(refuse(call.title), outputs);
  check_tensors(call.title, outputs);
  at::Tensor all = outputs[0];
  if (root) {
    checks::one_per_rank(call.title, "input", inputs, size_);
    check_tensors(call.title, inputs[0]);
    c10d::assertTypeAndSizesMatch(refuse(call.title), inputs[0], outputs[0].options(), outputs[0].sizes());
    all = joined(inputs[0]);
  } else {
    checks::none_but_at_root(call.title, "input", inputs);
  }
  const at::Tensor output = outputs[0];
  const at::Tensor own = place_for(output);
  StreamWork::Parts parts{outputs, {all, own}, nullptr};
  if (!is_flat(output)) {
    parts.finish = [output, own] { copy_unless_same(output, own); };
  }
  return launch(call, std::move(parts), [&](ncclComm_t comm, cudaStream_t stream) {
    return lib().ncclScatter(root ? all.data_ptr() : own.data_ptr(), own.data_ptr(), own.nbytes(), ncclUint8,
                             static_cast<int>(opts.rootRank), comm, stream);
  });
}

// ---- Reduce-scatter ----

Ptr ProcessGroupTutti::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                      const c10d::ReduceScatterOptions &opts)
{
  const Call call = call_of(OpType::REDUCE_SCATTER, "tutti:reduce_scatter", opts, first_of(inputs));
  c10d::assertSingleElementOutput(refuse(call.title), outputs);
  checks::one_per_rank(call.title, "input", inputs, size_);
  check_tensors(call.title, outputs);
  check_tensors(call.title, inputs[0]);
  for (const auto &input : inputs[0]) {
    TORCH_CHECK(input.scalar_type() == outputs[0].scalar_type(), call.title, ": an input is ", input.scalar_type(),
                ", but the output is ", outputs[0].scalar_type());
  }
  TORCH_CHECK(inputs[0][rank_].numel() == outputs[0].numel(), call.title, ": the output has ", outputs[0].numel(),
              " elements, but input ", rank_, " has ", inputs[0][rank_].numel());
  return equal_sizes(inputs[0]) ? reduce_flat(call, opts.reduceOp, outputs[0], joined(inputs[0]))
                                : reduce_unequal(call, opts.reduceOp, outputs[0], inputs[0]);
}

Ptr ProcessGroupTutti::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                            const c10d::ReduceScatterOptions &opts)
{
  const Tensors inputs{input};
  const Call call = call_of(OpType::_REDUCE_SCATTER_BASE, "tutti:reduce_scatter_tensor", opts, &inputs);
  check_tensors(call.title, {output, input});
  TORCH_CHECK(output.scalar_type() == input.scalar_type(), call.title, ": the output is ", output.scalar_type(),
              ", but the input is ", input.scalar_type());
  TORCH_CHECK(output.numel() * size_ == input.numel(), call.title, ": the input has ", input.numel(),
              " elements, but must have ", size_, " times the output's ", output.numel());
  return reduce_flat(call, opts.reduceOp, output, input);
}

Ptr ProcessGroupTutti::reduce_flat(const Call &call, const c10d::ReduceOp &op, at::Tensor &output,
                                   const at::Tensor &input)
{
  const Reduction reduction(op, input.scalar_type(), *comm_, call.title);
  const at::Tensor data = reduction.enter(input);
  const at::Tensor result =
      reduction.in_place(output) ? reduction.enter(output) : at::empty({data.numel() / size_}, data.options());
  StreamWork::Parts parts{{output}, {data, result}, nullptr};
  if (!reduction.in_place(output)) {
    parts.finish = reduction.leaving(output, result);
  }
  return launch(call, std::move(parts), [&](ncclComm_t comm, cudaStream_t stream) {
    return lib().ncclReduceScatter(data.data_ptr(), result.data_ptr(), data.numel() / size_, reduction.type(),
                                   reduction.op(), comm, stream);
  });
}

// One reduction to each rank.
Ptr ProcessGroupTutti::reduce_unequal(const Call &call, const c10d::ReduceOp &op, at::Tensor &output,
                                      const Tensors &blocks)
{
  const Reduction reduction(op, output.scalar_type(), *comm_, call.title);
  Tensors data;
  for (const auto &block : blocks) {
    data.push_back(reduction.enter(block));
  }
  const at::Tensor result = at::empty_like(data[rank_], at::MemoryFormat::Contiguous);
  StreamWork::Parts parts{{output}, data, reduction.leaving(output, result)};
  parts.keep.push_back(result);
  return launch(call, std::move(parts), [&](ncclComm_t comm, cudaStream_t stream) {
    return grouped([&] {
      ncclResult_t done = ncclSuccess;
      for (int rank = 0; rank < size_ && done == ncclSuccess; rank++) {
        void *to = rank == rank_ ? result.data_ptr() : data[rank].data_ptr();
        done = lib().ncclReduce(data[rank].data_ptr(), to, data[rank].numel(), reduction.type(), reduction.op(), rank,
                                comm, stream);
      }
      return done;
    });
  });
}

Ptr ProcessGroupTutti::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                       const c10d::ReduceScatterOptions &opts)
{
  const Call call =
      call_of(reduce_scatter_tensor_coalesced_type, "tutti:reduce_scatter_tensor_coalesced", opts, &inputs);
  checks::as_many(call.title, outputs.size(), inputs.size());
  return join(call, outputs, [&] {
    for (size_t i = 0; i < inputs.size(); i++) {
      _reduce_scatter_base(outputs[i], inputs[i], opts);
    }
  });
}

// ---- All-to-all ----

Ptr ProcessGroupTutti::alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                                     std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &opts)
{
  const Tensors inputs{input};
  const Call call = call_of(OpType::ALLTOALL_BASE, "tutti:all_to_all_single", opts, &inputs);
  check_tensors(call.title, {output, input});
  TORCH_CHECK(output.scalar_type() == input.scalar_type(), call.title, ": the output is ", output.scalar_type(),
              ", but the input is ", input.scalar_type());
  c10d::checkSplitSizes(input_splits, input, size_);
  c10d::checkSplitSizes(output_splits, output, size_);
  const at::Tensor data = flat(input);
  const at::Tensor place = place_for(output);
  StreamWork::Parts parts{{output}, {data, place}, nullptr};
  if (!is_flat(output)) {
    parts.finish = [output, place] { copy_unless_same(output, place); };
  }
  if (!output_splits.empty() || !input_splits.empty()) {
    const auto pieces = [this](const at::Tensor &whole, const std::vector<int64_t> &splits) {
      const std::vector<int64_t> equal(size_, whole.size(0) / size_);
      return whole.split_with_sizes(splits.empty() ? equal : splits, 0);
    };
    return exchange(call, std::move(parts), pieces(place, output_splits), pieces(data, input_splits));
  }
  TORCH_CHECK(output.numel() == input.numel(), call.title, ": the output has ", output.numel(),
              " elements, but the input has ", input.numel());
  return launch(call, std::move(parts), [&](ncclComm_t comm, cudaStream_t stream) {
    return lib().ncclAlltoAll(data.data_ptr(), place.data_ptr(), data.nbytes() / size_, ncclUint8, comm, stream);
  });
}

Ptr ProcessGroupTutti::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts)
{
  const Call call = call_of(OpType::ALLTOALL, "tutti:all_to_all", opts, &inputs);
  checks::world_size(call.title, "input", inputs.size(), size_);
  checks::world_size(call.title, "output", outputs.size(), size_);
  check_tensors(call.title, outputs);
  check_tensors(call.title, inputs);
  Tensors data, places;
  for (int rank = 0; rank < size_; rank++) {
    data.push_back(flat(inputs[rank]));
    places.push_back(place_for(outputs[rank]));
  }
  StreamWork::Parts parts{outputs, data, nullptr};
  parts.keep.insert(parts.keep.end(), places.begin(), places.end());
  parts.finish = [outputs, places] {
    for (size_t i = 0; i < outputs.size(); i++) {
      copy_unless_same(outputs[i], places[i]);
    }
  };
  return exchange(call, std::move(parts), places, data);
}

// Sends each of `inputs` to its rank, and receives from each rank what `outputs` have room for.
Ptr ProcessGroupTutti::exchange(const Call &call, StreamWork::Parts parts, const Tensors &outputs,
                                const Tensors &inputs)
{
  TORCH_CHECK(outputs[rank_].nbytes() == inputs[rank_].nbytes(), call.title, ": rank ", rank_, " sends ",
              inputs[rank_].nbytes(), " bytes to itself, but has room for ", outputs[rank_].nbytes());
  return launch(call, std::move(parts), [&](ncclComm_t comm, cudaStream_t stream) {
    return grouped([&] {
      ncclResult_t result = ncclSuccess;
      for (int peer = 0; peer < size_ && result == ncclSuccess; peer++) {
        if (inputs[peer].nbytes() > 0) {
          result = lib().ncclSend(inputs[peer].data_ptr(), inputs[peer].nbytes(), ncclUint8, peer, comm, stream);
        }
        if (outputs[peer].nbytes() > 0 && result == ncclSuccess) {
          result = lib().ncclRecv(outputs[peer].data_ptr(), outputs[peer].nbytes(), ncclUint8, peer, comm, stream);
        }
      }
      return result;
    });
  });
}

// ---- Barrier ----

Ptr ProcessGroupTutti::barrier(const c10d::BarrierOptions &opts)
{
  const Call call = call_of(OpType::BARRIER, "tutti:barrier", opts);
  const at::Tensor one = at::zeros({1}, at::kInt);
  return launch(call, StreamWork::Parts{{}, {one}, nullptr}, [&](ncclComm_t comm, cudaStream_t stream) {
    return lib().ncclAllReduce(one.data_ptr(), one.data_ptr(), 1, ncclInt32, ncclSum, comm, stream);
  });
}

// ---- Sparse tensors ----

at::Tensor ProcessGroupTutti::gather_now(const JoinedPtr &whole, const at::Tensor &input)
{
  at::Tensor own = flat(input);
  at::Tensor all = at::empty({size_ * own.numel()}, own.options());
  Ptr part;
  collect(whole, [&] { part = _allgather_base(all, own, {}); });
  part->wait();
  std::vector<int64_t> sizes = own.sizes().vec();
  sizes.insert(sizes.begin(), size_);
  return all.reshape(sizes);
}

// What all ranks must agree on, and then the number of elements.
static at::Tensor sparse_shape(const at::Tensor &tensor)
{
  at::Tensor shape = at::zeros({67}, at::kLong); // PyTorch has 64 dimensions at most
  auto *at = shape.data_ptr<int64_t>();
  at[0] = tensor.sparse_dim();
  at[1] = tensor.dense_dim();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), at + 2);
  at[66] = tensor._nnz();
  return shape;
}

Ptr ProcessGroupTutti::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
  const Call call = call_of(OpType::_ALLREDUCE_SPARSE, "tutti:sparse_all_reduce", opts, &tensors);
  TORCH_CHECK(opts.reduceOp == c10d::ReduceOp::SUM, call.title, ": unsupported reduction operation (only SUM)");
  c10d::assertNonEmpty(refuse(call.title), tensors);
  c10d::assertTypeAndSizesMatch(refuse(call.title), tensors);
  c10d::assertLayoutMatch(refuse(call.title), tensors);
  TORCH_CHECK(!estimating_, call.title, ": there is no estimate of its time");
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto whole = begin_joined(call, tensors);
  reduce_sparse_now(whole, tensors);
  return end_joined(whole);
}

void ProcessGroupTutti::reduce_sparse_now(const JoinedPtr &whole, const Tensors &tensors)
{
  at::Tensor own = tensors[0];
  for (size_t i = 1; i < tensors.size(); i++) {
    own = own + tensors[i];
  }
  own = own.coalesce();
  const at::Tensor shapes = gather_now(whole, sparse_shape(own));
  TORCH_CHECK(shapes.narrow(1, 0, 66).eq(shapes.select(0, 0).narrow(0, 0, 66)).all().item<bool>(), whole->title(),
              ": the ranks' tensors differ in their sizes or in their sparse dimensions");
  const auto most = shapes.select(1, 66).max().item<int64_t>();
  std::vector<int64_t> room = own._values().sizes().vec();
  room[0] = most;
  at::Tensor indices = at::zeros({most, own.sparse_dim()}, at::kLong);
  at::Tensor values = at::zeros(room, own._values().options());
  indices.narrow(0, 0, own._nnz()).copy_(own._indices().t());
  values.narrow(0, 0, own._nnz()).copy_(own._values());
  const at::Tensor all_indices = gather_now(whole, indices);
  const at::Tensor all_values = gather_now(whole, values);
  at::Tensor sum;
  for (int rank = 0; rank < size_; rank++) {
    const auto count = shapes.select(0, rank).select(0, 66).item<int64_t>();
    const at::Tensor part = at::sparse_coo_tensor(all_indices.select(0, rank).narrow(0, 0, count).t().contiguous(),
                                                  all_values.select(0, rank).narrow(0, 0, count), own.sizes(),
                                                  own._values().options().layout(at::kSparse));
    sum = rank == 0 ? part : sum + part;
  }
  sum = sum.coalesce();
  for (const auto &tensor : tensors) {
    tensor.copy_(sum);
  }
}

} // namespace tutti
