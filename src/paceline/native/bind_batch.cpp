#include "bind_batch.hpp"

#include <stdexcept>

namespace paceline {
namespace {

void check_rows(const Batch& b, const BatchLimits& limits) {
  for (int r = 0; r < b.rows; ++r) {
    require(b.tokens[r] >= 0 && b.tokens[r] < limits.vocab, "token id out of range: " + std::to_string(b.tokens[r]));
    require(b.sequence[r] >= 0 && b.sequence[r] < b.sequences, "sequence index out of range");
    const std::int32_t first = b.block_offsets[b.sequence[r]];
    const std::int32_t slots = (b.block_offsets[b.sequence[r] + 1] - first) * kBlockSlots;
    require(b.slots[r] >= 0 && b.slots[r] < slots, "slot outside the block table: " + std::to_string(b.slots[r]));
    require(b.prefix[r] >= 0 && b.prefix[r] <= slots && b.position(r) >= 0, "prefix length out of range");
    for (int i = b.tail_offsets[r]; i < b.tail_offsets[r + 1]; ++i)
      require(b.tails[i] >= 0 && b.tails[i] < slots, "tail slot outside the block table");
  }
  for (int i = 0; i < b.block_offsets[b.sequences]; ++i)
    require(b.blocks[i] >= 0 && b.blocks[i] < limits.num_blocks, "block id out of range: " + std::to_string(b.blocks[i]));
  for (int i = 0; i < b.logit_count; ++i)
    require(b.logit_rows[i] >= 0 && b.logit_rows[i] < b.rows, "logit row out of range");
}

bool rising(const std::int32_t* offsets, int n) {
  if (offsets[0] != 0) return false;
  for (int i = 0; i < n; ++i)
    if (offsets[i + 1] < offsets[i]) return false;
  return true;
}

}  // namespace

void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument(message);
}

Batch read_batch(const BatchArrays& a, const BatchLimits& limits) {
  Batch b;
  b.rows = static_cast<int>(a.tokens.size());
  b.sequences = static_cast<int>(a.block_offsets.size()) - 1;
  b.logit_count = static_cast<int>(a.logit_rows.size());
  require(b.rows > 0 && b.rows <= limits.max_rows, "rows must be 1 … " + std::to_string(limits.max_rows));
  require(a.sequences.size() == a.tokens.size() && a.slots.size() == a.tokens.size() &&
              a.prefix.size() == a.tokens.size() && a.tail_offsets.size() == a.tokens.size() + 1 && b.sequences > 0,
          "arrays of a batch differ in length");
  require(b.logit_count <= b.rows, "more logit rows than rows");
  require(rising(a.tail_offsets.data(), b.rows) && rising(a.block_offsets.data(), b.sequences) &&
              a.tail_offsets.data()[b.rows] == static_cast<int>(a.tails.size()) &&
              a.block_offsets.data()[b.sequences] == static_cast<int>(a.blocks.size()),
          "offsets of a batch do not fit");
  b.tokens = a.tokens.data();
  b.sequence = a.sequences.data();
  b.slots = a.slots.data();
  b.prefix = a.prefix.data();
  b.tail_offsets = a.tail_offsets.data();
  b.tails = a.tails.data();
  b.block_offsets = a.block_offsets.data();
  b.blocks = a.blocks.data();
  b.logit_rows = a.logit_rows.data();
  check_rows(b, limits);
  return b;
}

void check_shape(const Matrix& m, int rows, int columns, const std::string& name) {
  require(static_cast<int>(m.shape(0)) >= rows && static_cast<int>(m.shape(1)) == columns,
          name + " array has the wrong shape");
}

}  // namespace paceline
