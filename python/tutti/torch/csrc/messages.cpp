#include "messages.h"

#include <ATen/core/LegacyTypeDispatch.h>

namespace tutti {

MessageWork::MessageWork(int rank, c10d::OpType type, const char *title, const at::Tensor &tensor, Milliseconds timeout,
                         std::weak_ptr<Messages> owner)
    : BaseWork(rank, type, title, {tensor}, timeout, 1, &static_cast<const Tensors &>(Tensors{tensor})),
      owner_(std::move(owner))
{
  begin();
}

// Looks now and then whether a rank has died: the peer may be gone before the two have met.
void MessageWork::await(Clock::time_point limit)
{
  const auto owner = owner_.lock();
  std::string text;
  while (text.empty()) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (cv_.wait_until(lock, std::min(limit, Clock::now() + Milliseconds(100)), [this] { return ended(); })) {
      return;
    }
    lock.unlock();
    text = owner ? owner->group_error() : "";
    if (text.empty() && Clock::now() >= limit) {
      const auto waited = std::chrono::duration_cast<Milliseconds>(limit - begun_).count();
      text = c10::str("has not completed in ", waited, " ms: its peer has not called");
    }
  }
  text = c10::str(title(), ": ", text);
  if (owner) {
    owner->give_up(MessagePtr::reclaim_copy(this), text);
  }
  complete(failure(text));
}

Messages::Messages(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::shared_ptr<Comm> group,
                   Milliseconds limit)
    : store_(std::move(store)), rank_(rank), size_(size), group_(std::move(group)), limit_(limit), out_(size), in_(size)
{
}

Messages::~Messages()
{
  close(Milliseconds(0), "the group has been destroyed");
}

std::string Messages::lane_name(const Lane &lane) const
{
  const int from = lane.sends ? rank_ : lane.peer;
  const int to = lane.sends ? lane.peer : rank_;
  return c10::str("messages from rank ", from, " to rank ", to, " (the communicator's ranks 0 and 1) of ",
                  group_->name());
}

Messages::Lane &Messages::lane_of(Lanes &lanes, int peer, bool sends)
{
  auto &lane = lanes.at(peer);
  if (!lane) {
    lane = std::make_unique<Lane>();
    lane->peer = peer;
    lane->sends = sends;
  }
  return *lane;
}

// close() ends what is there when it has the lock: nothing may come behind it.
void Messages::check_open(const char *title) const
{
  if (stop_) {
    group_->throw_error(title);
    C10_THROW_ERROR(DistBackendError, c10::str(title, ": tutti: ", group_->name(), " has been shut down"));
  }
}

// ---- Connecting ----

void Messages::connect(Lane &lane)
{
  if (!lane.comm && !lane.connecting && !stop_) {
    lane.connecting = true;
    lane.connector = std::thread([this, &lane] { run_connector(lane); });
  }
}

void Messages::run_connector(Lane &lane)
{
  std::string text;
  std::shared_ptr<Comm> comm;
  try {
    const std::string name = lane_name(lane);
    const int from = lane.sends ? rank_ : lane.peer;
    const int to = lane.sends ? lane.peer : rank_;
    const std::string key = c10::str("lane/", from, "-", to);
    const Stoppable given_up(&stop_);
    comm = std::make_shared<Comm>(meet(store_, key, lane.sends ? 0 : 1, 2, limit_, name), name);
  } catch (const std::exception &error) {
    text = error.what();
  }
  Ended ended;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    lane.connecting = false;
    lane.comm = comm;
    if (!comm) {
      fail(lane, text, &ended);
    }
    for (; !lane.waiting.empty(); lane.waiting.pop_front()) {
      start_send(std::move(lane.waiting.front()), &ended);
    }
    if (comm && !lane.sends) {
      listen(lane, &ended);
    }
  }
  end_all(ended, -1);
}

// ---- Sending ----

void Messages::send(const MessagePtr &work, const at::Tensor &tensor, int peer, int tag)
{
  auto message = std::make_unique<Message>();
  message->owner = shared_from_this();
  message->tensor = tensor.contiguous();
  message->header = {tag, message->tensor.nbytes()};
  message->work = work;
  const std::lock_guard<std::mutex> guard(mutex_);
  check_open(work->title());
  Lane &lane = lane_of(out_, peer, true);
  message->lane = &lane;
  TORCH_CHECK_WITH(DistBackendError, lane.error.empty(), "tutti:send: ", lane.error);
  Ended ended;
  if (lane.comm) {
    start_send(std::move(message), &ended);
  } else {
    lane.waiting.push_back(std::move(message));
    connect(lane);
  }
  end_all(ended, -1); // nobody else has the work yet
}

