#include "weights.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace paceline {
namespace {

// kind, ggml type, block inputs, block bytes, bits, offset, min, two-level, header, group bytes
constexpr KindTraits kTraits[] = {
    {Kind::F32, 0, 1, 4, 0, 0, false, false, 0, 2048},
    {Kind::F16, 1, 1, 2, 0, 0, false, false, 0, 1024},
    {Kind::BF16, 30, 1, 2, 0, 0, false, false, 0, 1024},
    {Kind::Q4_0, 2, 32, 18, 4, 8, false, false, 0, 256 + 32},
    {Kind::Q4_1, 3, 32, 20, 4, 0, true, false, 0, 256 + 64},
    {Kind::Q5_0, 6, 32, 22, 5, 16, false, false, 0, 256 + 64 + 32},
    {Kind::Q5_1, 7, 32, 24, 5, 0, true, false, 0, 256 + 64 + 64},
    {Kind::Q8_0, 8, 32, 34, 8, 128, false, false, 0, 512 + 32},
    {Kind::Q4_K, 12, 256, 144, 4, 0, true, true, 64, 256 + 32},
    {Kind::Q5_K, 13, 256, 176, 5, 0, true, true, 64, 256 + 64 + 32},
    {Kind::Q6_K, 14, 256, 210, 6, 32, false, true, 32, 256 + 128 + 32},
};

std::uint16_t load_u16(const std::uint8_t* p) {
  std::uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}

void store_u16(std::uint8_t* p, std::uint16_t v) { std::memcpy(p, &v, 2); }

// One group of 32 inputs of one row, between the GGUF block and the tile.
struct Group {
  std::uint8_t quants[kGroup];  // unsigned, offset still in
  std::uint16_t d = 0, m = 0;   // half-precision scale and minimum (dmin for two-level kinds)
  std::uint8_t scale[2] = {0, 0};  // two-level: scale (one per 16 inputs for Q6_K) and
  std::uint8_t minimum = 0;        // minimum of the group
};

// Six-bit scale and minimum j of a Q4_K / Q5_K super-block.
void k_scale_min(const std::uint8_t* s, int j, std::uint8_t* scale, std::uint8_t* minimum) {
  if (j < 4) {
    *scale = s[j] & 63;
    *minimum = s[j + 4] & 63;
  } else {
    *scale = static_cast<std::uint8_t>((s[j + 4] & 15) | ((s[j - 4] >> 6) << 4));
    *minimum = static_cast<std::uint8_t>((s[j + 4] >> 4) | ((s[j] >> 6) << 4));
  }
}

void unpack_simple(Kind kind, const std::uint8_t* block, Group* g) {
  g->d = load_u16(block);
  const bool has_min = kind == Kind::Q4_1 || kind == Kind::Q5_1;
  const std::uint8_t* p = block + 2;
  if (has_min) {
    g->m = load_u16(p);
    p += 2;
  }
  if (kind == Kind::Q8_0) {
    for (int i = 0; i < kGroup; ++i) g->quants[i] = static_cast<std::uint8_t>(p[i] ^ 0x80);
    return;
  }
  std::uint32_t high = 0;
  if (kind == Kind::Q5_0 || kind == Kind::Q5_1) {
    std::memcpy(&high, p, 4);
    p += 4;
  }
  for (int i = 0; i < 16; ++i) {
    g->quants[i] = static_cast<std::uint8_t>((p[i] & 15) | (((high >> i) & 1) << 4));
    g->quants[i + 16] = static_cast<std::uint8_t>((p[i] >> 4) | (((high >> (i + 16)) & 1) << 4));
  }
}

void unpack_q45_k(Kind kind, const std::uint8_t* block, int j, Group* g) {
  g->d = load_u16(block);
  g->m = load_u16(block + 2);
  k_scale_min(block + 4, j, &g->scale[0], &g->minimum);
  const std::uint8_t* high = block + 16;
  const std::uint8_t* low = kind == Kind::Q5_K ? block + 48 : block + 16;
  low += 32 * (j / 2);
  for (int i = 0; i < kGroup; ++i) {
    int q = (j & 1) ? low[i] >> 4 : low[i] & 15;
    if (kind == Kind::Q5_K) q |= ((high[i] >> j) & 1) << 4;
    g->quants[i] = static_cast<std::uint8_t>(q);
  }
}

void unpack_q6_k(const std::uint8_t* block, int j, Group* g) {
  // 128 low nibbles bytes, 64 bytes of two high bits, 16 int8 scales, d. Halves of 128 inputs.
  const int half = j / 4, quarter = j % 4;
  const std::uint8_t* low = block + 64 * half + 32 * (quarter & 1);
  const std::uint8_t* high = block + 128 + 32 * half;
  for (int i = 0; i < kGroup; ++i) {
    const int nibble = quarter < 2 ? low[i] & 15 : low[i] >> 4;
    g->quants[i] = static_cast<std::uint8_t>(nibble | (((high[i] >> (2 * quarter)) & 3) << 4));
  }
  g->scale[0] = block[192 + 2 * j];
  g->scale[1] = block[192 + 2 * j + 1];
  g->d = load_u16(block + 208);
}

void unpack_group(const KindTraits& t, const std::uint8_t* row, int group, Group* g) {
  const int per_block = t.block_inputs / kGroup;
  const std::uint8_t* block = row + static_cast<std::size_t>(group / per_block) * t.block_bytes;
  if (t.kind == Kind::Q6_K) {
    unpack_q6_k(block, group % per_block, g);
  } else if (t.two_level) {
    unpack_q45_k(t.kind, block, group % per_block, g);
  } else {
    unpack_simple(t.kind, block, g);
  }
}

// The values of a group; operations in the order of gguf's reference, so that results are equal bit for bit.
void group_values(const KindTraits& t, const Group& g, float* out) {
  const float d = half_to_float(g.d), m = half_to_float(g.m);
  for (int i = 0; i < kGroup; ++i) {
    const float q = static_cast<float>(static_cast<int>(g.quants[i]) - t.offset);
    if (t.kind == Kind::Q6_K) {
      out[i] = (d * static_cast<float>(static_cast<std::int8_t>(g.scale[i / 16]))) * q;
    } else if (t.two_level) {
      out[i] = (d * static_cast<float>(g.scale[0])) * q - m * static_cast<float>(g.minimum);
    } else if (t.has_min) {
      out[i] = d * q + m;
    } else {
      out[i] = d * q;
    }
  }
}

float bf16_to_float(std::uint16_t b) {
  const std::uint32_t bits = static_cast<std::uint32_t>(b) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

int quant_bytes(const KindTraits& t) { return 64 * t.bits; }

// Address of a group inside a tile row, and of its super-block header.
std::size_t group_offset(const KindTraits& t, int group) {
  const std::size_t headers = t.two_level ? static_cast<std::size_t>(group / kSuperGroups + 1) : 0;
  return headers * t.header_bytes + static_cast<std::size_t>(group) * t.group_bytes;
}

std::size_t header_offset(const KindTraits& t, int group) {
  return group_offset(t, group / kSuperGroups * kSuperGroups) - t.header_bytes;
}

void put_quants(const KindTraits& t, std::uint8_t* p, int o, const std::uint8_t* quants) {
  for (int i = 0; i < kGroup; ++i) {
    const int j = i / 4, b = 4 * o + i % 4;
    if (t.bits == 8) {
      p[64 * j + b] = quants[i];
      continue;
    }
    std::uint8_t& byte = p[64 * (j % 4) + b];
    byte = static_cast<std::uint8_t>(byte | ((quants[i] & 15) << (j < 4 ? 0 : 4)));
    if (t.bits == 5) p[256 + 8 * j + b / 8] |= static_cast<std::uint8_t>((quants[i] >> 4) << (b % 8));
    if (t.bits == 6) p[256 + 64 * (j / 4) + b] |= static_cast<std::uint8_t>((quants[i] >> 4) << (2 * (j % 4)));
  }
}

void get_quants(const KindTraits& t, const std::uint8_t* p, int o, std::uint8_t* quants) {
  for (int i = 0; i < kGroup; ++i) {
    const int j = i / 4, b = 4 * o + i % 4;
    if (t.bits == 8) {
      quants[i] = p[64 * j + b];
      continue;
    }
    const std::uint8_t byte = p[64 * (j % 4) + b];
    quants[i] = static_cast<std::uint8_t>(j < 4 ? byte & 15 : byte >> 4);
    if (t.bits == 5) quants[i] |= static_cast<std::uint8_t>(((p[256 + 8 * j + b / 8] >> (b % 8)) & 1) << 4);
    if (t.bits == 6) quants[i] |= static_cast<std::uint8_t>(((p[256 + 64 * (j / 4) + b] >> (2 * (j % 4))) & 3) << 4);
  }
}

void put_scales(const KindTraits& t, std::uint8_t* p, std::uint8_t* header, int o, const Group& g) {
  std::uint8_t* s = p + quant_bytes(t);
  if (!t.two_level) {
    store_u16(s + 2 * o, g.d);
    if (t.has_min) store_u16(s + 32 + 2 * o, g.m);
    return;
  }
  store_u16(header + 2 * o, g.d);
  s[o] = g.scale[0];
  s[16 + o] = t.has_min ? g.minimum : g.scale[1];
  if (t.has_min) store_u16(header + 32 + 2 * o, g.m);
}

void get_scales(const KindTraits& t, const std::uint8_t* p, const std::uint8_t* header, int o, Group* g) {
  const std::uint8_t* s = p + quant_bytes(t);
  if (!t.two_level) {
    g->d = load_u16(s + 2 * o);
    if (t.has_min) g->m = load_u16(s + 32 + 2 * o);
    return;
  }
  g->d = load_u16(header + 2 * o);
  g->scale[0] = s[o];
  g->scale[1] = g->minimum = s[16 + o];
  if (t.has_min) g->m = load_u16(header + 32 + 2 * o);
}

}  // namespace

const KindTraits& traits(Kind kind) { return kTraits[static_cast<int>(kind)]; }

const KindTraits* traits_of_ggml(int ggml_type) {
  for (const KindTraits& t : kTraits)
    if (t.ggml_type == ggml_type) return &t;
  return nullptr;
}

std::size_t tile_row_bytes(const KindTraits& t, int groups) {
  const int supers = t.two_level ? (groups + kSuperGroups - 1) / kSuperGroups : 0;
  return static_cast<std::size_t>(groups) * t.group_bytes + static_cast<std::size_t>(supers) * t.header_bytes;
}

void Arena::Free::operator()(std::uint8_t* p) const { std::free(p); }

std::uint8_t* Arena::take(std::size_t size) {
  constexpr std::size_t huge = std::size_t{2} << 20, slab = std::size_t{8} << 20;
  size = (size + 63) / 64 * 64;
  if (size > left_) {
    const std::size_t wanted = ((size > slab ? size : slab) + huge - 1) / huge * huge;
    auto* p = static_cast<std::uint8_t*>(std::aligned_alloc(huge, wanted));
    if (p == nullptr) throw std::bad_alloc();
#if defined(__linux__)
    madvise(p, wanted, MADV_HUGEPAGE);
#endif
    slabs_.emplace_back(p);
    next_ = p;
    left_ = wanted;
  }
  std::uint8_t* p = next_;
  next_ += size;
  left_ -= size;
  return p;
}

float half_to_float(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t exponent = (h >> 10) & 31u, mantissa = h & 1023u;
  std::uint32_t bits;
  if (exponent == 31) {
    bits = sign | 0x7f800000u | (mantissa << 13);
  } else if (exponent != 0) {
    bits = sign | ((exponent + 112) << 23) | (mantissa << 13);
  } else {
    const float f = static_cast<float>(mantissa) * 5.9604644775390625e-08f;  // 2^-24
    std::memcpy(&bits, &f, 4);
    bits |= sign;
  }
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}

std::uint16_t float_to_half(float f) {
  std::uint32_t bits;
  std::memcpy(&bits, &f, 4);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (bits >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (bits < 0x38800000u) {  // subnormal half: let float addition do the rounding to nearest even
    float a;
    std::memcpy(&a, &bits, 4);
    const float magic = 0.5f;
    a += magic;
    std::uint32_t r;
    std::memcpy(&r, &a, 4);
    return static_cast<std::uint16_t>(sign | (r - 0x3f000000u));
  }
  const std::uint32_t rounded = bits + 0xfffu + ((bits >> 13) & 1u) - (112u << 23);
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
}

void dequantize_blocks(const KindTraits& t, const std::uint8_t* row, int cols, float* out) {
  switch (t.kind) {
    case Kind::F32:
      std::memcpy(out, row, static_cast<std::size_t>(cols) * 4);
      return;
    case Kind::F16:
      for (int i = 0; i < cols; ++i) out[i] = half_to_float(load_u16(row + 2 * i));
      return;
    case Kind::BF16:
      for (int i = 0; i < cols; ++i) out[i] = bf16_to_float(load_u16(row + 2 * i));
      return;
    default:
      for (int g = 0; g < cols / kGroup; ++g) {
        Group group;
        unpack_group(t, row, g, &group);
        group_values(t, group, out + g * kGroup);
      }
  }
}

Weight::Weight(Kind kind, int rows, int cols) {
  const KindTraits& t = traits(kind);
  view_.kind = kind;
  view_.rows = rows;
  view_.cols = cols;
  view_.groups = (cols + kGroup - 1) / kGroup;
  view_.tiles = (rows + kTileRows - 1) / kTileRows;
  row_bytes_ = view_.tile_bytes = tile_row_bytes(t, view_.groups);
}

Weight::Weight(Kind kind, int rows, int cols, Arena& arena) : Weight(kind, rows, cols) {
  view_.data = data_ = arena.take(bytes());
}

std::pair<std::unique_ptr<Weight>, std::unique_ptr<Weight>> Weight::interleaved(Kind first, Kind second, int rows,
                                                                                int cols, Arena& arena) {
  std::unique_ptr<Weight> a(new Weight(first, rows, cols)), b(new Weight(second, rows, cols));
  a->view_.data = a->data_ = arena.take(a->bytes() + b->bytes());
  b->view_.data = b->data_ = a->data_ + a->row_bytes_;
  a->view_.tile_bytes = b->view_.tile_bytes = a->row_bytes_ + b->row_bytes_;
  return {std::move(a), std::move(b)};
}

void Weight::load_rows(int start, int count, const std::uint8_t* bytes, const KindTraits& source) {
  // Tiles are built up with |=, so they start from zero; only here, so that no page is touched twice.
  const int first = start / kTileRows, last = (start + count + kTileRows - 1) / kTileRows;
  for (int tile = first; tile < last; ++tile) std::memset(data_ + tile * view_.tile_bytes, 0, row_bytes_);
  const std::size_t row_bytes = static_cast<std::size_t>(view_.cols) / source.block_inputs * source.block_bytes;
  std::vector<float> values;
  for (int r = 0; r < count; ++r) {
    const std::uint8_t* row = bytes + r * row_bytes;
    if (traits(view_.kind).bits != 0) {
      pack_row(start + r, row);
    } else if (source.kind == view_.kind && source.kind != Kind::F32) {
      auto* base = data_ + static_cast<std::size_t>((start + r) / kTileRows) * view_.tile_bytes;
      for (int i = 0; i < view_.cols; ++i)
        std::memcpy(base + 2 * (i * kTileRows + (start + r) % kTileRows), row + 2 * i, 2);
    } else {
      values.resize(view_.cols);
      dequantize_blocks(source, row, view_.cols, values.data());
      pack_float_row(start + r, values.data());
    }
  }
}

void Weight::pack_row(int row, const std::uint8_t* bytes) {
  const KindTraits& t = traits(view_.kind);
  std::uint8_t* tile = data_ + static_cast<std::size_t>(row / kTileRows) * view_.tile_bytes;
  for (int g = 0; g < view_.groups; ++g) {
    Group group;
    unpack_group(t, bytes, g, &group);
    std::uint8_t* p = tile + group_offset(t, g);
    put_quants(t, p, row % kTileRows, group.quants);
    put_scales(t, p, t.two_level ? tile + header_offset(t, g) : nullptr, row % kTileRows, group);
  }
}

void Weight::pack_float_row(int row, const float* values) {
  std::uint8_t* tile = data_ + static_cast<std::size_t>(row / kTileRows) * view_.tile_bytes;
  for (int i = 0; i < view_.cols; ++i) std::memcpy(tile + 4 * (i * kTileRows + row % kTileRows), values + i, 4);
}

void Weight::dequantize_row(int row, float* out) const {
  const KindTraits& t = traits(view_.kind);
  const std::uint8_t* tile = view_.tile(row / kTileRows);
  const int o = row % kTileRows;
  if (t.bits == 0) {
    for (int i = 0; i < view_.cols; ++i) {
      const int index = i * kTileRows + o;
      if (view_.kind == Kind::F32) std::memcpy(out + i, tile + 4 * index, 4);
      if (view_.kind == Kind::F16) out[i] = half_to_float(load_u16(tile + 2 * index));
      if (view_.kind == Kind::BF16) out[i] = bf16_to_float(load_u16(tile + 2 * index));
    }
    return;
  }
  for (int g = 0; g < view_.groups; ++g) {
    Group group;
    const std::uint8_t* p = tile + group_offset(t, g);
    get_quants(t, p, o, group.quants);
    get_scales(t, p, t.two_level ? tile + header_offset(t, g) : nullptr, o, &group);
    group_values(t, group, out + g * kGroup);
  }
}

}  // namespace paceline
