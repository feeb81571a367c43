// Drafts a chain or a tree with an EAGLE-3 head: one call from the target's states to the best nodes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "decoder.hpp"

namespace paceline {

// A node's score is the sum of log-probabilities along its path. Each level lets its `width` best nodes propose their
// `width` best successors, unless its score is below min_parent_log_prob; proposals below min_log_prob are dropped, and
// the max_nodes best of all levels are kept.
struct DraftShape {
  int max_nodes = 1, max_depth = 1, width = 1;
  float min_log_prob = 0.0f, min_parent_log_prob = 0.0f;
  int slots() const { return width * (max_depth - 1); }  // keys and values written behind the catch-up rows
};

class TreeDrafter {
 public:
  // draft_to_target: target id of each of the head's outputs.
  TreeDrafter(std::shared_ptr<Decoder> head, std::vector<std::int32_t> draft_to_target);
  // Brings the head's cache up to date with the chain `known`, whose rows bring the target's states, and drafts behind
  // its last row. Writes up to max_nodes nodes, best first, parents before children (-1: the root); returns their
  // number. The nodes' keys and values take the slots behind the chain and are good for nothing afterwards.
  int draft(const Batch& known, const float* states, const DraftShape& shape, std::int32_t* tokens,
            std::int32_t* parents, float* log_probs);
  const std::shared_ptr<Decoder>& head() const { return head_; }

 private:
  struct Node {
    std::int32_t token;
    int parent;  // index into nodes_, -1 for the root
    int row;     // its place among the expanded nodes, -1 when it is none
    float score;
  };

  void reserve();
  void catch_up(const Batch& known, const float* states);
  void choose_frontier(int level);
  void expand_frontier(const Batch& known);
  void pass(const Batch& batch, const Capture& capture, const Pairs& pairs);
  void find_best(int row);
  void propose(int node, int row);
  bool before(int a, int b) const;  // higher score, then proposed earlier
  float* fed_back(int row);         // state of an expanded node, of the root for -1
  int write_best(std::int32_t* tokens, std::int32_t* parents, float* log_probs);

  std::shared_ptr<Decoder> head_;
  std::vector<std::int32_t> draft_to_target_;
  DraftShape shape_;
  std::vector<Node> nodes_;
  std::vector<int> frontier_, order_, place_;
  int expanded_ = 0;
  std::vector<float> logits_, states_, inputs_, best_log_probs_;
  std::vector<std::int32_t> best_ids_;  // like best_log_probs_ [rows of a pass][width]
  std::vector<std::uint64_t> keys_;
  // The pass of a level.
  std::vector<std::int32_t> tokens_, sequence_, slots_, prefix_, tail_offsets_, tails_, logit_rows_;
};

}  // namespace paceline
