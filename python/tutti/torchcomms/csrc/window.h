// window.h: windows of torchcomms, over Tutti's (docs/one-sided.md).
#pragma once

#include <map>
#include <memory>
#include <vector>

#include <comms/torchcomms/TorchCommWindow.hpp>

#include "comms_work.h"

namespace tutti {

// What the windows of one communicator share. All its ranks register their windows in the same order. Which signal a
// window has they agree on, since a rank may lose a window alone: its program has let go of it, or an error was there.
class WindowSpace {
public:
  WindowSpace(c10::intrusive_ptr<ProcessGroupTutti> group, std::shared_ptr<Owner> owner, Milliseconds usual);
  ~WindowSpace();
  WindowSpace(const WindowSpace &) = delete;
  WindowSpace &operator=(const WindowSpace &) = delete;

  // A one-sided operation, which queue() starts. Waits for it, unless `async`.
  c10::intrusive_ptr<tc::TorchWork> run(bool async, const ProcessGroupTutti::OneSided &what,
                                        const ProcessGroupTutti::Queue &queue);
  // Collective: this rank's part of a window, as `bytes` of its memory.
  ncclWindow_t open(void *start, size_t bytes);
  // Ends it. Throws nothing.
  void close(ncclWindow_t window, const void *start);
  // Collective: what each rank says, `own` on this one.
  std::vector<int64_t> exchange(const std::vector<int64_t> &own);
  // Collective: all puts that any rank has begun have arrived everywhere.
  void fence();
  // Collective: a signal that no window of any rank has and nobody waits for, taken for a new window; what was left of
  // it is consumed. Throws when there is none, on all ranks.
  int take_signal();
  void give_signal(int signal);
  // Of a window: counts its signal up at the peer; waits until the peer has done so once more.
  ncclResult_t signal(int peer, int signal, ncclComm_t comm, cudaStream_t stream);
  ncclResult_t wait_signals(int peer, int signal, int64_t count, ncclComm_t comm, cudaStream_t stream);
  // Queues a put. Data that no window of this rank holds go through the space's own memory, piece by piece.
  ncclResult_t put(const at::Tensor &data, int peer, ncclWindow_t window, size_t offset, ncclComm_t comm,
                   cudaStream_t stream) const;

  const c10::intrusive_ptr<ProcessGroupTutti> group;

private:
  bool holds(const void *start, size_t bytes) const;
  size_t place_of(int signal, int peer) const;
  void drain(int signal);

  std::shared_ptr<Owner> owner_;
  Milliseconds usual_;
  std::map<uintptr_t, size_t> ranges_; // of this rank's windows
  uint64_t taken_ = 0;                 // a bit for each signal
  // By signal and peer: how often this rank has signalled the peer, and waited for it.
  std::vector<int64_t> sent_, waited_;
  void *staging_ = nullptr; // made with the first window
  ncclWindow_t staging_window_ = nullptr;
};

class WindowTutti : public tc::TorchCommWindow {
public:
  using WorkPtr = c10::intrusive_ptr<tc::TorchWork>;

  explicit WindowTutti(std::shared_ptr<WindowSpace> space);
  ~WindowTutti() override;

  void tensor_register(const at::Tensor &tensor, bool owning) override;
  void tensor_deregister() override;
  std::shared_ptr<tc::TorchCommWindow> clone() override;
  WorkPtr put(const at::Tensor &tensor, int peer, size_t offset, bool async, const tc::PutOptions &options) override;
  WorkPtr signal(int peer, bool async, const tc::SignalOptions &options) override;
  WorkPtr wait_signal(int peer, bool async, const tc::WaitSignalOptions &options) override;
  at::Tensor map_remote_tensor(int rank) override;
  std::shared_ptr<tc::TorchCommWindowAttr> get_attr(int peer) override;

private:
  // A rank's part.
  struct Part {
    int64_t bytes;
    int64_t shift; // from the window's start to the tensor's
  };
  void check_open(const char *what, int peer) const;
  // Where a peer's tensor lies in this process; NULL: it is out of reach.
  char *address_of(int peer) const;
  void forget();

  std::shared_ptr<WindowSpace> space_;
  ncclWindow_t window_ = nullptr; // NULL: no tensor is registered
  char *start_ = nullptr;         // of the window
  char *data_ = nullptr;          // of the tensor
  std::vector<Part> parts_;       // by rank
  int signal_ = 0;
};

} // namespace tutti
