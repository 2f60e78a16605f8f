// module.cpp: the names that Python sees.
#include <pybind11/chrono.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/utils/pybind.h>

#include "allocator.h"
#include "group.h"

namespace py = pybind11;

namespace tutti {

// The creator of torch.distributed's back ends.
static c10::intrusive_ptr<c10d::Backend> create_backend(const c10::intrusive_ptr<c10d::Store> &store, int rank,
                                                        int size, double timeout_seconds, const std::string &name,
                                                        const std::vector<int64_t> &global_ranks)
{
  TORCH_CHECK(timeout_seconds > 0, "tutti: the time-out is ", timeout_seconds, " s, but must be more than 0");
  const auto limit = Milliseconds(static_cast<int64_t>(timeout_seconds * 1000));
  auto options = c10::make_intrusive<c10d::Backend::Options>("tutti", std::max(limit, Milliseconds(1)));
  options->group_name = name;
  for (const int64_t global : global_ranks) {
    options->global_ranks_in_group.push_back(static_cast<uint64_t>(global));
  }
  return c10::make_intrusive<ProcessGroupTutti>(store, rank, size, options);
}

static ProcessGroupTutti &own_backend(const c10::intrusive_ptr<c10d::Backend> &backend)
{
  auto *own = dynamic_cast<ProcessGroupTutti *>(backend.get());
  TORCH_CHECK(own != nullptr, "tutti: the back end is ", backend->getBackendName(), ", not tutti");
  return *own;
}

} // namespace tutti

PYBIND11_MODULE(TUTTI_TORCH_MODULE, m)
{
  using Backend = c10::intrusive_ptr<c10d::Backend>;
  m.doc() = "The back end tutti of torch.distributed.";
  py::class_<tutti::ProcessGroupTutti, c10::intrusive_ptr<tutti::ProcessGroupTutti>, c10d::Backend>(
      m, "ProcessGroupTutti", "The back end of one process group; create_backend makes it.")
      .def_property_readonly("options", &tutti::ProcessGroupTutti::getBackendOptions,
                             "Time-out, name and ranks of the group.")
      .def("_set_default_timeout", &tutti::ProcessGroupTutti::setTimeout, py::arg("timeout"),
           py::call_guard<py::gil_scoped_release>(), "Sets the time-out of the operations that follow.")
      .def("_start_time_estimate", &tutti::ProcessGroupTutti::start_time_estimate,
           py::call_guard<py::gil_scoped_release>(), "From now on operations do not run: their time is estimated.")
      .def("_end_time_estimate", &tutti::ProcessGroupTutti::end_time_estimate, py::call_guard<py::gil_scoped_release>(),
           "Gives the time, in us, of the operations since the start.");
  m.def("open_library", &tutti::open_library, py::arg("path"), "Opens the library.");
  m.def("create_backend", &tutti::create_backend, py::call_guard<py::gil_scoped_release>(), py::arg("store"),
        py::arg("rank"), py::arg("size"), py::arg("timeout_seconds"), py::arg("name"), py::arg("global_ranks"),
        "Creates a back end; waits for the other ranks.");
  m.def(
      "diagnose", [](const Backend &backend) { return tutti::own_backend(backend).diagnose(); },
      py::call_guard<py::gil_scoped_release>(), py::arg("backend"), "What the communicator does just now: JSON.");
  m.def(
      "flight_recorder", [](const Backend &backend) { return tutti::own_backend(backend).flight_recorder(); },
      py::call_guard<py::gil_scoped_release>(), py::arg("backend"), "The communicator's last operations: JSON.");
  m.def("use_shared_allocator", &tutti::use_shared_allocator, py::call_guard<py::gil_scoped_release>(),
        py::arg("least"), py::arg("cache"), "Large CPU tensors lie in memory that peers map from now on.");
  m.def("empty_cache", &tutti::empty_cache, py::call_guard<py::gil_scoped_release>(), "Gives freed memory back.");
  m.def("allocator_stats", &tutti::allocator_stats, "What the allocator has, in bytes.");
}
