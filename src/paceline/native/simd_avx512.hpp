// Sixteen lanes in one register; integer dot products with VNNI.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace paceline::PACELINE_PATH {

using F = __m512;
using I = __m512i;

constexpr int kMaxRows = 16;        // rows one pass over a weight tile serves
constexpr int kTaskQueries = 24;      // query heads one attention task serves
constexpr int kAccumulators = 24;     // sums kept in registers while values are mixed
constexpr bool kSignedBytes = false;  // 8-bit weights are multiplied unsigned, with their offset

inline F zero() { return _mm512_setzero_ps(); }
inline F set1(float x) { return _mm512_set1_ps(x); }
inline F load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, F x) { _mm512_storeu_ps(p, x); }
inline F add(F a, F b) { return _mm512_add_ps(a, b); }
inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
inline F div(F a, F b) { return _mm512_div_ps(a, b); }
inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
inline F max(F a, F b) { return _mm512_max_ps(a, b); }
inline F min(F a, F b) { return _mm512_min_ps(a, b); }
inline F abs(F a) { return _mm512_abs_ps(a); }
inline I izero() { return _mm512_setzero_si512(); }
inline I iset1(std::int32_t x) { return _mm512_set1_epi32(x); }
inline I iadd(I a, I b) { return _mm512_add_epi32(a, b); }
inline F to_float(I a) { return _mm512_cvtepi32_ps(a); }
inline I round_to_int(F a) { return _mm512_cvtps_epi32(a); }
inline F pow2(I n) {  // 2^n for n in [-126, 127]
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
}
inline float reduce_add(F a) { return _mm512_reduce_add_ps(a); }
inline float reduce_max(F a) { return _mm512_reduce_max_ps(a); }

inline F load_half(const std::uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void store_half(std::uint16_t* p, F x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
inline F load_bf16(const std::uint16_t* p) {
  const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
inline F load_u8(const std::uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline F load_s8(const std::uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline void store_s8(std::int8_t* p, I x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x));
}
inline void store_zero(std::int8_t* p) {  // 32 bytes
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_setzero_si256());
}
inline std::int32_t reduce_add(I a) { return _mm512_reduce_add_epi32(a); }
inline F swap_pairs(F a) { return _mm512_permute_ps(a, 0xb1); }
inline void store(std::int32_t* p, I x) { _mm512_storeu_si512(p, x); }

// Sixteen reductions side by side: lane g of the result combines all lanes of v[g]. Halving first whole 128-bit
// lanes, then elements, leaves vector 4*L + P in element P of lane L.
template <typename Combine>
inline F transpose_reduce(const F* v, Combine combine) {
  const auto lanes = [&](F a, F b) {
    return combine(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  };
  const auto elements = [&](F a, F b) {
    return combine(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
  };
  F quad[4];
  for (int p = 0; p < 4; ++p) quad[p] = lanes(lanes(v[p], v[4 + p]), lanes(v[8 + p], v[12 + p]));
  return elements(elements(quad[0], quad[1]), elements(quad[2], quad[3]));
}
inline F transpose_max(const F* v) {
  return transpose_reduce(v, [](F a, F b) { return max(a, b); });
}
inline I transpose_add(const I* v) {
  F bits[16];
  for (int i = 0; i < 16; ++i) bits[i] = _mm512_castsi512_ps(v[i]);
  return _mm512_castps_si512(transpose_reduce(bits, [](F a, F b) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
  }));
}
inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
inline void prefetch_second(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

// Of a tile group, inputs 4j..4j+3 and 16+4j..16+4j+3 of all 16 outputs.
struct QuantPair {
  I low, high;
};

inline I low_nibbles(I packed) { return _mm512_and_si512(packed, _mm512_set1_epi8(15)); }
inline I high_nibbles(I packed) {
#ifdef __GFNI__  // one instruction for two: each byte times the matrix of bits that moves its high half down
  return _mm512_gf2p8affine_epi64_epi8(packed, _mm512_set1_epi64(0x1020408000000000), 0);
#else
  return low_nibbles(_mm512_srli_epi16(packed, 4));
#endif
}

// Quants of a Q6_K group with their bits 4 and 5, which lie two by two in 64 bytes for each half.
inline I add_upper_bits(I quants, const std::uint8_t* p, int j) {
  const I bits = _mm512_loadu_si512(p);
  const I at4 = j == 0   ? _mm512_slli_epi16(bits, 4)
                : j == 1 ? _mm512_slli_epi16(bits, 2)
                : j == 2 ? bits
                         : _mm512_srli_epi16(bits, 2);
  return _mm512_ternarylogic_epi32(quants, at4, _mm512_set1_epi8(0x30), 0xf8);  // a | (b & c)
}

template <int Bits>
inline QuantPair load_pair(const std::uint8_t* p, int j) {
  const I packed = _mm512_loadu_si512(p + 64 * j);
  if constexpr (Bits == 8) return {packed, _mm512_loadu_si512(p + 64 * (j + 4))};
  QuantPair q{low_nibbles(packed), high_nibbles(packed)};
  if constexpr (Bits == 5) {
    const auto* fifth = reinterpret_cast<const __mmask64*>(p + 256);
    q.low = _mm512_mask_add_epi8(q.low, fifth[j], q.low, _mm512_set1_epi8(16));
    q.high = _mm512_mask_add_epi8(q.high, fifth[j + 4], q.high, _mm512_set1_epi8(16));
  }
  if constexpr (Bits == 6) {
    q.low = add_upper_bits(q.low, p + 256, j);
    q.high = add_upper_bits(q.high, p + 320, j);
  }
  return q;
}

inline I broadcast_four(const std::int8_t* a) {
  std::int32_t four;
  __builtin_memcpy(&four, a, 4);
  return _mm512_set1_epi32(four);
}

// acc + quants · activations, four products a lane.
inline I dot(I quants, I activations, I acc) { return _mm512_dpbusd_epi32(acc, quants, activations); }

}  // namespace paceline::PACELINE_PATH
