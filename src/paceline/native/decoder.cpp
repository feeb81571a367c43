#include "decoder.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace paceline {
namespace {

constexpr int kWorkPerLayer = 5;  // qkv, attention, output, gate and up, down

}  // namespace

const char* const kOperatorNames[kOperators] = {"embed",  "norm",    "qkv",  "rope", "attention",
                                                "output", "gate_up", "down", "head"};

std::size_t Model::weight_bytes() const {
  std::size_t total = 0;
  for (const Weight* w : {embedding.get(), head.get(), pairs ? pairs->fc.get() : nullptr}) total += w ? w->bytes() : 0;
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
  const PairInput* pairs = model_->pairs.get();
  const int first = pairs ? std::max(2 * m.hidden, pairs->states * pairs->state_width) : 0;
  widest_ = round_up(std::max({m.hidden, m.ffn, m.heads * m.head_dim, first}), kGroup);
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
    s.tile.resize(std::max(2 * kMaxBlockRows * kTilesAtOnce * kTileRows, widest_));
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

void Decoder::forward(const Batch& batch, float* logits, const Capture& capture, const Pairs& pairs,
                      const std::function<void(int)>& read) {
  batch_ = batch;
  capture_ = capture;
  pairs_ = pairs;
  reads_last_ = batch.logit_count > 0 || capture.has(layers_);
  plan();
  const auto pass = [&](int thread) { step(thread, logits, read); };
  run(std::cref(pass));  // a reference, which std::function holds without taking memory
}

void Decoder::project(const float* states, int rows, float* projected) {
  batch_ = Batch{};
  batch_.rows = rows;
  pairs_ = Pairs{states, nullptr};
  plan_rows(rows);
  run([&](int thread) {
    project_states(threads_[thread], projected);
    k_.release();
  });
}

void Decoder::run(const std::function<void(int)>& pass) {
  const auto began = std::chrono::steady_clock::now();
  const double ran = thread_seconds();
  for (ThreadState& s : threads_) s.since = began;
  if (active_ == 1) {
    pool_->run_alone(pass);
  } else {
    pool_->run(pass);
  }
  if (pool_->size() > 1 && batch_.rows <= kShortRows)
    crowding_.judge(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(),
                    thread_seconds() - ran);
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
