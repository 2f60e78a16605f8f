#include "window.h"

#include <algorithm>

namespace tutti {

// Signals of a communicator: puts count up the first, which nobody waits for.
enum { SIGNAL_OF_PUTS = 0, SIGNAL_OF_FENCES = 1, FIRST_SIGNAL = 2 };

static constexpr size_t staging_bytes = 1 << 20;
static constexpr size_t page = NCCL_WIN_REQUIRED_ALIGNMENT;

// ---- WindowSpace ----

WindowSpace::WindowSpace(c10::intrusive_ptr<ProcessGroupTutti> group_, std::shared_ptr<Owner> owner, Milliseconds usual)
    : group(std::move(group_)), owner_(std::move(owner)), usual_(usual),
      sent_(static_cast<size_t>(one_sided_signals) * static_cast<size_t>(group->getSize())), waited_(sent_.size())
{
}

WindowSpace::~WindowSpace()
{
  close(staging_window_, staging_);
  lib().ncclMemFree(staging_);
}

c10::intrusive_ptr<tc::TorchWork> WindowSpace::run(bool async, const ProcessGroupTutti::OneSided &what,
                                                   const ProcessGroupTutti::Queue &queue)
{
  const auto work = c10::make_intrusive<CommsWork>(group->one_sided(what, queue), what.timeout, usual_, owner_);
  async ? work->watch() : work->wait();
  return work;
}

ncclWindow_t WindowSpace::open(void *start, size_t bytes)
{
  const auto enter = [&](void *at, size_t size) {
    ncclWindow_t window = nullptr;
    group->use([&](ncclComm_t comm) {
      check(lib().ncclCommWindowRegister(comm, at, size, &window, NCCL_WIN_DEFAULT), "a window", comm);
    });
    ranges_[reinterpret_cast<uintptr_t>(at)] = size;
    return window;
  };
  if (staging_ == nullptr) {
    check(lib().ncclMemAlloc(&staging_, staging_bytes), "memory for puts");
  }
  if (staging_window_ == nullptr) {
    staging_window_ = enter(staging_, staging_bytes);
  }
  return enter(start, bytes);
}

void WindowSpace::close(ncclWindow_t window, const void *start)
{
  ranges_.erase(reinterpret_cast<uintptr_t>(start));
  if (window != nullptr) {
    group->use([&](ncclComm_t comm) {
      if (comm != nullptr) {
        lib().ncclCommWindowDeregister(comm, window);
      }
    });
  }
}

std::vector<int64_t> WindowSpace::exchange(const std::vector<int64_t> &own)
{
  const auto count = static_cast<int64_t>(own.size());
  at::Tensor input = at::empty({count}, at::kLong);
  at::Tensor output = at::empty({count * group->getSize()}, at::kLong);
  std::copy(own.begin(), own.end(), input.data_ptr<int64_t>());
  group->_allgather_base(output, input, c10d::AllgatherOptions())->wait();
  const int64_t *all = output.data_ptr<int64_t>();
  return {all, all + output.numel()};
}

// A signal that is seen has all earlier puts of that peer in place.
void WindowSpace::fence()
{
  const int own = group->getRank(), size = group->getSize();
  const ProcessGroupTutti::OneSided what{"tutti:fence", c10d::kUnsetTimeout, 0, {}};
  group
      ->one_sided(what,
                  [&](ncclComm_t comm, cudaStream_t stream) {
                    std::vector<ncclWaitSignalDesc_t> waits;
                    for (int peer = 0; peer < size; peer++) {
                      if (peer == own) {
                        continue;
                      }
                      const ncclResult_t result = lib().ncclSignal(peer, SIGNAL_OF_FENCES, 0, 0, comm, stream);
                      if (result != ncclSuccess) {
                        return result;
                      }
                      waits.push_back({1, peer, SIGNAL_OF_FENCES, 0});
                    }
                    return waits.empty()
                               ? ncclSuccess
                               : lib().ncclWaitSignal(static_cast<int>(waits.size()), waits.data(), comm, stream);
                  })
      ->wait();
}

size_t WindowSpace::place_of(int signal, int peer) const
{
  return static_cast<size_t>(signal) * static_cast<size_t>(group->getSize()) + static_cast<size_t>(peer);
}

int WindowSpace::take_signal()
{
  uint64_t busy = taken_;
  for (int signal = FIRST_SIGNAL; signal < one_sided_signals; signal++) {
    busy |= group->waits_for(signal) ? uint64_t{1} << signal : 0;
  }
  for (const int64_t other : exchange({static_cast<int64_t>(busy)})) {
    busy |= static_cast<uint64_t>(other);
  }
  int signal = FIRST_SIGNAL;
  while (signal < one_sided_signals && (busy >> signal & 1) != 0) {
    signal++;
  }
  TORCH_CHECK(signal < one_sided_signals, "tutti: a communicator has at most ", one_sided_signals - FIRST_SIGNAL,
              " windows with tensors at a time");
  drain(signal);
  taken_ |= uint64_t{1} << signal;
  return signal;
}

void WindowSpace::give_signal(int signal)
{
  taken_ &= ~(uint64_t{1} << signal);
}

// Waits for what peers have signalled and nobody has waited for: a window before had this signal.
void WindowSpace::drain(int signal)
{
  const int own = group->getRank(), size = group->getSize();
  const auto first = sent_.begin() + static_cast<std::ptrdiff_t>(place_of(signal, 0));
  const std::vector<int64_t> all = exchange({first, first + size}); // what each rank has signalled to each
  const auto left = [&](int peer) {
    return all[static_cast<size_t>(peer) * static_cast<size_t>(size) + static_cast<size_t>(own)] -
           waited_[place_of(signal, peer)];
  };
  const ProcessGroupTutti::OneSided what{"tutti:drain", c10d::kUnsetTimeout, signal, {}};
  for (int peer = 0; peer < size; peer++) {
    if (left(peer) > 0) {
      group
          ->one_sided(what, [&](ncclComm_t comm,
                                cudaStream_t stream) { return wait_signals(peer, signal, left(peer), comm, stream); })
          ->wait();
    }
  }
}

ncclResult_t WindowSpace::signal(int peer, int signal, ncclComm_t comm, cudaStream_t stream)
{
  const ncclResult_t result = lib().ncclSignal(peer, signal, 0, 0, comm, stream);
  sent_[place_of(signal, peer)] += result == ncclSuccess;
  return result;
}

ncclResult_t WindowSpace::wait_signals(int peer, int signal, int64_t count, ncclComm_t comm, cudaStream_t stream)
{
  ncclWaitSignalDesc_t wanted{static_cast<int>(count), peer, signal, 0};
  const ncclResult_t result = lib().ncclWaitSignal(1, &wanted, comm, stream);
  waited_[place_of(signal, peer)] += result == ncclSuccess ? count : 0;
  return result;
}

bool WindowSpace::holds(const void *start, size_t bytes) const
{
  const auto at = reinterpret_cast<uintptr_t>(start);
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const auto &range) {
    return at >= range.first && bytes <= range.second && at - range.first <= range.second - bytes;
  });
}