void Messages::start_send(std::unique_ptr<Message> message, Ended *ended)
{
  Comm &comm = *message->lane->comm;
  const CallsGuard guard(comm.calls());
  message->work->carrier = message->lane->comm;
  ncclResult_t result = lib().ncclSend(&message->header, sizeof(Header), ncclUint8, 1, comm.handle(), comm.stream());
  if (result == ncclSuccess && message->header.bytes > 0) {
    result =
        lib().ncclSend(message->tensor.data_ptr(), message->header.bytes, ncclUint8, 1, comm.handle(), comm.stream());
  }
  if (result == ncclSuccess) {
    result = lib().tuttiLaunchHostFunc(comm.stream(), on_sent, message.get());
  }
  if (result == ncclSuccess) {
    message.release(); // on_sent has it
  } else {
    ended->emplace_back(message->work, failure(comm.describe(result)));
  }
}

void Messages::on_sent(void *argument)
{
  const std::unique_ptr<Message> message(static_cast<Message *>(argument));
  const std::string text = message->lane->comm->error();
  message->work->complete(text.empty() ? nullptr : failure("tutti:send: " + text));
}

// ---- Receiving ----

void Messages::receive(const MessagePtr &work, const at::Tensor &tensor, int source, int tag)
{
  const bool any = source < 0;
  const Posted posted{source, tag, tensor, work};
  const std::lock_guard<std::mutex> guard(mutex_);
  check_open(work->title());
  for (int peer = any ? 0 : source; peer < (any ? size_ : source + 1); peer++) {
    Lane &lane = lane_of(in_, peer, false);
    if (take_early(lane, posted)) {
      return;
    }
    TORCH_CHECK_WITH(DistBackendError, lane.error.empty() || (any && !all_failed(in_)), work->title(), ": ",
                     lane.error);
  }
  posted_.push_back(posted);
  Ended ended;
  for (int peer = any ? 0 : source; peer < (any ? size_ : source + 1); peer++) {
    if (peer != rank_ && in_[peer]->error.empty()) {
      Lane &lane = *in_[peer];
      lane.comm ? listen(lane, &ended) : connect(lane);
    }
  }
  end_all(ended, -1); // nobody else has the work yet
}

static std::exception_ptr store_message(const at::Tensor &target, const at::Tensor &bytes, int peer, int64_t tag)
{
  if (target.nbytes() != bytes.nbytes()) {
    return failure(c10::str("tutti:recv: the message from rank ", peer, " with tag ", tag, " has ", bytes.nbytes(),
                            " bytes, but the tensor to receive it has ", target.nbytes()));
  }
  if (bytes.nbytes() > 0 && target.data_ptr() != bytes.data_ptr()) {
    const at::AutoDispatchBelowADInplaceOrView below;
    target.copy_(bytes.view(at::kByte).reshape(-1).view(target.scalar_type()).reshape(target.sizes()));
  }
  return nullptr;
}

bool Messages::take_early(Lane &lane, const Posted &posted)
{
  for (auto i = lane.early.begin(); i != lane.early.end(); ++i) {
    if ((*i)->header.tag == posted.tag) {
      posted.work->complete(store_message(posted.tensor, (*i)->tensor, lane.peer, posted.tag), lane.peer);
      lane.early.erase(i);
      return true;
    }
  }
  return false;
}

bool Messages::match(Message &message)
{
  const int source = message.lane->peer;
  const auto posted = std::find_if(posted_.begin(), posted_.end(), [&](const Posted &one) {
    return (one.source < 0 || one.source == source) && one.tag == message.header.tag;
  });
  if (posted == posted_.end()) {
    return false;
  }
  message.target = posted->tensor;
  message.work = posted->work;
  message.work->carrier = message.lane->comm;
  posted_.erase(posted);
  return true;
}

bool Messages::all_failed(const Lanes &lanes) const
{
  for (int peer = 0; peer < size_; peer++) {
    if (peer != rank_ && (!lanes[peer] || lanes[peer]->error.empty())) {
      return false;
    }
  }
  return true;
}

bool Messages::wanted(const Lane &lane) const
{
  return std::any_of(posted_.begin(), posted_.end(),
                     [&](const Posted &one) { return one.source < 0 || one.source == lane.peer; });
}

void Messages::listen(Lane &lane, Ended *ended)
{
  if (lane.listening || stop_ || !wanted(lane)) {
    return;
  }
  auto message = std::make_unique<Message>();
  message->owner = shared_from_this();
  message->lane = &lane;
  Comm &comm = *lane.comm;
  const CallsGuard guard(comm.calls());
  ncclResult_t result = lib().ncclRecv(&message->header, sizeof(Header), ncclUint8, 0, comm.handle(), comm.stream());
  if (result == ncclSuccess) {
    result = lib().tuttiLaunchHostFunc(comm.stream(), on_header, message.get());
  }
  if (result == ncclSuccess) {
    message.release(); // on_header has it
    lane.listening = true;
  } else {
    fail(lane, comm.describe(result), ended);
  }
}

