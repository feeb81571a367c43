// Python's view of the native executor. Arguments are checked here, so that the kernels can trust them.

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>

#include "bind_batch.hpp"
#include "bind_heads.hpp"

namespace paceline {

namespace {

PairInput& pairs_of(Model& m) {
  require(m.pairs != nullptr, "the model is no head");
  return *m.pairs;
}

Layer& layer_at(Model& m, int layer) {
  require(layer >= 0 && layer < static_cast<int>(m.layers.size()), "layer out of range: " + std::to_string(layer));
  return m.layers[layer];
}

std::unique_ptr<Weight>& weight_slot(Model& m, int layer, const std::string& name) {
  if (name == "token_embd") return m.embedding;
  if (name == "output") return m.head;
  if (name == "fc") return pairs_of(m).fc;
  Layer& l = layer_at(m, layer);
  if (name == "attn_q") return l.q;
  if (name == "attn_k") return l.k;
  if (name == "attn_v") return l.v;
  if (name == "attn_output") return l.o;
  if (name == "ffn_gate") return l.gate;
  if (name == "ffn_up") return l.up;
  require(name == "ffn_down", "no such weight: " + name);
  return l.down;
}

std::vector<float>& vector_slot(Model& m, int layer, const std::string& name) {
  if (name == "output_norm.weight") return m.output_norm;
  if (name == "input_norm.weight") return pairs_of(m).input_norm;
  if (name == "attn_norm_2.weight") return pairs_of(m).hidden_norm;
  for (int i = 0; m.pairs && i < m.pairs->states; ++i)
    if (name == "fc_norm." + std::to_string(i) + ".weight") return m.pairs->state_norms[i];
  Layer& l = layer_at(m, layer);
  if (name == "attn_norm.weight") return l.attn_norm;
  if (name == "ffn_norm.weight") return l.ffn_norm;
  if (name == "post_attention_norm.weight") return l.post_attn_norm;
  if (name == "post_ffw_norm.weight") return l.post_ffn_norm;
  if (name == "attn_q_norm.weight") return l.q_norm;
  if (name == "attn_k_norm.weight") return l.k_norm;
  if (name == "attn_q.bias") return l.q_bias;
  if (name == "attn_k.bias") return l.k_bias;
  if (name == "attn_v.bias") return l.v_bias;
  require(name == "attn_output.bias", "no such vector: " + name);
  return l.o_bias;
}

const KindTraits& source_traits(int ggml_type) {
  const KindTraits* t = traits_of_ggml(ggml_type);
  require(t != nullptr, "unsupported tensor type " + std::to_string(ggml_type));
  return *t;
}

void add_weight(Model& m, int layer, const std::string& name, int rows, int cols, int ggml_type, bool as_float32) {
  const KindTraits& t = source_traits(ggml_type);
  require(rows > 0 && cols > 0 && cols % t.block_inputs == 0, name + ": bad shape");
  weight_slot(m, layer, name) = std::make_unique<Weight>(as_float32 ? Kind::F32 : t.kind, rows, cols, m.arena);
}

void add_gate_up(Model& m, int layer, int rows, int cols, int gate_type, int up_type, bool as_float32) {
  const KindTraits &gate = source_traits(gate_type), &up = source_traits(up_type);
  require(rows > 0 && cols > 0 && cols % gate.block_inputs == 0 && cols % up.block_inputs == 0,
          "ffn_gate and ffn_up: bad shape");
  Layer& l = layer_at(m, layer);
  std::tie(l.gate, l.up) = Weight::interleaved(as_float32 ? Kind::F32 : gate.kind, as_float32 ? Kind::F32 : up.kind,
                                               rows, cols, m.arena);
}

Weight& present(Model& m, int layer, const std::string& name) {
  std::unique_ptr<Weight>& w = weight_slot(m, layer, name);
  require(w != nullptr, name + " was not added");
  return *w;
}

void load_rows(Model& m, int layer, const std::string& name, int start, int ggml_type, Bytes bytes) {
  Weight& w = present(m, layer, name);
  const KindTraits& t = source_traits(ggml_type);
  const std::size_t row = static_cast<std::size_t>(w.view().cols) / t.block_inputs * t.block_bytes;
  const auto count = static_cast<int>(bytes.size() / row);
  require(bytes.size() == count * row && start % kTileRows == 0 && start >= 0 && start + count <= w.view().rows,
          name + ": rows do not fit");
  const std::uint8_t* data = bytes.data();
  nb::gil_scoped_release release;
  w.load_rows(start, count, data, t);
}

void set_vector(Model& m, int layer, const std::string& name, Floats values) {
  vector_slot(m, layer, name).assign(values.data(), values.data() + values.size());
}

void dequantize_row(Model& m, int layer, const std::string& name, int row, Vector out) {
  Weight& w = present(m, layer, name);
  require(row >= 0 && row < w.view().rows && static_cast<int>(out.size()) == w.view().cols, name + ": bad row");
  w.dequantize_row(row, out.data());
}

BatchLimits limits_of(const Decoder& d) {
  require(d.model()->pairs == nullptr, "the rows of a head are pairs");
  return {d.max_rows(), d.model()->spec.vocab, d.num_blocks()};
}

void forward(Decoder& d, Ints tokens, Ints sequences, Ints slots, Ints prefix, Ints tail_offsets, Ints tails,
             Ints block_offsets, Ints blocks, Ints logit_rows, Matrix logits) {
  const Batch b = read_batch({tokens, sequences, slots, prefix, tail_offsets, tails, block_offsets, blocks, logit_rows}, limits_of(d));
  check_shape(logits, b.logit_count, d.model()->spec.outputs, "logits");
  nb::gil_scoped_release release;
  d.forward(b, logits.data());
}

void forward_with_states(Decoder& d, Ints tokens, Ints sequences, Ints slots, Ints prefix, Ints tail_offsets,
                         Ints tails, Ints block_offsets, Ints blocks, Ints logit_rows, Matrix logits, Ints layers,
                         Matrix states) {
  const Batch b = read_batch({tokens, sequences, slots, prefix, tail_offsets, tails, block_offsets, blocks, logit_rows}, limits_of(d));
  check_shape(logits, b.logit_count, d.model()->spec.outputs, "logits");
  const Capture capture{layers.data(), static_cast<int>(layers.size()), states.data()};
  check_shape(states, b.rows, capture.count * d.model()->spec.hidden, "states");
  for (int i = 0; i < capture.count; ++i)
    require(layers.data()[i] >= 0 && layers.data()[i] <= d.layers(),
            "layer id out of range: " + std::to_string(layers.data()[i]));
  nb::gil_scoped_release release;
  d.forward(b, logits.data(), capture);
}

void move_slots(Decoder& d, Ints source, Ints destination) {
  require(source.size() == destination.size(), "source and destination differ in length");
  for (std::size_t i = 0; i < source.size(); ++i)
    for (const std::int32_t slot : {source.data()[i], destination.data()[i]})
      require(slot >= 0 && slot < d.num_blocks() * kBlockSlots, "slot out of range: " + std::to_string(slot));
  d.move_slots(source.data(), destination.data(), static_cast<int>(source.size()));
}

std::shared_ptr<Model> make_model(int layers, int hidden, int heads, int kv_heads, int head_dim, int ffn, int vocab,
                                  int outputs, float eps, bool gelu, float attention_scale, float attention_softcap,
                                  float final_softcap, float embedding_scale,
                                  const std::vector<std::tuple<std::vector<double>, bool, double>>& ropes,
                                  const std::vector<int>& layer_ropes, const std::vector<int>& layer_windows) {
  require(hidden % 32 == 0 && ffn % 32 == 0 && (heads * head_dim) % 32 == 0,
          "hidden size, feed-forward size and heads x head size must be multiples of 32");
  require(head_dim <= kMaxHeadDim, "heads wider than " + std::to_string(kMaxHeadDim) + " are not supported");
  require(kv_heads > 0 && heads % kv_heads == 0, "the number of heads must be a multiple of the key/value heads");
  require(static_cast<int>(layer_ropes.size()) == layers && static_cast<int>(layer_windows.size()) == layers,
          "one rope and one window per layer");
  auto m = std::make_shared<Model>();
  m->spec = Spec{layers, hidden, heads, kv_heads, head_dim, ffn, vocab, outputs, eps, attention_scale,
                 attention_softcap, final_softcap, embedding_scale, gelu, {}, layer_ropes, layer_windows};
  for (const auto& [frequencies, interleaved, factor] : ropes) {
    require(2 * static_cast<int>(frequencies.size()) <= head_dim, "rope is wider than a head");
    m->spec.ropes.push_back(Rope{frequencies, interleaved, factor});
  }
  for (const int r : layer_ropes) require(r >= 0 && r < static_cast<int>(ropes.size()), "no such rope");
  m->layers.resize(layers);
  return m;
}

std::shared_ptr<Decoder> make_decoder(std::shared_ptr<Model> model, std::shared_ptr<ThreadPool> pool,
                                      const std::string& path, int layers, int num_blocks, bool half_cache,
                                      int max_rows) {
  const KernelTable* table = path.empty() ? best_kernel_table() : kernel_table(path.c_str());
  require(table != nullptr, "instruction path not available here: " + path);
  require(layers >= 1 && layers <= model->spec.layers && num_blocks > 0 && max_rows > 0, "sizes must be positive");
  check_complete(*model);
  return std::make_shared<Decoder>(model, pool, table, layers, num_blocks, half_cache, max_rows);
}

nb::dict take_profile(Decoder& d) {
  nb::dict out;
  const auto seconds = d.take_profile();
  for (int i = 0; i < kOperators; ++i) out[kOperatorNames[i]] = seconds[i];
  return out;
}

// Seconds to read `bytes` bytes of memory once on all threads: the machine's read bandwidth.
double read_seconds(ThreadPool& pool, Bytes memory) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(memory.data());
  const std::size_t n = memory.size() / sizeof(std::uint64_t);
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(pool.size()) * 8);
  nb::gil_scoped_release release;
  const auto begin = std::chrono::steady_clock::now();
  pool.run([&](int t) {
    std::uint64_t s[8] = {};
    for (std::size_t i = n * t / pool.size() / 8 * 8; i + 8 <= n * (t + 1) / pool.size(); i += 8)
      for (int j = 0; j < 8; ++j) s[j] ^= words[i + j];
    for (int j = 0; j < 8; ++j) sums[8 * t] ^= s[j];
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  volatile std::uint64_t sink = sums[0];
  (void)sink;
  return seconds;
}

}  // namespace

}  // namespace paceline

