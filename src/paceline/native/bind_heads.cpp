// Python's view of EAGLE-3 heads: how a model becomes one, its passes, the drafter. Arguments are checked here.
#include "bind_heads.hpp"

#include <nanobind/stl/shared_ptr.h>

#include <algorithm>

#include "bind_batch.hpp"
#include "tree_drafter.hpp"

namespace paceline {
namespace {

using IntsOut = nb::ndarray<std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using States = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

bool fits(const std::unique_ptr<Weight>& w, int rows, int cols) {
  return w != nullptr && w->view().rows == rows && w->view().cols == cols;
}

bool sized(const std::vector<float>& v, int n, bool needed) {
  return (v.empty() && !needed) || static_cast<int>(v.size()) == n;
}

void check_layer(const Layer& l, const Spec& s, int inputs) {
  const int q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  require(fits(l.q, q, inputs) && fits(l.k, kv, inputs) && fits(l.v, kv, inputs) && fits(l.o, s.hidden, q) &&
              fits(l.gate, s.ffn, s.hidden) && fits(l.up, s.ffn, s.hidden) && fits(l.down, s.hidden, s.ffn),
          "a layer's weight is missing or has the wrong shape");
  require(sized(l.attn_norm, s.hidden, true) && sized(l.ffn_norm, s.hidden, true) &&
              sized(l.post_attn_norm, s.hidden, false) && sized(l.post_ffn_norm, s.hidden, false) &&
              sized(l.q_norm, s.head_dim, false) && sized(l.k_norm, s.head_dim, false) && sized(l.q_bias, q, false) &&
              sized(l.k_bias, kv, false) && sized(l.v_bias, kv, false) && sized(l.o_bias, s.hidden, false),
          "a layer's vector is missing or has the wrong shape");
  require(l.o_bias.empty() || l.post_attn_norm.empty(), "an output bias under a post-norm is not supported");
}

void check_pairs(const PairInput& p, const Spec& s) {
  const int width = p.states * p.state_width;
  require(fits(p.fc, s.hidden, width), "fc is missing or has the wrong shape");
  require(sized(p.hidden_norm, s.hidden, true) && sized(p.input_norm, width, false),
          "a norm of the states is missing or has the wrong shape");
  for (const std::vector<float>& norm : p.state_norms)
    require(sized(norm, p.state_width, !p.state_norms[0].empty()), "fc_norm is missing or has the wrong shape");
}

void set_pairs(Model& m, int states, int state_width, bool norm_before_residual, bool norm_output,
               std::shared_ptr<Model> target) {
  require(states > 0 && state_width > 0 && state_width % 32 == 0, "the target's width must be a multiple of 32");
  m.pairs = std::make_unique<PairInput>();
  m.pairs->states = states;
  m.pairs->state_width = state_width;
  m.pairs->norm_before_residual = norm_before_residual;
  m.pairs->norm_output = norm_output;
  m.pairs->target = std::move(target);
  m.pairs->state_norms.resize(states);
}

// The head's outputs are these rows of the target's, stored as they are there.
void take_output_rows(Model& m, const Model& target, Ints ids) {
  const Weight& from = target.output();
  const int rows = static_cast<int>(ids.size());
  for (int i = 0; i < rows; ++i)
    require(ids.data()[i] >= 0 && ids.data()[i] < from.view().rows, "row out of range: " + std::to_string(ids.data()[i]));
  m.head = std::make_unique<Weight>(from.view().kind, rows, from.view().cols, m.arena);
  for (int i = 0; i < rows; ++i) m.head->copy_row(i, from, ids.data()[i]);
}

const PairInput& pairs_of(const Decoder& d) {
  require(d.model()->pairs != nullptr, "the model is no head");
  return *d.model()->pairs;
}

int state_width(const Decoder& d) { return pairs_of(d).states * pairs_of(d).state_width; }

void check_columns(const States& m, std::size_t rows, int columns, const std::string& name) {
  require(m.shape(0) == rows && static_cast<int>(m.shape(1)) == columns, name + " array has the wrong shape");
}

void project(Decoder& d, States states, Matrix projected) {
  const int rows = static_cast<int>(states.shape(0));
  require(rows > 0 && rows <= d.max_rows(), "rows must be 1 … " + std::to_string(d.max_rows()));
  check_columns(states, states.shape(0), state_width(d), "states");
  check_shape(projected, rows, d.model()->spec.hidden, "projected");
  nb::gil_scoped_release release;
  d.project(states.data(), rows, projected.data());
}

BatchLimits limits_of(const Decoder& d) { return {d.max_rows(), d.model()->spec.vocab, d.num_blocks()}; }

void catch_up(Decoder& d, Ints tokens, Ints sequences, Ints slots, Ints prefix, Ints tail_offsets, Ints tails,
              Ints block_offsets, Ints blocks, Ints logit_rows, States states) {
  Batch b = read_batch({tokens, sequences, slots, prefix, tail_offsets, tails, block_offsets, blocks, logit_rows},
                       limits_of(d));
  check_columns(states, b.rows, state_width(d), "states");
  b.logit_count = 0;
  nb::gil_scoped_release release;
  d.forward(b, nullptr, {}, {states.data(), nullptr});
}

void forward_pairs(Decoder& d, Ints tokens, Ints sequences, Ints slots, Ints prefix, Ints tail_offsets, Ints tails,
                   Ints block_offsets, Ints blocks, Ints logit_rows, States projected, Matrix logits, Matrix out) {
  const Batch b = read_batch({tokens, sequences, slots, prefix, tail_offsets, tails, block_offsets, blocks, logit_rows},
                             limits_of(d));
  const Spec& m = d.model()->spec;
  require(d.model()->pairs != nullptr, "the model is no head");
  check_columns(projected, b.rows, m.hidden, "projected");
  check_shape(logits, b.logit_count, m.outputs, "logits");
  check_shape(out, b.rows, m.hidden, "out");
  const std::int32_t end = d.layers();
  nb::gil_scoped_release release;
  d.forward(b, logits.data(), {&end, 1, out.data(), 0}, {nullptr, projected.data()});
}

std::shared_ptr<TreeDrafter> make_drafter(std::shared_ptr<Decoder> head, Ints draft_to_target) {
  const Spec& m = head->model()->spec;
  pairs_of(*head);
  require(static_cast<int>(draft_to_target.size()) == m.outputs, "one target id per output");
  for (std::size_t i = 0; i < draft_to_target.size(); ++i)
    require(draft_to_target.data()[i] >= 0 && draft_to_target.data()[i] < m.vocab, "target id out of range");
  return std::make_shared<TreeDrafter>(
      head, std::vector<std::int32_t>(draft_to_target.data(), draft_to_target.data() + draft_to_target.size()));
}

void check_shape_of_draft(const DraftShape& s, const Batch& b, const Decoder& d) {
  require(s.max_nodes >= 1 && s.max_depth >= 1 && s.width >= 1 && s.width <= d.max_rows() &&
              s.width <= d.model()->spec.outputs,
          "a draft's nodes, depth and width must be positive, its width at most the draft vocabulary");
  require(b.sequences == 1 && b.tail_offsets[b.rows] == 0 && b.slots[b.rows - 1] == b.prefix[b.rows - 1] - 1,
          "a draft hangs on a chain of one sequence");
  const int room = b.block_offsets[1] * kBlockSlots, needed = b.prefix[b.rows - 1] + s.slots();
  require(needed <= room, "the draft needs slots up to " + std::to_string(needed) + ", the block table has " +
                              std::to_string(room));
}

int draft(TreeDrafter& t, Ints tokens, Ints sequences, Ints slots, Ints prefix, Ints tail_offsets, Ints tails,
          Ints block_offsets, Ints blocks, Ints logit_rows, States states, int max_nodes, int max_depth, int width,
          float min_log_prob, float min_parent_log_prob, IntsOut out_tokens, IntsOut out_parents, Vector out_log_probs) {
  const Decoder& d = *t.head();
  const Batch b = read_batch({tokens, sequences, slots, prefix, tail_offsets, tails, block_offsets, blocks, logit_rows},
                             limits_of(d));
  check_columns(states, b.rows, state_width(d), "states");
  const DraftShape shape{max_nodes, max_depth, width, min_log_prob, min_parent_log_prob};
  check_shape_of_draft(shape, b, d);
  for (const std::size_t size : {out_tokens.size(), out_parents.size(), out_log_probs.size()})
    require(size >= static_cast<std::size_t>(max_nodes), "no room for max_nodes nodes");
  nb::gil_scoped_release release;
  return t.draft(b, states.data(), shape, out_tokens.data(), out_parents.data(), out_log_probs.data());
}

}  // namespace

void check_complete(const Model& m) {
  const Spec& s = m.spec;
  const bool borrows = m.embedding == nullptr && m.pairs && m.pairs->target;
  require(fits(borrows ? m.pairs->target->embedding : m.embedding, s.vocab, s.hidden),
          "token_embd is missing or has the wrong shape");
  require((m.head == nullptr && m.embedding && s.outputs == s.vocab) || fits(m.head, s.outputs, s.hidden),
          "output is missing or has the wrong shape");
  require(sized(m.output_norm, s.hidden, true), "output_norm is missing or has the wrong shape");
  for (std::size_t l = 0; l < m.layers.size(); ++l)
    check_layer(m.layers[l], s, l == 0 && m.pairs ? 2 * s.hidden : s.hidden);
  if (m.pairs) check_pairs(*m.pairs, s);
}

void bind_heads(nb::module_& m, nb::class_<Model>& model, nb::class_<Decoder>& decoder) {
  model
      .def("set_pairs", &set_pairs, nb::kw_only(), nb::arg("states"), nb::arg("state_width"),
           nb::arg("norm_before_residual"), nb::arg("norm_output"), nb::arg("target").none())
      .def("take_output_rows", &take_output_rows, nb::arg("target"), nb::arg("ids"));
  decoder.def("project", &project).def("catch_up", &catch_up).def("forward_pairs", &forward_pairs);
  nb::class_<TreeDrafter>(m, "TreeDrafter")
      .def(nb::new_(&make_drafter), nb::arg("head"), nb::arg("draft_to_target"))
      .def("draft", &draft);
}

}  // namespace paceline
