#include "decoder.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace paceline {
namespace {

constexpr int kReplicatedRows = 8;   // up to here preparing rows twice is cheaper than a barrier
constexpr std::size_t kWarmBytes = 4096;
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
  for (const Rope& r : m.ropes) {
    rope_offsets_.push_back(rope_width_);
    rope_width_ += static_cast<int>(r.inverse_frequencies.size()) * (r.interleaved ? 2 : 1);
  }
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
    s.own_rows.resize(static_cast<std::size_t>(kReplicatedRows) * widest_);
    s.tile.resize(std::max(2 * kMaxBlockRows * kTileRows, widest_));
    s.partial.resize(static_cast<std::size_t>(2) * kMaxQueries * (2 + padded_dim_));
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

int Decoder::heads_per_task() const {
  return std::min(model_->spec.heads / model_->spec.kv_heads, k_.max_queries);
}

// One item per run, key/value head and piece of its query heads; few rows are shared out by chunks as well.
void Decoder::list_items(int l, std::vector<Item>& items) const {
  const Spec& m = model_->spec;
  for (int run = 0; run < static_cast<int>(runs_.size()); ++run) {
    int first = batch_.position(runs_[run].row), last = 0;
    for (int r = runs_[run].row; r < runs_[run].row + runs_[run].rows; ++r) {
      first = std::min(first, first_visible(l, r));
      last = std::max(last, batch_.position(r));
    }
    for (int h = 0; h < m.kv_heads; ++h)
      for (int piece = 0; piece < m.heads / m.kv_heads; piece += heads_per_task()) {
        if (!split_) items.push_back({run, h, piece, -1});
        for (int c = first / kChunkPositions; split_ && c <= last / kChunkPositions; ++c)
          items.push_back({run, h, piece, c});
      }
  }
}

// Runs of rows, short enough to give every thread some. Too few runs to share out evenly: split them by chunks.
void Decoder::plan_runs() {
  const Spec& m = model_->spec;
  runs_.clear();
  const int threads = pool_->size(), pieces = (m.heads / m.kv_heads + heads_per_task() - 1) / heads_per_task();
  const int longest = std::min(std::max(1, k_.max_queries / heads_per_task()), (batch_.rows + threads - 1) / threads);
  for (int r = 0; r < batch_.rows; ++r) {
    if (r > 0 && batch_.sequence[r] == batch_.sequence[r - 1] && runs_.back().rows < longest) {
      ++runs_.back().rows;
    } else {
      runs_.push_back({r, 1});
    }
  }
  const int items = static_cast<int>(runs_.size()) * m.kv_heads * pieces;
  const bool alike = batch_.sequence[0] == batch_.sequence[batch_.rows - 1] && items % threads == 0;
  split_ = threads > 1 && items < 4 * threads && !alike;
}

void Decoder::plan_attention() {
  const Spec& m = model_->spec;
  plan_runs();
  most_chunks_ = 1;
  for (int r = 0; r < batch_.rows; ++r) most_chunks_ = std::max(most_chunks_, batch_.position(r) / kChunkPositions + 1);
  items_.clear();
  layer_items_.assign(layers_, -1);
  for (int l = 0; l < layers_; ++l) {
    for (int before = 0; before < l && layer_items_[l] < 0; ++before)
      if (m.layer_windows[before] == m.layer_windows[l]) layer_items_[l] = layer_items_[before];
    if (layer_items_[l] >= 0) continue;
    layer_items_[l] = static_cast<int>(items_.size());
    list_items(l, items_.emplace_back());
  }
  if (!split_) return;
  const std::size_t wanted = static_cast<std::size_t>(batch_.rows) * most_chunks_ * m.heads * (2 + padded_dim_);
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
  grow(rows_, widest_);
  grow(cosine_, rope_width_);
  grow(sine_, rope_width_);
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

// Fetches the start of this thread's share of a weight, so that memory is busy while threads wait for each other.
void Decoder::warm(const ThreadState& s, const Weight& w) const {
  const WeightView& v = w.view();
  const int tile = static_cast<int>(static_cast<std::int64_t>(v.tiles) * s.thread / pool_->size());
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

// Rows 0 … rows-1: every thread all of them when replicated, else its share followed by a barrier.
template <typename Function>
void Decoder::for_rows(ThreadState& s, int rows, Function&& function) {
  const int threads = pool_->size();
  const int begin = replicated_ ? 0 : static_cast<int>(static_cast<std::int64_t>(rows) * s.thread / threads);
  const int end = replicated_ ? rows : static_cast<int>(static_cast<std::int64_t>(rows) * (s.thread + 1) / threads);
  for (int r = begin; r < end; ++r) function(r);
  if (!replicated_) sync(s, kNorm);
}

// Turns rows of x into the activations of the next operator: each thread all of them when replicated, else whole
// blocks where there are enough, or a share of the groups of every block, so that no cache line has two writers.
void Decoder::pack(ThreadState& s, const float* x, std::int64_t stride, int cols, const Needs& needs) {
  const std::vector<ActivationBlock>& blocks = s.inputs->blocks;
  const int groups = round_up(cols, kGroup) / kGroup, threads = pool_->size(), count = static_cast<int>(blocks.size());
  const bool by_block = !replicated_ && count >= 2 * threads, by_group = !replicated_ && !by_block;
  for (int i = by_block ? count * s.thread / threads : 0; i < (by_block ? count * (s.thread + 1) / threads : count); ++i) {
    const ActivationBlock& b = blocks[i];
    const int begin = by_group ? groups * s.thread / threads : 0;
    const int end = by_group ? groups * (s.thread + 1) / threads : groups;
    if (needs.quants) k_.pack_quants(b, x + b.row * stride, stride, begin, end, needs.offset_mask);
    if (needs.values) k_.pack_values(b, x + b.row * stride, stride, begin, end);
  }
  if (!replicated_) sync(s, kNorm);
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
      k_.gated(gate, up, b.rows * kTileRows, m.gelu, gate);
      for (int r = 0; r < b.rows; ++r)
        std::memcpy(act_.data() + static_cast<std::size_t>(b.row + r) * m.ffn + tile * kTileRows,
                    gate + r * kTileRows, sizeof(float) * kTileRows);
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

// Merges the chunks a row's attention was shared out to.
void Decoder::collect(ThreadState& s, int l, int row, float* out) {
  const Spec& m = model_->spec;
  const int first = first_visible(l, row) / kChunkPositions, last = batch_.position(row) / kChunkPositions;
  for (int head = 0; head < m.heads; ++head) {
    std::memcpy(s.partial.data(), partial_at(row, head, first), sizeof(float) * (2 + padded_dim_));
    for (int c = first + 1; c <= last; ++c) k_.merge(s.partial.data(), partial_at(row, head, c), padded_dim_);
    k_.finish(s.partial.data(), m.head_dim, out + head * m.head_dim);
  }
}

void Decoder::layer(ThreadState& s, int l) {
  const Spec& m = model_->spec;
  const Layer& w = model_->layers[l];
  float* rows = replicated_ ? s.own_rows.data() : rows_.data();  // inputs of an operator, [rows][widest_]
  const Needs qkv_needs = needs({w.q.get(), w.k.get(), w.v.get()});
  for_rows(s, batch_.rows, [&](int r) {
    if (l > 0) absorb(s, r, model_->layers[l - 1].post_ffn_norm);
    k_.rms_norm(s.x + static_cast<std::size_t>(r) * m.hidden, w.attn_norm.data(), m.eps, m.hidden, rows + r * widest_);
  });
  pack(s, rows, widest_, m.hidden, qkv_needs);
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
  // By head, not by row: a key's cache lines hold one dim of 16 slots.
  for (int i = begin; i < end; ++i) rotate_and_store(w, l, i % batch_.rows, i / batch_.rows);
  sync(s, kRope);
  attention(s, l);
  const Needs o_needs = needs({w.o.get()});
  if (split_) {
    for_rows(s, batch_.rows, [&](int r) { collect(s, l, r, rows + r * widest_); });
    pack(s, rows, widest_, m.heads * m.head_dim, o_needs);
  } else {
    pack(s, attended_.data(), widest_, m.heads * m.head_dim, o_needs);
  }
  product(s, *w.o, y_.data(), m.hidden);
  warm(s, *w.gate);
  warm(s, *w.up);
  sync(s, kOutput);
  const Needs ffn_needs = needs({w.gate.get(), w.up.get()});
  for_rows(s, batch_.rows, [&](int r) {
    absorb(s, r, w.post_attn_norm);
    k_.rms_norm(s.x + static_cast<std::size_t>(r) * m.hidden, w.ffn_norm.data(), m.eps, m.hidden, rows + r * widest_);
  });
  pack(s, rows, widest_, m.hidden, ffn_needs);
  gated_product(s, w);
  warm(s, *w.down);
  sync(s, kGateUp);
  const Needs down_needs = needs({w.down.get()});
  pack(s, act_.data(), m.ffn, m.ffn, down_needs);
  product(s, *w.down, y_.data(), m.hidden);
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
    const float* y = y_.data() + static_cast<std::size_t>(r) * m.hidden;
    if (!post.empty()) {
      k_.rms_norm(y, post.data(), m.eps, m.hidden, s.row.data());
      y = s.row.data();
    }
    k_.add(y, copy, m.hidden);
    k_.rms_norm(copy, model_->output_norm.data(), m.eps, m.hidden, rows + i * widest_);
  });
  pack(s, rows, widest_, m.hidden, head_needs);
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
