#include "blocks.hpp"

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

}  // namespace

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

}  // namespace paceline
