#include "decoder.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace paceline {
namespace {

constexpr int kReplicatedRows = 4;   // up to here preparing rows twice is cheaper than a barrier
constexpr int kSplitRows = 16;       // up to here attention is shared out by chunks, above by rows
constexpr int kWorkPerLayer = 5;  // qkv, attention, output, gate and up, down

int round_up(int n, int to) { return (n + to - 1) / to * to; }

}  // namespace

const char* const kOperatorNames[kOperators] = {"embed",  "norm",    "qkv",  "rope", "attention",
                                                "output", "gate_up", "down", "head"};

std::size_t Model::weight_bytes() const {
  std::size_t total = embedding->bytes() + (head ? head->bytes() : 0);
  for (const Layer& l : layers)
    for (const auto* w : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down}) total += (*w)->bytes();
  return total;
}

Decoder::Decoder(std::shared_ptr<Model> model, std::shared_ptr<ThreadPool> pool, const KernelTable* kernels,
                 int layers, int num_blocks, bool half_cache, int max_rows)
    : model_(std::move(model)), pool_(std::move(pool)), k_(*kernels), layers_(layers), num_blocks_(num_blocks),
      max_rows_(max_rows), half_cache_(half_cache), threads_(pool_->size()) {
  const Spec& m = model_->spec;
  padded_dim_ = round_up(m.head_dim, 16);
  qkv_width_ = round_up(m.heads * m.head_dim, 16) + 2 * round_up(m.kv_heads * m.head_dim, 16);
  widest_ = round_up(std::max({m.hidden, m.ffn, m.heads * m.head_dim}), kGroup);
  const std::size_t element = half_cache ? 2 : 4;
  const CacheView shape = cache(-1);
  for (int l = 0; l < layers; ++l) {
    const std::size_t kb = shape.key_block * element * num_blocks, vb = shape.value_block * element * num_blocks;
    keys_.push_back(cache_arena_.take(kb));
    values_.push_back(cache_arena_.take(vb));
    cache_bytes_ += kb + vb;
  }
  for (int i = 0; i < kWorkPerLayer * layers + 2; ++i) work_.emplace_back(pool_->size());
  for (int t = 0; t < pool_->size(); ++t) {
    ThreadState& s = threads_[t];
    s.thread = t;
    s.own_x.resize(static_cast<std::size_t>(kReplicatedRows) * m.hidden);
    s.row.resize(widest_);
    s.attended.resize(widest_);
    s.tile.resize(std::max(2 * kMaxBlockRows * kTileRows, widest_));
    s.partial.resize(static_cast<std::size_t>(2) * m.heads * (2 + padded_dim_));
  }
}

CacheView Decoder::cache(int l) const {
  const Spec& m = model_->spec;
  CacheView c;
  c.head_dim = m.head_dim;
  c.padded_dim = padded_dim_;
  c.half = half_cache_;
  c.key_block = static_cast<std::int64_t>(m.kv_heads) * m.head_dim * kBlockSlots;
  c.value_block = static_cast<std::int64_t>(m.kv_heads) * padded_dim_ * kBlockSlots;
  if (l >= 0) {
    c.keys = keys_[l];
    c.values = values_[l];
  }
  return c;
}

void Decoder::Needs::add(const Weight& w) {
  const KindTraits& t = traits(w.view().kind);
  if (t.bits == 0) {
    values = true;
    return;
  }
  quants = true;
  if (t.kind == Kind::Q4_0) offset_mask |= 1;
  if (t.kind == Kind::Q5_0) offset_mask |= 2;
  if (t.kind == Kind::Q8_0) offset_mask |= 4;
  if (t.kind == Kind::Q6_K) offset_mask |= 8;
}

Decoder::Needs Decoder::needs(std::initializer_list<const Weight*> weights) const {
  Needs n;
  for (const Weight* w : weights) n.add(*w);
  return n;
}

// ---- planning a pass ------------------------------------------------------------------------------------

int Decoder::first_visible(int l, int row) const {
  const int window = model_->spec.layer_windows[l];
  return window > 0 ? std::max(0, batch_.position(row) - window + 1) : 0;
}

