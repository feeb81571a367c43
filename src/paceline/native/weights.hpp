// Weights as the kernels want them: tiles of 16 output rows by 32 inputs, repacked from GGUF blocks without
// changing a value.
//
// A tile row (16 outputs) is one contiguous stream. Its groups of 32 inputs follow each other; a group holds
//   quants   4-bit kinds: 256 bytes; byte 64*j + 4*o + i holds, for output o, input 4*j+i in its low nibble and
//            input 16+4*j+i in its high nibble. 5-bit kinds: the same plus 64 bytes of fifth bits (bit 4*o+i of
//            the j-th 64-bit word belongs to input 4*j+i). 6-bit kinds: 128 bytes more; bits 2*(j%4) of byte
//            64*(j/4) + 4*o+i are the two high bits of input 4*j+i. 8-bit kinds: 512 bytes, byte 64*j+4*o+i, stored
//            unsigned with an offset. Float kinds: 32 x 16 values, one input after another.
//   scales   see ScaleLayout. Two-level kinds put d (and dmin) once in front of every 8 groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "blocks.hpp"

namespace paceline {

// A view the kernels take; see Weight for ownership.
struct WeightView {
  Kind kind = Kind::F32;
  int rows = 0, cols = 0, groups = 0, tiles = 0;
  std::size_t tile_bytes = 0;  // from one tile row to the next
  bool alternates = false, is_second = false;  // its tile rows alternate with a partner's; whose come first
  const std::uint8_t* data = nullptr;
  const std::uint8_t* tile(int i) const { return data + static_cast<std::size_t>(i) * tile_bytes; }
};

// Memory for a whole model in a few large slabs, aligned so that the kernel can back them with huge pages.
class Arena {
 public:
  std::uint8_t* take(std::size_t size);  // 64-byte aligned, uninitialised

 private:
  struct Free {
    void operator()(std::uint8_t* p) const;
  };
  std::vector<std::unique_ptr<std::uint8_t, Free>> slabs_;
  std::uint8_t* next_ = nullptr;
  std::size_t left_ = 0;
};

class Weight {
 public:
  Weight(Kind kind, int rows, int cols, Arena& arena);
  // Two weights of one shape whose tile rows alternate in memory, so that reading both is one stream.
  static std::pair<std::unique_ptr<Weight>, std::unique_ptr<Weight>> interleaved(Kind first, Kind second, int rows,
                                                                                 int cols, Arena& arena);
  // Repack GGUF rows [start, start + count); start must be a multiple of 16.
  void load_rows(int start, int count, const std::uint8_t* bytes, const KindTraits& source);
  // Take over a row of a weight of the same kind and width; new rows must come in rising order.
  void copy_row(int row, const Weight& from, int source_row);
  // Values of one row, float32 [cols].
  void dequantize_row(int row, float* out) const;
  const WeightView& view() const { return view_; }
  std::size_t bytes() const { return row_bytes_ * static_cast<std::size_t>(view_.tiles); }

 private:
  Weight(Kind kind, int rows, int cols);
  void pack_row(int row, const std::uint8_t* bytes);
  void pack_float_row(int row, const float* values);
  WeightView view_;
  std::size_t row_bytes_;  // of one tile row; view_.tile_bytes is the distance to the next
  std::uint8_t* data_;  // owned by the arena
};

}  // namespace paceline
