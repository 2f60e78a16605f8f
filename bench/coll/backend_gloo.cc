// backend_gloo.cc: Gloo over its TCP transport, which is the one it has between processes of one machine.
//
//   coll_gloo [ranks] [bcube]    bcube: the other algorithm of its all-reduce (the default is a ring)
//
// Gloo has no reduce-scatter that takes other buffers from call to call, so that one is left out.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "coll_bench.h"
#include "ranks.h"

namespace {

using sum_function = void (*)(void *, const void *, const void *, size_t);

coll_library lib;
std::string folder; // where the ranks find each other
int nranks = 2, rank;
auto algorithm = gloo::AllreduceOptions::Algorithm::UNSPECIFIED;
std::shared_ptr<gloo::Context> context;
const sum_function sum = &gloo::sum<float>;

void all_reduce(float *in, float *out, size_t count)
{
  gloo::AllreduceOptions o(context);
  o.setAlgorithm(algorithm);
  o.setInput(in, count);
  o.setOutput(out, count);
  o.setReduceFunction(sum);
  gloo::allreduce(o);
}

void all_gather(float *in, float *out, size_t count)
{
  gloo::AllgatherOptions o(context);
  o.setInput(in, count);
  o.setOutput(out, count * static_cast<size_t>(nranks));
  gloo::allgather(o);
}

void broadcast(float *out, size_t count)
{
  gloo::BroadcastOptions o(context);
  o.setOutput(out, count);
  o.setRoot(COLL_ROOT);
  gloo::broadcast(o);
}

void reduce(float *in, float *out, size_t count)
{
  gloo::ReduceOptions o(context);
  o.setInput(in, count);
  o.setOutput(out, count);
  o.setRoot(COLL_ROOT);
  o.setReduceFunction(sum);
  gloo::reduce(o);
}

void all_to_all(float *in, float *out, size_t count)
{
  gloo::AlltoallOptions o(context);
  o.setInput(in, count * static_cast<size_t>(nranks));
  o.setOutput(out, count * static_cast<size_t>(nranks));
  gloo::alltoall(o);
}

void ring_shift(float *in, float *out, size_t count)
{
  auto from = context->createUnboundBuffer(in, count * sizeof *in);
  auto to = context->createUnboundBuffer(out, count * sizeof *out);
  from->send((rank + 1) % nranks, 1);
  to->recv((rank + nranks - 1) % nranks, 1);
  from->waitSend();
  to->waitRecv();
}

int call(const coll_call *c)
{
  float *in = const_cast<float *>(c->in);
  try {
    switch (c->kind) {
    case COLL_ALL_REDUCE: all_reduce(in, c->out, c->count); break;
    case COLL_ALL_GATHER: all_gather(in, c->out, c->count); break;
    case COLL_BROADCAST: broadcast(c->out, c->count); break;
    case COLL_REDUCE: reduce(in, c->out, c->count); break;
    case COLL_ALL_TO_ALL: all_to_all(in, c->out, c->count); break;
    default: ring_shift(in, c->out, c->count); break;
    }
  } catch (const std::exception &e) {
    std::fprintf(stderr, "coll_gloo: rank %d: %s\n", rank, e.what());
    return 1;
  }
  return 0;
}

// Calls have returned: complete on this rank.
int settle()
{
  return 0;
}

void *buffer(size_t bytes)
{
  void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

int connect_ranks()
{
  try {
    gloo::transport::tcp::attr attributes;
    attributes.iface = "lo";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    auto mesh = std::make_shared<gloo::rendezvous::Context>(rank, nranks);
    gloo::rendezvous::FileStore store(folder);
    mesh->connectFullMesh(store, device);
    context = mesh;
  } catch (const std::exception &e) {
    std::fprintf(stderr, "coll_gloo: rank %d cannot connect: %s\n", rank, e.what());
    return 1;
  }
  return 0;
}

int run_rank(int number)
{
  rank = number;
  if (connect_ranks() != 0) {
    return 1;
  }
  ranks_barrier(); // nobody needs the folder any more
  std::error_code ignored;
  if (rank == 0) {
    std::filesystem::remove_all(folder, ignored);
  }
  int res = coll_obey(&lib, rank, nranks);
  ranks_barrier(); // a rank that closes its sockets early is an error to the others
  std::fflush(nullptr);
  std::_Exit(res); // the sockets' threads complain when their peers end first
}

} // namespace

int main(int argc, char **argv)
{
  for (int i = 1; i < argc; i++) {
    if (std::strcmp(argv[i], "bcube") == 0) {
      algorithm = gloo::AllreduceOptions::Algorithm::BCUBE;
    } else {
      nranks = std::atoi(argv[i]);
    }
  }
  lib.lacks = 1u << COLL_REDUCE_SCATTER;
  lib.same_buffer = 1;
  lib.call = call;
  lib.settle = settle;
  lib.barrier = ranks_barrier;
  lib.buffer = buffer;
  char name[] = "/tmp/coll-gloo-XXXXXX";
  if (mkdtemp(name) == nullptr) {
    std::perror("coll_gloo: /tmp");
    return 1;
  }
  folder = name;
  return ranks_run(nranks, 0, run_rank);
}
