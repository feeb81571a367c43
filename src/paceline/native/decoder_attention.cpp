// Attention of a layer: tasks for the kernels, shared out by rows or by chunks, merged in one order.
#include "decoder.hpp"

#include <algorithm>
#include <cstring>

namespace paceline {

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