// Attention work of up to kSplitRows rows, per distinct window: one item per row, key/value head and chunk.
void Decoder::plan_attention() {
  items_.clear();
  layer_items_.assign(layers_, -1);
  most_chunks_ = 1;
  for (int r = 0; r < batch_.rows; ++r) most_chunks_ = std::max(most_chunks_, batch_.position(r) / kChunkPositions + 1);
  if (batch_.rows > kSplitRows) return;
  const Spec& m = model_->spec;
  for (int l = 0; l < layers_; ++l) {
    for (int before = 0; before < l && layer_items_[l] < 0; ++before)
      if (m.layer_windows[before] == m.layer_windows[l]) layer_items_[l] = layer_items_[before];
    if (layer_items_[l] >= 0) continue;
    layer_items_[l] = static_cast<int>(items_.size());
    std::vector<Item>& items = items_.emplace_back();
    for (int h = 0; h < m.kv_heads; ++h)
      for (int r = 0; r < batch_.rows; ++r)
        for (int c = first_visible(l, r) / kChunkPositions; c <= batch_.position(r) / kChunkPositions; ++c)
          items.push_back({r, h, c});
  }
  const std::size_t wanted =
      static_cast<std::size_t>(batch_.rows) * most_chunks_ * m.heads * (2 + padded_dim_);
  if (partials_.size() < wanted) partials_.resize(wanted);
}

// Divide the rows of an input into blocks and give each its place in memory.
void Decoder::layout(Inputs& in, int rows, int cols) {
  const int groups = round_up(cols, kGroup) / kGroup;
  const std::size_t padded_rows = round_up(rows, kMaxBlockRows) + kMaxBlockRows;
  const std::size_t lanes = padded_rows * groups;
  if (in.bytes.size() < lanes * kGroup) in.bytes.resize(lanes * kGroup);
  if (in.floats.size() < lanes * (2 + kGroup)) in.floats.resize(lanes * (2 + kGroup));
  if (in.ints.size() < lanes * 5) in.ints.resize(lanes * 5);
  in.blocks.clear();
  std::size_t lane = 0;
  for (int row = 0; row < rows; row += k_.max_rows) {
    ActivationBlock b;
    b.row = row;
    b.rows = std::min(k_.max_rows, rows - row);
    b.width = k_.width(b.rows);
    b.quants = in.bytes.data() + lane * kGroup;
    b.scales = in.floats.data() + lane;
    b.sums = in.floats.data() + lanes + lane;
    b.values = in.floats.data() + 2 * lanes + lane * kGroup;
    for (int o = 0; o < 3; ++o) b.offsets[o] = in.ints.data() + o * lanes + lane;
    b.offsets[3] = in.ints.data() + 3 * lanes + 2 * lane;
    in.blocks.push_back(b);
    lane += static_cast<std::size_t>(b.width) * groups;
  }
}

void Decoder::plan(const Batch& batch) {
  const Spec& m = model_->spec;
  batch_ = batch;
  replicated_ = batch.rows <= kReplicatedRows;
  const auto grow = [&](std::vector<float>& v, std::size_t width) {
    if (v.size() < width * batch.rows) v.resize(width * batch.rows);
  };
  grow(x_, m.hidden);
  grow(qkv_, qkv_width_);
  grow(y_, m.hidden);
  grow(act_, m.ffn);
  grow(attended_, widest_);
  std::size_t half = 0;
  for (const Rope& r : m.ropes) half += r.inverse_frequencies.size();
  grow(cosine_, half);
  grow(sine_, half);
  for (SharedWork& w : work_) w.reset();
  for (ThreadState& s : threads_) {
    s.work = 0;
    s.x = replicated_ ? s.own_x.data() : x_.data();
    s.inputs = replicated_ ? &s.own_inputs : &shared_inputs_;
    if (replicated_) layout(s.own_inputs, batch.rows, widest_);
  }
  if (!replicated_) layout(shared_inputs_, batch.rows, widest_);
  plan_attention();
}

// ---- running it -----------------------------------------------------------------------------------------

