// group.h: the back end of torch.distributed.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <unordered_map>

#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "checks.h"
#include "messages.h"
#include "reduction.h"

namespace tutti {

class ProcessGroupTutti : public c10d::Backend {
public:
  using Ptr = c10::intrusive_ptr<c10d::Work>;
  using StorePtr = c10::intrusive_ptr<c10d::Store>;
  using OptionsPtr = c10::intrusive_ptr<Options>;
  using JoinedPtr = c10::intrusive_ptr<JoinedWork>;

  // Meets the other ranks in `store`, and creates the communicator. Throws when they do not come in time.
  ProcessGroupTutti(StorePtr store, int rank, int size, OptionsPtr options);
  // The same with a communicator that exists; takes ownership.
  ProcessGroupTutti(StorePtr store, int rank, int size, OptionsPtr options, ncclComm_t comm);
  ~ProcessGroupTutti() override;

  const std::string getBackendName() const override
  {
    return "tutti";
  }
  OptionsPtr getBackendOptions() override
  {
    return options_;
  }
  bool supportsSplitting() const override
  {
    return true;
  }
  bool supportsCoalescing() const override
  {
    return true;
  }
  bool supportsShrinking() const TUTTI_TORCH_OVERRIDES_SINCE_2_13
  {
    return true;
  }
  bool supportsTimeEstimation() const TUTTI_TORCH_OVERRIDES_SINCE_2_13
  {
    return true;
  }
  void setTimeout(Milliseconds timeout) override
  {
    options_->timeout = timeout;
  }

  Ptr broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override;
  Ptr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
  Ptr allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
  Ptr allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts) override;
  Ptr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override;
  Ptr allgather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override;
  Ptr _allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &opts) override;
  Ptr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override;
  Ptr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override;
  Ptr gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &opts) override;
  Ptr scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &opts) override;
  Ptr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ReduceScatterOptions &opts) override;
  Ptr _reduce_scatter_base(at::Tensor &output, at::Tensor &input, const c10d::ReduceScatterOptions &opts) override;
  Ptr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                      const c10d::ReduceScatterOptions &opts) override;
  Ptr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                    std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &opts) override;
  Ptr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) override;
  Ptr barrier(const c10d::BarrierOptions &opts) override;
  void monitoredBarrier(const c10d::BarrierOptions &opts, bool all) override;

  // Throws where send() or recv() would refuse these arguments.
  void check_message(const char *what, const Tensors &tensors, int peer, int tag) const;
  Ptr send(Tensors &tensors, int peer, int tag) override;
  Ptr recv(Tensors &tensors, int peer, int tag) override;
  Ptr recvAnysource(Tensors &tensors, int tag) override;

  // What is called between both is one work, and one event of the profiler.
  void startCoalescing() override;
  Ptr endCoalescing() override;
  // The same for what `calls` call.
  Ptr batch(const std::function<void()> &calls);
  // Between both nothing runs. The end gives the time, in us, that it would have taken.
  void start_time_estimate();
  double end_time_estimate();

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override
  {
    return number_;
  }

  c10::intrusive_ptr<Backend> split(const StorePtr &store, const std::vector<int> &ranks,
                                    const OptionsPtr &opts) override;
  c10::intrusive_ptr<Backend> shrink(const std::vector<int64_t> &excluded, int flags,
                                     const OptionsPtr &opts) TUTTI_TORCH_OVERRIDES_SINCE_2_13;
  // A group with the ranks of other groups: all meet in `store`.
  c10::intrusive_ptr<Backend> merge(const StorePtr &store, const OptionsPtr &opts, const int &rank,
                                    const int &size) TUTTI_TORCH_OVERRIDES_SINCE_2_13;

  // The communicator of `size` ranks that these and new ones make, which meet at "grow" of `store`. Rank 0 is old.
  c10::intrusive_ptr<ProcessGroupTutti> grow(const StorePtr &store, int size, const OptionsPtr &opts);
  // The same for a new rank.
  static c10::intrusive_ptr<ProcessGroupTutti> grown(const StorePtr &store, int rank, int size, const OptionsPtr &opts);
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

  // The hook is called for each operation from now on that has ended, by a thread of its own.
  void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)> &&hook) override;
  // Waits until all operations have ended and the hook has returned. Throws after the group's time-out.
  void waitForPendingWorks() override;
  void enableCollectivesTiming() override;

  // Tensors in memory that peers map.
  bool supportsTensorAlloc(c10::DeviceIndex device) TUTTI_TORCH_OVERRIDES_SINCE_2_13;
  at::Tensor allocateTensor(long size, at::TensorOptions options) TUTTI_TORCH_OVERRIDES_SINCE_2_13;
  // The memory of the communicator that collectives use: all ranks call them, with nothing under way.
  void suspend() TUTTI_TORCH_OVERRIDES_SINCE_2_13;
  void resume() TUTTI_TORCH_OVERRIDES_SINCE_2_13;
  std::unordered_map<std::string, uint64_t> getMemoryStats() TUTTI_TORCH_OVERRIDES_SINCE_2_13;

  // One-sided operations: what queue() does, in the order of the operations. Gives the work that ends with it, always.
  // A wait for a signal above 0 stands beside them, in the order of the waits for this signal.
  struct OneSided {
    const char *title; // "tutti:put"
    Milliseconds timeout;
    int waits_for; // signal; 0: it does not wait
    Tensors keep;  // memory that it uses
  };
  using Queue = std::function<ncclResult_t(ncclComm_t comm, cudaStream_t stream)>;
  Ptr one_sided(const OneSided &what, const Queue &queue);
  // Is a wait for this signal under way?
  bool waits_for(int signal)
  {
    return comm_->waits_for(signal);
  }
  // Calls call(handle), which may wait for peers, as the only call. NULL: it has been shut down or aborted.
  template <typename F> auto use(F call)
  {
    const CallsGuard guard(comm_->calls());
    return call(comm_->handle());
  }

  // What the library knows of the communicator just now, and of its last operations: JSON (docs/hangs.md).
  std::string diagnose();
  std::string flight_recorder();