void bind_sampling(nb::module_& m);  // bind_sampling.cpp

NB_MODULE(_core, m) {
  using namespace paceline;
  m.attr("BLOCK_SLOTS") = kBlockSlots;
  m.def("paths", [] {
    std::vector<std::string> names;
    for (const char* name : {"amx", "avx512", "avx2", "portable"})
      if (kernel_table(name) != nullptr) names.emplace_back(name);
    return names;
  }, "Instruction paths this machine can run, best first.");
  m.def("read_seconds", &read_seconds, nb::arg("pool"), nb::arg("memory"));
  nb::class_<ThreadPool>(m, "ThreadPool")
      .def(nb::new_([](int threads) {
             require(threads >= 1 && threads <= 256, "threads must be 1 … 256");
             return std::make_shared<ThreadPool>(threads);
           }), nb::arg("threads"))
      .def_prop_ro("size", &ThreadPool::size);
  nb::class_<Crowding>(m, "Crowding")
      .def(nb::init<>())
      .def_prop_ro("alone", &Crowding::alone)
      .def("judge", &Crowding::judge, nb::arg("seconds"), nb::arg("running_seconds"));
  nb::class_<Model> model(m, "Model");
  model
      .def(nb::new_(&make_model), nb::kw_only(), nb::arg("layers"), nb::arg("hidden"), nb::arg("heads"),
           nb::arg("kv_heads"), nb::arg("head_dim"), nb::arg("ffn"), nb::arg("vocab"), nb::arg("outputs"),
           nb::arg("eps"),
           nb::arg("gelu"), nb::arg("attention_scale"), nb::arg("attention_softcap"), nb::arg("final_softcap"),
           nb::arg("embedding_scale"), nb::arg("ropes"), nb::arg("layer_ropes"), nb::arg("layer_windows"))
      .def("add_weight", &add_weight, nb::arg("layer"), nb::arg("name"), nb::arg("rows"), nb::arg("cols"),
           nb::arg("ggml_type"), nb::arg("as_float32"))
      .def("add_gate_up", &add_gate_up, nb::arg("layer"), nb::arg("rows"), nb::arg("cols"), nb::arg("gate_type"),
           nb::arg("up_type"), nb::arg("as_float32"))
      .def("load_rows", &load_rows, nb::arg("layer"), nb::arg("name"), nb::arg("start"), nb::arg("ggml_type"),
           nb::arg("data"))
      .def("set_vector", &set_vector, nb::arg("layer"), nb::arg("name"), nb::arg("values"))
      .def("dequantize_row", &dequantize_row, nb::arg("layer"), nb::arg("name"), nb::arg("row"), nb::arg("out"))
      .def_prop_ro("weight_bytes", &Model::weight_bytes);
  nb::class_<Decoder> decoder(m, "Decoder");
  decoder
      .def(nb::new_(&make_decoder), nb::kw_only(), nb::arg("model"), nb::arg("pool"), nb::arg("path"),
           nb::arg("layers"), nb::arg("num_blocks"), nb::arg("half_cache"), nb::arg("max_rows"))
      .def("forward", &forward)
      .def("forward_with_states", &forward_with_states)
      .def("move_slots", &move_slots)
      .def("profile", &Decoder::profile, nb::arg("on"))
      .def("take_profile", &take_profile)
      .def_prop_ro("path", [](const Decoder& d) { return std::string(d.kernels().name); })
      .def_prop_ro("num_blocks", &Decoder::num_blocks)
      .def_prop_ro("max_rows", &Decoder::max_rows)
      .def_prop_ro("layers", &Decoder::layers)
      .def_prop_ro("cache_bytes", &Decoder::cache_bytes);
  bind_heads(m, model, decoder);
  bind_sampling(m);
}