SharedWork& Decoder::next_work(ThreadState& s) { return work_[s.work++]; }

void Decoder::sync(ThreadState& s, Operator op) {
  pool_->barrier().wait();
  if (profiling_ && s.thread == 0) {
    const auto now = std::chrono::steady_clock::now();
    seconds_[op] += std::chrono::duration<double>(now - s.since).count();
    s.since = now;
  }
}

// Rows 0 … rows-1: every thread all of them when replicated, else its share followed by a barrier.
template <typename Function>
void Decoder::for_rows(ThreadState& s, int rows, Function&& function) {
  const int threads = pool_->size();
  const int begin = replicated_ ? 0 : static_cast<int>(static_cast<std::int64_t>(rows) * s.thread / threads);
  const int end = replicated_ ? rows : static_cast<int>(static_cast<std::int64_t>(rows) * (s.thread + 1) / threads);
  for (int r = begin; r < end; ++r) function(r);
  if (!replicated_) sync(s, kNorm);
}

void Decoder::pack(ThreadState& s, int index, const float* x, int cols, const Needs& needs) {
  const ActivationBlock& b = s.inputs->blocks[index / k_.max_rows];
  const int groups = round_up(cols, kGroup) / kGroup;
  if (needs.quants) k_.pack_quants(b, index - b.row, x, groups, needs.offset_mask);
  if (needs.values) k_.pack_values(b, index - b.row, x, groups);
}

void Decoder::product(ThreadState& s, const Weight& w, float* out, std::int64_t stride) {
  const WeightView& v = w.view();
  next_work(s).run(s.thread, v.tiles, [&](int tile) {
    for (const ActivationBlock& b : s.inputs->blocks)
      k_.gemm(v, tile, b, out + b.row * stride + static_cast<std::int64_t>(tile) * kTileRows, stride);
  });
}

void Decoder::gated_product(ThreadState& s, const Layer& w) {
  const Spec& m = model_->spec;
  next_work(s).run(s.thread, w.gate->view().tiles, [&](int tile) {
    for (const ActivationBlock& b : s.inputs->blocks) {
      float* gate = s.tile.data();
      float* up = gate + kMaxBlockRows * kTileRows;
      k_.gemm(w.gate->view(), tile, b, gate, kTileRows);
      k_.gemm(w.up->view(), tile, b, up, kTileRows);
      for (int r = 0; r < b.rows; ++r)
        k_.gated(gate + r * kTileRows, up + r * kTileRows, kTileRows, m.gelu,
                 act_.data() + static_cast<std::size_t>(b.row + r) * m.ffn + tile * kTileRows);
    }
  });
}

// x += y, or x += norm(y) in models that normalise the output of a sub-layer.
void Decoder::absorb(ThreadState& s, int row, const std::vector<float>& post_norm) {
  const Spec& m = model_->spec;
  const float* y = y_.data() + static_cast<std::size_t>(row) * m.hidden;
  if (!post_norm.empty()) {
    k_.rms_norm(y, post_norm.data(), m.eps, m.hidden, s.row.data());
    y = s.row.data();
  }
  k_.add(y, s.x + static_cast<std::size_t>(row) * m.hidden, m.hidden);
}

void Decoder::rotary_tables(int begin, int end) {
  const Spec& m = model_->spec;
  std::size_t width = 0;
  for (const Rope& r : m.ropes) width += r.inverse_frequencies.size();
  for (int row = begin; row < end; ++row) {
    std::size_t at = row * width;
    for (const Rope& r : m.ropes)
      for (const double f : r.inverse_frequencies) {
        const double angle = batch_.position(row) * f;
        cosine_[at] = static_cast<float>(std::cos(angle) * r.attention_factor);
        sine_[at++] = static_cast<float>(std::sin(angle) * r.attention_factor);
      }
  }
}

