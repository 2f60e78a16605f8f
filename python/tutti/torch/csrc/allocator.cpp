// allocator.cpp: see allocator.h.
//
// Few large pieces of memory (segments) hold all tensors, because a peer maps whole allocations, and only the last few.
// A segment is sparse: pages come when they are written, and go back one range at a time.
#include "allocator.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>

#include "library.h"

namespace tutti {

static constexpr size_t page_size = 4096;
static constexpr size_t first_segment = size_t{64} << 20; // each next one is as large as all before

// Which forked children may still see memory that is shared with their parent. Each has the write end of a pipe, which
// hangs up when it and its own children have ended or called exec.
class Children {
public:
  // The number of the next child.
  uint64_t next() const
  {
    return next_;
  }
  void before_fork()
  {
    look(); // else each child that has ended keeps its descriptor until a large tensor is freed
    if (pipe2(ends_, O_CLOEXEC) != 0) {
      ends_[0] = ends_[1] = -1; // the child counts for ever
    }
  }
  void in_parent()
  {
    close(ends_[1]);
    living_.push_back({next_++, ends_[0]});
  }
  // Its parent waits for it, so it keeps the write end.
  void in_child(bool counted)
  {
    for (const auto &child : living_) {
      close(child.second);
    }
    if (counted) {
      close(ends_[0]);
    }
    *this = Children();
  }
  // Forgets those that have ended.
  void look()
  {
    std::vector<pollfd> ends;
    for (const auto &child : living_) {
      ends.push_back({child.second, 0, 0}); // -1 is passed over
    }
    if (ends.empty() || poll(ends.data(), ends.size(), 0) <= 0) {
      return;
    }
    std::vector<std::pair<uint64_t, int>> left;
    for (size_t i = 0; i < ends.size(); i++) {
      if ((ends[i].revents & POLLHUP) != 0) {
        close(ends[i].fd);
      } else {
        left.push_back(living_[i]);
      }
    }
    living_.swap(left);
  }
  // Does one of these children live, as far as look() knew?
  bool any(uint64_t from, uint64_t before) const
  {
    return std::any_of(living_.begin(), living_.end(),
                       [=](const auto &child) { return child.first >= from && child.first < before; });
  }

private:
  uint64_t next_ = 0;
  int ends_[2] = {-1, -1};                       // of the child that is being forked
  std::vector<std::pair<uint64_t, int>> living_; // numbers and read ends
};

struct Segment {
  char *base;
  size_t size;
  size_t users = 0; // in a child: tensors that it has inherited
};

enum class Kind { fresh, cached, used, held }; // no pages; pages and no tensor; a tensor; only a child's tensor
static constexpr size_t kinds = 4;

struct Range {
  size_t size;
  Kind kind;
  Segment *segment;
  uint64_t since;      // used, held: the first child that sees it. Cached: the count of frees when it was freed
  uint64_t before = 0; // held: the first child that does not
};

class Arena {
public:
  void set_cache(size_t bytes)
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    limit_ = bytes;
    trim(limit_);
  }
  // NULL: the system has refused memory.
  void *take(size_t size);
  // False: the memory is not of this arena.
  bool give(void *p, size_t *size);
  void empty();
  std::map<std::string, int64_t> stats();

  void before_fork()
  {
    mutex_.lock();
    if (sees()) {
      children_.before_fork();
    }
  }
  void in_parent()
  {
    if (sees()) {
      children_.in_parent();
    }
    mutex_.unlock();
  }
  void in_child();

private:
  using Ranges = std::map<char *, Range>; // all of all segments, by address

  // Does a child that is forked now see tensors that are freed here some time?
  bool sees() const
  {
    return bytes_[static_cast<size_t>(Kind::used)] > 0;
  }
  void add(char *p, const Range &range);
  Range remove(Ranges::iterator i);
  void merge(Ranges::iterator i);
  Ranges::iterator find(Kind kind, size_t size);
  bool grow(size_t size);
  void release_held();
  void trim(size_t limit);
  void give_pages(Ranges::iterator i);
  bool give_inherited(void *p, size_t *size);

  std::mutex mutex_;
  Ranges ranges_;
  std::set<std::pair<size_t, char *>> by_size_[kinds];
  size_t bytes_[kinds] = {};
  std::map<char *, std::unique_ptr<Segment>> segments_;
  size_t mapped_ = 0;
  size_t limit_ = 0; // of cached bytes
  uint64_t frees_ = 0;
  bool refused_ = false;
  Children children_;
  std::map<void *, std::pair<Segment *, size_t>> inherited_; // in a child: tensors in memory of its parent
};

void Arena::add(char *p, const Range &range)
{
  ranges_[p] = range;
  by_size_[static_cast<size_t>(range.kind)].emplace(range.size, p);
  bytes_[static_cast<size_t>(range.kind)] += range.size;
}

Range Arena::remove(Ranges::iterator i)
{
  const Range range = i->second;
  by_size_[static_cast<size_t>(range.kind)].erase({range.size, i->first});
  bytes_[static_cast<size_t>(range.kind)] -= range.size;
  ranges_.erase(i);
  return range;
}