private:
  // How an operation is named, waited for and counted.
  struct Call {
    c10d::OpType type;
    const char *title; // "tutti:all_reduce"
    Milliseconds timeout;
    bool async;
    const Tensors *inputs = nullptr; // for the profiler
  };
  // Queues an operation by queue(communicator, stream), and gives the work that ends with it. A call that is not
  // asynchronous returns when the operation is complete, and gives none: PyTorch has nothing to wait for then.
  template <typename F> Ptr launch(const Call &call, StreamWork::Parts parts, F queue);
  template <typename F> Ptr start(const Call &call, StreamWork::Parts parts, F queue);
  template <typename O>
  Call call_of(c10d::OpType type, const char *title, const O &opts, const Tensors *inputs = nullptr) const;
  // A work. A part of another one has no event in the profiler, and is not observed.
  template <typename W, typename... A> c10::intrusive_ptr<W> make(A &&...args);
  // What each operation gives: adds it to the one that it is part of.
  Ptr note(const c10::intrusive_ptr<BaseWork> &work);
  // One work for all that `calls` launch. Its three steps: the program may wait between them.
  Ptr join(const Call &call, Tensors outputs, const std::function<void()> &calls);
  JoinedPtr begin_joined(const Call &call, Tensors outputs);
  void collect(const JoinedPtr &whole, const std::function<void()> &calls);
  Ptr end_joined(const JoinedPtr &whole);
  // A message that `post` posts.
  Ptr message(c10d::OpType type, const char *title, const at::Tensor &tensor,
              const std::function<void(const MessagePtr &)> &post);
  Milliseconds timeout_of(Milliseconds wanted) const;
  std::string own_name() const;

  Ptr reduce_flat(const Call &call, const c10d::ReduceOp &op, at::Tensor &output, const at::Tensor &input);
  Ptr reduce_unequal(const Call &call, const c10d::ReduceOp &op, at::Tensor &output, const Tensors &blocks);
  Ptr gather_unequal(const Call &call, const Tensors &outputs, const at::Tensor &input);
  Ptr exchange(const Call &call, StreamWork::Parts parts, const Tensors &outputs, const Tensors &inputs);
  at::Tensor gather_now(const JoinedPtr &whole, const at::Tensor &input);
  void reduce_sparse_now(const JoinedPtr &whole, const Tensors &tensors);
  // A call of all ranks that gives memory back or takes it again.
  void switch_memory(const char *operation, const std::function<ncclResult_t(ncclComm_t)> &begin);
  void close(const std::string &why);

  StorePtr store_;
  OptionsPtr options_;
  std::shared_ptr<Comm> comm_;
  std::shared_ptr<Messages> messages_;
  std::atomic<uint64_t> number_{0};
  std::atomic<uint64_t> barriers_{0};
  // With comm_->calls() locked:
  std::deque<c10::intrusive_ptr<StreamWork>> running_; // so that what the program forgets keeps its memory
  uint64_t shrinks_ = 0;
  uint64_t memory_calls_ = 0;          // suspend() and resume()
  JoinedPtr joining_;                  // what is launched is part of it
  std::shared_ptr<Observer> observer_; // null: nobody wants to know how long operations take
  bool estimating_ = false;
  double estimated_us_ = 0;
};

template <typename W, typename... A> c10::intrusive_ptr<W> ProcessGroupTutti::make(A &&...args)
{
  std::optional<at::DisableRecordFunctionGuard> quiet;
  if (joining_) {
    quiet.emplace();
  }
  auto work = c10::make_intrusive<W>(rank_, std::forward<A>(args)...);
  if (!joining_ && observer_) {
    work->observe(observer_);
  }
  return work;
}

} // namespace tutti
