// reconfigure.cpp: reconfigure() of CommsTutti: a communicator for another set of members, over ncclCommShrink and
// ncclCommGrow where ranks of the old one stay together, else made anew.
#include "backend.h"

#include <c10/util/ScopeExit.h>
#include <comms/torchcomms/TorchWork.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <iomanip>
#include <random>
#include <sstream>

namespace tutti {

// What a handle says: "tutti:<member>:<configuration>:<rank>". Configuration "-": it has no communicator now.
struct Member {
  tc::InitHandle handle;
  std::string configuration;
  int rank;
};

// The members in the order of their new ranks. The first `kept` are ranks of one configuration, in the order of their
// ranks; 0: the communicator is made anew.
struct CommsTutti::Plan {
  std::vector<Member> order;
  size_t kept = 0;

  explicit Plan(const tc::ReconfigureOptions &options);
  int place_of(const tc::InitHandle &handle) const;
};

static std::string hex(uint64_t number)
{
  std::ostringstream text;
  text << std::hex << std::setw(16) << std::setfill('0') << number;
  return text.str();
}

std::string CommsTutti::new_member()
{
  std::random_device device;
  return hex(static_cast<uint64_t>(device()) << 32 | device());
}

static Member member_of(const tc::InitHandle &handle)
{
  std::vector<std::string> parts;
  std::istringstream text(handle);
  for (std::string part; std::getline(text, part, ':');) {
    parts.push_back(part);
  }
  int rank = -1;
  const bool good = parts.size() == 4 && parts[0] == "tutti" && std::istringstream(parts[3]) >> rank && rank >= -1;
  TORCH_CHECK(good, "tutti: reconfigure: '", handle, "' is no handle that get_init_handle of this back end has made");
  return {handle, parts[2], rank};
}

// Without an order of the program: the ranks of the configuration with the most members first, in their order.
static void order_members(std::vector<Member> &members)
{
  std::map<std::string, size_t> sizes;
  for (const auto &member : members) {
    sizes[member.configuration] += member.configuration != "-";
  }
  const auto largest =
      std::max_element(sizes.begin(), sizes.end(), [](const auto &a, const auto &b) { return a.second < b.second; });
  const std::string first = largest != sizes.end() && largest->second > 0 ? largest->first : "";
  std::sort(members.begin(), members.end(), [&](const Member &a, const Member &b) {
    const bool stays = a.configuration == first, other = b.configuration == first;
    return stays != other ? stays : stays && a.rank != b.rank ? a.rank < b.rank : a.handle < b.handle;
  });
}

CommsTutti::Plan::Plan(const tc::ReconfigureOptions &options)
{
  std::visit(
      [this](const auto &handles) {
        for (const auto &handle : handles) {
          order.push_back(member_of(handle));
        }
      },
      options.handles);
  TORCH_CHECK(!order.empty(), "tutti: reconfigure: there are no handles");
  if (options.handles.index() == 0) { // a set
    order_members(order);
  }
  for (size_t i = 0; i < order.size(); i++) {
    TORCH_CHECK(place_of(order[i].handle) == static_cast<int>(i),
                "tutti: reconfigure: a handle is there twice: ", order[i].handle);
  }
  const auto together = [this](size_t i) { return order[i].configuration == order[0].configuration; };
  while (order[0].configuration != "-" && kept < order.size() && together(kept) &&
         (kept == 0 || order[kept].rank > order[kept - 1].rank)) {
    kept++;
  }
  bool scattered = false; // another rank of that configuration is among the new ones
  for (size_t i = kept; i < order.size(); i++) {
    scattered |= together(i);
  }
  kept = scattered || kept < 2 ? 0 : kept;
}

int CommsTutti::Plan::place_of(const tc::InitHandle &handle) const
{
  const auto at = std::find_if(order.begin(), order.end(), [&](const Member &one) { return one.handle == handle; });
  return at == order.end() ? -1 : static_cast<int>(at - order.begin());
}

tc::InitHandle CommsTutti::getInitHandle() const
{
  TORCH_CHECK(store_, "tutti: getInitHandle: the communicator is not initialized");
  const bool has = isInitialized();
  return c10::str("tutti:", member_, ":", has ? configuration_ : "-", ":", has ? group_->getRank() : -1);
}

// The same on all members, and of no other call.
static std::string name_of(int64_t uuid, const std::vector<Member> &order)
{
  uint64_t hash = 0xcbf29ce484222325u ^ static_cast<uint64_t>(uuid);
  for (const auto &member : order) {
    for (const char c : member.handle) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    }
  }
  return hex(hash);
}

