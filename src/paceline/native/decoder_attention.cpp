// Attention of a layer: queries and keys are rotated, keys and values stored; then tasks for the kernels, shared out by
// rows or by chunks, merged in one order.
#include "decoder.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace paceline {

// Per row and rope: cosine and sine per rotated pair; for interleaved pairs per dim, with the sine's sign, so that
// x * cosine + partner(x) * sine is the rotation of either.
void Decoder::rotary_tables(int begin, int end) {
  for (int row = begin; row < end; ++row) {
    std::size_t at = static_cast<std::size_t>(row) * rope_width_;
    for (const Rope& r : model_->spec.ropes)
      for (const double f : r.inverse_frequencies) {
        const double angle = batch_.position(row) * f;
        const auto c = static_cast<float>(std::cos(angle) * r.attention_factor);
        const auto s = static_cast<float>(std::sin(angle) * r.attention_factor);
        if (r.interleaved) {
          cosine_[at] = c;
          sine_[at++] = -s;
        }
        cosine_[at] = c;
        sine_[at++] = s;
      }
  }
}

namespace {

void head_norm(const std::vector<float>& weight, float eps, float* x) {
  const int n = static_cast<int>(weight.size());
  float squares = 0.0f;
  for (int i = 0; i < n; ++i) squares += x[i] * x[i];
  const float scale = 1.0f / std::sqrt(squares / static_cast<float>(n) + eps);
  for (int i = 0; i < n; ++i) x[i] = x[i] * scale * weight[i];
}

void add_bias(const std::vector<float>& bias, int head, int n, float* x) {
  if (bias.empty()) return;
  for (int i = 0; i < n; ++i) x[i] += bias[static_cast<std::size_t>(head) * n + i];
}

}  // namespace

// Bias, norm and rotation of one query or key head; a key head is then stored together with its value head.
void Decoder::rotate_and_store(const Layer& w, int l, int row, int head) {
  const Spec& m = model_->spec;
  const int queries = round_up(m.heads * m.head_dim, 16), keys = round_up(m.kv_heads * m.head_dim, 16);
  float* base = qkv_.data() + static_cast<std::size_t>(row) * qkv_width_;
  const bool is_key = head >= m.heads;
  const int h = is_key ? head - m.heads : head;
  float* x = base + (is_key ? queries : 0) + h * m.head_dim;
  add_bias(is_key ? w.k_bias : w.q_bias, h, m.head_dim, x);
  const std::vector<float>& norm = is_key ? w.k_norm : w.q_norm;
  if (!norm.empty()) head_norm(norm, m.eps, x);
  const Rope& rope = m.ropes[m.layer_ropes[l]];
  const std::size_t at = static_cast<std::size_t>(row) * rope_width_ + rope_offsets_[m.layer_ropes[l]];
  k_.rotate(x, cosine_.data() + at, sine_.data() + at, 2 * static_cast<int>(rope.inverse_frequencies.size()),
            rope.interleaved);
  if (!is_key) return;
  float* value = base + queries + keys + h * m.head_dim;
  add_bias(w.v_bias, h, m.head_dim, value);
  const int slot = batch_.slots[row];
  const int block = batch_.blocks[batch_.block_offsets[batch_.sequence[row]] + slot / kBlockSlots];
  k_.store_kv(cache(l), block, slot % kBlockSlots, h, x, value);
}

AttentionTask Decoder::task(int l, const Item& item) const {
  const Spec& m = model_->spec;
  const Run& run = runs_[item.run];
  const int group = m.heads / m.kv_heads;
  AttentionTask t;
  t.cache = cache(l);
  t.blocks = batch_.blocks + batch_.block_offsets[batch_.sequence[run.row]];
  t.kv_head = item.kv_head;
  t.rows = run.rows;
  t.heads = std::min(heads_per_task(), group - item.head);
  t.scale = m.attention_scale;
  t.softcap = m.attention_softcap;
  for (int i = 0; i < run.rows; ++i) {
    const int row = run.row + i;
    AttentionRow& r = t.row[i];
    r.query = qkv_.data() + static_cast<std::size_t>(row) * qkv_width_ +
              static_cast<std::size_t>(item.kv_head * group + item.head) * m.head_dim;
    r.tail = batch_.tails + batch_.tail_offsets[row];
    r.prefix = batch_.prefix[row];
    r.tail_length = batch_.tail(row);
    r.first = first_visible(l, row);
  }
  return t;
}