// Receives what follows the header, into the tensor that waits for it where that is possible.
std::string Messages::receive_bytes(Message &message)
{
  const uint64_t bytes = message.header.bytes;
  const bool straight = match(message) && message.target.is_contiguous() && message.target.nbytes() == bytes;
  message.tensor = straight ? message.target : at::empty({static_cast<int64_t>(bytes)}, at::kByte);
  Comm &comm = *message.lane->comm;
  const CallsGuard guard(comm.calls());
  ncclResult_t result = ncclSuccess;
  if (bytes > 0) {
    result = lib().ncclRecv(message.tensor.data_ptr(), bytes, ncclUint8, 0, comm.handle(), comm.stream());
  }
  if (result == ncclSuccess) {
    result = lib().tuttiLaunchHostFunc(comm.stream(), on_bytes, &message);
  }
  return result == ncclSuccess ? "" : comm.describe(result);
}

void Messages::on_header(void *argument)
{
  std::unique_ptr<Message> message(static_cast<Message *>(argument));
  const auto owner = message->owner;
  Lane &lane = *message->lane;
  Ended ended;
  {
    const std::lock_guard<std::mutex> guard(owner->mutex_);
    std::string text = lane.comm->error();
    text = text.empty() ? owner->receive_bytes(*message) : text;
    if (text.empty()) {
      message.release(); // on_bytes has it
    } else {
      if (message->work) {
        ended.emplace_back(message->work, failure("tutti:recv: " + text));
      }
      owner->fail(lane, text, &ended);
    }
  }
  end_all(ended, lane.peer);
}

void Messages::on_bytes(void *argument)
{
  std::unique_ptr<Message> message(static_cast<Message *>(argument));
  const auto owner = message->owner;
  Lane &lane = *message->lane;
  Ended ended;
  {
    const std::lock_guard<std::mutex> guard(owner->mutex_);
    const std::string text = lane.comm->error();
    if (text.empty()) {
      owner->received(std::move(message), &ended);
    } else {
      if (message->work) {
        ended.emplace_back(message->work, failure("tutti:recv: " + text));
      }
      owner->fail(lane, text, &ended);
    }
  }
  end_all(ended, lane.peer);
}

void Messages::received(std::unique_ptr<Message> message, Ended *ended)
{
  Lane &lane = *message->lane;
  lane.listening = false;
  if (message->work || match(*message)) { // the second: it has been asked for meanwhile
    ended->emplace_back(message->work, store_message(message->target, message->tensor, lane.peer, message->header.tag));
  } else {
    message->owner = nullptr;
    lane.early.push_back(std::move(message));
  }
  listen(lane, ended);
}

// ---- The end ----

void Messages::end_all(Ended &ended, int source)
{
  for (auto &one : ended) {
    one.first->complete(one.second, source);
  }
}

// The lane is of no more use: all that needs it ends with `text`. A receive from any rank needs one lane that is.
void Messages::fail(Lane &lane, const std::string &text, Ended *ended)
{
  lane.listening = false;
  lane.error = text;
  for (; !lane.waiting.empty(); lane.waiting.pop_front()) {
    ended->emplace_back(lane.waiting.front()->work, failure("tutti:send: " + text));
  }
  for (auto i = posted_.begin(); !lane.sends && i != posted_.end();) {
    if (i->source == lane.peer || (i->source < 0 && all_failed(in_))) {
      ended->emplace_back(i->work, failure(c10::str(i->work->title(), ": ", text)));
      i = posted_.erase(i);
    } else {
      ++i;
    }
  }
}

void Messages::give_up(const MessagePtr &work, const std::string &text)
{
  std::shared_ptr<Comm> carrier;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    posted_.remove_if([&](const Posted &one) { return one.work == work; });
    for (auto &lane : out_) {
      auto *waiting = lane ? &lane->waiting : nullptr;
      if (waiting != nullptr) {
        waiting->erase(
            std::remove_if(waiting->begin(), waiting->end(), [&](const auto &one) { return one->work == work; }),
            waiting->end());
      }
    }
    carrier = work->carrier;
  }
  if (carrier) { // it may be using the tensor
    carrier->expire(text);
  }
}

std::string Messages::error()
{
  const std::lock_guard<std::mutex> guard(mutex_);
  for (auto *lanes : {&out_, &in_}) {
    for (const auto &lane : *lanes) {
      if (lane && !lane->error.empty()) {
        return lane->error;
      }
    }
  }
  return "";
}

void Messages::close(Milliseconds patience, const std::string &why)
{
  stop_ = true;
  std::vector<Lane *> all;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    for (auto *lanes : {&out_, &in_}) {
      for (auto &lane : *lanes) {
        if (lane) {
          all.push_back(lane.get());
        }
      }
    }
  }
  for (Lane *lane : all) {
    if (lane->connector.joinable()) {
      lane->connector.join();
    }
  }
  Ended ended;
  for (Lane *lane : all) {
    if (lane->comm) {
      lane->sends &&patience.count() > 0 ? lane->comm->close(patience) : lane->comm->abort(why);
    }
    const std::lock_guard<std::mutex> guard(mutex_);
    fail(*lane, why, &ended);
  }
  end_all(ended, -1);
}

} // namespace tutti