// Joins a free range with its free neighbours of the same kind.
void Arena::merge(Ranges::iterator i)
{
  const auto same = [](const Range &a, const Range &b) { return a.kind == b.kind && a.segment == b.segment; };
  char *p = i->first;
  Range range = remove(i);
  auto next = ranges_.find(p + range.size);
  if (next != ranges_.end() && same(next->second, range)) {
    range.size += remove(next).size;
  }
  auto before = ranges_.lower_bound(p);
  if (before != ranges_.begin() && same((--before)->second, range) && before->first + before->second.size == p) {
    p = before->first;
    range.size += remove(before).size;
  }
  add(p, range);
}

// The smallest range of this kind that is large enough, or end().
Arena::Ranges::iterator Arena::find(Kind kind, size_t size)
{
  const auto &sizes = by_size_[static_cast<size_t>(kind)];
  const auto i = sizes.lower_bound({size, nullptr});
  return i == sizes.end() ? ranges_.end() : ranges_.find(i->second);
}

bool Arena::grow(size_t size)
{
  void *p = nullptr;
  size_t room = std::max({size, mapped_, first_segment});
  if (refused_) {
    return false;
  }
  if (lib().ncclMemAlloc(&p, room) != ncclSuccess) {
    room = size;
    refused_ = lib().ncclMemAlloc(&p, room) != ncclSuccess;
  }
  if (!refused_) {
    char *base = static_cast<char *>(p);
    segments_[base] = std::make_unique<Segment>(Segment{base, room});
    mapped_ += room;
    add(base, {room, Kind::fresh, segments_[base].get(), 0});
  }
  return !refused_;
}

// What only children saw that have ended is free.
void Arena::release_held()
{
  if (bytes_[static_cast<size_t>(Kind::held)] == 0) {
    return;
  }
  children_.look();
  std::vector<char *> free;
  for (const auto &held : by_size_[static_cast<size_t>(Kind::held)]) {
    const Range &range = ranges_[held.second];
    if (!children_.any(range.since, range.before)) {
      free.push_back(held.second);
    }
  }
  for (char *p : free) {
    Range range = remove(ranges_.find(p));
    range.kind = Kind::cached;
    range.since = frees_++;
    add(p, range);
    merge(ranges_.find(p));
  }
}

void Arena::give_pages(Ranges::iterator i)
{
  char *p = i->first;
  if (madvise(p, i->second.size, MADV_REMOVE) == 0) {
    Range range = remove(i);
    range.kind = Kind::fresh;
    add(p, range);
    merge(ranges_.find(p));
  }
}

// Gives back the pages of what was freed longest ago, until `limit` bytes are left.
void Arena::trim(size_t limit)
{
  const auto &cached = by_size_[static_cast<size_t>(Kind::cached)];
  for (size_t last = SIZE_MAX, now; (now = bytes_[static_cast<size_t>(Kind::cached)]) > limit && now < last;
       last = now) {
    const auto oldest = std::min_element(cached.begin(), cached.end(), [this](const auto &a, const auto &b) {
      return ranges_[a.second].since < ranges_[b.second].since;
    });
    give_pages(ranges_.find(oldest->second));
  }
}

void *Arena::take(size_t size)
{
  const std::lock_guard<std::mutex> guard(mutex_);
  if (size > SIZE_MAX / 2) {
    return nullptr;
  }
  size = (size + page_size - 1) / page_size * page_size;
  release_held();
  auto i = find(Kind::cached, size);
  if (i == ranges_.end()) {
    i = find(Kind::fresh, size);
  }
  if (i == ranges_.end()) {
    if (!grow(size)) {
      return nullptr;
    }
    i = find(Kind::fresh, size);
  }
  char *p = i->first;
  const Range whole = remove(i);
  add(p, {size, Kind::used, whole.segment, children_.next()});
  if (whole.size > size) {
    add(p + size, {whole.size - size, whole.kind, whole.segment, whole.since});
  }
  return p;
}

bool Arena::give_inherited(void *p, size_t *size)
{
  const auto i = inherited_.find(p);
  if (i == inherited_.end()) {
    return false;
  }
  Segment *segment = i->second.first;
  *size = i->second.second;
  inherited_.erase(i);
  madvise(p, *size, MADV_DONTNEED); // the child's own copy of its pages
  if (--segment->users == 0) {
    lib().ncclMemFree(segment->base);
    segments_.erase(segment->base);
  }
  return true;
}

bool Arena::give(void *p, size_t *size)
{
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto i = ranges_.find(static_cast<char *>(p));
  if (i == ranges_.end() || i->second.kind != Kind::used) {
    return give_inherited(p, size);
  }
  *size = i->second.size;
  children_.look();
  Range range = remove(i);
  const bool seen = children_.any(range.since, children_.next());
  range.kind = seen ? Kind::held : Kind::cached;
  range.before = children_.next();
  range.since = seen ? range.since : frees_++;
  add(static_cast<char *>(p), range);
  if (!seen) {
    merge(ranges_.find(static_cast<char *>(p)));
    trim(limit_);
  }
  return true;
}

