// What an EAGLE-3 head does before its first attention; everything behind it is a decoder like any other.
#include <cstring>

#include "decoder.hpp"

namespace paceline {

// projected[row] = fc of the target's states of a row, normalised first where the head says so.
void Decoder::project_states(ThreadState& s, float* projected) {
  const Spec& m = model_->spec;
  const PairInput& p = *model_->pairs;
  const int width = p.states * p.state_width;
  const float* inputs = pairs_.states;
  std::int64_t stride = width;
  if (p.normalises()) {
    float* rows = replicated_ ? s.own_rows.data() : rows_.data();
    for_rows(s, batch_.rows, [&](int r) {
      const float* x = pairs_.states + static_cast<std::size_t>(r) * width;
      float* y = rows + static_cast<std::size_t>(r) * widest_;
      if (!p.input_norm.empty()) {
        k_.rms_norm(x, p.input_norm.data(), m.eps, width, y);
        x = y;
      }
      for (int i = 0; i < p.states && !p.state_norms[i].empty(); ++i)
        k_.rms_norm(x + i * p.state_width, p.state_norms[i].data(), m.eps, p.state_width, y + i * p.state_width);
    });
    inputs = rows;
    stride = widest_;
  }
  pack(s, inputs, stride, width, needs({p.fc.get()}));
  product(s, *s.inputs, *p.fc, projected, m.hidden);
  sync(s, kEmbed);
}

// out = norm(embedding), norm(state); x, the residual, is the state before or after its norm.
void Decoder::prepare_pair(ThreadState& s, int row, float* out) {
  const Spec& m = model_->spec;
  const PairInput& p = *model_->pairs;
  const float* state = (pairs_.projected != nullptr ? pairs_.projected : projected_.data()) +
                       static_cast<std::size_t>(row) * m.hidden;
  float* embedded = s.tile.data();
  embed(row, embedded);
  k_.rms_norm(embedded, model_->layers[0].attn_norm.data(), m.eps, m.hidden, out);
  k_.rms_norm(state, p.hidden_norm.data(), m.eps, m.hidden, out + m.hidden);
  std::memcpy(s.x + static_cast<std::size_t>(row) * m.hidden, p.norm_before_residual ? out + m.hidden : state,
              sizeof(float) * m.hidden);
}

}  // namespace paceline
