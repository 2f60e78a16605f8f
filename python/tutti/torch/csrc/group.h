// group.h: the back end of torch.distributed.
#pragma once

#include <deque>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "messages.h"
#include "reduction.h"

namespace tutti {

class ProcessGroupTutti : public c10d::Backend {
public:
  using Ptr = c10::intrusive_ptr<c10d::Work>;
  using StorePtr = c10::intrusive_ptr<c10d::Store>;
  using OptionsPtr = c10::intrusive_ptr<Options>;

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
  bool supportsShrinking() const override
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

  Ptr send(Tensors &tensors, int peer, int tag) override;
  Ptr recv(Tensors &tensors, int peer, int tag) override;
  Ptr recvAnysource(Tensors &tensors, int tag) override;

  void startCoalescing() override;
  Ptr endCoalescing() override;
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override
  {
    return number_;
  }

  c10::intrusive_ptr<Backend> split(const StorePtr &store, const std::vector<int> &ranks,
                                    const OptionsPtr &opts) override;
  c10::intrusive_ptr<Backend> shrink(const std::vector<int64_t> &excluded, int flags, const OptionsPtr &opts) override;
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

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
  };
  // Queues an operation, and gives the work that ends with it.
  template <typename F> Ptr launch(const Call &call, StreamWork::Parts parts, F queue);
  template <typename O> Call call_of(c10d::OpType type, const char *title, const O &opts) const;
  Ptr note(const Ptr &work);
  Milliseconds timeout_of(Milliseconds wanted) const;
  std::string own_name() const;

  Ptr join(const Call &call, std::vector<Ptr> parts, Tensors outputs);
  Ptr reduce_flat(const Call &call, const c10d::ReduceOp &op, at::Tensor &output, const at::Tensor &input);
  Ptr reduce_unequal(const Call &call, const c10d::ReduceOp &op, at::Tensor &output, const Tensors &blocks);
  Ptr gather_unequal(const Call &call, const Tensors &outputs, const at::Tensor &input);
  Ptr exchange(const Call &call, StreamWork::Parts parts, const Tensors &outputs, const Tensors &inputs);
  at::Tensor gather_now(const at::Tensor &input);
  void close(const std::string &why);

  StorePtr store_;
  OptionsPtr options_;
  std::shared_ptr<Comm> comm_;
  std::shared_ptr<Messages> messages_;
  std::recursive_mutex mutex_;                         // one call of the library at a time
  std::deque<c10::intrusive_ptr<StreamWork>> running_; // so that what the program forgets keeps its memory
  std::atomic<uint64_t> number_{0};
  uint64_t barriers_ = 0;
  uint64_t shrinks_ = 0;
  bool coalescing_ = false;
  std::vector<Ptr> coalesced_;
};

} // namespace tutti