float* Decoder::partial_at(int row, int head, int chunk) {
  const std::size_t index = (static_cast<std::size_t>(row) * model_->spec.heads + head) * most_chunks_ + chunk;
  return partials_.data() + index * (2 + padded_dim_);
}

// Chunks are always merged from a row's first to its last, whoever computed them: the result is the same bits
// whether they were shared out (few rows) or walked by one thread (many rows).
void Decoder::attention(ThreadState& s, int l) {
  const std::vector<Item>& items = items_[layer_items_[l]];
  next_work(s).run(s.thread, static_cast<int>(items.size()), [&](int i) {
    const Item& item = items[i];
    if (item.chunk < 0) return attend_run(s, l, item);
    AttentionTask t = task(l, item);
    const int head = item.kv_head * (model_->spec.heads / model_->spec.kv_heads) + item.head;
    t.out_stride = static_cast<std::int64_t>(most_chunks_) * (2 + padded_dim_);
    for (int r = 0; r < t.rows; ++r) t.row[r].out = partial_at(runs_[item.run].row + r, head, item.chunk);
    k_.attend(t, item.chunk);
    if (chunks_done_[item.share].fetch_add(1, std::memory_order_acq_rel) + 1 < item.chunks) return;
    chunks_done_[item.share].store(0, std::memory_order_relaxed);  // for the next layer, behind a barrier
    collect(s, l, item);
  });
  warm(s, *model_->layers[l].o);
  sync(s, kAttention);
}

// All chunks of a run, one after another, merged into the rows of attended_.
void Decoder::attend_run(ThreadState& s, int l, const Item& item) {
  const Spec& m = model_->spec;
  AttentionTask t = task(l, item);
  const int row = runs_[item.run].row, stride = 2 + padded_dim_, queries = t.rows * t.heads;
  float *merged = s.partial.data(), *next = merged + queries * stride;
  t.out_stride = stride;
  int first = t.row[0].first, last = 0;
  for (int r = 0; r < t.rows; ++r) {
    t.row[r].out = next + r * t.heads * stride;
    first = std::min(first, t.row[r].first);
    last = std::max(last, t.row[r].end() - 1);
  }
  for (int c = first / kChunkPositions; c <= last / kChunkPositions; ++c) {
    k_.attend(t, c);
    for (int j = 0; j < queries; ++j) {
      const AttentionRow& r = t.row[j / t.heads];
      if (c == r.first / kChunkPositions) {
        std::memcpy(merged + j * stride, next + j * stride, sizeof(float) * stride);
      } else if (c > r.first / kChunkPositions && c <= (r.end() - 1) / kChunkPositions) {
        k_.merge(merged + j * stride, next + j * stride, padded_dim_);
      }
    }
  }
  for (int j = 0; j < queries; ++j) {
    const int head = item.kv_head * (m.heads / m.kv_heads) + item.head + j % t.heads;
    k_.finish(merged + j * stride, m.head_dim,
              attended_.data() + static_cast<std::size_t>(row + j / t.heads) * widest_ + head * m.head_dim);
  }
}

// Merges the chunks that attention of an item's rows and heads was shared out to.
void Decoder::collect(ThreadState& s, int l, const Item& item) {
  const Spec& m = model_->spec;
  const Run& run = runs_[item.run];
  const int group = m.heads / m.kv_heads, count = std::min(heads_per_task(), group - item.head);
  for (int row = run.row; row < run.row + run.rows; ++row) {
    const int first = first_visible(l, row) / kChunkPositions, last = batch_.position(row) / kChunkPositions;
    float* out = attended_.data() + static_cast<std::size_t>(row) * widest_;
    for (int head = item.kv_head * group + item.head, end = head + count; head < end; ++head) {
      float* merged = partial_at(row, head, first);
      for (int c = first + 1; c <= last; ++c) k_.merge(merged, partial_at(row, head, c), padded_dim_);
      k_.finish(merged, m.head_dim, out + head * m.head_dim);
    }
  }
}

}  // namespace paceline