namespace {

void rotate(const Rope& rope, const float* cosine, const float* sine, float* x) {
  const int half = static_cast<int>(rope.inverse_frequencies.size());
  const int step = rope.interleaved ? 2 : 1, apart = rope.interleaved ? 1 : half;
  for (int i = 0; i < half; ++i) {
    const float a = x[i * step], b = x[i * step + apart];
    x[i * step] = a * cosine[i] - b * sine[i];
    x[i * step + apart] = b * cosine[i] + a * sine[i];
  }
}

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
void Decoder::rotate_and_store(ThreadState&, const Layer& w, int l, int row, int head) {
  const Spec& m = model_->spec;
  const int queries = round_up(m.heads * m.head_dim, 16), keys = round_up(m.kv_heads * m.head_dim, 16);
  float* base = qkv_.data() + static_cast<std::size_t>(row) * qkv_width_;
  const bool is_key = head >= m.heads;
  const int h = is_key ? head - m.heads : head;
  float* x = base + (is_key ? queries : 0) + h * m.head_dim;
  add_bias(is_key ? w.k_bias : w.q_bias, h, m.head_dim, x);
  const std::vector<float>& norm = is_key ? w.k_norm : w.q_norm;
  if (!norm.empty()) head_norm(norm, m.eps, x);
  std::size_t width = 0, at = 0;
  for (std::size_t i = 0; i < m.ropes.size(); ++i) {
    if (static_cast<int>(i) < m.layer_ropes[l]) at += m.ropes[i].inverse_frequencies.size();
    width += m.ropes[i].inverse_frequencies.size();
  }
  at += row * width;
  rotate(m.ropes[m.layer_ropes[l]], cosine_.data() + at, sine_.data() + at, x);
  if (!is_key) return;
  float* value = base + queries + keys + h * m.head_dim;
  add_bias(w.v_bias, h, m.head_dim, value);
  const int slot = batch_.slots[row];
  const int block = batch_.blocks[batch_.block_offsets[batch_.sequence[row]] + slot / kBlockSlots];
  k_.store_kv(cache(l), block, slot % kBlockSlots, h, x, value);
}

AttentionTask Decoder::task(int l, int row, int kv_head) const {
  const Spec& m = model_->spec;
  AttentionTask t;
  t.cache = cache(l);
  t.slots.blocks = batch_.blocks + batch_.block_offsets[batch_.sequence[row]];
  t.slots.tail = batch_.tails + batch_.tail_offsets[row];
  t.slots.prefix = batch_.prefix[row];
  t.slots.tail_length = batch_.tail(row);
  t.slots.first = first_visible(l, row);
  t.kv_head = kv_head;
  t.group = m.heads / m.kv_heads;
  t.query = qkv_.data() + static_cast<std::size_t>(row) * qkv_width_ + kv_head * t.group * m.head_dim;
  t.scale = m.attention_scale;
  t.softcap = m.attention_softcap;
  return t;
}

// Chunks are always merged from the first to the last, whoever computed them: the result of a row is the same bits
// whether its chunks were shared out (few rows) or walked by one thread (many rows).
float* Decoder::partial_at(int row, int kv_head, int chunk) {
  const Spec& m = model_->spec;
  const std::size_t index = (static_cast<std::size_t>(row) * m.kv_heads + kv_head) * most_chunks_ + chunk;
  return partials_.data() + index * (m.heads / m.kv_heads) * (2 + padded_dim_);
}

void Decoder::attention(ThreadState& s, int l) {
  const Spec& m = model_->spec;
  if (batch_.rows <= kSplitRows) {
    const std::vector<Item>& items = items_[layer_items_[l]];
    next_work(s).run(s.thread, static_cast<int>(items.size()), [&](int i) {
      const Item& it = items[i];
      k_.attend(task(l, it.row, it.kv_head), it.chunk, partial_at(it.row, it.kv_head, it.chunk));
    });
  } else {
    next_work(s).run(s.thread, batch_.rows * m.kv_heads, [&](int i) {
      float* row = attended_.data() + static_cast<std::size_t>(i / m.kv_heads) * widest_;
      attend_row(s, l, i / m.kv_heads, i % m.kv_heads, row);
    });
  }
  sync(s, kAttention);
}

// All chunks of one row and key/value head, computed here or taken from where they were left, merged into `out`.
void Decoder::attend_row(ThreadState& s, int l, int row, int kv_head, float* out) {
  const Spec& m = model_->spec;
  const int group = m.heads / m.kv_heads, stride = 2 + padded_dim_;
  const bool split = batch_.rows <= kSplitRows;
  const AttentionTask t = task(l, row, kv_head);
  const int first = t.slots.first / kChunkPositions, last = batch_.position(row) / kChunkPositions;
  float* into = s.partial.data();
  for (int c = first; c <= last; ++c) {
    float* next = c == first ? into : into + group * stride;
    if (split) {
      std::memcpy(next, partial_at(row, kv_head, c), sizeof(float) * group * stride);
    } else {
      k_.attend(t, c, next);
    }
    for (int h = 0; h < group && c > first; ++h) k_.merge(into + h * stride, next + h * stride, padded_dim_);
  }
  for (int h = 0; h < group; ++h)
    k_.finish(into + h * stride, m.head_dim, out + (kv_head * group + h) * m.head_dim);
}

void Decoder::layer(ThreadState& s, int l) {
  const Spec& m = model_->spec;
  const Layer& w = model_->layers[l];
  const Needs qkv_needs = needs({w.q.get(), w.k.get(), w.v.get()});
  for_rows(s, batch_.rows, [&](int r) {
    if (l > 0) absorb(s, r, model_->layers[l - 1].post_ffn_norm);
    k_.rms_norm(s.x + static_cast<std::size_t>(r) * m.hidden, w.attn_norm.data(), m.eps, m.hidden, s.row.data());
    pack(s, r, s.row.data(), m.hidden, qkv_needs);
  });
  // Query, key and value tiles are one list of work.
  const int qt = w.q->view().tiles, kt = w.k->view().tiles;
  next_work(s).run(s.thread, qt + 2 * kt, [&](int i) {
    const WeightView& v = i < qt ? w.q->view() : i < qt + kt ? w.k->view() : w.v->view();
    const int tile = i < qt ? i : i < qt + kt ? i - qt : i - qt - kt;
    for (const ActivationBlock& b : s.inputs->blocks)
      k_.gemm(v, tile, b, qkv_.data() + static_cast<std::size_t>(b.row) * qkv_width_ + i * kTileRows, qkv_width_);
  });
  sync(s, kQkv);
  const int heads = m.heads + m.kv_heads, items = batch_.rows * heads;
  const int begin = static_cast<int>(static_cast<std::int64_t>(items) * s.thread / pool_->size());
  const int end = static_cast<int>(static_cast<std::int64_t>(items) * (s.thread + 1) / pool_->size());
  for (int i = begin; i < end; ++i) rotate_and_store(s, w, l, i / heads, i % heads);
  sync(s, kRope);
  attention(s, l);
  const Needs o_needs = needs({w.o.get()});
  for_rows(s, batch_.rows, [&](int r) {
    float* attended = attended_.data() + static_cast<std::size_t>(r) * widest_;
    if (batch_.rows <= kSplitRows) {
      attended = s.attended.data();
      for (int h = 0; h < m.kv_heads; ++h) attend_row(s, l, r, h, attended);
    }
    pack(s, r, attended, m.heads * m.head_dim, o_needs);
  });
  product(s, *w.o, y_.data(), m.hidden);
  sync(s, kOutput);
  const Needs ffn_needs = needs({w.gate.get(), w.up.get()});
  for_rows(s, batch_.rows, [&](int r) {
    absorb(s, r, w.post_attn_norm);
    k_.rms_norm(s.x + static_cast<std::size_t>(r) * m.hidden, w.ffn_norm.data(), m.eps, m.hidden, s.row.data());
    pack(s, r, s.row.data(), m.hidden, ffn_needs);
  });
  gated_product(s, w);
  sync(s, kGateUp);
  const Needs down_needs = needs({w.down.get()});
  for_rows(s, batch_.rows,
           [&](int r) { pack(s, r, act_.data() + static_cast<std::size_t>(r) * m.ffn, m.ffn, down_needs); });
  product(s, *w.down, y_.data(), m.hidden);
  sync(s, kDown);
}

void Decoder::head(ThreadState& s, float* logits) {
  const Spec& m = model_->spec;
  const Weight& w = model_->output();
  const Needs head_needs = needs({&w});
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
    const float* y = y_.data() + static_cast<std::size_t>(r) * m.hidden;
    if (!post.empty()) {
      k_.rms_norm(y, post.data(), m.eps, m.hidden, s.row.data());
      y = s.row.data();
    }
    k_.add(y, copy, m.hidden);
    k_.rms_norm(copy, model_->output_norm.data(), m.eps, m.hidden, s.row.data());
    pack(s, i, s.row.data(), m.hidden, head_needs);
  });
  next_work(s).run(s.thread, w.view().tiles, [&](int tile) {
    const int column = tile * kTileRows, columns = std::min(kTileRows, m.vocab - column);
    for (const ActivationBlock& b : s.inputs->blocks) {
      float* out = logits + static_cast<std::int64_t>(b.row) * m.vocab + column;
      const bool whole = columns == kTileRows;
      k_.gemm(w.view(), tile, b, whole ? out : s.tile.data(), whole ? m.vocab : kTileRows);
      for (int r = 0; r < b.rows; ++r) {
        float* row = out + static_cast<std::int64_t>(r) * m.vocab;
        if (!whole) std::memcpy(row, s.tile.data() + r * kTileRows, sizeof(float) * columns);
        if (m.final_softcap > 0.0f) k_.softcap(row, columns, m.final_softcap);
      }
    }
  });
  sync(s, kHead);
}

