// messages.h: send, receive, receive from any rank, with tags.
//
// NCCL matches the messages of a pair of ranks by their order. PyTorch matches them by tag, and a receive may come long
// before its message. So each direction of each pair is a lane: a communicator of these two ranks, made when the lane
// is first used. Every message is a header with its tag and size, and then its bytes. While a receive is posted that a
// lane could serve, the lane listens for a header. A message for which no receive is posted is kept until one comes.
#pragma once

#include <deque>
#include <list>
#include <thread>

#include "work.h"

namespace tutti {

class Messages;

// A send or a receive. A function of the library's stream ends it.
class MessageWork : public BaseWork {
public:
  MessageWork(int rank, c10d::OpType type, const char *title, const at::Tensor &tensor, Milliseconds timeout,
              std::weak_ptr<Messages> owner);

  // The communicator that carries the bytes, once they are under way. Guarded by the owner's lock.
  std::shared_ptr<Comm> carrier;

protected:
  void await(Clock::time_point limit) override;

private:
  std::weak_ptr<Messages> owner_;
};

using MessagePtr = c10::intrusive_ptr<MessageWork>;

class Messages : public std::enable_shared_from_this<Messages> {
public:
  // `group`: the communicator of all ranks, which knows when one dies. `limit`: how long a peer may take to meet.
  Messages(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::shared_ptr<Comm> group, Milliseconds limit);
  ~Messages();

  // Both return at once, and end the work when the message has gone or come. `source` -1: from any rank. The tensor is
  // used until then.
  void send(const MessagePtr &work, const at::Tensor &tensor, int peer, int tag);
  void receive(const MessagePtr &work, const at::Tensor &tensor, int source, int tag);
  // Ends everything, what is under way with an error. Sends that run get `patience` to complete.
  void close(Milliseconds patience, const std::string &why);
  // A time limit has passed: the work ends with `text`, and its lane too if the message is under way.
  void give_up(const MessagePtr &work, const std::string &text);
  // The group's error, empty where there is none. A rank that has died is an error there at once.
  std::string group_error()
  {
    return group_->error();
  }
  // The first error of a lane; empty: none.
  std::string error();

private:
  struct Header {
    int64_t tag;
    uint64_t bytes;
  };
  struct Lane;
  // A send, or the receive of one message.
  struct Message {
    std::shared_ptr<Messages> owner;
    Lane *lane;
    Header header;
    at::Tensor tensor; // where the bytes are, contiguous
    at::Tensor target; // what the program gave; undefined: nobody has asked for the message yet
    MessagePtr work;   // null: the same
  };
  struct Posted {
    int source;
    int tag;
    at::Tensor tensor;
    MessagePtr work;
  };
  struct Lane {
    int peer = 0;
    bool sends = false;
    bool listening = false;
    bool connecting = false;
    std::shared_ptr<Comm> comm;
    std::string error;
    std::deque<std::unique_ptr<Message>> waiting; // sends before the lane is connected
    std::deque<std::unique_ptr<Message>> early;   // received before they were asked for
    std::thread connector;
  };
  using Lanes = std::vector<std::unique_ptr<Lane>>;
  using Ended = std::vector<std::pair<MessagePtr, std::exception_ptr>>;

  void check_open(const char *title) const;
  Lane &lane_of(Lanes &lanes, int peer, bool sends);
  void connect(Lane &lane);
  void run_connector(Lane &lane);
  void start_send(std::unique_ptr<Message> message, Ended *ended);
  void listen(Lane &lane, Ended *ended);
  bool wanted(const Lane &lane) const;
  bool all_failed(const Lanes &lanes) const;
  bool take_early(Lane &lane, const Posted &posted);
  // The first receive that fits the message becomes its work. False: there is none.
  bool match(Message &message);
  std::string receive_bytes(Message &message);
  void received(std::unique_ptr<Message> message, Ended *ended);
  void fail(Lane &lane, const std::string &text, Ended *ended);
  std::string lane_name(const Lane &lane) const;
  static void end_all(Ended &ended, int source);
  // On threads of the library. The argument is a Message, which they own.
  static void on_sent(void *message);
  static void on_header(void *message);
  static void on_bytes(void *message);

  std::mutex mutex_;
  c10::intrusive_ptr<c10d::Store> store_;
  int rank_, size_;
  std::shared_ptr<Comm> group_;
  Milliseconds limit_;
  std::atomic<bool> stop_{false};
  Lanes out_, in_;
  std::list<Posted> posted_;
};

} // namespace tutti
