// comms_work.h: an operation of torch.distributed's back end as torchcomms has it.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include <comms/torchcomms/TorchCommBackend.hpp>

#include "../../torch/csrc/group.h"

namespace tutti {

namespace tc = torch::comms;

// The program's abort hooks of a communicator, which may go before its operations.
struct Owner {
  using Hook = std::shared_ptr<const tc::AbortHook>;

  // An operation has failed: calls the hooks. They are not copied, since a copy of Python's needs the GIL.
  void failed();

  std::mutex mutex;
  std::map<int64_t, Hook> hooks; // by number; none: the communicator has gone
};

// An operation of torch.distributed as one of torchcomms.
class CommsWork : public tc::TorchWork {
public:
  // `limit`: of the operation; kNoTimeout: that of the communicator, `usual`.
  CommsWork(c10::intrusive_ptr<c10d::Work> work, Milliseconds limit, Milliseconds usual, std::shared_ptr<Owner> owner);

  // The status changes when the operation ends, though nobody waits: by a thread of the library.
  void watch();
  void wait() override;
  void waitBlocking() override
  {
    wait();
  }
  Milliseconds getTimeout() const override
  {
    return limit_ != tc::kNoTimeout ? limit_ : usual_;
  }

private:
  void end(const std::exception_ptr &error);

  c10::intrusive_ptr<c10d::Work> work_;
  Milliseconds limit_, usual_;
  std::shared_ptr<Owner> owner_;
  std::recursive_mutex ending_; // the program or the library finds the end; a hook may wait again
  bool failing_ = false;        // the abort hooks are being called, or have been
};

} // namespace tutti
