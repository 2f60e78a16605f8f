// backend.h: the back end of torchcomms. Every operation is one of the back end of torch.distributed, whose sources are
// part of this library.
#pragma once

#include <unordered_set>

#include "window.h"

namespace tutti {

class CommsTutti : public tc::TorchCommBackend {
public:
  using WorkPtr = c10::intrusive_ptr<tc::TorchWork>;

  CommsTutti();
  ~CommsTutti() override;

  void init(at::Device device, const std::string &name, const tc::CommOptions &options) override;
  void finalize() override;
  int getRank() const override;
  int getSize() const override;
  std::string_view getBackendName() const override;
  std::string_view getBackendVersion() const override;
  std::string_view getCommName() const override;
  const tc::CommOptions &getOptions() const override;
  const at::Device &getDevice() const override;

  WorkPtr send(const at::Tensor &tensor, int dst, bool async, const tc::SendOptions &options) override;
  WorkPtr recv(at::Tensor &tensor, int src, bool async, const tc::RecvOptions &options) override;
  WorkPtr batch_op_issue(const std::vector<tc::BatchSendRecv::P2POp> &ops, bool async,
                         const tc::BatchP2POptions &options) override;
  WorkPtr broadcast(at::Tensor &tensor, int root, bool async, const tc::BroadcastOptions &options) override;
  WorkPtr all_reduce(at::Tensor &tensor, const tc::ReduceOp &op, bool async,
                     const tc::AllReduceOptions &options) override;
  WorkPtr reduce(const at::Tensor &tensor, int root, const tc::ReduceOp &op, bool async,
                 const tc::ReduceOptions &options) override;
  WorkPtr all_gather(const Tensors &outputs, const at::Tensor &input, bool async,
                     const tc::AllGatherOptions &options) override;
  WorkPtr all_gather_v(const Tensors &outputs, const at::Tensor &input, bool async,
                       const tc::AllGatherOptions &options) override;
  WorkPtr all_gather_single(at::Tensor &output, const at::Tensor &input, bool async,
                            const tc::AllGatherSingleOptions &options) override;
  WorkPtr reduce_scatter(at::Tensor &output, const Tensors &inputs, const tc::ReduceOp &op, bool async,
                         const tc::ReduceScatterOptions &options) override;
  WorkPtr reduce_scatter_v(at::Tensor &output, const Tensors &inputs, const tc::ReduceOp &op, bool async,
                           const tc::ReduceScatterOptions &options) override;
  WorkPtr reduce_scatter_single(at::Tensor &output, const at::Tensor &input, const tc::ReduceOp &op, bool async,
                                const tc::ReduceScatterSingleOptions &options) override;
  WorkPtr all_to_all_single(at::Tensor &output, const at::Tensor &input, bool async,
                            const tc::AllToAllSingleOptions &options) override;
  WorkPtr all_to_all_v_single(at::Tensor &output, const at::Tensor &input, const std::vector<uint64_t> &output_splits,
                              const std::vector<uint64_t> &input_splits, bool async,
                              const tc::AllToAllvSingleOptions &options) override;
  WorkPtr all_to_all(const Tensors &outputs, const Tensors &inputs, bool async,
                     const tc::AllToAllOptions &options) override;
  WorkPtr barrier(bool async, const tc::BarrierOptions &options) override;
  WorkPtr scatter(at::Tensor &output, const Tensors &inputs, int root, bool async,
                  const tc::ScatterOptions &options) override;
  WorkPtr gather(const Tensors &outputs, const at::Tensor &input, int root, bool async,
                 const tc::GatherOptions &options) override;

  std::shared_ptr<tc::TorchCommBackend> split(const std::vector<int> &ranks, const std::string &name,
                                              const tc::CommOptions &options) override;
  bool supportsWindow() const override
  {
    return true;
  }
  std::shared_ptr<tc::TorchCommWindow> new_window(const std::optional<at::Tensor> &tensor) override;
  bool supportsReconfigure() const override
  {
    return true;
  }
  tc::InitHandle getInitHandle() const override;
  WorkPtr reconfigure(const tc::ReconfigureOptions &options) override;
  void setTimeout(Milliseconds timeout) override;
  bool isInitialized() const override;
  bool isAbortSupported() const override
  {
    return true;
  }
  bool isAborted() const override
  {
    return aborted_;
  }
  void abort() override;
  void registerAbortHook(int64_t id, tc::AbortHook hook) override;
  void unregisterAbortHook(int64_t id) override;

private:
  void keep(const ProcessGroupTutti::StorePtr &meeting, const tc::CommOptions &options);
  void start(const ProcessGroupTutti::StorePtr &store, int rank, int size, const tc::CommOptions &options);
  // The group. Throws when there is none yet, or no more.
  ProcessGroupTutti &group(const char *operation) const;
  // From now on there is no group. Gives the one that was there; reconfigure() has begun.
  c10::intrusive_ptr<ProcessGroupTutti> drop_group();
  // Puts a group in place. False: abort() has been called since drop_group().
  bool place_group(const c10::intrusive_ptr<ProcessGroupTutti> &group);
  // reconfigure.cpp.
  struct Plan;
  static std::string new_member();
  static c10::intrusive_ptr<ProcessGroupTutti> remaining(ProcessGroupTutti &old, const Plan &plan,
                                                         const ProcessGroupTutti::OptionsPtr &options);
  [[noreturn]] void throw_aborted() const;
  // As follow(). When abort() is called meanwhile, it throws.
  c10::intrusive_ptr<ProcessGroupTutti> make_group(const Plan &plan, int place,
                                                   const c10::intrusive_ptr<ProcessGroupTutti> &old,
                                                   const ProcessGroupTutti::StorePtr &store,
                                                   const ProcessGroupTutti::OptionsPtr &options) const;
  static c10::intrusive_ptr<ProcessGroupTutti> follow(const Plan &plan, int place,
                                                      const c10::intrusive_ptr<ProcessGroupTutti> &old,
                                                      const ProcessGroupTutti::StorePtr &store,
                                                      const ProcessGroupTutti::OptionsPtr &options);
  // Waits for the operation that `call` starts, unless `async`.
  template <typename O, typename F> WorkPtr run(bool async, const O &options, F call);

  std::shared_ptr<Owner> owner_;
  std::string name_;
  tc::CommOptions options_;
  at::Device device_{at::kCPU};
  std::mutex mutex_; // of group_ and stop_: abort() is called by any thread. The program's thread, which alone changes
                     // group_, reads it without
  c10::intrusive_ptr<ProcessGroupTutti> group_;
  std::atomic<bool> stop_{false};        // abort() has been called: a reconfigure() that is under way gives up
  std::shared_ptr<WindowSpace> windows_; // of the group; made with its first window
  ProcessGroupTutti::StorePtr meeting_;  // where all members meet
  ProcessGroupTutti::StorePtr store_;    // of the group, in it
  std::string member_, configuration_;   // as in the handle
  std::unordered_set<int64_t> uuids_;    // of reconfigure()
  uint64_t splits_ = 0;
  std::atomic<bool> finalized_{false};
  std::atomic<bool> aborted_{false};
};

} // namespace tutti
