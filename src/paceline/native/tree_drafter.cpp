#include "tree_drafter.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>

#include "sampling.hpp"

namespace paceline {

TreeDrafter::TreeDrafter(std::shared_ptr<Decoder> head, std::vector<std::int32_t> draft_to_target)
    : head_(std::move(head)), draft_to_target_(std::move(draft_to_target)) {}

float* TreeDrafter::fed_back(int row) {
  return states_.data() + static_cast<std::size_t>(row + 1) * head_->model()->spec.hidden;
}

bool TreeDrafter::before(int a, int b) const {
  return nodes_[a].score != nodes_[b].score ? nodes_[a].score > nodes_[b].score : a < b;
}

// All memory of a draft of this shape; a second one of the same shape takes none.
void TreeDrafter::reserve() {
  const Spec& m = head_->model()->spec;
  const auto grow = [](auto& v, std::size_t n) {
    if (v.size() < n) v.resize(n);
  };
  const std::size_t width = shape_.width, rows = shape_.slots(), proposals = width + rows * width;
  nodes_.clear();
  nodes_.reserve(proposals);
  order_.reserve(proposals);
  frontier_.reserve(proposals);
  grow(place_, proposals);
  grow(logits_, width * m.outputs);
  grow(states_, (1 + rows) * m.hidden);
  grow(inputs_, width * m.hidden);
  grow(best_log_probs_, width * width);
  grow(best_ids_, width * width);
  grow(keys_, width * width);
  for (auto* v : {&tokens_, &slots_, &prefix_, &sequence_, &logit_rows_}) grow(*v, width);
  grow(tail_offsets_, width + 1);
  grow(tails_, width * shape_.max_depth);
  for (std::size_t i = 0; i < width; ++i) logit_rows_[i] = static_cast<std::int32_t>(i);
}

// All rows but the last need only their keys and values; a few are cheaper together with it.
void TreeDrafter::catch_up(const Batch& known, const float* states) {
  const PairInput& pairs = *head_->model()->pairs;
  const std::int32_t end = head_->layers();
  Batch b = known;
  if (known.rows > kReplicatedRows) {
    b.rows = known.rows - 1;
    b.logit_count = 0;
    head_->forward(b, nullptr, {}, {states, nullptr});
    for (const std::int32_t** p : {&b.tokens, &b.sequence, &b.slots, &b.prefix, &b.tail_offsets}) *p += b.rows;
    states += static_cast<std::size_t>(b.rows) * pairs.states * pairs.state_width;
    b.rows = 1;
  }
  const std::int32_t last = b.rows - 1;
  b.logit_rows = &last;
  b.logit_count = 1;
  pass(b, {&end, 1, fed_back(-1), last}, {states, nullptr});
}

// One pass of the head; finds the likeliest outputs of every row of logits.
void TreeDrafter::pass(const Batch& batch, const Capture& capture, const Pairs& pairs) {
  std::atomic<int> bad{-1};
  head_->forward(batch, logits_.data(), capture, pairs, [&](int row) {
    try {
      find_best(row);
    } catch (const std::invalid_argument&) {
      bad = row;
    }
  });
  if (bad >= 0) find_best(bad);  // throws again, now where an exception may pass
}

void TreeDrafter::find_best(int row) {
  const std::size_t outputs = head_->model()->spec.outputs, at = static_cast<std::size_t>(row) * shape_.width;
  sampling::top_log_probs(logits_.data() + row * outputs, outputs, shape_.width, best_ids_.data() + at,
                          best_log_probs_.data() + at, keys_.data() + at);
}

// The successors of a node (of the root: -1), which was row `row` of the pass, likeliest first.
void TreeDrafter::propose(int node, int row) {
  const float score = node < 0 ? 0.0f : nodes_[node].score;
  const std::size_t at = static_cast<std::size_t>(row) * shape_.width;
  for (std::size_t i = at; i < at + shape_.width; ++i) {
    const Node next{draft_to_target_[best_ids_[i]], node, -1, score + best_log_probs_[i]};
    if (next.score < shape_.min_log_prob) return;
    nodes_.push_back(next);
  }
}

// The best of the nodes from `level` on, in the order in which they were proposed. A node behind max_nodes others is
// left out, and so is the last one before them: no successor of it can come in. Unlikely ones are left out too.
void TreeDrafter::choose_frontier(int level) {
  const int count = static_cast<int>(nodes_.size());
  frontier_.clear();
  for (int i = level; i < count; ++i) frontier_.push_back(i);
  const auto better = [this](int a, int b) { return before(a, b); };
  const auto wanted = std::min<std::size_t>(shape_.width, frontier_.size());
  std::partial_sort(frontier_.begin(), frontier_.begin() + static_cast<std::ptrdiff_t>(wanted), frontier_.end(), better);
  frontier_.resize(wanted);
  const auto is_out = [&](int node) {
    if (nodes_[node].score < shape_.min_parent_log_prob) return true;
    int ahead = 0;  // itself and all that no successor of it can overtake
    for (const Node& other : nodes_) ahead += other.score >= nodes_[node].score;
    return ahead >= shape_.max_nodes;
  };
  frontier_.erase(std::remove_if(frontier_.begin(), frontier_.end(), is_out), frontier_.end());
  std::sort(frontier_.begin(), frontier_.end());
}

// One pass over the frontier: a node's row has its own token and the state that its parent fed back.
void TreeDrafter::expand_frontier(const Batch& known) {
  const int hidden = head_->model()->spec.hidden, base = known.prefix[known.rows - 1], first = expanded_;
  const std::int32_t end = head_->layers();
  int tail = 0;
  for (std::size_t i = 0; i < frontier_.size(); ++i) {
    Node& node = nodes_[frontier_[i]];
    node.row = expanded_++;
    tokens_[i] = node.token;
    slots_[i] = base + node.row;
    prefix_[i] = base;
    tail_offsets_[i] = tail;
    for (int a = frontier_[i]; a >= 0; a = nodes_[a].parent) tails_[tail++] = base + nodes_[a].row;
    std::reverse(tails_.begin() + tail_offsets_[i], tails_.begin() + tail);
    const int parent = node.parent < 0 ? -1 : nodes_[node.parent].row;
    std::memcpy(inputs_.data() + i * hidden, fed_back(parent), sizeof(float) * hidden);
  }
  tail_offsets_[frontier_.size()] = tail;
  Batch b;
  b.rows = b.logit_count = static_cast<int>(frontier_.size());
  b.sequences = 1;
  b.tokens = tokens_.data();
  b.sequence = sequence_.data();
  b.slots = slots_.data();
  b.prefix = prefix_.data();
  b.tail_offsets = tail_offsets_.data();
  b.tails = tails_.data();
  b.block_offsets = known.block_offsets;
  b.blocks = known.blocks;
  b.logit_rows = logit_rows_.data();
  pass(b, {&end, 1, fed_back(first), 0}, {nullptr, inputs_.data()});
}

int TreeDrafter::write_best(std::int32_t* tokens, std::int32_t* parents, float* log_probs) {
  order_.resize(nodes_.size());
  for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<int>(i);
  const int kept = std::min(shape_.max_nodes, static_cast<int>(order_.size()));
  std::partial_sort(order_.begin(), order_.begin() + kept, order_.end(), [this](int a, int b) { return before(a, b); });
  for (int i = 0; i < kept; ++i) {
    const Node& node = nodes_[order_[i]];
    place_[order_[i]] = i;
    tokens[i] = node.token;
    parents[i] = node.parent < 0 ? -1 : place_[node.parent];  // better than its child, hence already placed
    log_probs[i] = node.score;
  }
  return kept;
}

int TreeDrafter::draft(const Batch& known, const float* states, const DraftShape& shape, std::int32_t* tokens,
                       std::int32_t* parents, float* log_probs) {
  shape_ = shape;
  expanded_ = 0;
  reserve();
  catch_up(known, states);
  propose(-1, 0);
  int level = 0;
  for (int depth = 2; depth <= shape.max_depth; ++depth) {
    choose_frontier(level);
    if (frontier_.empty()) break;
    level = static_cast<int>(nodes_.size());
    expand_frontier(known);
    for (std::size_t i = 0; i < frontier_.size(); ++i) propose(frontier_[i], static_cast<int>(i));
  }
  return write_best(tokens, parents, log_probs);
}

}  // namespace paceline