void Decoder::step(int thread, float* logits) {
  ThreadState& s = threads_[thread];
  const Spec& m = model_->spec;
  s.since = std::chrono::steady_clock::now();
  const int begin = static_cast<int>(static_cast<std::int64_t>(batch_.rows) * thread / pool_->size());
  const int end = static_cast<int>(static_cast<std::int64_t>(batch_.rows) * (thread + 1) / pool_->size());
  rotary_tables(begin, end);
  for_rows(s, batch_.rows, [&](int r) {
    float* x = s.x + static_cast<std::size_t>(r) * m.hidden;
    model_->embedding->dequantize_row(batch_.tokens[r], x);
    if (m.embedding_scale != 1.0f)
      for (int i = 0; i < m.hidden; ++i) x[i] *= m.embedding_scale;
  });
  for (int l = 0; l < layers_; ++l) layer(s, l);
  if (batch_.logit_count > 0) head(s, logits);
}

void Decoder::forward(const Batch& batch, float* logits) {
  plan(batch);
  pool_->run([&](int thread) { step(thread, logits); });
}

void Decoder::move_slots(const std::int32_t* source, const std::int32_t* destination, int n) {
  const Spec& m = model_->spec;
  const std::size_t element = half_cache_ ? 2 : 4;
  for (int l = 0; l < layers_; ++l) {
    const CacheView c = cache(l);
    auto* keys = static_cast<std::uint8_t*>(c.keys);
    auto* values = static_cast<std::uint8_t*>(c.values);
    for (int i = 0; i < n; ++i) {
      const int sb = source[i] / kBlockSlots, so = source[i] % kBlockSlots;
      const int db = destination[i] / kBlockSlots, dof = destination[i] % kBlockSlots;
      for (int d = 0; d < m.kv_heads * m.head_dim; ++d)
        std::memcpy(keys + (db * c.key_block + static_cast<std::int64_t>(d) * kBlockSlots + dof) * element,
                    keys + (sb * c.key_block + static_cast<std::int64_t>(d) * kBlockSlots + so) * element, element);
      for (int h = 0; h < m.kv_heads; ++h)
        std::memcpy(
            values + (db * c.value_block + (static_cast<std::int64_t>(h) * kBlockSlots + dof) * padded_dim_) * element,
            values + (sb * c.value_block + (static_cast<std::int64_t>(h) * kBlockSlots + so) * padded_dim_) * element,
            static_cast<std::size_t>(padded_dim_) * element);
    }
  }
}

std::array<double, kOperators> Decoder::take_profile() {
  std::array<double, kOperators> out = seconds_;
  seconds_ = {};
  return out;
}

}  // namespace paceline
