// The seam between the decoder and the kernels: one table of functions per instruction path.
#pragma once

#include <cstdint>

#include "weights.hpp"

namespace paceline {

constexpr int kBlockSlots = 16;       // KV slots per block
constexpr int kChunkPositions = 64;   // positions per attention chunk, aligned to absolute positions
constexpr int kMaxBlockRows = 16;     // upper bound of KernelTable::max_rows
constexpr int kMaxQueries = 24;       // upper bound of KernelTable::max_queries
constexpr int kMaxHeadDim = 512;

// Activations of one block of `width` rows (rows past the real ones are zero). All arrays are interleaved by
// row, so that a kernel compiled for a width finds everything at constant distances:
//   quants int8 [groups][width][32], scales and sums [groups][width] (sum = scale * sum of quants),
//   offsets[o] [groups][width]: -offset * sum of quants, for offsets 8, 16, 128; offsets[3]: -32 * the sums of
//   the two halves [groups][2][width]; values [groups * 32][width] float32.
struct ActivationBlock {
  int row = 0, rows = 0, width = 0;
  std::int8_t* quants = nullptr;
  float* scales = nullptr;
  float* sums = nullptr;
  std::int32_t* offsets[4] = {nullptr, nullptr, nullptr, nullptr};
  float* values = nullptr;
};

// Keys [blocks][kv heads][head dim][16 slots], values [blocks][kv heads][16 slots][padded head dim]; half or float.
struct CacheView {
  void* keys = nullptr;
  void* values = nullptr;
  std::int64_t key_block = 0, value_block = 0;  // elements per block
  int head_dim = 0, padded_dim = 0;
  bool half = true;
};

// One row of an attention task. It sees logical slots [first, prefix) and then its tail, in position order.
struct AttentionRow {
  const float* query = nullptr;  // [heads][head dim]
  const std::int32_t* tail = nullptr;
  int prefix = 0, tail_length = 0, first = 0;  // first: lowest visible position (sliding window)
  float* out = nullptr;  // per head, out_stride floats apart: maximum, sum, padded_dim values
  int end() const { return prefix + tail_length; }
};

// Query heads of some rows of one sequence that share a key/value head: rows * heads <= KernelTable::max_queries.
struct AttentionTask {
  CacheView cache;
  const std::int32_t* blocks = nullptr;  // the sequence's block table
  int kv_head = 0, rows = 0, heads = 0;
  AttentionRow row[kMaxQueries];
  std::int64_t out_stride = 0;
  float scale = 1.0f, softcap = 0.0f;
};

struct KernelTable {
  const char* name;
  int max_rows;             // rows per activation block
  int max_queries;          // query heads per attention task
  int (*width)(int rows);   // block width used for so many rows
  // Quantise (or copy) groups [begin, end) of a block's rows; x points at group `begin` of its first row, rows `stride`
  // floats apart.
  void (*pack_quants)(const ActivationBlock& b, const float* x, std::int64_t stride, int begin, int end,
                      unsigned offset_mask);
  void (*pack_values)(const ActivationBlock& b, const float* x, std::int64_t stride, int begin, int end);
  // out[r * stride + 0..16 * count - 1] = `count` tiles of 16 outputs for the rows of the block.
  void (*gemm)(const WeightView& w, int tile, int count, const ActivationBlock& block, float* out,
               std::int64_t stride);
  // y = x / rms(x) * weight, float32 [n], n a multiple of 16.
  void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* y);
  void (*add)(const float* x, float* y, int n);                                   // y += x
  void (*gated)(const float* gate, const float* up, int n, bool gelu, float* y);  // y = act(gate) * up
  void (*softcap)(float* x, std::int64_t n, float cap);
  // Store a head's key and value at a logical slot's place.
  void (*store_kv)(const CacheView& c, int block, int offset, int kv_head, const float* key, const float* value);
  // x rotated in place: x * cosine + partner(x) * sine. Tables as rotary tables of the decoder.
  void (*rotate)(float* x, const float* cosine, const float* sine, int rotated, bool interleaved);
  // Partial attention over one chunk of positions, for the rows that see any of them.
  void (*attend)(const AttentionTask& task, int chunk);
  // into = into (+) from, both [max, sum, values]; finish: out = values / sum.
  void (*merge)(float* into, const float* from, int padded_dim);
  void (*finish)(const float* partial, int head_dim, float* out);
  // Called by each thread behind a forward: gives back registers that only matrix products use.
  void (*release)();
};

// The table for a path name ("avx512", "avx2", "portable"), or nullptr when this machine or build lacks it.
const KernelTable* kernel_table(const char* name);
// The best path of this machine.
const KernelTable* best_kernel_table();

}  // namespace paceline
