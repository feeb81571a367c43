// Before a pass: which activations fit where, which rows attention serves together.
#include "decoder.hpp"

#include <algorithm>

namespace paceline {

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
  int share = 0;
  for (int run = 0; run < static_cast<int>(runs_.size()); ++run) {
    int first = batch_.position(runs_[run].row), last = 0;
    for (int r = runs_[run].row; r < runs_[run].row + runs_[run].rows; ++r) {
      first = std::min(first, first_visible(l, r));
      last = std::max(last, batch_.position(r));
    }
    first /= kChunkPositions;
    last /= kChunkPositions;
    for (int h = 0; h < m.kv_heads; ++h)
      for (int piece = 0; piece < m.heads / m.kv_heads; piece += heads_per_task(), ++share) {
        if (!split_) items.push_back({run, h, piece, -1, share, 0});
        for (int c = first; split_ && c <= last; ++c) items.push_back({run, h, piece, c, share, last - first + 1});
      }
  }
}

// Rows of a run read keys and values once, so runs are as long as a task may be; but every thread shall have some, and
// few long ones that are not alike are split by chunks.
void Decoder::plan_runs() {
  const Spec& m = model_->spec;
  runs_.clear();
  const int threads = active_, pieces = (m.heads / m.kv_heads + heads_per_task() - 1) / heads_per_task();
  const int shares = m.kv_heads * pieces, chunks = shares * most_chunks_;  // of one run
  int longest = std::max(1, k_.max_queries / heads_per_task());
  if (chunks % threads != 0 && chunks < 3 * threads) longest = std::min(longest, (batch_.rows + threads - 1) / threads);
  const int runs = (batch_.rows + longest - 1) / longest;
  longest = (batch_.rows + runs - 1) / runs;  // of one length
  for (int r = 0; r < batch_.rows; ++r) {
    if (r > 0 && batch_.sequence[r] == batch_.sequence[r - 1] && runs_.back().rows < longest) {
      ++runs_.back().rows;
    } else {
      runs_.push_back({r, 1});
    }
  }
  const int items = static_cast<int>(runs_.size()) * shares;
  const bool alike = batch_.sequence[0] == batch_.sequence[batch_.rows - 1] && items % threads == 0;
  split_ = threads > 1 && items < 4 * threads && !alike;
  if (split_ && static_cast<int>(chunks_done_.size()) < items) chunks_done_ = std::vector<std::atomic<int>>(items);
}

void Decoder::plan_attention() {
  const Spec& m = model_->spec;
  most_chunks_ = 1;
  for (int r = 0; r < batch_.rows; ++r) most_chunks_ = std::max(most_chunks_, batch_.position(r) / kChunkPositions + 1);
  plan_runs();
  int lists = 0;  // kept from pass to pass, so that no pass takes memory once all were long enough
  layer_items_.assign(layers_, -1);
  for (int l = 0; l < layers_; ++l) {
    for (int before = 0; before < l && layer_items_[l] < 0; ++before)
      if (m.layer_windows[before] == m.layer_windows[l]) layer_items_[l] = layer_items_[before];
    if (layer_items_[l] >= 0) continue;
    layer_items_[l] = lists++;
    if (lists > static_cast<int>(items_.size())) items_.emplace_back();
    items_[layer_items_[l]].clear();
    list_items(l, items_[layer_items_[l]]);
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
  constexpr std::size_t kLine = 64;  // quants begin on a cache line: a tile is loaded line by line
  if (in.bytes.size() < lanes * kGroup + kLine) in.bytes.resize(lanes * kGroup + kLine);
  std::int8_t* quants = in.bytes.data() + (-reinterpret_cast<std::uintptr_t>(in.bytes.data()) % kLine);
  if (in.floats.size() < lanes * (2 + kGroup)) in.floats.resize(lanes * (2 + kGroup));
  if (in.ints.size() < lanes * 5) in.ints.resize(lanes * 5);
  in.blocks.clear();
  std::size_t lane = 0;
  for (int row = 0; row < rows; row += k_.max_rows) {
    ActivationBlock b;
    b.row = row;
    b.rows = std::min(k_.max_rows, rows - row);
    b.width = k_.width(b.rows);
    b.quants = quants + lane * kGroup;
    b.scales = in.floats.data() + lane;
    b.sums = in.floats.data() + lanes + lane;
    b.values = in.floats.data() + 2 * lanes + lane * kGroup;
    for (int o = 0; o < 3; ++o) b.offsets[o] = in.ints.data() + o * lanes + lane;
    b.offsets[3] = in.ints.data() + 3 * lanes + 2 * lane;
    in.blocks.push_back(b);
    lane += static_cast<std::size_t>(b.width) * groups;
  }
}

void Decoder::plan_rows(int rows) {
  active_ = rows <= kShortRows && crowding_.alone() ? 1 : pool_->size();
  replicated_ = rows <= kReplicatedRows;
  const std::size_t wanted = static_cast<std::size_t>(rows) * widest_;
  if (rows_.size() < wanted) rows_.resize(wanted);
  for (SharedWork& w : work_) w.reset(active_);
  for (ThreadState& s : threads_) {
    s.work = 0;
    s.x = replicated_ ? s.own_x.data() : nullptr;
    s.inputs = replicated_ ? &s.own_inputs : &shared_inputs_;
    if (replicated_) layout(s.own_inputs, rows, widest_);
  }
  if (!replicated_) layout(shared_inputs_, rows, widest_);
  layout(gated_inputs_, rows, model_->spec.ffn);
}

void Decoder::plan() {
  const Spec& m = model_->spec;
  plan_rows(batch_.rows);
  const auto grow = [&](std::vector<float>& v, std::size_t width) {
    if (v.size() < width * batch_.rows) v.resize(width * batch_.rows);
  };
  grow(x_, m.hidden);
  grow(qkv_, qkv_width_);
  grow(y_, m.hidden);
  grow(attended_, widest_);
  grow(cosine_, rope_width_);
  grow(sine_, rope_width_);
  if (model_->pairs) grow(projected_, m.hidden);
  if (!replicated_)
    for (ThreadState& s : threads_) s.x = x_.data();
  plan_attention();
}

}  // namespace paceline
