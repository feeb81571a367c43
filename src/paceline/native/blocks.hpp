// GGUF storage kinds: what a block holds, and what it dequantises to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace paceline {

constexpr int kTileRows = 16;
constexpr int kGroup = 32;
constexpr int kSuperGroups = 8;  // groups in a 256-wide K-quant super-block

enum class Kind : int { F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K };

struct KindTraits {
  Kind kind;
  int ggml_type;
  int block_inputs;   // inputs per GGUF block
  int block_bytes;    // bytes per GGUF block
  int bits;           // stored bits of a quant: 4, 5, 6, 8; 0 for float kinds
  int offset;         // subtracted from the stored unsigned quant
  bool has_min;       // an additive minimum per group
  bool two_level;     // K-quants: d and dmin per 256, small integer scales per group
  int header_bytes;   // per 8 groups, two-level kinds only
  int group_bytes;    // per group of 32 inputs
};

const KindTraits& traits(Kind kind);
const KindTraits* traits_of_ggml(int ggml_type);  // nullptr when unsupported

// Bytes of one tile row with this many groups.
std::size_t tile_row_bytes(const KindTraits& t, int groups);

// One group of 32 inputs of one row, between the GGUF block and the tile.
struct Group {
  std::uint8_t quants[kGroup];  // unsigned, offset still in
  std::uint16_t d = 0, m = 0;   // half-precision scale and minimum (dmin for two-level kinds)
  std::uint8_t scale[2] = {0, 0};  // two-level: scale (one per 16 inputs for Q6_K) and
  std::uint8_t minimum = 0;        // minimum of the group
};

// Group `group` of a GGUF row, and its values: operations in the order of gguf's reference, so that results are equal
// bit for bit.
void unpack_group(const KindTraits& t, const std::uint8_t* row, int group, Group* g);
void group_values(const KindTraits& t, const Group& g, float* out);

// Decode one GGUF row of `cols` inputs into float32, as gguf's reference does.
void dequantize_blocks(const KindTraits& t, const std::uint8_t* row, int cols, float* out);

float half_to_float(std::uint16_t h);
float bf16_to_float(std::uint16_t b);
std::uint16_t float_to_half(float f);

inline std::uint16_t load_u16(const std::uint8_t* p) {
  std::uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}

inline void store_u16(std::uint8_t* p, std::uint16_t v) { std::memcpy(p, &v, 2); }

}  // namespace paceline