ncclResult_t WindowSpace::put(const at::Tensor &data, int peer, ncclWindow_t window, size_t offset, ncclComm_t comm,
                              cudaStream_t stream) const
{
  const char *from = static_cast<const char *>(data.data_ptr());
  const size_t bytes = data.nbytes();
  const bool staged = !holds(from, bytes);
  for (size_t at = 0; at < bytes;) { // a put is complete in the stream when its memory may be written again
    const size_t piece = staged ? std::min(bytes - at, staging_bytes) : bytes;
    ncclResult_t result =
        staged ? lib().tuttiMemcpyAsync(staging_, from + at, piece, stream) : ncclResult_t{ncclSuccess};
    if (result == ncclSuccess) {
      const void *source = staged ? staging_ : from + at;
      result =
          lib().ncclPutSignal(source, piece, ncclUint8, peer, window, offset + at, SIGNAL_OF_PUTS, 0, 0, comm, stream);
    }
    if (result != ncclSuccess) {
      return result;
    }
    at += piece;
  }
  return ncclSuccess;
}

// ---- WindowTutti ----

WindowTutti::WindowTutti(std::shared_ptr<WindowSpace> space) : space_(std::move(space))
{
  buf_device_ = at::kCPU;
}

WindowTutti::~WindowTutti()
{
  if (window_ != nullptr) { // of this rank alone: its peers' puts are refused from now on
    forget();
  }
}

void WindowTutti::forget()
{
  space_->close(window_, start_);
  space_->give_signal(signal_);
  window_ = nullptr;
  start_ = data_ = nullptr;
  parts_.clear();
  win_size_ = 0;
  buf_tensor_.reset();
}

// Windows in memory that the library has allocated begin a whole number of pages behind the allocation's start.
static size_t shift_of_window(const void *data)
{
  tuttiPointerAttributes_t known{};
  check(lib().tuttiPointerGetAttributes(&known, data), "the memory of a window");
  return known.kind == tuttiMemoryDevice
             ? static_cast<size_t>(static_cast<const char *>(data) - static_cast<char *>(known.base)) % page
             : 0;
}

void WindowTutti::tensor_register(const at::Tensor &tensor, bool owning)
{
  TORCH_CHECK(window_ == nullptr, "tutti: tensor_register: the window has a tensor already");
  TORCH_CHECK(tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() &&
                  tensor.nbytes() > 0,
              "tutti: tensor_register takes a contiguous CPU tensor with elements");
  const size_t shift = shift_of_window(tensor.data_ptr());
  signal_ = space_->take_signal();
  data_ = static_cast<char *>(tensor.data_ptr());
  start_ = data_ - shift;
  try {
    window_ = space_->open(start_, tensor.nbytes() + shift);
    const auto all = space_->exchange({static_cast<int64_t>(tensor.nbytes()), static_cast<int64_t>(shift)});
    for (size_t i = 0; i < all.size(); i += 2) {
      parts_.push_back({all[i], all[i + 1]});
    }
  } catch (...) {
    forget();
    throw;
  }
  win_size_ = tensor.nbytes();
  buf_dtype_ = tensor.scalar_type();
  buf_shape_ = tensor.sizes().vec();
  if (owning) {
    buf_tensor_ = tensor;
  }
}