// The ranks of the old communicator that stay, without those that are not in the plan.
c10::intrusive_ptr<ProcessGroupTutti> CommsTutti::remaining(ProcessGroupTutti &old, const Plan &plan,
                                                            const ProcessGroupTutti::OptionsPtr &options)
{
  std::vector<int64_t> gone;
  size_t next = 0;
  for (int rank = 0; rank < old.getSize(); rank++) {
    if (next < plan.kept && plan.order[next].rank == rank) {
      next++;
    } else {
      gone.push_back(rank);
    }
  }
  if (gone.empty()) {
    return nullptr;
  }
  old.setTimeout(options->timeout);
  const auto smaller = old.shrink(gone, NCCL_SHRINK_ABORT, options);
  return c10::dynamic_intrusive_pointer_cast<ProcessGroupTutti>(smaller);
}

c10::intrusive_ptr<ProcessGroupTutti> CommsTutti::follow(const Plan &plan, int place,
                                                         const c10::intrusive_ptr<ProcessGroupTutti> &old,
                                                         const ProcessGroupTutti::StorePtr &store,
                                                         const ProcessGroupTutti::OptionsPtr &options)
{
  const int size = static_cast<int>(plan.order.size());
  const bool grows = plan.order.size() > plan.kept;
  if (plan.kept > 0 && static_cast<size_t>(place) >= plan.kept) {
    return ProcessGroupTutti::grown(store, place, size, options);
  }
  if (plan.kept > 0) {
    const auto smaller = remaining(*old, plan, options);
    if (grows) {
      return (smaller ? smaller : old)->grow(store, size, options);
    }
    if (smaller) {
      return smaller;
    }
  }
  return c10::make_intrusive<ProcessGroupTutti>(store, place, size, options);
}

void CommsTutti::throw_aborted() const
{
  C10_THROW_ERROR(DistBackendError, c10::str("tutti: reconfigure: the communicator ", name_, " has been aborted"));
}

c10::intrusive_ptr<ProcessGroupTutti> CommsTutti::make_group(const Plan &plan, int place,
                                                             const c10::intrusive_ptr<ProcessGroupTutti> &old,
                                                             const ProcessGroupTutti::StorePtr &store,
                                                             const ProcessGroupTutti::OptionsPtr &options) const
{
  const Stoppable given_up(&stop_);
  try {
    return follow(plan, place, old, store, options);
  } catch (const std::exception &) {
    if (stop_) {
      throw_aborted();
    }
    throw;
  }
}

CommsTutti::WorkPtr CommsTutti::reconfigure(const tc::ReconfigureOptions &options)
{
  TORCH_CHECK(meeting_, "tutti: reconfigure: the communicator is not initialized");
  TORCH_CHECK(!finalized_, "tutti: reconfigure: the communicator ", name_, " has been finalized");
  const Plan plan(options);
  const int place = plan.place_of(getInitHandle());
  TORCH_CHECK(place >= 0, "tutti: reconfigure: this communicator's handle, ", getInitHandle(), ", is not among the ",
              plan.order.size());
  TORCH_CHECK(uuids_.insert(options.uuid).second, "tutti: reconfigure: uuid ", options.uuid,
              " has been used before by this communicator");
  const auto limit = options.timeout.value_or(options_.timeout);
  const std::string name = name_of(options.uuid, plan.order);
  auto wanted = c10::make_intrusive<c10d::Backend::Options>("tutti", limit);
  wanted->group_name = name_;
  const auto store = c10::make_intrusive<c10d::PrefixStore>("reconfigure/" + name, meeting_);
  windows_.reset();
  const auto old = drop_group();
  const auto end_old = c10::make_scope_exit([&] {
    if (old) {
      old->abort();
    }
  });
  const auto made = make_group(plan, place, old, store, wanted);
  made->setTimeout(options_.timeout);
  if (!place_group(made)) {
    made->abort();
    throw_aborted();
  }
  configuration_ = name;
  store_ = store;
  splits_ = 0;
  return c10::make_intrusive<tc::TorchWorkCompleted>();
}

} // namespace tutti
