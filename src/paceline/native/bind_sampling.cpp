// Python's view of sampling.hpp: the submodule `_core.sampling`. Arrays in, fresh arrays out, no state.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>

#include "sampling.hpp"

namespace nb = nanobind;
namespace sampling = paceline::sampling;

namespace {

using Logits = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Ids = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Probs = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
nb::ndarray<nb::numpy, T> to_numpy(sampling::Buffer<T>&& values, std::initializer_list<size_t> shape) {
  auto owned = std::make_unique<sampling::Buffer<T>>(std::move(values));
  nb::capsule owner(owned.get(), [](void* p) noexcept { delete static_cast<sampling::Buffer<T>*>(p); });
  T* data = owned.release()->data();
  return nb::ndarray<nb::numpy, T>(data, shape, owner);
}

// (ids, probs); ids is None for a law on every id of the vocabulary.
nb::tuple to_tuple(sampling::Law&& law) {
  const size_t size = law.probs.size();
  nb::object ids = nb::none();
  if (law.ids.size() == size) ids = nb::cast(to_numpy(std::move(law.ids), {size}));
  return nb::make_tuple(ids, to_numpy(std::move(law.probs), {size}));
}

void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

sampling::LawView view(const Ids& ids, const Probs& probs) {
  require(ids.shape(0) == probs.shape(0), "ids and probs differ in length");
  return {ids.data(), probs.data(), ids.shape(0)};
}

nb::tuple filtered_law(const Logits& logits, double temperature, int64_t top_k, double top_p, double min_p) {
  require(temperature > 0.0, "temperature must be above 0");
  sampling::Law law;
  {
    nb::gil_scoped_release release;
    sampling::filtered_law(logits.data(), logits.shape(0), {temperature, top_k, top_p, min_p}, law);
  }
  return to_tuple(std::move(law));
}

size_t coupled_index(const Ids& ids, const Probs& probs, uint64_t key) {
  require(ids.shape(0) == probs.shape(0) && ids.shape(0) > 0, "ids and probs must be equally long, not empty");
  nb::gil_scoped_release release;
  return sampling::coupled_index(ids.data(), probs.data(), ids.shape(0), key);
}

size_t inverse_index(const Probs& probs, double uniform) {
  require(probs.shape(0) > 0, "probs must not be empty");
  return sampling::inverse_index(probs.data(), probs.shape(0), uniform);
}

nb::tuple positive_difference(const Ids& p_ids, const Probs& p_probs, const Ids& q_ids, const Probs& q_probs,
                              double scale) {
  const sampling::LawView p = view(p_ids, p_probs), q = view(q_ids, q_probs);
  sampling::Law law;
  double mass;
  {
    nb::gil_scoped_release release;
    mass = sampling::positive_difference(p, q, scale, law);
  }
  return nb::make_tuple(to_tuple(std::move(law)), mass);
}

double positive_mass(const Ids& p_ids, const Probs& p_probs, const Ids& q_ids, const Probs& q_probs, double scale) {
  return sampling::positive_mass(view(p_ids, p_probs), view(q_ids, q_probs), scale);
}

double log_sum_exp(const Logits& logits) {
  nb::gil_scoped_release release;
  return sampling::log_sum_exp(logits.data(), logits.shape(0));
}

nb::ndarray<nb::numpy, int32_t> top_ids(const Rows& rows, size_t wanted) {
  const size_t count = rows.shape(0);
  require(wanted <= rows.shape(1), "more ids wanted than there are");
  sampling::Buffer<int32_t> ids(count * wanted);
  {
    nb::gil_scoped_release release;
    for (size_t row = 0; row < count; ++row)
      sampling::top_ids(rows.data() + row * rows.shape(1), rows.shape(1), wanted, ids.data() + row * wanted);
  }
  return to_numpy(std::move(ids), {count, wanted});
}

std::vector<std::string> instruction_paths() {
  const std::vector<const char*> names = sampling::instruction_paths();
  return {names.begin(), names.end()};
}

}  // namespace

void bind_sampling(nb::module_& m) {
  nb::module_ s = m.def_submodule("sampling", "Sampling over one row of logits.");
  s.def("argmax", [](const Logits& x) { return sampling::argmax(x.data(), x.shape(0)); }, nb::arg("logits"));
  s.def("filtered_law", &filtered_law, nb::arg("logits"), nb::arg("temperature"), nb::arg("top_k"),
        nb::arg("top_p"), nb::arg("min_p"));
  s.def("coupled_index", &coupled_index, nb::arg("ids"), nb::arg("probs"), nb::arg("key"));
  s.def("inverse_index", &inverse_index, nb::arg("probs"), nb::arg("uniform"));
  s.def("positive_difference", &positive_difference, nb::arg("p_ids"), nb::arg("p_probs"), nb::arg("q_ids"),
        nb::arg("q_probs"), nb::arg("scale"));
  s.def("positive_mass", &positive_mass, nb::arg("p_ids"), nb::arg("p_probs"), nb::arg("q_ids"), nb::arg("q_probs"),
        nb::arg("scale"));
  s.def("log_sum_exp", &log_sum_exp, nb::arg("logits"));
  s.def("top_ids", &top_ids, nb::arg("rows"), nb::arg("wanted"));
  s.def("noise_word", &sampling::noise_word, nb::arg("key"), nb::arg("id"));
  s.def("instruction_paths", &instruction_paths);
  s.def("choose_instruction_path", [](const std::string& name) {
    sampling::choose_instruction_path(name.c_str());
  }, nb::arg("name"));
}