void WindowTutti::tensor_deregister()
{
  check_open("tensor_deregister", 0);
  try {
    space_->fence();
  } catch (...) {
    forget();
    throw;
  }
  forget();
}

std::shared_ptr<tc::TorchCommWindow> WindowTutti::clone()
{
  auto copy = std::make_shared<WindowTutti>(space_);
  if (window_ != nullptr) {
    copy->tensor_register(map_remote_tensor(space_->group->getRank()).clone(), true);
  }
  return copy;
}

void WindowTutti::check_open(const char *what, int peer) const
{
  TORCH_CHECK(window_ != nullptr, "tutti: ", what, ": the window has no tensor: call tensor_register first");
  TORCH_CHECK(peer >= 0 && peer < space_->group->getSize(), "tutti: ", what, ": there is no rank ", peer, " of ",
              space_->group->getSize());
}

WindowTutti::WorkPtr WindowTutti::put(const at::Tensor &tensor, int peer, size_t offset, bool async,
                                      const tc::PutOptions &options)
{
  check_open("put", peer);
  TORCH_CHECK(tensor.is_cpu() && tensor.layout() == at::kStrided, "tutti: put takes a dense CPU tensor");
  TORCH_CHECK(tensor.scalar_type() == buf_dtype_, "tutti: put: the tensor is of ", tensor.scalar_type(),
              ", the window of ", buf_dtype_);
  const at::Tensor data = tensor.resolve_conj().resolve_neg().contiguous();
  const Part &part = parts_[static_cast<size_t>(peer)];
  const size_t size = data.element_size(), room = static_cast<size_t>(part.bytes) / size;
  TORCH_CHECK(static_cast<size_t>(data.numel()) <= room && offset <= room - static_cast<size_t>(data.numel()),
              "tutti: put: ", data.numel(), " elements at ", offset, " exceed the ", room, " of rank ", peer,
              "'s window");
  const size_t at = static_cast<size_t>(part.shift) + offset * size;
  return space_->run(async, {"tutti:put", options.timeout, 0, {data}},
                     [&, window = window_](ncclComm_t comm, cudaStream_t stream) {
                       return space_->put(data, peer, window, at, comm, stream);
                     });
}

WindowTutti::WorkPtr WindowTutti::signal(int peer, bool async, const tc::SignalOptions &options)
{
  check_open("signal", peer);
  return space_->run(async, {"tutti:signal", options.timeout, 0, {}},
                     [&](ncclComm_t comm, cudaStream_t stream) { return space_->signal(peer, signal_, comm, stream); });
}

WindowTutti::WorkPtr WindowTutti::wait_signal(int peer, bool async, const tc::WaitSignalOptions &options)
{
  check_open("wait_signal", peer);
  return space_->run(
      async, {"tutti:wait_signal", options.timeout, signal_, {}},
      [&](ncclComm_t comm, cudaStream_t stream) { return space_->wait_signals(peer, signal_, 1, comm, stream); });
}

char *WindowTutti::address_of(int peer) const
{
  void *at = nullptr;
  if (peer == space_->group->getRank()) {
    return data_;
  }
  space_->group->use([&](ncclComm_t comm) {
    const auto shift = static_cast<size_t>(parts_[static_cast<size_t>(peer)].shift);
    check(lib().ncclGetPeerDevicePointer(window_, shift, peer, &at), "the address of a window", comm);
  });
  return static_cast<char *>(at);
}

// Good until one of the two ranks deregisters its tensor.
at::Tensor WindowTutti::map_remote_tensor(int rank)
{
  check_open("map_remote_tensor", rank);
  if (rank == space_->group->getRank() && buf_tensor_.has_value()) {
    return *buf_tensor_;
  }
  const int64_t theirs = parts_[static_cast<size_t>(rank)].bytes;
  TORCH_CHECK(static_cast<size_t>(theirs) == win_size_, "tutti: map_remote_tensor: rank ", rank, " has ", theirs,
              " bytes in the window, this rank ", win_size_, ": its shape is not known");
  char *at = address_of(rank);
  TORCH_CHECK(at != nullptr, "tutti: map_remote_tensor: the window of rank ", rank,
              " cannot be mapped here: get_attr says SEPARATE; use put");
  return at::from_blob(at, buf_shape_, at::TensorOptions().dtype(buf_dtype_));
}

std::shared_ptr<tc::TorchCommWindowAttr> WindowTutti::get_attr(int peer)
{
  using Access = tc::TorchCommWinAccessType;
  check_open("get_attr", peer);
  auto attr = std::make_shared<tc::TorchCommWindowAttr>();
  attr->accessType = address_of(peer) != nullptr ? Access::WIN_ACCESS_TYPE_UNIFIED : Access::WIN_ACCESS_TYPE_SEPARATE;
  return attr;
}

} // namespace tutti
