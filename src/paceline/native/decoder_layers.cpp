// A layer, operator by operator, as every thread runs it.
#include "decoder.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

namespace paceline {
namespace {

constexpr std::size_t kWarmBytes = 4096;

// The tiles of a weight as items of work.
struct TileItems {
  int tiles, size, count;

  TileItems(int all, int each) : tiles(all), size(each), count((all + each - 1) / each) {}
  int first(int item) const { return item * size; }
  int length(int item) const { return std::min(size, tiles - first(item)); }
};

// One tile each where whole pairs would leave threads without work.
TileItems items_of(const Weight& w, int threads) {
  const int tiles = w.view().tiles;
  return {tiles, tiles >= 4 * kTilesAtOnce * threads ? kTilesAtOnce : 1};
}

}  // namespace

SharedWork& Decoder::next_work(ThreadState& s) { return work_[s.work++]; }

// Fetches the start of this thread's share of a weight, so that memory is busy while threads wait for each other.
void Decoder::warm(const ThreadState& s, const Weight& w) const {
  const WeightView& v = w.view();
  const int tile = static_cast<int>(static_cast<std::int64_t>(v.tiles) * s.thread / active_);
  for (std::size_t i = 0; i < std::min<std::size_t>(v.tile_bytes, kWarmBytes); i += 64)
    __builtin_prefetch(v.tile(tile) + i);
}

void Decoder::sync(ThreadState& s, Operator op) {
  pool_->barrier().wait();
  if (profiling_ && s.thread == 0) {
    const auto now = std::chrono::steady_clock::now();
    seconds_[op] += std::chrono::duration<double>(now - s.since).count();
    s.since = now;
  }
}

// Turns rows of x into the activations of the next operator: each thread all of them when replicated, else whole
// blocks where there are enough, or a share of the groups of every block, so that no cache line has two writers.
void Decoder::pack(ThreadState& s, const float* x, std::int64_t stride, int cols, const Needs& needs) {
  const std::vector<ActivationBlock>& blocks = s.inputs->blocks;
  const int groups = round_up(cols, kGroup) / kGroup, threads = active_, count = static_cast<int>(blocks.size());
  const bool by_block = !replicated_ && count >= 2 * threads, by_group = !replicated_ && !by_block;
  for (int i = by_block ? count * s.thread / threads : 0; i < (by_block ? count * (s.thread + 1) / threads : count); ++i) {
    const ActivationBlock& b = blocks[i];
    const int begin = by_group ? groups * s.thread / threads : 0;
    const int end = by_group ? groups * (s.thread + 1) / threads : groups;
    pack_groups(b, x + b.row * stride + begin * kGroup, stride, begin, end, needs);
  }
  if (!replicated_) sync(s, kNorm);
}

void Decoder::pack_groups(const ActivationBlock& b, const float* x, std::int64_t stride, int begin, int end,
                          const Needs& needs) const {
  if (needs.quants) k_.pack_quants(b, x, stride, begin, end, needs.offset_mask);
  if (needs.values) k_.pack_values(b, x, stride, begin, end);
}

void Decoder::product(ThreadState& s, const Inputs& in, const Weight& w, float* out, std::int64_t stride) {
  const WeightView& v = w.view();
  const TileItems items = items_of(w, active_);
  next_work(s).run(s.thread, items.count, [&](int i) {
    const int tile = items.first(i);
    for (const ActivationBlock& b : in.blocks)
      k_.gemm(v, tile, items.length(i), b, out + b.row * stride + static_cast<std::int64_t>(tile) * kTileRows, stride);
  });
}

// A pair of tiles is a group of what the next product reads: whoever made it packs it too.
void Decoder::gated_product(ThreadState& s, const Layer& w) {
  static_assert(kTilesAtOnce * kTileRows == kGroup);
  const Needs down_needs = needs({w.down.get()});
  const TileItems items(w.gate->view().tiles, kTilesAtOnce);
  next_work(s).run(s.thread, items.count, [&](int i) {
    float* gate = s.tile.data();
    float* up = gate + kMaxBlockRows * kGroup;
    if (items.length(i) < kTilesAtOnce) std::fill(gate, up + kMaxBlockRows * kGroup, 0.0f);
    for (std::size_t n = 0; n < s.inputs->blocks.size(); ++n) {
      const ActivationBlock& b = s.inputs->blocks[n];
      k_.gemm(w.gate->view(), items.first(i), items.length(i), b, gate, kGroup);
      k_.gemm(w.up->view(), items.first(i), items.length(i), b, up, kGroup);
      k_.gated(gate, up, b.rows * kGroup, model_->spec.gelu, gate);
      pack_groups(gated_inputs_.blocks[n], gate, kGroup, i, i + 1, down_needs);
    }
  });
}

// x += y, or x += norm(y) in models that normalise the output of a sub-layer.
void Decoder::absorb(ThreadState& s, int row, const std::vector<float>& post_norm) {
  absorb_into(s, row, post_norm, s.x + static_cast<std::size_t>(row) * model_->spec.hidden);
}

void Decoder::absorb_into(ThreadState& s, int row, const std::vector<float>& post_norm, float* x) {
  const Spec& m = model_->spec;
  const float* y = y_.data() + static_cast<std::size_t>(row) * m.hidden;
  if (!post_norm.empty()) {
    k_.rms_norm(y, post_norm.data(), m.eps, m.hidden, s.row.data());
    y = s.row.data();
  }
  k_.add(y, x, m.hidden);
}

// Rows that every thread has are written by one of them.
void Decoder::capture(const ThreadState& s, int layer, int row, const float* x) const {
  const int hidden = model_->spec.hidden;
  if (row < capture_.first || (replicated_ && row % active_ != s.thread)) return;
  float* out = capture_.out + static_cast<std::size_t>(row - capture_.first) * capture_.count * hidden;
  for (int i = 0; i < capture_.count; ++i)
    if (capture_.layers[i] == layer)
      std::memcpy(out + static_cast<std::size_t>(i) * hidden, x, sizeof(float) * hidden);
}

// The head absorbs into a copy, so x still lacks what the last layer adds.
void Decoder::capture_last(ThreadState& s) {
  const Spec& m = model_->spec;
  const bool normed = model_->pairs && model_->pairs->norm_output;
  for_rows(s, batch_.rows - capture_.first, [&](int i) {
    const int r = capture_.first + i;
    float* copy = s.tile.data();
    std::memcpy(copy, s.x + static_cast<std::size_t>(r) * m.hidden, sizeof(float) * m.hidden);
    absorb_into(s, r, model_->layers[layers_ - 1].post_ffn_norm, copy);
    if (normed) k_.rms_norm(copy, model_->output_norm.data(), m.eps, m.hidden, copy);
    capture(s, layers_, r, copy);
  });
}

void Decoder::layer(ThreadState& s, int l) {
  const Spec& m = model_->spec;
  const Layer& w = model_->layers[l];
  float* rows = replicated_ ? s.own_rows.data() : rows_.data();  // inputs of an operator, [rows][widest_]
  const bool of_pairs = l == 0 && model_->pairs;
  const Needs qkv_needs = needs({w.q.get(), w.k.get(), w.v.get()});
  for_rows(s, batch_.rows, [&](int r) {
    const float* x = s.x + static_cast<std::size_t>(r) * m.hidden;
    if (of_pairs) return prepare_pair(s, r, rows + r * widest_);
    if (l > 0) absorb(s, r, model_->layers[l - 1].post_ffn_norm);
    if (capture_.count > 0) capture(s, l, r, x);
    k_.rms_norm(x, w.attn_norm.data(), m.eps, m.hidden, rows + r * widest_);
  });
  pack(s, rows, widest_, of_pairs ? 2 * m.hidden : m.hidden, qkv_needs);
  // Query, key and value tiles are one list of work.
  const auto part = [&](const Weight& v, int column) {
    return std::tuple{&v.view(), items_of(v, active_), column};
  };
  const int k_column = w.q->view().tiles * kTileRows, v_column = k_column + w.k->view().tiles * kTileRows;
  const std::array parts{part(*w.q, 0), part(*w.k, k_column), part(*w.v, v_column)};
  int count = 0;
  for (const auto& [view, items, column] : parts) count += items.count;
  next_work(s).run(s.thread, count, [&](int i) {
    auto at = parts.begin();
    for (; i >= std::get<1>(*at).count; ++at) i -= std::get<1>(*at).count;
    const auto& [view, items, column] = *at;
    for (const ActivationBlock& b : s.inputs->blocks)
      k_.gemm(*view, items.first(i), items.length(i), b,
              qkv_.data() + static_cast<std::size_t>(b.row) * qkv_width_ + column + items.first(i) * kTileRows,
              qkv_width_);
  });
  sync(s, kQkv);
  const int heads = m.heads + m.kv_heads, items = batch_.rows * heads;
  const int begin = static_cast<int>(static_cast<std::int64_t>(items) * s.thread / active_);
  const int end = static_cast<int>(static_cast<std::int64_t>(items) * (s.thread + 1) / active_);
  // By head, not by row: a key's cache lines hold one dim of 16 slots.
  for (int i = begin; i < end; ++i) rotate_and_store(w, l, i % batch_.rows, i / batch_.rows);
  sync(s, kRope);
  if (l + 1 == layers_ && !reads_last_) return;
  attention(s, l);
  const Needs o_needs = needs({w.o.get()});
  pack(s, attended_.data(), widest_, m.heads * m.head_dim, o_needs);
  product(s, *s.inputs, *w.o, y_.data(), m.hidden);
  warm(s, *w.gate);
  warm(s, *w.up);
  sync(s, kOutput);
  const Needs ffn_needs = needs({w.gate.get(), w.up.get()});
  for_rows(s, batch_.rows, [&](int r) {
    absorb(s, r, w.post_attn_norm);
    if (!w.o_bias.empty()) k_.add(w.o_bias.data(), s.x + static_cast<std::size_t>(r) * m.hidden, m.hidden);
    k_.rms_norm(s.x + static_cast<std::size_t>(r) * m.hidden, w.ffn_norm.data(), m.eps, m.hidden, rows + r * widest_);
  });
  pack(s, rows, widest_, m.hidden, ffn_needs);
  gated_product(s, w);
  warm(s, *w.down);
  sync(s, kGateUp);
  product(s, gated_inputs_, *w.down, y_.data(), m.hidden);
  warm(s, l + 1 < layers_ ? *model_->layers[l + 1].q : model_->output());
  sync(s, kDown);
}

void Decoder::head(ThreadState& s, float* logits) {
  const Spec& m = model_->spec;
  const Weight& w = model_->output();
  const Needs head_needs = needs({&w});
  float* rows = replicated_ ? s.own_rows.data() : rows_.data();
  const std::vector<float>& post = model_->layers[layers_ - 1].post_ffn_norm;
  // The rows that want logits move to the front; a new layout for them is made by one thread.
  if (!replicated_) {
    pool_->barrier().wait();
    if (s.thread == 0) layout(shared_inputs_, batch_.logit_count, widest_);
    pool_->barrier().wait();
  } else {
    layout(*s.inputs, batch_.logit_count, widest_);
  }
  for_rows(s, batch_.logit_count, [&](int i) {
    const int r = batch_.logit_rows[i];
    // Absorb into a copy: a row may be asked for more than once.
    float* copy = s.tile.data();
    std::memcpy(copy, s.x + static_cast<std::size_t>(r) * m.hidden, sizeof(float) * m.hidden);
    absorb_into(s, r, post, copy);
    k_.rms_norm(copy, model_->output_norm.data(), m.eps, m.hidden, rows + i * widest_);
  });
  pack(s, rows, widest_, m.hidden, head_needs);
  const TileItems items = items_of(w, active_);
  next_work(s).run(s.thread, items.count, [&](int i) {
    const int tile = items.first(i), all = items.length(i) * kTileRows;
    const int column = tile * kTileRows, columns = std::min(all, m.outputs - column);
    for (const ActivationBlock& b : s.inputs->blocks) {
      float* out = logits + static_cast<std::int64_t>(b.row) * m.outputs + column;
      const bool whole = columns == all;
      k_.gemm(w.view(), tile, items.length(i), b, whole ? out : s.tile.data(), whole ? m.outputs : all);
      for (int r = 0; r < b.rows; ++r) {
        float* row = out + static_cast<std::int64_t>(r) * m.outputs;
        if (!whole) std::memcpy(row, s.tile.data() + r * all, sizeof(float) * columns);
        if (m.final_softcap > 0.0f) k_.softcap(row, columns, m.final_softcap);
      }
    }
  });
  sync(s, kHead);
}

// Writes the embedding of a row's token. A head reads the plain table, also of a target that scales it: so do the
// public ones, and the norm behind it takes a scale out again.
void Decoder::embed(int row, float* x) const {
  const Spec& m = model_->spec;
  model_->token_table().dequantize_row(batch_.tokens[row], x);
  if (m.embedding_scale != 1.0f)
    for (int i = 0; i < m.hidden; ++i) x[i] *= m.embedding_scale;
}

void Decoder::step(int thread, float* logits, const std::function<void(int)>& read) {
  ThreadState& s = threads_[thread];
  const int begin = static_cast<int>(static_cast<std::int64_t>(batch_.rows) * thread / active_);
  const int end = static_cast<int>(static_cast<std::int64_t>(batch_.rows) * (thread + 1) / active_);
  rotary_tables(begin, end);
  if (!model_->pairs) {
    for_rows(s, batch_.rows, [&](int r) { embed(r, s.x + static_cast<std::size_t>(r) * model_->spec.hidden); });
  } else if (pairs_.states != nullptr) {
    project_states(s, projected_.data());
  }
  for (int l = 0; l < layers_; ++l) layer(s, l);
  if (capture_.has(layers_)) capture_last(s);
  if (batch_.logit_count > 0) head(s, logits);
  for (int i = thread; read && i < batch_.logit_count; i += active_) read(i);
  k_.release();
}

}  // namespace paceline