void Arena::empty()
{
  const std::lock_guard<std::mutex> guard(mutex_);
  release_held();
  trim(0);
  for (auto i = segments_.begin(); i != segments_.end();) {
    const auto range = ranges_.find(i->first);
    const bool unused =
        range != ranges_.end() && range->second.kind == Kind::fresh && range->second.size == i->second->size;
    if (unused) {
      remove(range);
      mapped_ -= i->second->size;
      lib().ncclMemFree(i->first);
    }
    i = unused ? segments_.erase(i) : std::next(i);
  }
  refused_ = false;
}

std::map<std::string, int64_t> Arena::stats()
{
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto bytes = [this](Kind kind) { return static_cast<int64_t>(bytes_[static_cast<size_t>(kind)]); };
  return {{"segments", static_cast<int64_t>(segments_.size())},
          {"mapped", static_cast<int64_t>(mapped_)},
          {"used", bytes(Kind::used)},
          {"cached", bytes(Kind::cached)},
          {"held", bytes(Kind::held)},
          {"refused", refused_}};
}

// The library has made the memory private (ncclMemAlloc). The tensors stay where they are; new ones lie in segments of
// the child's own.
void Arena::in_child()
{
  children_.in_child(sees());
  for (const auto &[p, range] : ranges_) {
    if (range.kind == Kind::used) {
      inherited_[p] = {range.segment, range.size};
      range.segment->users++;
    }
  }
  ranges_.clear();
  for (size_t kind = 0; kind < kinds; kind++) {
    by_size_[kind].clear();
    bytes_[kind] = 0;
  }
  for (auto i = segments_.begin(); i != segments_.end();) {
    const bool unused = i->second->users == 0;
    if (unused) {
      lib().ncclMemFree(i->first);
    }
    i = unused ? segments_.erase(i) : std::next(i);
  }
  mapped_ = 0;
  mutex_.unlock();
}

// ---- The allocator of PyTorch ----

static Arena *arena; // never freed: tensors may be freed while the process exits

class SharedAllocator final : public at::Allocator {
public:
  SharedAllocator(at::Allocator *small, size_t least) : small_(small), least_(least) {}

  at::DataPtr allocate(size_t size) override
  {
    void *p = size >= least_ && size > 0 ? arena->take(size) : nullptr;
    if (p == nullptr) {
      if (size >= least_ && size > 0 && !warned_.exchange(true)) {
        TORCH_WARN("tutti: the system gives no memory that peers can map for ", size,
                   " bytes: tensors come from the ordinary allocator (limits: ulimit -n, -v and -f)");
      }
      return small_->allocate(size);
    }
    c10::profiledCPUMemoryReporter().New(p, size);
    return {p, p, &SharedAllocator::free, c10::Device(c10::kCPU)};
  }
  at::DeleterFnPtr raw_deleter() const override
  {
    return &SharedAllocator::free;
  }
  void copy_data(void *to, const void *from, size_t size) const override
  {
    default_copy_data(to, from, size);
  }
  void set_least(size_t least)
  {
    least_ = least;
  }
  static SharedAllocator *one;

private:
  static void free(void *p)
  {
    size_t size;
    if (p == nullptr) {
      return;
    }
    if (arena->give(p, &size)) {
      c10::profiledCPUMemoryReporter().Delete(p);
    } else {
      one->small_->raw_deallocate(p);
    }
  }

  at::Allocator *small_;
  std::atomic<size_t> least_;
  std::atomic<bool> warned_{false};
};

SharedAllocator *SharedAllocator::one;

// Any thread.
static void make_arena()
{
  static std::once_flag made;
  std::call_once(made, [] {
    lib();
    arena = new Arena;
    arena->set_cache(static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * page_size / 8);
    SharedAllocator::one = new SharedAllocator(c10::GetCPUAllocator(), size_t{256} << 10);
    pthread_atfork([] { arena->before_fork(); }, [] { arena->in_parent(); }, [] { arena->in_child(); });
  });
}

void use_shared_allocator(size_t least, size_t cache)
{
  make_arena();
  SharedAllocator::one->set_least(least);
  arena->set_cache(cache);
  c10::SetCPUAllocator(SharedAllocator::one, UINT8_MAX);
}

at::Tensor shared_tensor(int64_t size, const at::TensorOptions &options)
{
  TORCH_CHECK(size >= 0, "tutti: allocate_tensor: the size is ", size);
  TORCH_CHECK(options.device().is_cpu(), "tutti: allocate_tensor: the device is ", options.device(),
              ", but this back end is for CPU tensors");
  make_arena();
  const size_t bytes = static_cast<size_t>(size) * options.dtype().itemsize();
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, SharedAllocator::one->allocate(bytes),
                       SharedAllocator::one, true);
  return at::empty({0}, options).set_(std::move(storage), 0, {size}, {1});
}

void empty_cache()
{
  if (arena != nullptr) {
    arena->empty();
  }
}

std::map<std::string, int64_t> allocator_stats()
{
  return arena != nullptr ? arena->stats() : std::map<std::string, int64_t>{};
}

} // namespace tutti
